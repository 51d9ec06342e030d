"""An iteration's costs, from what servers say of their times, in two turns.

First by the law of the means: tokens come t0 + t1 k + p P apart, with k sequences at work and P prompt tokens taken in
meanwhile, and a first token takes its own prompt on top (``server_figures.steps``). That knows neither how k varies
within a step nor who waits for whom. So then the day is replayed, and the costs are moved until the replay's times
between tokens and its times to first tokens are those of the pages, group by group of load (the method of simulated
moments: McFadden, Econometrica 57, 1989), by Gauss and Newton.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpusize.estimate.telemetry.replay import Day
from gpusize.estimate.twin.batching_model import Service
from gpusize.estimate.twin.server_figures import Served, steps
from gpusize.estimate.twin.simulate import Batching

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.telemetry.lengths import Lengths
    from gpusize.estimate.telemetry.limits import Limit
    from gpusize.estimate.telemetry.production import Production
    from gpusize.estimate.telemetry.replay import Replayed
    from gpusize.estimate.twin.simulate import TimeBound

__all__ = ["Costs", "first_costs", "fit_costs", "replica_of"]

FEWEST: Final = 50
"""Observations without which a group tells no mean."""
TURNS: Final = 5
DAYS: Final = 3
"""Replays with other draws that tell how far days of the same load lie apart."""
CHAOS: Final = 0.4
DECIDES: Final = 9.0
"""By how much the sum of squares must fall for a limit to be taken as seen: three standard errors."""
OFTEN: Final = 3
STEADY: Final = 0.97
"""So many scrapes must have seen so much of the most: else a limit there would hardly show."""
STEP: Final = 0.05
LEAST: Final = 1e-4
"""Costs are at least this share of the time between tokens, so that logarithms exist."""
NOISE: Final = (0.01, 0.03, 0.1)
"""What means of times between tokens, of first tokens and of waits are off even where much was seen: logarithms."""
LITTLE: Final = 0.2
"""Part of an iteration that is added to waits before their logarithms are compared."""
CALM: Final = 0.5
"""A group whose first tokens are waited for by more is left out of the first guess."""
HUBER: Final = 3.0
"""What is off by more errors counts in proportion, and no longer by its square: a pause of a server, or the like."""
QUEUED: Final = 0.2
"""A group with so many waiting for each at work: its first tokens tell of the queue and not of costs."""
WEAK: Final = 3.0
"""How far a cost may lie from the first guess, as a logarithm: where nothing tells it, it stays there."""


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """Costs that were fitted.

    Attributes:
        service: costs and limits.
        covariance: of the logarithms of base, cost per sequence and per prompt token; shape (3, 3).
        off: root mean square of what the replay's means are off, beyond chance, a logarithm.
        worst: the largest of them.
    """

    service: Service
    covariance: NDArray[np.float64]
    off: float
    worst: float

    def moved(self, errors: Sequence[float]) -> Service:
        """The service with the logarithms of its costs moved."""
        import numpy as np

        base, sequence, prompt = np.exp(np.asarray(errors))
        one = self.service
        return replace(
            one,
            base_s=one.base_s * float(base),
            per_sequence_s=one.per_sequence_s * float(sequence),
            per_prompt_token_s=one.per_prompt_token_s * float(prompt),
        )


def first_costs(production: Production, lengths: Lengths) -> tuple[float, float, float] | None:
    """t0, t1 and p by the law of the means; None where loads do not differ enough."""
    import numpy as np

    told = []
    seconds, tokens = production.seconds(), production.sums("itl_count")
    prompts, step_s = production.sums("tokens_in"), production.mean("itl")
    first_s, queue_s = production.mean("ttft"), np.nan_to_num(production.mean("queue_time"))
    mean_prompt = float(lengths.prompt.mean())
    for k in range(production.groups):
        if tokens[k] < FEWEST or not np.isfinite(step_s[k]) or seconds[k] <= 0:
            continue
        # First tokens are told when they come, waits when requests end: their difference says little in a queue.
        own_s = first_s[k] - queue_s[k] if queue_s[k] <= CALM * first_s[k] else np.nan
        told.append(
            Served(
                step_s=float(step_s[k]),
                # Those who are there see one more than there are on average, as in any Poisson stream: itself.
                sequences=float(step_s[k] * tokens[k] / seconds[k]) + 1.0,
                prompt_tokens_per_s=float(prompts[k] / seconds[k]),
                prompt_tokens=mean_prompt,
                prefill_s=float(own_s) if np.isfinite(own_s) and own_s > 0 else None,
            )
        )
    found = steps(told)
    if found is None:
        return None
    least = LEAST * float(np.nanmean(step_s))
    return max(found[0], least), max(found[1], least / 10), max(found[2], least / mean_prompt)


def replica_of(
    service: Service,
    lengths: Lengths,
    bounds: Sequence[TimeBound] = (),
    *,
    joint: bool = False,
    factors: tuple[float, ...] = (1.0,),
    most: float = 64.0,
) -> Batching:
    """A replica that can be simulated.

    Args:
        service: its costs and limits.
        lengths: of requests.
        bounds: one of each SLO.
        joint: whether one share is asked for of requests that keep all bounds.
        factors: on the bounds.
        most: requests up to which its rates are told.
    """
    import numpy as np

    prompt, output = float(lengths.prompt.mean()), float(lengths.output.mean())
    held = float(((lengths.prompt.astype(float) + lengths.output) * lengths.output).sum() / lengths.output.sum())
    cap = min(
        float(service.max_batch or 1e9),
        max(1.0, service.kv_tokens / held) if service.kv_tokens else 1e9,
        max(8.0, most),
    )
    k = np.arange(1, int(cap) + 1, dtype=float)
    base, each = service.base_s, service.per_sequence_s
    # A closed loop's cycle: L iterations, one more in wait where others are there, and a prompt of each.
    cycle = (output + (k > 1)) * base + k * (output * each + service.per_prompt_token_s * prompt)
    return Batching(service, list(bounds), joint, lengths.prompt, lengths.output, k / cycle, factors)


def fit_costs(production: Production, lengths: Lengths, router: str, limit: Limit) -> tuple[Costs, Limit]:
    """Costs by which replays have the times of the pages, and the limit as far as these tell it.

    Where no queue tells whether the most that was seen at work is the limit, both are fitted, and the times decide
    where one explains them better by more than ``DECIDES``.
    """
    import numpy as np

    days = [Day(production, router, seed=seed) for seed in range(1, DAYS + 1)]
    begun = [each for each in (first_costs(production, lengths), _guess(production, lengths)) if each is not None]
    fits = [_Fit(production, lengths, days, each) for each in begun]
    tried = [each.best(limit.batch, limit.cache_tokens, each.guess) for each in fits]
    # The law of the means knows no queue, and may begin far away where one stands most of the time.
    number = min(range(len(tried)), key=lambda k: tried[k].sum_of_squares)
    fit, free = fits[number], tried[number]
    running = production.running[np.isfinite(production.running)]
    if limit.reached or (running >= STEADY * limit.most_seen).sum() < OFTEN or limit.most_seen < 1:
        fit.learn([free])
        return fit.best(limit.batch, limit.cache_tokens, free.at).costs, limit
    most = round(limit.most_seen)
    narrow = fit.best(most, limit.cache_tokens, free.at)
    fit.learn([free, narrow])
    free = fit.best(limit.batch, limit.cache_tokens, free.at)
    narrow = fit.best(most, limit.cache_tokens, narrow.at)
    if narrow.sum_of_squares < free.sum_of_squares - DECIDES:
        return narrow.costs, replace(limit, batch=most, reached=True)
    return free.costs, limit


def _guess(production: Production, lengths: Lengths) -> tuple[float, float, float]:
    """Costs to begin with where all loads are much alike: half of an iteration for its own sake."""
    import numpy as np

    seconds, tokens = float(production.seconds().sum()), float(production.sums("itl_count").sum())
    step_s = float(production.sums("itl_sum").sum()) / max(1.0, tokens)
    firsts = float(production.sums("ttft_count").sum())
    first_s = (float(production.sums("ttft_sum").sum()) - float(production.sums("queue_time_sum").sum())) / max(
        1.0, firsts
    )
    at_once = 1.0 + step_s * tokens / max(seconds, 1e-9)
    own_s = max(first_s - step_s, 0.05 * step_s) if np.isfinite(first_s) else step_s
    return 0.5 * step_s, 0.5 * step_s / at_once, own_s / float(lengths.prompt.mean())


@dataclass(frozen=True, slots=True, eq=False)
class _Best:
    """Where a fit has ended: the logarithms of its costs, how far off it is, and what comes of that."""

    at: NDArray[np.float64]
    sum_of_squares: float
    costs: Costs


class _Fit:
    """Fits of one production under several limits."""

    def __init__(
        self, production: Production, lengths: Lengths, days: Sequence[Day], guess: tuple[float, float, float]
    ) -> None:
        import numpy as np

        self._lengths, self._days = lengths, days
        self._moments = _Moments(production)
        self.guess = np.log(np.array(guess))

    def learn(self, found: Sequence[_Best]) -> None:
        """How far days of the same load lie apart by how their queues went: part of the moments' errors from now on."""
        import numpy as np

        spread = np.zeros(self._moments.errors.size)
        for each in found:
            replica = replica_of(each.costs.service, self._lengths)
            logs = np.array([self._moments.logs(day.run(replica)) for day in self._days])
            spread = np.maximum(spread, logs.std(axis=0, ddof=1))
        # Of few days a spread is itself uncertain; and the pages and the replay are one day each.
        self._moments.errors = np.hypot(self._moments.base, 1.6 * spread)

    def best(self, batch: int | None, cache_tokens: int | None, begin: NDArray[np.float64]) -> _Best:
        """The costs under a limit, by Gauss and Newton from ``begin``."""
        import numpy as np

        def service(at: NDArray[np.float64]) -> Service:
            base, sequence, prompt = (float(each) for each in np.exp(at))
            return Service(base, sequence, prompt, batch, cache_tokens)

        def off(at: NDArray[np.float64]) -> NDArray[np.float64]:
            replayed = self._days[0].run(replica_of(service(at), self._lengths))
            off = self._moments.logs(replayed) / self._moments.errors
            far = np.sqrt(np.maximum(2 * HUBER * np.abs(off) - HUBER**2, 0.0))
            return np.asarray(np.where(np.abs(off) > HUBER, np.sign(off) * far, off))

        at, here = begin, off(begin)
        inverse = np.eye(3) / WEAK**2
        for _ in range(TURNS):
            slope = np.stack([(off(at + STEP * np.eye(3)[k]) - here) / STEP for k in range(3)], axis=1)
            inverse = slope.T @ slope + np.eye(3) / WEAK**2
            move = np.linalg.solve(inverse, -(slope.T @ here) - (at - self.guess) / WEAK**2)
            move *= min(1.0, 1.0 / max(1e-12, float(np.abs(move).max())))
            before = float(here @ here)
            for _ in range(3):
                there = off(at + move)
                if float(there @ there) < before:
                    break
                move /= 3
            else:
                break
            at, here = at + move, there
            if before - float(here @ here) < 0.03 * before or float(np.abs(move).max()) < 0.003:
                break
        total = float(here @ here)
        scale = max(1.0, total / max(1, here.size - 3))
        logs = self._moments.logs(self._days[0].run(replica_of(service(at), self._lengths)))
        beyond = np.sqrt(np.maximum(0.0, logs**2 - 2 * self._moments.errors**2))[self._moments.judged]
        spread = float(np.sqrt((beyond**2).mean())) if beyond.size else 0.0
        found = Costs(
            service(at),
            np.asarray(np.linalg.inv(inverse) * scale, dtype=np.float64),
            spread,
            float(beyond.max(initial=0.0)),
        )
        return _Best(at, total, found)


