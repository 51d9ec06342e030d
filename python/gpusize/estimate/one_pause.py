"""Closed loops of one pause: users who pause are not in flight all the time, so loads of other pauses are others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from gpusize.analysis.delivery.intended import think_s

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData
    from gpusize.estimate.question import Question

__all__ = ["of_one_pause", "pause_text"]

LOADS: Final = 2
"""Fewer do not show how times grow."""
PLAIN: Final = (0.0, 0.0)


def of_one_pause(levels: Sequence[LevelData], question: Question) -> tuple[list[LevelData], list[str]]:
    """The closed loops of the pause that tells most, all other levels, and what is said of those that are left out.

    One that has a load which misses an SLO, and another: without pauses, where all users are in flight, else with the
    pause that is asked about, else the one of most levels. Where none has, likewise.
    """
    groups: dict[tuple[float, float] | None, list[LevelData]] = {}
    for level in levels:
        if level.concurrency:
            groups.setdefault(think_s(level.setting), []).append(level)
    if len(groups) < 2:
        return list(levels), []
    asked = (question.think_s, question.think_s if question.think == "exponential" else 0.0)
    most = max(groups, key=lambda pause: len(groups[pause]))
    order = [pause for pause in (PLAIN, asked, most, *groups) if pause in groups]
    several = [pause for pause in order if len({lv.concurrency for lv in groups[pause]}) >= LOADS] or order
    telling = [pause for pause in several if any(_misses(lv, question) for lv in groups[pause])] or several
    kept = groups[telling[0]]
    same = {id(level) for level in kept}
    left = sum(map(len, groups.values())) - len(kept)
    some = f"{left} level{'' if left == 1 else 's'} left out, whose users pause otherwise"
    text = f"{some}: {_text(telling[0])} tell more"
    return [level for level in levels if not level.concurrency or id(level) in same], [text]


def pause_text(mean_s: float, *, equal: bool) -> str:
    """A pause as ``--think`` takes it; exponential unless all are ``equal``."""
    return f"{mean_s:g}s" if equal else f"exp({mean_s:g}s)"


def _misses(level: LevelData, question: Question) -> bool:
    return any(level.met(slo) is False for slo in question.slos)


def _text(pause: tuple[float, float] | None) -> str:
    if pause is None:
        return "those with recorded pauses"
    return f"those with pauses of {pause[0]:g} s" if pause[0] else "those without pauses"
