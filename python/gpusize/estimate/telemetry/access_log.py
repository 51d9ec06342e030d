"""Access logs: when requests came, how long they took, their tokens, how they ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import DatasetError

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

__all__ = ["COLUMNS", "AccessLog", "read_access_log"]

COLUMNS: Final = {
    "time": ("time", "timestamp", "ts", "start_time", "time_iso8601", "arrived_at", "arrival_time"),
    "duration_s": ("duration_s", "duration", "request_time", "latency_s", "latency", "elapsed"),
    "duration_ms": ("duration_ms", "latency_ms", "request_time_ms", "elapsed_ms"),
    "prompt_tokens": ("prompt_tokens", "input_tokens", "tokens_in", "request tokens", "contexttokens"),
    "output_tokens": ("output_tokens", "completion_tokens", "tokens_out", "response tokens", "generatedtokens"),
    "status": ("status", "status_code", "code"),
}
"""What is read, and the columns that say it, in small letters; the first that is there counts."""
GOOD: Final = range(200, 300)
FEWEST: Final = 100


@dataclass(frozen=True, slots=True, eq=False)
class AccessLog:
    """What a log says; requests that failed are left out.

    Attributes:
        name: of the file.
        due_ns: when requests came, ns since 1970, ascending; shape (m,).
        took_s: how long they took, s; NaN where it is not said; shape (m,).
        prompt: tokens; NaN likewise.
        output: tokens of the answer; NaN likewise.
        failed: requests that ended with another status than 200 to 299.
    """

    name: str
    due_ns: NDArray[np.int64]
    took_s: NDArray[np.float64]
    prompt: NDArray[np.float64]
    output: NDArray[np.float64]
    failed: int = 0

    @property
    def lengths(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Pairs of prompt and answer, tokens from 1; None where fewer than 100 are said.

        A row without the prompt's is left out, unless most rows have none.
        """
        import numpy as np

        told = np.isfinite(self.prompt)
        known = np.isfinite(self.output) & (self.output >= 1) & (told if told.mean() > 0.5 else True)
        if known.sum() < FEWEST:
            return None
        return np.maximum(1.0, np.nan_to_num(self.prompt[known], nan=1.0)), self.output[known]


def read_access_log(path: Path) -> AccessLog:
    """Read a log: Parquet, CSV with a header, or JSON lines.

    Raises:
        DatasetError: it cannot be read, or says no times.
    """
    import numpy as np
    import polars as pl

    frame = _frame(path)
    found = {what: name for what, names in COLUMNS.items() if (name := _column(frame.columns, names)) is not None}
    if "time" not in found:
        raise DatasetError(
            f"it has no column of times; there are {', '.join(frame.columns[:8])}",
            str(path),
            f"name one {', '.join(COLUMNS['time'][:3])}",
        )
    due = _moments(frame[found["time"]], path)

    def numbers(what: str) -> NDArray[np.float64]:
        if what not in found:
            return np.full(frame.height, np.nan)
        return frame[found[what]].cast(pl.Float64, strict=False).fill_null(float("nan")).to_numpy()

    took = numbers("duration_s")
    took = np.where(np.isfinite(took), took, numbers("duration_ms") / 1e3)
    status = numbers("status")
    ok = ~np.isfinite(status) | np.isin(status, list(GOOD))
    order = np.argsort(due[ok], kind="stable")
    prompt, output = numbers("prompt_tokens"), numbers("output_tokens")
    return AccessLog(path.name, due[ok][order], took[ok][order], prompt[ok][order], output[ok][order], int((~ok).sum()))


def _frame(path: Path) -> pl.DataFrame:
    import polars as pl

    readers = {".parquet": pl.read_parquet, ".csv": pl.read_csv, ".jsonl": pl.read_ndjson, ".ndjson": pl.read_ndjson}
    reader: Any = readers.get(path.suffix.lower())
    if reader is None:
        raise DatasetError(f"a log is read by its suffix, and {path.suffix or 'none'} is not known", str(path),
                           "name it .parquet, .csv or .jsonl")  # fmt: skip
    if not path.is_file():
        raise DatasetError("there is no such file", str(path), "give the access log of the same time")
    try:
        frame: pl.DataFrame = reader(path)
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as problem:
        raise DatasetError(
            f"it cannot be read: {str(problem).splitlines()[0]}", str(path), "look at its format"
        ) from None
    if not frame.height:
        raise DatasetError("it has no rows", str(path), "give the access log of the same time")
    return frame


def _column(columns: Sequence[str], names: Sequence[str]) -> str | None:
    small = {column.lower(): column for column in columns}
    return next((small[name] for name in names if name in small), None)


def _moments(column: pl.Series, path: Path) -> NDArray[np.int64]:
    """Times as ns since 1970: texts of ISO 8601, datetimes, or numbers of s, ms, us or ns by their size."""
    import numpy as np
    import polars as pl

    todo = "write ISO 8601 with a zone, or seconds since 1970"
    if column.dtype == pl.String:
        texts = column.str.to_datetime(time_unit="ns", time_zone="UTC", strict=False)
        column = texts if texts.null_count() < column.len() else column.cast(pl.Float64, strict=False)
    if isinstance(column.dtype, pl.Datetime):
        if column.null_count():
            raise DatasetError(f"{column.null_count()} of its times cannot be read", str(path), todo)
        return column.dt.cast_time_unit("ns").cast(pl.Int64).to_numpy()
    numbers = column.cast(pl.Float64, strict=False)
    if numbers.null_count() or not numbers.is_finite().all():
        raise DatasetError("some of its times cannot be read", str(path), todo)
    middle = float(numbers.median() or 0.0)  # type: ignore[arg-type]
    per_s = next((unit for least, unit in ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3)) if middle >= least), 1.0)
    if per_s == 1e9 and column.dtype.is_integer():
        return column.cast(pl.Int64).to_numpy()
    return np.round(numbers.to_numpy() * (1e9 / per_s)).astype(np.int64)
