"""What servers say of single requests, over the wire: into records, figures and reports."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import gpusize
from gpusize.analysis.checks import FINDINGS
from gpusize.analysis.slo import Slo
from gpusize.cli import invoke
from gpusize.records.schema import SCHEMA_KEY, SERVER_TIMES
from gpusize.targets.simulated.cluster import SimulatedCluster
from tests.servers.scripted import Close, Request, ScriptedServer, Send, Step, answer

CLUSTER: Mapping[str, Any] = {
    "gpus": 1,
    "iteration_base_s": 0.003,
    "max_batch": 2,
    "output_tokens": {"uniform": {"min_tokens": 1, "max_tokens": 8}},
    "per_request_metrics": True,
}
MS = 1_000_000


def parts(result: gpusize.Result) -> list[Path]:
    return sorted((result.path / "levels").glob("*/records/*.parquet"))


def measured(url: str, out: Path, *, api: str | None = None, stream: bool = True, users: int = 1) -> gpusize.Result:
    target = gpusize.Target(url, api=api, stream=stream, model="m")
    load = gpusize.Load(concurrencies=[users], count=12)
    return gpusize.run(target, gpusize.Dataset.from_prompt("hello there"), load, out=out, metrics_url="none")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses"])
def test_queue_and_service_of_the_simulated_cluster(tmp_path: Path, path: str, *, stream: bool) -> None:
    with SimulatedCluster(CLUSTER) as cluster:
        result = measured(cluster.url + path, tmp_path / "run", stream=stream, users=6)
    rows = result.records
    assert rows["outcome"].to_list() == ["ok"] * rows.height
    assert rows.select(SERVER_TIMES).null_count().row(0) == (0, 0)
    queue, service = (rows[name].to_numpy() for name in SERVER_TIMES)
    assert (queue >= 0).all()
    assert (service >= 3 * MS).all(), "an iteration for each token"
    assert (queue + service <= (rows["end_ns"] - rows["sent_ns"]).to_numpy() + MS).all()
    # Six in flight on two places: four wait.
    assert (queue > 0).sum() > rows.height / 2
    [summary] = result.summary.to_dicts()
    assert summary["server_queue_p50_s"] == pytest.approx(_steady(rows, result, "server_queue_ns"), rel=1e-9)
    assert summary["server_service_max_s"] <= summary["service_max_s"] + 1e-3
    assert "server-times" not in summary["flags"]
    [part, *_] = parts(result)
    assert pl.read_parquet_metadata(part)[SCHEMA_KEY] == "3"
    level = gpusize.open_run(result.path).levels[0]
    assert level.attainment(Slo.parse("p95 server_queue <= 1h"))[0] == 1.0


def _steady(rows: pl.DataFrame, result: gpusize.Result, name: str) -> float:
    low, high = result.levels[0].window()
    return float(np.median(rows.filter(pl.col("due_ns").is_between(low, high, closed="left"))[name].to_numpy())) / 1e9


def test_a_server_that_says_nothing_costs_no_column(tmp_path: Path) -> None:
    with SimulatedCluster({**CLUSTER, "per_request_metrics": False}) as cluster:
        result = measured(cluster.url + "/v1/chat/completions", tmp_path / "run")
    assert result.records.select(SERVER_TIMES).null_count().row(0) == (result.records.height,) * 2
    assert not [name for name in result.summary.columns if name.startswith(("server_queue_p", "outside_server"))]
    for part in parts(result):
        assert not set(SERVER_TIMES) & set(pl.read_parquet_schema(part))
        assert pl.read_parquet_metadata(part)[SCHEMA_KEY] == "2"
    assert result.levels[0].attainment(Slo.parse("p95 server_queue <= 1s"))[1] == 0


# As the servers' own documents show them.
VLLM = {"metrics": {"time_to_first_token_ms": 0.5, "generation_time_ms": 1.25, "queue_time_ms": 0.125}}
NIM = {"stats": {"generation_time_in_ms": 2.5, "time_in_queue_in_ms": 0.5, "response_tokens": {}}}
LLAMA = {"timings": {"prompt_n": 1, "prompt_ms": 0.25, "predicted_n": 3, "predicted_ms": 1.0}}
TGI = ["x-queue-time: 0", "x-inference-time: 2", "x-total-time: 3", "x-validation-time: 0", "x-time-per-token: 1"]


def scripted(more: Mapping[str, Any], headers: Sequence[str] = (), *, stream: bool) -> Any:
    """A chat server whose answers have these members too: in a stream beside the usage, after a null of them."""

    def script(_: Request) -> Sequence[Step]:
        usage = {"prompt_tokens": 3, "completion_tokens": 1}
        if not stream:
            whole = {"choices": [{"message": {"role": "assistant", "content": "a"}}], "usage": usage, **more}
            return [Send(answer(json.dumps(whole).encode(), headers=["Content-Type: application/json", *headers]))]
        events = [
            {"choices": [{"delta": {"content": "a"}}], **dict.fromkeys(more)},
            {"choices": [], "usage": usage, **more},
        ]
        lines = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        # As they come and go on the wire: the metrics may lie across two reads.
        heads = ["Content-Type: text/event-stream", "Connection: close", *headers]
        return [Send(answer(lines.encode(), headers=heads, length=False), piece=37, gap_s=0.0005), Close()]

    return script


@pytest.mark.parametrize(
    "more, headers, queue_ns, service_ns",
    [
        (VLLM, (), 125_000, 1_750_000),
        (NIM, (), 500_000, 2_500_000),
        (LLAMA, (), None, 1_250_000),
        ({}, TGI, 0, 2_000_000),
        (VLLM, TGI, 125_000, 1_750_000),
        ({"metrics": {"queue_time_ms": None}}, (), None, None),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_what_known_servers_say(
    tmp_path: Path,
    more: Mapping[str, Any],
    headers: Sequence[str],
    queue_ns: int | None,
    service_ns: int | None,
    *,
    stream: bool,
) -> None:
    with ScriptedServer(scripted(more, headers, stream=stream)) as server:
        url = f"http://127.0.0.1:{server.port}/v1/chat/completions"
        result = measured(url, tmp_path / "run", api="openai-chat", stream=stream)
    assert result.records["outcome"].to_list() == ["ok"] * 12
    assert result.records["server_queue_ns"].to_list() == [queue_ns] * 12
    assert result.records["server_service_ns"].to_list() == [service_ns] * 12


def test_headers_that_change_from_answer_to_answer(tmp_path: Path) -> None:
    """The engine compares heads with the last one's bytes; each answer has its own times nevertheless."""
    counter = itertools.count()

    def script(_: Request) -> Sequence[Step]:
        number = next(counter) // 2
        headers = ["Content-Type: text/plain", f"X-Queue-Time: {number}", "x-inference-time: 1.5"]
        return [Send(answer(b"x", headers=headers))]

    with ScriptedServer(script) as server:
        argv = ["run", "--url", f"http://127.0.0.1:{server.port}/", "--api", "generic", "--prompt", "x"]
        argv += ["--response", "server_queue=x-queue-time:us", "--response", "server_service=x-inference-time:us"]
        argv += ["--concurrencies", "1", "--count", "11", "--metrics-url", "none", "--out", str(tmp_path / "run")]
        assert invoke(argv) == 0
    records = gpusize.open_run(tmp_path / "run").records.sort("seq")
    # The first request is the probe's.
    assert records["server_queue_ns"].to_list() == [1000 * ((number + 1) // 2) for number in range(11)]
    assert records["server_service_ns"].to_list() == [1500] * 11


def test_a_server_that_says_too_much_is_found_out(tmp_path: Path) -> None:
    lie = {"metrics": {"time_to_first_token_ms": 1.0, "generation_time_ms": 1.0, "queue_time_ms": 60_000.0}}
    with ScriptedServer(scripted(lie, stream=False)) as server:
        url = f"http://127.0.0.1:{server.port}/v1/chat/completions"
        result = measured(url, tmp_path / "run", api="openai-chat", stream=False)
    [summary] = result.summary.to_dicts()
    assert "server-times" in summary["flags"]
    assert any("judge by what was measured from outside" in alert for alert in summary["alerts"])
    assert "server-times" in FINDINGS
