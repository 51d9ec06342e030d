"""Submissions into the double of an API server, and what they leave."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gpusize.base.interrupt import StopSwitch
from gpusize.cluster.access.api import connect
from gpusize.cluster.folder import read_facts, scan_table
from gpusize.cluster.submit.options import SubmitOptions
from gpusize.cluster.submit.submit import Submitted, submit
from tests.cluster.api_double import ApiDouble


class Folder:
    """A folder of a test: submits into it, and reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def submit(
        self, double: ApiDouble, number: int | None = None, *, switch: StopSwitch | None = None, **more: Any
    ) -> Submitted:
        """Submit pods in rounds of 4, where nothing else is said."""
        given = {"workload_type": "pod", "num_processes": 4, "namespace": "default", "num_workloads": number, **more}
        options = SubmitOptions(**given)

        async def run() -> Submitted:
            self.path.mkdir(parents=True, exist_ok=True)
            async with connect(double.kubeconfig(self.path.parent), connections=40) as api:
                return await submit(api, options, self.path, switch=switch)

        return asyncio.run(run())

    @property
    def attempts(self) -> pl.DataFrame:
        return scan_table(self.path, "attempts").collect().sort("index", "attempt")

    @property
    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = read_facts(self.path)["submit"]
        return facts

    @property
    def submitted(self) -> list[dict[str, str]]:
        entries: list[dict[str, str]] = json.loads((self.path / "submitted.json").read_text())
        return entries


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "out")
