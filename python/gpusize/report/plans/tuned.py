"""Tuned settings of an autoscaler on a terminal: before and after, and how sharp the edge is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusize.base.units import format_duration
from gpusize.report.summary.columns import BAD, GOOD, Cell, Column
from gpusize.report.summary.terminal import fitted_table, plain
from gpusize.report.text import clean, count, number, percent, plain_number, ratio

if TYPE_CHECKING:
    from rich.console import Console

    from gpusize.estimate.plan.autoscale.autoscaler import Autoscaler
    from gpusize.estimate.plan.autoscale.trials import Trial
    from gpusize.estimate.plan.autoscale.tune import Tuned

__all__ = ["print_tuned", "tuned_json"]

DIGITS = 4


def print_tuned(tuned: Tuned, autoscaler: Autoscaler, console: Console, written: Sequence[Path] = ()) -> None:
    """Print the answer in a sentence, a row per policy, and what the rows rest on."""
    from rich.text import Text

    def said(text: str, style: str = "") -> None:
        console.print(Text(plain(console, text), style=style))

    said(conclusion(tuned, autoscaler), "bold")
    rows = _rows(tuned)
    if rows:
        console.print()
        console.print(fitted_table(_columns(rows, tuned.found.objectives), console))
        days = rows[0][1].days
        said(
            f"on {days} days like {clean(tuned.found.source)}, by which nothing was chosen, each with replicas within "
            f"the fit's error of {ratio(tuned.error)}",
            "dim",
        )
        for text in doubts(tuned):
            said(text, "dim")
        said(f"SLO: {clean(' and '.join(tuned.found.objectives))}; {count(tuned.simulations)} simulations", "dim")
    for path in written:
        console.print(str(path), soft_wrap=True)


def doubts(tuned: Tuned) -> list[str]:
    """What was not measured, and is taken for either."""
    if tuned.unseen is None:
        return []
    text = (
        f"no queue was seen before a replica's batch, so its limit may be {tuned.unseen} requests or more, and a day "
        f"counts as kept where it is kept in both cases: measure {2 * tuned.unseen} in flight to know the limit"
    )
    return [text]


def conclusion(tuned: Tuned, autoscaler: Autoscaler) -> str:
    """The answer in one sentence."""
    if tuned.found.reason is not None:
        return f"nothing to tune: {tuned.found.reason}"
    if tuned.setting is None or tuned.after is None or tuned.policy is None or tuned.before is None:
        return (
            f"no setting of {clean(autoscaler.name, 60)} keeps the SLOs on such days: look at its signals, its most "
            "replicas and the start delay"
        )
    targets = ", ".join(f"{_target(each):.4g}" for each in tuned.policy.policy["metrics"])
    low, high = tuned.after.interval
    text = (
        f"{clean(autoscaler.name, 60)}: targets {targets}, scale down after "
        f"{format_duration(tuned.setting.window_s)}, at least {tuned.setting.min_replicas} replicas: "
        f"{number(tuned.after.gpu_hours, DIGITS)} GPU-hours, SLOs kept on {tuned.after.kept} of {tuned.after.days} "
        f"such days (95% interval: {percent(low)} to {percent(high)})"
    )
    less = 1 - tuned.after.gpu_hours / tuned.before.gpu_hours
    return f"{text}; {ratio(abs(less))} {'fewer' if less >= 0 else 'more'} GPU-hours than as it is"


def _target(metric: Any) -> float:
    [milli] = metric["target"].values()
    return float(milli) / 1000


def _rows(tuned: Tuned) -> list[tuple[str, Trial]]:
    if tuned.before is None:
        return []
    rows = [("as it is", tuned.before)]
    for factor, trial in tuned.edge:
        rows.append(("tuned" if factor == 1 else f"targets x {factor:g}", trial))
    return rows


def _columns(rows: Sequence[tuple[str, Trial]], objectives: Sequence[str]) -> list[Column]:
    trials = [trial for _, trial in rows]
    made = [
        Column("policy", "policy", "", tuple(Cell(name) for name, _ in rows), 0, left=True),
        Column("hours", "paid", "GPU-hours", tuple(Cell(number(t.gpu_hours, DIGITS)) for t in trials), 0),
        Column("kept", "SLOs kept", "days", tuple(_kept(t) for t in trials), 0),
    ]
    for place in range(len(objectives)):
        title = f"SLO {place + 1}" if len(objectives) > 1 else "within SLO"
        cells = tuple(Cell(percent(t.shares[place])) for t in trials)
        made.append(Column(f"slo{place}", title, "worst day", cells, 1))
    return made


def _kept(trial: Trial) -> Cell:
    return Cell(f"{plain_number(trial.kept)} of {trial.days}", GOOD if trial.kept == trial.days else BAD)


def tuned_json(tuned: Tuned, autoscaler: Autoscaler) -> dict[str, Any]:
    """The same as plain JSON types."""

    def trial(one: Trial | None) -> dict[str, Any] | None:
        if one is None:
            return None
        kept = {"days": one.days, "days_kept": one.kept, "days_kept_share_95": list(one.interval)}
        return {"gpu_hours": one.gpu_hours, **kept, "worst_day_shares": list(one.shares)}

    setting = tuned.setting
    return {
        "policy": autoscaler.name,
        "source": tuned.found.source,
        "slos": list(tuned.found.objectives),
        "reason": tuned.found.reason,
        "static_gpu_hours": tuned.found.static.gpu_hours if tuned.found.courses else None,
        "before": trial(tuned.before),
        "setting": None
        if setting is None or tuned.policy is None
        else {
            "targets": [_target(each) for each in tuned.policy.policy["metrics"]],
            "target_factor": setting.factor,
            "scale_down_window_s": setting.window_s,
            "min_replicas": setting.min_replicas,
        },
        "after": trial(tuned.after),
        "edge": [{"target_factor": factor, **(trial(one) or {})} for factor, one in tuned.edge],
        "simulations": tuned.simulations,
        "replica_error": tuned.error,
        "limit_in_doubt": tuned.unseen,
        "doubts": doubts(tuned),
    }
