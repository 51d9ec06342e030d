"""Bodies with placeholders for the fields of a dataset row.

    {"model": "m", "prompt": "Answer shortly: ${question}", "history": ${messages}, "max_tokens": ${limit:json}}

- ``${name}`` inside a JSON string: the field's text, escaped as JSON; numbers, lists and objects as their JSON text.
- ``${name}`` elsewhere: the field as a JSON value; a text comes with its quotes.
- ``${name:json}`` elsewhere: the field is a text that holds JSON (a CSV cell, say), and is put in as that value.
- ``${answer:-1}``: what the server answered in the turn before, in the same conversation; ``-2`` the turn before that.
  A text inside a JSON string or instead of one; empty where no answer came before.
- ``$${`` stands for ``${``.

A template whose content type is not JSON is plain text: ``${name}`` is the field's text as it is. In a form
(``application/x-www-form-urlencoded``, ``q=${question}&n=${limit}``) it is percent-encoded.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import quote_plus

from gpusize.base.errors import DatasetError, UsageError
from gpusize.base.text import LineIndex, is_file, read_text, shown
from gpusize.targets.apis.base import Segment, encode_json, row_error
from gpusize.targets.apis.history import EarlierResponse
from gpusize.workload.dataset import Row

__all__ = ["BodyTemplate", "Placeholder", "Quoting"]

Quoting = Literal["json", "form", "plain"]
"""How a template's content type wants a text to be written."""

_Mode = Literal["text", "value", "json", "form", "raw"]
_TOKEN: Final = re.compile(r'\$\$\{|\$\{(?P<name>[^}"\n]*)(?P<close>\}?)|\\.|"', re.DOTALL)
_NAME: Final = re.compile(r"\s*(?P<name>[^:]+?)\s*(?::\s*(?P<modifier>[a-z]*)\s*)?")
_ANSWER: Final = re.compile(r"\s*answer\s*:\s*-(?P<back>[1-9]\d{0,4})\s*")


@dataclass(frozen=True)
class Placeholder:
    """A place in a template that a row fills.

    Args:
        name: the row's field.
        mode: text inside a JSON string, a JSON value, text that holds JSON, a form's value, or text as it is.
        where: file, line and column.
    """

    name: str
    mode: _Mode
    where: str

    def fill(self, row: Row) -> bytes:
        """The bytes that ``row`` puts here.

        Raises:
            DatasetError: the row has no such field, or it does not fit here.
        """
        if self.name not in row.fields:
            names = ", ".join(f'"{shown(name)}"' for name in row.fields) or "none"
            raise DatasetError(
                f'row {row.index} has no field "{shown(self.name)}"; it has {names}', self.where, "name one of these"
            )
        value = row.fields[self.name]
        try:
            return self._encode(value)
        except (TypeError, ValueError) as problem:
            raise row_error(
                row, f'cannot fill "{shown(self.name)}": {problem}', f"see the template at {self.where}"
            ) from None

    def _encode(self, value: Any) -> bytes:
        if self.mode == "json":
            if not isinstance(value, str):
                return encode_json(value)
            try:
                return encode_json(json.loads(value))
            except (ValueError, RecursionError):
                raise ValueError(f'"{shown(value)}" is not JSON') from None
        if self.mode == "value":
            return encode_json(value)
        if value is None:
            raise ValueError("it is null, which is not a text")
        text = value if isinstance(value, str) else encode_json(value).decode()
        if self.mode == "form":
            return quote_plus(text).encode()
        return encode_json(text)[1:-1] if self.mode == "text" else text.encode()


