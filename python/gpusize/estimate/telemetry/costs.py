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
    from gpusize.estimate.telemetry.replay import Day

__all__ = ["Costs", "first_costs", "fit_costs", "replica_of"]

FEWEST: Final = 50
"""Observations without which a group tells no mean."""
TURNS: Final = 5
STEP: Final = 0.05
LEAST: Final = 1e-4
"""Costs are at least this share of the time between tokens, so that logarithms exist."""
NOISE: Final = (0.01, 0.03)
"""What means of times between tokens, and of first tokens, are off even where much was seen: logarithms."""
REACH: Final = 4.0
"""Rates of a replica are told up to so many times the requests that it was seen with."""
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
        own_s = first_s[k] - queue_s[k]
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
    bounds: Sequence[tuple[str, float]] = (),
    *,
    joint: bool = False,
    factors: tuple[float, ...] = (1.0,),
    most: float = 64.0,
) -> Batching:
    """A replica that can be simulated.

    Args:
        service: its costs and limits.
        lengths: of requests.
        bounds: metric and bound in s of each SLO.
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


def fit_costs(production: Production, lengths: Lengths, day: Day, limit: Limit) -> Costs | None:
    """Costs by which a replay has the times of the pages; None where loads do not differ enough to begin."""
    import numpy as np

    begun = first_costs(production, lengths)
    if begun is None:
        return None
    moments = _Moments(production)
    guess = np.log(np.array(begun))
    service = Service(*begun, limit.batch, limit.cache_tokens)

    def off(at: NDArray[np.float64]) -> NDArray[np.float64]:
        base, sequence, prompt = (float(each) for each in np.exp(at))
        moved = replace(service, base_s=base, per_sequence_s=sequence, per_prompt_token_s=prompt)
        return moments.off(day.run(replica_of(moved, lengths)))

    at, here = guess, off(guess)
    best = float(here @ here)
    inverse = np.zeros((3, 3))
    for turn in range(TURNS):
        slope = np.stack([(off(at + STEP * np.eye(3)[k]) - here) / STEP for k in range(3)], axis=1)
        inverse = slope.T @ slope + np.eye(3) / WEAK**2
        if turn == TURNS - 1:
            break
        move = np.linalg.solve(inverse, -(slope.T @ here) - (at - guess) / WEAK**2)
        move *= min(1.0, 1.0 / max(1e-12, float(np.abs(move).max())))
        for _ in range(3):
            there = off(at + move)
            if float(there @ there) < best:
                break
            move /= 3
        else:
            break
        gain = best - float(there @ there)
        at, here, best = at + move, there, float(there @ there)
        if gain < 0.02 * best or float(np.abs(move).max()) < 0.003:
            break
    base, sequence, prompt = (float(each) for each in np.exp(at))
    scale = max(1.0, best / max(1, here.size - 3))
    logs = here * moments.errors
    beyond = np.sqrt(np.maximum(0.0, logs**2 - moments.errors**2))
    found = replace(service, base_s=base, per_sequence_s=sequence, per_prompt_token_s=prompt)
    return Costs(
        found, np.linalg.inv(inverse) * scale, float(np.sqrt((beyond**2).mean())), float(np.abs(logs).max(initial=0.0))
    )


class _Moments:
    """Means of the pages that a replay is held against, with their errors, all as logarithms."""

    def __init__(self, production: Production) -> None:
        import numpy as np

        tokens, firsts = production.sums("itl_count"), production.sums("ttft_count")
        answers = production.sums("output_length_count")
        self._step, self._first = production.mean("itl"), production.mean("ttft")
        waiting = _means_of(production, production.waiting)
        at_work = _means_of(production, production.running)
        self._steps = np.flatnonzero((tokens >= FEWEST) & (self._step > 0))
        free = np.nan_to_num(waiting) <= QUEUED * np.maximum(np.nan_to_num(at_work), 1.0)
        self._firsts = np.flatnonzero((firsts >= FEWEST) & (self._first > 0) & free)
        # Tokens of one answer tell the same thing: answers count, not tokens.
        n = np.maximum(np.where(answers > 0, answers, firsts), 1.0)
        self.errors = np.concatenate(
            [
                np.hypot(NOISE[0], 0.5 / np.sqrt(n[self._steps])),
                np.hypot(NOISE[1], 1.5 / np.sqrt(np.maximum(firsts[self._firsts], 1.0))),
            ]
        )

    def off(self, replayed: object) -> NDArray[np.float64]:
        """What a replay's means are off over the errors; 0 where it has none. Shape (moments,)."""
        import numpy as np

        from gpusize.estimate.telemetry.replay import Replayed

        assert isinstance(replayed, Replayed)
        step, first = replayed.step_s(), replayed.mean("ttft")
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.concatenate(
                [
                    np.log(step[self._steps] / self._step[self._steps]),
                    np.log(first[self._firsts] / self._first[self._firsts]),
                ]
            )
        return np.clip(np.nan_to_num(found), -3.0, 3.0) / self.errors


def _means_of(production: Production, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of a gauge in each group; NaN without any. Shape (groups,)."""
    import numpy as np

    known = np.isfinite(values)
    total = np.bincount(production.of_step[known], weights=values[known], minlength=production.groups)
    count = np.bincount(production.of_step[known], minlength=production.groups)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(count > 0, total / count, np.nan))
