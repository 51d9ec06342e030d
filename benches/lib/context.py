"""What every section of the benchmark is given."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benches.lib.peers import Tools
from benches.lib.procs import BenchFailed, Finished, pinned, run_measured
from benches.lib.results import Report

__all__ = ["Context", "say"]


def say(text: str) -> None:
    """Progress, on stderr: stdout is for tables and bars."""
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Context:
    """Settings of the run and where its findings go."""

    report: Report
    tools: Tools
    server_core: int
    client_core: int
    pairs: int
    quick: bool
    scratch: Path

    def size(self, full: int, quick: int) -> int:
        """The amount of work: enough for the record, or just enough for a smoke test."""
        return quick if self.quick else full

    def fresh_dir(self, name: str) -> Path:
        """An empty folder below the scratch folder."""
        path = self.scratch / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def run_client(
        self, asked: Mapping[str, Any], timeout_s: float = 600, *, anywhere: bool = False
    ) -> tuple[Finished, dict[str, Any]]:
        """One level by benches.client on the client's core, or ``anywhere``; its process and its outcome.

        Raises BenchFailed when a request failed or the extension is no release build: neither passes for a measurement.
        """
        command = [sys.executable, "-m", "benches.client", json.dumps(asked)]
        finished = run_measured(command if anywhere else pinned(command, self.client_core), timeout_s=timeout_s)
        outcome: dict[str, Any] = json.loads(finished.stdout)
        if outcome["build"] != "release":
            raise BenchFailed(f"the extension is a {outcome['build']} build: make setup builds it for release")
        if set(outcome["outcomes"]) != {"ok"} or outcome["write_error"]:
            raise BenchFailed(f"not all ok: {outcome['outcomes']} {outcome['errors']} {outcome['write_error']}")
        return finished, outcome
