"""JSON arrays and JSON Lines as rows, with the line of each row and the place of each mistake."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

from gpusize.base.errors import DatasetError
from gpusize.base.text import LineIndex, shown, without_trailing_commas
from gpusize.workload.dataset.parsed import Parsed, as_row

__all__ = ["parse_document", "parse_json", "parse_jsonl"]

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_STRING_OR_CONSTANT: Final = re.compile(r'"(?:[^"\\]|\\.)*"|NaN|-?Infinity', re.DOTALL)
_STRICT: Final = "write valid JSON; python -m json.tool FILE checks it"
_MAX_COMMA_LINES: Final = 5


class _NotJsonError(ValueError):
    """A constant that Python's parser takes and JSON does not have."""


def _refuse_constant(name: str) -> NoReturn:
    raise _NotJsonError(name)


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)


def parse_json(text: str, source: str) -> Parsed:
    """Rows of a JSON array of objects; trailing commas are accepted and noted.

    Raises:
        DatasetError: not JSON, or not an array of objects.
    """
    index = LineIndex(text)
    clean, commas = without_trailing_commas(text)
    start = _skip_space(clean, 0)
    if start == len(clean):
        raise DatasetError("the dataset is empty", source, "give a JSON array of objects")
    if clean[start] != "[":
        _refuse_top_level(clean, start, source, index)
    rows, lines, end = _array(clean, start, source, index)
    rest = _skip_space(clean, end)
    if rest < len(clean):
        line, column = index.place(rest)
        raise DatasetError(
            "there is more after the end of the array", f"{source}:{line}:{column}", "keep one array in the file"
        )
    return Parsed(rows, lines, _comma_notes(source, [index.line(offset) for offset in commas]))


def parse_document(text: str, source: str) -> Parsed | None:
    """Rows of perf_analyzer's JSON: one object with the rows in ``data``, or that is a row because of ``payload``.

    None for anything else, broken JSON included: other readers say better what is wrong with it.

    Raises:
        DatasetError: ``data`` holds lists, which only tensors do.
    """
    clean, _ = without_trailing_commas(text)
    index = LineIndex(text)
    start = _skip_space(clean, 0)
    offset = _data_offset(clean, start)
    try:
        value, end = _DECODER.raw_decode(clean, start)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or _skip_space(clean, end) < len(clean):
        return None
    if isinstance(value.get("payload"), list):
        return Parsed([value], [index.line(start)])
    if not isinstance(value.get("data"), list) or offset is None:
        return None
    if any(isinstance(row, list) for row in value["data"]):
        line, column = index.place(offset)
        raise DatasetError(
            "this is perf_analyzer's input of tensors",
            f"{source}:{line}:{column}",
            "give it with --input and --api kserve",
        )
    rows, lines, _ = _array(clean, offset, source, index)
    return Parsed(rows, lines)


def _data_offset(text: str, start: int) -> int | None:
    """Where the value of ``data`` begins in the object at ``start``; None when there is none, or it is broken."""
    position = start + 1
    try:
        while True:
            name, position = _DECODER.raw_decode(text, _skip_space(text, position))
            position = _skip_space(text, position)
            if text[position : position + 1] != ":":
                return None
            position = _skip_space(text, position + 1)
            if name == "data":
                return position
            _, position = _DECODER.raw_decode(text, position)
            position = _skip_space(text, position)
            if text[position : position + 1] != ",":
                return None
            position += 1
    except (ValueError, RecursionError):
        return None


