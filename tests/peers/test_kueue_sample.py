"""Sampling Kueue's own workloads: queued, given quota, admitted, with the pods of their Jobs, and a preemption."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pytest

from gpusize.cluster.folder import append_rows, update_facts
from gpusize.cluster.tables import LABEL_RUN, LABEL_WORKLOAD
from gpusize.cluster.watch.sample import SampleOptions, sample_cluster
from scripts.peers import peer_folder, peer_pieces
from tests.peers.test_cluster_sample import fake_nodes, rows_of
from tests.peers.test_kueue import JOBS, KUEUE, job, queue
from tests.servers.kube import ControlPlane
from tests.servers.kube.kueue import Kueue
from tests.servers.kube.objects import create, items

pytestmark = pytest.mark.optional_in_ci("building Kueue takes minutes more, and is asked for by name")


def labelled(name: str) -> dict[str, Any]:
    labels = {LABEL_RUN: "queue", LABEL_WORKLOAD: name}
    made = job(name, gpus=4)
    made["metadata"]["labels"] |= labels
    made["spec"]["template"]["metadata"] = {"labels": labels}
    return made


def conditions(client: httpx.Client) -> dict[tuple[str, str], int]:
    """When each condition of each workload became true, by Job, in ns."""
    return {
        (each["metadata"]["ownerReferences"][0]["name"], one["type"]): round(
            datetime.fromisoformat(one["lastTransitionTime"]).timestamp()
        )
        * 10**9
        for each in items(client, f"{KUEUE}/namespaces/team/workloads")
        for one in each["status"]["conditions"]
        if one["status"] == "True"
    }


def test_workloads_are_queued_admitted_and_finished(
    start_control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    folder = peer_folder("kueue")
    if not {"program", "config"} <= peer_pieces(folder):
        pytest.skip("the peer kueue is not there: make peers PEERS=kueue")
    plane = start_control_plane()
    out = tmp_path / "out"
    names = [f"job-{number}" for number in range(3)]
    with Kueue(folder, plane), plane.client() as client:
        queue(client)
        kinds = [{"api_version": "batch/v1", "kind": "Job"}]
        update_facts(out, submit={"run": "queue", "namespace": "team", "kinds": kinds, "state": "done"})
        with fake_nodes(plane, tmp_path, "--nodes", "4", "--group", "queue", "--run-for", "1s"):
            made = [create(client, JOBS, labelled(name)) for name in names]
            append_rows(
                out,
                "attempts",
                [{"workload": each["metadata"]["name"], "uid": each["metadata"]["uid"]} for each in made],
            )
            options = SampleOptions(follow=True, until="completed")
            found = sample_cluster(options, out, kubeconfig=str(plane.kubeconfig()))
        truth = conditions(client)
    assert (found.workloads, found.complete, found.interrupted) == (3, 3, False)
    rows = rows_of(out)
    queued = rows.filter(pl.col("kind") == "Workload")
    assert set(queued["workload"]) == set(names)
    moments = {"created", "quota_reserved", "admitted", "pods_ready", "finished"}
    for name in names:
        told = queued.filter(pl.col("workload") == name)
        assert moments - {"pods_ready"} <= set(told["moment"])
    stamped = {
        (name, source.removeprefix("condition ")): at
        for name, source, at in queued.filter(
            pl.col("source").str.starts_with("condition "), pl.col("moment") != "queued"
        )
        .select("workload", "source", "at_ns")
        .iter_rows()
    }
    # What the last list says is what was stamped, to the last digit that Kueue writes.
    assert {key: at for key, at in stamped.items() if key in truth} == truth
    # The third waited for quota, and was told so.
    waited = queued.filter(pl.col("moment") == "queued")
    assert waited["message"].str.contains("nvidia.com/gpu").any()
    # Its pods are those of its Job.
    pods = rows.filter(pl.col("kind") == "Pod", pl.col("moment") == "succeeded")
    assert set(pods["workload"]) == set(names)
