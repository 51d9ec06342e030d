from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from gpusize.base.errors import ConfigError, StoreError, UsageError
from gpusize.observe.series.time_range import iso_ns, of_result, of_run, parse_time_ns, written_range

START, END = "2026-11-20T21:03:12Z", "2026-11-20T22:03:12.5Z"
LEVEL = {"schema": 1, "state": "done", "setting": {"kind": "closed", "concurrency": 4}}
START_NS, END_NS = 1_795_208_592 * 10**9, 1_795_212_192_500_000_000


@pytest.mark.parametrize(
    "text, ns",
    [
        (START, START_NS),
        (END, END_NS),
        ("2026-11-20T22:03:12+01:00", START_NS),
        (" 1795208592 ", START_NS),
        ("1795208592.25", START_NS + 250_000_000),
        ("1970-01-01T00:00:00.000001Z", 1_000),
    ],
)
def test_times_are_read(text: str, ns: int):
    assert parse_time_ns(text, "from") == ns


@pytest.mark.parametrize("text", ["", "yesterday", "nan", "inf", "-1", "1e99", "2026-13-01T00:00:00Z"])
def test_what_is_no_time_is_refused(text: str):
    with pytest.raises(UsageError, match=r"is not a time\. Write it as 2026"):
        parse_time_ns(text, "from")


def test_a_time_of_day_needs_its_zone():
    with pytest.raises(UsageError, match="no time zone"):
        parse_time_ns("2026-11-20T21:03:12", "from")
    with pytest.raises(UsageError, match="not after the start"):
        written_range(END, START)


def test_times_are_written_as_they_are_read():
    assert iso_ns(END_NS) == "2026-11-20T22:03:12.500Z"
    assert parse_time_ns(iso_ns(END_NS), "to") == END_NS


def results(start: str = START, end: str = END) -> list[dict]:
    return [
        {"name": "report", "value": "x"},
        {"name": "start-time", "type": "string", "value": f"{start}\n"},
        {"name": "end-time", "value": end},
    ]


@pytest.mark.parametrize(
    "content",
    [
        {"kind": "TaskRun", "status": {"results": results()}},
        {"kind": "TaskRun", "status": {"taskResults": results()}},
        {"kind": "PipelineRun", "status": {"pipelineResults": results()}},
        {"kind": "CustomRun", "status": {"results": results()}},
        {
            "kind": "List",
            "items": [
                {"status": {"results": results(end="2026-11-20T21:10:00Z")}},
                {"status": {"results": results(start="2026-11-20T21:30:00Z")}},
                {"status": {}},
            ],
        },
        results(),
    ],
)
def test_tektons_results_tell_the_time(content: object, tmp_path: Path):
    file = tmp_path / "run.json"
    file.write_text(json.dumps(content))
    found = of_result(file)
    assert (found.start_ns, found.end_ns, found.told_by, found.ours) == (START_NS, END_NS, "Tekton: run.json", False)


def test_guidellms_report_tells_the_time(tmp_path: Path):
    file = tmp_path / "benchmarks.json"
    benchmarks = [
        {"start_time": START_NS / 1e9 + 1000, "end_time": END_NS / 1e9},
        {"scheduler_metrics": {"start_time": START_NS / 1e9, "end_time": START_NS / 1e9 + 900}},
        {"start_time": None},
        7,
    ]
    file.write_text(json.dumps({"metadata": {}, "benchmarks": benchmarks}))
    found = of_result(file)
    assert (found.start_ns, found.end_ns, found.told_by) == (START_NS, END_NS, "GuideLLM: benchmarks.json")


@pytest.mark.parametrize(
    "text, words",
    [
        ("{", "broken JSON"),
        ("7", "no results start-time"),
        ("{}", "no results start-time and end-time"),
        ('{"benchmarks": []}', "no benchmark in it"),
        ('{"benchmarks": [{"start_time": 5, "end_time": 5}]}', "ends before it starts"),
        (
            '{"status": {"results": [{"name": "start-time", "value": "x"}, {"name": "end-time", "value": "y"}]}}',
            "not a time",
        ),
    ],
)
def test_results_without_a_time_are_refused(text: str, words: str, tmp_path: Path):
    file = tmp_path / "r.json"
    file.write_text(text)
    with pytest.raises((ConfigError, UsageError), match=words):
        of_result(file)
    with pytest.raises(ConfigError, match="no such file"):
        of_result(tmp_path / "none.json")


def run_folder(path: Path, pairs: list[tuple[int, int, int]], *levels: dict) -> Path:
    """A run folder with nothing in it but what tells its time."""
    path.mkdir()
    (path / "run.json").write_text(json.dumps({"schema": 1, "id": "r1"}))
    for number, level in enumerate(levels, 1):
        (path / "levels" / f"{number:04d}").mkdir(parents=True)
        (path / "levels" / f"{number:04d}" / "level.json").write_text(json.dumps({**LEVEL, "visit": number, **level}))
    names = ("mono_ns", "wall_ns", "uncertainty_ns")
    pl.DataFrame(pairs, schema=dict.fromkeys(names, pl.Int64), orient="row").write_parquet(path / "clocks.parquet")
    return path


def test_a_run_tells_the_time_of_its_levels(tmp_path: Path):
    pairs = [(1_000, START_NS + 1_000, 5), (2_001_000, START_NS + 2_002_000, 5)]
    levels = ({"start_ns": 5_000, "end_ns": 9_000}, {"start_ns": 1_001_000, "end_ns": 2_001_000})
    found = of_run(run_folder(tmp_path / "run", pairs, *levels))
    # The wall clock ran ahead by 1 us in 2 ms.
    assert (found.start_ns, found.end_ns) == (START_NS + 5_002, START_NS + 2_002_000)
    assert (found.told_by, found.ours) == ("run r1", True)


def test_a_run_that_does_not_know_is_refused(tmp_path: Path):
    with pytest.raises(StoreError, match="no level of it has ended"):
        of_run(run_folder(tmp_path / "a", [(0, 0, 0)]))
    with pytest.raises(StoreError, match="no pairs of clocks"):
        of_run(run_folder(tmp_path / "b", [], {"start_ns": 1, "end_ns": 2}))
    with pytest.raises(StoreError, match="not a run folder"):
        of_run(tmp_path)
