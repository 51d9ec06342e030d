"""CSV (RFC 4180) as rows, with line and column of each mistake, which Python's csv module cannot tell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpusize.base.errors import DatasetError
from gpusize.base.text import LineIndex, shown
from gpusize.workload.dataset.parsed import Parsed

__all__ = ["parse_csv"]


@dataclass
class _Record:
    """Fields of one record, with the offset of each."""

    fields: list[str]
    offsets: list[int]


def parse_csv(text: str, source: str, delimiter: str = ",") -> Parsed:
    """Rows of a CSV file whose first record names the columns; blank lines are skipped, every cell stays text.

    Raises:
        DatasetError: no header, a column named twice or not at all, a record of another length, an open quote.
    """
    index = LineIndex(text)

    def at(offset: int) -> str:
        line, column = index.place(offset)
        return f"{source}:{line}:{column}"

    records = _records(text, delimiter, at)
    header = next(records, None)
    if header is None:
        raise DatasetError("the dataset is empty", source, "give a header line and at least one row")
    for position, name in enumerate(header.fields):
        if not name.strip():
            raise DatasetError(
                f"column {position + 1} has no name",
                at(header.offsets[position]),
                "name every column in the first line",
            )
        if name in header.fields[:position]:
            raise DatasetError(
                f'two columns are named "{shown(name)}"', at(header.offsets[position]), "rename one of them"
            )
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    width = len(header.fields)
    for record in records:
        if len(record.fields) != width:
            extra = record.offsets[width] if len(record.fields) > width else record.offsets[-1]
            raise DatasetError(
                f"row {len(rows)} has {len(record.fields)} fields, the header has {width}",
                at(extra),
                "put fields that contain the separator into double quotes",
            )
        rows.append(dict(zip(header.fields, record.fields, strict=True)))
        lines.append(index.line(record.offsets[0]))
    return Parsed(rows, lines)


def _records(text: str, delimiter: str, at: Any) -> Iterator[_Record]:
    quoted = re.compile(r'"((?:[^"]|"")*)"')
    plain = re.compile(rf"[^{re.escape(delimiter)}\r\n]*")
    line_end = re.compile(r"\r\n|\n|\r")
    position, record = 0, _Record([], [])
    while position < len(text):
        start = position
        if text[position] == '"':
            match = quoted.match(text, position)
            if match is None:
                raise DatasetError(
                    "this quote is not closed", at(position), 'close it; a quote inside a field is written ""'
                )
            value = match[1].replace('""', '"')
        else:
            match = plain.match(text, position)
            value = match[0] if match else ""
        position = match.end() if match else position
        record.fields.append(value)
        record.offsets.append(start)
        if text[position : position + 1] == delimiter:
            position += 1
            if position < len(text):
                continue
            record.fields.append("")
            record.offsets.append(position)
        end = line_end.match(text, position)
        if end is None and position < len(text):
            raise DatasetError("text follows a closing quote", at(position), 'a quote inside a field is written ""')
        position = end.end() if end else position
        if record.fields != [""]:
            yield record
        record = _Record([], [])
