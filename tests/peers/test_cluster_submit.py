"""Submit and clean on a real control plane, looked at by Kubernetes' own client."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes
import polars as pl
import pytest

from gpusize.base.errors import TargetError
from gpusize.cluster.access.refused import KubeRefused
from gpusize.cluster.folder import read_facts, scan_table
from gpusize.cluster.submit.clean import clean_run
from gpusize.cluster.submit.options import SubmitOptions
from gpusize.cluster.submit.submit import Submitted, submit_workloads
from tests.servers.kube import ControlPlane
from tests.servers.kube.crds import JOBS, KAI, RUNAI, install
from tests.servers.kube.objects import create, node

NUMBERS = itertools.count()
OFFICIAL: Any = kubernetes.client
"""Its methods take tables where their types say classes."""


@pytest.fixture(scope="module")
def theirs(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[kubernetes.client.ApiClient]:
    file = Path(control_plane.kubeconfig("admin"))
    with control_plane.client() as client:
        install(client, RUNAI, JOBS)
        create(client, "/api/v1/nodes", node("submit-0", 8))
    with kubernetes.config.new_client_from_config(str(file)) as api:
        yield api
    with control_plane.client() as client:
        client.delete("/api/v1/nodes/submit-0")


@pytest.fixture
def namespace(theirs: kubernetes.client.ApiClient) -> Iterator[str]:
    """A namespace of the test's own."""
    name = f"runai-submit-{next(NUMBERS)}"
    core = OFFICIAL.CoreV1Api(theirs)
    core.create_namespace({"metadata": {"name": name}})
    yield name
    for pod in core.list_namespaced_pod(name).items:
        core.delete_namespaced_pod(pod.metadata.name, name, grace_period_seconds=0)
    core.delete_namespace(name)


def submitted(control_plane: ControlPlane, out: Path, namespace: str, context: str = "admin", **more: Any) -> Submitted:
    options = SubmitOptions(**{"namespace": namespace, "num_processes": 5, **more})
    return submit_workloads(options, out, kubeconfig=str(control_plane.kubeconfig(context)))


def cleaned(control_plane: ControlPlane, out: Path, **more: Any) -> Any:
    return clean_run(out, kubeconfig=str(control_plane.kubeconfig("admin")), force=True, **more)


def listed(theirs: kubernetes.client.ApiClient, run: str, namespace: str) -> dict[str, list[Any]]:
    """What there is of a run, by the official client."""
    chosen = {"label_selector": f"gpusize.dev/run={run}", "namespace": namespace}
    core, batch = OFFICIAL.CoreV1Api(theirs), OFFICIAL.BatchV1Api(theirs)
    apps, custom = OFFICIAL.AppsV1Api(theirs), OFFICIAL.CustomObjectsApi(theirs)
    found = {
        "pods": core.list_namespaced_pod(**chosen).items,
        "claims": core.list_namespaced_persistent_volume_claim(**chosen).items,
        "jobs": batch.list_namespaced_job(**chosen).items,
        "deployments": apps.list_namespaced_deployment(**chosen).items,
        "replicasets": apps.list_namespaced_replica_set(**chosen).items,
    }
    for plural in ("trainingworkloads", "distributedworkloads", "interactiveworkloads"):
        found[plural] = custom.list_namespaced_custom_object("run.ai", "v2alpha1", plural=plural, **chosen)["items"]
    return {kind: items for kind, items in found.items() if items}


