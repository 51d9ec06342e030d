"""Results of vllm bench serve, in the shape of its source: figures against numpy over the requests they are of."""

from __future__ import annotations

import heapq
import json
from pathlib import Path

import numpy as np
import pytest

import gpusize
from gpusize.base.errors import ConfigError
from gpusize.studies.imports.guess import formats
from gpusize.studies.imports.vllm import import_vllm

LISTS = ("input_lens", "output_lens", "start_times", "ttfts", "itls", "generated_texts", "errors")
PROBS = {"p50": 50, "p90": 90, "p95": 95, "p99": 99, "max": 100}


def result(seed: int, users: int = 4, each: int = 40, *, failing: float = 0.0, **more) -> dict:
    """A result of a closed loop, its summary by the formulas of vLLM's calculate_metrics."""
    rnd = np.random.default_rng(seed)
    rows = []
    free = [1000.0] * users
    for _ in range(users * each):
        at = heapq.heappop(free)
        ttft, gaps = float(rnd.lognormal(-3, 0.3)), rnd.lognormal(-4.5, 0.3, int(rnd.integers(2, 9))).tolist()
        bad = rnd.random() < failing
        rows.append((at, ttft, gaps, "Traceback: TimeoutError" if bad else ""))
        heapq.heappush(free, at + ttft + sum(gaps))
    good = [row for row in rows if not row[3]]
    took = [ttft + sum(gaps) for _, ttft, gaps, _ in good]
    seconds = max(at + ttft + sum(gaps) for at, ttft, gaps, _ in rows) - 1000
    values = {
        "ttft": [row[1] for row in good],
        "tpot": [sum(gaps) / len(gaps) for _, _, gaps, _ in good],
        "itl": [gap for row in good for gap in row[2]],
        "e2el": took,
    }
    made = {
        "date": "20261127-100000",
        "endpoint_type": "openai",
        "backend": "openai",
        "label": None,
        "model_id": "m",
        "tokenizer_id": "m",
        "num_prompts": len(rows),
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": users,
        "duration": seconds,
        "completed": len(good),
        "failed": len(rows) - len(good),
        "total_input_tokens": 10 * len(good),
        "total_output_tokens": sum(len(row[2]) + 1 for row in good),
        "request_throughput": len(good) / seconds,
        "request_goodput": None,
        "output_throughput": sum(len(row[2]) + 1 for row in good) / seconds,
        "total_token_throughput": 1.0,
        "input_lens": [10] * len(rows),
        "output_lens": [0 if row[3] else len(row[2]) + 1 for row in rows],
        "ttfts": [0.0 if row[3] else row[1] for row in rows],
        "itls": [[] if row[3] else row[2] for row in rows],
        "latencies": [0.0 if row[3] else row[1] + sum(row[2]) for row in rows],
        "start_times": [row[0] for row in rows],
        "generated_texts": ["x"] * len(rows),
        "errors": [row[3] for row in rows],
    }
    for name, found in values.items():
        made[f"mean_{name}_ms"] = float(np.mean(found)) * 1e3
        made[f"median_{name}_ms"] = float(np.median(found)) * 1e3
        made |= {f"p{p}_{name}_ms": float(np.percentile(found, p)) * 1e3 for p in (90, 95, 99)}
    return made | more


