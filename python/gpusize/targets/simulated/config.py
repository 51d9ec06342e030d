"""A simulated cluster's configuration as the extension takes it; what does not fit is named in words of ours."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpusize.base.errors import UsageError
from gpusize.base.text import shown
from gpusize.engine.session import core

__all__ = ["config_text"]

_PLACE: Final = re.compile(r"(?P<what>.*) at line \d+ column (?P<column>\d+)", re.DOTALL)
_NAMED: Final = re.compile(r"`([^`]*)`")
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+')
_WANTED: Final = {
    "u": "a whole number, 0 or more",
    "i": "a whole number",
    "f": "a number",
    "a string": "a text",
    "a boolean": "true or false",
    "a sequence": "a list",
    "struct": "a table of fields",
}
"""What the extension expects, by how it begins to say it, in words."""

_Path = tuple[str | int, ...]


def config_text(config: Mapping[str, Any]) -> str:
    """The configuration as JSON.

    Args:
        config: as docs/reference/simulate.md has it; missing fields have their defaults.

    Raises:
        UsageError: a value that is out of range or of another kind, or a field that there is not; with its name.
    """
    for path, value in _leaves(config, ()):
        if isinstance(value, float) and not math.isfinite(value):
            raise _refused(f"{_dotted(path)} must be a number, not {value:g}")
        if not isinstance(value, str | int | float | None):
            raise _refused(f"{_dotted(path)} is of type {type(value).__name__}, which JSON has not")
    text = json.dumps(dict(config))
    try:
        core().closed_form_runtime_s(text, 1, 1, 1)
    except UsageError as problem:
        found = _PLACE.fullmatch(problem.what)
        if found is None:
            raise
        raise _refused(_in_words(found["what"], _path_at(text, int(found["column"])), config)) from None
    return text


def _refused(what: str) -> UsageError:
    return UsageError(what, "cluster", "see docs/reference/simulate.md")


def _leaves(value: Any, path: _Path) -> Iterator[tuple[_Path, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _leaves(inner, (*path, number))
    else:
        yield path, value


def _path_at(text: str, column: int) -> _Path:
    """The keys and numbers that lead to what ends, or begins, at a column of a JSON text of one line."""
    path: list[str | int] = []
    last = ""
    for token in _TOKEN.finditer(text[:column]):
        mark = token[0]
        if mark in "{[":
            path.append(0 if mark == "[" else "")
        elif mark in "}]":
            path.pop()
        elif mark == ":":
            path[-1] = json.loads(last)
        elif mark == "," and isinstance(path[-1], int):
            path[-1] += 1
        last = mark
    return tuple(path)


def _dotted(path: _Path) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{shown(part)}" for part in path if part != "")
    return text.removeprefix(".") or "the whole"


def _in_words(what: str, path: _Path, values: Any) -> str:
    said, _, wanted = what.partition(", expected ")
    names = ", ".join(_NAMED.findall(wanted))
    if "unknown field" in said:
        # It is told of where its name ends, before the colon that would make it the last of the path.
        return f"there is no field {_dotted((*path[:-1], _NAMED.findall(said)[-1]))}; known are {names}"
    if "missing field" in said:
        return f"{_dotted(path)} lacks {_NAMED.findall(said)[-1]}"
    value: Any = values
    for part in path:
        value = value[part] if part != "" else value
    given = f"not {shown(value)}"
    if "unknown variant" in said:
        return f"{_dotted(path)} must be one of {names}, {given}"
    words = next((words for start, words in _WANTED.items() if wanted.startswith(start)), "")
    return f"{_dotted(path)} must be {words}, {given}" if words else f"{_dotted(path)} does not fit: {shown(value)}"
