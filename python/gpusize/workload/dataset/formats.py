"""From a file's bytes to rows: its format by name, by suffix, or by what unmistakably stands in it."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpusize.base.errors import DatasetError
from gpusize.base.text import decode, read_bytes, shown
from gpusize.workload.dataset.conversations import from_multi_turn, from_sharegpt, looks_like_sharegpt, looks_like_turns
from gpusize.workload.dataset.csv_rows import parse_csv
from gpusize.workload.dataset.json_rows import parse_document, parse_json, parse_jsonl
from gpusize.workload.dataset.parsed import Parsed
from gpusize.workload.dataset.published_traces import TRACES, from_trace, looks_like_trace
from gpusize.workload.dataset.request_bodies import (
    from_batch,
    from_perf_analyzer,
    looks_like_batch,
    looks_like_payloads,
)
from gpusize.workload.dataset.token_counter import Counter, counter_of

__all__ = ["FORMATS", "KEYS", "Found", "check_format", "contained", "rows_of"]

_CONTAINERS: Final = ("json", "jsonl", "csv", "tsv", "parquet")
FORMATS: Final = (*_CONTAINERS, "sharegpt", "multi-turn", "openai-batch", "perf-analyzer", *TRACES)
"""Names of the file formats."""

KEYS: Final = ("prompt", "question", "input", "text", "messages", "body")
"""Keys that are tried in this order when none is named."""

_SUFFIXES: Final = {
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_SENT: Final = {"sharegpt": "messages", "multi-turn": "messages", "openai-batch": "body", "perf-analyzer": "body"}
"""The field that rows of a format send; of the others the first of `KEYS`, and a trace's made-up prompt."""


@dataclass
class Found:
    """What a file turned out to hold.

    Args:
        parsed: its rows.
        fmt: the format that it was read as.
        key: the field to send, where the format decides it.
        api: the API that the rows are for, where the file says so.
        counted_by: how ``input_tokens`` and ``output_tokens`` of the rows came about, where we made them.
    """

    parsed: Parsed
    fmt: str
    key: str | None = None
    api: str | None = None
    counted_by: str | None = None


def rows_of(data: bytes, source: str, fmt: str | None, key: str | None, tokenizer: str | Path | None) -> Found:
    """Read a file's bytes.

    Args:
        data: the file.
        source: its path.
        fmt: one of `FORMATS`; None for the suffix, and for what its contents show when no key is named either.
        key: the field that the user wants to send.
        tokenizer: a tokenizer file, or ``"estimate"``; see `Dataset.read`.

    Raises:
        DatasetError: the file is not in this format, with line and column.
        EnvironmentLacks: a tokenizer file without the package that reads it.
    """
    parsed, container = contained(data, source, fmt)
    meaning = fmt if fmt not in (*_CONTAINERS, None) else None
    if meaning is None and fmt is None and key is None and parsed.rows:
        meaning = _recognised(parsed)
    if meaning is None or not parsed.rows:
        return Found(parsed, container if fmt is None else fmt)
    return _meant(parsed, source, meaning, tokenizer)


def _meant(parsed: Parsed, source: str, meaning: str, tokenizer: str | Path | None) -> Found:
    if meaning == "openai-batch":
        rows, api = from_batch(parsed, source)
        return Found(rows, meaning, _SENT[meaning], api)
    if meaning == "perf-analyzer":
        return Found(from_perf_analyzer(parsed, source), meaning, _SENT[meaning])
    counter: Counter = counter_of(tokenizer)
    if meaning in TRACES:
        return Found(from_trace(parsed, source, meaning, counter), meaning, "prompt", counted_by=counter.name)
    expand = from_sharegpt if meaning == "sharegpt" else from_multi_turn
    count = None if tokenizer is None else counter.count
    return Found(
        expand(parsed, source, count), meaning, _SENT[meaning], counted_by=None if count is None else counter.name
    )


def _recognised(parsed: Parsed) -> str | None:
    rows = parsed.rows
    if looks_like_batch(rows):
        return "openai-batch"
    if any(all(name in row for row in rows) for name in KEYS):
        return None
    if looks_like_sharegpt(rows):
        return "sharegpt"
    if looks_like_turns(rows):
        return "multi-turn"
    if looks_like_payloads(rows):
        return "perf-analyzer"
    return looks_like_trace(rows)


def contained(data: bytes, source: str, fmt: str | None) -> tuple[Parsed, str]:
    """The rows as they stand in the file, and the container that they stand in.

    Raises:
        DatasetError: the file is broken, with line and column.
    """
    kind = fmt if fmt in _CONTAINERS else _SUFFIXES.get(Path(source).suffix.lower())
    if kind is None:
        kind = "csv" if fmt in {"azure", "burstgpt"} else "json"
    if kind == "parquet":
        return parse_parquet(data, source), kind
    text = decode(data, source, error=DatasetError)
    if kind in {"csv", "tsv"}:
        return parse_csv(text, source, "\t" if kind == "tsv" else ","), kind
    if fmt not in _CONTAINERS and text.lstrip(" \t\r\n").startswith("{"):
        document = parse_document(text, source)
        if document is not None:
            return document, "json"
        kind = "jsonl" if fmt is not None else kind
    return (parse_json(text, source) if kind == "json" else parse_jsonl(text, source)), kind


def check_format(source: str, fmt: str | None) -> None:
    """Refuse a format that does not exist, and a file of which none can be told, before anything is read.

    Raises:
        DatasetError: either of them.
    """
    if fmt is not None:
        if fmt not in FORMATS:
            raise DatasetError(f'"{shown(fmt)}" is not a dataset format', source, f"use one of {', '.join(FORMATS)}")
        return
    suffix = Path(source).suffix.lower()
    if suffix in _SUFFIXES:
        return
    read_bytes(source, error=DatasetError)  # that there is no such file comes first
    raise DatasetError(
        f'cannot tell the format from the suffix "{shown(suffix)}"',
        source,
        f"say --dataset-format {'|'.join(FORMATS)}",
    )


def parse_parquet(data: bytes, source: str) -> Parsed:
    """Rows of a Parquet file.

    Raises:
        DatasetError: not a Parquet file.
    """
    import polars as pl

    try:
        frame = pl.read_parquet(io.BytesIO(data))
    except (pl.exceptions.PolarsError, OSError) as problem:
        raise DatasetError(
            f"this is not a Parquet file: {shown(str(problem), 120)}", source, "check the file, or say --dataset-format"
        ) from None
    rows: list[dict[str, Any]] = frame.to_dicts()
    return Parsed(rows)
