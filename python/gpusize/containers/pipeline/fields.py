"""A definition's values one by one, each with its place: what is not understood is an error and never ignored."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from gpusize.base.documents import Document, KeyPath, read_document, scalar_texts
from gpusize.base.errors import ConfigError
from gpusize.base.text import did_you_mean, read_text, shown

__all__ = ["Fields", "Node", "as_bytes", "read_root"]

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,255}")
_BYTES: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?)\s*([kmgt]?)(i?b)?", re.IGNORECASE)
_FACTORS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

T = TypeVar("T")

Resolve = Callable[[str, str], str]
"""From a text as written and its place to the text that is meant."""


def as_bytes(text: str) -> int | None:
    """Bytes of Docker's notation: ``64m``, ``1.5g``, ``512MiB``, a number alone; factors of 1,024. None if it is none.

    Source: the Compose specification's byte values.
    """
    match = _BYTES.fullmatch(text.strip())
    return round(float(match[1]) * _FACTORS[match[2].lower()]) if match else None


def read_root(path: Path | str, *, error: type[ConfigError] = ConfigError) -> Node:
    """The top of a definition file.

    Raises:
        ConfigError: unreadable, or broken YAML with line and column.
    """
    source = str(path)
    try:
        document = read_document(source, ".yaml")
        return Node(document, (), document.values, scalar_texts(read_text(source, error=error)))
    except RecursionError:
        raise ConfigError("broken YAML: nested too deeply, or in itself", source, "write it out") from None


def _as_written(text: str, _where: str) -> str:
    return text


@dataclass(frozen=True)
class Node:
    """One value of a definition and its place.

    Args:
        document: the file.
        path: the keys that lead to it.
        value: what it is.
        texts: scalars of the file as they are written.
        resolve: fills placeholders in.
    """

    document: Document
    path: KeyPath
    value: Any
    texts: Mapping[KeyPath, str]
    resolve: Resolve = _as_written

    @property
    def where(self) -> str:
        """File, line and column; of what stands around it where it has no place of its own."""
        for length in range(len(self.path), 0, -1):
            if self.path[:length] in self.document.places:
                return self.document.where(*self.path[:length])
        return self.document.source

    @property
    def what(self) -> str:
        """Its key, for messages."""
        name = shown(next((key for key in reversed(self.path) if not key.isdigit()), "the file"))
        return f"an item of {name}" if self.path and self.path[-1].isdigit() else name

    def resolved_by(self, resolve: Resolve) -> Node:
        """The same with another way to fill placeholders in."""
        return Node(self.document, self.path, self.value, self.texts, resolve)

    def wrong(self, expected: str) -> ConfigError:
        """The error that this is something else than expected."""
        return ConfigError(f"{self.what} is {shown(self.value)}, not {expected}", self.where, "correct it there")

    def below(self, key: str, value: Any) -> Node:
        """A value inside this one."""
        return Node(self.document, (*self.path, key), value, self.texts, self.resolve)

    def fields(self) -> Fields:
        """This as a table.

        Raises:
            ConfigError: it is none.
        """
        if not isinstance(self.value, dict):
            raise self.wrong("a table")
        return Fields({key: self.below(key, value) for key, value in self.value.items()}, self.where, self.what)

    def items(self) -> list[Node]:
        """This as a list.

        Raises:
            ConfigError: it is none.
        """
        if not isinstance(self.value, list):
            raise self.wrong("a list")
        return [self.below(str(number), value) for number, value in enumerate(self.value)]

    def text(self) -> str:
        """This as a text: numbers as they are written, with placeholders filled in.

        Raises:
            ConfigError: it is no plain value, or there is none.
        """
        if self.value is None or isinstance(self.value, dict | list):
            raise self.wrong("a text")
        written = self.texts.get(self.path)
        return self.resolve(str(self.value) if written is None else written, self.where)

    def name(self) -> str:
        """This as a name of letters, digits, hyphens and underscores.

        Raises:
            ConfigError: it is none.
        """
        text = self.text()
        if not _NAME.fullmatch(text):
            raise ConfigError(
                f'{self.what} is "{shown(text)}"', self.where, "a name has letters, digits, - and _, up to 255 of them"
            )
        return text

    def place(self) -> str:
        """This as an absolute path inside a container.

        Raises:
            ConfigError: it is not absolute, leads upwards, or is the root.
        """
        text = self.text()
        parts = text.split("/")
        if not text.startswith("/") or ".." in parts or not any(parts):
            raise ConfigError(f'the path "{shown(text)}" cannot be mounted', self.where, "write one such as /input")
        return text

    def whole(self, least: int = 0, most: int | None = None) -> int:
        """This as a whole number.

        Raises:
            ConfigError: it is none, or out of range.
        """
        text = self.text().strip()
        span = f"a whole number of {least} or more" if most is None else f"a whole number from {least} to {most}"
        if not re.fullmatch(r"[0-9]{1,18}", text) or not least <= int(text) <= (most or 10**18):
            raise self.wrong(span)
        return int(text)

    def number(self) -> float:
        """This as a number above 0.

        Raises:
            ConfigError: it is none.
        """
        text = self.text().strip()
        if not re.fullmatch(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", text) or float(text) <= 0:
            raise self.wrong("a number above 0")
        return float(text)

    def size(self) -> int:
        """This as a size in bytes.

        Raises:
            ConfigError: it is none.
        """
        size = as_bytes(self.text())
        if not size:
            raise self.wrong("a size such as 64m or 2g")
        return size

    def flag(self) -> bool:
        """This as true or false.

        Raises:
            ConfigError: it is neither.
        """
        text = self.text().strip().lower()
        if text not in {"true", "false"}:
            raise self.wrong("true or false")
        return text == "true"

    def words(self) -> tuple[str, ...]:
        """This as the words of a command: a list, or a text that is split as a shell does.

        Raises:
            ConfigError: it is neither.
        """
        if isinstance(self.value, list):
            return tuple(item.text() for item in self.items())
        import shlex

        try:
            return tuple(shlex.split(self.text()))
        except ValueError as problem:
            raise ConfigError(
                f"{self.what} cannot be split into words: {problem}", self.where, "write it as a list"
            ) from None

    def one_or_more(self) -> list[str]:
        """This as texts: a list of them, or one.

        Raises:
            ConfigError: one is no plain value.
        """
        return [item.text() for item in self.items()] if isinstance(self.value, list) else [self.text()]

    def variables(self) -> dict[str, str]:
        """This as environment variables: a table of plain values. No value stands for the empty text.

        Raises:
            ConfigError: it is none.
        """
        if self.value is None:
            return {}
        found = {}
        for key, node in self.fields().nodes.items():
            if not key or "=" in key or "\0" in key:
                raise ConfigError(f'"{shown(key)}" is not a valid variable name', node.where, "leave out = in it")
            found[key] = "" if node.value is None else node.text()
        return found


@dataclass(frozen=True)
class Fields:
    """The keys of a table.

    Args:
        nodes: values by key; they may come from several files.
        where: the place of the table.
        what: its name, for messages.
    """

    nodes: Mapping[str, Node]
    where: str
    what: str

    def only(self, known: Collection[str], left: Mapping[str, str] | None = None) -> None:
        """Refuse keys that are not known.

        Args:
            known: the keys that are.
            left: keys that the form has and that are not supported, each with what to do.

        Raises:
            ConfigError: at the first such key.
        """
        for key, node in self.nodes.items():
            if key in known:
                continue
            if left is not None and key in left:
                raise ConfigError(f'"{key}" is not supported', node.where, left[key])
            todo = did_you_mean(key, known, f"known here are {', '.join(sorted(known))}")
            raise ConfigError(f'"{shown(key)}" is not supported in {self.what}', node.where, todo)

    def get(self, key: str) -> Node | None:
        """The value of a key; None where the key is missing or has no value."""
        node = self.nodes.get(key)
        return None if node is None or node.value is None else node

    def read(self, key: str, as_: Callable[[Node], T]) -> T | None:
        """The value of a key, read by one of `Node`'s methods; None where the key is missing or has no value."""
        node = self.get(key)
        return None if node is None else as_(node)

    def need(self, key: str) -> Node:
        """The value of a key.

        Raises:
            ConfigError: there is none.
        """
        node = self.get(key)
        if node is None:
            raise ConfigError(f"{self.what} has no {key}", self.where, f"add {key}: …")
        return node

    def list_of(self, key: str) -> list[Node]:
        """The items of a list; none where there is no such key."""
        node = self.get(key)
        return [] if node is None else node.items()

    def over(self, other: Fields) -> Fields:
        """These fields and, where a key is missing here, those of another table."""
        return Fields({**other.nodes, **self.nodes}, self.where, self.what)

    def without(self, *keys: str) -> Fields:
        """These fields without some."""
        return Fields({key: node for key, node in self.nodes.items() if key not in keys}, self.where, self.what)

    def __iter__(self) -> Iterator[tuple[str, Node]]:
        return iter(self.nodes.items())

    def __contains__(self, key: str) -> bool:
        return key in self.nodes
