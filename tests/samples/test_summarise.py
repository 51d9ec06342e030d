from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest

from gpusize.observe.metrics.buffer import samples_frame
from gpusize.observe.metrics.known_series import MEANINGS
from gpusize.observe.metrics.prometheus_text import PageReader, SeriesKey
from gpusize.observe.metrics.summarise import MAX_ROWS, samples_summary, summarise
from gpusize.records.samples import FIELDS, value_of

S = 1_000_000_000
LEVEL = {"schema": 1, "visit": 0, "state": "done", "setting": {"kind": "closed", "concurrency": 1}}
TRITON = Path(__file__).parents[1] / "fixtures/samples/triton_metrics_cpu.txt"


def frame(source: str, *readings: tuple[float, Mapping[SeriesKey, float]]) -> pl.DataFrame:
    return samples_frame(source, [(round(at * S), values) for at, values in readings])


def page(text: str) -> Mapping[SeriesKey, float]:
    return PageReader().read(text).values


def gpu(uuid: str, **values: float) -> str:
    return "\n".join(f'{name}{{gpu_uuid="{uuid}"}} {value}' for name, value in values.items())


def by_labels(rows, metric: str) -> dict[str | None, dict]:
    return {row["labels"]: row for row in rows if row["metric"] == metric}


def test_names_are_unique_and_every_meaning_has_a_rule():
    names = [meaning.name for meaning in MEANINGS]
    assert len(set(names)) == len(names)
    for meaning in MEANINGS:
        assert meaning.rules
        assert all((rule.below is not None) == (meaning.how == "ratio") for rule in meaning.rules)


def test_triton_counts_queue_time_per_request_and_not_per_execution():
    text = TRITON.read_text("utf-8")
    later = text.replace("} 49367", "} 49767").replace("} 9263", "} 9363").replace("} 118671277497", "} 118711277497")
    rows = summarise(frame("http://t/metrics", (0, page(text)), (10, page(later))).lazy(), 0, 10 * S)
    # 40 s of queueing by 400 requests in 100 executions: 0.1 s each, not the 0.4 s per execution.
    assert value_of(rows, "queue_time") == pytest.approx(0.1)
    assert value_of(rows, "batch_size") == pytest.approx(4)
    assert value_of(rows, "requests", "delta") == 400
    assert value_of(rows, "requests", "rate") == 40
    assert value_of(rows, "cpu_utilization") == 0.5625
    # A server on CPU has no GPU: nothing is made up.
    assert value_of(rows, "gpu_utilization") is None
    assert [row for row in rows if row["metric"].startswith("gpu_")] == []


def test_reasons_of_failures_are_added_per_model():
    values = {("nv_inference_request_failure", f'model="m",reason="{reason}",version="1"'): 0.0 for reason in "ab"}
    later = dict.fromkeys(values, 2.0)
    rows = summarise(frame("http://t/metrics", (0, values), (2, later)).lazy(), 0, 2 * S)
    found = by_labels(rows, "failures")
    assert set(found) == {None, 'model="m",version="1"'}
    assert found[None]["delta"] == 4


def test_several_gpus_are_added_or_averaged():
    at = [
        page(
            f"{gpu('GPU-a', nv_gpu_utilization=0.5, nv_gpu_power_usage=100 + k)}\n"
            f"{gpu('GPU-b', nv_gpu_utilization=1.0, nv_gpu_power_usage=300 - k)}"
        )
        for k in (0, 10, 20)
    ]
    rows = summarise(frame("http://t/metrics", *enumerate(at)).lazy(), 0, 2 * S)
    assert value_of(rows, "gpu_utilization") == 0.75
    power = by_labels(rows, "gpu_power")
    assert set(power) == {None, 'gpu="GPU-a"', 'gpu="GPU-b"'}
    assert power['gpu="GPU-a"']["mean"] == 110
    assert [power[None][name] for name in ("mean", "min", "max", "first", "last")] == [400] * 5
    # Power times the span, as there is no energy counter.
    energy = by_labels(rows, "gpu_energy")
    assert energy[None]["delta"] == pytest.approx(800)
    assert energy['gpu="GPU-b"']["rate"] == pytest.approx(290)


