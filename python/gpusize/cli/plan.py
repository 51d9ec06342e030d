"""``gpusize plan``: what if there were more users, tighter SLOs, a failed replica; sends nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gpusize.cli import plan_over_time as over
from gpusize.cli import question_options as question
from gpusize.cli.command import Debug, Json, long_command, option

if TYPE_CHECKING:
    from gpusize.estimate.plan import WhatIf

EPILOG = """Examples:

  gpusize plan runs/20261120T210312Z-7f3a9c     # from half to 16 times the measured capacity

  gpusize plan runs/ --users 50,100,200..1000 --slo 'p95 runtime <= 6s' --failed 1 --gpu-hour-price '2.5 EUR'

  gpusize plan runs/ --users 250 --slo-bounds 2s,4s,8s --plot bounds.png

  gpusize plan runs/ --users 250 --growth '30%/year for 5' --headroom 20%

  gpusize plan runs/ --arrivals trace.csv --start-delay 90s --plot day.png     # GPUs over time"""

COMMAND = long_command(
    "runs",
    "users",
    "rate",
    "slo_bounds",
    "growth",
    "failed",
    "gpu_hour_price",
    "slo",
    "headroom",
    "arrivals",
    "plot",
    "out",
    "json",
)
VARIED = "Vary"
SAID = "Costs and failures"


def command(
    runs: question.Runs,
    users: Annotated[
        str | None,
        option(
            "Requests in flight, one row each: 50,100,200..1000.",
            "LIST",
            VARIED,
            names=("--users", "--target-users"),
            show_default="half to 16 times the measured capacity",
        ),
    ] = None,
    rate: Annotated[str | None, option("Requests per second, one row each: 10,20,40..160/s.", "LIST", VARIED)] = None,
    token_rate: Annotated[str | None, option("Output tokens per second, one row each.", "LIST", VARIED)] = None,
    slo_bounds: Annotated[
        str | None, option("Other bounds of the SLO: 2s,4s,8s, or multiples 0.5x..4x.", "LIST", VARIED)
    ] = None,
    growth: Annotated[
        str | None, option("Growth of the load: 1.5, 50%, 30%/year or '30%/year for 5'.", "TEXT", VARIED)
    ] = None,
    failed: Annotated[int, option("Let this many replicas fail.", panel=SAID, min=0, max=question.MOST)] = 0,
    gpu_hour_price: Annotated[
        str | None, option("Price of a GPU for an hour: 2.5 or '2.5 EUR'.", "PRICE", SAID)
    ] = None,
    slo: question.Slos = None,
    gpus: question.Gpus = None,
    gpus_per_replica: question.GpusPerReplica = 1,
    think: question.Think = None,
    router: question.Router = "least_loaded",
    process: question.Process = "poisson",
    together: question.Together = False,
    headroom: question.Headroom = "0%",
    spare: question.Spare = 0,
    risk: question.Risk = question.RISK,
    arrivals: over.Arrivals = None,
    arrivals_format: over.ArrivalsFormat = None,
    arrivals_from: over.ArrivalsFrom = None,
    arrivals_until: over.ArrivalsUntil = None,
    speed: over.Speed = None,
    rate_scale: over.RateScale = None,
    lengths: over.Lengths = None,
    seed: over.Seed = None,
    policy: over.Policy = None,
    window: over.Window = None,
    decide_every: over.DecideEvery = None,
    start_delay: over.StartDelay = None,
    scale_down_after: over.ScaleDownAfter = None,
    min_replicas: over.MinReplicas = None,
    max_replicas: over.MaxReplicas = None,
    label: question.Labels = None,
    allow: question.Allow = None,
    skip_damaged: question.SkipDamaged = False,
    plot: Annotated[Path | None, option("Draw the plan into this .png, .svg or .pdf file.", "FILE")] = None,
    out: Annotated[Path | None, option("Write plan.json, .csv, .parquet and plots into this folder.", "DIR")] = None,
    json: Json = False,
    _debug: Debug = False,
) -> int:
    """Draw GPUs against users, rates, SLO bounds and growth, from earlier runs. No load is sent."""
    from gpusize.api.what_if import what_if
    from gpusize.cli.shared import progress_line, tell_damaged, tell_read
    from gpusize.options.labels import labels_of
    from gpusize.result import open_run

    if plot is not None:
        from gpusize.report.figures.plan import check_place

        check_place(plot)
    result = open_run(runs, labels=labels_of(label), skip_damaged=skip_damaged)
    tell_read(slo)
    tell_damaged(result)
    asked = question.fields(locals())
    options = {name: value for name, value in locals().items() if name in over.OPTIONS}
    if arrivals is not None:
        varied = {"users": users, "rate": rate, "token_rate": token_rate, "slo_bounds": slo_bounds, "growth": growth}
        others = {**varied, "failed": failed, "think": think}
        asked |= {"slos": slo or None, "gpu_hour_price": gpu_hour_price}
        return over.answer(result, arrivals, options, asked, others=others, plot=plot, out=out, json=json)
    over.refuse_without_arrivals(options)
    with progress_line() as say:
        found = what_if(
            result,
            users,
            slo or None,
            rates=rate,
            token_rates=token_rate,
            bounds=slo_bounds,
            growth=growth,
            failed=failed,
            gpu_hour_price=gpu_hour_price,
            progress=lambda done, rows: say(f"{done} of {rows} rows"),
            **asked,
        )
    return _show(found, plot, out, json=json)


def _show(plan: WhatIf, plot: Path | None, out: Path | None, *, json: bool) -> int:
    import sys

    from gpusize.cli.exit_code import ExitStatus
    from gpusize.cli.shared import conclude
    from gpusize.report.export import dumps
    from gpusize.report.figures.plan import draw_plan
    from gpusize.report.plans.plan import print_plan, why_none, write_plan
    from gpusize.report.summary.terminal import make_console

    written = [] if out is None else write_plan(plan, out)
    if plot is not None and plan.answered:
        written.append(draw_plan(plan, plot))
    if json:
        sys.stdout.write(dumps(plan))
    else:
        print_plan(plan, make_console(), written)
    return conclude(ExitStatus(0) if plan.answered else ExitStatus(1, f"no row has an answer: {why_none(plan)}"))
