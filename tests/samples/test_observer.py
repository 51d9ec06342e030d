from __future__ import annotations

import json
from pathlib import Path

import httpx
import polars as pl
import pytest

from gpusize.base.errors import EnvironmentLacks, TargetError, UsageError
from gpusize.engine.session import core
from gpusize.observe.kubernetes.port_forward import KubeForward
from gpusize.observe.metrics import Forwards, Planned, ServerMetrics, server_metrics
from gpusize.observe.metrics.kserve_statistics import StatisticsSource
from gpusize.observe.metrics.nvml import LocalGpus
from gpusize.observe.metrics.prometheus_pull import PrometheusServer
from gpusize.observe.metrics.reading import SourceFailed
from gpusize.observe.metrics.summarise import samples_summary
from gpusize.observe.observer import Observer
from gpusize.records.samples import scan_samples, value_of
from gpusize.targets.simulated.cluster import SimulatedCluster
from tests.samples.fake_nvml import Gpu, fake_nvml
from tests.samples.sources import Clock, S, Scripted, failed

LEVEL = {"schema": 1, "visit": 0, "state": "done", "setting": {"kind": "closed", "concurrency": 1}}

NEVER_S = 1e6
RUNNING = ("vllm:num_requests_running", "")
TOKENS = ("vllm:generation_tokens_total", "")


def observers() -> list[Observer]:
    """That both are what the run expects is checked by the type checker."""
    return [ServerMetrics(), Forwards([])]


def test_nothing_to_sample_leaves_a_level_as_it_is(tmp_path: Path):
    for observer in observers():
        observer.start()
        observer.boundary()
        assert observer.level(tmp_path, 0, S) == {}
        observer.stop()
        assert observer.notes == []
    assert list(tmp_path.iterdir()) == []


def test_a_level_has_its_samples_and_their_summary(tmp_path: Path):
    clock = Clock()
    source = Scripted(clock, {RUNNING: 2.0, TOKENS: 0.0}, {RUNNING: 4.0, TOKENS: 100.0}, failed("gone"))
    metrics = ServerMetrics([Planned(source)], interval_s=NEVER_S, clock=clock)
    metrics.start()
    clock.now_ns = 2 * S
    metrics.boundary()
    facts = metrics.level(tmp_path, 0, 2 * S)
    assert value_of(facts["server"], "running") == 3
    assert value_of(facts["server"], "tokens_out", "rate") == 50
    assert facts["alerts"] == []
    assert facts["sampling"][0]["readings"] == 2
    json.dumps(facts, allow_nan=False)
    stored = scan_samples(tmp_path).collect()
    assert stored["t_ns"].is_sorted()
    assert stored.filter(metric="vllm:num_requests_running")["value"].to_list() == [2, 4]
    (tmp_path / "level.json").write_text(json.dumps({**LEVEL, "start_ns": 0, "end_ns": 2 * S}))
    again = samples_summary(tmp_path)
    assert again.filter(metric="running")["mean"].to_list() == [3, 3]

    second = tmp_path / "second"
    second.mkdir()
    clock.now_ns = 3 * S
    facts = metrics.level(second, 2 * S, 3 * S)
    assert facts["alerts"] == ["http://scripted/metrics: 1 readings failed, the last with: gone"]
    # The reading at the end of the level before is the value at the start of this one.
    assert scan_samples(second).filter(metric="up").select("t_ns", "value").collect().rows() == [(2 * S, 1), (3 * S, 0)]
    metrics.stop()
    metrics.stop()
    assert source.closed


def test_readings_after_the_end_are_waited_for(tmp_path: Path):
    clock = Clock()
    source = Scripted(clock, {TOKENS: 0.0}, {TOKENS: 30.0})
    metrics = ServerMetrics([Planned(source)], interval_s=NEVER_S, clock=clock)
    metrics.start()
    clock.now_ns = 3 * S
    facts = metrics.level(tmp_path, 0, 3 * S)
    metrics.stop()
    assert value_of(facts["server"], "tokens_out", "delta") == 30


