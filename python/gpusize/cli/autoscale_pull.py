"""``gpusize autoscale pull`` and ``dashboard``: series of a Prometheus server, and a dashboard of the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gpusize.cli.command import Command, Debug, Json, listed, long_command, option

if TYPE_CHECKING:
    import typer

    from gpusize.observe.series.time_range import TimeRange

__all__ = ["add"]

PULL_EPILOG = """Examples:

  gpusize autoscale pull --prometheus http://prometheus:9090 --preset vllm --preset hpa
    --run runs/20261120T210312Z-7f3a9c

  gpusize autoscale pull --prometheus kube://monitoring/prometheus:9090 --preset epp --preset keda --preset deployment
    --prometheus-match 'namespace="llm"' --from 2026-11-20T21:00:00Z --to 2026-11-20T22:00:00Z --out series

  gpusize autoscale pull --prometheus https://thanos.example:9091 --prometheus-token-env TOKEN --preset vllm
    --series 'spot=sum(kube_node_labels{label_spot="true"})' --result benchmarks.json --out series"""
DASHBOARD_EPILOG = """Examples:

  gpusize autoscale dashboard --preset vllm --preset hpa --preset deployment --out dashboard.json"""

PULL = long_command("prometheus", "preset", "series", "run", "from_", "to", "result", "out", "prometheus_token_env")
SERVER, RANGE = "Server", "Range"
SERIES_OF_RUN = "series"
"""The folder in a run's folder that its series are in."""

Presets = Annotated[
    list[str] | None,
    option("Series of vllm, sglang, triton, dcgm, epp, keda, hpa, deployment or wva.", "NAME"),
]


def add(app: typer.Typer) -> None:
    """Add the commands to those of ``gpusize autoscale``."""
    app.command("pull", cls=PULL, epilog=PULL_EPILOG)(pull)
    app.command("dashboard", cls=Command, epilog=DASHBOARD_EPILOG)(dashboard)


