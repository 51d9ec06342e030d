"""Sampling beside a real control plane: what is stamped is what its audit log, its lists and its own client say."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import kubernetes
import numpy as np
import polars as pl
import pytest

from gpusize.cluster.access.api import connect
from gpusize.cluster.access.refused import KubeRefused
from gpusize.cluster.folder import scan_table
from gpusize.cluster.tables import LABEL_RUN, LABEL_WORKLOAD, STAMPS
from gpusize.cluster.watch import feed as feeds
from gpusize.cluster.watch.sample import SampleOptions, sample_cluster
from gpusize.cluster.watch.watching import Watching
from tests.servers.kube import ControlPlane
from tests.servers.kube.crds import JOBS, RUNAI, install
from tests.servers.kube.objects import create, items, node, pod, until
from tests.servers.kube.runai_operator import RunaiOperator

# A watch that is cancelled while its TLS connection is opened leaves the socket to the garbage collector: httpcore2
# closes it after an exception only, which a cancellation is not. Where a server dies and comes back, that happens.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

MS = 1_000_000
PODS = 60
Act = Callable[[Watching], Awaitable[None]]


def rows_of(folder: Path) -> pl.DataFrame:
    return scan_table(folder, STAMPS).collect()


def one(rows: pl.DataFrame, moment: str, source: str) -> dict[str, int]:
    """When each object's moment was, by one source."""
    found = rows.filter(pl.col("moment") == moment, pl.col("source") == source)
    return dict(found.group_by("name").agg(pl.col("at_ns").min()).iter_rows())


def ns(text: str) -> int:
    whole, _, fraction = text.rstrip("Z").partition(".")
    return round(datetime.fromisoformat(whole + "+00:00").timestamp()) * 10**9 + int((fraction or "0").ljust(9, "0"))


def own(name: str, run: str, gpus: int = 1) -> dict[str, Any]:
    return pod(name, gpus, **{LABEL_RUN: run, LABEL_WORKLOAD: name})


def watch(
    plane: ControlPlane, folder: Path, namespace: str, run: str, act: Act, context: str = "admin"
) -> dict[str, Any]:
    """What sampling says of itself when ``act`` happens while it watches."""

    async def work() -> dict[str, Any]:
        async with (
            connect(str(plane.kubeconfig(context))) as api,
            Watching(api, folder, [("v1", "Pod")], run, namespace=namespace) as watching,
        ):
            await watching.ready()
            await act(watching)
            return await watching.finish()

    return asyncio.run(work())


async def reached(folder: Path, moment: str, count: int) -> None:
    """Until so many objects have a stamp of this moment; the test's own timeout bounds it."""
    while True:
        rows = await asyncio.to_thread(rows_of, folder)
        if rows.filter(pl.col("moment") == moment)["uid"].n_unique() >= count:
            return
        await asyncio.sleep(0.2)


STARTERS = ThreadPoolExecutor(1)
"""A server ends with the thread that started it, and those of ``asyncio.to_thread`` end with their loop."""


async def anew(plane: ControlPlane) -> None:
    """Kill the API server and start it again."""
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(STARTERS, plane.kill_apiserver)
    await loop.run_in_executor(STARTERS, plane.restart_apiserver)


