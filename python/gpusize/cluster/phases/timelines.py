"""When each moment of each object was, by each of two clocks: the best that all sources together say.

A moment is an interval that holds it. Sources of one clock need no offset; sources of the other are moved over by it,
which makes their interval wider by what is not known of the offset. So each clock has a timeline of all moments, and a
delta is always taken within one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpusize.cluster.phases.clocks import Lag
from gpusize.cluster.tables import CLIENT_CLOCK, SERVER_CLOCK

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from gpusize.cluster.phases.clocks import Offset

__all__ = ["OBJECT", "POD", "UNTOLD", "last_look_ns", "object_moments"]

POD: Final = "Pod"
OBJECT: Final = ("workload", "kind", "object", "name")
WATCH: Final = "watch"
EVENT: Final = "event "
"""What the names of the Events' sources begin with."""
UNTOLD: Final = "found later"
"""The source of what a list shows and no watch told: only that it had happened by then."""


def object_moments(
    stamps: pl.DataFrame, attempts: pl.DataFrame, offset: Offset | None, lag: Lag | None = None
) -> pl.DataFrame:
    """The moments of all objects that belong to a workload, on both timelines.

    Of each source its first word counts, and of several sources what their intervals have in common. An Event is
    written after what it tells of: one that lies after another source's end was late and does not count. How late a
    watch is is an estimate: where it contradicts the others, they count. Where these contradict each other as well, it
    is the narrowest one. What a part of an object does, such as a container, the object has done when its last part
    has.

    Args:
        stamps: of `gpusize.cluster.tables.stamps_schema`.
        attempts: requests: the object was created between sending and answer.
        offset: server's clock less ours; None where nobody knows, and nothing is moved.
        lag: how much later than it happened a watch tells of something.

    Returns:
        One row for each object, moment and clock: `OBJECT`, ``moment``, ``clock``, ``lo``, ``at``, ``hi`` (ns since
        1970 by that clock: the ends of the interval, and the best guess), ``source`` (the narrowest), ``moved``,
        ``reason``, ``message``.
    """
    import polars as pl

    width = pl.col("hi") - pl.col("lo")
    native = pl.concat([_stamped(stamps, lag or Lag(), _begin_ns(stamps, attempts, offset)), _acknowledged(attempts)])
    both = native if offset is None else pl.concat([native, _moved(native, offset)])
    each = (*OBJECT, "part", "moment", "clock")
    first = both.sort("hi").group_by((*each, "source", "moved"), maintain_order=True).first()
    soft = pl.col("source") == WATCH
    late_event = pl.col("source").str.starts_with(EVENT) & (pl.col("lo") > pl.col("hi").min().over(each))
    found = (
        first.filter(~late_event)
        .sort(width, "moved", "lo")
        .group_by(each, maintain_order=True)
        .agg(
            pl.col("lo", "at", "hi", "source", "moved").first(),
            pl.col("reason", "message").drop_nulls().first(),
            pl.col("hi").min().alias("end"),
            pl.col("lo").filter(~soft).max().alias("hard"),
            pl.col("lo").max().alias("soft"),
        )
    )
    low = pl.when(pl.col("soft") <= pl.col("end")).then("soft").when(pl.col("hard") <= pl.col("end")).then("hard")
    found = found.with_columns(low.alias("low"))
    agreed = found.with_columns(
        pl.coalesce("low", "lo").alias("lo"), pl.when(pl.col("low").is_null()).then("hi").otherwise("end").alias("hi")
    )
    whole = [name for name in each if name != "part"]
    return (
        agreed.with_columns(pl.col("at").clip(pl.col("lo"), pl.col("hi")))
        .sort("hi", descending=True)
        .group_by(whole, maintain_order=True)
        .agg(
            pl.col("lo", "at", "hi").max(),
            pl.col("source").first(),
            pl.col("moved").any(),
            pl.col("reason", "message").drop_nulls().first(),
        )
    )


def _begin_ns(stamps: pl.DataFrame, attempts: pl.DataFrame, offset: Offset | None) -> int | None:
    """A time, by our clock, before which nothing of a test was; None where there is none."""
    import polars as pl

    known = [attempts["sent_ns"].min()]
    if offset is not None:
        server = stamps.filter(pl.col("clock") == SERVER_CLOCK)["at_ns"].min()
        known.append(server - offset.hi_ns if isinstance(server, int) else None)
    return min((each for each in known if isinstance(each, int)), default=None)