class BodyTemplate:
    """A parsed template.

    Args:
        parts: static texts, placeholders for fields and places for earlier answers, in order.
    """

    def __init__(self, parts: list[str | Placeholder | EarlierResponse]) -> None:
        self.parts = parts
        self._placeholders = [part for part in parts if isinstance(part, Placeholder)]

    @classmethod
    def read(cls, template: str, *, quoting: Quoting = "json") -> BodyTemplate:
        """A template from text that begins with ``{``, ``[`` or ``"``, or else from the file of that name.

        A form's template that has a ``=`` and names no file is text as well.

        Raises:
            UsageError: no such file, or not a template, with line and column.
        """
        if template.lstrip()[:1] in {"{", "[", '"'}:
            return cls.parse(template, "body template", quoting=quoting)
        if quoting == "form" and "=" in template and not is_file(template):
            return cls.parse(template, "body template", quoting=quoting)
        return cls.parse(read_text(template), template, quoting=quoting)

    @classmethod
    def parse(cls, text: str, source: str = "body template", *, quoting: Quoting = "json") -> BodyTemplate:
        """Parse a template.

        Raises:
            UsageError: a placeholder that is not one, or not JSON around them; with line and column.
        """
        index = LineIndex(text)
        parts: list[str | Placeholder | EarlierResponse] = []
        literal, sample, position, in_string = "", "", 0, False
        for match in _TOKEN.finditer(text):
            between = text[position : match.start()]
            position = match.end()
            literal, sample = literal + between, sample + between
            if match["name"] is not None:
                where = "{}:{}:{}".format(source, *index.place(match.start()))
                made = _placeholder(match, where, in_string=in_string, quoting=quoting)
                literal, after = (
                    (f'{literal}"', '"') if isinstance(made, EarlierResponse) and not in_string else (literal, "")
                )
                parts += [literal, made]
                literal = after
                # As long as the placeholder, so that a mistake after it is reported at its own column.
                sample += "x" * len(match[0]) if in_string else "0".ljust(len(match[0]))
            else:
                literal += "${" if match[0] == "$${" else match[0]
                sample += match[0]
                in_string ^= match[0] == '"'
        literal, sample = literal + text[position:], sample + text[position:]
        if quoting == "json":
            _check_json(sample, source, index)
        return cls([part for part in [*parts, literal] if part])

    def segments(self) -> list[Segment]:
        """The engine's segments."""
        result: list[Segment] = []
        for part in self.parts:
            if isinstance(part, str):
                result.append({"static": part})
            elif isinstance(part, EarlierResponse):
                result.append(part.segment)
            else:
                result.append({"field": self._placeholders.index(part)})
        return result

    def fields(self, row: Row) -> list[bytes]:
        """The bytes of ``row`` for each placeholder.

        Raises:
            DatasetError: the row lacks a field, or it does not fit.
        """
        return [placeholder.fill(row) for placeholder in self._placeholders]


def _placeholder(
    match: re.Match[str], where: str, *, in_string: bool, quoting: Quoting
) -> Placeholder | EarlierResponse:
    if not match["close"]:
        raise UsageError("this placeholder is not closed", where, "close it with }, or write $${ for ${")
    answer = _ANSWER.fullmatch(match["name"])
    if answer is not None:
        if quoting != "json":
            raise UsageError("an earlier answer is escaped as in JSON", where, "use a JSON body, or leave it out")
        return EarlierResponse(int(answer["back"]))
    parsed = _NAME.fullmatch(match["name"])
    if parsed is None or parsed["modifier"] not in {None, "json"}:
        raise UsageError(
            f"{shown(match[0])} is not a placeholder", where, "write ${field}, ${field:json} or ${answer:-1}"
        )
    name = parsed["name"]
    if quoting != "json":
        return Placeholder(name, "form" if quoting == "form" else "raw", where)
    if parsed["modifier"] == "json":
        if in_string:
            raise UsageError(f"{shown(match[0])} stands inside quotes", where, "a JSON value stands outside of quotes")
        return Placeholder(name, "json", where)
    return Placeholder(name, "text" if in_string else "value", where)


def _check_json(sample: str, source: str, index: LineIndex) -> None:
    try:
        json.loads(sample)
    except json.JSONDecodeError as problem:
        line, column = index.place(problem.pos)
        raise UsageError(
            f"the template is not JSON: {problem.msg}", f"{source}:{line}:{column}", "check it around this column"
        ) from None
    except (ValueError, RecursionError) as problem:
        raise UsageError(f"the template is not JSON: {problem}", source, None) from None
