"""Figures of whole runs that were judged as ``gpusize autoscale report`` does: GPU-hours, attainment and cost."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.analysis.compare.figures import Figure, Measured, figure
from gpusize.analysis.pooling import load_of
from gpusize.base.errors import UsageError

if TYPE_CHECKING:
    from gpusize.analysis.compare.matching import Side

__all__ = ["FILE", "KNOWN", "WHOLE", "JudgedRun", "is_sum", "judged_run", "partly_known", "whole_figures"]

FILE: Final = "autoscale.json"
"""Of a run folder: how the run was judged."""
WHOLE: Final = "the whole run"
"""What stands in place of a load."""
SAME: Final = 0.05
"""Runs whose lengths differ by a larger share are not compared as a whole."""
KNOWN: Final = 0.99
"""What adds up over time is of the whole run where its replicas are known for this share of it or more."""
_USUAL: Final = ("gpu-hours", "attainment", "cost")
_SUMS: Final = ("gpu_hours", "cost")


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """How one run was judged.

    Attributes:
        slos: by what.
        currency: of its cost.
        duration_s: how long it was.
        values: the figures, by the names that ``Figure.whole`` has; those that are known.
        known_share: of the time, for which its replicas are known.
    """

    slos: tuple[str, ...]
    currency: str
    duration_s: float
    values: Mapping[str, float]
    known_share: float = 1.0


def is_sum(one: Figure) -> bool:
    """Whether a figure of a whole run adds up over its time, so that it lacks what was paid while nobody looked."""
    return one.whole in _SUMS


def judged_run(run: Path) -> JudgedRun | None:
    """How the run in a folder was judged; None where it was not, or was by something that nobody can read."""
    try:
        told = json.loads((run / FILE).read_text("utf-8"))
        paid = told.get("paid") or {}
        found = {"gpu_hours": paid.get("gpu_hours"), "cost": paid.get("cost"), "attainment": told.get("attainment")}
        known = {name: float(value) for name, value in found.items() if value is not None}
        slos, duration_s = tuple(str(each) for each in told["slos"]), float(told["duration_s"])
        known_s = paid.get("known_s")
        share = float(known_s) / duration_s if known_s is not None and duration_s > 0 else 1.0
        return JudgedRun(slos, str(told.get("currency") or ""), duration_s, known, share)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def whole_figures(
    sides: Sequence[Side], chosen: Sequence[Figure], *, usual: bool
) -> list[tuple[Figure, list[list[Measured | None]]]]:
    """The figures of whole runs, with what each run of each side says.

    Args:
        sides: what is compared.
        chosen: figures that were asked for, others among them.
        usual: whether those are added that every run has, where the runs can be compared as a whole.

    Raises:
        UsageError: one was asked for, and the runs were not judged, or cannot be compared as a whole.
    """
    asked = [each for each in chosen if each.whole]
    why = _why_not(sides)
    if why:
        if asked:
            raise UsageError(f"{asked[0].name}: {why}", "figure", "judge each run: gpusize autoscale report RUN")
        return []
    every = [run.judged for side in sides for run in side.runs if run.judged is not None]
    if usual:
        known = [name for name in _USUAL if all(figure(name).whole in each.values for each in every)]
        asked = list({each.name: each for each in (*(figure(name) for name in known), *asked)}.values())
    return [(one, [[_measured(run, one) for run in side.runs] for side in sides]) for one in asked]


def partly_known(sides: Sequence[Side]) -> dict[str, float]:
    """By side whose replicas are not known all the time: for which share of it, of the run that knows least."""
    least = {side.name: min((run.judged.known_share for run in side.runs if run.judged), default=1.0) for side in sides}
    return {name: share for name, share in least.items() if share < KNOWN}


def _measured(run: Any, one: Figure) -> Measured:
    # A run that was broken off paid for less, and served less: it says nothing of the whole.
    whole = run.judged is not None and all(level.state == "done" for level in run.levels)
    # Nor does a sum from which a part of the time is missing: a gap between scrapes would count as saved.
    whole = whole and not (is_sum(one) and run.judged.known_share < KNOWN)
    return Measured(run.judged.values.get(one.whole, math.nan) if whole else math.nan)


def _why_not(sides: Sequence[Side]) -> str:
    runs = [run for side in sides for run in side.runs]
    judged = [run.judged for run in runs if run.judged is not None]
    if len(judged) < len(runs):
        missing = next(run.name for run in runs if run.judged is None)
        return f"{missing} was not judged as a whole"
    for what, values in (
        ("judged by different SLOs", {each.slos for each in judged}),
        ("judged in different currencies", {each.currency for each in judged if "cost" in each.values}),
        ("under different loads", {tuple(load_of(level) for level in run.levels) for run in runs}),
    ):
        if len(values) > 1:
            return f"the runs were {what}"
    lengths = [each.duration_s for each in judged]
    return "the runs are not of one length" if max(lengths) > (1 + SAME) * min(lengths) else ""
