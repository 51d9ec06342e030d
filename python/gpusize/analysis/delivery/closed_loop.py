"""Was the load of a closed loop delivered? So many requests in flight as were asked for, with the pauses between."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from gpusize.analysis.delivery.check import DeliveryCheck
from gpusize.analysis.delivery.intended import is_ramp, think_s
from gpusize.analysis.delivery.never_sent import unsent_text
from gpusize.analysis.metrics import NS_PER_S
from gpusize.analysis.windows import little_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.analysis.level import LevelData

__all__ = ["closed_checks"]

SHARE: Final = 0.05
"""By which the mean pause may differ from the one that was asked for, as the number in flight may."""
FLOOR_S: Final = 1e-3
LEAST_PAUSES: Final = 30


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
    asked_s = think[0]
    if not asked_s:
        return []
    pauses_s = _pauses_s(level)
    if pauses_s.size < LEAST_PAUSES:
        why = f"{pauses_s.size} pauses are in the records, {LEAST_PAUSES} are needed"
        return [DeliveryCheck("think", None, None, "not judged", why)]
    mean_s = float(pauses_s.mean())
    chance_s = 3 * float(pauses_s.std(ddof=1)) / math.sqrt(pauses_s.size)
    bound_s = max(FLOOR_S, SHARE * asked_s, chance_s)
    text = f"mean pause {mean_s:.4g} s, {asked_s:.4g} s were asked for"
    ok = abs(mean_s - asked_s) <= bound_s
    why = "" if ok else "; the generator may be late: give it --workers and idle cores"
    return [DeliveryCheck("think", mean_s, asked_s + bound_s, "ok" if ok else "failed", text + why)]


def _pauses_s(level: LevelData) -> NDArray[np.float64]:
    """From each answer to the next request on the same connection, seconds; shape (n,)."""
    import numpy as np
    import polars as pl

    if level.sampled > 1:
        return np.zeros(0)
    slot = ["worker", "conn"]
    before = pl.col("end_ns").shift(1).over(slot, order_by="sent_ns")
    rows = level.requests().filter(pl.col("sent_ns").is_not_null() & pl.col("end_ns").is_not_null())
    slots = rows.select(pl.struct(slot).n_unique()).collect(engine="streaming").item()
    if slots == 1 and (level.concurrency or 1) > 1:
        return np.zeros(0)  # A workflow's users have no connections by which they could be told apart.
    pauses = rows.select((pl.col("sent_ns") - before).alias("pause")).drop_nulls().collect()["pause"]
    return pauses.cast(pl.Float64).to_numpy() / NS_PER_S
