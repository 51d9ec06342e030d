"""perf_analyzer's input files: ``{"data": [...]}``, read entry by entry so that a large file's lists do not pile up."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from gpusize.base.errors import DatasetError
from gpusize.base.text import LineIndex, read_text, shown
from gpusize.targets.kserve.entries import Entry, Shapes, entry_from_json
from gpusize.targets.kserve.metadata import ModelMetadata
from gpusize.targets.kserve.rows import SequenceStep

__all__ = ["JsonInput", "read_json"]

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_DECODER: Final = json.JSONDecoder()
_OTHERS: Final = {
    "payload": "send it with --api openai-chat and --dataset",
    "message_generator": "gpusize runs no generator: write the messages out",
}


@dataclass
class JsonInput:
    """What an input file holds.

    Args:
        entries: its entries, in order.
        is_sequences: whether they are steps of sequences; None for a file without entries.
        notes: what the user should know.
    """

    entries: list[Entry] = field(default_factory=list)
    is_sequences: bool | None = None
    notes: list[str] = field(default_factory=list)


def read_json(path: str, model: ModelMetadata, shapes: Shapes, *, first_sequence: int = 1) -> JsonInput:
    """Read an input file.

    ``data`` is a list of objects, or a list of lists of objects, which are sequences; an object inside ``data`` of a
    single stream may also stand alone. ``validation_data`` is never compared: the answers are not looked into.

    Args:
        path: the file.
        model: what the model takes.
        shapes: shapes for inputs whose dimensions vary.
        first_sequence: number of the file's first sequence.

    Raises:
        DatasetError: not such a file, with line and column, or entries that do not fit the model.
    """
    text = read_text(path, error=DatasetError)
    reader = _Reader(text, path)
    made = JsonInput()
    for key in reader.members():
        if key == "data":
            _read_data(reader, made, model, shapes, first_sequence)
            continue
        value = reader.value()
        if key == "validation_data":
            count = len(value) if isinstance(value, list) else 1
            made.notes.append(f"{path}: validation_data ({count} entries) is not compared with the answers")
        elif key in _OTHERS:
            raise DatasetError(f'"{key}" is for another kind of server', path, _OTHERS[key])
        else:
            made.notes.append(f'{path}: "{shown(key)}" is not read')
    if not made.entries:
        raise DatasetError('there is no entry under "data"', path, 'write {"data": [{"INPUT": [1, 2, 3]}]}')
    return made


def _read_data(reader: _Reader, made: JsonInput, model: ModelMetadata, shapes: Shapes, first_sequence: int) -> None:
    sequences = 0
    for where, value in reader.items():
        if not isinstance(value, dict | list):
            raise DatasetError(f"this entry is {shown(value)}", where, "write an object of inputs")
        if made.is_sequences not in (None, isinstance(value, list)):
            raise DatasetError("sequences and single entries are mixed", where, "write lists only, or objects only")
        made.is_sequences = isinstance(value, list)
        if isinstance(value, dict):
            made.entries.append(entry_from_json(value, model, shapes, where))
            continue
        number = first_sequence + sequences
        sequences += 1
        for turn, step in enumerate(value):
            if not isinstance(step, dict):
                raise DatasetError(f"step {turn} of this sequence is {shown(step)}", where, "write an object of inputs")
            place = SequenceStep(number, turn, start=turn == 0, end=turn == len(value) - 1)
            made.entries.append(entry_from_json(step, model, shapes, where, place))


class _Reader:
    """Walks the top level of one JSON object."""

    def __init__(self, text: str, source: str) -> None:
        self._text = text
        self._source = source
        self._position = 0
        self._counted = (0, 1)

    def members(self) -> Iterator[str]:
        """The object's keys; after each one `value` or `items` has to be called."""
        self._expect("{", "the file is not an object")
        if self._next() == "}":
            self._position += 1
        else:
            while True:
                self._skip()
                key = self.value()
                if not isinstance(key, str):
                    self._refuse(f"{shown(key)} is not a key")
                self._expect(":", "a colon is missing")
                yield key
                if self._next() != ",":
                    break
                self._position += 1
            self._expect("}", "the object is not closed")
        self._skip()
        if self._position < len(self._text):
            self._refuse("there is more after the object")

    def value(self) -> Any:
        """The value here."""
        self._skip()
        try:
            value, self._position = _DECODER.raw_decode(self._text, self._position)
        except json.JSONDecodeError as problem:
            self._position = problem.pos
            self._refuse(problem.msg)
        except (ValueError, RecursionError) as problem:
            self._refuse(str(problem))
        return value

    def items(self) -> Iterator[tuple[str, Any]]:
        """The values of the list here, one at a time, with the place of each."""
        self._expect("[", '"data" is not a list')
        if self._next() == "]":
            self._position += 1
            return
        while True:
            self._skip()
            where = self._where()
            yield where, self.value()
            if self._next() != ",":
                break
            self._position += 1
        self._expect("]", "the list is not closed")

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._position)
        self._position = match.end() if match else self._position

    def _next(self) -> str:
        self._skip()
        return self._text[self._position : self._position + 1]

    def _expect(self, character: str, what: str) -> None:
        if self._next() != character:
            self._refuse(what)
        self._position += 1

    def _where(self) -> str:
        """File and line; lines are counted on from where they were counted last, as an index of them all is large."""
        offset, line = self._counted
        self._counted = self._position, line + self._text.count("\n", offset, self._position)
        return f"{self._source}:{self._counted[1]}"

    def _refuse(self, what: str) -> NoReturn:
        line, column = LineIndex(self._text).place(min(self._position, len(self._text)))
        raise DatasetError(
            f"this is not an input file: {what[:1].lower()}{what[1:]}",
            f"{self._source}:{line}:{column}",
            'write {"data": [{"INPUT": [1, 2, 3]}]}',
        ) from None
