"""What is compared: figures of a level in one run, each with its error inside that run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from gpusize.analysis.compare.blocks import FEWEST_BLOCKS, block_error
from gpusize.analysis.metrics import METRICS, NS_PER_S, metric
from gpusize.analysis.per_request import (
    cpu_time_per_request,
    energy_per_output_token,
    energy_per_request,
    gpu_time_per_output_token,
    gpu_time_per_request,
)
from gpusize.analysis.slo_grammar import SloParser
from gpusize.analysis.throughput import rates_of, responses

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from gpusize.analysis.level import LevelData

__all__ = ["SPENT", "Figure", "Measured", "figure", "usual_figures"]

_PER_PIECE: Final = 4
"""Requests in the smallest piece of time."""
_MOST_PIECES: Final = 4096
_WHOLE: Final[Mapping[str, tuple[str, str, Literal["less", "more"], Literal["ratio", "share"]]]] = {
    "gpu-hours": ("gpu_hours", "GPU-hours", "less", "ratio"),
    "attainment": ("attainment", "share", "more", "share"),
    "cost": ("cost", "", "less", "ratio"),
}
"""Of runs that were judged as a whole: field, unit, which way is better, scale."""
_RATES: Final = {
    "achieved rate": ("achieved", "requests/s"),
    "output rate": ("tokens_out", "tokens/s"),
}
_SPENT: Final[dict[str, tuple[str, Callable[[LevelData], float | None]]]] = {
    # Where nobody said how many GPUs there are, those that told of themselves may be a part of them.
    "energy per request": ("J", lambda level: energy_per_request(level) if level.gpus else None),
    "energy per output token": ("J", lambda level: energy_per_output_token(level) if level.gpus else None),
    "GPU time per request": ("GPU-s", gpu_time_per_request),
    "GPU time per output token": ("GPU-s", gpu_time_per_output_token),
    "CPU time per request": ("CPU-s", cpu_time_per_request),
}
SPENT: Final = tuple(_SPENT)
"""Figures of what a request takes of the machines behind it."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure that sides are compared by.

    Attributes:
        name: as ``p95 runtime``, ``mean ttft``, ``achieved rate``, ``error share``.
        unit: of its values.
        better: which way is better.
        scale: differences of a ``ratio`` are relative, of a ``share`` in points.
        measure: makes it of a level.
        metric: name of the metric that it is a percentile or the mean of; None for rates and shares.
        prob: which percentile, 0.95 for p95; None for all others.
        whole: of a figure of whole runs, which no level has, its field in `gpusize.analysis.compare.whole`.
    """

    name: str
    unit: str
    better: Literal["less", "more"]
    scale: Literal["ratio", "share"]
    measure: Callable[[LevelData], Measured]
    metric: str | None = None
    prob: float | None = None
    whole: str = ""

    def is_known(self, measured: Measured) -> bool:
        """Whether there is a value that can be compared: of a ratio one above 0."""
        return measured.value > 0 if self.scale == "ratio" else not math.isnan(measured.value)


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure of one run: its value, its standard error inside the run, and the blocks of time behind the error.

    The error is that of the logarithm, or of a share itself. It is NaN where the run cannot say: too few blocks, or no
    records. The value is NaN where there is none.
    """

    value: float
    error: float = math.nan
    blocks: float = 0.0


def figure(text: str) -> Figure:
    """The figure of a text: a percentile or a mean and a metric, as in SLOs, or one of the others.

    Raises:
        SloError: it is none.
    """
    name = " ".join(text.split())
    if name in _RATES:
        field, unit = _RATES[name]
        return Figure(name, unit, "more", "ratio", lambda level: _rate(level, field))
    if name in _SPENT:
        unit, of_level = _SPENT[name]
        return Figure(name, unit, "less", "ratio", lambda level: _known(of_level(level)))
    if name == "error share":
        return Figure(name, "share", "less", "share", _error_share)
    if name in _WHOLE:
        field, unit, way, scale = _WHOLE[name]
        return Figure(name, unit, way, scale, lambda _: Measured(math.nan), whole=field)
    prob, of = _Parser(name).figure()
    declared = METRICS[of]
    better: Literal["less", "more"] = "more" if declared.unit.endswith("/s") else "less"
    head = "mean" if prob is None else f"p{100 * prob:.10g}"
    return Figure(f"{head} {of}", declared.unit, better, "ratio", lambda level: _of_requests(level, of, prob), of, prob)


