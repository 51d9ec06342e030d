"""Fake nodes in a real control plane: its own scheduler binds pods to them, and the pods go through their phases."""

from __future__ import annotations

import csv
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpusize.cluster.fake.delays import Delays
from tests.servers.kube import ControlPlane
from tests.servers.kube.objects import GPU, create, items, pod, until

PODS = 60
DELAY = "uniform(50ms,300ms)"


class Fakes:
    """`gpusize cluster fake-nodes` as a process."""

    def __init__(self, plane: ControlPlane, *options: str) -> None:
        command = [sys.executable, "-m", "gpusize", "cluster", "fake-nodes", "--kubeconfig", str(plane.kubeconfig())]
        self.process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)

    def interrupt(self) -> str:
        """Ctrl-C; what it said until its end."""
        self.process.send_signal(signal.SIGINT)
        return self.wait()

    def wait(self) -> str:
        return self.process.communicate()[1]

    @property
    def code(self) -> int | None:
        return self.process.returncode


@contextmanager
def fake_nodes(plane: ControlPlane, *options: str) -> Iterator[Fakes]:
    fakes = Fakes(plane, *options)
    try:
        yield fakes
    finally:
        if fakes.process.poll() is None:
            fakes.process.kill()
            fakes.process.communicate()


@pytest.fixture
def work(control_plane: ControlPlane) -> Iterator[httpx.Client]:
    """A namespace ``fakes``, without pods of the test before."""
    with control_plane.client() as client:
        if client.get("/api/v1/namespaces/fakes").status_code == httpx.codes.NOT_FOUND:
            create(client, "/api/v1/namespaces", {"metadata": {"name": "fakes"}})
        yield client
        client.delete("/api/v1/namespaces/fakes/pods", params={"gracePeriodSeconds": 0}).raise_for_status()


def fake_names(client: httpx.Client, group: str) -> list[str]:
    nodes = items(client, "/api/v1/nodes", labelSelector=f"gpusize.dev/fake-node={group}")
    return [each["metadata"]["name"] for each in nodes]


def phases(client: httpx.Client, path: str) -> dict[str, str]:
    return {each["metadata"]["name"]: each["status"]["phase"] for each in items(client, path)}


def test_pods_go_through_their_phases_as_drawn(control_plane: ControlPlane, work: httpx.Client, tmp_path: Path) -> None:
    path, log = "/api/v1/namespaces/fakes/pods", tmp_path / "steps.csv"
    pods = [f"pod-{each}" for each in range(PODS)]
    options = ["--nodes", "15", "--gpus", "8", "--start-after", DELAY, "--never", "0.1", "--fail", "0.1", "--seed", "3"]
    delays = Delays.parse(DELAY, never=0.1, fail=0.1, seed=3)
    fates = {name: delays.fate(f"fakes/{name}") for name in pods}
    assert set(fates.values()) == {"starts", "never", "fails"}, "the seed shows all three"
    wanted = {
        name: {"starts": "Succeeded", "never": "Pending", "fails": "Failed"}[fate] for name, fate in fates.items()
    }
    with fake_nodes(control_plane, *options, "--run-for", "100ms", "--log", str(log), "--group", "drawn") as fakes:
        until(lambda: fake_names(work, "drawn"), lambda names: len(names) == 15)
        for name in pods:
            create(work, path, pod(name, gpus=2))
        until(lambda: phases(work, path), lambda found: found == wanted)
        bound = {each["metadata"]["name"]: each["spec"]["nodeName"] for each in items(work, path)}
        assert set(bound) == set(pods), "the scheduler bound them all"
        taken = Counter(node for name, node in bound.items() if wanted[name] == "Pending")
        assert 2 * max(taken.values()) <= 8
        # One that is pending is deleted as a kubelet does it: at once, as nothing runs.
        stuck = next(name for name in pods if fates[name] == "never")
        work.delete(f"{path}/{stuck}").raise_for_status()
        until(lambda: work.get(f"{path}/{stuck}").status_code, lambda code: code == httpx.codes.NOT_FOUND)
        said = fakes.interrupt()
    assert fakes.code == 0
    assert "15 nodes with 8 GPUs each" in said
    assert fake_names(work, "drawn") == []
    assert set(phases(work, path)) & set(pods) == set(), "the pods on them are gone with them"

    steps = list(csv.DictReader(log.read_text().splitlines()))
    by_pod: dict[str, list[dict[str, str]]] = {}
    for step in steps:
        by_pod.setdefault(step["name"], []).append(step)
    for name, fate in fates.items():
        seen = [step["step"] for step in by_pod.get(name, []) if step["step"] != "remove"]
        assert seen == {"starts": ["start", "end"], "fails": ["fail"], "never": []}[fate]
        if seen:
            first = by_pod[name][0]
            assert int(first["delay_ns"]) == delays.start_ns(f"fakes/{name}")
            assert int(first["sent_ns"]) - int(first["seen_ns"]) >= int(first["delay_ns"]), "never before its time"


