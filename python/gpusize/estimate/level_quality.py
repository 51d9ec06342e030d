"""What the checks of the levels say against them, and which levels no default answer may rest on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from gpusize.analysis.failed_requests import told_requests

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData

__all__ = ["UNBELIEVED", "LevelFindings", "advice", "left_text", "load_text", "together"]

UNBELIEVED: Final = {
    "little": "fewer or more requests were in flight than asked for",
    "generator-limited": "the generator was the limit",
    "carried-over": "the target still answered requests of a level before",
    "burst": "all its requests were sent at once, so that fewer and fewer were in flight",
}
"""Flags of levels that say nothing of the target, in words."""
ADVICE: Final = (
    "give the generator idle cores (end other processes there, --pin) or more --workers, and measure {which} again"
)
APART: Final = "measure {which} before heavier loads, longer, in another run, or with --wait-between"
RESUME: Final = ", which gpusize run --resume RUN does"


class _Seen(NamedTuple):
    alerts: list[str]
    odd_lengths: bool
    unbelieved: str | None


class LevelFindings:
    """Findings about levels; each level is looked at once for all methods."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}

    def of(self, levels: Sequence[LevelData]) -> list[str]:
        """In words, for levels that are estimated from together."""
        texts = [text for level in levels for text in self._level(level).alerts] + _of_import(levels)
        odd = [lv for lv in levels if self._level(lv).odd_lengths]
        if odd:
            texts.append(
                f"the answers are not as long as asked for at {together(odd)}; "
                "the estimate holds for the lengths that were measured"
            )
        failed = [lv for lv in levels if lv.state == "done" and _errors(lv)]
        if failed:
            texts.append(f"requests failed at {together(failed)}; percentiles leave them out, attainment does not")
        return texts

    def unbelieved(self, level: LevelData) -> str | None:
        """Why a level says nothing of the target; None where it does.

        What could not be checked is no reason, and of a pooled level one visit that can be believed is enough: see
        ``trusted``.
        """
        return self._level(level).unbelieved

    def trusted(self, levels: Sequence[LevelData]) -> tuple[list[LevelData], list[str]]:
        """The levels without those repeats that say nothing of the target, and what is said of these.

        A level all of whose visits are so stays: whether anything can be said without it is not judged here.
        """
        from gpusize.analysis.pooling import pooled_visits

        kept, said = [], []
        for pooled in levels:
            level = pooled
            good = [visit for visit in level.parts if self.unbelieved(visit) is None]
            odd = len(level.parts) - len(good)
            if good and odd:
                why = next(why for each in level.parts if (why := self.unbelieved(each)) is not None)
                repeats = "a repeat" if odd == 1 else f"{odd} repeats"
                text = f"{repeats} of {load_text(pooled)} {'is' if odd == 1 else 'are'} left out, as {UNBELIEVED[why]}"
                said.append(text)
                level = pooled_visits(good)
            kept.append(level)
        return kept, said

    def _level(self, level: LevelData) -> _Seen:
        from gpusize.analysis.checks import check
        from gpusize.analysis.remarks import length_remarks

        if id(level) not in self._seen:
            visits = level.visits()
            checks = [check(visit) for visit in visits]
            why = [next((flag for flag in UNBELIEVED if flag in each.flags), None) for each in checks]
            self._seen[id(level)] = _Seen(
                [f"{load_text(level)}: {alert}" for each in checks for alert in each.alerts],
                any(length_remarks(visit) for visit in visits),
                None if None in why else why[0],
            )
        return self._seen[id(level)]


def left_text(left: Sequence[LevelData], findings: LevelFindings) -> str:
    """Which levels are left out and why, in words, with what to do about it; empty without any."""
    texts = []
    for flag, why in UNBELIEVED.items():
        flagged = [lv for lv in left if findings.unbelieved(lv) == flag]
        if flagged:
            count = "a level is" if len(flagged) == 1 else f"{len(flagged)} levels are"
            texts.append(f"{count} left out ({together(flagged)}), as {why} ({flag})")
    todo = advice(left, findings)
    return "; ".join(texts) + (f": {todo}" if todo else "")


def advice(left: Sequence[LevelData], findings: LevelFindings) -> str:
    """What to do about levels whose limit the generator was, or that waited for others; empty without any."""
    limited, waited = (
        [lv for lv in left if findings.unbelieved(lv) == flag] for flag in ("generator-limited", "carried-over")
    )
    todo = []
    if limited:
        searched = any(visit.meta.get("search") for level in limited for visit in level.visits())
        todo.append(ADVICE.format(which=_which(limited)) + (RESUME if searched else ""))
    if waited:
        todo.append(APART.format(which=_which(waited)))
    return "; ".join(todo)


def _which(levels: Sequence[LevelData]) -> str:
    return "it" if len(levels) == 1 else "them"


def together(levels: Sequence[LevelData]) -> str:
    """Several levels in words: ``concurrency 1, 2`` or ``10 requests/s, concurrency 4``."""
    closed = [str(c) for c in sorted(lv.concurrency for lv in levels if lv.concurrency is not None)]
    opened = [load_text(lv) for lv in levels if lv.concurrency is None]
    return ", ".join([*opened, *([f"concurrency {', '.join(closed)}"] if closed else [])])


def load_text(level: LevelData) -> str:
    """The load of one level in words."""
    if level.concurrency is not None:
        return f"concurrency {level.concurrency}"
    return f"{level.rate:g} {'conversations' if level.by_session else 'requests'}/s"


def _of_import(levels: Sequence[LevelData]) -> list[str]:
    """What imports found wrong with their figures, each text once with all its levels."""
    found: dict[str, list[LevelData]] = {}
    for level in levels:
        for text in level.meta.get("alerts") or () if level.imported and level.meta.get("flags") else ():
            found.setdefault(str(text), []).append(level)
    return [f"{together(of)}: {text}" for text, of in found.items()]


def _errors(level: LevelData) -> int:
    if level.imported:
        return told_requests(level)[1]
    outcomes = [visit.meta.get("outcomes") or {} for visit in level.visits()]
    return sum(int(n) for one in outcomes for name, n in one.items() if name not in ("ok", "cancelled"))
