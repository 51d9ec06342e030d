"""Whether an access log is of what the series saw: of the same time, with as many tokens to a request.

A log of another service, or of another day, has lengths of its own, and the count would be for these.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpusize.estimate.telemetry.access_log import FEWEST

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.analysis.series.replicas import Steps
    from gpusize.estimate.telemetry.access_log import AccessLog

__all__ = ["matching_log", "mean_tokens"]

MARGIN_S: Final = 60.0
"""A log has the begin of requests that the series saw end."""
ALIKE: Final = 1.25
"""Means of tokens that are further apart are of other requests."""
ERRORS: Final = 4.0
"""... where chance does not explain it: standard errors of the log's mean."""
APART: Final = 0.1
"""Shares of a bucket that are further apart are of other requests, too."""
KOLMOGOROV: Final = 1.95
"""... where chance does not explain it: the test's 99.9 % quantile, times the root of the log's rows."""
TOLD: Final = {
    "output": (("output_length_sum", "output_length_count"), ("tokens_out", "requests")),
    "prompt": (("prompt_length_sum", "prompt_length_count"), ("tokens_in", "requests")),
}
"""Rises of which the first over the second is the mean length; the first that is known counts."""


def matching_log(log: AccessLog, steps: Steps) -> tuple[AccessLog | None, tuple[str, ...]]:
    """The part of a log that is of the time of the series, and what is to be said of it.

    Returns:
        None in place of the log where it says nothing of the requests that the series saw: then, why.
    """
    import numpy as np

    margin = round(MARGIN_S * 1e9)
    inside = (log.due_ns >= steps.begin_ns.min() - margin) & (log.due_ns <= steps.end_ns.max() + margin)
    cut = replace(
        log,
        due_ns=log.due_ns[inside],
        took_s=log.took_s[inside],
        prompt=log.prompt[inside],
        output=log.output[inside],
    )
    not_used = f"the access log {log.name} is not used"
    all_of_it = log.due_ns.size
    if cut.due_ns.size < min(FEWEST, all_of_it):
        what = f"of its {all_of_it:,} requests {cut.due_ns.size:,} came in the time of the series"
        return None, (f"{not_used}: {what}. Give the log of that time",)
    pairs = cut.lengths
    if pairs is None:
        return None, (f"{not_used}: it has tokens of fewer than {FEWEST} requests in the time of the series",)
    for what, lengths, name in (("output", pairs[1], "answers"), ("prompt", pairs[0], "prompts")):
        seen = mean_tokens(steps, what)
        said = seen is not None and (what == "output" or bool(np.isfinite(cut.prompt).any()))
        if said and seen is not None and _unlike(lengths, seen):
            means = f"its {name} have {lengths.mean():.3g} tokens on average, those that the servers counted {seen:.3g}"
            return None, (f"{not_used}: {means}, so that it is of other requests",)
        apart = _furthest(lengths, steps, f"{what}_length")
        if said and apart is not None:
            bound, ours, theirs = apart
            shares = f"{ours:.0%} of its {name} have {bound:g} tokens or fewer, of those that the servers counted"
            return None, (f"{not_used}: {shares} {theirs:.0%}, so that it is of other requests",)
    return cut, _remarks(cut, steps, len(pairs[1]))


def mean_tokens(steps: Steps, what: str) -> float | None:
    """Mean tokens of prompts or answers by the servers' counters; None where these do not tell.

    Args:
        steps: with the rises of `TOLD`.
        what: ``prompt`` or ``output``.
    """
    import numpy as np

    for above, below in TOLD[what]:
        total, count = float(np.nansum(steps.rise(above))), float(np.nansum(steps.rise(below)))
        if total > 0 and count > 0:
            return total / count
    return None


def _unlike(lengths: NDArray[np.float64], seen: float) -> bool:
    mean = float(lengths.mean())
    error = float(lengths.std()) / math.sqrt(lengths.size)
    return abs(math.log(mean / seen)) > math.log(ALIKE) and abs(mean - seen) > ERRORS * error


def _furthest(lengths: NDArray[np.float64], steps: Steps, name: str) -> tuple[float, float, float] | None:
    """The bucket's bound at which the shares of both lie too far apart, and the shares; None where they do not."""
    import numpy as np

    buckets = steps.buckets.get(name)
    if buckets is None:
        return None
    known = np.isfinite(buckets.counts).all(axis=1)
    counts = buckets.counts[known].sum(axis=0)
    if not (counts.size and counts[-1] >= FEWEST):
        return None
    ours = np.searchsorted(np.sort(lengths), buckets.bounds, "right") / lengths.size
    theirs = counts / counts[-1]
    at = int(np.argmax(np.abs(ours - theirs)))
    if abs(ours[at] - theirs[at]) <= max(APART, KOLMOGOROV / math.sqrt(lengths.size)):
        return None
    return float(buckets.bounds[at]), float(ours[at]), float(theirs[at])


def _remarks(cut: AccessLog, steps: Steps, pairs: int) -> tuple[str, ...]:
    """What weakens a log that is used."""
    import numpy as np

    texts = []
    without = cut.due_ns.size - pairs
    if without:
        texts.append(f"{without:,} of {cut.due_ns.size:,} rows of the access log {cut.name} tell no tokens; left out")
    served = max(float(np.nansum(steps.rise(name))) for name in ("requests", "request_time_count"))
    if served > 0 and not 1 / ALIKE < cut.due_ns.size / served < ALIKE:
        texts.append(
            f"the access log {cut.name} has {cut.due_ns.size:,} requests, and the servers counted {served:,.0f}: "
            "lengths are taken to be alike in all"
        )
    return tuple(texts)
