"""Templates of workloads, by name: each a YAML file whose first line says what it is for."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from gpusize.base.errors import UsageError
from gpusize.base.text import did_you_mean, shown

__all__ = ["PARTS", "template_names", "template_text"]

PARTS: Final = ("pvc", "runai-pvc")
"""What ``--pvc`` adds: parts of workloads, which are none themselves."""


@cache
def template_names() -> tuple[str, ...]:
    """The names that ``--workload-type`` takes, in the order of the alphabet."""
    found = (each.name for each in files(__name__).iterdir())
    names = (name.removesuffix(".yaml") for name in found if name.endswith(".yaml"))
    return tuple(sorted(name for name in names if name not in PARTS))


def template_text(name: str) -> str:
    """A template as YAML.

    Raises:
        UsageError: there is no such template.
    """
    if name not in template_names() and name not in PARTS:
        todo = did_you_mean(name, template_names(), f"there are {', '.join(template_names())}; or name a YAML file")
        raise UsageError(f'there is no template "{shown(name)}"', "workload_type", todo)
    return (files(__name__) / f"{name}.yaml").read_text(encoding="utf-8")