def test_a_gpu_that_two_servers_show_counts_once_and_energy_is_joined_to_tokens():
    first = frame(
        "http://a/metrics",
        (0, page(gpu("GPU-a", nv_energy_consumption=1000))),
        (10, page(gpu("GPU-a", nv_energy_consumption=3000))),
    )
    second = frame(
        "http://b/metrics",
        (0, page(gpu("GPU-a", nv_energy_consumption=1000) + "\nvllm:generation_tokens 0")),
        (10, page(gpu("GPU-a", nv_energy_consumption=3000) + "\nvllm:generation_tokens 500")),
    )
    rows = summarise(pl.concat([first, second]).lazy(), 0, 10 * S)
    assert value_of(rows, "gpu_energy", "delta") == 2000
    assert value_of(rows, "tokens_out", "rate") == 50
    assert value_of(rows, "energy_per_output_token") == pytest.approx(4)


def test_energy_per_token_falls_back_on_the_records():
    samples = frame("nvml", *((k, page(gpu("GPU-a", nvml_power_watts=200))) for k in range(3)))
    assert value_of(summarise(samples.lazy(), 0, 2 * S), "energy_per_output_token") is None
    rows = summarise(samples.lazy(), 0, 2 * S, tokens_out=100)
    assert value_of(rows, "energy_per_output_token") == pytest.approx(4)
    assert rows[-1]["source"] == "records"


def test_units_of_dcgm_are_converted_and_a_label_that_changes_is_the_same_gpu():
    def dcgm(pod: str, util: float, used: float, millijoules: float) -> Mapping[SeriesKey, float]:
        labels = f'gpu="0",UUID="GPU-a",pod="{pod}"'
        return page(
            f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} {util}\nDCGM_FI_DEV_FB_USED{{{labels}}} {used}\n"
            f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{labels}}} {millijoules}"
        )

    samples = frame("http://d/metrics", (0, dcgm("one", 50, 1024, 5000)), (2, dcgm("two", 100, 1024, 9000)))
    rows = summarise(samples.lazy(), 0, 2 * S)
    assert value_of(rows, "gpu_utilization") == 0.75
    assert value_of(rows, "gpu_memory_used") == 1 << 30
    assert value_of(rows, "gpu_energy", "delta") == 4
    assert set(by_labels(rows, "gpu_utilization")) == {None, 'gpu="GPU-a"'}


def test_replicas_are_weighted_by_their_requests():
    def vllm(total_s: float, count: float, running: float) -> Mapping[SeriesKey, float]:
        name = "vllm:request_queue_time_seconds"
        return page(f"{name}_sum {total_s}\n{name}_count {count}\nvllm:num_requests_running {running}")

    one = frame("http://a/metrics", (0, vllm(0, 0, 3)), (1, vllm(9, 90, 3)))
    two = frame("http://b/metrics", (0, vllm(0, 0, 1)), (1, vllm(10, 10, 1)))
    rows = summarise(pl.concat([one, two]).lazy(), 0, S)
    assert value_of(rows, "queue_time") == pytest.approx(19 / 100)
    assert value_of(rows, "running") == 4
    sources = {row["source"] for row in rows if row["metric"] == "queue_time"}
    assert sources == {None, "http://a/metrics", "http://b/metrics"}


def test_old_and_new_names_of_one_server_count_once():
    both = page("vllm:kv_cache_usage_perc 0.4\nvllm:gpu_cache_usage_perc 0.4\nvllm:prompt_tokens 1\n")
    later = page("vllm:kv_cache_usage_perc 0.6\nvllm:gpu_cache_usage_perc 0.6\nvllm:prompt_tokens 5\n")
    rows = summarise(frame("http://a/metrics", (0, both), (1, later)).lazy(), 0, S)
    assert value_of(rows, "kv_cache_use") == pytest.approx(0.5)
    assert len(by_labels(rows, "kv_cache_use")) == 2
    assert value_of(rows, "tokens_in", "delta") == 4


def test_the_nearest_source_is_believed():
    near = frame("http://a/metrics", (0, page("vllm:num_requests_running 2")), (1, page("vllm:num_requests_running 2")))
    far_values = {("vllm:num_requests_running", f'instance="{k}"'): 50.0 for k in range(3)}
    far = frame("prometheus http://p", (0, far_values), (1, far_values))
    assert value_of(summarise(pl.concat([far, near]).lazy(), 0, S), "running") == 2
    assert value_of(summarise(far.lazy(), 0, S), "running") == 150


