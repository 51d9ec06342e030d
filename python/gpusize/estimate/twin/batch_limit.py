"""What a batch holds at most, where a queue stood before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from gpusize.estimate.twin.server_figures import served_limit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.twin.visit_data import Observed

__all__ = ["held", "limits", "reached", "reported_tokens", "said_at_once", "seen_at_once"]

QUEUE_SHARE: Final = 0.15
"""A queue stands where so much of the requests in flight does not run."""
OVERLAP: Final = 0.03
OFTEN: Final = 0.25
"""Part of the time for which a limit of sequences is reached."""
MOSTLY: Final = 0.6
"""Part of the time for which a batch is full where a queue stands, however short it is."""
STEADY_BATCH: Final = 0.93
"""The batch is full at a fixed number of sequences when its middle is so near its top; else tokens limit it."""


def reported_tokens(visit: Observed) -> NDArray[np.bool_]:
    """Which answers of a visit ended ok with first tokens and token counts, shape (m,)."""
    import numpy as np

    finite = np.isfinite(visit.first_s) & np.isfinite(visit.last_s) & np.isfinite(visit.tokens_out)
    return finite & visit.ok & (visit.tokens_out >= 1)


def _placed(visit: Observed) -> NDArray[np.bool_]:
    """Which requests tell when they had their place in a batch: the server says so, or their tokens do; shape (m,)."""
    import numpy as np

    if visit.queue_s is None:
        return reported_tokens(visit)
    return visit.ok & np.isfinite(visit.last_s) & np.isfinite(visit.queue_s)


def limits(visits: Sequence[Observed]) -> tuple[int | None, int | None]:
    """Sequences and tokens that ran at once where a queue stood; None where none did. The server's word goes first."""
    import numpy as np

    told = served_limit([each.served for each in visits])
    if told is not None and not told[1]:
        return told[0], None
    batches = _queued(visits)
    if not batches:
        return None if told is None else told[0], None
    most = max(each[1] for each in batches)
    typical = float(np.median([each[0] for each in batches]))
    # A limit of sequences is reached again and again by the same number; one of tokens by ever other sums.
    often = float(np.median([each[3] for each in batches])), float(np.median([each[4] for each in batches]))
    if typical >= STEADY_BATCH * most or most - typical <= 1.0 or (often[0] > OFTEN and often[0] > often[1]):
        return int(most), None
    return None, int(max(each[2] for each in batches))


def reached(visits: Sequence[Observed]) -> tuple[int | None, int | None]:
    """The most sequences, and the most tokens, that ran at once where a queue stood, whichever of them the limit is.

    A server's word for the sequences goes first. None where no queue stood.
    """
    told = served_limit([each.served for each in visits])
    if told is not None and not told[1]:
        return told[0], None
    batches = _queued(visits)
    if batches:
        return int(max(each[1] for each in batches)), int(max(each[2] for each in batches))
    seen = seen_at_once(visits)
    return seen[0] if seen is not None and seen[1] else None, None


def _queued(visits: Sequence[Observed]) -> list[tuple[float, float, float, float, float]]:
    """Of each visit with a queue: sequences in the mean and at most, tokens at most, and how often both were full."""
    import numpy as np

    batches: list[tuple[float, float, float, float, float]] = []
    for visit in visits:
        known = _placed(visit)
        if known.sum() < 20:
            continue
        judged = known & visit.steady
        begun_s = visit.first_s if visit.queue_s is None else visit.sent_s + visit.queue_s
        wait = np.median((begun_s - visit.sent_s)[judged]) if judged.any() else 0.0
        took = np.median((visit.last_s - begun_s)[judged]) if judged.any() else 1.0
        if wait <= QUEUE_SHARE * took:
            continue
        held = np.nan_to_num(visit.tokens_out[known]) + np.nan_to_num(visit.tokens_in[known])
        times, order = _moments(visit, known)
        low, high = visit.window
        running, most, full = _level_of(times, order, np.ones_like(held), low, high)
        if running < (1 - QUEUE_SHARE) * visit.users:
            _, tokens, filled = _level_of(times, order, held, low, high)
            batches.append((running, most, tokens, full, filled))
    return batches


def said_at_once(visits: Sequence[Observed]) -> int | None:
    """Requests that ran at once where a queue stood, by what the server said of each; None where it said nothing.

    Of a limit in tokens the middle of how many ran.
    """
    import numpy as np

    if any(visit.queue_s is None for visit in visits):
        return None
    most, tokens = limits(visits)
    if most is not None or tokens is None:
        return most
    found = []
    for visit in visits:
        known = _placed(visit)
        times, order = _moments(visit, known)
        running, _, _ = _level_of(times, order, np.ones(int(known.sum())), *visit.window)
        if known.sum() >= 20 and running < (1 - QUEUE_SHARE) * visit.users:
            found.append(running)
    return max(1, round(float(np.median(found)))) if found else None


