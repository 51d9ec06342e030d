"""The simulated cluster's service model, fitted to what one replica showed.

An iteration of the model lasts t0 + t1 k + p P for k running sequences and P prompt tokens of those that just
joined, and gives every sequence one token. So an answer of n tokens takes, from its first token to its last,

    D = t0 (n - 1) + t1 K + p Q

where K is the number of tokens that all sequences got meanwhile (its own included) and Q that of the prompt tokens that
were taken in. Q is known from the records. K is the sum over the pieces of the answer's life, between which sequences
come and go, of iterations times running sequences; how its n - 1 iterations are spread over the pieces follows from the
costs themselves, so both are found by turns. The costs follow by non-negative least squares (Lawson and Hanson 1974)
over all answers of all levels, warm-up included: the law holds there too. Those that differ most are left out once.

The limits of the batch are read where a queue stood before it: the most sequences that ran at once (``max_batch``),
or, where
that varies, the most tokens that they held (``kv_tokens``). Without a queue there is no limit below what was seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from gpusize.estimate.twin.batch_limit import held, limits, reached, reported_tokens, seen_at_once
from gpusize.estimate.twin.least_squares import inside, non_negative, triangle
from gpusize.estimate.twin.lives import Lives
from gpusize.estimate.twin.prefill_queue import Apart
from gpusize.estimate.twin.prefill_servers import Prompts
from gpusize.estimate.twin.server_figures import served_limit, steps

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.twin.visit_data import Observed

__all__ = ["Fits", "Service", "fit_service", "single_users", "streamed"]

FEWEST: Final = 20
"""Fewer answers tell no costs."""
FEWEST_ALONE: Final = 10
"""Fewer first tokens of requests that were alone say nothing of prompts."""
TURNS: Final = 4


@dataclass(frozen=True, slots=True)
class Service:
    """What a replica's iterations cost and hold.

    Attributes:
        base_s: t0, s.
        per_sequence_s: t1, s.
        per_prompt_token_s: p, s.
        max_batch: most sequences at once; None where none was reached.
        kv_tokens: most tokens of prompt and answer at once; None where none was reached.
        noise: standard deviation of the logarithm of a request's own cost factor.
        whole: where a batch runs to the end of its longest answer before the next begins: what it costs beside its
            iterations, and how long the first of one that is not full waits for others, s.
        seen: most sequences that were seen at once, and whether that surely is the limit; see ``seen_at_once``.
        batched_tokens: tokens of an iteration, those of answers first; None where prompts are computed whole.
        preempts: whether a cache of ``kv_tokens`` fills token by token and the youngest has to leave when it is full;
            else whole requests are reserved.
        apart: servers that prompts are computed by; None where iterations do that beside the answers.
    """

    base_s: float
    per_sequence_s: float
    per_prompt_token_s: float
    max_batch: int | None
    kv_tokens: int | None
    noise: float = 0.0
    whole: tuple[float, float] | None = None
    seen: tuple[int, bool] | None = None
    batched_tokens: int | None = None
    preempts: bool = False
    apart: Apart | None = None

    def to_json(self) -> dict[str, Any]:
        """Costs and limits, by the names that the simulated cluster's configuration has for them."""
        return {
            "iteration_base_s": self.base_s,
            "iteration_per_sequence_s": self.per_sequence_s,
            "prefill_per_token_s": self.per_prompt_token_s,
            "max_batch": self.max_batch,
            "max_batched_tokens": self.batched_tokens,
            "kv_tokens": self.kv_tokens,
            "kv_preemption": self.preempts,
            "prefill_servers": None if self.apart is None else self.apart.to_json(),
        }


