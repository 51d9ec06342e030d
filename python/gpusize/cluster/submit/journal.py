"""What a submission writes while it goes on: attempts as parts of a table, and ``submitted.json``.

About each second, so that a process that dies loses a second at most; in a thread, so that nothing is sent late for it.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from gpusize.base.files import write_atomic
from gpusize.cluster.folder import append_rows
from gpusize.cluster.tables import ATTEMPTS

__all__ = ["SUBMITTED", "Journal", "iso_us"]

SUBMITTED: Final = "submitted.json"
_EVERY_S: Final = 1.0
_PER_SECOND: Final = 20_000
"""Workloads in ``submitted.json`` for each second between its writings: it is written anew as a whole."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def iso_us(at_ns: int) -> str:
    """A time as the Run:ai scale test tool writes it: UTC, microseconds, ``+00:00``."""
    return (_EPOCH + timedelta(microseconds=at_ns // 1000)).isoformat(timespec="microseconds")


class Journal:
    """Keeps rows until they are written.

    Args:
        folder: of the test.
        project: of Run:ai.
        namespace: of the workloads.
    """

    def __init__(self, folder: Path, project: str, namespace: str) -> None:
        self._folder = folder
        self._project = project
        self._namespace = namespace
        self._rows: list[Mapping[str, Any]] = []
        self._submitted: dict[int, str] = {}
        self._written = -1
        self._writing = threading.Lock()

    def add(self, row: Mapping[str, Any]) -> None:
        """Keep the row of an attempt."""
        self._rows.append(row)

    def submitted(self, index: int, name: str, sent_ns: int) -> None:
        """Keep that a workload was created, and when it was first sent."""
        entry = {
            "jobName": name,
            "projectName": self._project,
            "jobNamespace": self._namespace,
            "submitTimestamp": iso_us(sent_ns),
        }
        self._submitted[index] = json.dumps(entry)

    async def keep_writing(self) -> None:
        """Write about each second, until it is cancelled."""
        loop = asyncio.get_running_loop()
        next_list = loop.time()
        while True:
            await asyncio.sleep(_EVERY_S)
            whole = loop.time() >= next_list
            await asyncio.to_thread(self.write, whole=whole)
            if whole:
                next_list = loop.time() + len(self._submitted) / _PER_SECOND

    def write(self, *, whole: bool = True) -> None:
        """Write what came since the last time; with ``whole`` also ``submitted.json``.

        Raises:
            StoreError: it cannot be written. The rows are kept.
        """
        with self._writing:
            rows, self._rows = self._rows, []
            try:
                append_rows(self._folder, ATTEMPTS, rows)
            except BaseException:
                self._rows = [*rows, *self._rows]
                raise
            if whole and len(self._submitted) != self._written:
                entries = sorted(self._submitted.items())
                text = "[" + ", ".join(entry for _, entry in entries) + "]"
                write_atomic(self._folder / SUBMITTED, text.encode())
                self._written = len(entries)
