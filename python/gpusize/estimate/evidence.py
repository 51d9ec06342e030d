"""Which levels say something of the load: of those that broke only the ones whose failures came with it.

A server that died in the middle of a sweep answers no request at any load; taken for its capacity, that would become a
number of GPUs. ``gpusize.analysis.broken`` tells the two apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from gpusize.analysis.broken import MOST, alike, causes, failed_text, has_failed, look_of, since_held
from gpusize.analysis.failures import failures_text
from gpusize.analysis.unlike_replicas import unlike_replicas
from gpusize.estimate.level_quality import load_text, together
from gpusize.estimate.rows_failing import rows_failing
from gpusize.estimate.rows_sent import rows_unlike

if TYPE_CHECKING:
    from gpusize.analysis.broken import Cause
    from gpusize.analysis.level import LevelData
    from gpusize.estimate.question import Estimate

__all__ = ["Evidence", "evidence", "fails_alike", "target_failed"]

REFUSAL: Final = "failed"
"""``details["refusal"]`` of an answer that is missing because the target failed."""
GONE: Final = "the target had failed, whatever the load"
WHY: Final = {
    "passing": "as many or more held at another time: the failures did not come with the load",
    "alike": "that is no larger a share than failed at lower loads, as far as so few requests tell",
    "unknown": "they came at once, as of a target that has failed, and no lower load has held since",
    "few": "they came at once, and no lower load has held since",
}
ALLOWED: Final = (0.02, 0.05, 0.1, 0.2)
"""Shares of failures that are named to be allowed: the least of them that is twice what failed."""
NOTHING: Final = "such failures say nothing of how much the target carries"


@dataclass(frozen=True)
class Evidence:
    """Levels that an estimate may rest on.

    Attributes:
        kept: without those whose failures did not come with their load.
        warnings: what is said of each that is left out, and of rows that are not like all.
        failed: why there may be no number: the target failed, or seems to have; empty where it did not.
        other_loads: whether other loads would tell more; not where requests fail at every load alike.
    """

    kept: list[LevelData]
    warnings: tuple[str, ...] = ()
    failed: str = ""
    other_loads: bool = True

    def add_to(self, answer: Estimate) -> Estimate:
        """The answer with what is left out; where it has no number, the target's failure is the first reason."""
        if not self.warnings:
            return answer
        found = replace(answer, warnings=tuple(dict.fromkeys((*self.warnings, *answer.warnings))))
        if answer.answered or not self.failed:
            return found
        said = [each for each in self.warnings if not self.failed.startswith(each)]
        rest = (*said, f"the other levels give no number either: {answer.reason}", *answer.warnings)
        details = {**answer.details, "refusal": REFUSAL}
        follow = answer.next_levels if self.other_loads else ()
        rest = tuple(dict.fromkeys(rest))
        return replace(found, reason=self.failed, warnings=rest, next_levels=follow, details=details)


def evidence(levels: Iterable[LevelData]) -> Evidence:
    """The levels that say something of the load, of one or several runs; each run is looked at by itself."""
    given = list(levels)
    runs = [_doubted(run) for run in _runs(given)]
    doubted = [each for run in runs for each in run.doubted]
    left = {id(level) for level, _ in doubted}
    gone = [level for level, cause in doubted if cause == "failed"]
    kept = [level for level in given if id(level) not in left]
    warnings = [f"left out, as {GONE}: {_which_visits(gone, kept)}"] if gone else []
    warnings += [
        f"{load_text(level)} is left out: {failures_text(level.meta, brief=True)}, and {_why(level, cause)}"
        for level, cause in doubted
        if cause != "failed"
    ]
    warnings += [str(each) for run in _runs(kept) if (each := unlike_replicas(run)) is not None]
    unlike, failed = rows_unlike(kept), ""
    for run, levels_ in zip(runs, _runs(given), strict=True):
        bad, why = rows_failing(levels_), run.reason
        if bad is not None and run.doubted and not run.gone:
            why = f"{bad}. Levels that such rows end say nothing of how much the target carries"
        if bad is not None:
            warnings.append(bad)
        failed = failed or why
    warnings += [unlike] if unlike else []
    other = bool(kept) or not any(fails_alike(run) for run in _runs(given))
    return Evidence(kept, tuple(dict.fromkeys(warnings)), failed, other)


