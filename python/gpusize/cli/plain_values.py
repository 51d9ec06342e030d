"""Values of the command line that are read without pydantic, which typer asks about every one.

What is plain is read here as pydantic reads it: text as it is, paths that can be read, numbers of a few digits, and
options that were not given. All else, and with it every mistake and its words, goes the usual way.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

__all__ = ["read_plainly"]

_OTHER: Final = object()
_WHOLE: Final = re.compile(r"0|[1-9][0-9]{0,14}")
_NUMBER: Final = re.compile(r"(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?")
_PATH_OPTIONS: Final = ("exists", "writable", "resolve_path", "allow_dash", "path_type", "parser")


def read_plainly(params: Iterable[Any]) -> None:
    """Let parameters of typer read plain values by themselves."""
    for param in params:
        usual = getattr(param, "get_runtime_param", None)
        if usual is not None and not isinstance(getattr(usual, "__self__", None), _Reader):
            param.get_runtime_param = _Reader(usual).itself


class _Reader:
    """Stands where typer has pydantic's reader of one parameter.

    Args:
        usual: makes that one.
    """

    def __init__(self, usual: Callable[[], Any]) -> None:
        self._usual = usual

    def itself(self) -> _Reader:
        """What typer asks a parameter for."""
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value as the command gets it."""
        found = _plain(param, value)
        return self._usual().coerce(value, param=param, ctx=ctx) if found is _OTHER else found


def _plain(param: Any, value: Any) -> Any:
    """The value as its parameter has it; ``_OTHER`` where that is not plain."""
    several, kind = param.multiple or param.nargs == -1, param.type_descriptor.annotation
    if value is None:
        return () if several else None
    if not several:
        return _one(param, kind, value)
    if not isinstance(value, list | tuple) or kind not in (list[str], list[Path]):
        return _OTHER
    found = [_one(param, kind.__args__[0], each) for each in value]
    return _OTHER if _OTHER in found else found


def _one(param: Any, kind: Any, value: Any) -> Any:
    info = param.type_descriptor.parameter_info
    if any(getattr(info, name, None) for name in _PATH_OPTIONS):
        return _OTHER
    if kind is str and type(value) is str:
        return value
    if kind is Path and isinstance(value, str | Path):
        return _path(Path(value))
    if kind is int and type(value) is str and _WHOLE.fullmatch(value):
        return _bounded(info, int(value))
    if kind is float and type(value) is str and _NUMBER.fullmatch(value):
        return _bounded(info, float(value))
    # A default of its own type.
    return value if kind in (int, float, bool) and type(value) is kind and value == param.default else _OTHER


def _path(path: Path) -> Any:
    try:
        return path if os.access(path, os.R_OK) else _OTHER
    except ValueError:
        return _OTHER


def _bounded(info: Any, value: float) -> Any:
    low, high = info.min, info.max
    return _OTHER if (low is not None and value < low) or (high is not None and value > high) else value
