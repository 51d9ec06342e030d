"""TOML, YAML and JSON files as plain values, with the line and column of every key."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from gpusize.base.document_limits import check_size, check_values, check_yaml
from gpusize.base.errors import ConfigError
from gpusize.base.text import LineIndex, read_text, shown

__all__ = [
    "Document",
    "KeyPath",
    "parse_document",
    "parse_yaml_documents",
    "read_document",
    "read_yaml_documents",
    "scalar_texts",
]

T = TypeVar("T")
KeyPath = tuple[str, ...]

_TOML_PLACE: Final = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)\Z")
_TOML_PART: Final = r"""(?:"[^"\n]*"|'[^'\n]*'|[A-Za-z0-9_-]+)"""
_TOML_DOTTED: Final = rf"{_TOML_PART}(?:[ \t]*\.[ \t]*{_TOML_PART})*"
_TOML_LINE: Final = re.compile(
    rf"[ \t]*(?:\[\[?[ \t]*(?P<table>{_TOML_DOTTED})[ \t]*\]|(?P<key>{_TOML_DOTTED})[ \t]*=)"
)
_SMALL: Final = 100_000
"""Characters of a JSON file that are read a second time for the places in it."""

_TOML_LONG: Final = re.compile(r'"""|' + "'''")


@dataclass(frozen=True)
class Document:
    """A configuration file.

    Args:
        source: its path.
        values: its contents.
        places: line and column of each key, from 1, by the path of keys that leads to it.
    """

    source: str
    values: dict[str, Any]
    places: Mapping[KeyPath, tuple[int, int]] = field(default_factory=dict)

    def where(self, *keys: str) -> str:
        """File, line and column of a key; as much of that as is known."""
        place = self.places.get(keys)
        return f"{self.source}:{place[0]}:{place[1]}" if place else self.source


def read_document(path: str, suffix: str | None = None) -> Document:
    """Read a file by its suffix.

    Args:
        path: the file.
        suffix: the format, whatever the file's name is; None for what that ends with.

    Raises:
        ConfigError: unreadable, of an unknown suffix, broken (with line and column), or not a table of options.
    """
    return parse_document(read_text(path, error=ConfigError), path, suffix)


def parse_document(text: str, path: str, suffix: str | None = None) -> Document:
    """As `read_document`, of the text of a file.

    Raises:
        ConfigError: of an unknown suffix, broken (with line and column), or not a table of options.
    """
    found = Path(path).suffix.lower() if suffix is None else suffix
    if found not in _READERS:
        what = f'cannot tell the format from the suffix "{shown(found)}"'
        raise ConfigError(what, path, "name it .toml, .yaml or .json")
    check_size(text, path)
    document = _READERS[found](text, path)
    check_values(document.values, document.places, path)
    return document


def read_yaml_documents(path: str) -> list[Any]:
    """All documents of a YAML file, as plain values: tables, lists, texts and numbers.

    Raises:
        ConfigError: unreadable, broken (with line and column), or more than a file of options may hold.
    """
    return parse_yaml_documents(read_text(path, error=ConfigError), path)


def parse_yaml_documents(text: str, source: str, quoted: type[str] = str) -> list[Any]:
    """As `read_yaml_documents`, of a text.

    Args:
        text: of the file.
        source: its name, for errors.
        quoted: what becomes of texts in quotes, where it matters that they were.

    Raises:
        ConfigError: broken (with line and column), or more than a file of options may hold.
    """
    from ruamel.yaml import YAML

    check_size(text, source)
    check_yaml(text, source)
    yaml = YAML(typ="rt")
    yaml.preserve_quotes = quoted is not str
    return _parsed(source, lambda: [_unwrapped(each, quoted) for each in yaml.load_all(text)])


def scalar_texts(text: str) -> dict[KeyPath, str]:
    """The scalars of a YAML text as they are written, without quotes, by the path of keys that leads to each.

    What reads as the number 1.1 may have been written as the version 1.10, which only this tells. Items of lists have
    their number, from 0, as their key; keys that a merge (``<<``) brings are not among them. The text has to be one
    that `read_document` reads.
    """
    from ruamel.yaml import YAML

    found: dict[KeyPath, str] = {}

    def walk(node: Any, path: KeyPath) -> None:
        if isinstance(node.value, str):
            found[path] = node.value
        elif node.id == "mapping":
            for key, value in node.value:
                walk(value, (*path, str(key.value)))
        else:
            for number, item in enumerate(node.value):
                walk(item, (*path, str(number)))

    root = YAML(typ="rt").compose(text)
    if root is not None:
        walk(root, ())
    return found


def _toml(text: str, source: str) -> Document:
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        message = str(problem)
        match = _TOML_PLACE.search(message)
        line, column = LineIndex(text).place(len(text))
        if match and match[1]:
            line, column = int(match[1]), int(match[2])
        what = _TOML_PLACE.sub("", message)
        raise ConfigError(f"broken TOML: {what}", f"{source}:{line}:{column}", "correct it there") from None
    except RecursionError:
        raise ConfigError("broken TOML: nested too deeply", source, None) from None
    except ValueError:
        # Python puts a bound on the digits of a number, and TOML's own is 64 bits.
        digits = re.search(r"[0-9_]{4000,}", text)
        line, column = LineIndex(text).place(digits.start() if digits else 0)
        raise ConfigError("this number has too many digits", f"{source}:{line}:{column}", "correct it there") from None
    places: dict[KeyPath, tuple[int, int]] = {}
    for path, place in _toml_places(text):
        places.setdefault(path, place)
    return Document(source, values, places)


