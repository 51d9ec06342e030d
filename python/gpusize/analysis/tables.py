"""Tables of levels beside the summary: delivery, servers, lengths and tokens, calls inside requests, samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import polars as pl

    from gpusize.analysis.level import LevelData

__all__ = [
    "all_calls",
    "all_samples",
    "level_delivery",
    "level_lengths",
    "level_tokens",
    "model_stats",
    "resource_rows",
    "server_rows",
]

_OF: Final = ("visit", "run", "concurrency", "rate")
"""What every table begins with: of which visit a row is."""
_WHOLE: Final = frozenset(
    (
        *("visit", "concurrency", "requests", "failed", "inferences", "executions", "cache_hits", "cache_misses", "n"),
        *("readings", "oom_kills", "threads_peak", "restarts"),
    )
)
_TEXTS: Final = frozenset(
    (
        *("run", "model", "version", "name", "metric", "labels", "unit", "source", "check", "status", "text"),
        *("kind", "mem_peak_from"),
    )
)
_FLAGS: Final = frozenset(("flagged", "restarted"))
_STATS: Final = (
    "model",
    "version",
    "requests",
    "failed",
    "inferences",
    "executions",
    "mean_batch",
    "request_s",
    "queue_s",
    "compute_input_s",
    "compute_infer_s",
    "compute_output_s",
    "execution_s",
    "busy_s",
    "cache_hits",
    "cache_misses",
    "restarted",
)
_RESOURCES: Final = (
    "source",
    "kind",
    "over_s",
    "readings",
    "cpu_mean_cores",
    "cpu_p95_cores",
    "cpu_peak_cores",
    "cpu_peak_error_cores",
    "throttled_share",
    "mem_peak_bytes",
    "mem_peak_from",
    "mem_working_set_bytes",
    "mem_hard_bytes",
    "mem_error_bytes",
    "mem_limit_bytes",
    "oom_kills",
    "cpu_wait_share",
    "mem_wait_share",
    "io_wait_share",
    "threads_peak",
    "restarts",
)
_CHECKS: Final = ("check", "value", "bound", "status", "text")
_TOKENS: Final = (
    "name",
    "requests",
    "events_mean",
    "dataset_mean",
    "usage_mean",
    "events_off",
    "dataset_off",
    "flagged",
)
_LENGTHS: Final = ("name", "requests", "asked_mean", "reported_mean", "off", "flagged")


def _frame(rows: Sequence[Mapping[str, Any]], names: Iterable[str]) -> pl.DataFrame:
    import polars as pl

    def kind(name: str) -> Any:
        if name in _WHOLE:
            return pl.Int64
        return pl.String if name in _TEXTS else pl.Boolean if name in _FLAGS else pl.Float64

    columns = (*_OF, *names)
    kept = [{name: row.get(name) for name in columns} for row in rows]
    return pl.DataFrame(kept, schema={name: kind(name) for name in columns}, orient="row")


def _of(level: LevelData) -> dict[str, Any]:
    return {"visit": level.visit, "run": level.run, "concurrency": level.concurrency, "rate": level.rate}


def server_rows(levels: Iterable[LevelData]) -> pl.DataFrame:
    """What servers and GPUs did in each level.

    One row per visit, quantity and GPU or replica: ``visit``, ``run``, ``concurrency``, ``rate`` and the members of
    ``gpusize.observe.metrics.summarise``'s rows.
    """
    from gpusize.records.samples import FIELDS

    return _frame([{**_of(level), **row} for level in levels for row in level.meta.get("server") or ()], FIELDS)


def model_stats(levels: Iterable[LevelData]) -> pl.DataFrame:
    """What each model of a KServe server did in each level, by the server's own statistics.

    One row per visit, model and version: ``visit``, ``run``, ``concurrency``, ``rate``, ``model``, ``version``,
    ``requests``, ``failed``, ``inferences``, ``executions``, ``mean_batch``, mean ``request_s``, ``queue_s``,
    ``compute_input_s``, ``compute_infer_s`` and ``compute_output_s`` of a request, ``execution_s`` (mean of one
    execution), ``busy_s`` (of all instances together), ``cache_hits``, ``cache_misses``, ``restarted``.
    """
    return _frame([{**_of(level), **one} for level in levels for one in level.meta.get("models") or ()], _STATS)


def resource_rows(levels: Iterable[LevelData]) -> pl.DataFrame:
    """What containers, processes and cgroups used in each level.

    One row per visit and source: ``visit``, ``run``, ``concurrency``, ``rate`` and the members of
    ``gpusize.observe.usage.observer.level_row``'s rows.
    """
    return _frame([{**_of(level), **row} for level in levels for row in level.meta.get("resources") or ()], _RESOURCES)


def level_lengths(levels: Iterable[LevelData]) -> pl.DataFrame:
    """Lengths that were asked for beside those that the server reports, of steady requests that ended ok.

    One row per visit and side: ``visit``, ``run``, ``concurrency``, ``rate``, ``name`` (``input`` or ``output``),
    ``requests``, ``asked_mean`` and ``reported_mean`` in tokens, ``off`` (reported over asked, less 1), ``flagged``.
    """
    rows = []
    for level in levels:
        for each in level.lengths():
            known = {name: getattr(each, name) for name in _LENGTHS}
            rows.append({**_of(level), **known})
    return _frame(rows, _LENGTHS)


def level_delivery(levels: Iterable[LevelData]) -> pl.DataFrame:
    """What was held against the load that was asked for, level by level.

    One row per visit and check: ``visit``, ``run``, ``concurrency``, ``rate``, and the members of
    ``gpusize.analysis.delivery.delivery.DeliveryCheck``, of which ``name`` is called ``check``.
    """
    from gpusize.analysis.delivery.delivery import check_rows

    rows = [{**_of(level), **each} for level in levels if not level.imported for each in check_rows(level)]
    return _frame(rows, _CHECKS)


def level_tokens(levels: Iterable[LevelData]) -> pl.DataFrame:
    """Counts of tokens side by side, of steady requests that ended ok and have all counts that exist.

    One row per visit and side with at least two counts: ``visit``, ``run``, ``concurrency``, ``rate``, ``name``
    (``input`` or ``output``), ``requests``, ``events_mean`` (events with content), ``dataset_mean`` (the dataset's own
    count), ``usage_mean`` (the server's), ``events_off`` and ``dataset_off`` (over the usage, less 1), ``flagged``.
    """
    from gpusize.analysis.tokens import token_counts

    rows = []
    for level in levels:
        rows += [{**_of(level), **{name: getattr(each, name) for name in _TOKENS}} for each in token_counts(level)]
    return _frame(rows, _TOKENS)


def all_calls(levels: Sequence[LevelData]) -> pl.LazyFrame:
    """The calls inside requests, of every kind, of all levels; ``run`` comes first.

    Raises:
        StoreError: a part cannot be read.
    """
    import polars as pl

    from gpusize.base.regular_files import part_files
    from gpusize.records.calls import scan_calls, span_dtypes
    from gpusize.records.schema import outcome_dtype

    frames = []
    for level in levels:
        folder = level.folder / "spans" if level.folder is not None else None
        found = None if folder is None else scan_calls(part_files(folder, "*.parquet"))
        if found is not None:
            frames.append(found.select(pl.lit(level.run).alias("run"), pl.all()))
    schema = {"run": pl.String(), **span_dtypes(), "outcome": outcome_dtype()}
    return pl.concat(frames) if frames else pl.LazyFrame(schema=schema)


def all_samples(levels: Sequence[LevelData]) -> pl.LazyFrame:
    """The readings of all levels as they were stored, after ``visit`` and ``run``."""
    import polars as pl

    from gpusize.records.samples import sample_schema, scan_samples

    frames = [
        scan_samples(level.folder).select(
            pl.lit(level.visit, pl.UInt32).alias("visit"), pl.lit(level.run).alias("run"), pl.all()
        )
        for level in levels
        if level.folder is not None
    ]
    schema = {"visit": pl.UInt32(), "run": pl.String(), **sample_schema()}
    return pl.concat(frames) if frames else pl.LazyFrame(schema=schema)
