"""A run of a pipeline in files, pictures and words, and read back from its folder, whole or with parts lost."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from gpusize.base.errors import ConfigError
from gpusize.containers.cpost_csv import write_cpost_csv
from gpusize.containers.pipeline import (
    Execution,
    Operator,
    OperatorResult,
    Pipeline,
    PipelineResult,
    ServerResult,
    SizingOptions,
)
from gpusize.containers.pipeline.execute import ContainerGpus
from gpusize.containers.pipeline.sizing import size
from gpusize.report.containers.pipeline_files import PipelineFiles
from gpusize.report.containers.pipeline_show import show_run
from gpusize.report.containers.pipeline_text import all_operators
from gpusize.report.figures import style
from gpusize.report.figures.drawing import PlotsLeftOut
from tests.resources.made import MIB, S, execution, workload
from tests.samples.fake_nvml import Gpu, fake_nvml

GIB = 1 << 30


def ran(cores: float, held: int = 64 * MIB) -> Execution:
    made = workload(lambda _: cores, 4.0, memory=lambda _: held, clock=(1000 * S, 5000 * S))
    return Execution("completed", exit_code=0, asked_ns=5000 * S, started_ns=5000 * S, ended_ns=5004 * S, readings=made)


def on_gpu(execution: Execution) -> Execution:
    gpus = ContainerGpus(os.getpid(), nvml=fake_nvml(Gpu(processes=[(os.getpid(), 2 * GIB)], util=30)))
    uses, samples = gpus.stop()
    return replace(execution, gpus=uses, gpu_samples=samples)


def operator(name: str, *executions: Execution) -> OperatorResult:
    sized = size(executions, SizingOptions(), lambda *_: executions[0])
    return OperatorResult(Operator(name, "i"), executions, sized)


@pytest.fixture
def result() -> PipelineResult:
    """Two operators, of which one ran on a GPU, and a server that did."""
    operators = (operator("first", on_gpu(ran(0.5))), operator("second", ran(1.0), ran(1.5)))
    pipeline = Pipeline("p", tuple(each.operator for each in operators), "own")
    server = ServerResult("triton", on_gpu(ran(2.0, 300 * MIB)))
    return PipelineResult("r", pipeline, operators, (server,), 5000 * S, 5010 * S)


@pytest.fixture
def folder(result: PipelineResult, tmp_path: Path) -> Path:
    """What the run leaves, without pictures."""
    files = PipelineFiles(tmp_path / "metrics")
    for each in result.operators:
        files.operator(each)
    files.finish(result, {})
    return files.path


def test_gpus_of_servers_are_kept_and_told_as_those_of_operators(result: PipelineResult, folder: Path) -> None:
    document = json.loads((folder / "pipeline.json").read_text())
    told = [document["operators"][0]["executions"][0], document["servers"][0]]
    assert [each["gpu_samples"] for each in told] == [
        "readings/first.0.gpus.parquet",
        "readings/triton.server.0.gpus.parquet",
    ]
    assert [each["gpus"][0]["mem_peak_bytes"] for each in told] == [2 * GIB, 2 * GIB]
    assert document["operators"][1]["executions"][0]["gpu_samples"] is None
    for each in told:
        assert "nvml_process_memory_bytes" in pl.read_parquet(folder / each["gpu_samples"])["metric"].to_list()
    lines = all_operators(result).splitlines()
    line = "  GPU NVIDIA H200: 2147 MB (2048 MiB) held at most (sampled), 30.0% busy, at most 30.0%, 250 W"
    assert lines.count(line) == 2
    assert lines[lines.index(line) - 1].startswith("Server triton: 4 s, 2 cores")


def test_each_operator_and_each_server_has_a_picture(result: PipelineResult, tmp_path: Path) -> None:
    files = PipelineFiles(tmp_path)
    files.draw(result)
    drawn = sorted(each.name for each in (files.path / "plots").iterdir())
    assert drawn == ["first.png", "second.png", "timeline.png", "triton.server.0.png"]


def test_without_pictures_all_else_is_there(
    result: PipelineResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system", "/root/.cache/matplotlib/fontlist.json")

    monkeypatch.setattr(style, "new_figure", broken)
    files = PipelineFiles(tmp_path)
    with pytest.warns(PlotsLeftOut, match="matplotlib failed .OSError: .*Read-only file system"):
        files.draw(result)
    assert list((files.path / "plots").iterdir()) == []


def test_a_run_is_shown_as_it_was_printed(result: PipelineResult, folder: Path) -> None:
    assert show_run(folder.parent) == f"{all_operators(result)}\n"


def test_what_less_cpu_costs_is_shown_again_also_by_another_policy(tmp_path: Path) -> None:
    files = PipelineFiles(tmp_path)
    limited = {0.25: replace(ran(0.25), ended_ns=5008 * S), 0.5: ran(0.5)}

    def again(limits: tuple[float | None, int | None], _: int | None) -> Execution:
        return limited[limits[0] or 0.0]

    sized = size([ran(0.5)], SizingOptions(cpu_curve=(0.5, 0.25)), again)
    one = Operator("a", "i")
    pipeline = Pipeline("p", (one,), "own")
    result = PipelineResult("r", pipeline, (OperatorResult(one, (ran(0.5),), sized),), (), 5000 * S, 5010 * S)
    files.operator(result.operators[0])
    files.finish(result, {})
    assert show_run(tmp_path) == f"{all_operators(result)}\n"
    for policy in ("default", "krr"):
        told = json.loads(show_run(tmp_path, policy, json=True))["operators"][0]
        assert [(each["cores"], each["duration_s"]) for each in told["cpu_curve"]["points"]] == [
            (None, 4.0),
            (0.5, 4.0),
            (0.25, 8.0),
        ]
        assert [each["kind"] for each in told["trials"]] == ["cpu_curve", "cpu_curve"]
    # Half as much took twice as long, so the policy that asks what less costs does not recommend it.
    told = json.loads(show_run(tmp_path, "default", json=True))["operators"][0]
    assert told["recommendation"]["cpu_cores"] == 0.5
    assert told["recommendation"]["cpu_measured"] is True
    assert "0.25 cores: +100% time" in show_run(tmp_path, "krr")


@pytest.mark.parametrize("damage", ["missing", "cut", "other"])
def test_lost_readings_are_named_and_the_rest_is_shown(folder: Path, damage: str) -> None:
    whole = show_run(folder)
    for name in ("first.0", "second.1", "triton.server.0"):
        file = folder / "readings" / f"{name}.parquet"
        if damage == "missing":
            file.unlink()
        elif damage == "cut":
            file.write_bytes(file.read_bytes()[:200])
        else:
            pl.DataFrame({"x": [1]}).write_parquet(file)
    shown = show_run(folder)
    assert "first: it has no readings: its readings are missing" in shown
    assert "Server triton: it has no readings" in shown
    notes = [line for line in shown.splitlines() if line.startswith("readings/")]
    assert [line.partition(" ")[0] for line in notes] == [
        f"readings/{name}.parquet" for name in ("first.0", "second.1", "triton.server.0")
    ]
    # What was recommended is stored beside them, and the other operator has its row.
    kept = [line for line in whole.splitlines() if line.startswith(("first (", "second (")) or "| second" in line]
    assert len(kept) == 3
    assert all(line in shown.splitlines() for line in kept)
    again = json.loads(show_run(folder, "cpost", json=True))
    advice = [each["recommendation"] for each in again["operators"]]
    assert (advice[0]["refused"], advice[1]["cpu_cores"]) == ("its readings are missing", 1)
    assert len(again["notes"]) == 3
    assert json.loads(show_run(folder, json=True)) == json.loads((folder / "pipeline.json").read_text())


def test_what_cpost_has_left_is_sized(tmp_path: Path) -> None:
    for name, percent, mb in (("dicom-reader", 1097.941, 405.242), ("writer", 1017.747, 552.313)):
        made = execution(percent, mb, clock=(1000 * S, 5000 * S))
        write_cpost_csv(made.readings, tmp_path / f"{name}_final_result.csv")
    shown = show_run(tmp_path).splitlines()
    cells = [[cell.strip() for cell in line.split("|")][2:6] for line in shown]
    assert [(each[2], each[3]) for each in cells if each and each[0] == "CPU"] == [
        ("1097.941 %", "cpu: 11"),
        ("1017.747 %", "cpu: 11"),
    ]
    assert [(each[2], each[3]) for each in cells if each and each[0] == "Memory"] == [
        ("405.242 MB", "memory: 512"),
        ("552.313 MB", "memory: 768"),
    ]
    assert shown[-1] == f"from CSV files of {tmp_path}, which do not tell whether an operator failed"
    told = json.loads(show_run(tmp_path, "krr", json=True))["operators"]
    assert [(each["name"], each["recommendation"]["mem_mib"]) for each in told] == [
        ("dicom-reader", 445),
        ("writer", 606),
    ]
    assert told[0]["executions"][0]["readings"] == "dicom-reader_final_result.csv"
    for policy in ("default", "vpa"):
        table = show_run(tmp_path, policy)
        assert "| 1097.941 % |" in table, "the highest row by any rule, and no mean of several"
        assert "| 405.242 MB |" in table
    (tmp_path / "broken_final_result.csv").write_text("timestamp,cpu_percent,memory\n1,2\n")
    with pytest.raises(ConfigError, match=r"broken_final_result\.csv:2"):
        show_run(tmp_path)


def test_a_file_of_cpost_with_no_row_or_one(tmp_path: Path) -> None:
    head = "timestamp,cpu_percent,memory\n"
    (tmp_path / "none_final_result.csv").write_text(head)
    (tmp_path / "one_final_result.csv").write_text(f"{head}1630000000.0,50.5,20\n")
    for policy in ("cpost", "default"):
        shown = show_run(tmp_path, policy)
        assert "0.0 %" not in shown
        assert "none: no recommendation: none_final_result.csv has no rows" in shown.splitlines()
        assert "only 1 row of it" in shown
        assert "| 50.5 % " in shown


def test_a_short_file_of_cpost_asks_for_what_its_rows_reach(tmp_path: Path) -> None:
    """Five rows are one window of a second: its mean of 56 % would ask for one core."""
    rows = enumerate((8.3, 8.3, 63.9, 100.4, 100.0))
    text = "".join(f"163000000{k // 5}.{2 * k % 10},{percent},2\n" for k, percent in rows)
    (tmp_path / "kids_final_result.csv").write_text(f"timestamp,cpu_percent,memory\n{text}")
    (told,) = json.loads(show_run(tmp_path, "default", json=True))["operators"]
    assert told["recommendation"]["cpu_cores"] == 1.2
    assert "| cpu: 2 " in show_run(tmp_path, "default")
