"""Bounds on what a configuration file may make of itself: size, depth, aliases that multiply, tags, numbers.

An alias (``*name``) stands for all of its anchor, and anchors may hold aliases: nine lines can stand for a thousand
million values. What a text expands to is counted from its events, before anything is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpusize.base.errors import ConfigError
from gpusize.base.text import shown, well_formed

__all__ = ["MOST_CHARACTERS", "MOST_DEPTH", "MOST_NODES", "check_size", "check_values", "check_yaml"]

MOST_CHARACTERS: Final = 1 << 24
"""Of a file: 16 Mi."""
MOST_NODES: Final = 200_000
"""Of the values that a text with aliases stands for, each alias with all that it repeats."""
MOST_ALIASES: Final = 10_000
MOST_DEPTH: Final = 64
MOST_BITS: Final = 64

_CORE: Final = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq"))


def check_size(text: str, source: str) -> None:
    """Refuse a file that is too large to be one of options.

    Raises:
        ConfigError: it is.
    """
    if len(text) > MOST_CHARACTERS:
        what = f"this file has more than {MOST_CHARACTERS >> 20} Mi characters"
        raise ConfigError(what, source, "keep data in a dataset, and options here")


def check_yaml(text: str, source: str) -> None:
    """Refuse aliases that multiply, or that stand inside what they repeat, nesting that is too deep, and other tags.

    Raises:
        ConfigError: with line and column. Text that is no YAML at all passes: its reader says what is wrong.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    events = YAML(typ="rt").parse(text)
    counter = _Counter(source)
    try:
        for event in events:
            counter.see(event)
    except ConfigError:
        raise
    except (YAMLError, ValueError, RecursionError):
        return


class _Counter:
    """Counts the values that a stream of events stands for."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._sizes: dict[str, int] = {}
        self._open: list[tuple[str | None, int]] = []
        self._nodes = 0
        self._aliases = 0

    def see(self, event: Any) -> None:
        kind = type(event).__name__
        if kind == "AliasEvent":
            self._aliases += 1
            size = self._sizes.get(event.anchor)
            if size is None and any(anchor == event.anchor for anchor, _ in self._open):
                raise self._fail(event, f"*{shown(event.anchor)} stands inside its own anchor")
            self._nodes += size or 1
        elif kind.endswith("StartEvent") and kind.startswith(("Mapping", "Sequence")):
            self._check_tag(event)
            self._nodes += 1
            self._open.append((event.anchor, self._nodes - 1))
            if len(self._open) > MOST_DEPTH:
                raise self._fail(event, f"nested deeper than {MOST_DEPTH} levels")
        elif kind.endswith("EndEvent") and kind.startswith(("Mapping", "Sequence")):
            anchor, before = self._open.pop()
            if anchor is not None:
                self._sizes[anchor] = self._nodes - before
        elif kind == "ScalarEvent":
            self._check_tag(event)
            self._nodes += 1
            if event.anchor is not None:
                self._sizes[event.anchor] = 1
        if self._aliases and (self._nodes > MOST_NODES or self._aliases > MOST_ALIASES):
            raise self._fail(event, f"its aliases expand to more than {MOST_NODES:,} values")

    def _check_tag(self, event: Any) -> None:
        tag = event.tag
        if tag is not None and str(tag) not in _CORE and str(tag) != "!":
            raise self._fail(event, f"the tag {shown(str(tag))} is not taken")

    def _fail(self, event: Any, what: str) -> ConfigError:
        mark = event.start_mark
        return ConfigError(what, f"{self._source}:{mark.line + 1}:{mark.column + 1}", "write the values out")


def check_values(value: Any, where: Mapping[tuple[str, ...], tuple[int, int]], source: str) -> None:
    """Refuse values that nothing takes: whole numbers beyond 64 bits, half a character, nesting without end.

    Raises:
        ConfigError: with line and column as far as they are known.
    """
    left: list[tuple[tuple[str, ...], Any]] = [((), value)]
    while left:
        path, each = left.pop()
        what = None
        if isinstance(each, dict):
            left += [((*path, str(key)), inner) for key, inner in each.items()]
            what = "half a character" if any(well_formed(str(key)) != str(key) for key in each) else None
        elif isinstance(each, list):
            left += [((*path, str(number)), inner) for number, inner in enumerate(each)]
        elif isinstance(each, int) and each.bit_length() > MOST_BITS:
            what = f"a whole number of more than {MOST_BITS} bits"
        elif isinstance(each, str) and well_formed(each) != each:
            what = "half a character (a lone surrogate)"
        if len(path) > MOST_DEPTH:
            what = f"values nested deeper than {MOST_DEPTH} levels"
        if what is not None:
            place = next((where[path[:n]] for n in range(len(path), 0, -1) if path[:n] in where), None)
            at = source if place is None else f"{source}:{place[0]}:{place[1]}"
            raise ConfigError(f"this holds {what}", at, "correct it there")