class Fits:
    """What several fits to the same visits have in common, worked out when the first one asks for it."""

    def __init__(self, visits: Sequence[Observed]) -> None:
        self._visits = visits

    @cached_property
    def lives(self) -> list[Lives]:
        """The answers of each visit."""
        return [found for each in self._visits if (found := Lives.of(each)) is not None]

    @cached_property
    def prompts(self) -> list[Prompts]:
        """The prompts of each visit."""
        return [found for each in self._visits if (found := Prompts.of(each)) is not None]

    @cached_property
    def even(self) -> list[NDArray[np.float64]]:
        """Rows of each visit's answers while nothing is known of costs: all iterations last as long."""
        import numpy as np

        return [each.design(np.array([1.0, 0.0, 0.0])) for each in self.lives]

    @cached_property
    def told(self) -> bool:
        """Whether the server said how many requests it works on at once."""
        said = served_limit([each.served for each in self._visits])
        return said is not None and not said[1]

    @cached_property
    def reached(self) -> tuple[int | None, int | None]:
        """Most sequences, and most tokens, that ran at once where a queue stood; None where none did."""
        return reached(self._visits)

    @cached_property
    def held(self) -> int | None:
        """Most tokens in the cache at once if it fills token by token, as ``batch_limit.held``."""
        return held(self._visits)

    @cached_property
    def limits(self) -> tuple[int | None, int | None]:
        """Sequences and tokens that run at once, as ``batch_limit.limits``."""
        return limits(self._visits)


def fit_service(
    visits: Sequence[Observed],
    *,
    prompts_alone: bool = False,
    shared: Fits | None = None,
    batched_tokens: int | None = None,
) -> Service | None:
    """Costs and limits; None where records do not tell tokens and first tokens, nor the server its steps.

    Args:
        visits: closed loops of one replica.
        prompts_alone: whether p is taken from first tokens of requests that were alone: t0 + t1 + p P, less the t0 + t1
            of their other tokens. Each that joins brings a prompt and tokens, so lives of answers hardly tell them
            apart. A server that spends more on a first token than its prompt is fitted better without.
        shared: of the same visits, where they are fitted several times.
        batched_tokens: tokens of an iteration, where prompts are computed in chunks of so many. A prompt that is alone
            then takes an iteration for each.
    """
    import numpy as np

    shared = shared or Fits(visits)
    if not streamed(visits):
        told = None if prompts_alone else steps([each.served for each in visits])
        return None if told is None else Service(*told, *shared.limits)
    lives = shared.lives
    if sum(each.took.size for each in lives) < FEWEST:
        return None
    alone, waits = _alone(visits, batched_tokens)
    first = triangle(alone, waits)
    took = [each.took * each.scale for each in lives]
    kept: list[NDArray[np.bool_] | slice] = [slice(None)] * len(took)
    known_s = _prompt_cost(visits, batched_tokens) if prompts_alone else None
    if prompts_alone and known_s is None:
        return None
    designs, costs = shared.even, np.zeros(3)
    for turn in range(TURNS):
        weight = math.sqrt(sum(each[k].size for each, k in zip(took, kept, strict=True)) / max(1, waits.size))
        parts = [triangle(rows[k], each[k]) for rows, each, k in zip(designs, took, kept, strict=True)]
        whole = np.concatenate([weight * first, *parts])
        rows, times = whole[:, :3], whole[:, 3]
        if known_s is None:
            costs = non_negative(rows, times)
        else:
            costs = np.append(non_negative(rows[:, :2], times - known_s * rows[:, 2]), known_s)
        if costs[0] + costs[1] <= 0:
            return None
        if turn == TURNS - 2:
            kept = [inside(t - each @ costs) for t, each in zip(took, designs, strict=True)]
        if turn < TURNS - 1:
            designs = [each.design(costs) for each in lives]
    batch, tokens = shared.limits
    seen = seen_at_once(visits)
    base_s, per_sequence_s, per_prompt_token_s = (float(each) for each in costs)
    noise = _noise(visits, costs, batched_tokens)
    return Service(
        base_s, per_sequence_s, per_prompt_token_s, batch, tokens, noise, seen=seen, batched_tokens=batched_tokens
    )


