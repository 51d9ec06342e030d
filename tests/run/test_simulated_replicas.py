"""The simulated cluster while it grows, shrinks and stands still: as text, from Python, and in its metrics."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import gpusize
from gpusize.base.errors import UsageError
from gpusize.estimate.truth import simulate_closed, true_gpus
from gpusize.targets.simulated.cluster import SimulatedCluster
from gpusize.targets.simulated.replicas import ReplicaSchedule, parse_replicas
from gpusize.targets.simulated.serve import cluster_config
from tests.virtual_time import VirtualClock

FAST = {
    "iteration_base_s": 0.001,
    "iteration_per_sequence_s": 0.0001,
    "prefill_per_token_s": 0.0,
    "max_batch": 4,
    "output_tokens": {"fixed": {"tokens": 8}},
}


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as response:
        return str(response.read(), "utf-8")


@pytest.mark.parametrize(
    "text, steps",
    [
        ("1@0s", [(0.0, 1)]),
        ("1@0s,2@30s", [(0.0, 1), (30.0, 2)]),
        (" 4 @ 0 , 2@1m30s,8@2h ", [(0.0, 4), (90.0, 2), (7200.0, 8)]),
    ],
)
def test_replicas_as_text(text: str, steps: list[tuple[float, int]]) -> None:
    assert parse_replicas(text) == [{"at_s": at_s, "replicas": replicas} for at_s, replicas in steps]


@pytest.mark.parametrize(
    "text, column, what",
    [
        ("", 1, "an item is missing"),
        ("1@0s,", 6, "an item is missing"),
        ("two@0s", 1, '"two@0s" is no COUNT@TIME'),
        ("1@0s, 2", 7, '"2" is no COUNT@TIME'),
        ("1@0s,2@soon", 8, '"soon" is not a duration'),
        ("0@0s", 1, "at least one replica"),
        ("1@5s", 3, "begins at 0s"),
        ("1@0s,2@30s,3@30s", 14, "not later than the item before"),
    ],
)
def test_bad_text_is_pointed_at(text: str, column: int, what: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_replicas(text)
    assert error.value.where == f"replicas, column {column}"
    assert what in error.value.what


def test_the_most_replicas_are_the_gpus_unless_told() -> None:
    config = cluster_config(None, replicas="1@0s,3@30s", start_delay="5s")
    assert (config["gpus"], config["start_delay_s"]) == (3, 5.0)
    assert config["replicas"] == [{"at_s": 0.0, "replicas": 1}, {"at_s": 30.0, "replicas": 3}]
    assert cluster_config(None, replicas="1@0s", gpus=8)["gpus"] == 8
    assert cluster_config('{"gpus": 5, "replicas": "2@0s"}')["gpus"] == 5
    assert SimulatedCluster({"replicas": "1@0s,4@9s"}).config["gpus"] == 4
    assert SimulatedCluster({}).config == {"gpus": 2, "model": "simulated"}


def test_it_is_scaled_and_the_metrics_follow() -> None:
    with SimulatedCluster({**FAST, "replicas": "1@0s", "gpus": 3}) as cluster:
        assert cluster.replicas() == {"desired": 1, "ready": 1, "gpus": 3}
        assert cluster.scale(3) == {"desired": 3, "ready": 3, "gpus": 3}
        page = get(f"{cluster.url}/metrics")
        assert 'gpusize_sim_replicas{model_name="simulated"} 3\n' in page
        assert page.count("\nvllm:num_requests_running{") == 3
        cluster.scale(2)
        page = get(f"{cluster.url}/metrics")
        assert 'gpusize_sim_replicas_desired{model_name="simulated"} 2\n' in page
        assert page.count("\nvllm:num_requests_running{") == 2
        with pytest.raises(UsageError, match="between 1 and 3, the cluster's GPUs, not 4"):
            cluster.scale(4)
        assert cluster.stats()["replicas"] == {"desired": 2, "ready": 2}


def test_only_a_running_cluster_is_scaled() -> None:
    cluster = SimulatedCluster(FAST)
    with pytest.raises(UsageError, match="is not running"):
        cluster.scale(1)
    with cluster:
        pass
    with pytest.raises(UsageError, match="is not running"):
        cluster.replicas()


def test_a_new_replica_starts_after_its_delay() -> None:
    with SimulatedCluster({**FAST, "gpus": 2, "replicas": "1@0s", "start_delay_s": 3600}) as cluster:
        assert cluster.scale(2) == {"desired": 2, "ready": 1, "gpus": 2}
        assert cluster.scale(1) == {"desired": 1, "ready": 1, "gpus": 2}


def test_in_a_stall_nobody_is_answered() -> None:
    with SimulatedCluster(FAST) as cluster:
        stall = cluster.stall("400ms")
        assert stall["duration_s"] == pytest.approx(0.4, abs=0.01)
        seen: list[float] = []

        def ask(path: str, body: Any = None) -> None:
            data = None if body is None else json.dumps(body).encode()
            request = urllib.request.Request(f"{cluster.url}{path}", data)
            try:
                urllib.request.urlopen(request, timeout=30).close()
            except urllib.error.HTTPError as error:
                error.close()
            seen.append(json.loads(get(f"{cluster.url}/stats"))["uptime_s"])

        asks: list[tuple[Any, ...]] = [
            ("/health",),
            ("/nothing",),
            ("/generate", {}),
            ("/admin/replicas", {"replicas": 9}),
        ]
        threads = [threading.Thread(target=ask, args=args) for args in asks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(seen) == 4
        assert min(seen) >= stall["end_s"]
        with pytest.raises(UsageError, match="duration_s must be above 0"):
            cluster.stall(0)


class Scaled:
    """A cluster that notes when it was scaled, and refuses more than it can."""

    def __init__(self, clock: VirtualClock, most: int = 9) -> None:
        self.asked: list[tuple[float, int]] = []
        self._clock, self._most = clock, most

    def scale(self, replicas: int) -> None:
        self.asked.append((self._clock.passed_s, replicas))
        if replicas > self._most:
            raise UsageError("too many", "replicas", "give fewer")


STEPS = parse_replicas("1@0s,2@30s,5@2m,3@1h")


def followed(cluster: Scaled, clock: VirtualClock) -> ReplicaSchedule:
    """A schedule that has come to its end."""
    schedule = ReplicaSchedule(cast(SimulatedCluster, cluster), STEPS, clock=clock)
    schedule.start()
    clock.advance(7_000_000_000)
    assert cluster.asked == [], "times count from the first level"
    clock.at(107.0, lambda: clock.advance(3_000_000_000))  # the machine was away for a while
    schedule.boundary()
    schedule.boundary()
    assert schedule._thread is not None
    schedule._thread.join(60)
    schedule.stop()
    return schedule


def test_a_schedule_of_replicas_is_followed_from_the_first_level() -> None:
    clock = VirtualClock()
    cluster = Scaled(clock)
    assert followed(cluster, clock).notes == []
    assert cluster.asked == [(37.0, 2), (127.0, 5), (3607.0, 3)]


def test_a_schedule_that_is_refused_ends_and_is_told() -> None:
    clock = VirtualClock()
    cluster = Scaled(clock, most=4)
    assert followed(cluster, clock).notes == ["the simulated cluster was not scaled: too many"]
    assert cluster.asked == [(37.0, 2), (127.0, 5)]


def test_a_schedule_ends_with_its_run() -> None:
    clock = VirtualClock()
    cluster = Scaled(clock)
    schedule = ReplicaSchedule(cast(SimulatedCluster, cluster), STEPS, clock=clock)
    clock.at(100.0, schedule._ended.set)
    schedule.boundary()
    assert schedule._thread is not None
    schedule._thread.join(60)
    schedule.stop()
    assert cluster.asked == [(30.0, 2)]


def test_in_virtual_time_replicas_come_as_configured() -> None:
    config = {**FAST, "gpus": 2, "replicas": [{"at_s": 0, "replicas": 1}, {"at_s": 1.0, "replicas": 2}]}
    rows = simulate_closed(config, 8, requests=2000)
    assert rows.filter(gpu=1)["due_ns"].min() >= 1_000_000_000
    late = rows.filter(rows["due_ns"] > 1_500_000_000)
    assert late.filter(gpu=1).height / late.height == pytest.approx(0.5, abs=0.1)


def test_the_truth_takes_no_notice_of_replicas() -> None:
    from gpusize.analysis.slo import Slo

    slos = [Slo.parse("p95 runtime <= 15ms")]
    replicas = [{"at_s": 0, "replicas": 2}]
    assert true_gpus({**FAST, "gpus": 2, "replicas": replicas}, 8, slos) == true_gpus(FAST, 8, slos)


UP = {
    "stabilization_s": 0,
    "select": "max",
    "policies": [{"kind": "pods", "value": 4, "period_s": 15}],
    "tolerance": None,
}
AUTOSCALED = {
    **FAST,
    "gpus": 4,
    "replicas": "1@0s",
    "autoscaler": {
        "policy": {
            "min_replicas": 1,
            "max_replicas": 4,
            "metrics": [{"source": "external", "target": {"average_value": 2_000}}],
            "behavior": {"up": UP, "down": {**UP, "stabilization_s": 0}},
            "sync_s": 0.2,
        },
        "signals": [{"series": {"quantity": "in_flight"}}],
        "scrape_s": 0.1,
    },
}
"""Two requests in flight on each replica."""


def test_an_autoscaler_changes_the_replicas_while_it_serves(tmp_path: Path) -> None:
    with SimulatedCluster(AUTOSCALED) as cluster:
        assert cluster.replicas() == {"desired": 1, "ready": 1, "gpus": 4}
        load = gpusize.Load(concurrencies=[16], duration_s=1.5, warmup_s=0.0)
        gpusize.run(cluster, gpusize.Dataset.from_prompt("a prompt"), load, out=tmp_path)
        during = [(change["desired"], change["ready"]) for change in cluster.stats()["replica_changes"]]
        # Sixteen in flight ask for eight, so for those that there may be; at the first look fewer may have come.
        assert during[0] == (1, 1)
        assert (4, 4) in during[1:3]
        wait_until(lambda: cluster.replicas()["desired"] == 1)
        stats, page = cluster.stats(), get(f"{cluster.url}/metrics")
    changes = stats["replica_changes"]
    assert changes[-1]["desired"] == changes[-1]["ready"] == stats["replicas"]["ready"] == 1
    for change in changes:
        # The autoscaler decides on its own clock, whatever the machine is late for.
        assert change["at_s"] / 0.2 == pytest.approx(round(change["at_s"] / 0.2), abs=1e-6)
        assert change["wall_s"] - changes[0]["wall_s"] == pytest.approx(change["at_s"], abs=1e-3)
    deployment = '{namespace="default",deployment="simulated"} 1\n'
    for name in ("spec_replicas", "status_replicas", "status_replicas_ready", "status_replicas_available"):
        assert f"kube_deployment_{name}{deployment}" in page
    scaler = '{namespace="default",horizontalpodautoscaler="simulated"}'
    assert f"kube_horizontalpodautoscaler_status_desired_replicas{scaler} 1\n" in page
    assert f"kube_horizontalpodautoscaler_spec_max_replicas{scaler} 4\n" in page


def test_without_an_autoscaler_there_is_no_hpa() -> None:
    with SimulatedCluster(FAST) as cluster:
        page = get(f"{cluster.url}/metrics")
    assert "kube_deployment_spec_replicas{" in page
    assert "kube_horizontalpodautoscaler" not in page


def test_an_autoscaler_brings_the_gpus_that_it_may_ask_for() -> None:
    scaler = AUTOSCALED["autoscaler"]
    config = cluster_config(None, autoscaler=scaler)
    assert (config["gpus"], config["replicas"]) == (4, [{"at_s": 0.0, "replicas": 1}])
    assert cluster_config(None, autoscaler=scaler, replicas="2@0s", gpus=9)["replicas"][0]["replicas"] == 2
    with pytest.raises(UsageError, match="one step at most"), SimulatedCluster({**AUTOSCALED, "replicas": "1@0s,2@3s"}):
        pass
    with pytest.raises(UsageError, match="max_replicas"), SimulatedCluster({**AUTOSCALED, "gpus": 3}):
        pass


def wait_until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.02)
