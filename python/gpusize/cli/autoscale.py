"""``gpusize autoscale``: what an autoscaler would do, or did; sends nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpusize.cli import autoscale_report, policies
from gpusize.cli import plan_over_time as over
from gpusize.cli import question_options as question
from gpusize.cli.autoscale_pull import add as add_pull
from gpusize.cli.autoscale_run import add as add_run
from gpusize.cli.command import Commands, Debug, Json, OnRay, listed, long_command, option

EPILOG = """Examples:

  gpusize autoscale simulate runs/20261120T210312Z-7f3a9c --arrivals day.csv --policy hpa.yaml

  gpusize autoscale simulate runs/ --arrivals day.csv --policy hpa.yaml --policy scaledobject.yaml --plot day.png

  gpusize autoscale simulate runs/ --arrivals day.csv --policy hpa.yaml --signal 'queue_depth=sum(waiting)'

  gpusize autoscale simulate runs/ --arrivals day.csv --policy scaledobject.yaml --metrics-outage 10m..15m

  gpusize autoscale tune runs/ --arrivals day.csv --policy hpa.yaml --write tuned.yaml"""

app = typer.Typer(
    cls=Commands, help="What an autoscaler did, and what it would do.", no_args_is_help=True, epilog=EPILOG
)
add_run(app)
add_pull(app)

SIMULATE = long_command(
    "runs", "arrivals", "policy", "signal", "at_zero", "start_delay", "slo", "gpu_hour_price", "plot", "out", "json"
)
TUNE = long_command("runs", "arrivals", "policy", "signal", "start_delay", "slo", "days", "write", "json")

Arrivals = Annotated[
    Path, listed("arrivals", over.TRACE, help="The requests that come: a trace, or a profile with rate_per_s.")
]


@app.callback()
def group() -> None:
    """What an autoscaler would do, or did."""


app.command("report", cls=autoscale_report.COMMAND, epilog=autoscale_report.EPILOG)(autoscale_report.command)


@app.command("simulate", cls=SIMULATE, epilog=EPILOG)
def simulate(
    runs: question.Runs,
    arrivals: Arrivals,
    policy: policies.Policies,
    signal: policies.Signals = None,
    scrape_interval: policies.ScrapeInterval = "15s",
    sync_period: policies.SyncPeriod = "15s",
    at_zero: policies.AtZero = "hold",
    hold_timeout: policies.HoldTimeout = "1h",
    metrics_outage: policies.Outages = None,
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
    around = policies.surroundings(at_zero, hold_timeout, metrics_outage or ())
    autoscalers = policies.autoscalers(policy, signal or (), (scrape_interval, sync_period), around)
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
    policy: policies.Policies,
    signal: policies.Signals = None,
    scrape_interval: policies.ScrapeInterval = "15s",
    sync_period: policies.SyncPeriod = "15s",
    at_zero: policies.AtZero = "hold",
    hold_timeout: policies.HoldTimeout = "1h",
    start_delay: over.StartDelay = None,
    window: over.Window = None,
    arrivals_format: over.ArrivalsFormat = None,
    arrivals_from: over.ArrivalsFrom = None,
    arrivals_until: over.ArrivalsUntil = None,
    speed: over.Speed = None,
    rate_scale: over.RateScale = None,
    lengths: over.Lengths = None,
    seed: over.Seed = None,
    days: Annotated[
        int,
        option("Confirm settings on N days like this one, and judge them on N others; 5 or more.", "N", over.TRACE),
    ] = 20,
    slo: question.Slos = None,
    gpus: question.Gpus = None,
    gpus_per_replica: question.GpusPerReplica = 1,
    router: question.Router = "least_loaded",
    together: question.Together = False,
    label: question.Labels = None,
    allow: question.Allow = None,
    skip_damaged: question.SkipDamaged = False,
    ray: OnRay = None,
    write: Annotated[Path | None, option("Write the manifest with the settings here.", "FILE", policies.POLICY)] = None,
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
    from gpusize.cli.shared import conclude, note, progress_line, tell_damaged, tell_read
    from gpusize.estimate.plan.autoscale.rewrite import write_policy
    from gpusize.options.labels import labels_of
    from gpusize.report.export import dumps
    from gpusize.report.plans.tuned import print_tuned, tuned_json
    from gpusize.report.summary.terminal import make_console
    from gpusize.result import open_run

    around = policies.surroundings(at_zero, hold_timeout, ())
    found = policies.autoscalers(policy, signal or (), (scrape_interval, sync_period), around)
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
            days=days,
            seed=1 if seed is None else seed,
            progress=say,
            ray=ray,
            note=note,
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