def _which_visits(gone: Sequence[LevelData], kept: Sequence[LevelData]) -> str:
    """Levels by their loads, and those whose load was measured before as well by their place in the run."""
    held = {(level.run, level.concurrency, level.rate) for level in kept}
    again = [level for level in gone if (level.run, level.concurrency, level.rate) in held]
    first = [level for level in gone if level not in again]
    if not again:
        return together(first)
    places = ", ".join(str(level.visit + 1) for level in again)
    told = f"{together(again)} when sent again (level{'' if len(again) == 1 else 's'} {places} of the run)"
    return f"{together(first)}, and {told}" if first else told


def target_failed(levels: Sequence[LevelData]) -> str:
    """That the target of a run failed and had not held again when the run ended; empty where it did not.

    Where it never held at all: that its errors came at once, as of one that has failed.
    """
    found, held = _doubted(levels), any(level.state == "done" for level in levels)
    return found.gone or ("" if held else found.reason)


def fails_alike(levels: Sequence[LevelData]) -> str:
    """That a small share of the requests failed at every load of a run alike, and what to do; empty elsewhere."""
    share = alike([look for level in levels if (look := look_of(level)) is not None])
    if not share:
        return ""
    allowed = next(each for each in ALLOWED if each >= 2 * share)
    return (
        f"About {100 * share:.2g} % failed at every load alike, so that other loads tell no more: mend that, or begin "
        f"anew with --max-error-rate {allowed:g}, by which levels go on"
    )


class _Run(NamedTuple):
    """What of one run is no evidence.

    Attributes:
        doubted: levels whose failures did not come with their load, and why.
        gone: that the target had failed when the run ended.
        reason: why there may be no number.
    """

    doubted: list[tuple[LevelData, Cause]]
    gone: str
    reason: str


def _doubted(run: Sequence[LevelData]) -> _Run:
    seen = [(level, look) for level in run if (look := look_of(level)) is not None]
    looks = [look for _, look in seen]
    why = zip(seen, causes(looks), strict=True)
    doubted: list[tuple[LevelData, Cause]] = [(lv, each) for (lv, _), each in why if each not in (None, "load")]
    gone = [level for level, _ in seen[since_held(looks) :]] if has_failed(looks) else []
    at_once = next((level for level, cause in doubted if cause == "unknown"), None)
    if gone:
        return _Run(doubted, _gone(gone), f"{_gone(gone)}: {NOTHING}")
    if at_once is None:
        return _Run(doubted, "", "")
    what = f"at {load_text(at_once)} {failures_text(at_once.meta, brief=True)}, and {_why(at_once, 'unknown')}"
    todo = "" if _load(at_once) <= 1 else "Measure a lower load again to tell whether it still answers"
    todo = fails_alike(run) or todo
    return _Run(doubted, "", f"{what}: {NOTHING}{f'. {todo}' if todo else ''}")


def _why(level: LevelData, cause: Cause) -> str:
    look = look_of(level) if cause == "unknown" else None
    return WHY["few" if look is not None and look.failed < MOST * look.ended else cause]


def _runs(levels: Sequence[LevelData]) -> list[list[LevelData]]:
    """The single visits by run, in the order in which they were measured."""
    runs: dict[str, list[LevelData]] = {}
    for level in levels:
        runs.setdefault(level.run, []).append(level)
    return [sorted(run, key=lambda level: level.visit) for run in runs.values()]


def _gone(levels: Sequence[LevelData]) -> str:
    """That a target has failed, from all levels since it last held: the first, and the lowest, which told."""
    first, again = levels[0], min(levels, key=_load)
    return failed_text(
        load_text(first), failures_text(first.meta, brief=True), load_text(again), failures_text(again.meta, brief=True)
    )


def _load(level: LevelData) -> float:
    return level.concurrency or level.rate or 0.0
