"""The dataset that a run sends, and its rows."""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gpusize.dataset._csv import parse_csv
from gpusize.dataset._ids import repeated_ids, unique_ids
from gpusize.dataset._json import parse_json, parse_jsonl
from gpusize.dataset._parquet import parse_parquet
from gpusize.dataset._parsed import Parsed, as_row
from gpusize.errors import DatasetError
from gpusize.textio import decode, read_bytes, shown

__all__ = ["FORMATS", "KEYS", "Dataset", "Row"]

FORMATS: Final = ("json", "jsonl", "csv", "tsv", "parquet")
"""Names of the file formats."""

KEYS: Final = ("prompt", "question", "input", "text", "messages", "body")
"""Keys that are tried in this order when none is named."""

WHOLE_ROW: Final = "."
"""The key that means the whole row but its id."""

_SUFFIXES: Final = {
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_SHOWN_ROWS: Final = 5


@dataclass(frozen=True)
class Row:
    """One row of a dataset, as an API gets it.

    Args:
        index: position in the dataset, from 0; the records' ``row``.
        id: name of the row.
        fields: all fields of the row.
        key: name of the field to send, ``"."`` for the whole row.
        where: file and line, for error texts.
    """

    index: int
    id: str
    fields: Mapping[str, Any]
    key: str
    where: str
    id_key: str = "id"

    @property
    def value(self) -> Any:
        """What is to be sent."""
        if self.key == WHOLE_ROW:
            return {name: value for name, value in self.fields.items() if name != self.id_key}
        return self.fields[self.key]


@dataclass(frozen=True, repr=False)
class Dataset:
    """Rows to send; made by `read`, `from_prompt` or `from_rows`.

    Args:
        rows: the rows, as dictionaries.
        key: name of the field to send.
        ids: one name per row, unique: the row's own id, else its number from 0.
        source: the file's path, or what the rows were made from.
        sha256: of the file's bytes; of the rows as JSON when there is no file.
        fmt: the file's format, or None.
        id_key: field that holds a row's own id.
        notes: what the user should know: what was accepted although it is not quite right.
        lines: line of each row in the file, from 1; empty when there are no lines.
    """

    rows: Sequence[dict[str, Any]]
    key: str
    ids: Sequence[str]
    source: str
    sha256: str
    fmt: str | None = None
    id_key: str = "id"
    notes: Sequence[str] = ()
    lines: Sequence[int] = field(default=(), compare=False)

    @classmethod
    def read(cls, path: str | Path, key: str | None = None, fmt: str | None = None, *, id_key: str = "id") -> Dataset:
        """Read a file of rows.

        Args:
            path: JSON (an array of objects), JSON Lines, CSV, TSV or Parquet.
            key: the field to send, ``"."`` for the whole row; without it the first of `KEYS` that every row has.
            fmt: one of `FORMATS`; without it by the file's suffix.
            id_key: field that holds a row's own id.

        Raises:
            DatasetError: not a file, not in this format (with line and column), no rows, or rows without the key.
        """
        source = str(path)
        kind = _format_of(source, fmt)
        data = read_bytes(path, error=DatasetError)
        parsed = _parse(data, source, kind)
        return cls._build(parsed, key, source, hashlib.sha256(data).hexdigest(), kind, id_key)

    @classmethod
    def from_prompt(cls, text: str) -> Dataset:
        """A dataset of one row that sends ``text``.

        Raises:
            DatasetError: the text is empty.
        """
        if not text:
            raise DatasetError("the prompt is empty", None, "give some text to send")
        return cls.from_rows([{"prompt": text}], key="prompt", source="prompt")

    @classmethod
    def from_rows(
        cls,
        rows: Iterable[Mapping[str, Any] | str],
        key: str | None = None,
        *,
        source: str = "rows",
        id_key: str = "id",
    ) -> Dataset:
        """A dataset from rows in memory: dictionaries, or texts that become ``{"prompt": text}``.

        Raises:
            DatasetError: no rows, a row of another type, values that JSON cannot hold, or rows without the key.
        """
        made = [
            as_row(dict(row) if isinstance(row, Mapping) else row, source, number) for number, row in enumerate(rows)
        ]
        try:
            canonical = json.dumps(made, sort_keys=True, allow_nan=False, default=str).encode()
        except (TypeError, ValueError) as problem:
            raise DatasetError(
                f"the rows cannot be written as JSON: {problem}", source, "use texts, numbers, lists and dictionaries"
            ) from None
        return cls._build(Parsed(made), key, source, hashlib.sha256(canonical).hexdigest(), None, id_key)

    @classmethod
    def _build(cls, parsed: Parsed, key: str | None, source: str, sha256: str, fmt: str | None, id_key: str) -> Dataset:
        if not parsed.rows:
            raise DatasetError("the dataset is empty", source, "give at least one row")
        chosen = _choose_key(parsed, key, source)
        notes = list(parsed.notes)
        wanted = [_own_id(row.get(id_key), number) for number, row in enumerate(parsed.rows)]
        ids = unique_ids(wanted)
        renamed = [number for number, name in enumerate(ids) if name != wanted[number]]
        if renamed:
            first = renamed[0]
            notes.append(
                f"{source}: {len(renamed)} rows share an id with an earlier row; "
                f'row {first} ("{shown(wanted[first])}") is named "{shown(ids[first])}"'
            )
        return cls(
            tuple(parsed.rows), chosen, tuple(ids), source, sha256, fmt, id_key, tuple(notes), tuple(parsed.lines)
        )

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return (self[index] for index in range(len(self.rows)))

    def __getitem__(self, index: int) -> Row:
        index = range(len(self.rows))[index]
        return Row(index, self.ids[index], self.rows[index], self.key, self.where(index), self.id_key)

    def where(self, index: int) -> str:
        """File and line of a row, or its number where there are no lines."""
        return f"{self.source}:{self.lines[index]}" if self.lines else f"{self.source}, row {index}"

    def ids_for(self, count: int) -> list[str]:
        """Ids of ``count`` requests in file order, rows repeating as needed; copy k of a row is ``<id>_rep<k>``."""
        return repeated_ids(self.ids, (number % len(self.rows) for number in range(count)))

    def ids_of(self, rows: Iterable[int]) -> list[str]:
        """Ids of requests that sent these rows, in this order; copies are named as by `ids_for`."""
        return repeated_ids(self.ids, rows)

    def options(self) -> dict[str, Any]:
        """The options that make this dataset again, as ``--config`` takes them; none for rows from memory."""
        if self.fmt is not None:
            options = {
                "dataset": str(Path(self.source).absolute()),
                "dataset_key": self.key,
                "dataset_format": self.fmt,
            }
            return options if self.id_key == "id" else {**options, "dataset_id_key": self.id_key}
        return {"prompt": self.rows[0]["prompt"]} if self.source == "prompt" else {}

    def public(self) -> dict[str, Any]:
        """What ``run.json`` says about the dataset."""
        return {"source": self.source, "rows": len(self.rows), "sha256": self.sha256}

    def __repr__(self) -> str:
        return f'Dataset("{self.source}", {len(self.rows)} rows, key "{self.key}")'

    def _repr_html_(self) -> str:
        head = f"<b>{html.escape(self.source)}</b>: {len(self.rows)} rows, sends <code>{html.escape(self.key)}</code>"
        cells = "".join(
            f"<tr><td>{html.escape(self.ids[row.index])}</td><td>{html.escape(shown(row.value, 120))}</td></tr>"
            for row in (self[index] for index in range(min(_SHOWN_ROWS, len(self.rows))))
        )
        notes = "".join(f"<div>{html.escape(note)}</div>" for note in self.notes)
        return f"{head}<table><tr><th>id</th><th>sent</th></tr>{cells}</table>{notes}"


def _format_of(source: str, fmt: str | None) -> str:
    if fmt is not None:
        if fmt not in FORMATS:
            raise DatasetError(f'"{shown(fmt)}" is not a dataset format', source, f"use one of {', '.join(FORMATS)}")
        return fmt
    suffix = Path(source).suffix.lower()
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    if Path(source).is_dir():
        raise DatasetError("this is a folder, not a file", source, "name a file in it")
    raise DatasetError(
        f'the format cannot be told from the suffix "{shown(suffix)}"',
        source,
        f"say --dataset-format {'|'.join(FORMATS)}",
    )


def _parse(data: bytes, source: str, kind: str) -> Parsed:
    if kind == "parquet":
        return parse_parquet(data, source)
    text = decode(data, source, error=DatasetError)
    if kind == "json":
        return parse_json(text, source)
    if kind == "jsonl":
        return parse_jsonl(text, source)
    return parse_csv(text, source, "\t" if kind == "tsv" else ",")


def _choose_key(parsed: Parsed, key: str | None, source: str) -> str:
    if key == WHOLE_ROW:
        return key
    candidates = KEYS if key is None else (key,)
    for candidate in candidates:
        if all(candidate in row for row in parsed.rows):
            return candidate
    # The candidate that most rows have is the one that was meant.
    meant = max(candidates, key=lambda name: sum(name in row for row in parsed.rows))
    missing = next(number for number, row in enumerate(parsed.rows) if meant not in row)
    names = ", ".join(f'"{shown(name)}"' for name in parsed.rows[missing]) or "no keys at all"
    where = f"{source}:{parsed.lines[missing]}" if parsed.lines else f"{source}, row {missing}"
    if key is None and missing == 0:
        tried = "/".join(KEYS)
        raise DatasetError(
            f"row 0 has none of {tried}; it has {names}", where, "name the key to send with --dataset-key"
        )
    raise DatasetError(
        f'row {missing} has no key "{shown(meant)}"; it has {names}', where, "name another key with --dataset-key"
    )


def _own_id(value: Any, number: int) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
        return str(number)
    return str(value)
