"""Another tool's measurements become runs like any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import gpusize as library
from tests.cli.conftest import Gpusize

NAT = Path(__file__).parents[1] / "fixtures" / "nat"
PERF_ANALYZER = Path(__file__).parents[1] / "fixtures" / "perf_analyzer"


def files() -> list[Path]:
    return [
        file for file in sorted(NAT.rglob("*.json")) if "calc_data" in file.read_text() and "vectors" not in file.name
    ]


def test_there_is_something_to_import() -> None:
    assert files()


@pytest.mark.parametrize("file", files(), ids=lambda file: file.stem)
def test_an_imported_run_can_be_estimated_from(gpusize: Gpusize, file: Path) -> None:
    done = gpusize("import", "nat", file, "--gpus", "8", "--out", "runs")
    assert done.code == 0, done.err
    path = done.out.strip()
    estimated = gpusize(
        "estimate", path, "--users", "100", "--slo", "p95 runtime <= 10s", "--method", "slope", "--json"
    )
    assert estimated.code in (0, 1)
    document = json.loads(estimated.out)
    assert document["summary"]
    assert document["estimates"][0]["tested_gpus"] == 8
    reported = gpusize("report", path, "--users", "100", "--slo", "p95 runtime <= 10s")
    assert reported.code == 0, reported.err


def test_what_is_no_such_file(gpusize: Gpusize) -> None:
    Path("other.json").write_text("{}")
    done = gpusize("import", "nat", "other.json")
    assert done.code == 2
    assert "other.json" in done.complaint


def imported(gpusize: Gpusize, count: int) -> str:
    file = PERF_ANALYZER / f"inst{count}_c1-8.csv"
    done = gpusize("import", "perf_analyzer", file, "--gpus", str(count), "--out", "runs")
    assert (done.code, done.err) == (0, "")
    return done.out.strip()


def test_perf_analyzers_sweeps_of_several_counts(gpusize: Gpusize) -> None:
    paths = [imported(gpusize, count) for count in (1, 2)]
    done = gpusize("estimate", *paths, "--rate", "150/s", "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["answer"] == "4 GPUs for 150 requests/s"
    [estimate] = document["estimates"]
    assert (estimate["method"], estimate["rate"], estimate["gpus_high"]) == ("scaling", 150, None)
    text = gpusize("estimate", *paths, "--rate", "9000/min").out
    assert "Amdahl's law" in text
    assert "whole hosts of 2 GPUs: 2 x 2 = 4 GPUs" in text
    assert "4, 8 GPUs" in text
    asked = library.open_run(paths).estimate(rate=150, slos=[], method="scaling")
    assert (asked.gpus, asked.users, asked.rate) == (4, None, 150)
    hosts = gpusize("estimate", *paths, "--rate", "300/s", "--host-gpus", "2", "--json")
    assert json.loads(hosts.out)["estimates"][0]["gpus"] == 8
    reported = gpusize("report", *paths, "--users", "100", "--slo", "p95 runtime <= 100ms")
    assert reported.code == 0, reported.err
    assert "Ways to come to the load" in Path(reported.out.strip()).read_text("utf-8")


def test_a_rate_without_an_answer_is_a_measured_no(gpusize: Gpusize) -> None:
    file = PERF_ANALYZER / "v260_overload_sync.csv"
    path = gpusize("import", "perf_analyzer", file, "--gpus", "1").out.strip()
    done = gpusize("estimate", path, "--rate", "500/s")
    assert done.code == 1
    assert "only 1200 requests/s can be used" in done.complaint
    assert "measure 96.1 and 192 requests/s" in done.complaint
    asked = gpusize("estimate", path, "--rate", "500/s", "--method", "scaling")
    assert asked.code == 1
    assert "is already too much" in asked.complaint
    assert "192.2 of 1200 requests/s were answered" in asked.out


def test_an_aborted_sweep_names_what_it_lacks(gpusize: Gpusize) -> None:
    done = gpusize("import", "perf_analyzer", PERF_ANALYZER / "http_c1-16_aborted.csv", "--expect", "1:16:1")
    assert done.code == 0
    assert "4 of 16 levels are missing, concurrency 13, 14, 15, 16" in done.complaint


def test_a_rate_and_users_are_two_questions(gpusize: Gpusize) -> None:
    path = imported(gpusize, 1)
    done = gpusize("estimate", path, "--rate", "5/s", "--users", "3")
    assert done.code == 2
    assert "are both given" in done.complaint


def test_a_table_that_is_not_perf_analyzers(gpusize: Gpusize) -> None:
    Path("x.csv").write_text("a,b\n1,2\n")
    done = gpusize("import", "perf_analyzer", "x.csv")
    assert done.code == 2
    assert "x.csv, line 1" in done.complaint


def test_a_file_that_cannot_be_read_leaves_the_others_to_be_imported(gpusize: Gpusize) -> None:
    Path("broken.csv").write_text("a,b\n1,2\n")
    good = [PERF_ANALYZER / f"inst{count}_c1-8.csv" for count in (1, 2)]
    done = gpusize("import", "auto", good[0], "broken.csv", good[1], "--out", "runs")
    assert done.code == 2
    assert "broken.csv: no known format" in done.err
    assert all((Path(line) / "run.json").is_file() for line in done.out.split())
    assert len(done.out.split()) == 2


def test_what_the_calculators_files_lack_is_said(gpusize: Gpusize) -> None:
    whole = '{"calc_data": {"4": {"sizing_metrics": {"workflow_runtime_p95": 1.5}}}}'
    for name, text in (("job_1", whole), ("job_2", "{")):
        Path("jobs", name).mkdir(parents=True)
        Path("jobs", name, "calc_runner_output.json").write_text(text)
    done = gpusize("import", "nat", "jobs")
    assert done.code == 0
    assert "skipped" in done.err
    assert "job_2" in done.err


@pytest.mark.parametrize("name", ["v260_profile_40.json", "v260_grpc.csv"])
def test_perf_analyzers_command_takes_both_of_its_files(gpusize: Gpusize, name: str) -> None:
    args = ("--out", "runs", "--batch", "4", "--slo", "p95 runtime<1s")
    done = gpusize("import", "perf_analyzer", PERF_ANALYZER / name, *args)
    assert done.code == 0, done.err
    row = library.open_run(done.out.strip()).summary.row(0, named=True)
    assert row["inferences_rate"] == pytest.approx(4 * row["achieved_rate"])
    assert row["slo_0"] == "p95 runtime < 1s"


def test_what_cpost_wrote_is_shown_by_the_command_that_is_named(gpusize: Gpusize) -> None:
    Path("cpost").mkdir()
    rows = "".join(f"{1627425842 + k / 5},50.0,{100 + k}\n" for k in range(20))
    Path("cpost/reader_final_result.csv").write_text(f"timestamp,cpu_percent,memory\n{rows}")
    done = gpusize("import", "auto", "cpost/reader_final_result.csv")
    assert done.code == 2
    assert "gpusize pipeline show FOLDER" in done.complaint
    shown = gpusize("pipeline", "show", "cpost")
    assert shown.code == 0, shown.err
    assert "reader" in shown.out


def test_tracccs_logs_beside_each_other(gpusize: Gpusize) -> None:
    log = PERF_ANALYZER.parent / "traccc" / "gpu_mu200.log"
    refused = gpusize("import", "traccc", log, "--threads", "2")
    assert refused.code == 2
    assert "--threads 2 and the log's 1 are two" in refused.complaint
    done = gpusize("import", "traccc", log, "--gpus", "1")
    assert done.code == 0, done.err
    [level] = library.open_run(done.out.strip()).levels
    assert (level.concurrency, level.gpus, level.meta["achieved_rate"]) == (1, 1, 24.2752)
