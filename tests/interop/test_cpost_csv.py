from __future__ import annotations

from pathlib import Path

import pytest

from gpusize.base.errors import ConfigError, UsageError
from gpusize.containers.cpost_csv import read_cpost_csv, write_cpost_csv
from gpusize.containers.recommend import Execution, recommend
from gpusize.containers.recommend.cpost_rule import cpost_rows
from tests.resources.made import S, execution, readings, workload

WALL = (1000 * S, 1_630_000_000 * S)
"""The engine's clock at the start of a workload, and what time of day it was."""


def test_what_is_written_is_cposts(tmp_path: Path):
    made = workload(lambda t: 0.5 if t < 0.2 else 2.0, 0.4, memory=lambda t: round(t * 1e8), clock=WALL)
    file = write_cpost_csv(made, tmp_path / "reader_final_result.csv")
    assert file.read_text() == (
        "timestamp,cpu_percent,memory\n1630000000.100000,50.0,10.0\n1630000000.300000,200.0,30.0\n"
    )


def test_there_and_back_the_rule_of_cpost_says_the_same(tmp_path: Path):
    run = execution(1097.941, 405.242, clock=WALL)
    back = read_cpost_csv(write_cpost_csv(run.readings, tmp_path / "dicom-reader_final_result.csv"))
    assert back.name == "dicom-reader"
    before, after = (recommend([each], "cpost") for each in (run, Execution.of(back)))
    assert (after.cpu_cores, after.mem_mb) == (before.cpu_cores, before.mem_mb) == (11, 512)
    assert len(cpost_rows(back)) == len(cpost_rows(run.readings))
    # The other rules work on it as on any readings, as far as it tells.
    use = Execution.of(back).usage
    assert use.cpu.total_s == pytest.approx(run.usage.cpu.total_s, rel=1e-6)
    assert use.duration_s == pytest.approx(run.usage.duration_s, rel=1e-6)
    assert use.cpu.window(1.0).peak_cores == pytest.approx(run.usage.cpu.window(1.0).peak_cores, rel=1e-6)
    assert use.cpu.unresolved_s == (0.1,)
    assert use.memory.peak_bytes == 405_242_000


def test_a_file_of_cpost_with_its_irregular_times(tmp_path: Path):
    file = tmp_path / "op_final_result.csv"
    file.write_bytes(
        b"timestamp,cpu_percent,memory\r\n1627425842.1,10.0,1.5\r\n1627425842.302,30.5,2.5\r\n1627425842.51,0.0,2.0\r\n"
    )
    back = read_cpost_csv(file)
    assert back.frame["t_ns"].to_list()[1] == 1627425842_100000000
    assert [(row.cpu_percent, row.memory_mb) for row in cpost_rows(back)] == [(10.0, 1.5), (30.5, 2.5), (0.0, 2.0)]
    assert Execution.of(back).usage.cpu.total_s == pytest.approx(0.1 * 0.201 + 0.305 * 0.205)


def test_a_file_without_rows(tmp_path: Path):
    file = tmp_path / "op.csv"
    file.write_text("timestamp,cpu_percent,memory\n")
    assert len(read_cpost_csv(file)) == 0


@pytest.mark.parametrize(
    "text, where, what",
    [
        ("", ":1", "first line"),
        ("time,cpu\n", ":1", "first line"),
        ("timestamp,cpu_percent,memory\n1,2\n", ":2", "not a time"),
        ("timestamp,cpu_percent,memory\n1,2,3\n2,x,3\n", ":3", "not a time"),
        ("timestamp,cpu_percent,memory\n1,2,nan\n", ":2", "negative or infinite"),
        ("timestamp,cpu_percent,memory\n1,-2,3\n", ":2", "negative or infinite"),
        ("timestamp,cpu_percent,memory\n2,2,3\n1,2,3\n", ":3", "not after"),
    ],
)
def test_what_is_no_file_of_cposts_is_refused_with_its_line(tmp_path: Path, text, where, what):
    file = tmp_path / "op.csv"
    file.write_text(text)
    with pytest.raises(ConfigError, match=what) as caught:
        read_cpost_csv(file)
    assert caught.value.where == f"{file}{where}"


def test_without_the_time_of_day_nothing_is_written(tmp_path: Path):
    with pytest.raises(UsageError, match="time of day"):
        write_cpost_csv(readings({"t_ns": [1, 2]}), tmp_path / "x.csv")