@contextmanager
def fake_nodes(plane: ControlPlane, folder: Path, *words: str) -> Iterator[None]:
    """Nodes whose pods start after delays, moved by a process of their own."""
    command = [sys.executable, "-c", "from gpusize.cli import main; main()", "cluster", "fake-nodes",
               "--kubeconfig", str(plane.kubeconfig()), "--allow-other-workloads", *words]  # fmt: skip
    log = folder / "fake-nodes.log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=dict(os.environ))
    try:
        until(log.read_text, lambda text: "nodes with" in text or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


@pytest.fixture
def space(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace of the test's own, without pods at its end."""
    name = f"sample-{secrets.token_hex(4)}"
    with control_plane.client() as client:
        create(client, "/api/v1/namespaces", {"metadata": {"name": name}})
        yield name
        client.delete(f"/api/v1/namespaces/{name}/pods", params={"gracePeriodSeconds": 0}).raise_for_status()


def audited(plane: ControlPlane, namespace: str, verb: str, subresource: str = "") -> dict[str, list[dict[str, Any]]]:
    """The audit log's events of pods by name: exact times of the server's own."""
    found: dict[str, list[dict[str, Any]]] = {}
    for event in plane.audit("pods", verb, subresource):
        if event["objectRef"].get("namespace") == namespace:
            found.setdefault(event["objectRef"]["name"], []).append(event)
    return found


def test_stamps_are_what_the_audit_log_says(control_plane: ControlPlane, space: str, tmp_path: Path) -> None:
    names = [f"p-{number}" for number in range(PODS)]
    out = tmp_path / "out"

    async def act(watching: Watching) -> None:
        for name in names:
            await watching._api.request("POST", f"/api/v1/namespaces/{space}/pods", own(name, "truth"))
        await reached(out, "ready", PODS)

    with fake_nodes(
        control_plane, tmp_path, "--nodes", "10", "--group", "truth", "--start-after", "uniform(50ms,500ms)"
    ):
        facts = watch(control_plane, out, space, "truth", act)
        kubernetes.config.load_kube_config(str(control_plane.kubeconfig()))
        listed = kubernetes.client.CoreV1Api().list_namespaced_pod(space).items
    assert facts["gaps"] == []
    rows = rows_of(out)
    # The official client's list is another count, and other readers of the same times.
    assert {each.metadata.name for each in listed} == set(names)
    assert set(rows["name"]) == set(names)
    for each in listed:
        of_pod = rows.filter(pl.col("name") == each.metadata.name)
        (stamp,) = set(of_pod.filter(pl.col("source") == "creationTimestamp")["at_ns"])
        assert stamp == round(each.metadata.creation_timestamp.timestamp()) * 10**9
    assert rows.filter(pl.col("source") == "watch")["reported"].all()
    # Every source's word holds the server's own time of the request, as far as the clocks are known.
    clock, lag = facts["clock"], facts["watch_lag_ns"]
    assert clock["lo"] <= 0 <= clock["hi"]  # one machine, one clock
    created = {name: events[0] for name, events in audited(control_plane, space, "create").items()}
    bound = {name: events[0] for name, events in audited(control_plane, space, "create", "binding").items()}
    for name in names:
        made = ns(created[name]["requestReceivedTimestamp"]), ns(created[name]["stageTimestamp"])
        second = one(rows, "created", "creationTimestamp")[name]
        assert second <= made[1]
        assert made[0] < second + 10**9
        assert one(rows, "created", "watch")[name] > made[0]
        placed = ns(bound[name]["requestReceivedTimestamp"])
        assert one(rows, "bound", "watch")[name] > placed
        # The scheduler sends its Event after the binding.
        assert one(rows, "scheduled", "event Scheduled")[name] > placed
    order = ["created", "bound", "running", "ready"]
    first = [one(rows, moment, "watch") for moment in order]
    for name in names:
        assert [each[name] for each in first] == sorted(each[name] for each in first)
    # Sub-second truth: from the binding to Running, by the server's audit and by our watch. What lies between a
    # request's arrival and its answer is the server's own time, and both ends of it may be what the watch told of.
    statuses = [
        event
        for verb in ("patch", "update")
        for events in audited(control_plane, space, verb, "status").values()
        for event in events
        if "scheduler" not in event["user"]["username"]
    ]
    started: dict[str, dict[str, Any]] = {}
    for event in sorted(statuses, key=lambda each: str(each["stageTimestamp"])):
        started.setdefault(event["objectRef"]["name"], event)
    shortest = [ns(started[each]["requestReceivedTimestamp"]) - ns(bound[each]["stageTimestamp"]) for each in names]
    longest = [ns(started[each]["stageTimestamp"]) - ns(bound[each]["requestReceivedTimestamp"]) for each in names]
    told = [first[2][name] - first[1][name] for name in names]
    assert np.median(longest) > 50 * MS
    # A watch is late by what this machine's load makes of it: how late, the creations in the audit log say.
    late = [one(rows, "created", "watch")[name] - ns(created[name]["stageTimestamp"]) for name in names]
    allowed = 20 * MS + max(0, lag["p99"], np.percentile(late, 99))
    for percent in (50, 95):
        assert np.percentile(shortest, percent) - allowed <= np.percentile(told, percent)
        assert np.percentile(told, percent) <= np.percentile(longest, percent) + allowed
    # The API's seconds would say 0 or 1 s.
    began = one(rows, "started", "containerStatuses.startedAt")
    decided = one(rows, "scheduled", "condition PodScheduled")
    assert {(began[name] - decided[name]) % 10**9 for name in names} == {0}


def test_a_list_tells_the_same_times_as_the_watch(control_plane: ControlPlane, space: str, tmp_path: Path) -> None:
    async def act(watching: Watching) -> None:
        for number in range(5):
            await watching._api.request("POST", f"/api/v1/namespaces/{space}/pods", own(f"p-{number}", "list"))
        await reached(tmp_path / "watched", "ready", 5)

    with fake_nodes(control_plane, tmp_path, "--nodes", "2", "--group", "list"):
        watch(control_plane, tmp_path / "watched", space, "list", act)
        options = SampleOptions("pod", namespace=space)
        once = sample_cluster(options, tmp_path / "listed", kubeconfig=str(control_plane.kubeconfig()))
    assert (once.workloads, once.complete, once.pods) == (5, 5, 5)
    columns = ("workload", "uid", "part", "moment", "source", "at_ns")
    by_server = pl.col("clock") == "server"
    watched, listed = (rows_of(tmp_path / each).filter(by_server) for each in ("watched", "listed"))
    assert set(listed.select(columns).iter_rows()) <= set(watched.select(columns).iter_rows())
    assert {"created", "scheduled", "started", "ready"} <= set(listed["moment"])


def test_a_version_that_the_server_forgot_is_a_gap(
    start_control_plane: Callable[..., ControlPlane], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = start_control_plane(schedulers=(), controllers=False)
    path = "/api/v1/namespaces/default/pods"
    monkeypatch.setattr(feeds, "_PAUSE_S", (0.05, 0.05))
    away = asyncio.Event()

    async def pause(_: float) -> None:
        await away.wait()

    async def act(watching: Watching) -> None:
        for name in ("stays", "goes"):
            await watching._api.request("POST", path, own(name, "gap", 0))
        await reached(tmp_path / "out", "created", 2)
        monkeypatch.setattr(asyncio, "sleep", pause)
        await anew(plane)
        await asyncio.to_thread(change)
        monkeypatch.undo()
        away.set()
        (feed,) = [each for each in watching.feeds if each.kind == "Pod"]
        while not any(each.relisted for each in feed.lost):
            await asyncio.to_thread(until, lambda: True, bool)
        await watching._api.request("POST", path, own("later", "gap", 0))
        while feed.objects < 3:
            await asyncio.to_thread(until, lambda: True, bool)

    def change() -> None:
        with plane.client() as client:
            client.delete(f"{path}/goes").raise_for_status()
            create(client, path, own("comes", "gap", 0))
            create(client, path, own("never-seen", "gap", 0))
            client.delete(f"{path}/never-seen").raise_for_status()

    facts = watch(plane, tmp_path / "out", "default", "gap", act)
    (gap,) = [each for each in facts["gaps"] if each["kind"] == "Pod"]
    assert "410" in gap["why"]
    assert (gap["appeared_names"], gap["vanished_names"]) == (["comes"], ["goes"])
    rows = rows_of(tmp_path / "out")
    assert set(rows["name"]) == {"stays", "goes", "comes", "later"}
    seen = rows.filter(pl.col("source") == "watch").select("name", "moment", "reported")
    assert set(seen.iter_rows()) == {
        ("stays", "created", True),
        ("goes", "created", True),
        ("goes", "deleted", False),
        ("comes", "created", False),
        ("later", "created", True),
    }
    audit = audited(plane, "default", "delete")
    assert gap["from"] < ns(audit["goes"][0]["stageTimestamp"]) < gap["to"]


def test_a_server_that_dies_and_comes_back_costs_no_pod(
    start_control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    plane = start_control_plane()
    path = "/api/v1/namespaces/default/pods"

    async def act(watching: Watching) -> None:
        for number in range(20):
            await watching._api.request("POST", path, own(f"p-{number}", "dies"))
        await reached(tmp_path / "out", "created", 20)
        await anew(plane)
        with plane.client() as client:
            await asyncio.to_thread(create, client, "/api/v1/nodes", node("dies-0", 32))
        await reached(tmp_path / "out", "bound", 20)

    facts = watch(plane, tmp_path / "out", "default", "dies", act)
    with plane.client() as client:
        nodes = {each["metadata"]["name"]: each["spec"].get("nodeName") for each in items(client, path)}
    rows = rows_of(tmp_path / "out")
    assert {name for name, at in nodes.items() if at} == set(rows.filter(pl.col("moment") == "bound")["name"])
    assert len(nodes) == 20
    assert any(each["kind"] == "Pod" for each in [*facts["gaps"], *facts["late"]])
    assert facts["reconciled"]["Pod"] == {"objects": 20, "appeared": 0, "changed": 0, "vanished": 0}


@pytest.mark.parametrize("context", ["certificate", "exec"])
def test_watches_sign_in_as_everything_else(
    control_plane: ControlPlane, space: str, tmp_path: Path, context: str
) -> None:
    async def act(watching: Watching) -> None:
        await watching._api.request("POST", f"/api/v1/namespaces/{space}/pods", own(context, context, 0))
        await reached(tmp_path / "out", "created", 1)

    facts = watch(control_plane, tmp_path / "out", space, context, act, context)
    assert facts["left_out"] == {}
    assert facts["watch_lag_ns"] is None or facts["watch_lag_ns"]["n"] > 0


def test_who_may_not_list_pods_is_told_so_before_anything(
    control_plane: ControlPlane, space: str, tmp_path: Path
) -> None:
    async def act(_: Watching) -> None:
        raise AssertionError("nothing may be watched")

    with pytest.raises(KubeRefused, match='403 Forbidden: pods is forbidden: User "limited" cannot list'):
        watch(control_plane, tmp_path / "out", space, "limited", act, "limited")


def test_run_ai_workloads_give_the_tools_file(start_control_plane: Callable[..., ControlPlane], tmp_path: Path) -> None:
    plane = start_control_plane()
    space = "runai-project-0"
    with plane.client() as client:
        install(client, RUNAI, JOBS)
        create(client, "/api/v1/namespaces", {"metadata": {"name": space}})
    options = SampleOptions("training", until="ready", follow=True)
    with fake_nodes(plane, tmp_path, "--nodes", "2", "--group", "runai"), RunaiOperator(plane.client):
        with plane.client() as client:
            for number in range(3):
                body = {"apiVersion": "run.ai/v2alpha1", "kind": "TrainingWorkload",
                        "metadata": {"name": f"made-{number}"},
                        "spec": {"name": {"value": f"j-{number}"}, "gpu": {"value": "1"}}}  # fmt: skip
                create(client, f"/apis/run.ai/v2alpha1/namespaces/{space}/trainingworkloads", body)
        found = sample_cluster(options, tmp_path / "out", kubeconfig=str(plane.kubeconfig()))
        with plane.client() as client:
            groups = items(client, f"/apis/scheduling.run.ai/v1/namespaces/{space}/podgroups")
    assert (found.workloads, found.complete, found.interrupted) == (3, 3, False)
    rows = rows_of(tmp_path / "out")
    assert {"TrainingWorkload", "RunaiJob", "PodGroup", "Pod"} <= set(rows["kind"])
    assert set(rows["workload"].drop_nulls()) == {"j-0", "j-1", "j-2"}
    assert rows["workload"].null_count() == 0
    by_group = {each["metadata"]["labels"]["release"]: each["metadata"]["creationTimestamp"] for each in groups}
    sampled = json.loads((tmp_path / "out/sampled.json").read_text())
    assert {each["jobName"]: each["podGroupCreatedTimestamp"] for each in sampled} == by_group
