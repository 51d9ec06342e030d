"""An estimate from what production told of itself: pulled series, or a Prometheus server that still has them."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import PathMissing, StoreError, UsageError

if TYPE_CHECKING:
    import polars as pl

    from gpusize.analysis.slo import Slo
    from gpusize.api.pull import Server
    from gpusize.estimate.question import Estimate
    from gpusize.estimate.telemetry.access_log import AccessLog
    from gpusize.observe.series.time_range import TimeRange

__all__ = ["PRESETS", "estimate_metrics", "is_server"]

PRESETS: Final = ("vllm", "sglang")
"""What is pulled: series of the servers whose replicas can be fitted."""


def is_server(where: str | Path) -> bool:
    """Whether it is the address of a Prometheus server, not a folder or a file."""
    return "://" in str(where)


def estimate_metrics(
    where: str | Path | Server,
    *,
    users: float | None = None,
    rate: float | None = None,
    token_rate: float | None = None,
    slos: str | Slo | Sequence[str | Slo] = (),
    time_range: TimeRange | None = None,
    match: str | None = None,
    out: str | Path | None = None,
    access_log: str | Path | None = None,
    batch_limit: int | None = None,
    progress: Callable[[str], None] | None = None,
    **question: Any,
) -> Estimate:
    """How many GPUs, from scraped series of production alone. No load is sent.

    Args:
        where: a folder of ``gpusize autoscale pull``, a Parquet file with its columns, or a Prometheus server: its
            address, or a ``gpusize.api.pull.Server``.
        users: requests in flight, or users who pause.
        rate: requests per second instead.
        token_rate: output tokens per second instead, by the mean length of the answers that were seen.
        slos: what is to be kept: shares of requests whose runtime, service, ttft or itl_mean are within a bound.
        time_range: what to pull from a server; see ``gpusize.observe.series.time_range``.
        match: label matchers of its series, as ``namespace="llm"``.
        out: where the pulled series are kept; None for nowhere.
        access_log: a log of the same time: Parquet, CSV or JSON lines.
        batch_limit: requests that a replica works on at once at most, as its server was started with.
        progress: told in words how far a pull is.
        **question: other fields of ``gpusize.Question``: ``gpus_per_replica``, ``router``, ``think_s``, ``headroom``...

    Returns:
        The estimate; where the series do not tell, its ``reason`` says why, and which load would.

    Raises:
        UsageError: an invalid question, or not one of users, rate and token_rate.
        StoreError: no pulled series there, or damaged ones.
        TargetError: the server does not answer, refuses, or is no Prometheus.
        DatasetError: the log cannot be read.
    """
    from gpusize.analysis.slo import as_slos
    from gpusize.estimate.question import Question
    from gpusize.estimate.telemetry.access_log import read_access_log
    from gpusize.estimate.telemetry.method import estimate_telemetry
    from gpusize.estimate.token_rate import with_tokens

    if sum(each is not None for each in (users, rate, token_rate)) != 1:
        raise UsageError("it takes one question", "users", "give --users, --rate or --token-rate")
    if batch_limit is not None and batch_limit < 1:
        raise UsageError(f"it must be at least 1, not {batch_limit}", "batch_limit", "give the server's max_num_seqs")
    log = None if access_log is None else read_access_log(Path(access_log))
    wanted = as_slos(slos)
    # Before anything is pulled: what cannot be asked is said at once.
    asked = Question(users or 0.0, wanted, rate=token_rate if rate is None else rate, **question)
    with _series(where, time_range, match, out, progress) as frame:
        if token_rate is not None:
            asked = replace(asked, rate=token_rate / _answer_tokens(frame, log), token_rate=token_rate)
        answer = estimate_telemetry(frame, asked, log=log, batch_limit=batch_limit)
    return with_tokens(answer, asked)


@contextlib.contextmanager
def _series(
    where: str | Path | Server,
    time_range: TimeRange | None,
    match: str | None,
    out: str | Path | None,
    progress: Callable[[str], None] | None,
) -> Any:
    """The samples: of a folder, of a file, or pulled."""
    from gpusize.api.pull import Server, pull_series
    from gpusize.records.series import scan_series

    if isinstance(where, Server) or is_server(where):
        if time_range is None:
            raise UsageError("which time is to be looked at is not said", "from", "give --from and --to")
        with contextlib.ExitStack() as stack:
            place = Path(out) if out is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
            server = where if isinstance(where, Server) else str(where)
            # Without a margin: what came before and after is no evidence of the time that was asked for.
            done = pull_series(server, place, time_range, presets=PRESETS, match=match, margin_s=0.0, progress=progress)
            if done.fatal is not None:
                from gpusize.base.errors import TargetError

                raise TargetError(f"the pull ended early: {done.fatal}", None, "ask again")
            yield scan_series(place)
        return
    for given, name in ((time_range, "from"), (match, "prometheus_match"), (out, "out")):
        if given is not None:
            raise UsageError("it is of a pull, and the series are here already", name, "leave it out")
    yield _stored(Path(where))


def _stored(path: Path) -> pl.LazyFrame:
    """Samples of a folder or a file.

    Raises:
        StoreError: there are none, or the file has other columns.
    """
    import polars as pl

    from gpusize.records.series import scan_series, series_parts, series_schema

    if path.is_dir():
        # A run's own series are one level down.
        folder = next((each for each in (path, path / "series") if series_parts(each)), None)
        if folder is None:
            raise PathMissing("not a folder of pulled series", str(path), "pull them: gpusize autoscale pull --help")
        return scan_series(folder)
    if not path.is_file():
        raise PathMissing("there is no such file or folder", str(path), "pull series: gpusize autoscale pull --help")
    try:
        frame = pl.scan_parquet(path, glob=False)
        columns = frame.collect_schema()
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        raise StoreError(
            "not a Parquet file, or damaged", str(path), "pull series: gpusize autoscale pull --help"
        ) from None
    lacking = [name for name, kind in series_schema().items() if columns.get(name) != kind]
    if lacking:
        raise StoreError(
            f"its columns are not those of pulled series: {', '.join(lacking)} is missing or of another type",
            str(path),
            "see docs/reference/autoscale-series.md",
        )
    return frame


def _answer_tokens(frame: pl.LazyFrame, log: AccessLog | None) -> float:
    """Mean tokens of an answer.

    Raises:
        UsageError: nothing tells them.
    """
    from gpusize.analysis.series.replicas import steps_of
    from gpusize.estimate.telemetry.matching_log import matching_log, mean_tokens

    names = ("requests", "tokens_in", "tokens_out")
    steps = steps_of(frame, gauges=(), counters=names, histograms=("prompt_length", "output_length", "request_time"))
    counted = mean_tokens(steps, "output")
    if counted is not None:
        return counted
    ours, said = matching_log(log, steps) if log is not None and len(steps) else (log, ())
    if ours is not None and ours.lengths is not None:
        return float(ours.lengths[1].mean())
    what = "no series tells the length of answers, so tokens/s cannot be turned into requests/s"
    raise UsageError(
        "; ".join([what, *(text.rstrip(".") for text in said)]),
        "token_rate",
        "ask for requests per second instead, as --rate 40/s",
    )