class _Parser(SloParser):
    """A percentile or a mean and a metric, as SLOs begin."""

    subject = "figure"
    examples = (
        f"write it as in: p95 runtime, mean ttft, {', '.join(_RATES)}, error share, {', '.join(_SPENT)}, "
        f"{', '.join(_WHOLE)}"
    )

    def figure(self) -> tuple[float | None, str]:
        first = self.token
        kind, share = self._head()
        if first == self.token:
            raise self.fail("a percentile or mean is missing", self.examples)
        if kind == "share":
            raise self.fail("a share is no figure", self.examples)
        name = self._metric()
        self._end()
        return (None if kind == "mean" else share), name


def usual_figures(levels: Iterable[LevelData]) -> list[Figure]:
    """Those that are compared where nobody names any: of what the levels know."""
    given = list(levels)
    names = ["p50 runtime", "p95 runtime", "p99 runtime", "achieved rate"]
    if any(level.quantile("itl", 0.95) is not None for level in given):
        # The mean gap of a request has an interval; some tools state pooled gaps alone.
        each = any(level.quantile("itl_mean", 0.95) is not None for level in given)
        names += ["p50 ttft", "p95 ttft", "p95 itl_mean" if each else "p95 itl"]
    if any(rates_of(level).tokens_out for level in given):
        names.append("output rate")
    return [figure(name) for name in (*names, "error share")]


def _of_requests(level: LevelData, name: str, prob: float | None) -> Measured:
    value = level.mean(name) if prob is None else level.quantile(name, prob)
    if value is None or not value > 0:
        return Measured(math.nan)
    values = _in_order(level, name)
    if values.size < FEWEST_BLOCKS * _PER_PIECE:
        return Measured(value)
    return Measured(value, *(_mean_error(values) if prob is None else _quantile_error(values, prob)))


def _in_order(level: LevelData, name: str) -> NDArray[np.float64]:
    """The metric of the steady requests that ended ok, in the order in which they ended."""
    import numpy as np

    declared = metric(name)
    if level.imported or declared.build is None or declared.table != "records":
        return np.empty(0)
    rows = level.ok(*declared.columns, "end_ns").sort("visit", "end_ns")
    return declared.values(rows)


