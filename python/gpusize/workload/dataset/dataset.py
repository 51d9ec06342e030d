"""The dataset that a run sends, and its rows."""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from gpusize.base.errors import DatasetError
from gpusize.base.numeric import FIELDS, figure
from gpusize.base.text import read_bytes, shown
from gpusize.base.typed import ITERABLE, PATH, TEXT, check_kinds
from gpusize.workload.dataset.formats import KEYS, check_format, rows_of
from gpusize.workload.dataset.parsed import Parsed, as_row
from gpusize.workload.dataset.row_ids import repeated_ids, unique_ids
from gpusize.workload.dataset.synthetic import Synthetic, synthetic_rows
from gpusize.workload.dataset.token_counter import ESTIMATE, counter_of

__all__ = ["Dataset", "Row"]

WHOLE_ROW: Final = "."
"""The key that means the whole row but its id."""

MARKS: Final = ("stream_priority", "header_priority", "session_part")
"""Fields that `gpusize.measure.mix` adds to rows: never sent as such."""

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
            return {name: value for name, value in self.fields.items() if name != self.id_key and name not in MARKS}
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
        api: the API that the rows are for, where the file says so; None leaves it to the address.
        counted_by: how the rows' ``input_tokens`` and ``output_tokens`` came about, where gpusize made them.
        synthetic: what synthetic prompts were made from.
        tokenizer: the tokenizer file that was named, or ``"estimate"``.
        prompt: the text that was given instead of a file.
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
    api: str | None = None
    counted_by: str | None = None
    synthetic: Synthetic | None = None
    tokenizer: str | None = None
    prompt: str | None = None

    @classmethod
    def read(
        cls,
        path: str | Path,
        key: str | None = None,
        fmt: str | None = None,
        *,
        id_key: str = "id",
        tokenizer: str | Path | None = None,
    ) -> Dataset:
        """Read a file of rows.

        Args:
            path: JSON (an array of objects), JSON Lines, CSV, TSV or Parquet.
            key: the field to send, ``"."`` for the whole row; without it the first of `KEYS` that every row has.
            fmt: one of `FORMATS`; without it by the file's suffix and, when no key is named either, by what
                unmistakably stands in it.
            id_key: field that holds a row's own id.
            tokenizer: a ``tokenizer.json`` that a trace's prompts are counted with. Named, or ``"estimate"``, it also
                gives ``output_tokens`` from the recorded answers of conversations.

        Raises:
            DatasetError: not a file, not in this format (with line and column), no rows, or rows without the key.
            EnvironmentLacks: a tokenizer without the package that reads it.
        """
        check_kinds({"path": path}, {"path": PATH})
        source = str(path)
        check_format(source, fmt)
        data = read_bytes(path, error=DatasetError)
        found = rows_of(data, source, fmt, key, tokenizer)
        sha256 = hashlib.sha256(data).hexdigest()
        built = cls._build(found.parsed, key or found.key, source, sha256, found.fmt, id_key)
        named = None if tokenizer is None else str(tokenizer)
        return replace(built, api=found.api or None, counted_by=found.counted_by, tokenizer=named)

    @classmethod
    def from_synthetic(cls, what: Synthetic | str | Mapping[str, Any], tokenizer: str | Path | None = None) -> Dataset:
        """Made-up prompts of wanted lengths; the same description gives the same rows.

        Args:
            what: such as ``"input=normal(512,64) output=lognormal(128,0.5) rows=200 prefix=0.3 seed=1"``, or the same
                as a table.
            tokenizer: a ``tokenizer.json`` that lengths are counted with; without it they are estimated.

        Raises:
            UsageError: an invalid description.
            DatasetError: a file in it cannot be read, or the prompts would not fit into memory.
            EnvironmentLacks: a tokenizer without the package that reads it.
        """
        wanted = what if isinstance(what, Synthetic) else Synthetic.parse(what)
        counter = counter_of(tokenizer)
        rows, sha256, notes = synthetic_rows(wanted, counter)
        built = cls._build(Parsed(rows, notes=notes), "prompt", "synthetic", sha256, None, "id")
        named = None if tokenizer is None else str(tokenizer)
        return replace(built, counted_by=counter.name, synthetic=wanted, tokenizer=named)

    @classmethod
    def from_prompt(cls, text: str) -> Dataset:
        """A dataset of one row that sends ``text``.

        Args:
            text: what is sent.

        Raises:
            DatasetError: the text is empty.
        """
        check_kinds({"prompt": text}, {"prompt": TEXT})
        if not text:
            raise DatasetError("the prompt is empty", None, "give some text to send")
        return replace(cls.from_rows([{"prompt": text}], key="prompt", source="prompt"), prompt=text)

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

        Args:
            rows: the rows, in the order in which they are sent.
            key: field of a row to send; None for the usual names, ``.`` for the whole row.
            source: what errors and the report call the rows.
            id_key: field with a row's id; rows without it have their number.

        Raises:
            DatasetError: no rows, a row of another type, values that JSON cannot hold, or rows without the key.
        """
        check_kinds({"rows": rows}, {"rows": ITERABLE})
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
        made = cls(
            tuple(parsed.rows), chosen, tuple(ids), source, sha256, fmt, id_key, tuple(notes), tuple(parsed.lines)
        )
        made._check_fields()
        return made

    def _check_fields(self) -> None:
        """Refuse counts that no record can hold.

        Raises:
            DatasetError: such a row.
        """
        for name, most in FIELDS.items():
            for index, row in enumerate(self.rows):
                value = row.get(name)
                if isinstance(value, int) and abs(value) > most:
                    what = f'row {index}: "{name}" is {figure(value)}'
                    raise DatasetError(what, self.where(index), f"give at most {most}")

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return (self[index] for index in range(len(self.rows)))

    def __getitem__(self, index: int) -> Row:
        index = range(len(self.rows))[index]
        return Row(index, self.ids[index], self.rows[index], self.key, self.where(index), self.id_key)

    def lengths(self) -> list[int]:
        """Characters that each row sends; none unless rows of a file have texts of their own under the key."""
        if self.fmt is None or not all(isinstance(row.get(self.key), str) for row in self.rows):
            return []
        return [len(row[self.key]) for row in self.rows]

    def where(self, index: int) -> str:
        """File and line of a row, or its number where there are no lines.

        Args:
            index: the row, from 0.
        """
        return f"{self.source}:{self.lines[index]}" if self.lines else f"{self.source}, row {index}"

    def ids_for(self, count: int) -> list[str]:
        """Ids of ``count`` requests in file order, rows repeating as needed; copy k of a row is ``<id>_rep<k>``.

        Args:
            count: how many requests, 0 or more.
        """
        return repeated_ids(self.ids, (number % len(self.rows) for number in range(count)))

    def ids_of(self, rows: Iterable[int]) -> list[str]:
        """Ids of requests that sent these rows, in this order; copies are named as by `ids_for`.

        Args:
            rows: numbers of rows, from 0, in the order of the requests.
        """
        return repeated_ids(self.ids, rows)

    def options(self) -> dict[str, Any]:
        """The options that make this dataset again, as ``--config`` takes them; none for rows from memory."""
        if self.fmt is not None:
            options = {
                "dataset": str(Path(self.source).absolute()),
                "dataset_key": self.key,
                "dataset_format": self.fmt,
            }
            extra = {"dataset_id_key": None if self.id_key == "id" else self.id_key, "tokenizer": self._counting()}
            return options | {name: value for name, value in extra.items() if value is not None}
        if self.synthetic is not None:
            counting = self._counting()
            made = {"synthetic": self.synthetic.text()}
            return made if counting is None else {**made, "tokenizer": counting}
        return {} if self.prompt is None else {"prompt": self.prompt}

    def _counting(self) -> str | None:
        named = self.tokenizer
        return named if named is None or named == ESTIMATE else str(Path(named).absolute())

    def public(self) -> dict[str, Any]:
        """What ``run.json`` says about the dataset."""
        facts = {"source": self.source, "rows": len(self.rows), "sha256": self.sha256}
        return facts if self.counted_by is None else {**facts, "counted_by": self.counted_by}

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
