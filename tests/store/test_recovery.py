"""A run that died: whole levels stay, closed parts of the open one become a partial level, the rest is run again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from gpusize.base.errors import StoreError
from gpusize.measure.recovery import finished_steps, recover
from gpusize.records.per_second import scan_seconds
from gpusize.records.store import RunStore, level_dirs, open_level_dirs, read_level

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SETTING = {"kind": "closed", "concurrency": 4}


def part(path: Path, rows: list[tuple[int, int | None, int | None, int]]) -> None:
    names = ("due_ns", "sent_ns", "end_ns", "outcome")
    schema = {"due_ns": pl.Int64, "sent_ns": pl.Int64, "end_ns": pl.Int64, "outcome": pl.UInt8}
    pl.DataFrame({name: [row[k] for row in rows] for k, name in enumerate(names)}, schema=schema).write_parquet(path)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with RunStore.create(tmp_path, {"run": "r", "levels": [SETTING, SETTING, SETTING]}) as made:
        yield made


def open_level(store: RunStore, visit: int, step: int) -> Path:
    return store.open_level(visit, {"setting": SETTING, "step": step}) / "records"


def commit(store: RunStore, visit: int, step: int, state: str) -> None:
    open_level(store, visit, step)
    level: dict[str, Any] = {"setting": SETTING, "step": step, "state": state}
    store.commit_level(visit, level, {})


def test_closed_parts_become_a_partial_level(store: RunStore) -> None:
    records = open_level(store, 2, 1)
    part(records / "part-00000.parquet", [(10, 11, 20, 0), (12, 13, 40, 0)])
    part(records / "part-00001.parquet", [(14, None, None, 9), (30, 31, 35, 1)])

    [folder] = recover(store)

    level = read_level(folder)
    assert folder.name == "0002"
    assert level["state"] == "partial"
    assert level["setting"] == SETTING
    assert (level["start_ns"], level["close_ns"], level["end_ns"]) == (10, 30, 40)
    assert (level["due"], level["sent"], level["rows"]) == (4, 3, 4)
    assert level["outcomes"] == {"ok": 2, "http_error": 1, "shed": 1}
    assert level["parts"] == ["records/part-00000.parquet", "records/part-00001.parquet"]
    assert level["intervals"] == []
    assert "not used for estimates" in level["alerts"][0]
    assert open_level_dirs(store.path) == []


def test_a_torn_part_is_kept_under_another_name(store: RunStore) -> None:
    records = open_level(store, 0, 0)
    part(records / "part-00000.parquet", [(10, 11, 20, 0)])
    whole = (records / "part-00000.parquet").read_bytes()
    (records / "part-00001.parquet").write_bytes(whole[: len(whole) // 2])
    (records / "part-00002.parquet.tmp").write_bytes(b"PAR1")

    [folder] = recover(store)

    level = read_level(folder)
    assert level["rows"] == 1
    assert level["parts"] == ["records/part-00000.parquet"]
    kept = folder / "records" / "part-00001.parquet.torn"
    assert kept.read_bytes() == whole[: len(whole) // 2]
    assert (folder / "records" / "part-00002.parquet.tmp.torn").exists()
    assert "2 part(s)" in level["alerts"][1]


def test_a_level_without_a_whole_part_is_still_kept(store: RunStore) -> None:
    (open_level(store, 0, 0) / "part-00000.parquet").write_bytes(b"PAR1 and no end")
    [folder] = recover(store)
    assert read_level(folder)["rows"] == 0
    assert read_level(folder)["state"] == "partial"


def test_queued_levels_leave_nothing(store: RunStore) -> None:
    open_level(store, 0, 0)
    (store.path / "levels" / ".0001.open").mkdir()
    assert recover(store) == []
    assert list((store.path / "levels").iterdir()) == []


def test_a_note_that_was_cut_off_leaves_nothing(store: RunStore) -> None:
    path = open_level(store, 0, 0).parent
    (path / ".level.json.4711.tmp").write_text('{"schema": 1, "vis')
    assert recover(store) == []
    assert list((store.path / "levels").iterdir()) == []


def test_why_a_search_chose_a_level_outlives_a_crash(store: RunStore) -> None:
    chosen = {"why": "edge", "low": 3.0, "high": 9.0}
    records = store.open_level(0, {"setting": SETTING, "step": 0, "search": chosen}) / "records"
    part(records / "part-00000.parquet", [(10, 11, 20, 0)])
    [folder] = recover(store)
    assert read_level(folder)["search"] == chosen


def test_what_needs_no_further_visit(store: RunStore) -> None:
    commit(store, 0, 0, "done")
    commit(store, 1, 1, "interrupted")
    commit(store, 2, 2, "cancelled")
    assert finished_steps(store.path) == {0, 1}
    commit(store, 3, 2, "done")
    assert finished_steps(store.path) == {0, 1, 2}


def test_recovering_twice_changes_nothing(store: RunStore) -> None:
    part(open_level(store, 0, 0) / "part-00000.parquet", [(10, 11, 20, 0)])
    recover(store)
    before = [read_level(each) for each in level_dirs(store.path)]
    assert recover(store) == []
    assert [read_level(each) for each in level_dirs(store.path)] == before


def test_calls_of_a_run_that_died_are_kept_like_its_records(store: RunStore) -> None:
    records = open_level(store, 0, 0)
    part(records / "part-00000.parquet", [(10, 11, 20, 0)])
    spans = records.with_name("spans")
    spans.mkdir()
    pl.DataFrame({"call": [0, 1]}).write_parquet(spans / "part-00000.parquet")
    (spans / "part-00001.unfinished").write_bytes(b"PAR1")

    [folder] = recover(store)

    level = read_level(folder)
    assert (level["spans"], level["span_parts"]) == (2, ["spans/part-00000.parquet"])
    assert "1 part(s) were cut off and cannot be read: spans/part-00001.unfinished.torn" in level["alerts"][1]
    assert (folder / "spans" / "part-00001.unfinished.torn").exists()


def counted(path: Path, lines: list[tuple[int, int, int, int]]) -> None:
    names = ("second", "due", "sent", "ok")
    path.parent.mkdir(exist_ok=True)
    pl.DataFrame({name: [line[k] for line in lines] for k, name in enumerate(names)}).write_parquet(path)


def test_seconds_and_histograms_of_a_run_that_died_are_kept(store: RunStore) -> None:
    records = open_level(store, 0, 0)
    part(records / "part-00000.parquet", [(10, 11, 20, 0)])
    counted(records.with_name("seconds") / "part-00000.parquet", [(0, 1, 1, 1)])
    histograms = records.with_name("histograms")
    histograms.mkdir()
    (histograms / "part-00000.unfinished").write_bytes(b"PAR1")

    [folder] = recover(store)

    level = read_level(folder)
    assert (level["second_parts"], level["histogram_parts"]) == (["seconds/part-00000.parquet"], [])
    assert (level["rows"], level["due"], level["sampled"]) == (1, 1, 1)
    assert (folder / "histograms" / "part-00000.unfinished.torn").exists()
    assert "histograms/part-00000.unfinished.torn" in level["alerts"][1]


def test_counts_of_a_sampled_level_come_from_its_seconds(store: RunStore) -> None:
    records = open_level(store, 0, 0)
    columns = {"seq": [20, 0, 30], "due_ns": [1, 2, 3], "sent_ns": [1, 2, 3], "end_ns": [4, 5, 6], "outcome": [0, 0, 1]}
    pl.DataFrame(columns, schema_overrides={"outcome": pl.UInt8}).write_parquet(records / "part-00000.parquet")
    counted(records.with_name("seconds") / "part-00000.parquet", [(0, 20, 19, 18), (1, 15, 15, 12)])
    counted(records.with_name("seconds") / "part-00001.parquet", [(1, 1, 1, 1)])

    [folder] = recover(store)

    level = read_level(folder)
    assert (level["due"], level["sent"], level["rows"], level["sampled"]) == (36, 35, 3, 10)
    assert level["outcomes"] == {"ok": 31}


def test_a_level_of_which_only_counts_reached_the_disk_is_kept(store: RunStore) -> None:
    records = open_level(store, 0, 0)
    counted(records.with_name("seconds") / "part-00000.parquet", [(0, 3, 3, 2)])
    [folder] = recover(store)
    assert (read_level(folder)["due"], read_level(folder)["rows"]) == (3, 0)


def test_a_damaged_part_of_the_seconds_is_named_with_its_fault(tmp_path: Path) -> None:
    part = tmp_path / "seconds" / "part-000.parquet"
    part.parent.mkdir()
    part.write_bytes(b"PAR1, and no more")
    with pytest.raises(StoreError, match=r"unreadable part \(\S.*\S\)") as caught:
        scan_seconds(tmp_path)
    assert caught.value.where == str(part)
