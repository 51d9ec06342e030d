"""Which request a call belongs to: by its trace id, else the only request that was in flight all the while."""

from __future__ import annotations

import bisect
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpusize.records.calls import scan_calls
from gpusize.records.schema import scan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["existing_calls", "tie", "visit_of"]

_OPEN: Final = re.compile(r"\.?(\d+)(?:\.open)?")
_COLUMNS: Final = ("name", "kind", "start_ns", "end_ns", "first_token_ns", "tokens_in", "tokens_out", "outcome")


class _Request(NamedTuple):
    sent_ns: int
    end_ns: int
    stream: int
    seq: int
    attempt: int
    outcome: str


def visit_of(folder: Path) -> int:
    """The visit of a level's folder, open or committed."""
    found = _OPEN.fullmatch(folder.name)
    return int(found[1]) if found is not None else -1


def tie(folder: Path, visit: int, calls: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """Rows of the calls table for those calls whose request is known, and the number of the others.

    Args:
        folder: the level's folder, with its records.
        visit: its visit.
        calls: as the proxy tells them.
    """
    requests = _requests(folder)
    ends_ns = sorted(each.end_ns for each in requests)
    known = {(each.stream, each.seq): each for each in requests}
    rows, unassigned = [], 0
    for call in sorted(calls, key=lambda call: call["start_ns"]):
        request = known.get((call["key"][1], call["key"][2])) if call["key"] else _only(requests, ends_ns, call)
        if request is None:
            unassigned += 1
            continue
        row = {name: call.get(name) for name in _COLUMNS}
        if row["outcome"] == "truncated" and request.outcome in ("cancelled", "timeout"):
            # Its request was cut off, and the call with it.
            row["outcome"] = request.outcome
        rows.append(row | {"visit": visit, "stream": request.stream, "seq": request.seq, "attempt": request.attempt})
    _number(folder, rows)
    return rows, unassigned


def _requests(folder: Path) -> list[_Request]:
    import polars as pl

    records = scan(sorted((folder / "records").glob("part-*.parquet")))
    names = ("sent_ns", "end_ns", "stream", "seq", "attempt", "outcome")
    sent = records.filter(pl.col("sent_ns").is_not_null() & pl.col("end_ns").is_not_null()).select(names)
    return [_Request(*row) for row in sent.sort("sent_ns").collect().iter_rows()]


def _only(requests: Sequence[_Request], ends_ns: Sequence[int], call: Mapping[str, Any]) -> _Request | None:
    """The request in flight around the whole call, when no other one was in flight at any moment of it."""
    begun = bisect.bisect_right(requests, call["end_ns"], key=lambda each: each.sent_ns)
    if begun - bisect.bisect_left(ends_ns, call["start_ns"]) != 1:
        return None
    only = next(each for each in reversed(requests[:begun]) if each.end_ns >= call["start_ns"])
    return only if only.sent_ns <= call["start_ns"] and call["end_ns"] <= only.end_ns else None


def _number(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Number the calls within their requests, by start, after those that the workflow marked itself."""
    import polars as pl

    used: Counter[tuple[int, int]] = Counter()
    marked = scan_calls(sorted((folder / "spans").glob("*.parquet")))
    if marked is not None:
        for stream, seq, count in marked.group_by("stream", "seq").agg(pl.len()).collect().iter_rows():
            used[stream, seq] = count
    for row in rows:
        key = row["stream"], row["seq"]
        row["call"] = used[key]
        used[key] += 1


def existing_calls(folder: Path) -> tuple[int, list[str]]:
    """How many calls a level's folder holds already, and the parts they are in."""
    import polars as pl

    parts = sorted((folder / "spans").glob("*.parquet"))
    frame = scan_calls(parts)
    count = 0 if frame is None else int(frame.select(pl.len()).collect().item())
    return count, [f"spans/{part.name}" for part in parts]
