"""Mistakes on a command line, in our words: what typer says of them speaks of Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpusize.base.text import shown

if TYPE_CHECKING:
    from typer import TyperException

__all__ = ["mistake"]

_MOST_CHARS = 80


def mistake(error: TyperException, argv: Sequence[str]) -> str:
    """One line that says what is wrong with a command line and what to do.

    Args:
        error: as typer raised it.
        argv: the words.
    """
    # By name: typer keeps its kinds of errors to itself.
    kind, param = type(error).__name__, getattr(error, "param", None)
    option = getattr(error, "option_name", "")
    if kind == "NoSuchOption":
        return _unknown(option, getattr(error, "possibilities", None) or (), getattr(error, "ctx", None))
    if kind == "BadOptionUsage":
        alone = "does not take a value" in error.format_message()
        return f"{option}: it takes no value. Leave the value out" if alone else f"{option}: its value is missing"
    if kind == "MissingParameter" and param is not None:
        name = param.opts[0] if param.param_type_name == "option" else (param.metavar or param.name.upper())
        return f"{name} is missing. See --help"
    if kind == "BadParameter" and param is not None:
        return _no_number(param, argv)
    text = error.format_message().rstrip(".")
    if text.startswith("No such command"):
        return _no_command(text.removeprefix("No such command "))
    if text.startswith("Got unexpected extra argument"):
        return f"nothing is known about {text.partition('(s) ')[2].strip('()')}. Options begin with --; see --help"
    return f"{text}. See --help"


def _no_command(text: str) -> str:
    from gpusize.cli.other_tools import COMMANDS

    # 'profile'. Did you mean 'prove'?
    typed = text.split("'")[1] if text.count("'") > 1 else text
    if typed in COMMANDS:
        return f"there is no command '{typed}'. {COMMANDS[typed]}"
    return f"there is no command {text}{'' if text.endswith('?') else '.'} See gpusize --help"


def _unknown(option: str, near: Sequence[str], ctx: Any) -> str:
    from gpusize.cli.other_tools import ours

    known = set() if ctx is None else {name for each in ctx.command.params for name in each.opts}
    todo = ours(option, known)
    if todo is None:
        close = [name for name in near if name in known]
        todo = f"Did you mean {' or '.join(close)}?" if close else "See --help"
    return f"there is no option {shown(option, _MOST_CHARS)}. {todo}"


def _no_number(param: Any, argv: Sequence[str]) -> str:
    """What a number that is none, or beyond its bounds, may be."""
    from gpusize.base.numeric import LIMITS

    limit = LIMITS.get(param.name)
    least, most = param.min, param.max
    if limit is not None and least is None:
        least, most = limit.least, limit.most
    whole = param.type_descriptor.annotation is int
    between = "" if least is None else f" of {least} or more" if most is None else f" from {least} to {most}"
    kind = "whole " if whole else ""
    if limit is not None and limit.positive and least == limit.least:
        kind, between = "positive ", f" up to {most:.12g}"
    given = _value(param, argv)
    said = "this" if given is None else f'"{shown(given, _MOST_CHARS)}"'
    return f"{param.opts[0]}: {said} is not a {kind}number{between}"


def _value(param: Any, argv: Sequence[str]) -> str | None:
    """What was given for an option; the last one counts."""
    found = None
    for word, after in zip(argv, [*argv[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") in param.opts:
            found = value if equals else after
    return found
