"""Stages against workflows: the schedule is the engine's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl

from gpusize.api.run import run
from gpusize.workload.dataset import Dataset
from gpusize.workload.load import Load
from gpusize.workload.schedule.from_engine import arrivals

if TYPE_CHECKING:
    from pathlib import Path

ROWS = Dataset.from_rows(["a", "b", "c"])


async def echo(question: str) -> str:
    return question


def test_requests_are_due_as_planned(tmp_path: Path) -> None:
    load = Load(stages="40/s constant@500ms, 0/s@100ms, 20/s..60/s@500ms", order="shuffled", seed=4)
    result = run(echo, ROWS, load, out=tmp_path)
    levels = load.levels(ROWS)
    for level, folder in zip(levels, sorted((result.path / "levels").iterdir()), strict=True):
        told = json.loads((folder / "level.json").read_text("utf-8"))
        assert told["due"] == level.setting["expected"]
        assert told["stop_reason"] == "duration"
        if told["due"]:
            records = pl.read_parquet(folder / "records" / "*.parquet").sort("seq")
            planned = arrivals(level.plan, 3)
            start_ns = told["start_ns"]
            assert (records["due_ns"].cast(pl.Int64) - start_ns).to_list() == planned["due_ns"].to_list()
            assert records["row"].to_list() == planned["row"].to_list()
