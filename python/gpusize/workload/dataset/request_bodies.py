"""Files of complete request bodies: OpenAI's batch files, and perf_analyzer's payloads."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpusize.base.errors import DatasetError
from gpusize.base.text import shown
from gpusize.workload.dataset.parsed import Parsed

__all__ = ["API_OF_URL", "from_batch", "from_perf_analyzer", "looks_like_batch", "looks_like_payloads"]

API_OF_URL: Final = {
    "/v1/chat/completions": "openai-chat",
    "/v1/completions": "openai-completions",
    "/v1/embeddings": "openai-embeddings",
    "/v1/responses": "openai-responses",
}
"""The API of each URL that a batch file may name."""

_ALIGNED: Final = ("session_id", "delay", "timestamp")


def looks_like_batch(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether every row has ``custom_id``, ``url`` and an object ``body``."""
    return all({"custom_id", "url"} <= row.keys() and isinstance(row.get("body"), dict) for row in rows)


def from_batch(parsed: Parsed, source: str) -> tuple[Parsed, str]:
    """Rows of an OpenAI batch file, and the API that its ``url`` stands for.

    Raises:
        DatasetError: a row of another form, a method other than POST, an unknown URL, or several URLs.
    """
    rows: list[dict[str, Any]] = []
    urls: dict[str, str] = {}
    for number, row in enumerate(parsed.rows):
        where = _where(parsed, source, number)
        if not isinstance(row.get("body"), dict) or not isinstance(row.get("url"), str):
            raise DatasetError(
                "this is not a request of a batch", where, 'write {"custom_id", "method", "url", "body": {…}}'
            )
        if str(row.get("method", "POST")).upper() != "POST":
            raise DatasetError(f"the method is {shown(row['method'])}, not POST", where, "a batch holds POST requests")
        url = "/" + row["url"].split("://", 1)[-1].partition("/")[2] if "://" in row["url"] else row["url"]
        if url not in API_OF_URL:
            raise DatasetError(
                f'"{shown(url)}" is not an address of the API', where, f"known are {', '.join(API_OF_URL)}"
            )
        urls.setdefault(url, where)
        if len(urls) > 1:
            first = next(iter(urls))
            raise DatasetError(
                f"this row goes to {url}, those before to {first}", where, "make one file for each, and a run for each"
            )
        made = {"id": str(row.get("custom_id", number)), "body": row["body"]}
        model = row["body"].get("model")
        rows.append({**made, "model": model} if isinstance(model, str) else made)
    notes = [*parsed.notes]
    if urls:
        notes.append(f"{source}: a batch for {next(iter(urls))}")
    return Parsed(rows, parsed.lines, notes), API_OF_URL.get(next(iter(urls), ""), "")


def looks_like_payloads(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether every row has a list ``payload``."""
    return all(isinstance(row.get("payload"), list) for row in rows)


def from_perf_analyzer(parsed: Parsed, source: str) -> Parsed:
    """Rows of perf_analyzer's JSON for OpenAI servers.

    Each entry is ``{"payload": [body, …]}``, with ``session_id``, ``delay`` and ``timestamp`` (milliseconds) as lists
    of one value, or of one for each body. They become ``session`` and ``turn``, ``delay_s`` and ``arrival_s``.

    Raises:
        DatasetError: tensors instead of payloads, or an entry of another form.
    """
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    turns: Counter[str] = Counter()
    for number, entry in enumerate(parsed.rows):
        where = _where(parsed, source, number)
        bodies = entry.get("payload")
        if not isinstance(bodies, list):
            raise DatasetError(
                "this is perf_analyzer's input of tensors", where, "give it with --input and --api kserve"
            )
        for position, body in enumerate(bodies):
            row: dict[str, Any] = {"body": _body(body, where)}
            extra = {name: _aligned(entry, name, position, len(bodies), where) for name in _ALIGNED}
            if extra["session_id"] is not None:
                session = str(extra["session_id"])
                row |= {"session": session, "turn": turns[session]}
                turns[session] += 1
            if extra["delay"] is not None:
                row["delay_s"] = _ms(extra["delay"], where) / 1e3
            if extra["timestamp"] is not None:
                row["arrival_s"] = _ms(extra["timestamp"], where) / 1e3
            rows.append(row)
            lines += parsed.lines[number : number + 1]
    first = min((row["arrival_s"] for row in rows if "arrival_s" in row), default=0.0)
    for row in rows:
        if "arrival_s" in row:
            row["arrival_s"] = round(row["arrival_s"] - first, 9)
    return Parsed(rows, lines, parsed.notes)


def _body(body: Any, where: str) -> dict[str, Any]:
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except (ValueError, RecursionError):
            body = None
    if not isinstance(body, dict):
        raise DatasetError("a payload is not an object", where, 'write {"payload": [{"model": …, "messages": …}]}')
    return body


def _aligned(entry: Mapping[str, Any], name: str, position: int, count: int, where: str) -> Any:
    value = entry.get(name)
    if not isinstance(value, list):
        return value
    if len(value) not in {1, count}:
        raise DatasetError(
            f'"{name}" has {len(value)} values for {count} payloads', where, "give one, or one for each payload"
        )
    return value[position] if len(value) == count else value[0]


def _ms(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        raise DatasetError(f"{shown(value)} is not a time in milliseconds", where, "write a number of 0 or more")
    return float(value)


def _where(parsed: Parsed, source: str, number: int) -> str:
    return f"{source}:{parsed.lines[number]}" if parsed.lines else f"{source}, row {number}"
