"""Prompts that servers of their own compute: how many there are, what they cost, and what answers cost without them.

Engines can be run so that some servers compute prompts and make first tokens, and others go on with the answers
(prefill and decode apart; vLLM, SGLang, TensorRT-LLM). Then first tokens are a queue of their own, and answers do not
wait for prompts. Each part is fitted to its own times:

- A prompt of P tokens that has the servers to itself takes a c + p P for c chunks, however many answers are under way.
  Such requests are at every load, and a and p follow from them by non-negative least squares.
- How many servers there are, and how many tokens an iteration of theirs takes, say the others: each level's requests
  are sent through the queue again, at the moments when they were sent, and that number is taken with which first tokens
  come when they came.
- What was computed goes over a link, one prompt after the other, q P each, and takes d besides. From there on an answer
  of n tokens takes t0 (n - 1) + t1 K to its last, with K as in ``batching_model``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpusize.estimate.twin.batch_limit import reported_tokens
from gpusize.estimate.twin.least_squares import inside, non_negative
from gpusize.estimate.twin.lives import Lives
from gpusize.estimate.twin.prefill_queue import Apart, replay, there_s

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.twin.visit_data import Observed

__all__ = [
    "Decoding",
    "Prompts",
    "at_once",
    "decoding_costs",
    "fit_apart",
    "lone_prompts",
    "prompt_noise",
]

FEWEST: Final = 20
"""Fewer prompts that had the servers to themselves tell nothing."""
ENOUGH: Final = 100
"""So many of single users say it better than more of all."""
SERVERS: Final = (1, 2, 3, 4, 6, 8)
BUDGETS: Final = (None, 8192, 2048, 512)
"""Tokens of an iteration that engines are run with; None: one prompt at a time."""
WAITS: Final = 0.25
"""A first token that waits for so much of an iteration of others, or less, does not wait for it."""
MOST_OFF: Final = 0.7
"""Differences of logarithms count up to so much: one that went wrong must not decide."""
QUEUED: Final = 0.85
"""Answers wait for each other where so few of those that could be made are."""
TURNS: Final = 3
ALIKE: Final = 1.1
LINK_STEP: Final = 2.0
LINK_STEPS: Final = 9
STEPS: Final = (0.16, 0.08, 0.04, 0.02, 0.01)
"""In the logarithm of what prompts under load cost more than those that are alone."""
MOST_REPLAYED: Final = 1_000
"""Requests of a level that are sent through the queue again."""

_TOLD: Final = ("tokens", "wait_s", "running", "pace_s")


@dataclass(frozen=True, slots=True, eq=False)
class Prompts:
    """The prompts of one visit, in the order in which they were sent; arrays of shape (n,).

    Attributes:
        users: requests in flight.
        sent_s: when each was sent.
        wait_s: from then to its first token.
        tokens: of it.
        lone: whether no other prompt was waiting or being computed meanwhile.
        running: answers under way when it was sent.
        pace_s: from token to token of its answer, NaN with one.
    """

    users: int
    sent_s: NDArray[np.float64]
    wait_s: NDArray[np.float64]
    tokens: NDArray[np.float64]
    lone: NDArray[np.bool_]
    running: NDArray[np.float64]
    pace_s: NDArray[np.float64]

    @classmethod
    def of(cls, visit: Observed) -> Prompts | None:
        """Those with first tokens and token counts; None without any."""
        import numpy as np

        known = reported_tokens(visit) & (visit.computed > 0)
        known &= visit.first_s > visit.sent_s
        if not known.any():
            return None
        order = np.argsort(visit.sent_s[known], kind="stable")
        sent, first, last = (each[known][order] for each in (visit.sent_s, visit.first_s, visit.last_s))
        before = np.concatenate([[-np.inf], np.maximum.accumulate(first)[:-1]])
        after = np.concatenate([sent[1:], [np.inf]])
        begun, ended = np.sort(first), np.sort(last)
        running = np.searchsorted(begun, sent, "right") - np.searchsorted(ended, sent, "right")
        gaps = visit.tokens_out[known][order] - 1
        with np.errstate(divide="ignore", invalid="ignore"):
            pace = np.where(gaps >= 1, (last - first) / gaps, np.nan)
        lone = (before <= sent) & (after >= first)
        tokens = visit.computed[known][order]
        return cls(visit.users, sent, first - sent, tokens, lone, running.astype(float), pace)


def fit_apart(prompts: Sequence[Prompts]) -> Apart | None:
    """The servers that repeat first tokens best; None where first tokens wait for answers, or too few tell.

    Transfers are left to ``decoding_costs``.
    """
    import numpy as np

    if not prompts:
        return None
    tokens, waits, running, pace = (
        np.concatenate([getattr(each, name)[each.lone] for each in prompts]) for name in _TOLD
    )
    if waits.size < FEWEST or _wait_for_answers(tokens, waits, running, pace):
        return None
    tokens, waits = _alone(prompts)
    busy = [each for each in prompts if not each.lone.all()]
    if not busy:
        return None
    best: tuple[float, Apart] | None = None
    for budget in BUDGETS:
        costs = _costs(tokens, waits, budget)
        off = np.inf
        for servers in SERVERS:
            tried = Apart(servers, costs[0], costs[1], budget)
            # More than enough of them change nothing.
            last, off = off, _all_off(busy, tried, off)
            if best is None or off < best[0]:
                best = off, tried
            if off >= last:
                break
    return None if best is None else _under_load(busy, best[1])


def _under_load(busy: Sequence[Prompts], servers: Apart) -> Apart:
    """The servers with all costs times one factor, with which first tokens of busy loads are repeated best.

    Under load less may be found in the cache than by those who are alone, and the cheap ones are alone more often.
    """
    import numpy as np

    def times(middle: float) -> Apart:
        factor = float(np.exp(middle))
        base_s, per_token_s = factor * servers.base_s, factor * servers.per_prompt_token_s
        return replace(servers, base_s=base_s, per_prompt_token_s=per_token_s)

    best = (_all_off(busy, servers), 0.0)
    for step in STEPS:
        around = (best[1] - step, best[1] + step)
        best = min(best, *((_all_off(busy, times(at), best[0]), at) for at in around))
    return times(best[1])


def lone_prompts(prompts: Sequence[Prompts], servers: Apart) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Prompts that had no others beside them, and what each cost beside its iterations, s; shapes (n,)."""
    import numpy as np

    tokens, waits = _alone(prompts)
    chunks = np.ones(tokens.size) if servers.batched_tokens is None else np.ceil(tokens / servers.batched_tokens)
    return tokens, waits - servers.base_s * chunks