def put(folder: Path, content: dict | str, name: str = "r.json", *, detailed: bool = True) -> Path:
    if isinstance(content, dict):
        content = json.dumps({k: v for k, v in content.items() if detailed or k not in LISTS})
    (folder / name).write_text(content)
    return folder / name


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("detailed", [True, False])
def test_figures_are_the_tools_own(tmp_path: Path, seed: int, detailed: bool):
    raw = result(seed)
    [row] = gpusize.read(put(tmp_path, raw, detailed=detailed), tmp_path / "runs", gpus=2).summary.rows(named=True)
    assert (row["kind"], row["concurrency"], row["gpus"]) == ("closed", 4, 2)
    assert (row["n"], row["errors"]) == (raw["completed"], 0)
    for metric, key in (
        ("runtime", "e2el"),
        ("service", "e2el"),
        ("ttft", "ttft"),
        ("ttft_sent", "ttft"),
        ("itl", "itl"),
    ):
        for name in ("p50", "p90", "p95", "p99"):
            told = raw[f"{'median' if name == 'p50' else name}_{key}_ms"] / 1e3
            assert row[f"{metric}_{name}_s"] == pytest.approx(told, rel=1e-5)
    assert row["runtime_mean_s"] == pytest.approx(raw["mean_e2el_ms"] / 1e3, rel=1e-6)
    if not detailed:
        assert row["achieved_rate"] == raw["request_throughput"]
        assert row["tokens_out_per_s"] == raw["output_throughput"]
        assert row["total_runtime_s"] == raw["duration"]
        assert row["flags"] == []


def test_without_e2el_in_the_summary_it_follows_from_the_latencies(tmp_path: Path):
    raw = {k: v for k, v in result(1).items() if "e2el" not in k}
    [row] = gpusize.read(put(tmp_path, raw, detailed=False), tmp_path / "runs").summary.rows(named=True)
    for name, percent in PROBS.items():
        assert row[f"runtime_{name}_s"] == pytest.approx(np.percentile(raw["latencies"], percent))
    del raw["latencies"]
    [row] = gpusize.read(put(tmp_path, raw, detailed=False), tmp_path / "runs").summary.rows(named=True)
    assert row["runtime_p95_s"] is None


@pytest.mark.parametrize("detailed", [True, False])
def test_failures_are_counted(tmp_path: Path, detailed: bool):
    raw = result(3, failing=0.2)
    found = gpusize.read(put(tmp_path, raw, detailed=detailed), tmp_path / "runs")
    [row] = found.summary.rows(named=True)
    assert raw["failed"] > 5
    assert (row["n"], row["errors"]) == (raw["num_prompts"], raw["failed"])
    assert row["ttft_p95_s"] == pytest.approx(raw["p95_ttft_ms"] / 1e3)
    if detailed:
        assert row["err_timeout"] == raw["failed"]
    else:
        assert any("failed" in each for each in row["alerts"])


def test_at_a_rate_only_what_comes_after_sending_is_known(tmp_path: Path):
    raw = result(1, request_rate=20.0, max_concurrency=None)
    for detailed in (True, False):
        [row] = gpusize.read(put(tmp_path, raw, detailed=detailed), tmp_path / "runs").summary.rows(named=True)
        assert (row["kind"], row["rate"]) == ("open", 20.0)
        assert row["service_p95_s"] == pytest.approx(raw["p95_e2el_ms"] / 1e3, rel=1e-5)
        assert row["ttft_sent_p95_s"] == pytest.approx(raw["p95_ttft_ms"] / 1e3, rel=1e-5)
        assert row["runtime_p95_s"] is None
        assert row["ttft_p95_s"] is None
        assert row["lateness_p95_s"] is None


@pytest.mark.parametrize("burstiness, process", [(1.0, "poisson"), (0.5, None)])
def test_a_burstiness_of_one_is_a_poisson_process(tmp_path: Path, burstiness: float, process: str | None):
    raw = result(1, request_rate=20.0, max_concurrency=None) | {"burstiness": burstiness}
    for detailed in (True, False):
        [level] = gpusize.read(put(tmp_path, raw, detailed=detailed), tmp_path / "runs").levels
        assert level.setting.get("process") == process


def test_a_rate_that_was_not_kept_is_flagged(tmp_path: Path):
    raw = result(1, request_rate=1000.0, max_concurrency=None)
    [row] = gpusize.read(put(tmp_path, raw, detailed=False), tmp_path / "runs").summary.rows(named=True)
    assert row["flags"] == ["not-delivered"]


def test_all_at_once_is_no_steady_load(tmp_path: Path):
    raw = result(1, max_concurrency=None)
    for detailed in (True, False):
        [row] = gpusize.read(put(tmp_path, raw, detailed=detailed), tmp_path / "runs").summary.rows(named=True)
        assert "burst" in row["flags"]


