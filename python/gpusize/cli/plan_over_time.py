"""The part of ``gpusize plan`` that answers over time: its options, and what it does with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from gpusize.cli.command import listed, option

if TYPE_CHECKING:
    from gpusize.estimate.plan.autoscale.autoscaler import Autoscaler
    from gpusize.estimate.plan.over_time.policies import ScalingRules
    from gpusize.estimate.plan.over_time.types import OverTime
    from gpusize.result import Result

__all__ = [
    "OPTIONS",
    "Arrivals",
    "ArrivalsFormat",
    "ArrivalsFrom",
    "ArrivalsUntil",
    "DecideEvery",
    "Lengths",
    "MaxReplicas",
    "MinReplicas",
    "Policy",
    "RateScale",
    "ScaleDownAfter",
    "Seed",
    "Speed",
    "StartDelay",
    "Window",
    "answer",
    "refuse_without_arrivals",
    "rules_of",
    "shape_of",
]

TRACE = "Trace: GPUs over time for recorded arrivals"
RULES = "Autoscaling rules"

Arrivals = Annotated[
    Path | None,
    listed("arrivals", TRACE, help="Plan GPUs over time for these arrivals: a trace, or a profile with rate_per_s."),
]
ArrivalsFormat = Annotated[str | None, listed("arrivals_format", TRACE)]
ArrivalsFrom = Annotated[str | None, listed("arrivals_from", TRACE)]
ArrivalsUntil = Annotated[str | None, listed("arrivals_until", TRACE)]
Speed = Annotated[float | None, listed("speed", TRACE)]
RateScale = Annotated[float | None, listed("rate_scale", TRACE, help="Let this many times as many requests come.")]
Lengths = Annotated[
    str | None,
    option(
        "Take the tokens of requests from the trace or from the run.",
        "WHAT",
        TRACE,
        show_default="trace, where it has them",
    ),
]
Seed = Annotated[int | None, listed("seed", TRACE)]

Policy = Annotated[str | None, option("Scale by these policies.", "NAMES", RULES, show_default="planned,reactive")]
Window = Annotated[str | None, option("Average rates over this time.", "TIME", RULES, show_default="60s")]
DecideEvery = Annotated[
    str | None, option("Let the reactive policy decide this often.", "TIME", RULES, show_default="15s")
]
StartDelay = Annotated[
    str | None,
    listed(
        "start_delay",
        RULES,
        help="Let a new replica take this long to start: a time, or the folder of a cluster test.",
        show_default="60s",
    ),
]
ScaleDownAfter = Annotated[
    str | None, option("Remove a replica once it has been unneeded this long.", "TIME", RULES, show_default="5m")
]
MinReplicas = Annotated[
    int | None, option("Never run fewer replicas.", panel=RULES, min=0, max=1_000_000, show_default="1")
]
MaxReplicas = Annotated[
    int | None, option("Never run more replicas.", panel=RULES, min=0, max=1_000_000, show_default="no bound")
]

OPTIONS: Final = (
    "arrivals_format",
    "arrivals_from",
    "arrivals_until",
    "speed",
    "rate_scale",
    "lengths",
    "seed",
    "policy",
    "window",
    "decide_every",
    "start_delay",
    "scale_down_after",
    "min_replicas",
    "max_replicas",
)
"""Names of the options that go with arrivals alone."""

_TIMES: Final = ("window", "decide_every", "start_delay", "scale_down_after")
_COUNTS: Final = ("min_replicas", "max_replicas")
_SHAPES: Final = {"arrivals_format": "fmt", "speed": "speed", "rate_scale": "rate_scale"}


def _seconds(name: str, value: str) -> float:
    """A duration; for the start delay also the folder of a cluster test that measured it."""
    from gpusize.base.units import as_duration_s

    if name != "start_delay" or not Path(value).is_dir():
        return as_duration_s(value, name)
    from gpusize.cli.shared import note
    from gpusize.cluster.start_delay import measured_start_delay
    from gpusize.report.text import duration

    found = measured_start_delay(Path(value))
    were = "was" if found.unready == 1 else "were"
    left = f", of which {found.unready:,} never {were}," if found.unready else ""
    note(f"start delay {duration(found.seconds)}: 95 % of {found.workloads:,} workloads{left} were ready by then")
    return found.seconds


def refuse_without_arrivals(options: Mapping[str, Any]) -> None:
    """Refuse options that say nothing without arrivals.

    Raises:
        UsageError: one of them was given.
    """
    from gpusize.base.errors import UsageError

    given = next((name for name, value in options.items() if value is not None), None)
    if given is not None:
        raise UsageError("this option is for GPUs over time", given, "give arrivals too, as --arrivals trace.csv")


def answer(
    result: Result,
    arrivals: Path,
    options: Mapping[str, Any],
    question: Mapping[str, Any],
    *,
    autoscalers: Sequence[Autoscaler] = (),
    others: Mapping[str, Any],
    plot: Path | None,
    out: Path | None,
    json: bool,
) -> int:
    """Answer over time, print and write it; the exit code.

    Args:
        result: what was measured.
        arrivals: the file.
        options: those of this module by name; None where they were not given.
        question: SLOs, router and the like, and ``headroom`` and ``spare``.
        autoscalers: policies to simulate; the exit code is then theirs: 0 where one of them meets the SLOs.
        others: options of a plan that do not go with arrivals, by name.
        plot: a picture to write.
        out: a folder to write everything to.
        json: print a document instead of tables.

    Raises:
        UsageError: options that do not go together, or are out of range.
    """
    from gpusize.api.over_time import gpus_over_time
    from gpusize.base.errors import UsageError
    from gpusize.cli.shared import note, progress_line
    from gpusize.estimate.plan.over_time.over_time import NO_LENGTHS

    varied = next((name for name, value in others.items() if value), None)
    if varied is not None:
        raise UsageError(
            "this cannot be combined with arrivals, which set the load over time", varied, "leave one of them out"
        )
    rest = dict(question)
    rules = rules_of(options, rest.pop("headroom"), rest.pop("spare"))
    policies = options["policy"]
    more: dict[str, Any] = {}
    if policies is not None:
        more["policies"] = [each.strip() for each in policies.split(",") if each.strip()]
    more |= {name: options[name] for name in ("lengths", "seed") if options[name] is not None}
    with progress_line() as say:
        found = gpus_over_time(
            result,
            arrivals,
            rest.pop("slos"),
            rules,
            autoscalers=autoscalers,
            progress=say,
            **rest,
            **more,
            **shape_of(options),
        )
    if NO_LENGTHS in found.warnings:
        note(NO_LENGTHS)
    for each in autoscalers:
        for text in each.notes:
            note(f"{each.name}: {text}")
    return _show(found, plot, out, json=json)


def rules_of(options: Mapping[str, Any], headroom: float = 0.0, spare: int = 0) -> ScalingRules:
    """How replicas come and go, as the options say.

    Raises:
        UsageError: a value is out of range.
    """
    from gpusize.estimate.plan.over_time.policies import ScalingRules

    times: dict[str, Any] = {f"{name}_s": _seconds(name, options[name]) for name in _TIMES if options[name] is not None}
    counts: dict[str, Any] = {name: options[name] for name in _COUNTS if options[name] is not None}
    return ScalingRules(headroom=headroom, spare=spare, **times, **counts)


def shape_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """How the arrivals are read, as the options say."""
    from gpusize.base.units import as_duration_s

    found = {field: options[name] for name, field in _SHAPES.items() if options[name] is not None}
    for name, field in (("arrivals_from", "from_s"), ("arrivals_until", "until_s")):
        if options[name] is not None:
            found[field] = as_duration_s(options[name], name)
    return found


def _show(found: OverTime, plot: Path | None, out: Path | None, *, json: bool) -> int:
    import sys

    from gpusize.cli.exit_code import ExitStatus
    from gpusize.cli.shared import conclude
    from gpusize.report.export import dumps
    from gpusize.report.figures.gpus_over_time import draw_over_time
    from gpusize.report.plans.gpus_over_time import print_over_time, write_over_time
    from gpusize.report.summary.terminal import make_console

    written = [] if out is None else write_over_time(found, out)
    if plot is not None and found.courses:
        written.append(draw_over_time(found, plot))
    if json:
        sys.stdout.write(dumps(found.to_json()))
    else:
        print_over_time(found, make_console(), written)
    if found.reason is None and (found.keeps or len(found.courses) == 1):
        return 0
    if found.reason is not None:
        return conclude(ExitStatus(1, f"no answer over time: {found.reason}"))
    if found.scaled:
        return conclude(ExitStatus(1, "no autoscaler meets the SLOs over the whole trace"))
    return conclude(ExitStatus(1, "no policy that scales meets the SLOs over the whole trace"))
