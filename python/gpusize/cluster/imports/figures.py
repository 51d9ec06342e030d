"""Figures of tools that keep no rows: a table beside those of tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import polars as pl

__all__ = ["FIGURES", "figures_frame", "figures_schema"]

FIGURES: Final = "figures.parquet"


def figures_schema() -> dict[str, Any]:
    """Columns of ``figures.parquet`` and their types.

    ``source``: the tool. ``test``: the job or test, by its name there. ``phase``: ours where it is one of ours, else
    theirs. ``figure``: such as ``p99``, ``mean``, ``max``, ``time``. ``value`` in ``unit``; times are seconds.
    """
    import polars as pl

    return {
        "source": pl.String(),
        "test": pl.String(),
        "phase": pl.String(),
        "figure": pl.String(),
        "value": pl.Float64(),
        "unit": pl.String(),
    }


def figures_frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Rows as a frame of `figures_schema`."""
    import polars as pl

    return pl.DataFrame(rows, schema=figures_schema(), orient="row")