@pytest.mark.parametrize(
    "change, flag",
    [
        ({"max_concurrency": 9}, "little"),
        ({"p95_itl_ms": 0.001}, "inconsistent"),
        ({"p99_ttft_ms": 1e-3}, "inconsistent"),
    ],
)
def test_what_contradicts_itself_is_flagged(tmp_path: Path, change: dict, flag: str):
    [row] = gpusize.read(put(tmp_path, result(2) | change, detailed=False), tmp_path / "runs").summary.rows(named=True)
    assert flag in row["flags"]
    assert row["alerts"]


def test_a_count_of_answers_that_the_requests_do_not_bear_out_is_flagged(tmp_path: Path):
    raw = result(2)
    raw |= {"completed": raw["completed"] - 3, "failed": 3}
    [row] = gpusize.read(put(tmp_path, raw), tmp_path / "runs").summary.rows(named=True)
    assert "inconsistent" in row["flags"]


def test_what_was_not_streamed_is_null_and_not_zero(tmp_path: Path):
    raw = result(2)
    raw |= {key: 0.0 for key in raw if key.endswith(("ttft_ms", "tpot_ms", "itl_ms"))}
    [row] = gpusize.read(put(tmp_path, raw, detailed=False), tmp_path / "runs").summary.rows(named=True)
    assert row["ttft_p95_s"] is None
    assert row["itl_p95_s"] is None


def test_a_folder_and_an_appended_file_are_a_level_per_result(tmp_path: Path):
    for users in (8, 2, 4):
        put(tmp_path, result(users, users), f"c{users}.json", detailed=users == 4)
    assert gpusize.read(tmp_path, tmp_path / "runs").summary["concurrency"].to_list() == [2, 4, 8]
    both = "\n".join(json.dumps(result(users, users)) for users in (4, 2))
    assert gpusize.read(put(tmp_path, both), tmp_path / "more").summary["concurrency"].to_list() == [2, 4]


def test_the_same_is_imported_once(tmp_path: Path):
    file = put(tmp_path, result(1))
    assert import_vllm(file, tmp_path / "runs").folder == import_vllm(file, tmp_path / "runs").folder


def test_no_other_format_takes_it(tmp_path: Path):
    head = put(tmp_path, result(1)).read_bytes()[:65536]
    assert [name for name, each in formats().items() if each.looks_like(tmp_path / "r.json", head)] == ["vllm"]


@pytest.mark.parametrize(
    "change, what",
    [
        ({"completed": None}, "completed is missing"),
        ({"completed": 1.5}, "not a whole number"),
        ({"p95_ttft_ms": float("nan")}, "p95_ttft_ms"),
        ({"p95_ttft_ms": -1}, "not a number of 0 or more"),
        ({"duration": "x"}, "duration"),
        ({"request_rate": 0}, "neither a rate nor inf"),
        ({"completed": 0, "failed": 0}, "no request"),
        ({"latencies": [1.0], "max_concurrency": "4"}, "max_concurrency"),
    ],
)
def test_broken_figures_are_one_line(tmp_path: Path, change: dict, what: str):
    with pytest.raises(ConfigError, match=what) as error:
        import_vllm(put(tmp_path, result(1) | change, detailed=False), tmp_path / "runs")
    assert "r.json" in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("change", [{"ttfts": [1.0]}, {"itls": [1] * 160}, {"start_times": [-1.0] * 160}])
def test_broken_requests_are_one_line(tmp_path: Path, change: dict):
    with pytest.raises(ConfigError) as error:
        import_vllm(put(tmp_path, result(1) | change), tmp_path / "runs")
    assert "\n" not in str(error.value)


def test_where_it_breaks_off_is_said(tmp_path: Path):
    whole = json.dumps(result(1), indent=1)
    for at in np.random.default_rng(1).integers(1, len(whole) - 1, 40):
        with pytest.raises(ConfigError, match="line"):
            import_vllm(put(tmp_path, whole[:at]), tmp_path / "runs")
