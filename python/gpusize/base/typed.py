"""What kinds of values arguments from Python may be: another kind is refused by name, where it is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from os import PathLike
from typing import Any, Final

from gpusize.base.errors import UsageError

__all__ = ["FLAG", "ITERABLE", "MAPPING", "NUMBER", "PATH", "SEQUENCE", "TEXT", "Kind", "check_kinds", "or_none"]

Kind = tuple[tuple[Any, ...], str]
"""Types, and what they are in words."""

TEXT: Final[Kind] = ((str,), "a text")
FLAG: Final[Kind] = ((bool,), "True or False")
NUMBER: Final[Kind] = ((int, float), "a number")
PATH: Final[Kind] = ((str, PathLike), "a path")
MAPPING: Final[Kind] = ((Mapping,), "a dictionary")
SEQUENCE: Final[Kind] = ((Sequence,), "a list")
ITERABLE: Final[Kind] = ((Iterable,), "a list")


def or_none(kind: Kind) -> Kind:
    """The same, or None."""
    return ((*kind[0], type(None)), f"{kind[1]}, or None")


def check_kinds(values: Any, kinds: Mapping[str, Kind]) -> None:
    """Refuse values of other kinds.

    Args:
        values: an object with attributes of these names, or a mapping.
        kinds: by name.

    Raises:
        UsageError: the first that is of another kind; its value, which may be a secret, is not shown.
    """
    for name, (types, words) in kinds.items():
        value = values[name] if isinstance(values, Mapping) else getattr(values, name)
        if not isinstance(value, types) or (isinstance(value, bool) and types[0] in (int, Integral, Real)):
            raise UsageError(f"{name} is of type {type(value).__name__}", name, f"give {words}")
