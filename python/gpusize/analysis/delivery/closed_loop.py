"""Was the load of a closed loop delivered? So many requests in flight as were asked for, with the pauses between."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from gpusize.analysis.delivery.check import DeliveryCheck
from gpusize.analysis.delivery.intended import is_ramp, think_s
from gpusize.analysis.delivery.never_sent import unsent_text
from gpusize.analysis.metrics import NS_PER_S
from gpusize.analysis.windows import little_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.analysis.level import LevelData

__all__ = ["closed_checks", "mean_of_cut"]

SHARE: Final = 0.05
"""By which the mean pause may differ from the one that was asked for, as the number in flight may."""
FLOOR_S: Final = 1e-3
LEAST_PAUSES: Final = 30
CHANCE: Final = 3.5
"""Standard errors that the mean of drawn pauses may be off: by chance one level in 2,000 is."""
LEAST_LENGTHS: Final = 10.0
"""Mean pauses that a level has to last before those that are missing say anything."""


def closed_checks(level: LevelData, due: int, sent: int) -> list[DeliveryCheck]:
    """Count, Little's law and think time of a single visit of a closed loop.

    Args:
        level: the visit.
        due: requests that were due.
        sent: requests that were sent.
    """
    return [_count(level, due, sent), _little(level), *_think(level)]


def _count(level: LevelData, due: int, sent: int) -> DeliveryCheck:
    """Requests that were due and never sent: a slot that cannot connect sends nothing."""
    if due == 0:
        return DeliveryCheck("count", None, None, "not judged", "no request was due")
    text = f"{sent:,} of {due:,} requests were sent"
    ok = sent >= 0.99 * due
    why = "" if ok else f": {unsent_text(level, due - sent)}"
    return DeliveryCheck("count", sent / due, 0.99, "ok" if ok else "failed", text + why)


def _little(level: LevelData) -> DeliveryCheck:
    if is_ramp(level.setting):
        return DeliveryCheck("little", None, None, "not judged", "the number in flight changes while the level runs")
    found = little_of(level)
    if found.status == "not checkable":
        return DeliveryCheck("little", None, None, "not judged", f"Little's law: {found.reason}")
    ok = found.status == "ok"
    text = f"{found.in_flight:.4g} requests were in flight" if ok else f"{found.reason}; look at connections and errors"
    return DeliveryCheck("little", found.ratio, 1 + SHARE, "ok" if ok else "failed", text)


def _think(level: LevelData) -> list[DeliveryCheck]:
    """The mean pause between an answer and the next request on its connection; without a pause nothing is checked."""
    think = think_s(level.setting)
    if think is None:
        return [DeliveryCheck("think", None, None, "not judged", "the rows say how long users think")]
    asked_s, deviation_s = think
    if not asked_s:
        return []
    found = _pauses(level)
    ended = found.ended_s.size
    if ended < LEAST_PAUSES:
        why = f"{ended} pauses are in the records, {LEAST_PAUSES} are needed"
        return [DeliveryCheck("think", None, None, "not judged", why)]
    mean_s = mean_of_cut(found.ended_s, found.cut_s)
    # Of pauses that are drawn: where the longer ones are missing, those that there are scatter less as well.
    spread_s = max(deviation_s, float(found.ended_s.std(ddof=1)))
    bound_s = max(FLOOR_S, SHARE * asked_s, CHANCE * spread_s / math.sqrt(ended))
    text = f"mean pause {mean_s:.4g} s, {asked_s:.4g} s were asked for"
    if abs(mean_s - asked_s) <= bound_s:
        return [DeliveryCheck("think", mean_s, asked_s + bound_s, "ok", text)]
    if mean_s > asked_s:
        why = "; the generator may be late: give it --workers and idle cores"
        return [DeliveryCheck("think", mean_s, asked_s + bound_s, "failed", text + why)]
    if found.length_s < LEAST_LENGTHS * asked_s:
        why = f"{text}; longer ones did not end within {found.length_s:.3g} s: measure for longer"
        return [DeliveryCheck("think", None, None, "not judged", why)]
    why = "; no late generator does that: the pauses that were drawn are too short, so measure for longer"
    return [DeliveryCheck("think", mean_s, asked_s - bound_s, "failed", text + why)]


class _Pauses(NamedTuple):
    """Pauses of one level: those that ended, and how much was seen of those that its end cut off; seconds."""

    ended_s: NDArray[np.float64]
    cut_s: NDArray[np.float64]
    length_s: float


def mean_of_cut(ended_s: NDArray[np.float64], cut_s: NDArray[np.float64]) -> float:
    """Mean of lengths of which some were cut off (Kaplan and Meier, J. American Statistical Association 53, 1958).

    Those that ended are too often short ones: a long one is more likely to be cut. If the longest of all was cut, it
    counts as ended there.

    Args:
        ended_s: lengths that were seen to their end, shape (n,).
        cut_s: what was seen of the others, shape (k,).
    """
    import numpy as np

    lengths = np.concatenate([ended_s, cut_s])
    ended = np.concatenate([np.ones(ended_s.size), np.zeros(cut_s.size)])
    # Of equal ones those that ended come first.
    order = np.lexsort((-ended, lengths))
    lengths, ended = lengths[order], ended[order]
    ended[-1] = 1.0
    left = np.arange(lengths.size, 0, -1)
    longer = np.concatenate([[1.0], np.cumprod(1 - ended / left)[:-1]])
    return float((longer * np.diff(lengths, prepend=0.0)).sum())


def _pauses(level: LevelData) -> _Pauses:
    """From each answer to the next request on the same connection, and to the end of a level that its time ended."""
    import numpy as np
    import polars as pl

    none = np.zeros(0)
    start_ns, close_ns = level.meta.get("start_ns"), level.meta.get("close_ns")
    length_s = math.inf if start_ns is None or close_ns is None else (close_ns - start_ns) / NS_PER_S
    if level.sampled > 1:
        return _Pauses(none, none, length_s)
    slot = ["worker", "conn"]
    rows = level.requests().filter(pl.col("sent_ns").is_not_null() & pl.col("end_ns").is_not_null())
    slots = rows.select(pl.struct(slot).n_unique()).collect(engine="streaming").item()
    if slots == 1 and (level.concurrency or 1) > 1:
        return _Pauses(none, none, length_s)  # A workflow's users have no connections to tell them apart by.
    before = pl.col("end_ns").shift(1).over(slot, order_by="sent_ns")
    ended = rows.select((pl.col("sent_ns") - before).alias("pause")).drop_nulls().collect()["pause"]
    cut = none
    by_time = level.setting.get("duration_s") and level.meta.get("stop_reason") in (None, "duration")
    if by_time and close_ns is not None:
        # Whose users had no more to send, as those of a count, did not pause for longer.
        last = rows.group_by(slot).agg(pl.col("end_ns").max()).filter(pl.col("end_ns") < close_ns)
        cut = (close_ns - last.collect()["end_ns"].to_numpy()) / NS_PER_S
    return _Pauses(ended.cast(pl.Float64).to_numpy() / NS_PER_S, cut, length_s)
