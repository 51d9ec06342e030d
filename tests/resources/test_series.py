from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from gpusize.base.errors import StoreError
from gpusize.observe.usage.readings import COUNTERS, GAUGES, MARKS, Readings, empty_frame, wide_frame, wide_schema
from gpusize.observe.usage.source_facts import Facts, Limit
from tests.resources.made import MS, S, readings


def test_the_schema_is_the_samplers():
    assert " ".join(wide_schema()) == (
        "t_ns width_ns epoch cpu_ns cpu_user_ns cpu_system_ns cpu_periods cpu_throttled_periods cpu_throttled_ns "
        "mem_bytes mem_peak_bytes mem_inactive_file_bytes mem_active_file_bytes mem_anon_bytes mem_file_bytes "
        "mem_shmem_bytes mem_slab_reclaimable_bytes mem_slab_unreclaimable_bytes mem_kernel_bytes swap_bytes "
        "mem_max_events oom_events oom_kill_events io_read_bytes io_write_bytes io_reads io_writes pids pids_peak "
        "cpu_some_ns cpu_full_ns mem_some_ns mem_full_ns io_some_ns io_full_ns mem_pss_bytes "
        "tmpfs_bytes cpu_waited_ns"
    )
    assert {"t_ns", "width_ns", "epoch", *COUNTERS, *GAUGES, *MARKS} == set(wide_schema())


def test_columns_that_are_not_there_are_null_and_times_are_in_order():
    made = Readings("box", wide_frame(pl.DataFrame({"t_ns": [30, 10], "cpu_ns": [3, None], "width_ns": [5, 6]})))
    assert made.frame["t_ns"].to_list() == [10, 30]
    assert made.frame["pids"].to_list() == [None, None]
    assert made.frame["epoch"].to_list() == [0, 0]
    assert made.frame.schema == wide_schema() == empty_frame().schema
    assert [each.tolist() for each in made.array("cpu_ns")] == [[30], [3]]


def test_what_a_part_needs_of_the_time_before_it():
    times = [step * 20 * MS for step in range(1000)]
    columns = {
        "t_ns": times,
        "mem_bytes": [1] * 1000,
        # Not sure at every reading; read less often; gone after the first second.
        "cpu_ns": [time if step % 4 == 0 else None for step, time in enumerate(times)],
        "io_reads": [step if step % 25 == 0 else None for step in range(1000)],
        "oom_events": [0 if step < 50 else None for step in range(1000)],
    }
    made = readings(columns, interval_ns=20 * MS)
    assert made.since(times[511]).frame["t_ns"][0] == times[500]
    assert made.since(times[526]).frame["t_ns"][0] == times[524]
    assert len(made.since(0)) == 1000
    assert made.since(times[-1] + S).frame["t_ns"][0] == times[975]
    # Of what nothing counts for, the last reading before is enough.
    assert readings({"t_ns": times[:5], "mem_bytes": [1] * 5}).since(times[3]).frame["t_ns"][0] == times[3]
    assert len(readings({"t_ns": []}).since(5)) == 0


def test_parquet_and_back(tmp_path: Path):
    limits = (Limit("docker/a", 512 << 20, 1.5), Limit("docker", None, None, 100))
    made = readings(
        {"t_ns": [1, 2, 3], "epoch": [0, 0, 1], "cpu_ns": [5, None, 0]},
        "ein Behälter",
        begun_ns=1,
        limits=limits,
        totals={"cpu_ns": 9},
        totals_from="parent",
        clock=(5, 6),
        notes=("one",),
        raw={"layout": {"cpu": "v2"}},
    )
    file = tmp_path / "box.parquet"
    made.write_parquet(file)
    back = Readings.read_parquet(file)
    assert back.name == "ein Behälter"
    assert back.facts == made.facts
    assert back.frame.equals(made.frame)
    assert [len(each) for each in back.epochs()] == [2, 1]
    # An ordinary reader of Parquet has the columns without us.
    assert pl.read_parquet(file)["cpu_ns"].to_list() == [5, None, 0]


def test_the_smallest_limit_on_the_way_to_the_root_counts():
    facts = Facts(limits=(Limit("a/b", 500, 2.0), Limit("a", 300, None), Limit("", None, 1.5)))
    assert (facts.mem_limit(), facts.cpu_limit()) == (facts.limits[1], facts.limits[2])
    assert (Facts().mem_limit(), Facts().cpu_limit()) == (None, None)


def test_begin_and_end_may_be_told_by_the_wall():
    made = readings({"t_ns": [100, 200]}, clock=(1000, 5000))
    assert (made.at_wall(4090, 4250).facts.begun_ns, made.at_wall(4090, 4250).facts.ended_ns) == (90, 250)
    assert made.at_wall(None, 4250).facts.begun_ns is None
    assert readings({"t_ns": [100]}).at_wall(4090, 4250).facts.begun_ns is None


def test_a_begin_that_leaves_no_room_for_the_cpu_time_is_put_back():
    # Two CPUs cannot give 31 ms in 5 ms.
    brief = readings({"t_ns": []}, clock=(0, 0), totals={"cpu_ns": 31_000_000})
    facts = brief.at_wall(1_000_000_000, 1_005_000_000).facts
    assert (facts.begun_ns, facts.ended_ns) == (974_000_000, 1_005_000_000)
    backward = brief.at_wall(1_000_000_000, 999_000_000).facts
    assert (backward.begun_ns, backward.ended_ns) == (968_000_000, 999_000_000)
    first = readings({"t_ns": [1_010_000_000], "cpu_ns": [40_000_000]}, clock=(0, 0), totals={"cpu_ns": 50_000_000})
    assert first.at_wall(1_000_000_000, 1_100_000_000).facts.begun_ns == 970_000_000
    # Both CPUs were busy: that is possible.
    assert first.at_wall(990_000_000, 1_100_000_000).facts.begun_ns == 990_000_000


def test_other_files_are_refused(tmp_path: Path):
    with pytest.raises(StoreError, match="unreadable readings"):
        Readings.read_parquet(tmp_path / "none.parquet")
    other = tmp_path / "other.parquet"
    pl.DataFrame({"t_ns": [1]}).write_parquet(other)
    with pytest.raises(StoreError, match="no readings"):
        Readings.read_parquet(other)
    newer = tmp_path / "newer.parquet"
    pl.DataFrame({"t_ns": [1]}).write_parquet(newer, metadata={"gpusize.readings": "99"})
    with pytest.raises(StoreError, match="schema version 99"):
        Readings.read_parquet(newer)
    broken = tmp_path / "broken.parquet"
    wide_frame(pl.DataFrame({"t_ns": [1]})).write_parquet(
        broken, metadata={"gpusize.readings": "1", "gpusize.facts": "[1]"}
    )
    with pytest.raises(StoreError, match=r"broken\.parquet"):
        Readings.read_parquet(broken)
