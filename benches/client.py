"""The gpusize side of a benchmark: one whole Python process that sends one level and ends.

``python -m benches.client '{"port": 8080, "load": {...}, "stop": {...}, "dir": "..."}'`` prints the level's outcome as
JSON. Everything that a run of the engine costs is in this process: the interpreter, the import, the worker and the
writer of Parquet.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["level_plan", "main", "target_spec"]

PLAIN_RESPONSE: dict[str, Any] = {
    "framing": "whole",
    "content": [],
    "reasoning": [],
    "tokens_in": None,
    "tokens_out": None,
    "tokens_cached": None,
    "tokens_reasoning": None,
    "error": None,
    "end": None,
    "success": [200, 299],
}


def target_spec(port: int, **changes: Any) -> dict[str, Any]:
    """GET / on loopback, as docs/reference/engine.md spells a target; ``changes`` replace its fields."""
    spec: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": port,
        "tls": None,
        "method": "GET",
        "path": "/",
        "headers": [],
        "connect_timeout_ns": 5_000_000_000,
        "timeout_ns": 30_000_000_000,
        "max_header_bytes": 65_536,
        "max_body_bytes": 1 << 30,
        "response": PLAIN_RESPONSE,
    }
    return {**spec, **changes}


def level_plan(load: dict[str, Any], stop: dict[str, Any], directory: str | None, **changes: Any) -> dict[str, Any]:
    """One level; the stop rules that are not given are off."""
    plan: dict[str, Any] = {
        "visit": 0,
        "seed": 1,
        "load": load,
        "stop": {"count": None, "duration_ns": None, "max_error_share": None, "min_errors": 1, **stop},
        "order": "file",
        "dir": directory,
        "keep_bytes": 64 << 20,
    }
    return {**plan, **changes}


def main(argument: str) -> int:
    """Send the level that ``argument`` describes."""
    from gpusize import _core

    asked = json.loads(argument)
    directory = asked.get("dir")
    if directory:
        Path(directory).mkdir(parents=True, exist_ok=True)
    startup_s, startup_sleeps = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
    target = json.dumps(target_spec(asked["port"], **asked.get("target", {})))
    segments, workers = json.dumps(asked.get("segments", [])), asked.get("workers", 1)
    session = _core.Session(target, segments, rows_of(asked), workers=workers)
    workers_first()
    level = session.level(json.dumps(level_plan(asked["load"], asked["stop"], directory)))
    # As a run does for its display: ten looks a second are part of what the generator costs.
    with _series(asked.get("series")) as note:
        while not level.wait(0.1):
            note(level.poll())
    outcome = json.loads(level.outcome())
    outcome.pop("histograms", None)
    startup = {"startup_cpu_s": startup_s, "startup_sleeps": startup_sleeps}
    facts = {**startup, "build": _core.BUILD_PROFILE, "worker_waits_s": worker_waits_s()}
    session.close()
    print(json.dumps({**facts, "vm_hwm_bytes": vm_hwm(), **outcome}))
    return 0


@contextlib.contextmanager
def _series(path: str | None) -> Iterator[Callable[[str], None]]:
    """Notes requests done, resident bytes, CPU seconds and the clock: on disk, as a list would be growth, too."""
    if path is None:
        yield lambda _: None
        return
    with Path(path).open("w", encoding="ascii") as lines:

        def note(progress: str) -> None:
            reading = (json.loads(progress)["done"], vm_rss(), time.process_time(), time.monotonic())
            print(*reading, file=lines, flush=True)

        yield note


def rows_of(asked: dict[str, Any]) -> list[list[bytes]]:
    """The rows that segments name as field 0: given ones (``rows``, base64), one of zeros (``body_bytes``), or none."""
    if "rows" in asked:
        return [[base64.b64decode(row)] for row in asked["rows"]]
    return [[bytes(asked["body_bytes"])]] if "body_bytes" in asked else [[]]


def worker_waits_s() -> float:
    """For how long the engine's workers were ready to run and had no core, by the scheduler's own count."""
    waits_ns = 0
    for task in _workers():
        # A thread that has just ended is listed and gone.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            waits_ns += int((task / "schedstat").read_text().split()[1])
    return waits_ns / 1e9


def workers_first() -> None:
    """Under real-time priority, put the workers before this process's other threads; else do nothing.

    Equals under SCHED_FIFO never interrupt each other: while the writer encodes rows for milliseconds, a worker on the
    same core would wait for its end, which an ordinary scheduler does not make it do.
    """
    if os.sched_getscheduler(0) != os.SCHED_FIFO:
        return
    for task in _workers():
        os.sched_setscheduler(int(task.name), os.SCHED_FIFO, os.sched_param(2))


def _workers() -> Iterator[Path]:
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if "worker" in (task / "comm").read_text():
                yield task


def vm_hwm() -> int:
    """The peak of this process's resident memory, in bytes."""
    return _status("VmHWM")


def vm_rss() -> int:
    """This process's resident memory, in bytes."""
    return _status("VmRSS")


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status holds no {name}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
