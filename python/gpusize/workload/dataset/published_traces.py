"""Published traces of LLM services: lengths and times of requests, to which prompts are made up.

- Mooncake: JSON Lines of ``timestamp`` (ms), ``input_length``, ``output_length`` and ``hash_ids``, where an id names
  512 tokens, so that equal ids at the start of two requests are a shared prefix.
- Azure's LLM inference traces: CSV of TIMESTAMP, ContextTokens, GeneratedTokens.
- BurstGPT: CSV of Timestamp (s), Model, Request tokens, Response tokens, Total tokens, Log Type, with Session ID in
  later releases.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from gpusize.base.errors import DatasetError
from gpusize.base.text import shown
from gpusize.workload.dataset.made_up_text import WIDTH, Filler, check_size
from gpusize.workload.dataset.parsed import Parsed
from gpusize.workload.dataset.token_counter import CHARACTERS_PER_TOKEN, Counter

__all__ = ["BLOCK_TOKENS", "TRACES", "exact_s", "from_trace", "has_zone", "looks_like_trace", "stamp_s", "trace_times"]

BLOCK_TOKENS: Final = 512
"""Tokens that one of Mooncake's hash ids names."""

_STAMP: Final = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?\s*(Z|[+-]\d\d:?\d\d)?")
_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "mooncake": ("timestamp", "input_length", "output_length"),
    "azure": ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    "burstgpt": ("Timestamp", "Request tokens", "Response tokens"),
}
TRACES: Final = tuple(_COLUMNS)
"""Names of the formats."""

_MOST_TOKENS: Final = 10_000_000