def _alone(prompts: Sequence[Prompts]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Prompts without others and their waits, s: of single users if enough; cheap ones are alone more often."""
    import numpy as np

    single = [each for each in prompts if each.users == 1]
    some = single if sum(int(each.lone.sum()) for each in single) >= ENOUGH else prompts
    tokens, waits = (np.concatenate([getattr(each, name)[each.lone] for each in some]) for name in _TOLD[:2])
    return tokens, waits


def prompt_noise(prompts: Sequence[Prompts], servers: Apart) -> float:
    """Standard deviation of the logarithm of what a prompt costs over what its tokens do, of those without others."""
    import numpy as np

    tokens, cost_s = lone_prompts(prompts, servers)
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = cost_s / (servers.per_prompt_token_s * tokens)
    factor = factor[np.isfinite(factor) & (factor > 0)]
    if factor.size < FEWEST:
        return 0.0
    low, high = np.quantile(np.log(factor), [0.159, 0.841])
    return float(min(2.0, 0.5 * (high - low)))


def at_once(visits: Sequence[Observed], decoding: Decoding) -> float | None:
    """Answers that seem to be made at once at most, where others wait for them; None where none seem to wait.

    At the rate X at which tokens come, an iteration has N = X (t0 + t1 N) of them (Little 1961).
    """
    import numpy as np

    most, there = 0.0, 0.0
    for visit in visits:
        known = reported_tokens(visit)
        length_s = visit.window[1] - visit.window[0]
        judged = known & visit.steady
        if judged.sum() < FEWEST or length_s <= 0:
            continue
        rate = float(visit.tokens_out[judged].sum()) / length_s
        left = 1.0 - rate * decoding.per_sequence_s
        begun = there_s(visit, decoding.transfer_s, decoding.transfer_per_token_s)
        if left > 0 and rate * decoding.base_s / left > most:
            most = rate * decoding.base_s / left
            there = float(np.sum((visit.last_s - begun)[judged])) / length_s
    return most if 1.0 <= most < QUEUED * there else None


def _wait_for_answers(
    tokens: NDArray[np.float64], waits: NDArray[np.float64], running: NDArray[np.float64], pace: NDArray[np.float64]
) -> bool:
    """Whether prompts that had no others beside them came later while answers were under way.

    One that joins their iterations waits for the end of one at least half of the time, and for the answers' share of
    its own.
    """
    import numpy as np

    idle, beside = running == 0, (running >= 1) & np.isfinite(pace)
    if idle.sum() < FEWEST or beside.sum() < FEWEST:
        return False
    costs = non_negative(np.stack([np.ones(idle.sum()), tokens[idle]], axis=1), waits[idle])
    late = (waits - costs[0] - costs[1] * tokens)[beside] / pace[beside]
    late = late[inside(late)]
    return bool(late.mean() - 2 * late.std() / np.sqrt(late.size) > WAITS)


def _costs(tokens: NDArray[np.float64], waits: NDArray[np.float64], budget: int | None) -> tuple[float, float]:
    import numpy as np

    chunks = np.ones(tokens.size) if budget is None else np.ceil(tokens / budget)
    # What a prompt's tokens cost is spread by a factor, so long ones say less of the rest.
    weights = 1.0 / (tokens + np.median(tokens))
    rows, waits = np.stack([chunks, tokens], axis=1) * weights[:, None], waits * weights
    costs = non_negative(rows, waits)
    usual = inside(waits - rows @ costs)
    base_s, per_token_s = non_negative(rows[usual], waits[usual])
    return float(base_s), float(per_token_s)


def _all_off(busy: Sequence[Prompts], servers: Apart, most: float = math.inf) -> float:
    """The sum of what each is off; of some alone where these are off by more than ``most``."""
    off = 0.0
    for each in busy:
        off += _off(each, servers)
        if off > most:
            break
    return off


def _off(prompts: Prompts, servers: Apart) -> float:
    """Mean square of log(replayed / measured) of first tokens, times the root of their number."""
    import numpy as np

    some = slice(0, MOST_REPLAYED)
    replayed = replay(prompts.sent_s[some], prompts.tokens[some], servers)
    off = np.log(np.maximum(replayed, 1e-9) / prompts.wait_s[some])
    return float((np.minimum(np.abs(off), MOST_OFF) ** 2).sum())


@dataclass(frozen=True, slots=True)
class Decoding:
    """What answers cost after their first token, s: t0, t1, d and q.

    Attributes:
        off: how far that is from what was measured, in the mean, over the root of an answer's tokens, s.
    """

    base_s: float
    per_sequence_s: float
    transfer_s: float
    transfer_per_token_s: float
    off: float


def decoding_costs(visits: Sequence[Observed]) -> Decoding | None:
    """The costs of answers that no prompt delays; None where they cannot be.

    How long a cache waits for the link depends on q, so q is tried: nothing, and in steps over three decades up to what
    all of a request's time would allow, then in finer ones. Whose turn it is to leave the link is known for each, and
    the rest follows by least squares.
    """
    import numpy as np

    if sum(int(reported_tokens(each).sum()) for each in visits) < FEWEST:
        return None
    tokens = np.concatenate([each.tokens_in[reported_tokens(each)] for each in visits])
    took = np.concatenate([(each.last_s - each.first_s)[reported_tokens(each)] for each in visits])
    most = float(np.median(took) / max(1.0, float(np.nanmedian(tokens))))
    best: Decoding | None = None
    step = LINK_STEP
    tried = [0.0, *(most / step**power for power in range(LINK_STEPS))]
    for _ in range(2):
        for per_token_s in tried:
            found = _decoding(visits, per_token_s)
            if found is not None and (best is None or found.off < best.off):
                best = found
        if best is None or best.transfer_per_token_s == 0:
            break
        step = step**0.25
        tried = [best.transfer_per_token_s * step**power for power in (-2, -1, 1, 2)]
    return best


def _decoding(visits: Sequence[Observed], per_token_s: float) -> Decoding | None:
    import numpy as np

    lives = [found for each in visits if (found := Lives.of(each, begun_s=there_s(each, 0.0, per_token_s))) is not None]
    if sum(each.took.size for each in lives) < FEWEST:
        return None
    took = np.concatenate([each.took * each.scale for each in lives])
    scale = np.concatenate([each.scale for each in lives])
    # Answers that are all as long do not tell what comes once from what comes with each token.
    ones = np.zeros(scale.size) if scale.max() < ALIKE * scale.min() else scale
    # Who comes while others run waits for the end of an iteration: half of one.
    waits = np.concatenate([0.5 * (each.beside > 0) * each.scale for each in lives])
    costs, kept = np.array([1.0, 0.0, 0.0]), np.ones(took.size, dtype=bool)
    design, fitted = np.empty((0, 3)), np.zeros(3)
    for turn in range(TURNS):
        rows = np.concatenate([each.design(costs)[:, :2] for each in lives])
        design = np.column_stack([rows[:, 0] + waits, rows[:, 1], ones])
        fitted = non_negative(design[kept], took[kept])
        if fitted[0] + fitted[1] <= 0:
            return None
        if turn == TURNS - 2:
            kept = inside(took - design @ fitted)
        costs = np.array([fitted[0], fitted[1], 0.0])
    left = took - design @ fitted
    off = float(np.abs(left).mean())
    return Decoding(float(fitted[0]), float(fitted[1]), float(fitted[2]), per_token_s, off)
