"""GPUs over time on a terminal: the courses side by side, the rules, and what the figures rest on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpusize.base.units import format_duration
from gpusize.estimate.question import as_share, gpus_text
from gpusize.report.summary.columns import BAD, FAINT, GOOD, Cell, Column
from gpusize.report.summary.terminal import facts_table, fitted_table, plain
from gpusize.report.text import DASH, clean, count, duration, number, percent, plain_number, ratio

if TYPE_CHECKING:
    from rich.console import Console

    from gpusize.estimate.plan.over_time.types import Course, OverTime

__all__ = ["conclusion", "print_over_time", "write_over_time"]

MOST_DIGITS: Final = 4


def print_over_time(found: OverTime, console: Console, written: Sequence[Path] = ()) -> None:
    """Print what the trace is, a row per course, and what the figures rest on."""
    from rich.text import Text

    def said(text: str, style: str = "") -> Text:
        return Text(plain(console, text), style=style)

    console.print(said(_trace(found), "dim"))
    if found.courses:
        console.print()
        console.print(fitted_table(_columns(found), console))
        for number_, objective in enumerate(found.objectives):
            which = f" {number_ + 1}" if len(found.objectives) > 1 else ""
            console.print(said(f"SLO{which}: {clean(objective)}", "dim"))
        console.print()
    console.print(said(conclusion(found), "bold"))
    console.print()
    console.print(facts_table(((name, clean(text)) for name, text in _facts(found)), console, {"weakens it": "yellow"}))
    for path in written:
        console.print(str(path), soft_wrap=True)


def conclusion(found: OverTime) -> str:
    """The answer in one sentence."""
    if found.reason is not None:
        return f"no GPUs over time: {found.reason}"
    courses = found.scaled or found.courses[1:]
    if not courses:
        return f"{gpus_text(found.static.peak_gpus)} all the time take {_hours(found.static)}"
    keeping = [course for course in courses if course.keeps]
    best = min(keeping or courses, key=lambda course: course.gpu_hours)
    saved = found.saved(best)
    against = f"than the {_hours(found.static)} of {gpus_text(found.static.peak_gpus)} all the time"
    less = f"{ratio(abs(saved))} {'less' if saved >= 0 else 'more'} {against}" if saved else f"no less {against}"
    text = f"{clean(best.policy, 60)}: {gpus_text(best.peak_gpus)} at most, {plain_number(best.mean_gpus)} on average, "
    text += f"{_hours(best)}: {less}"
    if keeping:
        return text
    return f"no {'autoscaler' if found.scaled else 'policy that scales'} meets the SLOs over the whole trace; {text}"


def _hours(course: Course) -> str:
    return f"{number(course.gpu_hours, MOST_DIGITS)} GPU-hours"


def _trace(found: OverTime) -> str:
    return (
        f"{clean(found.source)}: {count(found.requests)} requests over {duration(found.duration_s)}, "
        f"{plain_number(found.requests / found.duration_s)}/s on average, "
        f"{plain_number(float(found.rates.max()))}/s in the largest window of {format_duration(found.rules.window_s)}"
    )


def _columns(found: OverTime) -> list[Column]:
    courses = found.courses

    def column(key: str, title: str, unit: str, rank: int, show: Callable[[Course], Cell]) -> Column:
        return Column(key, title, unit, tuple(show(course) for course in courses), rank)

    names = tuple(Cell(clean(course.policy, 40)) for course in courses)
    made = [
        Column("policy", "policy", "", names, 0, left=True),
        column("peak", "peak", "GPUs", 2, lambda c: Cell(count(c.peak_gpus))),
        column("mean", "mean", "GPUs", 1, lambda c: Cell(number(c.mean_gpus))),
        column("hours", "paid", "GPU-hours", 0, lambda c: Cell(number(c.gpu_hours, MOST_DIGITS))),
        column("saved", "saved", "of static", 0, lambda c: _saved(found, c)),
    ]
    if found.gpu_hour_price is not None:
        made.append(column("cost", "cost", found.currency, 1, lambda c: Cell(number(found.cost(c), MOST_DIGITS))))
    for place in range(len(found.objectives)):
        title = f"SLO {place + 1}" if len(found.objectives) > 1 else "within SLO"
        made.append(column(f"slo{place}", title, "whole trace", 0, lambda c, k=place: _share(c, k)))  # type: ignore[misc]
    made.append(column("worst", "within SLO", "worst 5 min", 1, _worst))
    made.append(column("at", "", "which begin at", 3, lambda c: Cell(duration(c.worst.at_s), FAINT)))
    if found.scaled:
        for key, title in (("under_s", "too few"), ("over_s", "too many")):
            made.append(column(key, title, "GPU-hours", 2, lambda c, k=key: _missed(c, k)))  # type: ignore[misc]
    made.append(column("steps", "scaled", "times", 4, lambda c: Cell(count(c.schedule.at_ns.size - 1), FAINT)))
    return made


def _saved(found: OverTime, course: Course) -> Cell:
    saved = found.saved(course)
    if course is found.static:
        return Cell(DASH, FAINT)
    return Cell(ratio(saved), "" if saved >= 0 else BAD)


def _share(course: Course, place: int) -> Cell:
    share, target = course.shares[place], course.targets[place]
    return Cell(percent(as_share(share)), GOOD if share >= target else BAD)


def _missed(course: Course, key: str) -> Cell:
    hours = getattr(course.elasticity, key) * course.replica_gpus / 3600
    return Cell(number(hours, MOST_DIGITS), FAINT if key == "over_s" or not hours else "")


def _worst(course: Course) -> Cell:
    return Cell(percent(course.worst.share), "" if course.worst.share >= course.targets[course.binding] else BAD)


def _facts(found: OverTime) -> list[tuple[str, str]]:
    rows = []
    if found.courses:
        rows += [("static", _static(found)), ("rules", _rules(found))]
        rows += [("decided", text) for course in found.courses for text in _decided(course)]
        rows += [("assumes", f"• {each}") for each in found.assumptions]
    rows += [("weakens it", f"• {each}") for each in found.warnings]
    if found.next_levels:
        rows.append(("measure next", ", ".join(map(str, found.next_levels))))
    return rows


DECISIONS: Final = {
    "metrics": "as its metrics asked",
    "stabilized": "held by a stabilization window",
    "rate_limited": "slowed by the scaling policies",
    "bounds": "held by the least or most replicas",
    "metric_failed": "without a metric to go by",
    "disabled": "without replicas, which are KEDA's to bring",
}
POLLS: Final = {
    "active": "active",
    "cooling": "waited for the cooldown",
    "inactive": "without activity",
    "failed": "failed",
    "fallback": "went by the fallback",
}


def _decided(course: Course) -> list[str]:
    """Of an autoscaler: how often its decisions were what its metrics asked for, and what held it back otherwise."""
    decided = course.decided
    if decided is None:
        return []
    texts = [f"{count(sum(decided.decisions.values()))} decisions, {_counted(decided.decisions, DECISIONS)}"]
    if decided.polls:
        texts.append(f"{count(sum(decided.polls.values()))} polls, {_counted(decided.polls, POLLS)}")
    if decided.held:
        texts.append(
            f"{count(decided.held)} requests were held for a first replica, up to {duration(decided.longest_s)}"
        )
    if decided.refused:
        texts.append(f"{count(decided.refused)} requests were refused as there was no replica")
    return [f"• {clean(course.policy, 40)}: {text}" for text in texts]


def _counted(found: Mapping[str, int], words: Mapping[str, str]) -> str:
    return ", ".join(f"{count(found[key])} {text}" for key, text in words.items() if found.get(key))


def _static(found: OverTime) -> str:
    text = f"{gpus_text(found.static.peak_gpus)}, what the largest window needs, all the time"
    low, high = found.peak_low, found.peak_high
    if low is None:
        return text
    needs = f"at least {low}" if high is None else f"{low}" if low == high else f"{low} to {high}"
    return f"{text}; the window itself needs {needs} by the interval of the fit"


def _rules(found: OverTime) -> str:
    rules = found.rules
    most = f" to {rules.max_replicas}" if rules.max_replicas is not None else " or more"
    # A start delay may be measured, to the last digit of a float.
    delay, down = format_duration(round(rules.start_delay_s, 3)), format_duration(rules.scale_down_after_s)
    text = f"windows of {format_duration(rules.window_s)}; a replica takes requests {delay} after it is requested"
    replicas = f"{rules.min_replicas}{most} replicas of {gpus_text(found.replica_gpus)}"
    if found.scaled:
        # Autoscalers that are simulated go by rules of their own.
        text += f"; planned, it is removed after {down} without need, and there are {replicas}"
    else:
        text += f", and is removed after {down} without need; {replicas}"
    if rules.headroom:
        text += f"; {100 * rules.headroom:.4g}% of what is needed on top"
    if rules.spare:
        text += f"; {rules.spare} to spare"
    return text


def write_over_time(found: OverTime, folder: Path) -> list[Path]:
    """Write over_time.json, .csv and .parquet and, where there is an answer, plots/over_time.png and .svg.

    Raises:
        StoreError: a file cannot be written.
    """
    from gpusize.base.files import write_atomic
    from gpusize.report.export import dumps, write_summary
    from gpusize.report.figures.plots import save_figures

    written = write_summary(found.frame, folder, "over_time")
    # The windows alone are in the other two; this one says what they rest on too.
    write_atomic(folder / "over_time.json", dumps(found.to_json()).encode())
    return [*written, *(save_figures({"over_time": found.plot()}, folder / "plots") if found.courses else [])]
