"""Workloads for Kueue on the real control plane: admitted as far as the quota goes, and gone with the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpusize.cluster.submit import SubmitOptions, clean_run, submit_workloads
from scripts.peers import peer_folder, peer_pieces
from tests.peers.test_kueue import KUEUE, QUOTA, queue
from tests.servers.kube import ControlPlane
from tests.servers.kube.kueue import Kueue
from tests.servers.kube.objects import condition, create, items, node, until

pytestmark = pytest.mark.optional_in_ci("building Kueue takes minutes more, and is asked for by name")


def test_jobs_of_a_queue_are_submitted_suspended_and_cleaned(
    start_control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    folder = peer_folder("kueue")
    if not {"program", "config"} <= peer_pieces(folder):
        pytest.skip("the peer kueue is not there: make peers PEERS=kueue")
    plane = start_control_plane()
    config, out = str(plane.kubeconfig("admin")), tmp_path / "out"
    with Kueue(folder, plane), plane.client() as client:
        queue(client)
        create(client, "/api/v1/nodes", node("n", gpus=32))
        options = SubmitOptions("kueue-job", 5, num_workers=2, num_gpus=2, queue="gpus", namespace="team")
        done = submit_workloads(options, out, kubeconfig=config)
        assert done.complete
        assert done.facts["pods"] == 2
        workloads = f"{KUEUE}/namespaces/team/workloads"

        def admitted() -> int:
            return sum(condition(each, "Admitted").get("status") == "True" for each in items(client, workloads))

        # A Job has two pods of two GPUs: two Jobs fill the quota, three wait in the queue.
        until(lambda: (len(items(client, workloads)), admitted()), lambda found: found == (5, QUOTA // 4))
        jobs = items(client, "/apis/batch/v1/namespaces/team/jobs")
        assert sorted(each["spec"]["suspend"] for each in jobs) == [False] * 2 + [True] * 3
        cleaned = clean_run(out, kubeconfig=config, force=True)
        assert cleaned.held == ()
        assert cleaned.found["jobs.batch"] == tuple(sorted(each["metadata"]["name"] for each in jobs))
        # Kueue's own objects have no label of ours; they go with their Jobs.
        until(lambda: items(client, workloads), lambda left: not left)
