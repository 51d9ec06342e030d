"""Presets: which quantities are pulled under one name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from gpusize.base.errors import UsageError
from gpusize.base.text import did_you_mean, shown
from gpusize.observe.series.control_plane import DEPLOYMENT, EPP, HPA, KEDA, WVA
from gpusize.observe.series.definition import Definition, parse_series
from gpusize.observe.series.model_servers import DCGM, SGLANG, TRITON, VLLM

__all__ = ["OWN", "PRESETS", "definitions"]

OWN: Final = "series"
"""Stands for a preset where the user gives a series of their own."""

PRESETS: Final[Mapping[str, tuple[Definition, ...]]] = MappingProxyType(
    {
        "vllm": VLLM,
        "sglang": SGLANG,
        "triton": TRITON,
        "dcgm": DCGM,
        "epp": EPP,
        "keda": KEDA,
        "hpa": HPA,
        "deployment": DEPLOYMENT,
        "wva": WVA,
    }
)
"""A name that several presets have means the same in each: replicas of two servers add up."""


def definitions(presets: Sequence[str], own: Sequence[str] = ()) -> dict[str, Definition]:
    """What to pull, by ``preset/name``; a series of the user's own by ``series/name``.

    Args:
        presets: names of `PRESETS`.
        own: texts as `parse_series` reads them.

    Raises:
        UsageError: no such preset; a series that is none, or has the name of another; nothing at all.
    """
    found: dict[str, Definition] = {}
    taken: dict[str, str] = {}
    for preset in dict.fromkeys(presets):
        if preset not in PRESETS:
            todo = did_you_mean(preset, PRESETS, f"there are {', '.join(PRESETS)}")
            raise UsageError(f'there is no preset "{shown(preset)}"', "preset", todo)
        for each in PRESETS[preset]:
            found[f"{preset}/{each.name}"] = each
            taken |= dict.fromkeys(_rows(each), preset)
    for each in map(parse_series, own):
        twice = next((name for name in _rows(each) if name in taken), None)
        if twice is not None:
            what = "is given twice" if taken[twice] == OWN else f"is a series of {taken[twice]} already"
            raise UsageError(f"{twice} {what}", f"series {each.name}", "name it otherwise")
        taken |= dict.fromkeys(_rows(each), OWN)
        found[f"{OWN}/{each.name}"] = each
    if not found:
        raise UsageError("nothing to pull", "preset", f"give --preset ({', '.join(PRESETS)}) or --series NAME=PROMQL")
    return found


def _rows(each: Definition) -> tuple[str, ...]:
    """Names in the column ``name`` that a definition makes."""
    parts = ("_sum", "_count") if each.kind == "histogram" else ()
    return each.name, *(f"{each.name}{part}" for part in parts)