def _toml_places(text: str) -> Iterator[tuple[KeyPath, tuple[int, int]]]:
    table: KeyPath = ()
    number_in_list: dict[KeyPath, int] = {}
    long_string = ""
    for number, line in enumerate(text.split("\n"), start=1):
        if not long_string and (match := _TOML_LINE.match(line)):
            name = "table" if match["table"] else "key"
            parts = tuple(part.strip("\"'") for part in re.findall(_TOML_PART, match[name]))
            path = parts if name == "table" else (*table, *parts)
            table = parts if name == "table" else table
            if name == "table" and line.lstrip().startswith("[["):
                # A table of a list has its number, from 0, as its key.
                number_in_list[parts] = number_in_list.get(parts, -1) + 1
                yield parts, (number, match.start(name) + 1)
                path = table = (*parts, str(number_in_list[parts]))
            for length in range(1, len(path) + 1):
                yield path[:length], (number, match.start(name) + 1)
        for quote in _TOML_LONG.findall(line):
            if not long_string or quote == long_string:
                long_string = "" if long_string else quote


class _Twice(Exception):
    """A key is there twice; JSON's readers take the last one, and which was meant nobody knows."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(next(name for number, name in enumerate(names) if name in names[:number]))
    return made


def _json(text: str, source: str) -> Document:
    try:
        values = json.loads(text, object_pairs_hook=_once)
    except _Twice as problem:
        name = problem.args[0]
        found = list(re.finditer(rf"{re.escape(json.dumps(name))}\s*:", text))
        # Where other objects have the name as well, which of them it is cannot be told from the name.
        place = LineIndex(text).place(found[1].start()) if len(found) == 2 else None
        where = f"{source}:{place[0]}:{place[1]}" if place else source
        raise ConfigError(f'the key "{shown(name)}" is given twice in one object', where, "give it once") from None
    except json.JSONDecodeError as problem:
        where = f"{source}:{problem.lineno}:{problem.colno}"
        raise ConfigError(f"broken JSON: {problem.msg}", where, "correct it there") from None
    except (ValueError, RecursionError) as problem:
        raise ConfigError(f"broken JSON: {problem}", source, None) from None
    if not isinstance(values, dict):
        raise ConfigError(f"this is {shown(values)}, not an object of options", source, 'write {"option": value}')
    places = _json_places(text) if "[" in text and len(text) < _SMALL else {}
    index = LineIndex(text)
    for match in re.finditer(r'"((?:[^"\\]|\\.)*)"\s*:', text):
        places.setdefault((match[1],), index.place(match.start()))
    return Document(source, values, places)


def _json_places(text: str) -> dict[KeyPath, tuple[int, int]]:
    """Places by the YAML reader, which knows those of nested keys: JSON is YAML, but for tabs and other rarities."""
    try:
        return dict(_yaml(text, "").places)
    except ConfigError:
        return {}


def _yaml(text: str, source: str) -> Document:
    from ruamel.yaml import YAML

    check_yaml(text, source)
    values = _parsed(source, lambda: YAML(typ="rt").load(text))
    if values is None:
        return Document(source, {})
    if not isinstance(values, dict):
        raise ConfigError("this is not a table of options", source, "write option: value")
    places = dict(_yaml_places(values, ()))
    return Document(source, _unwrapped(values), places)


def _parsed(source: str, load: Callable[[], T]) -> T:
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return load()
    except MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        where = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
        what = (problem.problem or problem.context or "not YAML").split("\n")[0]
        raise ConfigError(f"broken YAML: {what}", where, "correct it there") from None
    except (YAMLError, ValueError, RecursionError) as problem:
        raise ConfigError(f"broken YAML: {shown(str(problem), 120)}", source, "correct it there") from None


def _yaml_places(values: Any, above: KeyPath) -> Iterator[tuple[KeyPath, tuple[int, int]]]:
    for key, value in values.items():
        path = (*above, str(key))
        try:
            line, column = values.lc.key(key)
        except (AttributeError, KeyError, TypeError):  # a key that a merge brought has no place of its own
            line, column = values.lc.line, values.lc.col
        yield path, (line + 1, column + 1)
        yield from _yaml_below(value, path)


def _yaml_below(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, tuple[int, int]]]:
    """Places inside a value; an item of a list has its number, from 0, as its key."""
    if isinstance(value, dict) and hasattr(value, "lc"):
        yield from _yaml_places(value, path)
    elif isinstance(value, list) and hasattr(value, "lc"):
        for number, item in enumerate(value):
            line, column = value.lc.item(number)
            yield (*path, str(number)), (line + 1, column + 1)
            yield from _yaml_below(item, (*path, str(number)))


def _unwrapped(value: Any, quoted: type[str] = str) -> Any:
    """Plain Python values: the YAML library's own carry comments and formats."""
    from ruamel.yaml.scalarstring import ScalarString

    if isinstance(value, dict):
        return {str(key): _unwrapped(item, quoted) for key, item in value.items()}
    if isinstance(value, list):
        return [_unwrapped(item, quoted) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, ScalarString):
        return quoted(value)
    for plain in (int, float, str):
        if isinstance(value, plain):
            return plain(value)
    # A scalar with a tag of its own (``!!str 2``) is its text.
    return value.value if type(value).__name__ == "TaggedScalar" else value


_READERS: Final[dict[str, Callable[[str, str], Document]]] = {
    ".toml": _toml,
    ".yaml": _yaml,
    ".yml": _yaml,
    ".json": _json,
}
