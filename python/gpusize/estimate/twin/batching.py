"""The simulated cluster's service model, fitted to what one replica showed.

An iteration of the model lasts t0 + t1 k + p P for k running sequences and P prompt tokens of those that just joined, and
gives every sequence one token. So an answer of n tokens takes, from its first token to its last,

    D = t0 (n - 1) + t1 K + p Q

where K is the number of tokens that all sequences got meanwhile (its own included) and Q that of the prompt tokens that
were taken in. All three are known from the records: tokens are spread evenly between the first and the last of an answer. The
three costs follow by non-negative least squares over all answers of all levels (Lawson and Hanson 1974), those that differ most left out once.

The limits of the batch are read where a queue stood before it: the most sequences that ran at once (``max_batch``), or, where
that varies, the most tokens that they held (``kv_tokens``). Without a queue there is no limit below what was seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.twin.observed import Observed

__all__ = ["Service", "fit_service", "limits"]

QUEUE_SHARE: Final = 0.15
"""A queue stands where so much of the requests in flight does not run."""
STEADY_BATCH: Final = 0.93
"""The batch is full at a fixed number of sequences when its middle is so near its top; else tokens limit it."""


@dataclass(frozen=True, slots=True)
class Service:
    """What a replica's iterations cost and hold.

    Attributes:
        base_s: t0, s.
        per_sequence_s: t1, s.
        per_prompt_token_s: p, s.
        max_batch: most sequences at once; None where none was reached.
        kv_tokens: most tokens of prompt and answer at once; None where none was reached.
    """

    base_s: float
    per_sequence_s: float
    per_prompt_token_s: float
    max_batch: int | None
    kv_tokens: int | None


def fit_service(visits: Sequence[Observed], per_prompt_token_s: float | None = None) -> Service | None:
    """The model's costs and limits; None where the records do not tell tokens and first tokens.

    With ``per_prompt_token_s`` that cost is given, and the other two follow.
    """
    import numpy as np

    rows = [found for each in visits if (found := _rows(each)) is not None]
    if not rows:
        return None
    design = np.concatenate([a for a, _ in rows])
    took = np.concatenate([b for _, b in rows])
    if len(took) < 20:
        return None
    if per_prompt_token_s is not None:
        took = took - per_prompt_token_s * design[:, 2]
        design = design[:, :2]
    costs = _non_negative(design, took)
    off = took - design @ costs
    spread = np.median(np.abs(off)) * 1.4826
    kept = np.abs(off) <= max(4 * spread, 1e-12)
    if kept.sum() >= 20:
        costs = _non_negative(design[kept], took[kept])
    if costs[0] + costs[1] <= 0:
        return None
    batch, tokens = limits(visits)
    prompt_s = float(costs[2]) if per_prompt_token_s is None else per_prompt_token_s
    return Service(float(costs[0]), float(costs[1]), prompt_s, batch, tokens)


def _known(visit: Observed) -> NDArray[np.bool_]:
    import numpy as np

    finite = np.isfinite(visit.first_s) & np.isfinite(visit.last_s) & np.isfinite(visit.tokens_out)
    return finite & visit.ok & (visit.tokens_out >= 1)


def _rows(visit: Observed) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """The unknowns' factors, shape (m, 3), and the times that they explain, shape (m,): relative to the answer's length."""
    import numpy as np

    known = _known(visit)
    if known.sum() < 3:
        return None
    first, last, n = visit.first_s[known], visit.last_s[known], visit.tokens_out[known]
    prompts = np.nan_to_num(visit.tokens_in[known], nan=0.0)
    counted = (visit.steady[known]) & (n >= 3)
    if not counted.any():
        return None
    made = _made(first, last, n)
    order = np.argsort(first)
    joined = np.concatenate([[0.0], np.cumsum(prompts[order])])
    at = lambda t: joined[np.searchsorted(first[order], t, "right")]
    others = made(last[counted]) - made(first[counted])
    design = np.stack([n[counted] - 1, others, at(last[counted]) - at(first[counted])], axis=1)
    took = (last - first)[counted]
    scale = 1.0 / (n[counted] - 1)
    return design * scale[:, None], took * scale


def _made(first: NDArray[np.float64], last: NDArray[np.float64], n: NDArray[np.float64]):  # noqa: ANN202
    """Tokens that all answers had by a time: one at the first token, the others evenly until the last."""
    import numpy as np

    rate = np.where(last > first, (n - 1) / np.maximum(last - first, 1e-12), 0.0)
    times = np.concatenate([first, last])
    change = np.concatenate([rate, -rate])
    jump = np.concatenate([np.ones_like(first), np.zeros_like(last)])
    order = np.argsort(times, kind="stable")
    times, change, jump = times[order], change[order], jump[order]
    speed = np.cumsum(change)
    total = np.concatenate([[0.0], np.cumsum(speed[:-1] * np.diff(times))]) + np.cumsum(jump)

    def at(t: NDArray[np.float64]) -> NDArray[np.float64]:
        place = np.searchsorted(times, t, "right") - 1
        return np.where(place >= 0, total[place] + speed[place] * (t - times[place]), 0.0)

    return at


def _non_negative(design: NDArray[np.float64], took: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least squares with coefficients of at least 0, by trying every set of those that are not 0."""
    import itertools

    import numpy as np

    best: tuple[float, NDArray[np.float64]] | None = None
    scale = np.maximum(np.abs(design).max(axis=0), 1e-300)
    for size in range(1, design.shape[1] + 1):
        for chosen in itertools.combinations(range(design.shape[1]), size):
            found, *_ = np.linalg.lstsq(design[:, chosen] / scale[list(chosen)], took, rcond=None)
            if (found < 0).any():
                continue
            full = np.zeros(design.shape[1])
            full[list(chosen)] = found / scale[list(chosen)]
            off = took - design @ full
            loss = float(off @ off)
            if best is None or loss < best[0] * (1 - 1e-9):
                best = loss, full
    return np.zeros(design.shape[1]) if best is None else best[1]


