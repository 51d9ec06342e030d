"""Shapes of load that autoscalers are tried on, by name.

The shapes, rates and lengths of ``ramp``, ``spike``, ``burst-drain``, ``sustained`` and ``mixed`` are those of the
evaluation of the Workload Variant Autoscaler in llm-d-lab (2026), for one replica that takes about a request/s;
``stair`` is its first experiment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from gpusize.base.documents import parse_document
from gpusize.base.errors import UsageError
from gpusize.base.given_numbers import as_number
from gpusize.base.numeric import within
from gpusize.base.text import did_you_mean, shown
from gpusize.workload.load.grammar import parse_stages
from gpusize.workload.load.stages import Stage

__all__ = ["profile_names", "profile_options", "profile_text", "scaled_stages"]


@cache
def profile_names() -> tuple[str, ...]:
    """The names, in the order of the alphabet."""
    names = (each.name for each in files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml")))


def profile_text(name: str) -> str:
    """A profile as a load file, with what it is for in its first line.

    Raises:
        UsageError: there is no such profile.
    """
    if name not in profile_names():
        todo = did_you_mean(name, profile_names(), f"there are {', '.join(profile_names())}")
        raise UsageError(f'there is no profile "{shown(name)}"', "profile", todo)
    return (files(__name__) / f"{name}.yaml").read_text(encoding="utf-8")


def profile_options(name: str, speed: float = 1.0, rate_scale: float = 1.0) -> dict[str, Any]:
    """A profile as options of ``gpusize run``: ``stages``, ``process``, and ``synthetic`` where it has lengths.

    Args:
        name: one of `profile_names`.
        speed: how many times faster; as many requests, in less time.
        rate_scale: how many times as many requests, over the same time.

    Raises:
        UsageError: there is no such profile, or a factor that is out of range.
    """
    options = dict(parse_document(profile_text(name), f"{name}.yaml").values)
    stages = parse_stages(str(options["stages"]))
    return {**options, "stages": ", ".join(map(str, scaled_stages(stages, speed, rate_scale)))}


def scaled_stages(stages: Sequence[Stage], speed: float = 1.0, rate_scale: float = 1.0) -> tuple[Stage, ...]:
    """Stages of rates, faster and of more requests.

    Args:
        stages: of rates, without bursts.
        speed: factor on the rates, and divisor of the times.
        rate_scale: factor on the rates.

    Raises:
        UsageError: a factor that is out of range.
    """
    for name, value in (("speed", speed), ("rate_scale", rate_scale)):
        within(name, as_number(value, name), name)
    factor = speed * rate_scale
    return tuple(
        replace(each, start=each.start * factor, end=each.last * factor, duration_s=each.duration_s / speed)
        for each in stages
    )
