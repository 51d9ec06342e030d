"""Joins equal levels as repeats, and refuses to mix what cannot be compared."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from gpusize.analysis.level import LevelData
from gpusize.base.errors import UsageError
from gpusize.base.text import shown

__all__ = ["load_of", "load_of_setting", "pool", "pooled_visits"]

_MOST: Final = 8
"""Values of a setting that an error names."""

_SAME: Final = ("targets", "models", "dataset")
_LOAD: Final = (
    *("process", "shape", "from", "from_rate", "to_rate", "bursts", "streams", "phases"),
    *("think_s", "think", "unit", "overload"),
)
"""What else of a setting makes it another load."""
_DIGITS: Final = 12
_STUDY: Final = "study"
"""Label of the runs of a study; their other labels are the settings."""
_GPUS: Final = "gpus"
"""A setting that may differ where the runs know it as their number of GPUs: such levels are kept apart anyway."""


def pool(levels: Iterable[LevelData], *, allow: Collection[str] = ()) -> list[LevelData]:
    """Join equal levels, repeats within a run or over several runs, into one each.

    Equal are levels of one setting (its loop, concurrency or rate, ramp, bursts, process, pauses, streams), one number
    of GPUs, one state; how long they ran may differ. A level keeps its own steady window. The result is in the order
    of first appearance.

    Args:
        levels: of one or several runs.
        allow: what may differ between them: ``targets``, ``models``, ``dataset``.

    Raises:
        UsageError: they differ in something else than what may; it is named with both values. Or they are of one study
            and differ in a setting other than ``gpus``. Or ``allow`` holds another name.
    """
    unknown = sorted(set(allow) - set(_SAME))
    if unknown:
        raise UsageError(f'"{unknown[0]}" is not among what may differ', "allow", f"name {', '.join(_SAME)}")
    given = list(levels)
    for name in _SAME:
        if name not in allow:
            _same(given, name)
    _same_settings(given)
    groups: dict[tuple[object, ...], list[LevelData]] = {}
    for level in given:
        groups.setdefault(_key(level), []).append(level)
    return [pooled_visits(group) for group in groups.values()]


def _same(levels: Sequence[LevelData], name: str) -> None:
    for level in levels[1:]:
        first, other = levels[0].source.get(name), level.source.get(name)
        if first != other:
            raise UsageError(
                f"the {name} {'differs' if name == 'dataset' else 'differ'}: {_named(first)} and {_named(other)}",
                f"runs {levels[0].run} and {level.run}",
                f"estimate from one of them, or let it differ: --allow {name}",
            )


def _same_settings(levels: Sequence[LevelData]) -> None:
    """Runs of a study with different settings are different systems, although their address is the same."""
    studies: dict[str, list[LevelData]] = {}
    for level in levels:
        if level.labels.get(_STUDY):
            studies.setdefault(level.labels[_STUDY], []).append(level)
    for study, members in studies.items():
        counted = len({level.gpus for level in members}) == len({level.labels.get(_GPUS) for level in members})
        names = dict.fromkeys(name for level in members for name in level.labels if name != _GPUS or not counted)
        # A setting that is the number of GPUs by another name, as instances may be.
        names = {name: None for name in names if not all(_is_count(level, name) for level in members)}
        values = {name: list(dict.fromkeys(level.labels.get(name, "") for level in members)) for name in names}
        differ = {name: found for name, found in values.items() if len(found) > 1}
        if differ:
            said = "; ".join(f"{name} is {', '.join(map(_setting, found[:_MOST]))}" for name, found in differ.items())
            pick = " ".join(f"--label {name}={shown(found[-1], 40)}" for name, found in differ.items())
            raise UsageError(
                f"runs with different settings are not repeats of each other: {said}",
                f"study {shown(study, 80)}",
                f"pick one of each, as in {pick}",
            )


def _is_count(level: LevelData, name: str) -> bool:
    return level.gpus > 0 and level.labels.get(name) == str(level.gpus)


def _setting(value: str) -> str:
    return shown(value, 40) or "not said"


def _named(value: object) -> str:
    """A value in print; of a digest its first digits are enough to tell it from another."""
    return value[:_DIGITS] if isinstance(value, str) and len(value) > _DIGITS else json.dumps(value)


def _key(level: LevelData) -> tuple[object, ...]:
    return (load_of(level), level.gpus, level.state)


def load_of(level: LevelData) -> str:
    """The load of a level as JSON: its loop, concurrency, rate, and an object of what else makes it another load."""
    return load_of_setting(level.setting)


def load_of_setting(setting: Mapping[str, Any]) -> str:
    """As ``load_of``, of a level's setting as docs/reference/run-folder.md has it."""
    users, rate = setting.get("concurrency"), setting.get("rate")
    more = {name: setting[name] for name in _LOAD if setting.get(name)}
    numbers = [None if users is None else int(users), None if rate is None else float(rate)]
    return json.dumps([setting.get("kind"), *numbers, more], sort_keys=True)


def pooled_visits(group: Sequence[LevelData]) -> LevelData:
    """One level of equal ones; the only one is itself."""
    import polars as pl

    if len(group) == 1:
        return group[0]
    if any(level.imported for level in group):
        # The calculator merges its jobs so: its percentiles cannot be pooled, the first (newest) one counts.
        return next(level for level in group if level.imported) if all(x.imported for x in group) else _measured(group)
    parts = tuple(visit for level in group for visit in level.visits())
    return replace(group[0], parts=parts, intervals=(), records=pl.concat([part.records for part in parts]))


def _measured(group: Sequence[LevelData]) -> LevelData:
    """Measured levels win over imported ones of the same setting."""
    return pooled_visits([level for level in group if not level.imported])
