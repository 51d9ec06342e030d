"""What a dataset looks like: its first rows, its lengths, and what is to be known about it."""

from __future__ import annotations

import json
from statistics import fmean
from typing import Any, Final

from gpusize.base.text import shown
from gpusize.workload.dataset.dataset import Dataset
from gpusize.workload.dataset.token_counter import counter_of

__all__ = ["describe", "write_rows"]

_LENGTHS: Final = {
    "input_tokens": "no figure counts it",
    "output_tokens": "a run refuses that for language models",
}
"""What rows may say of their lengths, and what becomes of what is none."""


def describe(dataset: Dataset, head: int = 5, width: int = 100) -> list[str]:
    """Lines for people.

    Args:
        dataset: the rows.
        head: how many rows are shown.
        width: how much of a row's value is shown, in characters.
    """
    lines = [
        f"{dataset.source}: {len(dataset)} rows, format {dataset.fmt or 'none'}, sends {dataset.key}",
        f"sha256 {dataset.sha256}",
    ]
    if dataset.api:
        lines.append(f"for the API {dataset.api}")
    lines += _lengths(dataset)
    sessions = {row["session"] for row in dataset.rows if isinstance(row.get("session"), str)}
    if sessions:
        lines.append(f"conversations: {len(sessions)}")
    arrivals = [row["arrival_s"] for row in dataset.rows if isinstance(row.get("arrival_s"), int | float)]
    if arrivals:
        lines.append(f"arrivals: over {max(arrivals) - min(arrivals):.6g} s")
    lines += [f"note: {note}" for note in [*dataset.notes, *_no_lengths(dataset)]]
    for index in range(min(head, len(dataset))):
        row = dataset[index]
        lines.append(f"{row.id}: {shown(row.value, width)}")
    if len(dataset) > head > 0:
        lines.append(f"and {len(dataset) - head} more")
    return lines


def _lengths(dataset: Dataset) -> list[str]:
    lines = []
    for name in _LENGTHS:
        values = [row[name] for row in dataset.rows if _is_length(row.get(name))]
        if values:
            how = f", by {dataset.counted_by}" if dataset.counted_by else ""
            lines.append(_spread(f"{name}{how}", values))
    if not any(_is_length(row.get("input_tokens")) for row in dataset.rows):
        counter = counter_of(dataset.tokenizer)
        values = [counter.count(_text(row.value)) for row in dataset]
        lines.append(_spread(f"input tokens, by {counter.name}", values))
    return lines


def _is_length(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _no_lengths(dataset: Dataset) -> list[str]:
    """What rows call a length and is none; of other servers than language models it may be a member that they take."""
    notes = []
    for name, then in _LENGTHS.items():
        said = [(index, row[name]) for index, row in enumerate(dataset.rows) if row.get(name) is not None]
        odd = [(index, value) for index, value in said if not _is_length(value)]
        if odd:
            index, value = odd[0]
            more = f", and {len(odd) - 1} more like it" if len(odd) > 1 else ""
            what = f'"{name}": {shown(json.dumps(value, ensure_ascii=False, default=str), 20)}{more}'
            notes.append(f"row {dataset.ids[index]} has {what}, no whole number of 1 or more; {then}")
    return notes


def _spread(name: str, values: list[int]) -> str:
    ordered = sorted(values)
    middle = ordered[(len(ordered) - 1) // 2]
    return f"{name}: mean {fmean(ordered):.1f}, least {ordered[0]}, median {middle}, most {ordered[-1]}"


def _text(value: Any) -> str:
    """The text of a value: of messages their contents, of other objects their JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(one, dict) and isinstance(one.get("content"), str) for one in value):
        return "\n".join(one["content"] for one in value)
    return json.dumps(value, ensure_ascii=False, default=str)


def write_rows(dataset: Dataset) -> list[str]:
    """The rows as JSON Lines, each with its id."""
    return [
        json.dumps({dataset.id_key: dataset.ids[index], **row}, ensure_ascii=False, default=str)
        for index, row in enumerate(dataset.rows)
    ]
