"""Rewrites ``instance_group`` in a ``config.pbtxt``, and leaves every other byte of it as it is.

The text form of protocol buffers is read only as far as that takes: comments, strings, brackets and the fields of one
level. A field is ``name: value``, ``name { … }``, ``name [ … ]`` or ``name < … >``; fields may be separated by ``,`` or
``;``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gpusize.base.errors import ConfigError, UsageError
from gpusize.base.text import LineIndex

__all__ = ["top_level_text", "with_instance_group"]

_TOKEN: Final = re.compile(
    r"""(?P<space>[\s,;]+|\#[^\n]*)"""
    r"""|(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<open>[{\[<])|(?P<close>[}\]>])"""
    r"""|(?P<colon>:)"""
    r"""|(?P<word>[^\s,;:{}\[\]<>"'\#]+)"""
)
_CLOSES: Final = {"{": "}", "[": "]", "<": ">"}
_SET: Final = ("count", "kind", "gpus")
_KINDS: Final = ("KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL")


@dataclass(frozen=True)
class _Field:
    """A field: its name, where it begins and ends, and where its value does."""

    name: str
    start: int
    end: int
    value: int


def with_instance_group(
    text: str, count: int, gpus: Sequence[int] | None = None, kind: str | None = None, *, source: str = "config.pbtxt"
) -> str:
    """The configuration with one instance group of ``count`` instances.

    What else the first group says (name, profile, rate limiter, …) stays; further groups go. A configuration without
    a group gets one at its end.

    Args:
        text: the configuration.
        count: instances; on each GPU, where GPUs are named.
        gpus: the GPUs; empty for instances on the CPU; None keeps ``kind`` and ``gpus`` as they are.
        kind: such as ``KIND_GPU``; None for what ``gpus`` implies.
        source: the file, for error texts.

    Raises:
        ConfigError: the text is broken, with line and column.
        UsageError: invalid values.
    """
    if count < 1 or any(gpu < 0 for gpu in gpus or ()) or len(set(gpus or ())) < len(gpus or ()):
        raise UsageError("invalid instance group", source, "give 1 instance or more, and each GPU once")
    if kind is not None and kind not in _KINDS:
        raise UsageError(f'there is no kind "{kind}"', source, f"use one of {', '.join(_KINDS)}")
    groups = [field for field in _fields(text, 0, len(text), source) if field.name == "instance_group"]
    kept = _kept(text, groups[0], source) if groups else {}
    if gpus is not None:
        kept.pop("kind", None)
        kept.pop("gpus", None)
        kind = kind or ("KIND_GPU" if gpus else "KIND_CPU")
    if kind is not None:
        kept.pop("kind", None)
    lines = [f"count: {count}"]
    lines += [f"kind: {kind}"] if kind else []
    lines += [f"gpus: [ {', '.join(map(str, gpus))} ]"] if gpus else []
    lines += [piece for name in ("kind", "gpus") for piece in kept.pop(name, [])]
    lines += [piece for pieces in kept.values() for piece in pieces]
    made = "instance_group [\n  {\n" + "".join(f"    {line}\n" for line in lines) + "  }\n]"
    if not groups:
        return f"{text.rstrip()}\n{made}\n" if text.strip() else f"{made}\n"
    pieces, position = [], 0
    for number, group in enumerate(groups):
        pieces += [text[position : group.start], made if number == 0 else ""]
        position = group.end
    return "".join([*pieces, text[position:]])


def top_level_text(text: str, name: str, *, source: str = "config.pbtxt") -> str | None:
    """The text of a string field of a configuration, without its quotes; None where there is no such field.

    Args:
        text: the configuration.
        name: the field, such as ``name``.
        source: the file, for error texts.

    Raises:
        ConfigError: the text is broken, with line and column.
    """
    for field in _fields(text, 0, len(text), source):
        if field.name == name:
            return "".join(part[1:-1] for part in re.findall(r""""[^"]*"|'[^']*'""", text[field.value : field.end]))
    return None


def _kept(text: str, group: _Field, source: str) -> dict[str, list[str]]:
    """The texts of the fields of a group, or of the first one in a list, by name and without ``count``."""
    start, end = group.value, group.end
    if text[start] == "[":
        inside = _skip(text, start + 1, source)
        if text[inside] == "]":
            return {}
        start, end = inside, _match(text, inside, source)
    if text[start] not in "{<":
        raise _broken(text, start, source, "an instance group is written in braces")
    kept: dict[str, list[str]] = {}
    for field in _fields(text, start + 1, end - 1, source):
        if field.name != "count":
            # A comment would swallow what follows it on its line.
            kept.setdefault(field.name, []).append(_without_comments(text[field.start : field.end]))
    return kept


def _fields(text: str, start: int, end: int, source: str) -> list[_Field]:
    found = []
    position = _skip(text, start, source)
    while position < end:
        name = _token(text, position, source)
        if name.lastgroup != "word":
            raise _broken(text, position, source, "a field begins with its name")
        value = _skip(text, name.end(), source)
        colon = value < end and text[value] == ":"
        if colon:
            value = _skip(text, value + 1, source)
        if value >= end or (not colon and text[value] not in _CLOSES):
            raise _broken(text, min(value, len(text) - 1), source, f"{name[0]} has no value")
        last = _value_end(text, value, source)
        found.append(_Field(name[0], position, last, value))
        position = _skip(text, last, source)
    return found


def _value_end(text: str, start: int, source: str) -> int:
    token = _token(text, start, source)
    if token.lastgroup == "open":
        return _match(text, start, source)
    if token.lastgroup not in {"word", "string"}:
        raise _broken(text, start, source, "a value is missing")
    end = token.end()
    while token.lastgroup == "string":  # strings side by side are one
        after = _skip(text, end, source)
        if after >= len(text) or text[after] not in "\"'":
            break
        token = _token(text, after, source)
        end = token.end()
    return end


def _match(text: str, start: int, source: str) -> int:
    """The end of the bracket that opens at ``start``."""
    expected: list[str] = []
    position = start
    while position < len(text):
        token = _token(text, position, source)
        if token.lastgroup == "open":
            expected.append(_CLOSES[token[0]])
        elif token.lastgroup == "close":
            if token[0] != expected.pop():
                raise _broken(text, position, source, f'"{token[0]}" closes another bracket')
            if not expected:
                return token.end()
        position = token.end()
    raise _broken(text, start, source, "this bracket is not closed")


def _skip(text: str, position: int, source: str) -> int:
    """Past blanks, separators and comments."""
    while position < len(text):
        token = _token(text, position, source)
        if token.lastgroup != "space":
            break
        position = token.end()
    return position


def _token(text: str, position: int, source: str) -> re.Match[str]:
    match = _TOKEN.match(text, position)
    if match is None:
        raise _broken(text, position, source, "this string is not closed")
    return match


def _without_comments(text: str) -> str:
    pieces = (" " if found[0].startswith("#") else found[0] for found in _TOKEN.finditer(text))
    return "".join(pieces)


def _broken(text: str, position: int, source: str, what: str) -> ConfigError:
    line, column = LineIndex(text).place(position)
    return ConfigError(f"broken configuration of a model: {what}", f"{source}:{line}:{column}", "correct it there")
