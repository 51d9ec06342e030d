"""The sides of a comparison, and the levels that they have in common."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from gpusize.analysis.carried_over import carried_over
from gpusize.analysis.checks import unbelieved
from gpusize.analysis.delivery.intended import ramp_text
from gpusize.analysis.level import LevelData
from gpusize.analysis.pooling import load_of, load_of_setting, pooled_visits

if TYPE_CHECKING:
    from gpusize.analysis.compare.whole import JudgedRun

__all__ = [
    "Place",
    "Run",
    "Side",
    "Turns",
    "broken_off",
    "common_places",
    "counted",
    "differing",
    "left_out",
    "load_names",
    "places_per_count",
    "turns",
    "usable",
]

_WHOSE: Final = ("targets", "models", "dataset")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a side: when it began (ISO 8601), its levels, and how it was judged as a whole, where it was."""

    name: str
    began: str
    levels: Sequence[LevelData]
    judged: JudgedRun | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """One system that is compared: its name and its runs, which are repeats of each other."""

    name: str
    runs: Sequence[Run]


@dataclass(frozen=True, slots=True)
class Place:
    """A load that every side has been measured at.

    Attributes:
        name: as ``16 users`` or ``20 requests/s``.
        levels: for each side one level of each run, in the order of its runs, repetitions inside a run pooled; None
            for a run that has no level there that can be compared.
    """

    name: str
    levels: Sequence[Sequence[LevelData | None]]

    def measured(self, side: int) -> list[LevelData]:
        """The levels that a side has."""
        return [level for level in self.levels[side] if level is not None]

    def pairs(self, side: int) -> int:
        """Of how many pairs of runs, the k-th ones of the first side and of this one, both have a level."""
        return sum(None not in pair for pair in zip(self.levels[0], self.levels[side], strict=True))


def common_places(sides: Sequence[Side]) -> tuple[list[Place], dict[str, list[str]]]:
    """The loads that all sides have levels of that can be compared, in the order in which they were measured.

    Returns:
        Them, and by side the names of the loads that not every side has.
    """
    found = [_by_load(side) for side in sides]
    names = _names_of(sides)
    shared = [key for key in names if all(key in each for each in found)]
    alone = {
        side.name: missing
        for side, each in zip(sides, found, strict=True)
        if (missing := [names[key] for key in each if key not in shared])
    }
    return [Place(names[key], [each[key] for each in found]) for key in shared], alone


def places_per_count(sides: Sequence[Side], counts: Mapping[str, int], one: str) -> list[tuple[int, Place]]:
    """Where a side had the first side's load per GPU (or instance): N times its users on N times as many.

    Closed loops only: the rate of an open loop that is kept up with grows with the load by itself.

    Args:
        sides: grouped by a count.
        counts: by side its count.
        one: what one of them is called in the name of a load, as in ``4 users per GPU``.

    Returns:
        The number of the other side, and the place with the levels of the first side and of that one.
    """
    first = _by_load(sides[0])
    base = counts[sides[0].name]
    found = []
    for k, side in enumerate(sides[1:], 1):
        for key, levels in _by_load(side).items():
            kind, users, rate, more = json.loads(key)
            alike, rest = divmod((users or 0) * base, counts[side.name])
            key_of_first = json.dumps([kind, alike, rate, more], sort_keys=True)
            if users and alike and not rest and key_of_first in first:
                each = users / counts[side.name]
                name = f"{each:g} user{'s' if each != 1 else ''} per {one}"
                found.append((k, Place(name + (f", {_rest(key)}" if more else ""), [first[key_of_first], levels])))
    return found


def usable(side: Side) -> list[LevelData]:
    """The levels of a side that say something of its target, of all its runs."""
    return [level for run in side.runs for level in run.levels if not _why_not(level)]


def left_out(side: Side) -> list[str]:
    """The levels of a side that say nothing of its target, each with the reason."""
    return [f"{_name(level.setting)}, {why}" for run in side.runs for level in run.levels if (why := _why_not(level))]


