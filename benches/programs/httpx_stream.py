"""Streamed completions by a straightforward ``httpx`` client: ``httpx_stream URL FILE`` with a list of bodies.

For each line of standard input it sends them all, and prints for each answer the seconds from its request to each
event with text, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import httpx


def texts_s(client: httpx.Client, url: str, body: dict[str, Any]) -> list[float]:
    """When each event with text was there, in seconds since the request."""
    start_s = time.perf_counter()
    with client.stream("POST", url, json=body) as answer:
        return [time.perf_counter() - start_s for line in answer.iter_lines() if text(line)]


def text(line: str) -> str:
    """What a line of the stream adds to the answer."""
    return str(json.loads(line.removeprefix("data: "))["choices"][0]["text"]) if line.startswith("data: {") else ""


def main(url: str, path: str) -> None:
    """All bodies in turn, on one connection."""
    bodies = json.loads(Path(path).read_text(encoding="utf-8"))
    with httpx.Client(timeout=120) as client:
        for _ in sys.stdin:
            print(json.dumps([texts_s(client, url, body) for body in bodies]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