class _Moments:
    """Means of the pages that a replay is held against, as logarithms.

    Attributes:
        base: their errors by what they are from, without queues; shape (moments,).
        errors: with what queues add, as far as it is known.
        judged: which say whether the replica serves in another way.
    """

    def __init__(self, production: Production) -> None:
        import numpy as np

        tokens, firsts = production.sums("itl_count"), production.sums("ttft_count")
        answers = production.sums("request_time_count")
        self._step, self._first = production.mean("itl"), production.mean("ttft")
        waiting, at_work = _means_of(production, production.waiting), _means_of(production, production.running)
        self._steps = np.flatnonzero((tokens >= FEWEST) & (self._step > 0))
        self._firsts = np.flatnonzero((firsts >= FEWEST) & (self._first > 0))
        self._queue, queues = production.mean("queue_time"), production.sums("queue_time_count")
        self._queues = np.flatnonzero((queues >= FEWEST) & np.isfinite(self._queue))
        # Where servers are full they say how much they can do at most; elsewhere as much ends as comes.
        self._ends = np.flatnonzero(answers >= FEWEST)
        self._per_s = answers / np.maximum(production.seconds(), 1e-9)
        # Waits for the end of an iteration are there always, and say nothing.
        self._least_s = LITTLE * float(np.nanmean(self._step)) if np.isfinite(self._step).any() else 1e-3
        queued = np.nan_to_num(waiting) > QUEUED * np.maximum(np.nan_to_num(at_work), 1.0)
        # Tokens of one answer tell the same thing: answers count, not tokens.
        n = np.maximum(np.where(answers > 0, answers, firsts), 1.0)
        self.base = np.concatenate(
            [
                np.hypot(NOISE[0], 0.5 / np.sqrt(n[self._steps])),
                np.hypot(NOISE[1], 1.5 / np.sqrt(np.maximum(firsts[self._firsts], 1.0))),
                np.hypot(NOISE[2], 3.0 / np.sqrt(queues[self._queues])),
                np.hypot(NOISE[0], 1.0 / np.sqrt(answers[self._ends])),
            ]
        )
        # One pause of a server in a day is much of all waits, and no sign of another mechanism.
        self.judged = np.ones(self.base.size, dtype=bool)
        self.judged[self._steps.size + self._firsts.size :][: self._queues.size] = False
        # Until days are replayed nothing is known of what queues do to one.
        wide = np.concatenate(
            [
                np.zeros(self._steps.size),
                np.where(queued[self._firsts], CHAOS, 0.0),
                np.where(queued[self._queues], 2 * CHAOS, CHAOS),
                np.zeros(self._ends.size),
            ]
        )
        self.errors = np.hypot(self.base, wide)

    def logs(self, replayed: Replayed) -> NDArray[np.float64]:
        """Logarithms of what a replay's means are off; 0 where it has none. Shape (moments,)."""
        import numpy as np

        step, first, queue = replayed.step_s(), replayed.mean("ttft"), replayed.mean("queue_time")
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.concatenate(
                [
                    np.log(step[self._steps] / self._step[self._steps]),
                    np.log(first[self._firsts] / self._first[self._firsts]),
                    np.log(
                        (queue[self._queues] + self._least_s)
                        / (np.maximum(self._queue[self._queues], 0) + self._least_s)
                    ),
                    np.log(replayed.per_s()[self._ends] / self._per_s[self._ends]),
                ]
            )
        return np.asarray(np.clip(np.nan_to_num(found), -3.0, 3.0), dtype=np.float64)


def _means_of(production: Production, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of a gauge in each group; NaN without any. Shape (groups,)."""
    import numpy as np

    known = np.isfinite(values)
    total = np.bincount(production.of_step[known], weights=values[known], minlength=production.groups)
    count = np.bincount(production.of_step[known], minlength=production.groups)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(count > 0, total / count, np.nan))
