"""Lengths that were asked for beside those that the server reports."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpusize.base.errors import UsageError
from gpusize.workload.dataset.dataset import Dataset

if TYPE_CHECKING:
    import polars as pl

__all__ = ["TOLERANCE", "LengthReport", "corrected", "length_report"]

TOLERANCE: Final = 0.02
"""Share by which the means may differ before a report flags it."""

_PAIRS: Final = (("input", "input_tokens", "tokens_in"), ("output", "output_tokens", "tokens_out"))


@dataclass(frozen=True)
class LengthReport:
    """Asked and reported lengths of the requests that have both.

    Args:
        name: ``input`` or ``output``.
        requests: how many requests ended well, asked for a length and were told one.
        asked_mean: mean of the asked lengths, in tokens.
        reported_mean: mean of what the server reports for the same requests.
        counted_by: how the asked lengths of prompts were counted.
    """

    name: str
    requests: int
    asked_mean: float
    reported_mean: float
    counted_by: str | None = None

    @property
    def off(self) -> float:
        """How far the reported mean is above the asked one, as a share of it."""
        return self.reported_mean / self.asked_mean - 1

    @property
    def flagged(self) -> bool:
        """Whether the means differ by more than `TOLERANCE`."""
        return abs(self.reported_mean - self.asked_mean) > TOLERANCE * self.asked_mean

    def __str__(self) -> str:
        text = f"{self.name} tokens: asked {self.asked_mean:.1f}, reported {self.reported_mean:.1f} ({self.off:+.1%})"
        if not self.flagged:
            return text
        how = f"; asked lengths are by {self.counted_by}" if self.counted_by and self.name == "input" else ""
        return f"{text}: off by more than {TOLERANCE:.0%}{how}"


def length_report(records: pl.DataFrame | pl.LazyFrame, rows: Dataset | pl.DataFrame) -> list[LengthReport]:
    """Asked and reported mean lengths, side by side.

    Args:
        records: as ``Result.records``, with ``row``, ``tokens_in``, ``tokens_out`` and ``outcome``.
        rows: the dataset, or what a run folder keeps of its rows: a frame with one line per row and, as far as they
            are known, ``input_tokens`` and ``output_tokens``.

    Returns:
        One entry for prompts and one for answers; without those that nothing was asked or reported of.
    """
    import polars as pl

    asked = _asked(rows) if isinstance(rows, Dataset) else rows
    counted_by = rows.counted_by if isinstance(rows, Dataset) else None
    ended = records.lazy().filter(pl.col("outcome").cast(pl.String) == "ok")
    reports = []
    for name, wanted, told in _PAIRS:
        if wanted not in asked.columns:
            continue
        lengths = asked.lazy().select(pl.int_range(pl.len(), dtype=pl.UInt32).alias("row"), pl.col(wanted))
        pair = (
            ended.select("row", told)
            .join(lengths, on="row", how="inner")
            .filter(pl.col(wanted).is_not_null() & pl.col(told).is_not_null() & (pl.col(wanted) > 0))
            .select(pl.len().alias("n"), pl.col(wanted).mean().alias("asked"), pl.col(told).mean().alias("told"))
            .collect()
        )
        count, asked_mean, told_mean = pair.row(0)
        if count:
            reports.append(LengthReport(name, count, asked_mean, told_mean, counted_by))
    return reports


def _asked(dataset: Dataset) -> pl.DataFrame:
    import polars as pl

    columns = {}
    for _, wanted, _ in _PAIRS:
        values = [row.get(wanted) for row in dataset.rows]
        known = [value if isinstance(value, int) and not isinstance(value, bool) else None for value in values]
        if any(value is not None for value in known):
            columns[wanted] = pl.Series(known, dtype=pl.Int64)
    return pl.DataFrame(columns)


def corrected(dataset: Dataset, asked: float, reported: float) -> Dataset:
    """The same synthetic prompts, made longer or shorter so that a server reports what was asked.

    Args:
        dataset: from ``Dataset.from_synthetic``.
        asked: mean of the asked prompt lengths, in tokens.
        reported: mean of what the server reported for them.

    Raises:
        UsageError: the prompts are not synthetic, or the means are invalid.
    """
    if dataset.synthetic is None:
        raise UsageError(
            "only synthetic prompts can be made longer or shorter", dataset.source, "describe them with --synthetic"
        )
    if not (math.isfinite(asked) and math.isfinite(reported) and asked > 0 and reported > 0):
        raise UsageError(f"mean lengths must be positive, not {asked:g} and {reported:g}", "corrected")
    return Dataset.from_synthetic(dataset.synthetic.scaled(asked / reported), dataset.tokenizer)