def limits(visits: Sequence[Observed]) -> tuple[int | None, int | None]:
    """Sequences and tokens that ran at once where a queue stood; None where none did."""
    import numpy as np

    batches: list[tuple[float, float, float]] = []
    for visit in visits:
        known = _known(visit)
        if known.sum() < 20:
            continue
        first, last = visit.first_s[known], visit.last_s[known]
        held = visit.tokens_out[known] + np.nan_to_num(visit.tokens_in[known], nan=0.0)
        low, high = visit.window
        running, most = _level_of(first, last, np.ones_like(first), low, high)
        _, tokens = _level_of(first, last, held, low, high)
        wait = np.median((visit.first_s - visit.sent_s)[known & visit.steady]) if (known & visit.steady).any() else 0.0
        took = np.median((visit.last_s - visit.first_s)[known & visit.steady]) if (known & visit.steady).any() else 1.0
        if running < (1 - QUEUE_SHARE) * visit.users and wait > QUEUE_SHARE * took:
            batches.append((running, most, tokens))
    if not batches:
        return None, None
    most = max(each[1] for each in batches)
    typical = float(np.median([each[0] for each in batches]))
    if typical >= STEADY_BATCH * most or most - typical <= 1.0:
        return int(most), None
    return None, int(max(each[2] for each in batches))


def _level_of(
    first: NDArray[np.float64], last: NDArray[np.float64], size: NDArray[np.float64], low: float, high: float
) -> tuple[float, float]:
    """Time average and maximum of what runs between two times."""
    import numpy as np

    times = np.concatenate([last, first])
    change = np.concatenate([-size, size])
    order = np.argsort(times, kind="stable")
    times, level = times[order], np.cumsum(change[order])
    inside = (times[:-1] >= low) & (times[1:] <= high)
    lasts = np.diff(times)[inside]
    if not lasts.size or lasts.sum() <= 0:
        return 0.0, 0.0
    held = level[:-1][inside]
    long = lasts > 1e-9
    return float((held * lasts).sum() / lasts.sum()), float(held[long].max()) if long.any() else 0.0