def parse_jsonl(text: str, source: str) -> Parsed:
    """Rows of JSON Lines, one object a line; blank lines are skipped, trailing commas are accepted and noted.

    Raises:
        DatasetError: a line that is not one JSON object.
    """
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    comma_lines: list[int] = []
    for number, raw in enumerate(text.split("\n"), start=1):
        if not raw.strip():
            continue
        clean, commas = without_trailing_commas(raw)
        start = _skip_space(clean, 0)
        try:
            value, end = _DECODER.raw_decode(clean, start)
        except (ValueError, RecursionError) as problem:
            place, what = _problem(clean, start, problem)
            if number == 1 and clean.strip() in {"[", "{"}:
                raise DatasetError(
                    "this is one JSON document over several lines, not one object a line",
                    f"{source}:1:1",
                    "name it .json, or say --dataset-format json",
                ) from None
            raise DatasetError(what, f"{source}:{number}:{place + 1}", _STRICT) from None
        rest = _skip_space(clean, end)
        if rest < len(clean):
            raise DatasetError(
                "there is more after the object", f"{source}:{number}:{rest + 1}", "write one object a line"
            )
        rows.append(as_row(value, f"{source}:{number}:{start + 1}", len(rows)))
        lines.append(number)
        comma_lines += [number] * len(commas)
    return Parsed(rows, lines, _comma_notes(source, comma_lines))


def _array(text: str, start: int, source: str, index: LineIndex) -> tuple[list[dict[str, Any]], list[int], int]:
    rows: list[dict[str, Any]] = []
    lines: list[int] = []

    def refuse(what: str, offset: int) -> NoReturn:
        line, column = index.place(offset)
        raise DatasetError(what, f"{source}:{line}:{column}", _STRICT) from None

    position = _skip_space(text, start + 1)
    while text[position : position + 1] != "]":
        try:
            value, end = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError) as problem:
            offset, what = _problem(text, position, problem)
            refuse(what, offset)
        line, column = index.place(position)
        rows.append(as_row(value, f"{source}:{line}:{column}", len(rows)))
        lines.append(line)
        position = _skip_space(text, end)
        following = text[position : position + 1]
        if following == ",":
            position = _skip_space(text, position + 1)
        elif following != "]":
            what = 'expected "," or "]" after this row' if following else "the array is not closed"
            refuse(what, position)
    return rows, lines, position + 1


def _problem(text: str, start: int, problem: Exception) -> tuple[int, str]:
    """Offset and description of what stopped the parser in the value at ``start``."""
    if isinstance(problem, json.JSONDecodeError):
        if problem.msg == "Expecting value":
            found = text[problem.pos : problem.pos + 1]
            return (
                problem.pos,
                f'expected a value, found "{shown(found)}"' if found else "expected a value, found the end",
            )
        return problem.pos, problem.msg[:1].lower() + problem.msg[1:].removesuffix(" at").removesuffix(" starting at")
    if isinstance(problem, _NotJsonError):
        found_at = next(
            (m.start() for m in _STRING_OR_CONSTANT.finditer(text, start) if not m[0].startswith('"')), start
        )
        return found_at, f"{problem} is not JSON"
    if isinstance(problem, RecursionError):
        return start, "this value is nested too deeply"
    return start, f"this value cannot be read: {shown(str(problem), 120)}"


def _refuse_top_level(text: str, start: int, source: str, index: LineIndex) -> NoReturn:
    line, column = index.place(start)
    where = f"{source}:{line}:{column}"
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError) as problem:
        offset, what = _problem(text, start, problem)
        line, column = index.place(offset)
        raise DatasetError(what, f"{source}:{line}:{column}", _STRICT) from None
    if isinstance(value, dict) and text[_skip_space(text, end) : _skip_space(text, end) + 1] == "{":
        raise DatasetError(
            "this is one object a line, not an array", where, "name it .jsonl, or say --dataset-format jsonl"
        )
    kind = "an object" if isinstance(value, dict) else shown(value)
    raise DatasetError(f"the top level is {kind}, not an array of objects", where, "put the rows into [ ]")


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _comma_notes(source: str, lines: list[int]) -> list[str]:
    if not lines:
        return []
    named = ", ".join(str(line) for line in lines[:_MAX_COMMA_LINES])
    more = f" and {len(lines) - _MAX_COMMA_LINES} more" if len(lines) > _MAX_COMMA_LINES else ""
    return [f"{source}: accepted a trailing comma, which JSON does not allow, on line {named}{more}"]