@pytest.mark.parametrize(
    "template, kind",
    [
        ("pod", "pods"),
        ("job", "jobs"),
        ("deployment", "deployments"),
        ("training", "trainingworkloads"),
        ("distributed", "distributedworkloads"),
        ("interactive", "interactiveworkloads"),
    ],
)
def test_every_kind_is_created_labelled_and_cleaned(
    control_plane: ControlPlane,
    theirs: kubernetes.client.ApiClient,
    namespace: str,
    tmp_path: Path,
    template: str,
    kind: str,
) -> None:
    done = submitted(control_plane, tmp_path, namespace, workload_type=template, num_workloads=13)
    assert done.complete
    found = listed(theirs, done.facts["run"], namespace)
    assert len(found[kind]) == 13
    rows = scan_table(tmp_path, "attempts").collect()
    uids = {(each["metadata"]["uid"] if isinstance(each, dict) else each.metadata.uid) for each in found[kind]}
    assert set(rows["uid"]) == uids
    assert set(rows["status"]) == {201}
    assert done.facts["server"]["version"] == "v1.37.2"
    if kind in ("jobs", "deployments"):
        # The labels went on to the pods that the controllers made.
        end = time.monotonic() + 60
        while len(found.get("pods", [])) < 13 and time.monotonic() < end:
            time.sleep(0.2)
            found = listed(theirs, done.facts["run"], namespace)
        assert {pod.metadata.labels["gpusize.dev/workload"] for pod in found["pods"]} == set(rows["workload"])
    result = cleaned(control_plane, tmp_path)
    assert result.held == ()
    assert listed(theirs, done.facts["run"], namespace) == {}


@pytest.mark.parametrize("template", ["jobset", "pytorchjob", "kueue-job", "kai-pod"])
def test_templates_of_other_projects_fit_their_kinds(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, template: str
) -> None:
    """By strict validation: a field that the kind has not would be refused."""
    assert submitted(control_plane, tmp_path, namespace, workload_type=template, num_workloads=2).complete
    done = cleaned(control_plane, tmp_path)
    assert done.held == ()
    assert {len(names) for kind, names in done.found.items() if kind != "pods"} <= {2}


def test_a_gang_of_kai_is_its_group_and_its_pods(start_control_plane: Any, tmp_path: Path) -> None:
    plane: ControlPlane = start_control_plane(schedulers=(), controllers=False)
    with plane.client() as client:
        install(client, *KAI)
    done = submitted(plane, tmp_path, "default", workload_type="kai-podgroup", num_workloads=3, num_workers=4)
    assert done.complete
    found = cleaned(plane, tmp_path, dry_run=True).found
    assert {kind: len(names) for kind, names in found.items()} == {"podgroups.scheduling.run.ai": 3, "pods": 12}
    assert cleaned(plane, tmp_path).held == ()
    assert cleaned(plane, tmp_path).found == {}


def test_claims_come_with_their_workloads_and_go_with_them(
    control_plane: ControlPlane, theirs: kubernetes.client.ApiClient, namespace: str, tmp_path: Path
) -> None:
    done = submitted(control_plane, tmp_path, namespace, workload_type="pod", num_workloads=4, pvc=True)
    found = listed(theirs, done.facts["run"], namespace)
    assert {kind: len(items) for kind, items in found.items()} == {"pods": 4, "claims": 4}
    names = {pod.spec.volumes[0].persistent_volume_claim.claim_name for pod in found["pods"]}
    assert names == {claim.metadata.name for claim in found["claims"]}
    assert cleaned(control_plane, tmp_path).held == ()
    assert listed(theirs, done.facts["run"], namespace) == {}


def test_only_this_run_is_cleaned(
    control_plane: ControlPlane, theirs: kubernetes.client.ApiClient, namespace: str, tmp_path: Path
) -> None:
    first = submitted(control_plane, tmp_path / "a", namespace, workload_type="pod", num_workloads=3)
    second = submitted(control_plane, tmp_path / "b", namespace, workload_type="pod", num_workloads=3)
    assert cleaned(control_plane, tmp_path / "a").held == ()
    assert listed(theirs, first.facts["run"], namespace) == {}
    assert len(listed(theirs, second.facts["run"], namespace)["pods"]) == 3