def test_what_is_no_number_is_left_out():
    nan = page(gpu("GPU-a", nv_gpu_utilization=0.5) + '\nnv_gpu_utilization{gpu_uuid="GPU-b"} NaN')
    huge = page('nv_gpu_utilization{gpu_uuid="GPU-c"} 9.2233720368547758e+18')
    rows = summarise(frame("http://t/metrics", (0, nan), (1, nan), (1, huge)).lazy(), 0, S)
    assert set(by_labels(rows, "gpu_utilization")) == {None, 'gpu="GPU-a"'}


def test_a_level_between_two_readings_is_known_from_them():
    rows = summarise(
        frame(
            "http://a/metrics", (0, page("vllm:num_requests_waiting 0")), (1, page("vllm:num_requests_waiting 10"))
        ).lazy(),
        S // 2,
        S // 2 + S // 10,
    )
    assert value_of(rows, "waiting") == pytest.approx(5.5)


def test_figures_that_json_cannot_hold_are_null():
    below = {("nv_inference_count", ""): 9e17, ("nv_inference_exec_count", ""): 5e-324}
    above = {("nv_inference_count", ""): 0.0, ("nv_inference_exec_count", ""): 0.0}
    rows = summarise(frame("http://t/metrics", (0, above), (1, below)).lazy(), 0, S)
    assert value_of(rows, "batch_size") is None
    json.dumps(rows, allow_nan=False)


def test_rows_are_bounded_but_those_for_all_stay():
    values = {("vllm:num_requests_running", f'engine="{k}"'): 1.0 for k in range(MAX_ROWS + 50)}
    rows = summarise(frame("http://a/metrics", (0, values), (1, values)).lazy(), 0, S)
    assert len(rows) == MAX_ROWS + 1
    assert value_of(rows, "running") == MAX_ROWS + 50


def test_the_summary_of_a_level_is_made_again_from_its_files(tmp_path: Path):
    (tmp_path / "samples").mkdir()
    samples = frame(
        "http://a/metrics", (0, page("vllm:num_requests_running 2")), (1, page("vllm:num_requests_running 4"))
    )
    samples.write_parquet(tmp_path / "samples/part-00000.parquet")
    (tmp_path / "level.json").write_text(json.dumps({**LEVEL, "start_ns": 0, "end_ns": S}))
    summary = samples_summary(tmp_path)
    assert summary.columns == list(FIELDS)
    assert summary.row(0, named=True)["mean"] == 3
    assert summary["labels"].to_list() == [None, ""]


def test_a_level_without_samples_has_an_empty_summary(tmp_path: Path):
    (tmp_path / "level.json").write_text(json.dumps({**LEVEL, "start_ns": 0, "end_ns": S}))
    summary = samples_summary(tmp_path)
    assert (summary.height, summary.columns) == (0, list(FIELDS))


LLM = 'model_name="llm"'
TENSORS = 'model="m",version="1"'


def both(triton: float, vllm: float, waiting: float = 0.0) -> dict[SeriesKey, float]:
    return {
        ("nv_inference_request_success", TENSORS): triton,
        ("nv_inference_queue_duration_us", TENSORS): triton * 1e6,
        ("nv_inference_pending_request_count", TENSORS): waiting,
        ("vllm:request_success_total", LLM): vllm,
        ("vllm:request_queue_time_seconds_sum", LLM): 2 * vllm,
        ("vllm:request_queue_time_seconds_count", LLM): vllm,
        ("vllm:num_requests_waiting", LLM): 0.0,
    }


@pytest.mark.parametrize(
    "first,second,requests,queue_s",
    [
        (both(5, 0), both(5, 8), 8, 2),  # tensors stand still
        (both(0, 0), both(8, 0), 8, 1),  # tokens stand still
        (both(1, 1), both(9, 9), 8, 1),  # vLLM inside Triton: both count each request, once is enough
        (both(3, 3), both(3, 3), 0, None),
    ],
)
def test_of_two_servers_on_one_page_the_one_that_worked_speaks(first, second, requests, queue_s):
    rows = summarise(frame("http://t/metrics", (0, first), (10, second)).lazy(), 0, 10 * S)
    assert value_of(rows, "requests", "delta") == requests
    assert value_of(rows, "queue_time") == queue_s


def test_of_two_queues_on_one_page_the_one_that_is_not_empty_speaks():
    rows = summarise(frame("http://t/metrics", (0, both(0, 0, 4)), (10, both(8, 0, 4))).lazy(), 0, 10 * S)
    assert value_of(rows, "waiting") == 4
