"""perf_analyzer's CSV files: every column layout, sorting, GPU columns, broken files, and the way into a run folder."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from gpusize.analysis.checks import check
from gpusize.analysis.read_levels import read_levels
from gpusize.analysis.slo import Slo
from gpusize.analysis.summary import summarize
from gpusize.base.errors import ConfigError, SloError, StoreError, UsageError
from gpusize.studies.imports.perf_analyzer import import_perf_analyzer, read_perf_analyzer

FIXTURES = Path(__file__).parents[1] / "fixtures" / "perf_analyzer"
FILES = sorted(FIXTURES.glob("*.csv"))
HEAD = "Concurrency,Inferences/Second,p50 latency,Avg latency"


def put(folder, text, name="x.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def raw(name):
    with (FIXTURES / name).open(newline="") as file:
        return list(csv.DictReader(file))


def test_there_are_all_the_files():
    assert len(FILES) == 15


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_file_is_read_whole(file):
    found = read_perf_analyzer(file, gpus=2)
    rows = {float(next(iter(row.values()))): row for row in raw(file.name)}
    assert [lv.concurrency or lv.rate for lv in found.levels] == sorted(rows)
    assert found.warnings == []
    for level in found.levels:
        row = rows[level.concurrency or level.rate or 0]
        assert (level.imported, level.state, level.gpus) == (True, "done", 2)
        assert level.meta["achieved_rate"] == float(row["Inferences/Second"])
        for name in ("p50", "p90", "p95", "p99"):
            share = float(name[1:]) / 100
            assert level.quantile("service", share) == pytest.approx(float(row[f"{name} latency"]) / 1e6)
        told = {fact["metric"]: fact["mean"] for fact in level.meta["server"]}
        assert told["queue_time"] == pytest.approx(float(row["Server Queue"]) / 1e6)
        assert told["compute_infer_time"] == pytest.approx(float(row["Server Compute Infer"]) / 1e6)
        assert level.meta["perf_analyzer"]["Server Queue"] == float(row["Server Queue"])


@pytest.mark.parametrize("file", [f for f in FILES if "c1-16" in f.stem or "inst" in f.stem or "v260" in f.stem])
def test_throughput_times_latency_is_the_concurrency(file):
    for level in read_perf_analyzer(file).levels:
        if level.concurrency:
            ratio = level.meta["achieved_rate"] * level.mean("runtime") / level.concurrency
            assert ratio == pytest.approx(1, abs=0.02)
            assert level.meta["alerts"] == []


def test_without_an_average_it_follows_from_its_parts():
    [level] = read_perf_analyzer(FIXTURES / "p95.csv").levels
    assert level.mean("runtime") == pytest.approx(12471e-6)
    [level] = read_perf_analyzer(FIXTURES / "custom.csv").levels
    assert level.mean("service") == pytest.approx(9907e-6)


def test_empty_gpu_columns_are_nothing():
    level = read_perf_analyzer(FIXTURES / "grpc_c1-16.csv").levels[0]
    assert not [fact for fact in level.meta["server"] if fact["metric"].startswith("gpu")]


def test_gpu_columns_by_uuid_stay_with_their_row(tmp_path):
    gpu = "Avg GPU Utilization,Avg GPU Power Usage,Max GPU Memory Usage,Total GPU Memory"
    text = (
        f"{HEAD},{gpu}\n"
        "4,9.9,400000,404000,GPU-a:0.5;GPU-b:0.7;,GPU-a:200;GPU-b:250;,GPU-a:1e9;GPU-b:2e9;,GPU-a:4e10;GPU-b:4e10;\n"
        "1,10.0,99000,100000,GPU-a:0.2;GPU-b:0.4;,GPU-a:100;GPU-b:150;,GPU-a:1e9;GPU-b:2e9;,GPU-a:4e10;GPU-b:4e10;\n"
    )
    first, last = read_perf_analyzer(put(tmp_path, text)).levels
    assert (first.concurrency, last.concurrency) == (1, 4)
    table = summarize([first, last])
    assert table["server_gpu_utilization"].to_list() == pytest.approx([0.3, 0.6])
    assert table["server_gpu_utilization_max"].to_list() == pytest.approx([0.4, 0.7])
    assert table["server_gpu_power_w"].to_list() == pytest.approx([250, 450])
    assert table["server_gpu_memory_used_bytes"].to_list() == pytest.approx([3e9, 3e9])
    assert table["server_gpu_memory_share"].to_list() == pytest.approx([3 / 80, 3 / 80])


def test_at_a_rate_only_what_comes_after_sending_is_known():
    levels = read_perf_analyzer(FIXTURES / "rr_poisson.csv").levels
    assert [lv.setting for lv in levels] == [{"kind": "open", "rate": r} for r in (50.0, 100.0, 150.0)]
    assert levels[0].quantile("service", 0.95) == pytest.approx(0.02395)
    assert levels[0].quantile("runtime", 0.95) is None
    assert levels[0].met(Slo.parse("p95 runtime <= 1s")) is None
    assert all(lv.meta["alerts"] == [] for lv in levels)


def test_a_rate_that_was_not_sent_is_flagged():
    [level] = read_perf_analyzer(FIXTURES / "v260_overload_sync.csv").levels
    [alert] = level.meta["alerts"]
    assert "192.2 of 1200 requests/s" in alert
    assert check(level).flags == ["not-delivered"]


def test_a_row_that_contradicts_itself_is_flagged(tmp_path):
    # What a synchronous binary search reported for concurrency 2.
    [level] = read_perf_analyzer(put(tmp_path, f"{HEAD}\n2,806.9,19000,19800\n")).levels
    [alert] = level.meta["alerts"]
    assert "16 in flight, not 2" in alert
    assert "--batch 8" in alert
    assert check(level).flags == ["little"]
    [batched] = read_perf_analyzer(put(tmp_path, f"{HEAD}\n2,806.9,19000,19800\n"), batch=8).levels
    assert batched.meta["alerts"] == []
    assert batched.meta["achieved_rate"] == pytest.approx(806.9 / 8)


@pytest.mark.parametrize("name, missing", [("http_c1-16_aborted.csv", 4), ("grpc_c1-16_aborted.csv", 14)])
def test_levels_that_an_aborted_sweep_lacks_are_named(name, missing):
    [text] = read_perf_analyzer(FIXTURES / name, expected=range(1, 17)).warnings
    assert f"{missing} of 16 levels are missing" in text
    assert f"concurrency {17 - missing}, " in text
    assert name in text


def test_a_last_line_that_was_cut_short_is_left_out_and_named(tmp_path):
    whole = (FIXTURES / "inst1_c1-8.csv").read_text()
    found = read_perf_analyzer(put(tmp_path, whole[: whole.rindex(",100124")]))
    assert len(found.levels) == 4
    [text] = found.warnings
    assert "line 6: breaks off after 13 of 20 fields" in text


@pytest.mark.parametrize(
    "text, what, where",
    [
        ("", "the file is empty", "x.csv"),
        ("a,b\n1,2\n", "neither Concurrency nor Request Rate", "line 1"),
        ("Concurrency,p50 latency\n1,2\n", "Inferences/Second is not among", "line 1"),
        (f"{HEAD}\n", "no level in it", "x.csv"),
        (f"{HEAD}\n1,2\n1,2,3,4\n", "2 fields, and the header has 4", "line 2"),
        (f"{HEAD}\n1,10,5,x\n", '"x" is not a number', "line 2, Avg latency"),
        (f"{HEAD}\n1,10,-5,5\n", '"-5" is not a number', "line 2, p50 latency"),
        (f"{HEAD}\n1,,5,5\n", "an empty field", "line 2, Inferences/Second"),
        (f"{HEAD}\n1.5,10,5,5\n", "1.5 is not a load", "line 2, Concurrency"),
        (f"{HEAD},p50 latency\n1,10,5,5,5\n", "is there twice", "line 1"),
        (f'{HEAD}\n1,10,"5,5\n', "broken CSV", "x.csv"),
        (b"\xff", "byte 0xff is not UTF-8", "x.csv:1:1"),
        (f"{HEAD},Avg GPU Utilization\n1,10,5,5,half\n", '"half" is not GPU:value', "line 2, Avg GPU Utilization"),
        (f"{HEAD},Avg GPU Utilization\n1,10,5,5,G:1;G:2;\n", "is not GPU:value", "line 2"),
        (f"{HEAD},Total GPU Memory\n1,10,5,5,G:nan;\n", '"nan" is not a number', "line 2, Total GPU Memory"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, text, what, where):
    with pytest.raises(ConfigError) as error:
        read_perf_analyzer(put(tmp_path, text))
    assert what in str(error.value)
    assert where in str(error.value)


def test_a_level_that_is_there_twice_counts_once(tmp_path):
    found = read_perf_analyzer(put(tmp_path, f"{HEAD}\n1,10,5,100000\n1,11,5,90909\n"))
    assert [lv.meta["achieved_rate"] for lv in found.levels] == [10]
    assert "line 3: concurrency 1 was there before" in found.warnings[0]


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(StoreError, match="not found"):
        read_perf_analyzer(tmp_path / "none.csv")
    with pytest.raises(ConfigError, match="this is a folder"):
        read_perf_analyzer(tmp_path)
    with pytest.raises(UsageError, match="a batch must be 1 or more, not 0"):
        read_perf_analyzer(FIXTURES / "p95.csv", batch=0)


def test_the_run_folder(tmp_path):
    out = tmp_path / "runs"
    folder, warnings = import_perf_analyzer(FIXTURES / "inst2_c1-8.csv", out, 2, slos=["p95 runtime<=100ms"])
    assert warnings == []
    assert import_perf_analyzer(FIXTURES / "inst2_c1-8.csv", out, 2, slos=["p95 runtime <= 100ms"])[0] == folder
    assert import_perf_analyzer(FIXTURES / "inst2_c1-8.csv", out, 4)[0] != folder
    about = json.loads((folder / "run.json").read_text())
    assert about["options"] == {"slo": ["p95 runtime <= 100ms"]}
    assert about["source"]["tool"] == "perf_analyzer"
    levels = read_levels(folder)
    assert [(lv.concurrency, lv.gpus) for lv in levels] == [(c, 2) for c in range(1, 9)]
    table = summarize(levels)
    assert table["achieved_rate"].to_list()[-1] == pytest.approx(76.4352)
    assert table["server_queue_s"].to_list()[-1] == pytest.approx(0.076444)
    assert table["runtime_mean_s"].to_list()[-1] == pytest.approx(0.104388)
    with pytest.raises(SloError):
        import_perf_analyzer(FIXTURES / "inst2_c1-8.csv", out, 2, slos=["fast"])


def test_its_json_is_told_from_its_csv(tmp_path):
    path = put(tmp_path, '{"experiments": []}', "profile.json")
    with pytest.raises(ConfigError, match=r"this is JSON, and neither perf_analyzer's CSV nor its profile export"):
        read_perf_analyzer(path)