def test_energy_per_token_counts_the_records_where_the_server_does_not(tmp_path: Path):
    clock = Clock()
    source = Scripted(clock, {("nvml_power_watts", 'gpu="GPU-0"'): 100.0})
    (tmp_path / "records").mkdir()
    records = pl.DataFrame({"tokens_out": [30, None, 20]}, schema={"tokens_out": pl.UInt32})
    records.write_parquet(tmp_path / "records/part-00000.parquet")
    metrics = ServerMetrics([Planned(source)], interval_s=NEVER_S, clock=clock)
    metrics.start()
    clock.now_ns = 2 * S
    facts = metrics.level(tmp_path, 0, 2 * S)
    metrics.stop()
    assert value_of(facts["server"], "energy_per_output_token") == pytest.approx(100 * 2 / 50)


def test_a_guess_is_dropped_and_a_named_address_is_not():
    clock = Clock()
    guess = Scripted(clock, opens=failed("refused"), name="http://guess/metrics")
    metrics = ServerMetrics([Planned(guess)], clock=clock)
    metrics.start()
    assert metrics.notes == ["not sampled: http://guess/metrics (refused)"]
    metrics.stop()
    assert guess.closed

    named = Scripted(clock, opens=failed("refused"), name="http://named/metrics")
    metrics = ServerMetrics([Planned(named, "--metrics-url")], clock=clock)
    with pytest.raises(TargetError, match="http://named/metrics: cannot be sampled: refused") as caught:
        metrics.start()
    metrics.stop()
    assert "--metrics-url" in str(caught.value)
    assert named.closed


def test_local_gpus_that_were_asked_for_and_are_not_there():
    metrics = ServerMetrics([Planned(LocalGpus(nvml=fake_nvml()), "--gpu-sample", EnvironmentLacks)])
    with pytest.raises(EnvironmentLacks, match="no GPU"):
        metrics.start()
    metrics.stop()


def test_a_local_gpu_and_a_server_on_it_make_energy_per_token(tmp_path: Path):
    clock = Clock()
    gpu = Gpu(energy_mj=0)
    server = Scripted(clock, {TOKENS: 0.0}, {TOKENS: 1000.0})
    metrics = ServerMetrics(
        [Planned(LocalGpus(nvml=fake_nvml(gpu), clock=clock)), Planned(server)], interval_s=NEVER_S, clock=clock
    )
    metrics.start()
    clock.now_ns = 4 * S
    gpu.energy_mj = 2_000_000
    facts = metrics.level(tmp_path, 0, 4 * S)
    metrics.stop()
    assert value_of(facts["server"], "gpu_energy", "delta") == 2000
    assert value_of(facts["server"], "energy_per_output_token") == pytest.approx(2)


def test_a_triton_without_gpus_is_noted_once(tmp_path: Path):
    clock = Clock()
    source = Scripted(clock, {("nv_inference_count", 'model="m"'): 1.0}, name="http://t:8002/metrics")
    metrics = ServerMetrics([Planned(source)], interval_s=NEVER_S, clock=clock)
    metrics.start()
    for visit in range(2):
        (folder := tmp_path / str(visit)).mkdir()
        facts = metrics.level(folder, 0, S)
        assert value_of(facts["server"], "gpu_utilization") is None
    metrics.stop()
    (note,) = metrics.notes
    assert note.startswith("http://t:8002/metrics: Triton shows no GPU there")


