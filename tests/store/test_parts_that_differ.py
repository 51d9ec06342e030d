"""Parts of one level of which the first has nothing but failures, and so none of the columns that answers fill."""

from __future__ import annotations

import hashlib
import json
from itertools import permutations
from pathlib import Path

import polars as pl
import pytest

import gpusize
from gpusize.measure.recovery import recover
from gpusize.records.schema import scan_stored
from gpusize.records.store import RunStore, read_level
from tests.report.folders import HTTP_ERROR, level_columns, run_folder, streamed

ADDED = ("reasoning_events", "first_output_ns", "itl_min_ns", "itl_mean_ns", "itl_p50_ns", "itl_p99_ns", "itl_max_ns")


def split(whole: pl.DataFrame) -> list[pl.DataFrame]:
    """As the engine closes them: a part without a value in a column of version 2 leaves all of them out."""
    left = [name for name in (*ADDED, "events_ns") if name in whole.columns]
    parts = [whole.filter(pl.col("outcome") == HTTP_ERROR).drop(left), whole.filter(pl.col("outcome") == 0)]
    return [*parts, parts[0].clear().vstack(parts[0].head(1))]


def measured(place: Path) -> tuple[Path, pl.DataFrame]:
    columns = level_columns(2)
    streamed(columns, 5, tokens=6)
    n = len(columns["due_ns"])
    columns["outcome"] = [HTTP_ERROR if k < 4 else 0 for k in range(n)]
    columns["itl_p50_ns"] = [None if k < 4 else 10_000_000 for k in range(n)]
    run = run_folder(place / "run", {2: columns})
    file = run / "levels" / "0000" / "records" / "part-00000.parquet"
    return run, pl.read_parquet(file)


@pytest.mark.parametrize("order", list(permutations(range(2))))
def test_a_run_is_read_whatever_part_comes_first(tmp_path: Path, order: tuple[int, ...]) -> None:
    run, whole = measured(tmp_path)
    folder = run / "levels" / "0000"
    parts = split(whole)
    names = [f"records/part-{k:05d}.parquet" for k in range(2)]
    for name, k in zip(names, order, strict=True):
        parts[k].write_parquet(folder / name)
    told = json.loads((folder / "level.json").read_text())
    digests = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    told |= {"rows": whole.height, "parts": names, "checksums": digests}
    (folder / "level.json").write_text(json.dumps(told))
    found = gpusize.open_run(run)
    assert found.records["outcome"].value_counts(sort=True).rows() == [("ok", whole.height - 4), ("http_error", 4)]
    assert found.records["itl_p50_ns"].count() == whole.height - 4
    assert found.summary["n"].item() > 0


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_run_that_died_is_recovered_whatever_part_comes_first(tmp_path: Path, order: tuple[int, ...]) -> None:
    _, whole = measured(tmp_path)
    setting = {"kind": "closed", "concurrency": 2}
    with RunStore.create(tmp_path, {"run": "r", "levels": [setting]}) as store:
        records = store.open_level(0, {"setting": setting, "step": 0}) / "records"
        files = [records / f"part-{k:05d}.parquet" for k in range(3)]
        for file, k in zip(files, order, strict=True):
            split(whole)[k].write_parquet(file)
        assert scan_stored(files, ["tokens_out"]).collect()["tokens_out"].sum() == whole["tokens_out"].sum() + 6
        [folder] = recover(store)
    level = read_level(folder)
    assert level["rows"] == whole.height + 1
    assert level["outcomes"] == {"ok": whole.height - 4, "http_error": 5}
