"""What perf_analyzer prints: the same figures as its CSV, whatever stands in between, and what it did not count."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import gpusize
from gpusize.analysis.checks import check
from gpusize.analysis.summary import summarize
from gpusize.base.errors import ConfigError, UsageError
from gpusize.studies.imports.perf_analyzer import import_perf_analyzer, read_perf_analyzer

FIXTURES = Path(__file__).parents[1] / "fixtures" / "perf_analyzer"
TEXTS = sorted(FIXTURES.glob("*.txt"))
PAIRS = [file for file in TEXTS if file.with_suffix(".csv").is_file()]
GPUS = """\
*** Measurement Settings ***
  Batch size: 2

Request concurrency: 2
  Client:
    Request count: 313
    Throughput: 17.3865 infer/sec
    Response Throughput: 99 infer/sec
    Avg latency: 230000 usec (standard deviation 7452 usec)
    p95 latency: 240000 usec
    Avg HTTP time: 229000 usec (send 4000 usec + response wait 224500 usec + receive 500 usec)
  Server:
    Inference count: 626
    Execution count: 313
    Successful request count: 313
    Avg request latency: 220000 usec (overhead 44 usec + queue 32 usec + compute 219924 usec)

  Composing models:
  first, version:
      Inference count: 626
      Execution count: 1
      Avg request latency: 1 usec (overhead 1 usec + queue 1 usec + compute input 1 usec + compute infer 1 usec)

  Server Prometheus Metrics:
    Avg GPU Utilization:
      GPU-a : 45%
      GPU-b : 52.5%
    Avg GPU Power Usage:
      GPU-a : 70 watts
      GPU-b : 84.5 watts
    Max GPU Memory Usage:
      GPU-a : 10000 bytes
      GPU-b : 12000 bytes
    Total GPU Memory:
      GPU-a : 100000 bytes
      GPU-b : 100000 bytes
