"""traccc's logs: throughput and stages, CPU and CUDA, old and new spellings; and the question of its study."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import gpusize
from gpusize.base.errors import ConfigError, PathMissing, UsageError
from gpusize.studies.imports.traccc import import_traccc, read_traccc

FIXTURES = Path(__file__).parents[1] / "fixtures" / "traccc"
LOG = FIXTURES / "gpu_mu200.log"
STAGES = """\
Number of input events: 10
==> Statistics ...
- created (cuda) 11 seeds
==>Elapsed times...
           File reading  (cpu)  2000 ms
         Clusterization (cuda)  40 ms
                 Seeding  (cpu)  900 ms
                 Seeding (cuda)  60 ms
            Track params (cuda)  1 ms
                     Wall time  3001 ms
"""
PREFIX = "12:00:01 Throughput INFO Event processing"
OLD = """\
==> Elpased time ...
wall time           3.5
file reading (cpu)        1.5
clusterization_time (cpu) 0.25
seeding_time (cpu)        0.75
"""


def put(folder, text, name="cpu_mu140.log"):
    path = folder / name
    path.write_text(text, newline="")
    return path


def test_the_throughput_is_that_of_the_events_not_of_the_warm_up():
    found = read_traccc(LOG, gpus=1)
    [level] = found.levels
    assert (found.device, found.warnings, level.concurrency, level.gpus) == ("cuda", [], 1, 1)
    assert level.meta["achieved_rate"] == 24.2752
    # 4119 ms for 100 events, by the log's own totals.
    assert level.mean("runtime") == pytest.approx(4.119 / 100, rel=1e-3)
    assert level.meta["alerts"] == []


@pytest.mark.parametrize("each, rate", [("12", "83.3333"), ("1e-05", "1e+08"), ("0.5", "2000")])
def test_numbers_as_cpp_prints_them(tmp_path, each, rate):
    bars = "Event processing   [==>  ] 10%\rEvent processing   [====>] 100%\r\n"
    text = f"{bars}{PREFIX}  {each} ms/event, {rate} events/s\n"
    found = read_traccc(put(tmp_path, text), threads=48)
    assert [lv.meta["achieved_rate"] for lv in found.levels] == [float(rate)]
    assert (found.levels[0].concurrency, found.device) == (48, "cpu")
    # 48 events at once: how long one takes is not said.
    assert found.levels[0].percentiles == {}


def test_threads_that_nothing_tells_have_to_be_given(tmp_path):
    line = "Event processing  12 ms/event, 83.3333 events/s\n"
    with pytest.raises(ConfigError, match="line 1: nothing says how many threads") as caught:
        gpusize.read(put(tmp_path, line), tmp_path / "runs")
    assert "--threads N" in caught.value.todo
    assert read_traccc(put(tmp_path, line, "x.log"), threads=8).device is None
    [level] = read_traccc(put(tmp_path, f"./traccc_throughput_st --events=1\n{line}")).levels
    assert level.concurrency == 1
    assert level.mean("runtime") == pytest.approx(0.012)


def test_its_own_log_file_has_a_level_per_line(tmp_path):
    rng = random.Random(1)
    lines: list[str] = []
    wanted: list[object] = []
    for threads in (1, 4, 16):
        processed, ns = rng.randint(50, 500), rng.randint(10**8, 10**10)
        lines.append(f'"odd/mu200",{threads},10,5,{processed},{rng.randint(1, 9)},{ns}')
        wanted.append((threads, pytest.approx(processed * 1e9 / ns)))
    found = read_traccc(put(tmp_path, "\n".join(lines) + "\n"))
    assert [(lv.concurrency, lv.meta["achieved_rate"]) for lv in found.levels] == wanted


def test_stages_of_both_devices(tmp_path):
    found = read_traccc(put(tmp_path, STAGES, "x.log"))
    [level] = found.levels
    assert found.device == "cuda"
    assert level.meta["achieved_rate"] == pytest.approx(10 / 0.101)
    told = {fact["labels"]: fact["mean"] for fact in level.meta["server"]}
    assert told['stage="Seeding",device="cuda"'] == pytest.approx(0.006)
    assert told['stage="Seeding",device="cpu"'] == pytest.approx(0.09)
    assert told['stage="File reading",device="cpu"'] == pytest.approx(0.2)
    assert "too coarse to go by: Track params" in level.meta["alerts"][1]


@pytest.mark.parametrize("begin", ["==>Elapsed times...", "==> Elapsed times...", "INFO: ==>Elapsed times... "])
def test_spellings(tmp_path, begin):
    [level] = read_traccc(put(tmp_path, STAGES.replace("==>Elapsed times...", begin))).levels
    assert len(level.meta["traccc"]["stages"]) == 6


def test_the_oldest_spelling_is_in_seconds_and_without_events_there_is_no_rate(tmp_path):
    [level] = read_traccc(put(tmp_path, OLD), events=4).levels
    assert level.meta["achieved_rate"] == pytest.approx(4.0)
    found = read_traccc(put(tmp_path, OLD))
    assert (found.levels[0].state, found.levels[0].meta["achieved_rate"]) == ("interrupted", None)
    assert found.levels[0].meta["traccc"]["stages"][0] == {"stage": "wall time", "device": None, "total_s": 3.5}
    assert "give --events" in found.warnings[0]


def test_what_is_wrong_is_said_with_its_place(tmp_path):
    with pytest.raises(ConfigError, match="line 1"):
        read_traccc(put(tmp_path, "Event processing  nan ms/event, 83.3 events/s\n"))
    with pytest.raises(ConfigError, match="no result of traccc"):
        read_traccc(put(tmp_path, "Event processing  12 ms/ev"))
    with pytest.raises(PathMissing):
        read_traccc(tmp_path / "none.log")
    with pytest.raises(UsageError, match="threads must be 1 or more"):
        read_traccc(LOG, threads=0)
    [level] = read_traccc(put(tmp_path, "Event processing  12 ms/event, 80 events/s\n"), threads=1).levels
    assert level.meta["flags"] == ["little"]


@pytest.mark.parametrize("text", [LOG.read_text(), STAGES, OLD])
def test_a_log_that_is_cut_says_nothing_else(tmp_path, text):
    whole = read_traccc(put(tmp_path, text), events=10).levels[0].meta
    for end in range(len(text)):
        try:
            [level] = read_traccc(put(tmp_path, text[:end]), events=10).levels
        except ConfigError:
            continue
        for stage in level.meta["traccc"]["stages"]:
            assert stage in whole["traccc"]["stages"], end
        # The oldest spelling has nothing at its end that would show a cut between two lines.
        between_lines = text is OLD and text[:end].endswith("\n")
        assert between_lines or level.meta["achieved_rate"] in (None, whole["achieved_rate"])


def test_a_run_with_labels_that_the_content_tells(tmp_path):
    first = import_traccc(LOG, tmp_path, 1).folder
    assert json.loads((first / "run.json").read_text())["labels"] == {"device": "cuda", "mu": "200"}
    assert gpusize.read(LOG, tmp_path, gpus=1).path == first
    assert gpusize.open_run(tmp_path, labels={"mu": "200"}).summary["achieved_rate"].to_list() == [24.2752]


def test_40_events_with_the_loss_at_4_gpus_carried(tmp_path):
    """Amdahl's law through two points, by hand: X(n) = x1 n / (1 + s (n - 1)), s = (4 x1 / x4 - 1) / 3."""
    rows = json.loads((FIXTURES / "scaling.json").read_text())["rows"]
    runs = []
    for gpus in (1, 4):
        mine = [row for row in rows if row[0] == gpus]
        lines = ["*** Measurement Settings ***", "  Batch size: 1"]
        for _, c, rate, queue, compute, p50, _ in mine:
            lines += [f"Request concurrency: {c}", "  Client:", f"    Throughput: {rate} infer/sec"]
            lines += [f"    p50 latency: {p50} usec", "  Server:"]
            parts = f"overhead 0 usec + queue {queue} usec + compute infer {compute} usec"
            lines += [f"    Avg request latency: {queue + compute} usec ({parts})"]
        path = put(tmp_path, "\n".join(lines) + "\n", f"out{gpus}gpu.txt")
        runs.append(gpusize.read(path, tmp_path / "runs", gpus=gpus).path)
    found = gpusize.open_run(runs).estimate(rate=40, slos=[], method="scaling")
    x1, x4 = (c["capacity"] for c in found.details["counts"])
    assert (round(x1, 2), round(x4, 2)) == (11.70, 26.87)
    s = (4 * x1 / x4 - 1) / 3
    by_hand = next(n for n in range(1, 100) if x1 * n / (1 + s * (n - 1)) >= 40)
    assert (found.gpus, found.gpus_high) == (by_hand, None) == (17, None)
    hosts = gpusize.open_run(runs).estimate(rate=40, slos=[], method="scaling", host_gpus=4)
    assert hosts.gpus == 8