def streamed(visits: Sequence[Observed]) -> bool:
    """Whether enough answers came token by token to tell costs."""
    return sum(int((reported_tokens(each) & (each.tokens_out >= 3)).sum()) for each in visits) >= FEWEST


def _chunks(prompts: NDArray[np.float64], batched_tokens: int | None) -> NDArray[np.float64]:
    """Iterations that a prompt takes which is alone, shape (n,)."""
    import numpy as np

    return np.maximum(1.0, np.ceil(prompts / batched_tokens)) if batched_tokens else np.ones(prompts.size)


def _alone(visits: Sequence[Observed], batched_tokens: int | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rows for first tokens of requests that had the target to themselves: t0 + t1 + p P each, a t0 for each chunk.

    They tell prompts from tokens where all answers have the same lengths, and weigh as much as all other rows together.
    """
    import numpy as np

    rows = []
    for visit in visits:
        if visit.users != 1:
            continue
        known = reported_tokens(visit) & np.isfinite(visit.computed)
        waits, prompts = (visit.first_s - visit.sent_s)[known], visit.computed[known]
        chunks = _chunks(prompts, batched_tokens)
        rows.append(np.stack([chunks, np.ones(prompts.size), prompts, waits], axis=1))
    found = np.concatenate(rows) if rows else np.empty((0, 4))
    return found[:, :3], found[:, 3]


def single_users(
    visits: Sequence[Observed],
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]]:
    """Of each visit of one user: first tokens' waits, s, times from token to token, s, prompt tokens; shapes (n,)."""
    import numpy as np

    for visit in visits:
        if visit.users == 1:
            known = reported_tokens(visit) & (visit.computed > 0) & (visit.tokens_out >= 2)
            pace_s = (visit.last_s - visit.first_s) / np.maximum(visit.tokens_out - 1, 1)
            yield (visit.first_s - visit.sent_s)[known], pace_s[known], visit.computed[known]


def _prompt_cost(visits: Sequence[Observed], batched_tokens: int | None) -> float | None:
    """Seconds per prompt token from requests that were alone; None where there are too few.

    Their chunks are taken to cost as much as their tokens, beside the prompt: nearly all of both is t0.
    """
    import numpy as np

    found = list(single_users(visits))
    if sum(waits.size for waits, _, _ in found) < FEWEST_ALONE:
        return None
    wait, pace, prompt = (np.concatenate(each) for each in zip(*found, strict=True))
    rest = wait - _chunks(prompt, batched_tokens) * np.median(pace)
    usual = inside(wait - pace)
    return max(0.0, float(rest[usual].sum() / prompt[usual].sum()))


def _noise(visits: Sequence[Observed], costs: NDArray[np.float64], batched_tokens: int | None) -> float:
    """Spread of what requests cost beyond their tokens, from first tokens of requests that were alone.

    Alone, the first token comes after t0 + f (t1 + p P); the logarithm of f is normal with this standard deviation.
    """
    import numpy as np

    base_s, per_sequence_s, per_prompt_token_s = costs
    alone = [each for each in visits if each.users == 1]
    if not alone:
        return 0.0
    waits = np.concatenate([(v.first_s - v.sent_s)[v.ok] for v in alone])
    prompts = np.nan_to_num(np.concatenate([v.computed[v.ok] for v in alone]), nan=0.0)
    own = per_sequence_s + per_prompt_token_s * prompts
    if not (own > 0).all():
        return 0.0
    factor = (waits - base_s * _chunks(prompts, batched_tokens)) / own
    factor = factor[np.isfinite(factor) & (factor > 0)]
    if factor.size < FEWEST or factor.size < 0.9 * waits.size:
        return 0.0
    low, high = np.quantile(np.log(factor), [0.159, 0.841])
    return float(min(2.0, 0.5 * (high - low)))