Inferences/Second vs. Client Average Batch Latency
Concurrency: 2, throughput: 17.3865 infer/sec, latency 230000 usec
"""


def read(folder, text, **more):
    path = folder / "out.txt"
    path.write_text(text, newline="")
    return read_perf_analyzer(path, **more)


def figures(levels):
    return {
        (lv.concurrency or lv.rate): {**lv.percentiles, **lv.meta["perf_analyzer"], "rate": lv.meta["achieved_rate"]}
        for lv in levels
        if lv.state == "done"
    }


def test_there_are_all_the_texts():
    assert (len(TEXTS), len(PAIRS)) == (17, 13)


@pytest.mark.parametrize("file", PAIRS, ids=lambda file: file.stem)
def test_the_text_says_what_the_csv_of_the_same_run_says(file):
    """Rates are printed with two digits after the point; all else to the digit of the CSV."""
    of_text, of_csv = read_perf_analyzer(file), read_perf_analyzer(file.with_suffix(".csv"))
    by_load = {lv.concurrency or lv.rate: lv for lv in of_text.levels}
    assert {lv.concurrency or lv.rate for lv in of_csv.levels} <= set(by_load)
    assert of_text.warnings == []
    for wanted in of_csv.levels:
        found = by_load[wanted.concurrency or wanted.rate]
        assert found.state == "done"
        digits = 0.005001 if wanted.rate else 5e-4
        assert found.meta["achieved_rate"] == pytest.approx(wanted.meta["achieved_rate"], abs=digits)
        assert {k: v for k, v in found.percentiles.items() if "mean" not in k} == {
            k: v for k, v in wanted.percentiles.items() if "mean" not in k
        }
        # Without --verbose-csv the file has no mean: there it is the sum of seven rounded parts.
        close = 1e-9 if "Avg latency" in wanted.meta["perf_analyzer"] else 1e-5
        [mean] = [k for k in wanted.percentiles if "mean" in k]
        assert found.percentiles[mean] == pytest.approx(wanted.percentiles[mean], abs=close)
        told = {fact["metric"]: fact["mean"] for fact in found.meta["server"]}
        for fact in wanted.meta["server"]:
            assert told[fact["metric"]] == pytest.approx(fact["mean"], abs=1e-12)
        assert found.meta["client_ns"] == pytest.approx(wanted.meta["client_ns"], abs=1000)
        assert ("little" in found.meta["flags"]) == ("little" in wanted.meta["flags"])


@pytest.mark.parametrize("file", TEXTS, ids=lambda file: file.stem)
def test_the_tools_own_summary_says_the_same(file):
    levels = {lv.concurrency or lv.rate: lv for lv in read_perf_analyzer(file).levels}
    lines = [line for line in file.read_text().splitlines() if ", throughput: " in line]
    for line in lines:
        load, throughput, latency = (part.split()[-2 if k else -1] for k, part in enumerate(line.split(", ")))
        level = levels[float(load)]
        assert level.meta["inferences_rate"] == pytest.approx(float(throughput), abs=0.0051)
        assert level.meta["residence_ns"] == pytest.approx(float(latency) * 1e3, abs=1)
    assert len(lines) == sum(
        lv.state == "done"
        and "Avg latency" in lv.meta["perf_analyzer"]
        and not any("windows" in text for text in lv.meta["alerts"])
        for lv in levels.values()
    )


@pytest.mark.parametrize("name, last", [("grpc_c1-16_aborted.txt", 3), ("http_c1-16_aborted.tail.txt", 13)])
def test_a_level_that_did_not_settle_is_there_with_the_reason(name, last):
    found = read_perf_analyzer(FIXTURES / name, expected=range(1, 17))
    level = found.levels[-1]
    assert (level.concurrency, level.state, level.meta["achieved_rate"]) == (last, "interrupted", None)
    [alert] = level.meta["alerts"]
    assert f"6 measurement windows for concurrency {last}" in alert
    assert check(level).flags == ["interrupted"]
    assert f"{17 - last} of 16 levels are missing, concurrency {last}, " in found.warnings[0]
    assert summarize(found.levels)["achieved_rate"].to_list()[-1] is None


def test_levels_of_a_synchronous_binary_search_are_flagged():
    levels = read_perf_analyzer(FIXTURES / "v260_binsearch_sync.txt").levels
    assert [lv.concurrency for lv in levels if "little" in check(lv).flags] == [2, 4, 8]
    assert not any("--batch" in text for lv in levels for text in lv.meta["alerts"])
    windows = ((743.716, 21516), (724.718, 21993), (755.753, 21243))
    requests = sum(rate for rate, _ in windows)
    assert levels[1].meta["achieved_rate"] == pytest.approx(requests / 3)
    assert levels[1].mean("runtime") == pytest.approx(sum(rate * us for rate, us in windows) / requests * 1e-6)
    assert levels[1].quantile("runtime", 0.95) is None
    levels = read_perf_analyzer(FIXTURES / "v260_binsearch_async.txt").levels
    assert [lv.concurrency for lv in levels if check(lv).flags] == []
    levels = read_perf_analyzer(FIXTURES / "v250_binsearch_sync.txt").levels
    assert [(lv.concurrency, lv.state) for lv in levels[1:]] == [(c, "interrupted") for c in (2, 4, 8, 16)]
    assert "over the set limit of 20 msec" in levels[1].meta["alerts"][0]


def test_a_load_that_never_settled_is_no_result():
    [level] = read_perf_analyzer(FIXTURES / "v260_overload_async.txt").levels
    assert (level.state, level.rate) == ("interrupted", 1200)
    assert level.meta["achieved_rate"] == pytest.approx((491.076 + 793.668 + 740.556) / 3)
    assert level.meta["flags"] == ["not-delivered"]


def test_requests_that_were_sent_late_and_a_count_of_requests_are_named():
    levels = read_perf_analyzer(FIXTURES / "rr_poisson.txt").levels
    assert [lv.meta["alerts"][0].split(" of ")[0] for lv in levels] == ["1.92 %", "5.32 %", "18.8 %"]
    assert [lv.meta["flags"] for lv in levels] == [[], [], []]
    [level] = read_perf_analyzer(FIXTURES / "v260_request_count_40.txt").levels
    assert level.meta["flags"] == ["little"]
    assert "--request-count 40" in level.meta["alerts"][1]


def test_gpus_ensembles_and_batches(tmp_path):
    [level] = read(tmp_path, GPUS).levels
    assert level.meta["achieved_rate"] == pytest.approx(17.3865 / 2)
    assert level.meta["inferences_rate"] == 17.3865
    assert level.meta["client_ns"] == 4_500_000
    [row] = summarize([level]).to_dicts()
    assert row["server_gpu_utilization"] == pytest.approx(0.4875)
    assert row["server_gpu_utilization_max"] == pytest.approx(0.525)
    assert row["server_gpu_power_w"] == pytest.approx(154.5)
    assert row["server_gpu_memory_share"] == pytest.approx(0.11)
    assert row["server_batch_size"] == 2
    assert row["server_queue_s"] == pytest.approx(32e-6)
    assert row["server_request_s"] == pytest.approx(0.22)
    assert read(tmp_path, GPUS, batch=2).levels[0].meta["achieved_rate"] == pytest.approx(17.3865 / 2)
    with pytest.raises(UsageError, match="--batch 3 and the text's 2"):
        read(tmp_path, GPUS, batch=3)


@pytest.mark.parametrize("file", TEXTS, ids=lambda file: file.stem)
def test_warnings_between_the_lines_change_nothing(tmp_path, file):
    rng = random.Random(file.stem)
    noise = ["WARNING: Unable to parse 'nv_gpu_utilization' metric.", "[WARNING] slow", "", "W1127 00:00:00 grpc: x\ty"]
    lines = file.read_text().splitlines()
    for at in sorted(rng.sample(range(len(lines) + 1), min(40, len(lines))), reverse=True):
        lines.insert(at, rng.choice(noise))
    found, whole = read(tmp_path, "\r\n".join(lines) + "\r\n"), read_perf_analyzer(file)
    assert [lv.meta for lv in found.levels] == [lv.meta for lv in whole.levels]


@pytest.mark.parametrize("name", ["v260_grpc", "v260_binsearch_async", "rr_poisson", "custom", "grpc_c1-16_aborted"])
def test_a_text_that_is_cut_anywhere_says_nothing_else(tmp_path, name):
    text = (FIXTURES / f"{name}.txt").read_text()
    whole = figures(read_perf_analyzer(FIXTURES / f"{name}.txt").levels)
    for end in range(300, len(text) - 1, 7):
        try:
            found = read(tmp_path, text[:end])
        except ConfigError:
            continue
        for load, told in figures(found.levels).items():
            assert whole[load] | told == whole[load], (end, load)
        cut_before_summary = ", throughput: " not in text[: end - 1]
        assert found.warnings or not cut_before_summary or not figures(found.levels)


@pytest.mark.parametrize(
    "old, new, where, what",
    [
        ("17.3865 infer/sec\n    Resp", "nan infer/sec\n    Resp", "line 7", '"nan" is not a number'),
        ("240000 usec", "-1 usec", "line 10", '"-1" is not a number'),
        ("Request concurrency: 2", "Request concurrency: 0", "line 4", "0 is not a load"),
        ("GPU-b : 52.5%", "GPU-b : x%", "line 27", '"x" is not a number'),
    ],
)
def test_what_is_no_number_is_named_with_its_line(tmp_path, old, new, where, what):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, GPUS.replace(old, new, 1))
    assert str(caught.value.where).endswith(where)
    assert what in caught.value.what


def test_a_summary_that_differs_is_named(tmp_path):
    found = read(tmp_path, GPUS.replace("Concurrency: 2, throughput: 17.3865", "Concurrency: 2, throughput: 18.3865"))
    assert "line 38: the summary says 18.3865 infer/sec" in found.warnings[0]
    assert found.levels[0].meta["inferences_rate"] == 17.3865


def test_a_text_without_a_level(tmp_path):
    with pytest.raises(ConfigError, match="no level in it"):
        read(tmp_path, "*** Measurement Settings ***\n  Batch size: 1\n")


def test_the_content_tells_it_and_a_run_is_made(tmp_path):
    result = gpusize.read(FIXTURES / "inst4_c1-8.txt", tmp_path, gpus=4)
    assert result.summary["achieved_rate"].to_list()[-1] == 154.163
    first = import_perf_analyzer(FIXTURES / "v250_binsearch_sync.txt", tmp_path, 1)
    assert gpusize.open_run(first.folder).summary["state"].to_list() == ["done", *4 * ["interrupted"]]
    result.report(tmp_path / "out", plots=False)
