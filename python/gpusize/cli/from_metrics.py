"""``gpusize estimate --from-metrics``: its options, and what it prints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from gpusize.cli.command import listed, option

__all__ = [
    "AccessLog",
    "BatchLimit",
    "Cacert",
    "From",
    "FromMetrics",
    "Header",
    "Insecure",
    "Match",
    "Out",
    "To",
    "TokenEnv",
    "answer",
    "check",
]

TELEMETRY: Final = "Telemetry: production as it was scraped, instead of runs"
OF_RUNS: Final = ("gpus", "host_gpus", "label", "allow", "skip_damaged")
"""Options that say something of runs."""
OF_METRICS: Final = ("from_", "to", "access_log", "batch_limit", "out", "prometheus_match", "prometheus_header",
                     "prometheus_token_env", "prometheus_cacert", "prometheus_insecure")  # fmt: skip

FromMetrics = Annotated[
    str | None,
    option("Estimate from these series: a folder of autoscale pull, or a Prometheus server.", "WHERE", TELEMETRY),
]
From = Annotated[
    str | None, option("The time from here, as 2026-11-20T21:00:00Z.", "TIME", TELEMETRY, names=("--from",))
]
To = Annotated[str | None, option("The time up to here.", "TIME", TELEMETRY)]
AccessLog = Annotated[
    Path | None, option("An access log of that time, for lengths: Parquet, CSV, JSONL.", "FILE", TELEMETRY)
]
BatchLimit = Annotated[
    int | None, option("Most requests that a replica works on at once, as its server has it.", "N", TELEMETRY, min=1)
]
Out = Annotated[Path | None, option("Keep the pulled series in this folder.", "DIR", TELEMETRY, show_default="nowhere")]
Match = Annotated[str | None, listed("prometheus_match", TELEMETRY)]
Header = Annotated[list[str] | None, listed("prometheus_header", TELEMETRY)]
TokenEnv = Annotated[str | None, listed("prometheus_token_env", TELEMETRY)]
Cacert = Annotated[str | None, listed("prometheus_cacert", TELEMETRY)]
Insecure = Annotated[bool, listed("prometheus_insecure", TELEMETRY)]


def check(given: Mapping[str, Any]) -> None:
    """Refuse options of runs beside those of series.

    Raises:
        UsageError: neither runs nor series are named, or both, or an option of the other.
    """
    from gpusize.base.errors import UsageError

    if given["from_metrics"] is None:
        name = next((each for each in OF_METRICS if given[each]), None)
        if name is not None:
            raise UsageError("it belongs to --from-metrics", name.rstrip("_"), "say which series to look at")
        if not given["runs"]:
            raise UsageError("there is nothing to estimate from", "runs", "name run folders, or give --from-metrics")
        return
    if given["runs"]:
        raise UsageError("runs and series are both given", "from_metrics", "estimate from one of them")
    name = next((each for each in OF_RUNS if given[each]), None)
    if name is not None:
        raise UsageError("it is about runs", name, "leave it out beside --from-metrics")
    if given["method"] not in ("auto", "telemetry"):
        raise UsageError("series have a method of their own", "method", "leave it out beside --from-metrics")


def answer(given: Mapping[str, Any], asked: Mapping[str, Any]) -> int:
    """Estimate from series, print it, and say how that ended.

    Args:
        given: the arguments of the command by name.
        asked: fields of the question.
    """
    import sys

    from gpusize.api.metrics import estimate_metrics, is_server
    from gpusize.api.pull import Server
    from gpusize.base.units import parse_rate
    from gpusize.cli.exit_code import NO, ExitStatus
    from gpusize.cli.shared import conclude, note, progress_line, tell_read
    from gpusize.observe.metrics.trust import prometheus_trust
    from gpusize.options.observers import prometheus_headers
    from gpusize.report.export import dumps, estimate_document
    from gpusize.report.summary.terminal import make_console, print_estimates

    where: Any = given["from_metrics"]
    if is_server(where):
        of_it = {name: given[name] for name in given if name.startswith("prometheus_")} | {"prometheus": where}
        trust = prometheus_trust(given["prometheus_cacert"], insecure=given["prometheus_insecure"])
        where = Server(where, prometheus_headers(of_it), trust)
    span = _range(given["from_"], given["to"])
    tell_read(given["slo"])
    with progress_line() as say:
        found = estimate_metrics(
            where,
            users=given["users"],
            rate=None if given["rate"] is None else parse_rate(given["rate"], "rate"),
            token_rate=None if given["token_rate"] is None else parse_rate(given["token_rate"], "token_rate"),
            slos=given["slo"] or (),
            time_range=span,
            match=given["prometheus_match"],
            out=given["out"],
            access_log=given["access_log"],
            batch_limit=given["batch_limit"],
            progress=say,
            **{name: value for name, value in asked.items() if name not in ("gpus", "allow")},
        )
    if given["json"]:
        sys.stdout.write(dumps(estimate_document([found])))
    else:
        print_estimates([found], make_console())
    if found.answered:
        return 0
    note(f"no estimate can be given: {found.reason}")
    return conclude(ExitStatus(NO))


def _range(start: str | None, end: str | None) -> Any:
    from gpusize.base.errors import UsageError
    from gpusize.observe.series.time_range import written_range

    if start is None and end is None:
        return None
    if start is None or end is None:
        raise UsageError("a range has two ends", "range", "give both --from and --to")
    return written_range(start, end)