def test_without_permission_nothing_is_created(
    control_plane: ControlPlane, theirs: kubernetes.client.ApiClient, namespace: str, tmp_path: Path
) -> None:
    with pytest.raises(TargetError, match=f"403 Forbidden: this user may not create jobs in namespace {namespace}"):
        submitted(control_plane, tmp_path / "o", namespace, "limited", workload_type="job", num_workloads=3)
    assert not (tmp_path / "o").exists()
    rbac = OFFICIAL.RbacAuthorizationV1Api(theirs)
    rules = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]}]
    rbac.create_namespaced_role(namespace, {"metadata": {"name": "creator"}, "rules": rules})
    binding = {
        "metadata": {"name": "creator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "creator"},
        "subjects": [{"kind": "User", "name": "limited", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    rbac.create_namespaced_role_binding(namespace, binding)
    # Who may create and nothing else can submit all the same.
    done = submitted(control_plane, tmp_path / "o", namespace, "limited", workload_type="job", num_workloads=3)
    assert done.complete
    # But not clean.
    with pytest.raises(KubeRefused, match="403"):
        clean_run(tmp_path / "o", kubeconfig=str(control_plane.kubeconfig("limited")))
    assert cleaned(control_plane, tmp_path / "o").held == ()


@pytest.mark.parametrize("context", ["certificate", "exec"])
def test_other_ways_to_sign_in(control_plane: ControlPlane, namespace: str, tmp_path: Path, context: str) -> None:
    assert submitted(control_plane, tmp_path, namespace, context, workload_type="pod", num_workloads=2).complete
    cleaned(control_plane, tmp_path)


def test_a_stranger_is_told_so(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    with pytest.raises(KubeRefused, match="401 Unauthorized"):
        submitted(control_plane, tmp_path, namespace, "stranger", workload_type="pod", num_workloads=2)


@pytest.mark.parametrize(
    "template, override, status, field",
    [
        ("pod", "spec.containers.0.imagge=x", 400, r"spec\.containers\[0\]\.imagge"),
        ("pod", "spec.containers.0.name=No_Name", 422, r"spec\.containers\[0\]\.name"),
        ("job", "spec.parallelism=-1", 422, r"spec\.parallelism"),
        ("job", "spec.parallelism=many", 400, r"parallelism"),
        ("pod", "spec.containers.0.resources.limits.nvidia\\.com/gpu=0.5", 422, r"nvidia\.com/gpu"),
    ],
)
def test_a_template_with_a_typo_is_refused_with_the_field(
    control_plane: ControlPlane,
    theirs: kubernetes.client.ApiClient,
    namespace: str,
    tmp_path: Path,
    template: str,
    override: str,
    status: int,
    field: str,
) -> None:
    with pytest.raises(KubeRefused, match=field) as refused:
        submitted(control_plane, tmp_path, namespace, workload_type=template, num_workloads=3, overrides=[override])
    assert refused.value.status == status
    core, batch = OFFICIAL.CoreV1Api(theirs), OFFICIAL.BatchV1Api(theirs)
    assert core.list_namespaced_pod(namespace).items == []
    assert batch.list_namespaced_job(namespace).items == []


def test_a_name_that_is_taken_and_a_quota_that_ends(
    control_plane: ControlPlane, theirs: kubernetes.client.ApiClient, namespace: str, tmp_path: Path
) -> None:
    core = OFFICIAL.CoreV1Api(theirs)
    core.create_namespaced_resource_quota(namespace, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5"}}})
    done = submitted(control_plane, tmp_path, namespace, workload_type="pod", num_workloads=8)
    assert done.facts["counts"]["created"] == 5
    assert done.facts["counts"]["failed"] == {"403 Forbidden": 3}
    assert (
        scan_table(tmp_path, "attempts")
        .filter(pl.col("status") == 403)
        .collect()["message"]
        .str.contains("exceeded quota")
        .all()
    )
    assert len(core.list_namespaced_pod(namespace).items) == 5
    # Rows of one are lost and its name is somebody else's by now: named, and left alone.
    run, name = done.facts["run"], scan_table(tmp_path, "attempts").filter(pl.col("status") == 201).collect()["name"][0]
    core.delete_namespaced_resource_quota("q", namespace)
    core.patch_namespaced_pod(name, namespace, {"metadata": {"labels": {"gpusize.dev/run": "other"}}})
    for part in (tmp_path / "attempts").glob("*.parquet"):
        pl.read_parquet(part).filter(pl.col("name") != name).write_parquet(part)
    with pytest.raises(KubeRefused, match="409 AlreadyExists"):
        submitted(control_plane, tmp_path, namespace, workload_type="pod", num_workloads=8)
    core.patch_namespaced_pod(name, namespace, {"metadata": {"labels": {"gpusize.dev/run": run}}})
    again = submitted(control_plane, tmp_path, namespace, workload_type="pod", num_workloads=8)
    assert again.facts["counts"]["created"] == 5
    assert cleaned(control_plane, tmp_path).held == ()


def test_a_finalizer_is_named(
    control_plane: ControlPlane, theirs: kubernetes.client.ApiClient, namespace: str, tmp_path: Path
) -> None:
    done = submitted(control_plane, tmp_path, namespace, workload_type="training", num_workloads=1,
                     overrides=["metadata.finalizers=[example.com/never]"])  # fmt: skip
    held = cleaned(control_plane, tmp_path, timeout_s=2).held
    assert held == (f"trainingworkloads.run.ai/j-{done.facts['run']}-0 (held by example.com/never)",)
    custom = OFFICIAL.CustomObjectsApi(theirs)
    name = f"j-{done.facts['run']}-0"
    custom.patch_namespaced_custom_object(
        "run.ai", "v2alpha1", namespace, "trainingworkloads", name, {"metadata": {"finalizers": None}}
    )
    assert cleaned(control_plane, tmp_path).held == ()


def test_ctrl_c_leaves_nothing_that_is_not_known(
    control_plane: ControlPlane, theirs: kubernetes.client.ApiClient, namespace: str, tmp_path: Path
) -> None:
    core = OFFICIAL.CoreV1Api(theirs)
    words = ["-t", "pod", "-n", "300", "--rate", "30", "--namespace", namespace, "-o", str(tmp_path / "out")]
    config = ["--kubeconfig", str(control_plane.kubeconfig("admin"))]
    command = [sys.executable, "-m", "gpusize", "cluster", "submit", *words, *config]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + 90
        while len(core.list_namespaced_pod(namespace).items) < 20 and time.monotonic() < end:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, err
    rows = scan_table(tmp_path / "out", "attempts").collect()
    there = {pod.metadata.name for pod in core.list_namespaced_pod(namespace).items}
    assert set(rows.filter(pl.col("uid").is_not_null())["name"]) == there
    assert 20 <= len(there) < 300
    assert read_facts(tmp_path / "out")["submit"]["state"] == "interrupted"
    clean = [sys.executable, "-m", "gpusize", "cluster", "clean", "-o", str(tmp_path / "out"), "--force", *config]
    done = subprocess.run(clean, capture_output=True, text=True, check=False, timeout=90)
    assert done.returncode == 0, done.stderr
    assert core.list_namespaced_pod(namespace).items == []


def test_a_server_that_dies_in_between_loses_nothing(start_control_plane: Any, tmp_path: Path) -> None:
    """The API server is killed while workloads go in, and comes back: all are there, each once."""
    plane: ControlPlane = start_control_plane(schedulers=())
    words = ["-t", "pod", "-n", "150", "--rate", "40", "--retries", "12", "--namespace", "default"]
    more = ["-o", str(tmp_path / "out"), "--kubeconfig", str(plane.kubeconfig("admin"))]
    command = [sys.executable, "-m", "gpusize", "cluster", "submit", *words, *more]
    with kubernetes.config.new_client_from_config(str(plane.kubeconfig("admin"))) as api:
        core = OFFICIAL.CoreV1Api(api)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            end = time.monotonic() + 60
            while len(core.list_namespaced_pod("default").items) < 20 and time.monotonic() < end:
                time.sleep(0.1)
            # From this thread: what it starts ends with it.
            plane.restart_apiserver()
            _, err = process.communicate(timeout=120)
        finally:
            process.kill()
        assert process.returncode == 0, err
        names = [pod.metadata.name for pod in core.list_namespaced_pod("default").items]
    facts = read_facts(tmp_path / "out")["submit"]
    assert sorted(names) == sorted(f"j-{facts['run']}-{index}" for index in range(150))
    assert facts["sessions"][0]["unanswered"] > 0
