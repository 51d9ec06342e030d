"""Single requests of inference-perf (``per_request_lifecycle_metrics.json``), told apart by stage.

A request names no stage. Stages ran one after the other, each to its last answer, and a stage's report says how many
requests it had: sorted by their start, the first so many are of the first stage. What each stage says of its failures,
its mean and its longest request then has to be what its requests say, or they are not taken.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpusize.base.errors import ConfigError
from gpusize.base.files import storing
from gpusize.base.text import shown
from gpusize.studies.imports.json_file import count, nanoseconds, number, numbers, part, text
from gpusize.studies.imports.json_stream import JsonStream
from gpusize.studies.imports.whole_file import MOST_BYTES

if TYPE_CHECKING:
    import polars as pl

__all__ = ["StageSums", "read_requests"]

_TODO: Final = "is it a file of inference-perf?"
_BATCH: Final = 4096
_AGREE_S: Final = 2e-6
"""So much may a mean of times differ that were rounded to ns."""
_STATUS: Final = re.compile(r"HTTP Error ([1-5]\d\d)")
_KINDS: Final = (
    ("timeout", re.compile(r"Timeout")),
    ("connect_error", re.compile(r"Connector|ConnectionRefused|ConnectError")),
    ("truncated", re.compile(r"Payload|Disconnected|Reset|Stream|IncompleteRead")),
)
_OUTPUT: Final = ("completion_tokens", "output_tokens")
"""What a server's usage calls the tokens that it made, by API."""


class StageSums(NamedTuple):
    """What the report of a stage says of its requests.

    Attributes:
        total, failed: how many.
        mean_s, longest_s: of the requests that succeeded; None where none did.
    """

    total: int
    failed: int
    mean_s: float | None
    longest_s: float | None


def read_requests(file: Path, stages: Sequence[StageSums], warnings: list[str]) -> tuple[list[pl.DataFrame], str]:
    """The requests of each stage, as columns of records, and the digest of the file.

    Args:
        file: the file of single requests.
        stages: in the order in which they ran.
        warnings: where it is said why the requests cannot be taken.

    Returns:
        A frame per stage, none where they cannot be taken; and the digest.

    Raises:
        ConfigError: the file is broken, with line and byte.
        StoreError: it cannot be read.
    """
    import polars as pl

    if file.stat().st_size > MOST_BYTES:
        warnings.append(f"{file} is left out: it has more than {MOST_BYTES >> 20} MiB")
        return [], ""
    frames: list[pl.DataFrame] = []
    held: list[dict[str, Any]] = []
    with storing(file), file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
        opened.seek(0)
        stream = JsonStream(opened, str(file), _TODO)
        for at, each in enumerate(stream.elements(), 1):
            if not isinstance(each, dict):
                stream.fail("not a JSON object")
            held.append(_row(each, f"{file}, request {at:,}"))
            if len(held) == _BATCH:
                frames.append(pl.DataFrame(held, schema=_schema()))
                held = []
        stream.end()
    frames.append(pl.DataFrame(held, schema=_schema()))
    every = pl.concat(frames).sort("sent_ns", maintain_order=True)
    wrong = _apart(every, stages)
    if isinstance(wrong, str):
        warnings.append(f"{file} is left out: {wrong}")
        return [], digest
    return wrong, digest


def _schema() -> dict[str, Any]:
    import polars as pl

    return {
        **dict.fromkeys(("sent_ns", "end_ns", "status", "tokens_in", "tokens_out", "tokens_cached"), pl.Int64),
        "events_ns": pl.List(pl.Int64),
        **dict.fromkeys(("outcome", "error"), pl.String),
    }


def _apart(every: pl.DataFrame, stages: Sequence[StageSums]) -> list[pl.DataFrame] | str:
    """The requests by stage, or what speaks against that."""
    import polars as pl

    total = sum(stage.total for stage in stages)
    if every.height != total:
        return f"it has {every.height:,} requests, and the stages have {total:,}"
    found = []
    at = 0
    for number_, stage in enumerate(stages):
        frame = every.slice(at, stage.total)
        at += stage.total
        ok = frame.filter(pl.col("outcome") == "ok")
        took = (ok["end_ns"] - ok["sent_ns"]) / 1e9
        figures = ((took.mean(), stage.mean_s), (took.max(), stage.longest_s))
        if frame.height - ok.height != stage.failed or not all(_same(mine, told) for mine, told in figures):
            return f"its requests by their start are not those of report {number_ + 1} of {len(stages)}"
        found.append(frame)
    return found


def _same(mine: Any, told: float | None) -> bool:
    if told is None or mine is None:
        return told is None and mine is None
    return bool(abs(mine - told) <= _AGREE_S)


def _row(request: Mapping[str, Any], where: str) -> dict[str, Any]:
    start, end = number(request, "start_time", where), number(request, "end_time", where)
    if start is None or end is None:
        raise ConfigError("start_time or end_time is missing", where, _TODO)
    info = part(request, "info", where)
    answer = part(info, "response_metrics", where)
    usage = part(answer, "server_usage", where)
    asked = part(part(info, "request_metrics", where), "text", where)
    times = numbers(answer, "chunk_times", where)
    made = next((n for key in _OUTPUT if (n := count(usage, key, where)) is not None), None)
    row: dict[str, Any] = {
        "sent_ns": nanoseconds(start, where),
        "end_ns": nanoseconds(end, where),
        "events_ns": [nanoseconds(each, where) for each in times] if times else None,
        "tokens_in": count(asked, "input_tokens", where) or None,
        "tokens_out": count(answer, "output_tokens", where) or None if made is None else made,
        "tokens_cached": count(part(usage, "prompt_tokens_details", where), "cached_tokens", where),
        "outcome": "ok",
        "error": None,
        "status": None,
    }
    error = part(request, "error", where)
    return row | _failure(error) if error else row


def _failure(error: Mapping[str, Any]) -> dict[str, Any]:
    kind, message = text(error, "error_type") or "", text(error, "error_msg") or ""
    status = _STATUS.search(kind)
    said = shown(f"{kind}: {message}", 500)
    if status is not None:
        return {"outcome": "http_error", "error": said, "status": int(status[1])}
    found = next((outcome for outcome, pattern in _KINDS if pattern.search(kind)), "api_error")
    return {"outcome": found, "error": said}