def seen_at_once(visits: Sequence[Observed]) -> tuple[int, bool] | None:
    """The most sequences that were seen to run at once: no limit is below it. And whether it surely is the limit.

    It is where so many ran most of the time while others waited, though not so many others that `limits` says so. None
    where no first tokens tell.
    """
    import numpy as np

    found = []
    for visit in visits:
        known = _placed(visit)
        if known.sum() < 20:
            continue
        times, order = _moments(visit, known)
        _, most, full = _level_of(times, order, np.ones(int(known.sum())), *visit.window)
        found.append((round(most), most < visit.users - 1 and full > MOSTLY))
    return max(found, default=None)


def held(visits: Sequence[Observed]) -> int | None:
    """The most tokens that were in the cache at once if it fills token by token; None where no tokens are known.

    Answers are taken to grow evenly. Where some had to leave for others that is too much: they held nothing meanwhile.
    """
    import numpy as np

    found = []
    for visit in visits:
        known = reported_tokens(visit) & (visit.last_s > visit.first_s)
        if known.sum() < 20:
            continue
        prompts = np.nan_to_num(visit.tokens_in[known], nan=0.0)
        rate = visit.tokens_out[known] / (visit.last_s - visit.first_s)[known]
        # A prompt is there at once, its answer grows: together a line, between two moments a sum of lines.
        at_zero = prompts - rate * visit.first_s[known]
        times = np.concatenate([visit.last_s[known], visit.first_s[known]])
        order = np.argsort(times, kind="stable")
        slope = np.cumsum(np.concatenate([-rate, rate])[order])
        level = np.cumsum(np.concatenate([-at_zero, at_zero])[order]) + slope * times[order]
        inside = (times[order] >= visit.window[0]) & (times[order] <= visit.window[1])
        if inside.any():
            found.append(float(np.quantile(level[inside], 1 - OVERLAP)))
    return int(max(found)) if found else None


def _moments(visit: Observed, known: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """When sequences leave and take their places, ascending, and where each moment comes from; shapes (2 m,).

    Args:
        visit: with tokens.
        known: which of its requests count, m of them.
    """
    import numpy as np

    last = visit.last_s[known]
    times = np.concatenate([last, _begun_s(visit, known)])
    order = np.argsort(times, kind="stable")
    return times[order], order


def _begun_s(visit: Observed, known: NDArray[np.bool_]) -> NDArray[np.float64]:
    """When sequences take their places; shape (m,)."""
    import numpy as np

    last = visit.last_s[known]
    if visit.queue_s is not None:
        # Where the way to the server takes long, the turn came later than the queue alone says.
        begun_s = visit.sent_s[known] + visit.queue_s[known]
        later_s = begun_s if visit.server_s is None else np.fmax(begun_s, last - visit.server_s[known])
        return np.minimum(later_s, last)
    first = visit.first_s[known]
    # A sequence has its place from the iteration on that ends with its first token.
    pace_s = (last - first) / np.maximum(visit.tokens_out[known] - 1, 1)
    return np.asarray(np.maximum(visit.sent_s[known], first - pace_s))


def _level_of(
    times: NDArray[np.float64], order: NDArray[np.intp], size: NDArray[np.float64], low: float, high: float
) -> tuple[float, float, float]:
    """Time average and top of what runs between two times, and the share of the time that it is within 2 % of the top.

    For a few per cent of the time more may seem to run, where one that ends and the next overlap.

    Args:
        times: ends and beginnings, ascending; shape (2 m,).
        order: where each comes from: the ends, then the beginnings.
        size: what each request adds; shape (m,).
        low: from here on.
        high: up to here.
    """
    import numpy as np

    level = np.cumsum(np.concatenate([-size, size])[order])
    inside = (times[:-1] >= low) & (times[1:] <= high)
    lasts = np.diff(times)[inside]
    if not lasts.size or lasts.sum() <= 0:
        return 0.0, 0.0, 0.0
    held = level[:-1][inside]
    order = np.argsort(held, kind="stable")
    passed = np.cumsum(lasts[order]) / lasts.sum()
    top = float(held[order][min(order.size - 1, int(np.searchsorted(passed, 1 - OVERLAP)))])
    return (
        float((held * lasts).sum() / lasts.sum()),
        top,
        float(lasts[np.abs(held - top) <= 0.02 * top].sum() / lasts.sum()),
    )
