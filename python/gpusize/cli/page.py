"""What ``--help`` shows: plain text, laid out for the width of the terminal."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from gpusize.options.table import ALIASES

__all__ = ["Panel", "bold", "command_page", "commands_page", "panels_of"]

ARGUMENTS: Final = "Arguments"
OPTIONS_PANEL: Final = "Options"
_LEAST, _MOST = 60, 120
_COLUMN: Final = 30
"""Names that are longer stand on a line of their own."""
_SHORT_EXAMPLES: Final = 3
_HARD: Final = "\xa0"
"""A space at which no line is broken; textwrap knows it as no space."""
_STAND_INS: Final = {int: "N", float: "X", Path: "PATH", str: "TEXT"}


class Row(NamedTuple):
    """An option, an argument or a command: how it is written, and what it does."""

    written: str
    text: str
    name: str
    common: bool = False


class Panel(NamedTuple):
    """Rows under a title; its first word is the name that ``--help`` takes."""

    title: str
    rows: list[Row]

    @property
    def name(self) -> str:
        """What ``--help`` takes."""
        return re.split(r"\W", self.title, maxsplit=1)[0].lower()


def bold(text: str) -> str:
    """Bold on a terminal, plain elsewhere."""
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty()
    return text if plain else f"\x1b[1m{text}\x1b[0m"


def panels_of(params: Iterable[Any], common: Iterable[str]) -> list[Panel]:
    """Options and arguments under the titles that they were given, in order; those without one come last."""
    found: dict[str, list[Row]] = {}
    shown = set(common)
    for param in params:
        if not param.hidden:
            usual = OPTIONS_PANEL if param.param_type_name == "option" else ARGUMENTS
            name = param.name.strip("_")
            row = Row(_written(param), _explained(param), name, name in shown)
            found.setdefault(param.rich_help_panel or usual, []).append(row)
    last = found.pop(OPTIONS_PANEL, None)
    return [Panel(title, rows) for title, rows in found.items()] + ([Panel(OPTIONS_PANEL, last)] if last else [])


def _written(param: Any) -> str:
    if param.param_type_name == "argument":
        name = param.metavar or f"{param.name.upper()}{'' if param.nargs == 1 else '...'}"
        return name if param.required or name.startswith("[") else f"[{name}]"
    names = [name for name in param.opts if name not in ALIASES]
    names.sort(key=len)
    if param.is_flag:
        return ", ".join(names + param.secondary_opts)
    return f"{', '.join(names)} {param.metavar or _stand_in(param)}"


def _stand_in(param: Any) -> str:
    kind = param.type_descriptor.annotation
    return _STAND_INS.get(next(iter(getattr(kind, "__args__", ())), kind), "TEXT")


def _explained(param: Any) -> str:
    marks = []
    if param.multiple:
        marks.append("[repeatable]")
    if isinstance(param.show_default, str):
        marks.append(f"[default: {param.show_default}]")
    elif param.required and param.param_type_name == "option":
        marks.append("[required]")
    elif param.default is True:
        marks.append("[default: on]")
    elif param.show_default and param.default not in (None, False, (), [], ""):
        marks.append(f"[default: {param.default}]")
    # A mark is not broken over two lines where it fits on one.
    return " ".join([param.help or "", *(mark.replace(" ", _HARD) if len(mark) < _COLUMN else mark for mark in marks)])


def command_page(
    command: Any, path: str, panels: Sequence[Panel], *, word: str | None = None, everything: bool = True
) -> str:
    """The help of a command.

    Args:
        command: of typer.
        path: the words that call it.
        panels: its options and arguments.
        word: a group's name or an option's, to be shown alone.
        everything: whether all options are shown, or the common ones and the names of the groups.
    """
    width = _width()
    arguments = [row.written for panel in panels if panel.title == ARGUMENTS for row in panel.rows]
    lines = [f"{bold('Usage:')} {' '.join([path, '[OPTIONS]', *arguments])}", ""]
    if word is not None:
        found = _of_word(panels, word)
        return "\n".join([*lines, *_sections(found, width)])
    lines += [*_prose(command.help or "", width), ""]
    if everything:
        lines += _sections(panels, width)
    else:
        lines += _sections([Panel(title, [row for row in rows if row.common]) for title, rows in panels], width)
        lines += _groups(panels, width, path)
    lines += _examples(command.epilog or "", width, None if everything else _SHORT_EXAMPLES)
    return "\n".join(lines)


def commands_page(group: Any, path: str, panels: Sequence[Panel], commands: Iterable[tuple[str, str]]) -> str:
    """The help of a group of commands.

    Args:
        group: of typer.
        path: the words that call it.
        panels: its own options.
        commands: name and first line of help of each of its commands.
    """
    width = _width()
    listed = Panel("Commands", [Row(name, text, name) for name, text in commands])
    lines = [f"{bold('Usage:')} {path} [OPTIONS] COMMAND [ARGS]...", "", *_prose(group.help or "", width), ""]
    lines += [*_sections([listed], width), *_sections(panels, width)]
    lines += _examples(group.epilog or "", width, None)
    return "\n".join(lines)


def _width() -> int:
    return min(max(shutil.get_terminal_size((80, 24)).columns, _LEAST), _MOST)


def _prose(text: str, width: int) -> list[str]:
    return "\n\n".join(textwrap.fill(" ".join(each.split()), width) for each in text.split("\n\n")).splitlines()


def _of_word(panels: Sequence[Panel], word: str) -> list[Panel]:
    """The group, or the option, of this name.

    Raises:
        UsageError: there is neither.
    """
    from gpusize.base.errors import UsageError
    from gpusize.base.text import shown

    plain = word.lstrip("-").replace("-", "_").lower()
    found = [panel for panel in panels if panel.name == plain]
    found = found or [Panel(title, [row for row in rows if row.name == plain]) for title, rows in panels]
    if not any(rows for _, rows in found):
        names = ", ".join(panel.name for panel in panels)
        raise UsageError(f'there is no group or option "{shown(word)}"', "--help", f"groups are {names}")
    return found


def _sections(panels: Iterable[Panel], width: int) -> Iterator[str]:
    shown = [panel for panel in panels if panel.rows]
    longest = max((len(row.written) for panel in shown for row in panel.rows), default=0)
    column = min(longest, _COLUMN)
    for title, rows in shown:
        yield bold(f"{title}:")
        for row in rows:
            yield from _row(row, column, width)
        yield ""


def _row(row: Row, column: int, width: int) -> Iterator[str]:
    gap = " " * (column + 4)
    lines = textwrap.wrap(row.text, width - len(gap), break_on_hyphens=False)
    text = [line.replace(_HARD, " ") for line in lines]
    name = f"  {row.written}"
    if len(name) > len(gap) - 2 or not text:
        yield name
    else:
        yield f"{name:{len(gap)}}{text.pop(0)}"
    for line in text:
        yield gap + line


def _groups(panels: Sequence[Panel], width: int, path: str) -> Iterator[str]:
    """Which groups there are, and the first of the options in each."""
    panels = [panel for panel in panels if panel.title != ARGUMENTS]
    yield bold("All options, by group:")
    column = max(len(panel.name) for panel in panels) + 11
    for panel in panels:
        names = [row.name.replace("_", "-") for row in panel.rows]
        yield f"  {f'--help {panel.name}':{column}}{_as_fit(names, width - column - 2)}"
    yield f"  {'--help-all':{column}}every option of {path}"
    yield f"  {'--help OPTION':{column}}one option, as --help {panels[0].rows[0].name.replace('_', '-')}"
    yield ""


def _as_fit(names: Sequence[str], width: int) -> str:
    """As many of the names as a line has room for."""
    kept = len(names)
    while kept > 1 and len(_listed(names, kept)) > width:
        kept -= 1
    return _listed(names, kept)


def _listed(names: Sequence[str], kept: int) -> str:
    return ", ".join(names[:kept]) + (", ..." if kept < len(names) else "")


def _examples(text: str, width: int, most: int | None) -> Iterator[str]:
    """Examples as they can be copied: what is longer than a line goes on after a backslash, remarks stand above."""
    head, *paragraphs = [" ".join(each.split()) for each in text.split("\n\n")]
    if not paragraphs:
        yield from textwrap.wrap(head, width)
        return
    yield bold(head)
    for place, each in enumerate(paragraphs[:most]):
        if place:
            yield ""
        line, _, remark = each.partition(" # ")
        if remark:
            yield f"  # {remark}"
        yield from _continued(re.split(r" (?=--[a-z])", line), width)


def _continued(words: Sequence[str], width: int) -> Iterator[str]:
    line = f"  {words[0]}"
    for word in words[1:]:
        if len(line) + len(word) + 3 > width:
            yield f"{line} \\"
            line = f"     {word}"
        else:
            line = f"{line} {word}"
    yield line
