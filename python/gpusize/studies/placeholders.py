"""Placeholders in the texts of a study: ``{instances}`` becomes the value that a combination gives it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any, Final

from gpusize.base.errors import ConfigError
from gpusize.base.text import shown

__all__ = ["Scalar", "fill", "fill_words", "split_command", "unknown_names"]

Scalar = str | int | float | bool
"""What a setting may be."""

_NAME: Final = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}")


def fill(value: Any, names: Mapping[str, Scalar]) -> Any:
    """``value`` with every placeholder in its texts filled in, in lists and tables too.

    A text that is one placeholder and nothing else takes the setting's own type. ``{{`` and ``}}`` stand for braces;
    braces around anything but a name stay as they are.

    Args:
        value: any value of a configuration file; all its placeholders are known, as `unknown_names` has shown.
        names: what the placeholders stand for.
    """
    if isinstance(value, str):
        whole = _NAME.fullmatch(value)
        if whole and whole[1]:
            return names[whole[1]]
        return _NAME.sub(lambda found: _text(names[found[1]]) if found[1] else found[0][0], value)
    if isinstance(value, Mapping):
        return {key: fill(item, names) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [fill(item, names) for item in value]
    return value


def fill_words(words: tuple[str, ...], names: Mapping[str, Scalar]) -> list[str]:
    """The words of a command; a value never becomes several words."""
    return [_text(fill(word, names)) for word in words]


def unknown_names(value: Any, names: Mapping[str, Scalar] | set[str]) -> list[str]:
    """Placeholders in ``value`` that nothing is known for, in order."""
    if isinstance(value, str):
        return [found[1] for found in _NAME.finditer(value) if found[1] and found[1] not in names]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [name for item in value for name in unknown_names(item, names)]
    return []


def split_command(text: str, where: str) -> tuple[str, ...]:
    """The words of a command line, as a shell would split them; nothing else of a shell is done.

    Raises:
        ConfigError: an open quote, or no word at all.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as problem:
        raise ConfigError(f"the command {shown(text)} cannot be split: {problem}", where, "close its quotes") from None
    if not words:
        raise ConfigError("the command is empty", where, "leave it out, or name a program")
    return words


def _text(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
