"""perf_analyzer's profile exports: a real one against the tool's own summary, generated ones against numpy."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpusize
from gpusize.base.errors import ConfigError, PathMissing
from gpusize.studies.imports.perf_analyzer_json import import_perf_analyzer_json

FIXTURES = Path(__file__).parents[1] / "fixtures" / "perf_analyzer"
REAL = FIXTURES / "v260_profile_40.json"
T0 = 1_795_172_678_000_000_000


def test_a_real_export_has_the_figures_that_the_tool_printed(tmp_path: Path):
    printed = (FIXTURES / "v260_request_count_40.txt").read_text()
    told = {name: int(us) / 1e6 for name, us in re.findall(r"(p\d+|Avg) latency: (\d+) usec", printed)}
    [row] = gpusize.read(REAL, tmp_path, gpus=1).summary.iter_rows(named=True)
    raw = json.loads(REAL.read_text())["experiments"][0]["requests"]
    times = sorted((each["response_timestamps"][-1] - each["timestamp"]) / 1e9 for each in raw)
    assert (row["n"], row["errors"], row["concurrency"], row["gpus"]) == (40, 0, 2, 1)
    assert row["runtime_mean_s"] == pytest.approx(told["Avg"], abs=1e-6)
    for name in ("p50", "p90", "p95", "p99"):
        # The tool takes one of the two neighbours of the rank, where we go between them.
        at = int(name[1:]) / 100 * 39
        low, high = times[int(at)], times[min(39, int(at) + 1)]
        assert low <= row[f"runtime_{name}_s"] <= high
        assert low - 1e-6 <= told[name] <= high + 1e-6
    # The tool printed 39.978 requests/s: its window is three times as long as the requests took.
    span = (raw[-1]["response_timestamps"][-1] - raw[0]["timestamp"]) / 1e9
    assert row["achieved_rate"] == pytest.approx(40 / span, rel=0.05)
    assert row["little_ratio"] == pytest.approx(1, abs=0.05)
    assert [row[name] for name in ("ttft_p50_s", "lateness_p99_s", "tokens_out_per_s")] == [None] * 3


def request(sent: int, *came: int, outputs: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    given = [{"y": [1.5, float("nan")]} for _ in came] if outputs is None else outputs
    return {
        "timestamp": sent,
        "request_inputs": {"x": [1.0, float("inf")]},
        "response_timestamps": list(came),
        "response_outputs": given,
        **more,
    }


def export(path: Path, *experiments: tuple[str, float, list[dict[str, Any]], list[int]], kind: str = "triton") -> Path:
    each = [
        {"experiment": {"mode": mode, "value": value}, "requests": requests, "window_boundaries": windows}
        for mode, value, requests, windows in experiments
    ]
    path.write_text(json.dumps({"experiments": each, "version": "2.60.0", "service_kind": kind, "endpoint": "v2"}))
    return path


def closed(rnd: np.random.Generator, users: int, n: int, begun: int = T0) -> list[dict[str, Any]]:
    free, rows = [begun + k for k in range(users)], []
    for _ in range(n):
        sent = free.pop(int(np.argmin(free)))
        free.append(sent + int(rnd.gamma(20, 5e5)))
        rows.append(request(sent, free[-1]))
    return rows


@pytest.mark.parametrize("seed", range(3))
def test_levels_and_windows_against_numpy(tmp_path: Path, seed: int):
    rnd = np.random.default_rng(seed)
    levels = []
    for k, users in enumerate((1, 3, 7)):
        rows = closed(rnd, users, 400, T0 + k * 10**12)
        low, high = rows[60]["timestamp"], rows[350]["timestamp"]
        levels.append(("concurrency", users, rows, [low, (low + high) // 2, high]))
    result = gpusize.read(export(tmp_path / "p.json", *levels), tmp_path / "runs")
    assert result.notes == []
    for row, (_, users, rows, windows) in zip(result.summary.iter_rows(named=True), levels, strict=True):
        inside = [each for each in rows if windows[0] <= each["timestamp"] < windows[-1]]
        took = np.array([each["response_timestamps"][-1] - each["timestamp"] for each in inside]) / 1e9
        assert (row["concurrency"], row["n"]) == (users, len(inside))
        for name, prob in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0)):
            assert row[f"service_{name}_s"] == pytest.approx(np.quantile(took, prob), rel=1e-9)
            assert row[f"runtime_{name}_s"] == row[f"service_{name}_s"]
        came = [t for each in rows if windows[0] < (t := each["response_timestamps"][-1]) <= windows[-1]]
        assert row["achieved_rate"] == pytest.approx(len(came) / ((windows[-1] - windows[0]) / 1e9), rel=0.02)
        assert row["little_ratio"] == pytest.approx(1, abs=0.05)
    assert result.records.height == 1200


def test_a_rate_knows_the_service_time_and_whether_it_was_kept_up(tmp_path: Path):
    rnd = np.random.default_rng(1)
    sent = T0 + np.cumsum(rnd.exponential(1e7, 800)).astype(int)
    rows = [request(int(t), int(t) + 5_000_000) for t in sent]
    file = export(tmp_path / "p.json", ("request_rate", 100.0, rows, []), ("request_rate", 400.0, rows, []))
    kept, short = gpusize.read(file, tmp_path / "runs").summary.iter_rows(named=True)
    assert (kept["rate"], kept["delivered"], short["rate"], short["delivered"]) == (100, True, 400, False)
    assert kept["service_p95_s"] == pytest.approx(0.005)
    assert kept["runtime_p95_s"] is None
    assert "400 were asked for" in short["delivery"]


def test_streams_of_responses_have_first_tokens_and_gaps(tmp_path: Path):
    rnd = np.random.default_rng(2)
    rows, gaps, firsts = [], [], []
    for k in range(60):
        came = T0 + k * 10**9 + 10**6 + np.sort(rnd.integers(0, 10**8, 6))
        rows.append(request(T0 + k * 10**9, *map(int, came), int(came[-1] + 10), outputs=[{"y": [1]}] * 6 + [{}]))
        gaps.append(np.diff(came))
        firsts.append(came[0] - (T0 + k * 10**9))
    file = export(tmp_path / "p.json", ("concurrency", 1, rows, []))
    [row] = gpusize.read(file, tmp_path / "runs").summary.iter_rows(named=True)
    assert row["ttft_p50_s"] == pytest.approx(np.median(firsts) / 1e9)
    assert row["itl_p99_s"] == pytest.approx(np.quantile(np.concatenate(gaps), 0.99) / 1e9)


def test_pieces_of_an_llms_answer_are_no_tokens(tmp_path: Path):
    texts = [{"response": 'data: {"choices": []}'}, {"response": "data: [DONE]"}]
    rows = [request(T0 + k, T0 + k + 10, T0 + k + 30, outputs=texts) for k in range(0, 3000, 100)]
    result = gpusize.read(export(tmp_path / "p.json", ("concurrency", 1, rows, []), kind="openai"), tmp_path / "runs")
    [row] = result.summary.iter_rows(named=True)
    assert (row["ttft_p50_s"], row["itl_p50_s"]) == (None, None)
    assert result.records["first_byte_ns"][0] == result.records["sent_ns"][0] + 10


def test_requests_without_a_response_are_failures(tmp_path: Path):
    rows = [request(T0 + k * 1000, *([T0 + k * 1000 + 900] if k % 4 else [])) for k in range(40)]
    result = gpusize.read(export(tmp_path / "p.json", ("concurrency", 1, rows, [])), tmp_path / "runs")
    [row] = result.summary.iter_rows(named=True)
    assert (row["n"], row["errors"], row["err_truncated"]) == (40, 10, 10)
    assert any("10 requests have no response" in alert for alert in row["alerts"])


def test_what_is_left_out_is_named(tmp_path: Path):
    rows = closed(np.random.default_rng(0), 1, 30)
    file = export(
        tmp_path / "p.json",
        ("concurrency", 1, rows, []),
        ("concurrency", 2, [], []),
        ("periodic", 3, rows, []),
    )
    found = import_perf_analyzer_json(file, tmp_path / "runs", expected=[1, 2])
    assert [note.split(": ", 1)[1] for note in found.warnings] == [
        "no request in it; it is left out",
        "a load of mode periodic and value 3 is not known here; it is left out",
        "1 of 2 levels are missing, concurrency 2: perf_analyzer ends a sweep at the first level that does not settle",
    ]
    again = import_perf_analyzer_json(file, tmp_path / "runs", expected=[1, 2])
    assert again == found


GOOD = '{"experiments": [{"experiment": {"mode": "concurrency", "value": 1}, "requests": [%s]}]}'
FINE = '{"timestamp": 5, "response_timestamps": [9]}'


@pytest.mark.parametrize(
    "text, what",
    [
        (GOOD % FINE + "]", f"byte {len(GOOD % FINE)}: something follows"),
        (
            GOOD % (FINE + ',\n{"timestamp": 5.5, "response_timestamps": [9]}'),
            f"line 2, byte {(GOOD % FINE).index(FINE) + len(FINE) + 2}: timestamp",
        ),
        (GOOD % '{"timestamp": NaN, "response_timestamps": [9]}', "should be times"),
        (GOOD % '{"timestamp": true, "response_timestamps": [9]}', "should be times"),
        (GOOD % ('{"timestamp": 5, "response_timestamps": [1%s]}' % ("0" * 30)), "should be times"),
        (GOOD % '{"timestamp": 5, "response_timestamps": [4]}', "a response came before"),
        (GOOD % '{"timestamp": 5, "response_timestamps": [9, 8]}', "not in order"),
        (GOOD % '{"response_timestamps": [9]}', "should have timestamp"),
        (GOOD % "7", "should have timestamp"),
        (GOOD % "", "no request in it"),
        ((GOOD % FINE)[:-4], "the file breaks off"),
        ('{"experiments": [{"requests": [], "experiment": {}}]}', "must stand before requests"),
        ('{"experiments": [{"experiment": {"mode": "concurrency", "value": -1}, "requests": []}]}', "a value above 0"),
        ('{"experiments": {}}', "a list should be here"),
        ('{"version": "1"}', "experiments is missing"),
    ],
)
def test_what_is_broken_is_said_with_its_place(tmp_path: Path, text: str, what: str):
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(ConfigError, match=re.escape(what)) as error:
        import_perf_analyzer_json(tmp_path / "p.json", tmp_path / "runs")
    assert "p.json" in str(error.value)
    assert not list((tmp_path / "runs").glob("*"))


def test_what_is_missing(tmp_path: Path):
    with pytest.raises(PathMissing):
        import_perf_analyzer_json(tmp_path / "none.json", tmp_path / "runs")
