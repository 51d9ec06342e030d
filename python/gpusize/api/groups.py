"""Runs by what they were measured with: a count of GPUs, of instances, a device, a label."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpusize.analysis.compare.matching import Run, Side
from gpusize.base.errors import UsageError

__all__ = ["grouped"]

_COUNT: Final = re.compile(r"0*[1-9][0-9]{0,5}")


def grouped(runs: Sequence[tuple[Run, Mapping[str, Any]]], by: str) -> tuple[list[Side], dict[str, int]]:
    """Sides by the value that runs share, the smallest first, and by side its count where values are counts.

    Args:
        runs: each with the contents of its ``run.json``.
        by: ``gpus``, or the name of a label.

    Raises:
        UsageError: a run does not say it, or all say the same.
    """
    found: dict[str, list[Run]] = {}
    for run, about in runs:
        found.setdefault(_value(run, about, by), []).append(run)
    if len(found) < 2:
        what = f"all runs have {by} {next(iter(found))}" if found else "there are no runs"
        raise UsageError(what, "by", "give runs of two values or more")
    numbers = {value: _count(value) for value in found}
    counted = all(number is not None for number in numbers.values())
    order = sorted(found, key=lambda value: (numbers[value] or 0, value) if counted else (0, value))
    names = {value: _name(value, by, counted=counted) for value in order}
    sides = [Side(names[value], sorted(found[value], key=lambda run: run.began)) for value in order]
    return sides, {names[value]: number for value in order if counted and (number := numbers[value]) is not None}


def _value(run: Run, about: Mapping[str, Any], by: str) -> str:
    if by == "gpus":
        gpus = sum(int(target.get("gpus") or 0) for target in about.get("targets") or ())
        if gpus:
            return str(gpus)
        todo = "give --gpus where it is measured or imported"
        raise UsageError("it does not say how many GPUs there were", run.name, todo)
    value = (about.get("labels") or {}).get(by)
    if value is None:
        todo = f"label it: gpusize runs tag RUN {by}=VALUE"
        raise UsageError(f"it has no label {by}", run.name, todo)
    return str(value)


def _count(value: str) -> int | None:
    return int(value) if _COUNT.fullmatch(value) else None


def _name(value: str, by: str, *, counted: bool) -> str:
    if not counted or by not in ("gpus", "instances"):
        return f"{by} {value}"
    word = "GPU" if by == "gpus" else "instance"
    return f"{value} {word}" if value == "1" else f"{value} {word}s"
