"""Rows of the dataset that fail whenever they are sent: what they do to levels is not of the load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from gpusize.analysis.broken import broke

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData

__all__ = ["rows_failing"]

TWICE: Final = 2
"""A row that failed once may have met the load."""
CHANCE: Final = 0.05
"""Rows of which so many fail each time by chance, at the share that fails at the worst level, are not named."""
NAMED: Final = 3


def rows_failing(levels: Sequence[LevelData]) -> str | None:
    """That rows failed each time they were sent, at several loads, while others did not; None where none did.

    Args:
        levels: of one run, in any order. Nothing is looked for where none of them broke.
    """
    import polars as pl

    seen = [level for level in levels if not level.imported and level.state in ("done", "interrupted")]
    if not any(broke(level.state, level.meta) for level in seen):
        return None
    ok = pl.col("outcome").cast(pl.String) == "ok"
    each = [
        level.requests()
        .filter(pl.col("outcome").cast(pl.String) != "cancelled")
        .group_by("row")
        .agg(pl.len().alias("sent"), ok.sum().alias("ok"))
        .collect(engine="streaming")
        .with_columns(pl.lit(number).alias("level"))
        for number, level in enumerate(seen)
    ]
    rows = pl.concat(each).drop_nulls("row").group_by("row").agg(pl.col("sent", "ok").sum(), pl.col("level").n_unique())
    share = max(1 - int(part["ok"].sum()) / int(part["sent"].sum()) for part in each if part.height)
    by_chance = rows.height * pl.lit(share).pow(pl.col("sent"))
    failing = (pl.col("ok") == 0) & (pl.col("sent") >= TWICE) & (pl.col("level") >= TWICE) & (by_chance <= CHANCE)
    bad = rows.filter(failing).sort("row")
    if not bad.height or 2 * bad.height > rows.height:
        return None
    first = ", ".join(str(row) for row in bad["row"].head(NAMED))
    which = f"row {first}" if bad.height == 1 else f"rows {first}{'' if bad.height <= NAMED else ', ...'}"
    return (
        f"{which} of the dataset (from 0) failed all {int(bad['sent'].sum())} times that {_it(bad.height)} sent, "
        "whatever the load: mend or leave out what fails by itself, or let levels go on with --max-error-rate 0.2"
    )


def _it(rows: int) -> str:
    return "it was" if rows == 1 else "they were"
