"""What the figure of a run over time shows, in a sentence: whether the target kept up, and who caught up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpusize.report.text import number, plain_number

if TYPE_CHECKING:
    from gpusize.report.figures.timeline import Timeline
    from gpusize.report.summary.sweep import Sweep

__all__ = ["finding", "time_scale"]

_KEPT_UP: Final = 0.95
"""Share of the offered requests from which the target kept up."""
_PILE: Final = 0.1
"""Share of the most requests in flight from which they were piling up."""
_CAUGHT_UP: Final = 0.15
"""Share of the most requests in flight at which the pile is gone: the load of the time is still there."""
_SHORT: Final = 0.1
"""Quantile of the runtimes that stands for one without waiting."""
_BINS: Final = 4
"""Bins that a stretch needs, to be none of chance."""


def time_scale(length_s: float) -> tuple[float, str]:
    """What seconds are multiplied with, and the unit that makes."""
    if length_s <= 300:
        return 1.0, "s"
    return (1 / 60, "min") if length_s <= 3 * 3600 else (1 / 3600, "h")


def finding(made: Timeline, sweep: Sweep) -> str:
    """The finding: whether the target kept up, and from where on it did not; of a closed loop the best level's rate."""
    spans = [span for span in made.spans if span.open_loop and span.offered_per_s > 0]
    if not spans:
        best = None if sweep.open_loop else sweep.best("achieved_rate")
        if best is not None:
            return f"Most was answered with {plain_number(best[0])} in flight: {plain_number(best[1])} requests/s"
        most_of = max(made.spans, key=lambda span: span.achieved_per_s)
        return f"Most was answered with {most_of.name} in flight: {plain_number(most_of.achieved_per_s)} requests/s"
    behind = _behind(made)
    if behind is None:
        most = max(span.offered_per_s for span in spans)
        return f"All that was offered was answered, up to {number(most)} requests/s"
    start_s, end_s, offered, achieved = behind
    scale, unit = time_scale(made.length_s)
    caught_up = _caught_up(made, start_s)
    if caught_up is not None:
        before, after, took_s = caught_up
        who = f"{before} replica{'s' if before != 1 else ''} answered {number(achieved)} of {number(offered)} offered"
        return f"{who} requests/s; {after} caught up in {plain_number(took_s * scale)} {unit}"
    when = f"From {plain_number(start_s * scale)} to {plain_number(end_s * scale)} {unit}"
    return f"{when}, {number(achieved)} of {number(offered)} offered requests/s were answered"


def _caught_up(made: Timeline, since_s: float) -> tuple[int, int, float] | None:
    """Replicas when requests began to pile up and when the pile was gone, and seconds from its top to its end.

    None where the pile did not go, or no more replicas were ready by then.
    """
    import numpy as np

    if "ready" not in made.replicas:
        return None
    peak = int(np.argmax(made.in_flight))
    gone = np.flatnonzero(made.in_flight[peak:] <= _CAUGHT_UP * made.in_flight[peak])
    end = peak + int(gone[0]) if gone.size else 0
    if not gone.size or (end + 1) * made.width_s > max(span.end_s for span in made.spans):
        return None
    times_s, values = made.replicas["ready"]
    at = np.clip(np.searchsorted(times_s, [since_s, end * made.width_s], "right") - 1, 0, None)
    before, after = (round(float(each)) for each in values[at])
    return (before, after, (end - peak) * made.width_s) if after > before else None


def _behind(made: Timeline) -> tuple[float, float, float, float] | None:
    """The stretch in which most piled up: from when, to when, offered and achieved requests/s; None without one."""
    import numpy as np

    peak = int(np.argmax(made.in_flight))
    low = np.flatnonzero(made.in_flight[: peak + 1] <= _PILE * made.in_flight[peak])
    first = int(low[-1]) + 1 if low.size else 0
    if peak - first + 1 < _BINS:
        return None
    offered, achieved = (float(each[first : peak + 1].mean()) for each in (made.offered, made.achieved))
    if achieved >= _KEPT_UP * offered or _only_in_flight(made, first, peak):
        return None
    return first * made.width_s, (peak + 1) * made.width_s, offered, achieved


def _only_in_flight(made: Timeline, first: int, peak: int) -> bool:
    """Whether what was not answered yet is what any server has in flight at that rate: rate times runtime (Little)."""
    import numpy as np

    medians = made.percentiles.get("p50", np.full(made.offered.size, np.nan))[first:]
    known = medians[np.isfinite(medians)]
    if not known.size:
        return False
    rate = float(made.offered[max(first, peak - _BINS) : peak + 1].max())
    waiting = float(made.in_flight[peak]) - rate * float(np.quantile(known, _SHORT))
    return waiting <= (1 - _KEPT_UP) * float(made.offered[first : peak + 1].sum()) * made.width_s