def pull(
    prometheus: Annotated[str, option("Ask this Prometheus server; kube://NAMESPACE/SERVICE:PORT too.", "URL")],
    preset: Presets = None,
    series: Annotated[list[str] | None, option("A series of your own.", "NAME=PROMQL")] = None,
    run: Annotated[Path | None, option("The time of this run.", "RUN", RANGE)] = None,
    from_: Annotated[
        str | None, option("The time from here, as 2026-11-20T21:00:00Z.", "TIME", RANGE, names=("--from",))
    ] = None,
    to: Annotated[str | None, option("The time up to here.", "TIME", RANGE)] = None,
    result: Annotated[
        Path | None,
        option("The time of this result: GuideLLM's JSON, or a TaskRun or PipelineRun of Tekton.", "FILE", RANGE),
    ] = None,
    margin: Annotated[str, option("So much before and behind it too.", "TIME", RANGE)] = "1m",
    wait: Annotated[bool, option("Wait until the server has the end of it.", None, RANGE, names=("--wait",))] = False,
    out: Annotated[
        Path | None,
        option(
            "Put the series in this folder; what it has is not asked for again.",
            "DIR",
            show_default="series in the run's folder",
        ),
    ] = None,
    step: Annotated[str, option("Evaluate expressions this often; selectors are pulled as stored.", "TIME")] = "15s",
    prometheus_match: Annotated[str | None, listed("prometheus_match", SERVER)] = None,
    prometheus_header: Annotated[list[str] | None, listed("prometheus_header", SERVER)] = None,
    prometheus_token_env: Annotated[str | None, listed("prometheus_token_env", SERVER)] = None,
    prometheus_cacert: Annotated[str | None, listed("prometheus_cacert", SERVER)] = None,
    prometheus_insecure: Annotated[bool, listed("prometheus_insecure", SERVER)] = False,
    parallel: Annotated[int, option("Most questions at a time.", "N", SERVER, min=1, max=16)] = 4,
    retry: Annotated[str, option("Ask again for so long while the server fails.", "TIME", SERVER)] = "30s",
    json: Json = False,
    _debug: Debug = False,
) -> int:
    """Pull series of a Prometheus server, for the time of a run or another one, into a folder. No load is sent.

    A pull that was interrupted, or that the server ended, goes on where it was when it is given again.
    """
    import sys

    from gpusize.api.pull import Server, pull_series
    from gpusize.base.errors import UsageError
    from gpusize.base.units import as_duration_s
    from gpusize.cli.exit_code import ExitStatus
    from gpusize.cli.shared import conclude, note, progress_line
    from gpusize.observe.metrics.trust import prometheus_trust
    from gpusize.options.observers import prometheus_headers
    from gpusize.report.export import dumps
    from gpusize.report.pulled import missing_lines, print_pulled
    from gpusize.report.summary.terminal import make_console

    if out is None:
        if run is None:
            raise UsageError("it says where the series go", "--out", "name a folder")
        out = run / SERIES_OF_RUN
    given = locals()
    server = Server(
        prometheus,
        prometheus_headers({name: given[name] for name in given if name.startswith("prometheus")}),
        prometheus_trust(prometheus_cacert, insecure=prometheus_insecure),
        as_duration_s(retry, "--retry"),
    )
    with progress_line() as say:
        done = pull_series(
            server,
            out,
            _range(run, from_, to, result),
            presets=preset or (),
            series=series or (),
            match=prometheus_match,
            margin_s=as_duration_s(margin, "--margin"),
            step_s=as_duration_s(step, "--step"),
            parallel=parallel,
            wait_for_end=wait,
            progress=say,
        )
    if json:
        sys.stdout.write(dumps(dict(done.facts)))
    else:
        console = make_console()
        print_pulled(done.facts, console)
        console.print(str(done.path), soft_wrap=True)
    for text in (*done.facts["notes"], *missing_lines(done.facts)):
        note(text)
    if done.complete:
        return 0
    if done.fatal is not None:
        return conclude(ExitStatus(3, f"{prometheus}: {done.fatal}: what was pulled is kept, the same command goes on"))
    return conclude(ExitStatus(3, "not everything is there: the same command asks for what is missing"))


def dashboard(
    preset: Presets = None,
    out: Annotated[Path | None, option("Write this file.", "FILE", show_default="print it")] = None,
    title: Annotated[str, option("Its title.", "TEXT")] = "Autoscaling",
    _debug: Debug = False,
) -> None:
    """Write a Grafana dashboard of presets: a panel for each quantity, old and new names of a series as one."""
    import sys

    from gpusize.base.errors import UsageError
    from gpusize.base.files import write_atomic
    from gpusize.observe.series.presets import PRESETS, definitions
    from gpusize.report.exchange.grafana import dashboard_of
    from gpusize.report.export import dumps

    if not preset:
        raise UsageError("there is nothing to show", "--preset", f"give one or more of {', '.join(PRESETS)}")
    definitions(preset)
    document = dumps(dashboard_of({name: PRESETS[name] for name in dict.fromkeys(preset)}, title))
    if out is None:
        sys.stdout.write(document)
    else:
        write_atomic(out, document.encode())
        sys.stdout.write(f"{out}\n")


def _range(run: Path | None, start: str | None, end: str | None, result: Path | None) -> TimeRange:
    """The time that the options tell.

    Raises:
        UsageError: none, or more than one.
    """
    from gpusize.base.errors import UsageError
    from gpusize.observe.series.time_range import of_result, of_run, written_range

    todo = "give --run, --result, or --from and --to"
    written = start is not None or end is not None
    if sum((run is not None, result is not None, written)) != 1:
        raise UsageError("it takes one range of time", "range", todo)
    if run is not None:
        return of_run(run)
    if result is not None:
        return of_result(result)
    if start is None or end is None:
        raise UsageError("a range has two ends", "range", "give both --from and --to")
    return written_range(start, end)
