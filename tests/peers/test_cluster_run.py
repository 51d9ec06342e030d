"""A whole test of a cluster, on the real scheduler: what it reports is what the fake nodes did, pod by pod."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gpusize.cluster.folder import read_facts
from tests.servers.kube import ControlPlane
from tests.servers.kube.objects import create, items, until

NODES, GPUS, WORKLOADS = 12, 8, 40
NAMESPACE = "whole"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


@pytest.fixture(scope="module")
def steps(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Fake nodes for the module, whose pods start after a known delay; one in ten never does. Each step is logged."""
    log = tmp_path_factory.mktemp("fakes") / "steps.csv"
    command = [*gpusize(control_plane, "fake-nodes"), "--nodes", str(NODES), "--gpus", str(GPUS), "--group", "whole"]
    command += ["--start-after", "uniform(50ms,500ms)", "--never", "0.1", "--seed", "5", "--log", str(log)]
    with control_plane.client() as client:
        create(client, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        fakes = subprocess.Popen([*command, "--allow-other-workloads"], stderr=subprocess.DEVNULL)
        try:
            label = "gpusize.dev/fake-node=whole"
            until(
                lambda: [node["spec"] for node in items(client, "/api/v1/nodes", labelSelector=label)],
                lambda found: len(found) == NODES and not any("taints" in spec for spec in found),
            )
            yield log
        finally:
            fakes.send_signal(signal.SIGINT)
            fakes.wait()


@pytest.fixture(autouse=True)
def nothing_left(control_plane: ControlPlane) -> Iterator[None]:
    """Each test begins without the pods of one that failed."""
    yield
    with control_plane.client() as client:
        client.delete(PODS, params={"gracePeriodSeconds": 0})


def gpusize(plane: ControlPlane, command: str) -> list[str]:
    return [sys.executable, "-m", "gpusize", "cluster", command, "--kubeconfig", str(plane.kubeconfig())]


def run(plane: ControlPlane, folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [*gpusize(plane, "run"), "--namespace", NAMESPACE, "-t", "pod", "-o", str(folder), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def delays(log: Path) -> dict[str, int]:
    """What was drawn for each pod that started, in ns."""
    rows = csv.DictReader(log.read_text().splitlines())
    return {row["name"]: int(row["delay_ns"]) for row in rows if row["step"] == "start"}


def audited(plane: ControlPlane, verb: str, subresource: str) -> dict[str, tuple[int, int]]:
    """When the first such request for each pod came, and when it was answered, in ns since 1970."""
    found: dict[str, tuple[int, int]] = {}
    for event in plane.audit("pods", verb, subresource):
        if event["objectRef"]["namespace"] == NAMESPACE and event["responseStatus"]["code"] < 300:
            times = (event["requestReceivedTimestamp"], event["stageTimestamp"])
            came, done = (round(datetime.fromisoformat(time).timestamp() * 1e6) * 1000 for time in times)
            found.setdefault(event["objectRef"]["name"], (came, done))
    return found


def phase(folder: Path, name: str) -> pl.DataFrame:
    return pl.read_parquet(folder / "phases.parquet").filter(pl.col("phase") == name)


def test_what_is_reported_is_what_happened(control_plane: ControlPlane, steps: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    options = ["-n", str(WORKLOADS), "--rate", "20", "--process", "constant", "-g", "2", "--within", "5s"]
    process = run(
        control_plane, folder, *options, "--json", "--slo", "p50 scheduled <= 1h", "--slo", "p50 ready <= 1ms"
    )
    said, errors = process.communicate()
    assert process.returncode == 1, errors
    assert "1 of 2 thresholds are not met" in errors
    document: dict[str, Any] = json.loads(said)

    with control_plane.client() as client:
        pods = {pod["metadata"]["name"]: pod for pod in items(client, PODS)}
    running = {name for name, pod in pods.items() if pod["status"]["phase"] == "Running"}
    assert len(pods) == WORKLOADS
    assert 0 < len(running) < WORKLOADS, "the seed shows both fates"
    outcomes = {row["outcome"]: row["n"] for row in document["outcomes"]}
    assert outcomes["running"] == len(running)
    assert sum(outcomes.values()) == WORKLOADS

    # What ended, against the API server's own log of when it took each binding and each start, to the microsecond.
    bound, begun = (audited(control_plane, *asked) for asked in (("create", "binding"), ("patch", "status")))
    starting = phase(folder, "starting").filter(pl.col("state") == "done")
    assert set(starting["workload"]) == running
    holds = [
        low <= begun[name][1] - bound[name][0] and high >= begun[name][0] - bound[name][1]
        for name, low, high in starting.select("workload", "lo_ns", "hi_ns").iter_rows()
    ]
    # How late watches are is told by a canary's 99th percentile: a few may have been later.
    assert sum(holds) >= 0.9 * len(holds)
    # And that is what the fake nodes were told to do: never before its time.
    drawn = delays(steps)
    assert all(begun[name][1] - bound[name][0] >= drawn[name] for name in running)

    # What did not end counts in the percentiles.
    row = next(each for each in document["phases"] if each["phase"] == "starting")
    assert (row["n"], row["censored"]) == (WORKLOADS, WORKLOADS - len(running))
    ended = sorted(starting["value_ns"].to_list())
    # Kaplan and Meier without anything censored before the last end: the rank among all.
    rank = -(-WORKLOADS // 2) - 1
    assert row["p50_s"] == pytest.approx(ended[rank] / 1e9, rel=1e-9)

    facts = read_facts(folder)
    assert facts["submit"]["counts"]["created"] == WORKLOADS
    assert facts["sample"]["gaps"] == []
    assert {path.name for path in folder.glob("*.png")} == {"general.png", "overview.png"}

    command = [*gpusize(control_plane, "clean"), "-o", str(folder)]
    cleaned = subprocess.run(command, capture_output=True, text=True, check=False)
    assert cleaned.returncode == 0, cleaned.stderr
    with control_plane.client() as client:
        assert items(client, PODS) == []


@pytest.mark.usefixtures("steps")
def test_it_ends_in_order_and_goes_on(control_plane: ControlPlane, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    options = ["-n", "60", "--rate", "10", "--process", "constant", "-g", "1", "--within", "2s", "--clean"]
    process = run(control_plane, folder, *options[:-1])
    with control_plane.client() as client:
        until(lambda: items(client, PODS), lambda pods: len(pods) >= 5 or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
        assert process.returncode == 130, errors
        assert "the same command goes on" in errors
        before = {pod["metadata"]["name"] for pod in items(client, PODS)}
        assert 5 <= len(before) < 60
        assert set(pl.read_parquet(folder / "workloads.parquet")["workload"]) == before

        process = run(control_plane, folder, *options)
        _, errors = process.communicate()
        assert "deleted" in errors
        assert items(client, PODS) == []
    facts = read_facts(folder)
    assert facts["submit"]["counts"]["created"] == 60
    assert facts["sample"]["times"] == 2
    attempts = pl.read_parquet(folder / "attempts" / "*.parquet").filter(pl.col("uid").is_not_null())
    assert attempts["workload"].n_unique() == attempts.height == 60, "none is created twice"


@pytest.mark.usefixtures("steps")
def test_what_is_refused_before_anything_is_created(control_plane: ControlPlane, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    process = run(control_plane, folder, "-n", "5", "--set", "spec.containers[0].imagee=x")
    _, errors = process.communicate()
    assert process.returncode != 0
    assert "imagee" in errors
    with control_plane.client() as client:
        assert items(client, PODS) == []


def test_a_cluster_without_an_answer(tmp_path: Path, control_plane: ControlPlane) -> None:
    config = json.loads(control_plane.kubeconfig().read_text())
    for cluster in config["clusters"]:
        cluster["cluster"]["server"] = "https://127.0.0.1:1"
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(config))
    command = [sys.executable, "-m", "gpusize", "cluster", "run", "--kubeconfig", str(file), "-t", "pod", "-n", "1"]
    done = subprocess.run([*command, "-o", str(tmp_path / "out")], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "127.0.0.1:1" in done.stderr
