"""JSON files of other tools, read whole within a bound, and their numbers, with the place in every error."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from gpusize.base.errors import ConfigError
from gpusize.base.text import decode, shown
from gpusize.studies.imports.whole_file import read_whole

__all__ = [
    "Documents",
    "count",
    "finite",
    "is_json_with",
    "listed",
    "nanoseconds",
    "number",
    "numbers",
    "part",
    "read_documents",
    "read_object",
    "text",
]

_MOST: Final = 1e15
"""No figure of a load is larger, in whatever unit: what is has lost its meaning."""
_MOST_S: Final = 4e9
"""More than 100 years: no time, and no moment since 1970, is later."""
_BLANKS: Final = re.compile(r"[ \t\n\r]*")
_DAMAGED: Final = "the file is damaged"


class Documents(NamedTuple):
    """What a file holds.

    Attributes:
        objects: its JSON objects, one after the other; at least one.
        sha256: digest of the file.
    """

    objects: list[dict[str, Any]]
    sha256: str


def is_json_with(path: Path, head: bytes, *keys: str) -> bool:
    """Whether a file begins like a JSON object and has all of these keys in its first bytes."""
    begins = head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
    return not path.is_dir() and begins and all(f'"{key}"'.encode() in head for key in keys)


def read_documents(path: Path, tool: str) -> Documents:
    """Read a file of one JSON object, or of several one after the other.

    Args:
        path: the file.
        tool: whose file it should be, for errors.

    Raises:
        ConfigError: it is missing, no UTF-8, no JSON (with line and column), too large, or holds no object.
    """
    todo = f"is it a file of {tool}?"
    data = read_whole(path, "import it without its single requests")
    content = decode(data, str(path), error=ConfigError)
    scan = json.JSONDecoder(object_pairs_hook=_once).raw_decode
    found: list[dict[str, Any]] = []
    at = _skip(content, 0)
    while at < len(content):
        try:
            value, end = scan(content, at)
        except json.JSONDecodeError as error:
            where = f"{path}, line {error.lineno}, column {error.colno}"
            raise ConfigError(f"broken JSON: {error.msg}", where, todo) from None
        except _Twice as error:
            raise ConfigError(
                f"the key {shown(error.args[0], 60)} is there twice in one object", str(path), todo
            ) from None
        except RecursionError:
            raise ConfigError("broken JSON: nested too deeply", str(path), todo) from None
        except ValueError:
            raise ConfigError("broken JSON: a number of too many digits", str(path), todo) from None
        if not isinstance(value, dict):
            raise ConfigError("not a JSON object", f"{path}, line {content.count(chr(10), 0, at) + 1}", todo)
        found.append(value)
        at = _skip(content, end)
    if not found:
        raise ConfigError("the file is empty", str(path), todo)
    return Documents(found, hashlib.sha256(data).hexdigest())


def read_object(path: Path, tool: str) -> tuple[dict[str, Any], str]:
    """Read a file of one JSON object; with its digest.

    Raises:
        ConfigError: as ``read_documents``, or something follows the object.
    """
    found = read_documents(path, tool)
    if len(found.objects) > 1:
        raise ConfigError("something follows where the file should end", str(path), f"is it a file of {tool}?")
    return found.objects[0], found.sha256


class _Twice(Exception):
    """A key is there twice: readers of JSON take the last one, and which was meant nobody knows."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(next(name for at, name in enumerate(names) if name in names[:at]))
    return made


def _skip(content: str, at: int) -> int:
    blanks = _BLANKS.match(content, at)
    return at if blanks is None else blanks.end()


def part(holder: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    """A member that is an object; empty where it is missing or null.

    Raises:
        ConfigError: it is something else.
    """
    found = holder.get(key)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ConfigError(f"{shown(found)} is not an object", f"{where}, {key}", _DAMAGED)
    return found


def listed(holder: Mapping[str, Any], key: str, where: str) -> list[Any]:
    """A member that is a list; empty where it is missing or null.

    Raises:
        ConfigError: it is something else.
    """
    found = holder.get(key)
    if found is None:
        return []
    if not isinstance(found, list):
        raise ConfigError(f"{shown(found)} is not a list", f"{where}, {key}", _DAMAGED)
    return found


def number(holder: Mapping[str, Any], key: str, where: str) -> float | None:
    """A member that is a finite number of 0 or more; None where it is missing or null.

    Raises:
        ConfigError: it is something else.
    """
    value = holder.get(key)
    return None if value is None else finite(value, f"{where}, {key}")


def count(holder: Mapping[str, Any], key: str, where: str) -> int | None:
    """A member that is a whole number of 0 or more; None where it is missing or null.

    Raises:
        ConfigError: it is something else.
    """
    value = number(holder, key, where)
    if value is None:
        return None
    if value != int(value):
        raise ConfigError(f"{value:g} is not a whole number", f"{where}, {key}", _DAMAGED)
    return int(value)


def numbers(holder: Mapping[str, Any], key: str, where: str) -> list[float] | None:
    """A member that is a list of such numbers; None where it is missing or null.

    Raises:
        ConfigError: it is something else; with the number of the entry, from 1.
    """
    values = holder.get(key)
    if values is None:
        return None
    if not isinstance(values, list):
        raise ConfigError(f"{shown(values)} is not a list", f"{where}, {key}", _DAMAGED)
    return [finite(value, f"{where}, {key}, entry {at:,}") for at, value in enumerate(values, 1)]


def nanoseconds(seconds: float, where: str) -> int:
    """A time or a moment in ns.

    Raises:
        ConfigError: it is longer, or later, than can be.
    """
    if seconds > _MOST_S:
        raise ConfigError(f"{seconds:.3g} s are out of range", where, _DAMAGED)
    return round(seconds * 1e9)


def text(holder: Mapping[str, Any], key: str) -> str | None:
    """A member that is a text and not empty; else None."""
    found = holder.get(key)
    return found if isinstance(found, str) and found else None


def finite(value: Any, where: str) -> float:
    """A value as a finite number of 0 or more.

    Raises:
        ConfigError: it is something else.
    """
    try:
        found = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:
        found = math.inf
    if not math.isfinite(found) or found < 0:
        raise ConfigError(f"{shown(value)} is not a number of 0 or more", where, _DAMAGED)
    if found > _MOST:
        raise ConfigError(f"{found:.3g} is out of range", where, _DAMAGED)
    return found
