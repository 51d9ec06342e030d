"""What servers say of single requests: how long each waited in them and was served, and whether that can be so.

The figures are durations by the server's clock, so that no two clocks have to agree; only their rates must.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from gpusize.analysis.metrics import NS_PER_S
from gpusize.records.schema import SERVER_TIMES, has_column

if TYPE_CHECKING:
    import polars as pl

    from gpusize.analysis.level import LevelData

__all__ = ["disagreement", "says_times", "within"]

ROUNDED_NS: Final = 1_000_000
"""Servers say whole milliseconds, rounded in any way."""
RATE: Final = 1e-3
"""Rates of two clocks differ by less."""
FEW: Final = 0.01
"""Share of requests of which a server may say too much before its figures count as wrong."""


def says_times(level: LevelData) -> bool:
    """Whether a server said of some request how long it waited or was served."""
    return any(visit.kept.once("says times", partial(_says, visit)) for visit in level.visits())


def _says(visit: LevelData) -> bool:
    import polars as pl

    if visit.imported:
        return False
    if visit.folder is not None and not has_column(visit.folder, *SERVER_TIMES):
        return False
    said = pl.any_horizontal(pl.col(name).is_not_null().any() for name in SERVER_TIMES)
    return bool(visit.requests(*SERVER_TIMES).select(said).collect(engine="streaming").item())


def within() -> pl.Expr:
    """Whether what a server says of a request fits into its time from outside; null where it says nothing."""
    import polars as pl

    took_ns = pl.col("end_ns") - pl.col("sent_ns")
    said_ns = pl.sum_horizontal(*SERVER_TIMES)
    nothing = pl.all_horizontal(pl.col(name).is_null() for name in SERVER_TIMES)
    return pl.when(nothing).then(None).otherwise(said_ns <= took_ns + took_ns * RATE + ROUNDED_NS)


def disagreement(level: LevelData) -> str | None:
    """Why the server's figures of single requests cannot be true, over the steady requests that ended ok; else None."""
    import polars as pl

    if not says_times(level):
        return None
    too_much = ~within()
    over_ns = (pl.sum_horizontal(*SERVER_TIMES) - (pl.col("end_ns") - pl.col("sent_ns"))).filter(too_much)
    told, wrong, median_ns = (
        level.ok(*SERVER_TIMES)
        .select(within().count().alias("told"), too_much.sum().alias("wrong"), over_ns.median().alias("over"))
        .collect(engine="streaming")
        .row(0)
    )
    if not told or wrong <= FEW * told:
        return None
    return (
        f"of {wrong / told:.0%} of the requests the server says that they waited and were served for longer than they "
        f"took from outside, by {median_ns / NS_PER_S:.3g} s in the middle: judge by what was measured from outside"
    )
