"""Runs of other tools are compared by the figures that these state, against the files themselves."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest

import gpusize
from gpusize.analysis.compare.figures import figure
from gpusize.analysis.compare.gates import Gate, judge
from gpusize.api.compare import compare
from gpusize.base.errors import UsageError
from gpusize.studies.imports.traccc import import_traccc

FIXTURES = Path(__file__).parents[1] / "fixtures"


def rates(name: str) -> dict[int, float]:
    with (FIXTURES / "perf_analyzer" / name).open() as file:
        return {int(row["Concurrency"]): float(row["Inferences/Second"]) for row in csv.DictReader(file)}


def test_more_instances_have_their_speed_up(tmp_path: Path) -> None:
    """perf_analyzer states rates alone: its answers are not there to be counted."""
    names = {1: "inst1_c1-8.csv", 4: "inst4_c1-8.csv"}
    for gpus, name in names.items():
        gpusize.read(FIXTURES / "perf_analyzer" / name, tmp_path / str(gpus), gpus=gpus)
    found = compare({"one": tmp_path / "1", "four": tmp_path / "4"}, by="gpus")
    one, four = rates(names[1]), rates(names[4])
    users = sorted(set(one) & set(four))
    assert users
    told = {each.load: each for each in found.scaled if each.figure == "achieved rate" and each.per == "load"}
    assert set(told) == {f"{n} user{'s' if n > 1 else ''}" for n in users}
    for n in users:
        each = told[f"{n} user{'s' if n > 1 else ''}"]
        assert each.speed_up == pytest.approx(four[n] / one[n])
        assert each.efficiency == pytest.approx(four[n] / one[n] / 4)


def test_logs_of_other_events_are_no_repeats(tmp_path: Path) -> None:
    """At a pile-up of 20 an event takes a tenth of the time: a mean over both hides what the device gives."""
    for device, slow in (("cpu", 10), ("gpu", 1)):
        for mu in (20, 100, 200):
            file = tmp_path / f"{device}_mu{mu}.log"
            file.write_text(f"Event processing  {mu * slow} ms/event, {1000 / mu / slow} events/s\n")
            import_traccc(file, tmp_path / "runs", threads=1)
    with pytest.raises(UsageError, match="not repeats of each other: mu is 20, 100, 200") as error:
        compare({"all": tmp_path / "runs"}, by="device")
    assert "--label mu=200" in str(error.value)
    picked = compare({"all": tmp_path / "runs"}, by="device", labels={"mu": "200"})
    [rate] = [each for each in picked.differences if each.figure == "achieved rate"]
    assert rate.change == pytest.approx(9)
    assert picked.unlike == {}
    named = compare({"all": tmp_path / "runs"})
    assert named.unlike["all"]["mu"] == ["20", "100", "200"], "grouped by nothing it is told, and not refused"


def vllm(place: Path, name: str, failed: int, seconds: float) -> Path:
    """A result of so many failures among 400, in which 8 users were busy all the time."""
    completed = 400 - failed
    mean_ms = 8 * seconds / completed * 1e3
    told: dict[str, Any] = {
        "num_prompts": 400,
        "completed": completed,
        "failed": failed,
        "request_rate": "inf",
        "max_concurrency": 8,
        "duration": seconds,
        "request_throughput": completed / seconds,
        "output_throughput": 100 * completed / seconds,
        "mean_e2el_ms": mean_ms,
        "median_e2el_ms": mean_ms,
        "p95_e2el_ms": 1.2 * mean_ms,
        "p99_e2el_ms": 1.3 * mean_ms,
    }
    file = place / f"{name}.json"
    place.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(told))
    return file


def several(place: Path, name: str, failed: int) -> Path:
    for k in range(4):
        file = vllm(place / "files", f"{name}{k}", failed + k % 2, 40 + 0.1 * k)
        gpusize.read(file, place / name)
    return place / name


def test_rates_and_failures_are_those_that_the_tool_states(tmp_path: Path) -> None:
    found = compare({"a": several(tmp_path, "a", 0), "b": several(tmp_path, "b", 40)})
    told = {each.figure: each for each in found.differences}
    share = told["error share"]
    assert (share.a, share.b) == pytest.approx((0.5 / 400, 40.5 / 400))
    assert share.verdict == "worse"
    rate = told["achieved rate"]
    seconds = [40 + 0.1 * k for k in range(4)]
    assert rate.b == pytest.approx(math.prod((360 - k % 2) / s for k, s in enumerate(seconds)) ** 0.25)
    assert told["output rate"].a == pytest.approx(100 * rate.a)
    assert found.failed["b"] == pytest.approx({"8 users": 40.5 / 400})
    # What was imported says when it was imported, and not when it was measured.
    assert (share.design, dict(found.in_turns)) == ("runs", {"b": "no"})
    [gate] = judge(found, [Gate.parse("error share > +5%")])
    assert gate.failed
    [blind] = judge(found, [Gate.parse("p95 runtime > +20%")])
    assert not blind.judged


def test_runs_that_are_imported_in_turns_were_not_measured_in_turns(tmp_path: Path, monkeypatch: Any) -> None:
    clock = iter(range(100))
    real = gpusize.read
    for k in range(3):
        for name in "ab":
            file = vllm(tmp_path / "files", f"{name}{k}", k, 40 + next(clock))
            folder = real(file, tmp_path / name).path
            assert folder is not None
            about = json.loads((folder / "run.json").read_text())
            about["created"] = f"2026-11-01T00:00:{2 * k + (name == 'b'):02d}+00:00"
            (folder / "run.json").write_text(json.dumps(about))
    found = compare({"a": tmp_path / "a", "b": tmp_path / "b"})
    assert {each.design for each in found.differences} == {"runs"}


def test_a_level_whose_file_speaks_against_itself_is_left_out(tmp_path: Path) -> None:
    """By its own rate and mean 5 were in flight, not 8."""
    right = several(tmp_path, "right", 0)
    file = vllm(tmp_path / "files", "wrong", 0, 40)
    told = json.loads(file.read_text())
    for key in ("mean_e2el_ms", "median_e2el_ms", "p95_e2el_ms", "p99_e2el_ms"):
        told[key] *= 5 / 8
    told["max_concurrency"] = 16
    other = vllm(tmp_path / "files", "other", 0, 40)
    wrong = tmp_path / "files" / "both"
    wrong.mkdir()
    sixteen = json.loads(other.read_text())
    (wrong / "a.json").write_text(json.dumps(told))
    (wrong / "b.json").write_text(json.dumps(sixteen))
    result = gpusize.read(wrong, tmp_path / "odd")
    assert [row["flags"] for row in result.summary.to_dicts()] == [[], ["little"]]
    found = compare({"right": right, "odd": tmp_path / "odd"}, figures=["p95 runtime"])
    assert [each.load for each in found.differences] == ["8 users"]
    assert found.left_out["odd"] == ["16 users, the generator was the limit, or the load was not held"]
    assert figure("p95 runtime").prob == 0.95