class Statistics:
    """A reader of statistics that a server restricts."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def read(self):
        self.notes = ["h: no statistics from the server, 403. They are restricted there"]
        return {}


def test_restricted_statistics_are_one_note():
    metrics = ServerMetrics([Planned(StatisticsSource(Statistics()))])
    metrics.start()
    metrics.stop()
    assert metrics.notes == ["h: no statistics from the server, 403. They are restricted there"]


def test_prometheus_that_fails_later_is_an_alert_and_the_level_is_kept(tmp_path: Path):
    answers = [httpx.Response(200, json={"status": "success", "data": {}})]

    def handle(request: httpx.Request) -> httpx.Response:
        if not answers:
            raise httpx.ConnectError("refused")
        return answers.pop()

    server = PrometheusServer("http://p:9090", transport=httpx.MockTransport(handle))
    metrics = ServerMetrics(prometheus=server)
    metrics.start()
    facts = metrics.level(tmp_path, 0, S)
    metrics.stop()
    counts = {"readings": 0, "failures": 1, "missed": 0, "last_failure": "refused"}
    assert facts["sampling"] == [{"source": server.name, "interval_s": None, "cpu_s": None, **counts}]
    assert facts["alerts"] == ["prometheus http://p:9090: no data for this level: refused"]
    assert metrics.notes == ["prometheus http://p:9090: refused"]


def test_prometheus_that_never_answered_ends_the_run_before_it_begins():
    def handle(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    server = PrometheusServer("http://p:9090", transport=httpx.MockTransport(handle))
    with pytest.raises(TargetError, match="prometheus http://p:9090: it does not answer: refused"):
        ServerMetrics(prometheus=server).start()


def test_what_prometheus_knows_is_stored_on_our_clock(tmp_path: Path):
    mono_ns, wall_ns, _ = core().clock_pair()
    start_ns, end_ns = mono_ns - 30 * S, mono_ns - 10 * S

    def handle(request: httpx.Request) -> httpx.Response:
        points = [[round((wall_ns - back * S) / 1e9, 3), str(200 - back)] for back in (40, 30, 20, 10)]
        series = {"metric": {"__name__": "vllm:generation_tokens_total", "instance": "h"}, "values": points}
        data = {"resultType": "matrix", "result": [series]}
        return httpx.Response(200, json={"status": "success", "data": data})

    server = PrometheusServer("http://p:9090", transport=httpx.MockTransport(handle))
    metrics = ServerMetrics(prometheus=server)
    metrics.start()
    facts = metrics.level(tmp_path, start_ns, end_ns)
    metrics.stop()
    assert value_of(facts["server"], "tokens_out", "rate") == pytest.approx(1, rel=1e-3)
    times = scan_samples(tmp_path).collect()["t_ns"].to_list()
    # A millisecond of rounding, and what the clocks' offset has moved since.
    assert times[1] == pytest.approx(start_ns, abs=5_000_000)


def test_what_is_sampled_follows_from_what_was_asked(monkeypatch: pytest.MonkeyPatch):
    target = [{"url": "http://10.0.0.1:8000/v2/models/m/infer", "api": "kserve", "simulated": None}]

    def names(**options) -> list[str]:
        metrics, _ = server_metrics(target, **options)
        return [planned.source.name for planned in metrics._planned]

    assert names() == ["http://10.0.0.1:8000/metrics", "http://10.0.0.1:8002/metrics"]
    assert names(metrics_urls=["none"]) == []
    assert names(metrics_urls=["http://a:9400", "http://b/m"]) == ["http://a:9400/metrics", "http://b/m"]
    assert names(metrics_urls=["none"], gpu_sample=True, statistics=[("h", Statistics())]) == ["nvml", "kserve h"]
    for urls in (["none", "http://a"], ["http://a", "http://a/metrics"]):
        with pytest.raises(UsageError):
            names(metrics_urls=urls)
    with pytest.raises(UsageError):
        names(keep="(")


def test_a_service_in_a_cluster_keeps_its_own_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gpusize.observe.kubernetes.port_forward.shutil.which", lambda name: f"/bin/{name}")
    metrics, forwards = server_metrics([], metrics_urls=["kube://ns/dcgm:9400/metrics"])
    assert [planned.source.name for planned in metrics._planned] == ["kube://ns/dcgm:9400/metrics"]
    (forward,) = forwards
    assert isinstance(forward, KubeForward)
    with pytest.raises(SourceFailed):
        metrics._planned[0].source.open()


def test_the_simulated_cluster_is_sampled_by_its_usual_address(tmp_path: Path):
    with SimulatedCluster({"gpus": 2}) as cluster:
        facts = [{"url": cluster.url, "api": "openai-chat", "simulated": cluster.config}]
        metrics, _ = server_metrics(facts, interval_s=0.05)
        metrics.start()
        pairs = [core().monotonic_ns()]
        body = {"messages": [{"role": "user", "content": "hi"}], "stream": False, "max_tokens": 8}
        metrics.boundary()
        answer = httpx.post(f"{cluster.url}/v1/chat/completions", json=body, trust_env=False, timeout=60)
        metrics.boundary()
        pairs.append(core().monotonic_ns())
        server = metrics.level(tmp_path, *pairs)["server"]
        metrics.stop()
    assert answer.status_code == 200
    assert metrics.notes == []
    assert value_of(server, "tokens_out", "delta") == pytest.approx(answer.json()["usage"]["completion_tokens"])
    assert value_of(server, "requests", "delta") == pytest.approx(1)
    assert len([row for row in server if row["metric"] == "running"]) == 3