def looks_like_trace(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """The format whose columns the first row has; for Mooncake also ``hash_ids``, as its names are common ones."""
    first = rows[0]
    for name, columns in _COLUMNS.items():
        if all(column in first for column in columns) and (name != "mooncake" or "hash_ids" in first):
            return name
    return None


def from_trace(parsed: Parsed, source: str, kind: str, counter: Counter) -> Parsed:
    """Rows with ``prompt``, ``input_tokens``, ``output_tokens`` and ``arrival_s``.

    BurstGPT's have ``session`` too where it is known, Mooncake's ``hash_ids``. Rows are put in order of
    time. Requests of 0 tokens, which is how BurstGPT marks failures, are left out.

    Raises:
        DatasetError: a column is missing, or a value that is no length or time, with its line.
    """
    made, empty = _requests(parsed, source, kind)
    unsorted = any(a[0]["arrival_s"] > b[0]["arrival_s"] for a, b in itertools.pairwise(made))
    made.sort(key=lambda each: each[0]["arrival_s"])
    filler = Filler(counter)
    check_size(WIDTH * sum(filler.needed(fields["input_tokens"]) for fields, _ in made), source)
    start = made[0][0]["arrival_s"] if made else Decimal(0)
    rows = []
    for number, (fields, _) in enumerate(made):
        arrival_s = round(float(fields["arrival_s"] - start), 9)
        rows.append({"prompt": _prompt(fields, number, filler), **fields, "arrival_s": arrival_s})
    lines = [line for _, line in made if line]
    notes = list(parsed.notes)
    if empty:
        notes.append(f"{source}: {empty} requests of 0 tokens are left out")
    if unsorted:
        notes.append(f"{source}: requests are put in order of time")
    how = f"counted with {counter.name}" if filler.exact else f"at {CHARACTERS_PER_TOKEN} characters per token"
    notes.append(f"{source}: a trace holds no texts; prompts of its lengths are made up, {how}")
    return Parsed(rows, lines, notes)


def trace_times(parsed: Parsed, source: str, kind: str) -> tuple[list[tuple[Decimal, int, int]], int]:
    """Time in seconds and tokens of prompt and answer of every request, as they stand in the file.

    Beside them, how many of 0 tokens are left out.

    Raises:
        DatasetError: as `from_trace`.
    """
    made, empty = _requests(parsed, source, kind)
    return [(fields["arrival_s"], fields["input_tokens"], fields["output_tokens"]) for fields, _ in made], empty


def _requests(parsed: Parsed, source: str, kind: str) -> tuple[list[tuple[dict[str, Any], int]], int]:
    made: list[tuple[dict[str, Any], int]] = []
    empty = 0
    for number, row in enumerate(parsed.rows):
        line = parsed.lines[number] if parsed.lines else 0
        where = f"{source}:{line}" if line else f"{source}, row {number}"
        fields = _fields(row, kind, where)
        if fields["input_tokens"] < 1 or fields["output_tokens"] < 1:
            empty += 1
            continue
        made.append((fields, line))
    return made, empty


def _fields(row: Mapping[str, Any], kind: str, where: str) -> dict[str, Any]:
    time_of, inputs, outputs = _COLUMNS[kind]
    for name in _COLUMNS[kind]:
        if name not in row:
            raise DatasetError(f'this row has no "{name}"', where, f"{kind} needs {', '.join(_COLUMNS[kind])}")
    when: Callable[[Any, str], Decimal] = stamp_s if kind == "azure" else _number
    fields: dict[str, Any] = {
        "input_tokens": _tokens(row[inputs], inputs, where),
        "output_tokens": _tokens(row[outputs], outputs, where),
        "arrival_s": when(row[time_of], where) / (1000 if kind == "mooncake" else 1),
    }
    if kind == "mooncake" and row.get("hash_ids") is not None:
        ids = row["hash_ids"]
        if not isinstance(ids, list) or not all(isinstance(one, int) for one in ids):
            raise DatasetError(f'"hash_ids" is {shown(ids)}', where, "it is a list of whole numbers")
        fields["hash_ids"] = ids
    session = row.get("Session ID")
    if kind == "burstgpt" and session not in (None, ""):
        fields["session"] = str(session)
    return fields


def _prompt(fields: Mapping[str, Any], number: int, filler: Filler) -> str:
    tokens = fields["input_tokens"]
    needed = filler.needed(tokens)
    blocks = fields.get("hash_ids") or ()
    # Blocks that a request has beyond its length are of no use to anyone.
    kept = blocks[: -(-needed // BLOCK_TOKENS)]
    body = b"".join(filler.words(f"block {block}", BLOCK_TOKENS) for block in kept)
    missing = needed - len(body) // WIDTH
    return filler.text(body + filler.words(f"row {number}", missing), tokens)


def _tokens(value: Any, name: str, where: str) -> int:
    number = _number(value, where)
    if number != int(number) or number > _MOST_TOKENS:
        raise DatasetError(f'"{name}" is {shown(value)}, not a number of tokens', where, "write a whole number")
    return int(number)


def _number(value: Any, where: str) -> Decimal:
    try:
        return exact_s(value)
    except (TypeError, ValueError, OverflowError):
        raise DatasetError(f"{shown(value)} is not a number of 0 or more", where, "correct it there") from None


def exact_s(value: Any) -> Decimal:
    """A number of seconds as it is written: of times since 1970 a float keeps no more than 0.2 us.

    Raises:
        TypeError: it is no number.
        ValueError: nor one from 0 to 1e15.
    """
    if isinstance(value, bool) or not 0 <= float(value) < 1e15:
        raise ValueError
    return Decimal(str(value))


def has_zone(value: Any) -> bool | None:
    """Whether a stamp of date and time names its zone; None for anything else, as a number of seconds."""
    match = _STAMP.fullmatch(str(value).strip())
    return None if match is None else match[4] is not None


def stamp_s(value: Any, where: str) -> Decimal:
    """Seconds since 1970, exactly; Azure writes seven digits of a second, one more than Python's own parser takes."""
    match = _STAMP.fullmatch(str(value).strip())
    try:
        if match is None:
            raise ValueError
        zone = (match[4] or "+00:00").replace("Z", "+00:00")
        whole = datetime.strptime(f"{match[1]} {match[2]} {zone}", "%Y-%m-%d %H:%M:%S %z").astimezone(UTC)
    except ValueError:
        raise DatasetError(f"{shown(value)} is not a time", where, "write it as 2023-11-16 18:15:46.6805900") from None
    return int(whole.timestamp()) + Decimal(f"0.{match[3] or 0}")