def counted(left: Sequence[str]) -> str:
    """What ``left_out`` gives as a text, equal ones once with the number of runs."""
    counts = {text: left.count(text) for text in dict.fromkeys(left)}
    return "; ".join(text + (f" ({n} runs)" if n > 1 else "") for text, n in counts.items())


def broken_off(side: Side, sides: Sequence[Side]) -> list[str]:
    """The loads of a side's levels that did not end as intended, named as among all sides."""
    names = _names_of(sides)
    loads = (load_of(level) for run in side.runs for level in run.levels if level.state != "done")
    return [names[load] for load in dict.fromkeys(loads)]


def load_names(settings: Iterable[Mapping[str, Any]]) -> list[str]:
    """What the loads of levels that are going to be measured will be called, each once, in their order."""
    return list(_names({load_of_setting(setting): setting for setting in settings}).values())


def _names_of(sides: Sequence[Side]) -> dict[str, str]:
    return _names({load_of(level): level.setting for side in sides for run in side.runs for level in run.levels})


def _why_not(level: LevelData) -> str:
    if level.state != "done":
        return level.state
    if carried_over(level):
        return "requests of a level before were answered first"
    return "the generator was the limit, or the load was not held" if unbelieved(level) else ""


def _by_load(side: Side) -> dict[str, list[LevelData | None]]:
    """By load one level of each run, None for a run without one."""
    made: dict[str, list[LevelData | None]] = {}
    for k, run in enumerate(side.runs):
        visits: dict[str, list[LevelData]] = {}
        for level in run.levels:
            if not _why_not(level):
                visits.setdefault(load_of(level), []).append(level)
        for key, group in visits.items():
            made.setdefault(key, [None] * len(side.runs))[k] = pooled_visits(group)
    return made


def _names(loads: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """What each load is called, by its setting; where two would be called the same, with what tells them apart."""
    short = {key: _name(setting) for key, setting in loads.items()}
    taken = list(short.values())
    return {key: name if taken.count(name) == 1 else f"{name}, {_rest(key)}" for key, name in short.items()}


def _name(setting: Mapping[str, Any]) -> str:
    ramp = ramp_text(setting)
    users = setting.get("concurrency")
    if users is not None:
        return f"{ramp} users" if ramp else f"{int(users)} user{'s' if int(users) != 1 else ''}"
    held = f"{float(setting['rate']):g}"
    unit = "sessions/s" if setting.get("unit") == "session" else "requests/s"
    return f"{(ramp or held).removesuffix('/s')} {unit}"


def _rest(key: str) -> str:
    more = json.loads(key)[-1]
    return ", ".join(f"{name} {value}" for name, value in more.items()) or "otherwise plain"


Turns = Literal["no", "one first", "balanced"]


def turns(a: Side, b: Side) -> Turns:
    """Whether the runs of two sides were made in turns, so that neighbours make pairs.

    ``balanced`` as A B B A; ``one first`` as A B A B, where what changes on the way hits the second of each pair.
    """
    order = sorted([*((run.began, "a") for run in a.runs), *((run.began, "b") for run in b.runs)])
    pairs = ["".join(whose for _, whose in order[k : k + 2]) for k in range(0, len(order), 2)]
    if not pairs or set(pairs) - {"ab", "ba"}:
        return "no"
    return "balanced" if abs(pairs.count("ab") - pairs.count("ba")) <= 1 else "one first"


def differing(sides: Sequence[Side]) -> dict[str, list[Any]]:
    """What of target, model and dataset is not the same on all sides, by name one value a side."""
    made: dict[str, list[Any]] = {}
    for name in (*_WHOSE, "gpus"):
        values = [_value(side, name) for side in sides]
        if any(value != values[0] for value in values):
            made[name] = values
    return made


def _value(side: Side, name: str) -> Any:
    level = next((level for run in side.runs for level in run.levels), None)
    if level is None:
        return None
    return level.gpus or None if name == "gpus" else level.source.get(name)