def _pieces(n: int) -> tuple[int, int]:
    """(how many pieces of time, how many values in each)."""
    pieces = min(_MOST_PIECES, n // _PER_PIECE)
    return pieces, n // pieces


def _mean_error(values: NDArray[np.float64]) -> tuple[float, float]:
    pieces, each = _pieces(values.size)
    means = values[: pieces * each].reshape(pieces, each).mean(axis=1)
    found = block_error(means)
    return found.error / float(means.mean()), found.blocks


def _quantile_error(values: NDArray[np.float64], prob: float) -> tuple[float, float]:
    """The error of the quantile's logarithm, by inverting that of the share below it (Woodruff 1952)."""
    import numpy as np

    pieces, each = _pieces(values.size)
    below = (values[: pieces * each] <= np.quantile(values, prob)).reshape(pieces, each).mean(axis=1)
    found = block_error(below)
    low, high = prob - found.error, prob + found.error
    # Beyond the last request nothing is known of a quantile.
    if not (low > 0 and high < 1 - 1 / values.size):
        return math.nan, found.blocks
    ends = np.quantile(values, [low, high])
    return (math.log(ends[1] / ends[0]) / 2, found.blocks) if ends[0] > 0 else (math.nan, found.blocks)


def _known(value: float | None) -> Measured:
    """Of what is read once a second there is no error inside a run."""
    return Measured(math.nan if value is None else value)


def _rate(level: LevelData, field: str) -> Measured:
    value = getattr(rates_of(level), field)
    if not value:
        return Measured(math.nan)
    counts = [_counts(visit, field) for visit in level.visits() if not visit.imported]
    if not counts:
        return Measured(value)
    import numpy as np

    series = np.concatenate(counts)
    if series.size < FEWEST_BLOCKS or not series.mean() > 0:
        return Measured(value)
    found = block_error(series)
    return Measured(value, found.error / float(series.mean()), found.blocks)


def _counts(visit: LevelData, field: str) -> NDArray[np.float64]:
    """Answers (or their tokens) by equal pieces of the time in which they came.

    Of a level of few passes, whose rate is by how long its requests took: what each adds to the ratio, less what it
    took (Taylor's linearisation; Cochran 1977, section 6.3), in the order in which they were due.
    """
    import numpy as np

    found = responses(visit, "due_ns", "end_ns", "tokens_out")
    frame: pl.DataFrame = found.rows.select("due_ns", "end_ns", "tokens_out").sort("due_ns").collect()
    if frame.height < FEWEST_BLOCKS * _PER_PIECE or found.length_s <= 0:
        return np.empty(0)
    pieces, each = _pieces(frame.height)
    ends = frame["end_ns"].to_numpy()
    done = np.ones(ends.size) if field == "achieved" else frame["tokens_out"].fill_null(0).to_numpy().astype(float)
    if found.by_due:
        took = ends - frame["due_ns"].to_numpy()
        adds: NDArray[np.float64] = 1 + done / (done.mean() or 1.0) - took / took.mean()
        # In answers per piece, as what is counted: visits of both kinds may stand in one series.
        return np.asarray(adds[: pieces * each].reshape(pieces, each).mean(axis=1)) * found.answered / pieces
    last = int(ends.max())
    counted, _ = np.histogram(ends, bins=pieces, range=(last - found.length_s * NS_PER_S, last), weights=done)
    return counted.astype(float) * found.answered / frame.height


def _error_share(level: LevelData) -> Measured:
    if level.imported:
        return _told_share(level)
    outcomes = {name: n for name, n in level.outcomes().items() if name != "cancelled"}
    n = sum(outcomes.values())
    if n == 0:
        return Measured(math.nan)
    failed = n - outcomes.get("ok", 0)
    error = _chance(failed, n)
    series = _failures(level)
    if series.size < FEWEST_BLOCKS or failed == 0:
        return Measured(failed / n, error, max(FEWEST_BLOCKS, float(series.size)))
    found = block_error(series)
    return Measured(failed / n, math.nan if math.isnan(found.error) else max(error, found.error), found.blocks)


def _told_share(level: LevelData) -> Measured:
    """Of an imported level, by the other tool's counts; what one run says of it is chance alone, without blocks."""
    told = level.meta.get("counts") or {}
    n, failed = told.get("n"), told.get("errors")
    if not n or failed is None or failed > n:
        return Measured(math.nan)
    return Measured(failed / n, _chance(failed, n))


def _chance(failed: int, n: int) -> float:
    """The standard error of a share of independent requests, with half a failure more.

    None among 100 requests is not none for ever.
    """
    least = (failed + 0.5) / (n + 1)
    return math.sqrt(least * (1 - least) / n)


def _failures(level: LevelData) -> NDArray[np.float64]:
    import numpy as np
    import polars as pl

    if level.imported:
        return np.empty(0)
    rows = level.steady("end_ns").filter(pl.col("outcome") != "cancelled").sort("visit", "due_ns")
    failed = rows.select((pl.col("outcome") != "ok").cast(pl.Float64)).collect().to_series().to_numpy()
    if failed.size < FEWEST_BLOCKS * _PER_PIECE:
        return np.empty(0)
    pieces, each = _pieces(failed.size)
    return np.asarray(failed[: pieces * each].reshape(pieces, each).mean(axis=1), dtype=np.float64)
