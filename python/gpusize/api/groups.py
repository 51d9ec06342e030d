"""Runs by what they were measured with: a count of GPUs, of instances, a device, a label."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gpusize.analysis.compare.comparison import Comparison
from gpusize.analysis.compare.differences import Difference, difference
from gpusize.analysis.compare.figures import Figure, figure
from gpusize.analysis.compare.matching import Place, Run, Side, places_per_count
from gpusize.analysis.compare.most import most
from gpusize.analysis.compare.scaled import RATES, kept_up, one_of
from gpusize.analysis.compare.spent import priced, spent, untold
from gpusize.analysis.pooling import load_of
from gpusize.base.errors import UsageError
from gpusize.estimate.growth import growth
from gpusize.estimate.plan.price import Price, parse_price

__all__ = ["COUNTED", "Groups", "grouped", "prices_of", "unlike", "with_groups"]

COUNTED: Final = ("gpus", "instances", "replicas", "servers", "hosts", "nodes", "pods")
"""What adds up, so that N of them ideally do N times as much. Other labels may be numbers, as a batch size is."""

_STUDY: Final = "study"
_OF_IMPORTS: Final = {"traccc": ("device", "mu")}
"""Labels that an import gives by itself, by its tool: they say what was measured, and are no notes."""
_MOST: Final = 6
"""Values that an error names."""

_COUNT: Final = re.compile(r"0*[1-9][0-9]{0,5}")


@dataclass(frozen=True, slots=True)
class Groups:
    """Runs by a value that they share.

    Attributes:
        by: ``gpus``, or the name of a label.
        sides: one for each value, the smallest first.
        values: by side its value.
        counts: by side its count, where it is something that adds up; else empty.
        unlike: by side, labels in which its runs differ at a load, each with its values.
    """

    by: str
    sides: Sequence[Side]
    values: Mapping[str, str]
    counts: Mapping[str, int]
    unlike: Mapping[str, Mapping[str, Sequence[str]]]


def grouped(runs: Sequence[tuple[Run, Mapping[str, Any]]], by: str) -> Groups:
    """Runs as one side for each value.

    Args:
        runs: each with the contents of its ``run.json``.
        by: ``gpus``, or the name of a label.

    Raises:
        UsageError: a run does not say it, all say the same, or the runs of one value are not repeats of each other.
    """
    found: dict[str, list[tuple[Run, Mapping[str, Any]]]] = {}
    for run, about in runs:
        found.setdefault(_value(run, about, by), []).append((run, about))
    if len(found) < 2:
        what = f"all runs have {by} {next(iter(found))}" if found else "there are no runs"
        raise UsageError(what, "by", "give runs of two values or more")
    numbers = {value: _count(value) for value in found}
    ordered = all(number is not None for number in numbers.values())
    counted = ordered and by in COUNTED
    order = sorted(found, key=lambda value: (numbers[value] or 0, value) if ordered else (0, value))
    names = {value: _name(value, by, counted=counted) for value in order}
    for value in order:
        _refuse_mixed(names[value], found[value], by)
    return Groups(
        by,
        [Side(names[value], sorted((run for run, _ in found[value]), key=lambda run: run.began)) for value in order],
        {names[value]: value for value in order},
        {names[value]: number for value in order if counted and (number := numbers[value]) is not None},
        {names[value]: labels for value in order if (labels := unlike(found[value], by))},
    )


def with_groups(found: Comparison, groups: Groups, price: Mapping[str, Price] | None = None) -> Comparison:
    """A comparison of groups with what is known of them beside their differences.

    Args:
        found: the groups held against the first.
        groups: what they are.
        price: by side, of a GPU for an hour.
    """
    sides, counts = groups.sides, groups.counts
    names = [side.name for side in sides]
    used = spent(names, found.places, found.in_turns)
    if price:
        currency = next(iter(price.values())).currency
        used += priced(used, {name: each.amount for name, each in price.items()}, currency, names[0])
    per_count = [
        _difference(sides[k].name, place, figure(name), paired=found.in_turns[sides[k].name] != "no")
        for k, place in (places_per_count(sides, counts, one_of(groups.by)) if counts else ())
        for name in RATES
        if name in {each.figure for each in found.differences} or not found.differences
    ]
    return replace(
        found,
        by=groups.by,
        unlike=groups.unlike,
        counts=counts,
        differing={name: values for name, values in found.differing.items() if name != groups.by},
        per_count=[each for each in per_count if each.runs != (0, 0)],
        kept_up=kept_up(names, found.places),
        spent=used,
        untold=untold(names, found.places),
        law=growth(sides, counts) if counts else None,
        most=() if counts else most(sides, found.in_turns),
    )


def _difference(side: str, place: Place, one: Figure, *, paired: bool) -> Difference:
    a, b = ([None if level is None else one.measure(level) for level in levels] for levels in place.levels)
    return difference(side, place.name, one, a, b, paired=paired)


def prices_of(given: str | float | Mapping[str, str | float] | None, groups: Groups) -> dict[str, Price]:
    """The price of a GPU for an hour by side.

    Args:
        given: one for all, or by the value of the group; as text ``h100=2.5 EUR, a100=1.2 EUR``.
        groups: the sides.

    Raises:
        UsageError: no price, a value that no run has, or currencies that differ.
    """
    if given is None:
        return {}
    if isinstance(given, str) and "=" in given:
        pairs = [each.rpartition("=") for each in given.split(",")]
        given = {value.strip(): price for value, _, price in pairs}
    if not isinstance(given, Mapping):
        one = parse_price(str(given))
        return {side.name: one for side in groups.sides}
    sides = {value: name for name, value in groups.values.items()}
    found = {}
    for value, price in given.items():
        if value not in sides:
            there = ", ".join(sides)
            raise UsageError(f"no run has {groups.by} {value}", "gpu_hour_price", f"there are {there}")
        found[sides[value]] = parse_price(str(price))
    if len({price.currency for price in found.values()}) > 1:
        raise UsageError("the prices are of different currencies", "gpu_hour_price", "give all in one")
    return found


def unlike(runs: Sequence[tuple[Run, Mapping[str, Any]]], by: str = "") -> dict[str, list[str]]:
    """The labels in which runs differ that are taken for repeats of each other, with their values.

    Runs that have no load in common are not taken for repeats, and what they are grouped by is the same.
    """
    found: dict[str, list[str]] = {}
    for abouts in _by_load(runs):
        found |= _differing(abouts, sorted({key for each in abouts for key in _labels(each)} - {_STUDY}), by)
    return found


def _refuse_mixed(name: str, runs: Sequence[tuple[Run, Mapping[str, Any]]], by: str) -> None:
    """Runs of other settings are other systems, not repeats: a mean over them is the figure of none.

    A setting of a study that gives each run loads of its own, as its concurrency, mixes nothing. Labels that somebody
    gave may be notes, and refuse nothing; those of an import say what was measured.
    """
    mixed = _differing([about for _, about in runs], ("gpus", "models"), by)
    for abouts in _by_load(runs):
        if any(_STUDY in _labels(each) for each in abouts):
            mixed |= _differing(abouts, sorted({key for each in abouts for key in _labels(each)} - {_STUDY}), by)
        mixed |= _imported_otherwise(abouts, by)
    if mixed:
        told = "; ".join(f"{key} is {', '.join(values[:_MOST])}" for key, values in mixed.items())
        labels = [_labels(about) for _, about in runs]
        pick = " ".join(f"--label {key}={values[-1]}" for key, values in mixed.items() if all(key in x for x in labels))
        raise UsageError(
            f"the runs of {name} are not repeats of each other: {told}",
            "by",
            f"pick one of each, as in {pick}" if pick else "give only the runs of one of them",
        )


def _by_load(runs: Sequence[tuple[Run, Mapping[str, Any]]]) -> list[list[Mapping[str, Any]]]:
    """What the runs say that have a load in common, for each load."""
    loads: dict[str, list[Mapping[str, Any]]] = {}
    for run, about in runs:
        for load in {load_of(level) for level in run.levels}:
            loads.setdefault(load, []).append(about)
    return list(loads.values())


def _imported_otherwise(runs: Sequence[Mapping[str, Any]], by: str) -> dict[str, list[str]]:
    """The labels of imports in which runs that have them differ."""
    tools = {(about.get("source") or {}).get("tool") for about in runs}
    found: dict[str, list[str]] = {}
    for key in (key for tool, keys in _OF_IMPORTS.items() if tool in tools for key in keys):
        found |= _differing([about for about in runs if key in _labels(about)], (key,), by)
    return found


def _labels(about: Mapping[str, Any]) -> Mapping[str, str]:
    return about.get("labels") or {}


def _differing(runs: Sequence[Mapping[str, Any]], keys: Sequence[str], by: str) -> dict[str, list[str]]:
    """The values of what differs between runs, by name: their GPUs, models and labels; numbers ascending."""
    found: dict[str, list[str]] = {}
    for key in keys:
        if key != by:
            values = list(dict.fromkeys(_setting(about, key) for about in runs))
            if all(_count(value) is not None for value in values):
                values.sort(key=int)
            found |= {key: values} if len(values) > 1 else {}
    return found


def _setting(about: Mapping[str, Any], key: str) -> str:
    if key == "gpus":
        return str(_gpus(about))
    if key == "models":
        return ", ".join(map(str, about.get("models") or ()))
    return str(_labels(about).get(key, "not said"))


def _gpus(about: Mapping[str, Any]) -> int:
    return sum(int(target.get("gpus") or 0) for target in about.get("targets") or ())


def _value(run: Run, about: Mapping[str, Any], by: str) -> str:
    if by == "gpus":
        gpus = _gpus(about)
        if gpus:
            return str(gpus)
        todo = "give --gpus where it is measured or imported"
        raise UsageError("it does not say how many GPUs there were", run.name, todo)
    value = _labels(about).get(by)
    if value is None:
        todo = f"label it: gpusize runs tag RUN --label {by}=VALUE"
        raise UsageError(f"it has no label {by}", run.name, todo)
    return str(value)


def _count(value: str) -> int | None:
    return int(value) if _COUNT.fullmatch(value) else None


def _name(value: str, by: str, *, counted: bool) -> str:
    if not counted:
        return f"{by} {value}"
    word = one_of(by)
    return f"{value} {word}" if value == "1" else f"{value} {word}s"