def test_it_lives_through_the_death_of_the_api_server(start_control_plane: Callable[..., ControlPlane]) -> None:
    plane = start_control_plane()
    path = "/api/v1/namespaces/default/pods"
    with plane.client() as client, fake_nodes(plane, "--nodes", "2", "--allow-other-workloads") as fakes:
        until(lambda: fake_names(client, "gpusize-fake"), lambda names: len(names) == 2)
        create(client, path, pod("before"))
        until(lambda: phases(client, path), lambda found: found == {"before": "Running"})
        plane.restart_apiserver()
        create(client, path, pod("after"))
        until(lambda: phases(client, path), lambda found: found == {"before": "Running", "after": "Running"})
        fakes.interrupt()
        assert fakes.code == 0
        assert fake_names(client, "gpusize-fake") == []


def test_a_cluster_that_others_use_is_refused(control_plane: ControlPlane, work: httpx.Client) -> None:
    create(work, "/api/v1/namespaces/fakes/pods", pod("of-others"))
    with fake_nodes(control_plane, "--nodes", "1", "--group", "alone") as fakes:
        said = fakes.wait()
    assert fakes.code == 2
    assert "this cluster has pods of others: " in said
    assert "--allow-other-workloads" in said
    assert fake_names(work, "alone") == []


def test_who_may_not_make_nodes_is_told_so(control_plane: ControlPlane, work: httpx.Client) -> None:
    with fake_nodes(
        control_plane, "--kubeconfig", str(control_plane.kubeconfig("limited")), "--allow-other-workloads"
    ) as fakes:
        said = fakes.wait()
    assert fakes.code == 3
    assert "403 Forbidden" in said
    assert "nodes" in said


def test_nodes_that_were_kept_are_found_again_and_removed(control_plane: ControlPlane, work: httpx.Client) -> None:
    options = ["--nodes", "3", "--group", "kept", "--gpus", "4", "--keep-nodes", "--allow-other-workloads"]
    with fake_nodes(control_plane, *options) as fakes:
        until(lambda: fake_names(work, "kept"), lambda names: len(names) == 3)
        until(lambda: leases(work, "kept"), lambda names: len(names) == 3)
        # A second command would move the same pods, each after its own delays.
        with fake_nodes(control_plane, *options) as again:
            said = again.wait()
        assert again.code == 2
        assert "kept alive by another command" in said
        assert len(fake_names(work, "kept")) == 3
        fakes.interrupt()
    nodes = items(work, "/api/v1/nodes", labelSelector="gpusize.dev/fake-node=kept")
    assert [each["status"]["allocatable"][GPU] for each in nodes] == ["4"] * 3
    assert all("taints" not in each["spec"] for each in nodes)
    with fake_nodes(control_plane, "--group", "kept", "--remove-nodes") as fakes:
        assert "removed 3 nodes" in fakes.wait()
    assert fake_names(work, "kept") == []


def leases(client: httpx.Client, group: str) -> list[dict[str, Any]]:
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    return items(client, path, labelSelector=f"gpusize.dev/fake-node={group}")
