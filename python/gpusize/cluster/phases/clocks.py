"""By how much the server's clock is ahead of ours, as an interval that holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpusize.cluster.tables import SERVER_CLOCK

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Lag", "Offset", "from_dates", "lag_of", "offset_of"]

SECOND_NS: Final = 10**9
_EXACT_NS: Final = 10**6


@dataclass(frozen=True, slots=True)
class Offset:
    """The server's clock less ours.

    Attributes:
        lo_ns, hi_ns: it lies between these.
        source: who says so.
        assumed: nobody measured it; both clocks are taken for one.
    """

    lo_ns: int
    hi_ns: int
    source: str
    assumed: bool = False

    @property
    def middle_ns(self) -> int:
        """The middle of the interval."""
        return (self.lo_ns + self.hi_ns) // 2


def offset_of(facts: Mapping[str, Any], attempts: pl.DataFrame) -> Offset | None:
    """The offset that a folder knows: what sampling measured, else what the answers' ``Date`` headers say.

    Args:
        facts: contents of ``cluster.json``; ``sample.clock`` has ``offset_ns``, ``lo`` and ``hi``: server less client.
        attempts: requests, of `gpusize.cluster.tables.attempts_schema`.

    Returns:
        None where nobody knows; then no delta may span both clocks.
    """
    clock = (facts.get("sample") or {}).get("clock") or {}
    lo, hi = clock.get("lo"), clock.get("hi")
    if isinstance(lo, int | float) and isinstance(hi, int | float):
        low, high = sorted((int(lo), int(hi)))
        assumed = bool(clock.get("assumed"))
        return Offset(low, high, "assumed" if assumed else "canary", assumed)
    return from_dates(attempts)


def from_dates(attempts: pl.DataFrame) -> Offset | None:
    """The offset by the ``Date`` headers of answers, which are whole seconds.

    An answer whose header says D was written in [D, D + 1 s) by the server's clock, and between sending and answer by
    ours. Each answer so gives an interval; those of many answers have little in common, and that is the offset. Where
    they have nothing in common the clocks drifted, and it is what lies between the innermost ends.
    """
    import polars as pl

    known = attempts.filter(pl.col("server_date_s").is_not_null() & pl.col("acknowledged_ns").is_not_null())
    if known.is_empty():
        return None
    date_ns = pl.col("server_date_s") * SECOND_NS
    lo, hi = known.select(
        (date_ns - pl.col("acknowledged_ns")).max().alias("lo"), (date_ns + SECOND_NS - pl.col("sent_ns")).min()
    ).row(0)
    return Offset(min(lo, hi), max(lo, hi), "Date headers")


@dataclass(frozen=True, slots=True)
class Lag:
    """How much later than it happened a watch told of something.

    Attributes:
        typical_ns: in the median.
        most_ns: 99th percentile.
        event_ns: 99th percentile of how much later than it happened an Event was written.
    """

    typical_ns: int = 0
    most_ns: int = 0
    event_ns: int = 0


def lag_of(facts: Mapping[str, Any], stamps: pl.DataFrame, attempts: pl.DataFrame, offset: Offset | None = None) -> Lag:
    """The lag of the watches, as their canary had it and as the workloads show it; the larger of both counts.

    A canary is alone; what comes in hundreds is told of later. That shows where an object's creation was watched after
    the answer to its request, and where something was watched after the time that an Event has for it.

    An Event's time is when its sender came to write it. It shows that this was late where a watch had told before.

    Args:
        facts: contents of ``cluster.json``; ``sample.watch_lag_ns`` has ``p50`` and ``p99``.
        stamps, attempts: the tables.
        offset: server's clock less ours.
    """
    import polars as pl

    told = (facts.get("sample") or {}).get("watch_lag_ns") or {}
    typical, most = (max(0, int(told.get(key) or 0)) for key in ("p50", "p99"))
    watched = stamps.filter(pl.col("source") == "watch", pl.col("reported")).select("uid", "moment", seen="at_ns")
    granted = attempts.filter(pl.col("status").is_between(200, 299), pl.col("uid").is_not_null())
    created = watched.filter(pl.col("moment") == "created").join(granted, on="uid")
    written_ns = 0
    late = [
        created.select(
            least=pl.col("seen") - pl.col("acknowledged_ns"), middle=pl.col("seen") - pl.col("acknowledged_ns")
        )
    ]
    if offset is not None:
        exact = stamps.filter(pl.col("clock") == SERVER_CLOCK, pl.col("resolution_ns") <= _EXACT_NS)
        beside = watched.join(exact.group_by("uid", "moment").agg(pl.col("at_ns").min()), on=["uid", "moment"])
        behind = pl.col("seen") - pl.col("at_ns")
        late.append(beside.select(least=behind + offset.lo_ns, middle=behind + offset.middle_ns))
        after = beside.select((-behind - offset.hi_ns).clip(lower_bound=0).quantile(0.99, interpolation="higher"))
        written_ns = int(after.item() or 0)
    found = pl.concat(late).drop_nulls()
    if found.is_empty():
        return Lag(typical, max(typical, most), written_ns)
    shown = found.select(pl.col("middle").median(), pl.col("least").quantile(0.99, interpolation="higher")).row(0)
    typical = max(typical, int(shown[0]))
    return Lag(typical, max(typical, most, int(shown[1])), written_ns)
