"""The files of a level are read once for all that is said of it, and what is kept meanwhile is bounded."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gpusize.analysis import kept, level
from gpusize.cli import invoke
from gpusize.records.schema import EVENTS, SERVER_TIMES, record_dtypes
from gpusize.result import open_run
from tests.analysis.open_levels import write_level, write_run
from tests.analysis.reads import counted
from tests.analysis.synthetic import closed, lognormal_ns

USERS = (1, 2, 4, 8)
SLOS = ("p95 runtime <= 400ms", "p99 service <= 1s")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four levels of a closed loop, slower with more users."""
    place = write_run(tmp_path_factory.mktemp("kept") / "run", options={"slo": list(SLOS), "users": 40})
    start = 1_000_000_000
    for visit, users in enumerate(USERS):
        columns = closed(users, lognormal_ns(visit, 1e8 * (1 + 0.2 * users), 0.3), count=800, start_ns=start)
        n = len(columns["due_ns"])
        more = {"bytes_in": [100 + k for k in range(n)], "tokens_out": [50] * n, "events": [49] * n}
        setting = {"kind": "closed", "concurrency": users, "passes": None, "count": n, "duration_s": None}
        length_s = (max(columns["end_ns"]) - start) / 1e9
        write_level(place, visit, {**columns, **more}, setting, length_s, start_ns=start, stop_reason="count")
        start = max(columns["end_ns"]) + 1_000_000_000
    # As a run leaves it: with the intervals that were cut when each level ended.
    for found in open_run(place).levels:
        assert found.folder is not None
        file = found.folder / "level.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "intervals": list(found.intervals)}))
        # Nor has it the times of events, which nobody asked for, and those of the server, which said none.
        part = found.folder / "records" / "part-00000.parquet"
        pl.read_parquet(part).drop(EVENTS, *SERVER_TIMES).write_parquet(part)
    return place


@pytest.mark.parametrize("command, most", [("report", 45), ("estimate", 40)])
def test_a_levels_files_are_read_once(run: Path, command: str, most: int, capsys: pytest.CaptureFixture[str]) -> None:
    with counted() as reads:
        assert invoke([command, str(run), *(["--no-plots"] if command == "report" else [])]) == 0
    capsys.readouterr()
    # The rows themselves, and how many rows the parts of the level have.
    assert reads.from_files == len(USERS) * 2
    # Further scans look at footers alone: which columns there are, which schema, whether times of events are kept, and
    # whether servers said times.
    assert reads.scans <= len(USERS) * 5
    assert reads.collects <= len(USERS) * most


def test_what_is_kept_is_bounded_and_figures_are_the_same(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = open_run(run)
    with counted() as once:
        wanted = usual.summary
    monkeypatch.setattr(kept, "MOST_BYTES", 1)
    narrow = open_run(run)
    with counted() as often:
        assert narrow.summary.equals(wanted)
        assert narrow.estimate().gpus == usual.estimate().gpus
    assert often.from_files > once.from_files
    assert len(kept.held()) == 1, "the level that was used last"


def test_a_level_of_very_many_rows_is_not_kept(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = open_run(run).summary
    monkeypatch.setattr(level, "LARGEST", 700)
    gc.collect()
    before = kept.held()
    assert open_run(run).summary.equals(wanted)
    assert kept.held() == before


def test_rows_go_with_their_result(run: Path) -> None:
    gc.collect()
    before = sum(kept.held().values())
    found = open_run(run)
    assert found.summary.height == len(USERS)
    assert sum(kept.held().values()) > before
    del found
    gc.collect()
    assert sum(kept.held().values()) == before


def test_an_slo_on_another_column_reads_just_that(run: Path) -> None:
    found = open_run(run).asking(slos=["p95 bytes_in <= 800B"])
    raw = pl.read_parquet(run / "levels" / "0003" / "records" / "part-00000.parquet")
    steady = next(each for each in found.levels[3].intervals if each["name"] == "steady")
    due, size = raw["due_ns"].to_numpy(), raw["bytes_in"].to_numpy()
    inside = size[(due >= steady["start_ns"]) & (due < steady["end_ns"])]
    assert found.summary["slo_0_attainment"][3] == pytest.approx(np.mean(inside <= 800), abs=1e-12)


def test_columns_that_are_kept_are_columns_of_records() -> None:
    assert set(kept.COLUMNS) <= set(record_dtypes())