def _stamped(stamps: pl.DataFrame, lag: Lag, begin_ns: int | None) -> pl.DataFrame:
    import polars as pl

    watched = pl.col("source") == WATCH
    untold = watched & (pl.col("clock") == CLIENT_CLOCK) & ~pl.col("reported").fill_null(value=True)
    # A list says only that it had happened by then.
    begin = pl.min_horizontal(pl.lit(begin_ns, pl.Int64), "at_ns")
    resolution = pl.col("resolution_ns").fill_null(1).clip(lower_bound=1) - 1
    known = stamps.filter(pl.col("workload").is_not_null(), pl.col("at_ns").is_not_null())
    return (known if begin_ns is not None else known.filter(~untold)).select(
        "workload",
        "kind",
        pl.coalesce("uid", pl.concat_str(pl.lit("/"), pl.col("namespace").fill_null(""), pl.lit("/"), "name")).alias(
            "object"
        ),
        "name",
        pl.col("part").fill_null(""),
        "moment",
        "clock",
        pl.when(untold)
        .then(begin)
        .when(watched)
        .then(pl.col("at_ns") - lag.most_ns)
        .when(pl.col("source").str.starts_with(EVENT))
        .then(pl.col("at_ns") - lag.event_ns)
        .otherwise("at_ns")
        .alias("lo"),
        pl.when(watched)
        .then(pl.col("at_ns") - lag.typical_ns)
        .otherwise(pl.col("at_ns") + (resolution + 1) // 2)
        .alias("at"),
        (pl.col("at_ns") + resolution).alias("hi"),
        pl.when(untold).then(pl.lit(UNTOLD)).otherwise("source").alias("source"),
        pl.lit(value=False).alias("moved"),
        "reason",
        "message",
    )


def _acknowledged(attempts: pl.DataFrame) -> pl.DataFrame:
    """That a request which was granted created its object between its sending and its answer."""
    import polars as pl

    granted = pl.col("status").is_between(200, 299) & pl.col("acknowledged_ns").is_not_null()
    return attempts.filter(granted, pl.col("uid").is_not_null()).select(
        "workload",
        "kind",
        pl.col("uid").alias("object"),
        "name",
        pl.lit("").alias("part"),
        pl.lit("created").alias("moment"),
        pl.lit(CLIENT_CLOCK).alias("clock"),
        pl.col("sent_ns").alias("lo"),
        ((pl.col("sent_ns") + pl.col("acknowledged_ns")) // 2).alias("at"),
        pl.col("acknowledged_ns").alias("hi"),
        pl.lit("answer").alias("source"),
        pl.lit(value=False).alias("moved"),
        pl.lit(None, pl.String).alias("reason"),
        pl.lit(None, pl.String).alias("message"),
    )


def _moved(native: pl.DataFrame, offset: Offset) -> pl.DataFrame:
    """The same moments by the other clock."""
    import polars as pl

    ours = pl.col("clock") == CLIENT_CLOCK
    return native.with_columns(
        pl.when(ours).then(pl.lit(SERVER_CLOCK)).otherwise(pl.lit(CLIENT_CLOCK)).alias("clock"),
        pl.when(ours).then(pl.col("lo") + offset.lo_ns).otherwise(pl.col("lo") - offset.hi_ns).alias("lo"),
        pl.when(ours).then(pl.col("at") + offset.middle_ns).otherwise(pl.col("at") - offset.middle_ns).alias("at"),
        pl.when(ours).then(pl.col("hi") + offset.hi_ns).otherwise(pl.col("hi") - offset.lo_ns).alias("hi"),
        pl.lit(value=True).alias("moved"),
    )


def last_look_ns(
    facts: Mapping[str, Any], stamps: pl.DataFrame, attempts: pl.DataFrame, offset: Offset | None
) -> dict[str, int | None]:
    """When the cluster was last looked at, by each clock: what had not happened then is censored.

    By ours it is when sampling ended, else when the last news came, else the last answer to a request. By the server's
    it is that, moved; without an offset the last time that the server gave.
    """
    ended = (facts.get("sample") or {}).get("ended_ns")
    known = [ended, stamps["received_ns"].max(), attempts["acknowledged_ns"].max(), attempts["sent_ns"].max()]
    ours = next((int(each) for each in known if isinstance(each, int)), None)
    if offset is not None and ours is not None:
        return {CLIENT_CLOCK: ours, SERVER_CLOCK: ours + offset.middle_ns}
    import polars as pl

    theirs = stamps.filter(pl.col("clock") == SERVER_CLOCK)["at_ns"].max()
    return {CLIENT_CLOCK: ours, SERVER_CLOCK: int(theirs) if isinstance(theirs, int) else None}
