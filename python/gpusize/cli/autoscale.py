"""``gpusize autoscale``: what an autoscaler would do; sends nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpusize.cli import plan_over_time as over
from gpusize.cli import question_options as question
from gpusize.cli.command import Commands, Debug, Json, listed, long_command, option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpusize.estimate.plan.autoscale.autoscaler import Autoscaler, Surroundings

EPILOG = """Examples:

  gpusize autoscale simulate runs/20261120T210312Z-7f3a9c --arrivals day.csv --policy hpa.yaml

  gpusize autoscale simulate runs/ --arrivals day.csv --policy hpa.yaml --policy scaledobject.yaml --plot day.png

  gpusize autoscale simulate runs/ --arrivals day.csv --policy hpa.yaml --signal 'queue_depth=sum(waiting)'

  gpusize autoscale simulate runs/ --arrivals day.csv --policy scaledobject.yaml --metrics-outage 10m..15m

  gpusize autoscale tune runs/ --arrivals day.csv --policy hpa.yaml --write tuned.yaml"""

app = typer.Typer(cls=Commands, help="What an autoscaler would do.", no_args_is_help=True, epilog=EPILOG)

SIMULATE = long_command(
    "runs", "arrivals", "policy", "signal", "at_zero", "start_delay", "slo", "gpu_hour_price", "plot", "out", "json"
)
TUNE = long_command("runs", "arrivals", "policy", "signal", "start_delay", "slo", "write", "json")
POLICY = "Policy"

Arrivals = Annotated[
    Path, listed("arrivals", over.TRACE, help="The requests that come: a trace, or a profile with rate_per_s.")
]
Policies = Annotated[
    list[Path],
    option("Manifests of HorizontalPodAutoscalers (autoscaling/v2) or KEDA ScaledObjects.", "FILE", POLICY),
]
Signals = Annotated[
    list[str] | None,
    option("What a metric measures, where its name does not tell: NAME=sum(waiting).", "NAME=QUERY", POLICY),
]
ScrapeInterval = Annotated[str, option("Scrape the replicas' metrics this often.", "TIME", POLICY)]
SyncPeriod = Annotated[str, option("Let the HPA decide this often.", "TIME", POLICY)]
AtZero = Annotated[str, option("Requests that come while there is no replica: hold or refuse.", "WHAT", POLICY)]
HoldTimeout = Annotated[str, option("Refuse a request that was held for so long.", "TIME", POLICY)]
Outages = Annotated[
    list[str] | None, option("Let all metrics fail from one time of the day to another: 10m..15m.", "FROM..TO", POLICY)
]


@app.callback()
def group() -> None:
    """What an autoscaler would do."""


@app.command("simulate", cls=SIMULATE, epilog=EPILOG)
def simulate(
    runs: question.Runs,
    arrivals: Arrivals,
    policy: Policies,
    signal: Signals = None,
    scrape_interval: ScrapeInterval = "15s",
    sync_period: SyncPeriod = "15s",
    at_zero: AtZero = "hold",
    hold_timeout: HoldTimeout = "1h",
    metrics_outage: Outages = None,
    start_delay: over.StartDelay = None,
    window: over.Window = None,
    arrivals_format: over.ArrivalsFormat = None,
    arrivals_from: over.ArrivalsFrom = None,
    arrivals_until: over.ArrivalsUntil = None,
    speed: over.Speed = None,
    rate_scale: over.RateScale = None,
    lengths: over.Lengths = None,
    seed: over.Seed = None,
    gpu_hour_price: Annotated[
        str | None, option("Price of a GPU for an hour: 2.5 or '2.5 EUR'.", "PRICE", question.QUESTION)
    ] = None,
    slo: question.Slos = None,
    gpus: question.Gpus = None,
    gpus_per_replica: question.GpusPerReplica = 1,
    router: question.Router = "least_loaded",
    together: question.Together = False,
    label: question.Labels = None,
    allow: question.Allow = None,
    skip_damaged: question.SkipDamaged = False,
    plot: Annotated[Path | None, option("Draw the plan into this .png, .svg or .pdf file.", "FILE")] = None,
    out: Annotated[Path | None, option("Write over_time.json, .csv, .parquet and plots here.", "DIR")] = None,
    json: Json = False,
    _debug: Debug = False,
) -> int:
    """Fit a replica to earlier runs, and let autoscalers scale it through a day in virtual time. No load is sent.

    Beside the policies stand the replicas that the largest window needs all the time (static), and those of one who
    knows the day in advance (planned).
    """
    from gpusize.cli.shared import tell_damaged, tell_read
    from gpusize.options.labels import labels_of
    from gpusize.result import open_run

    if plot is not None:
        from gpusize.report.figures.plan import check_place

        check_place(plot)
    around = _surroundings(at_zero, hold_timeout, metrics_outage or ())
    autoscalers = _autoscalers(policy, signal or (), (scrape_interval, sync_period), around)
    result = open_run(runs, labels=labels_of(label), skip_damaged=skip_damaged)
    tell_read(slo)
    tell_damaged(result)
    plain = ("gpus", "gpus_per_replica", "router", "together", "gpu_hour_price")
    asked = {name: value for name, value in locals().items() if name in plain}
    asked |= {"slos": slo or None, "allow": allow or (), "headroom": 0.0, "spare": 0}
    given = locals()
    options = {name: given.get(name) for name in over.OPTIONS} | {"policy": "planned"}
    return over.answer(
        result, arrivals, options, asked, autoscalers=autoscalers, others={}, plot=plot, out=out, json=json
    )


@app.command("tune", cls=TUNE, epilog=EPILOG)
def tune(
    runs: question.Runs,
    arrivals: Arrivals,
    policy: Policies,
    signal: Signals = None,
    scrape_interval: ScrapeInterval = "15s",
    sync_period: SyncPeriod = "15s",
    at_zero: AtZero = "hold",
    hold_timeout: HoldTimeout = "1h",
    start_delay: over.StartDelay = None,
    window: over.Window = None,
    arrivals_format: over.ArrivalsFormat = None,
    arrivals_from: over.ArrivalsFrom = None,
    arrivals_until: over.ArrivalsUntil = None,
    speed: over.Speed = None,
    rate_scale: over.RateScale = None,
    lengths: over.Lengths = None,
    seed: over.Seed = None,
    slo: question.Slos = None,
    gpus: question.Gpus = None,
    gpus_per_replica: question.GpusPerReplica = 1,
    router: question.Router = "least_loaded",
    together: question.Together = False,
    label: question.Labels = None,
    allow: question.Allow = None,
    skip_damaged: question.SkipDamaged = False,
    write: Annotated[Path | None, option("Write the manifest with the settings here.", "FILE", POLICY)] = None,
    json: Json = False,
    _debug: Debug = False,
) -> int:
    """Find the targets, the window and the least replicas with the fewest GPU-hours that keep the SLOs on such days.

    Days of the same kind are drawn from the arrivals; settings are chosen on some and judged on others. No load is
    sent.
    """
    import sys

    from gpusize.api.tune import tune_autoscaler
    from gpusize.base.errors import UsageError
    from gpusize.cli.exit_code import ExitStatus
    from gpusize.cli.shared import conclude, progress_line, tell_damaged, tell_read
    from gpusize.estimate.plan.autoscale.rewrite import write_policy
    from gpusize.options.labels import labels_of
    from gpusize.report.export import dumps
    from gpusize.report.plans.tuned import print_tuned, tuned_json
    from gpusize.report.summary.terminal import make_console
    from gpusize.result import open_run

    around = _surroundings(at_zero, hold_timeout, ())
    found = _autoscalers(policy, signal or (), (scrape_interval, sync_period), around)
    if len(found) != 1:
        raise UsageError(f"{len(found)} policies were given", "--policy", "tune one at a time")
    result = open_run(runs, labels=labels_of(label), skip_damaged=skip_damaged)
    tell_read(slo)
    tell_damaged(result)
    given = locals()
    options = {name: given.get(name) for name in over.OPTIONS}
    with progress_line() as say:
        tuned = tune_autoscaler(
            result,
            arrivals,
            found[0],
            slo or None,
            over.rules_of(options),
            lengths=lengths,
            allow=allow or (),
            seed=1 if seed is None else seed,
            progress=say,
            gpus=gpus,
            gpus_per_replica=gpus_per_replica,
            router=router,
            together=together,
            **over.shape_of(options),
        )
    written = [write_policy(policy[0], tuned.policy, write)] if write is not None and tuned.policy is not None else []
    if json:
        sys.stdout.write(dumps(tuned_json(tuned, found[0])))
    else:
        print_tuned(tuned, found[0], make_console(), written)
    if tuned.policy is not None:
        return 0
    reason = tuned.found.reason or "no setting keeps the SLOs on such days"
    return conclude(ExitStatus(1, f"nothing to write: {reason}"))


def _surroundings(at_zero: str, hold: str, outages: Sequence[str]) -> Surroundings:
    """What stands around the policies."""
    from gpusize.base.errors import UsageError
    from gpusize.base.units import as_duration_s
    from gpusize.estimate.plan.autoscale.autoscaler import Surroundings

    if at_zero not in ("hold", "refuse"):
        raise UsageError(f'"{at_zero}" is nothing that can be done with requests', "--at-zero", "take hold or refuse")
    hold_s = as_duration_s(hold, "--hold-timeout")
    if hold_s <= 0:
        raise UsageError("--hold-timeout must be positive", "--hold-timeout", "take refuse as --at-zero to hold none")
    read = []
    for each in outages:
        begin, mark, end = each.partition("..")
        if not mark:
            what = f'"{each}" is no stretch of time'
            raise UsageError(what, "--metrics-outage", "give FROM..TO from the start of the day, as 10m..15m")
        stretch = as_duration_s(begin, "--metrics-outage"), as_duration_s(end, "--metrics-outage")
        if stretch[1] <= stretch[0]:
            raise UsageError(f'"{each}" ends before it begins', "--metrics-outage", "give the earlier time first")
        read.append(stretch)
    return Surroundings(at_zero == "hold", hold_s, tuple(read))


def _autoscalers(
    files: list[Path], signals: list[str] | tuple[()], every: tuple[str, str], surroundings: Surroundings
) -> list[Autoscaler]:
    """The policies of all files; those of one name are told apart by their file's, then by a number."""
    from gpusize.base.errors import UsageError
    from gpusize.base.units import as_duration_s
    from gpusize.estimate.plan.autoscale.autoscaler import Timing
    from gpusize.estimate.plan.autoscale.manifest import read_policies

    told = {}
    for each in signals:
        name, mark, query = each.partition("=")
        if not mark or not name.strip() or not query.strip():
            raise UsageError(f'"{each}" is no signal', "--signal", "give NAME=QUERY, as queue_depth=sum(waiting)")
        told[name.strip()] = query.strip()
    timing = Timing(as_duration_s(every[0], "--scrape-interval"), as_duration_s(every[1], "--sync-period"))
    read = [(file, each) for file in files for each in read_policies(file, told, timing, surroundings)]
    found: list[Autoscaler] = []
    for file, one in read:
        twins = sum(other.name == one.name for _, other in read)
        name = one.name if twins == 1 else f"{one.name} ({file.stem})"
        taken = sum(other.name == name or other.name.startswith(f"{name} #") for other in found)
        found.append(one.named(f"{name} #{taken + 1}" if taken else name))
    return found
