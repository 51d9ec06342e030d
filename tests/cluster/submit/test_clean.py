"""What a run has made goes, by its label alone, of every kind; what holds out is named."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from gpusize.base.errors import UsageError
from gpusize.cluster.access.refused import KubeRefused
from gpusize.cluster.folder import read_facts
from gpusize.cluster.submit.clean import clean_run
from tests.cluster.api_double import DROP, KINDS, LOST, VERBS, ApiDouble, Asked, Reply, refusal
from tests.cluster.submit.conftest import Folder


def put(double: ApiDouble, plural: str, name: str, run: str | None, **metadata: Any) -> None:
    labels = {"labels": {"gpusize.dev/run": run}} if run else {}
    made = {"name": name, "uid": f"{plural}-{name}", **labels, **metadata}
    double.objects[plural, "default", name] = {"metadata": made}


def names(double: ApiDouble) -> set[tuple[str, str]]:
    return {(plural, name) for plural, _, name in double.objects}


def test_all_kinds_of_the_run_go_and_nothing_else(folder: Folder) -> None:
    with ApiDouble() as double:
        run = folder.submit(double, 5, pvc=True).facts["run"]
        put(double, "configmaps", "made-by-a-controller", run)
        put(double, "pods", "of-another-run", "other")
        put(double, "pods", "of-nobody", None)
        config = double.kubeconfig(folder.path.parent)
        plan = clean_run(folder.path, kubeconfig=config, dry_run=True)
        assert {kind: len(found) for kind, found in plan.found.items()} == {
            "pods": 5,
            "persistentvolumeclaims": 5,
            "configmaps": 1,
        }
        assert len(double.objects) == 13
        assert "clean" not in read_facts(folder.path)
        done = clean_run(folder.path, kubeconfig=config)
        assert done.found == plan.found
        assert done.held == ()
        assert names(double) == {("pods", "of-another-run"), ("pods", "of-nobody")}
        facts = read_facts(folder.path)["clean"]
        # That there was nothing left later changes nothing of it.
        assert clean_run(folder.path, kubeconfig=config).found == {}
    assert read_facts(folder.path)["clean"] == facts
    assert facts["held"] == []
    assert folder.facts["ended_ns"] < facts["started_ns"] < facts["ended_ns"]


def test_what_the_run_created_goes_before_what_controllers_made(folder: Folder) -> None:
    with ApiDouble() as double:
        run = folder.submit(double, 2, workload_type="job").facts["run"]
        put(double, "pods", "j-1-abc", run)
        clean_run(folder.path, kubeconfig=double.kubeconfig(folder.path.parent))
    deleted = [asked.path.rpartition("/")[2] for asked in double.asked if asked.method == "DELETE"]
    assert deleted == ["jobs", "pods"]
    assert all("labelSelector" in asked.query for asked in double.asked if asked.method == "DELETE")


def test_a_run_without_a_folder_is_cleaned_by_its_id(tmp_path: Path) -> None:
    with ApiDouble() as double:
        put(double, "jobs", "a", "k7w2qzxd")
        clean_run("k7w2qzxd", kubeconfig=double.kubeconfig(tmp_path))
        assert double.objects == {}


@pytest.mark.parametrize("run", ["", "a,b", "a=b", "!a", "A", " ", "a" * 64])
def test_what_is_no_id_selects_nothing(tmp_path: Path, run: str) -> None:
    with ApiDouble() as double, pytest.raises(UsageError, match="no id of a run"):
        clean_run(run, kubeconfig=double.kubeconfig(tmp_path))
    assert double.asked == []


def test_a_folder_of_another_server_is_refused(folder: Folder) -> None:
    with ApiDouble() as first:
        folder.submit(first, 1)
    with ApiDouble() as second, pytest.raises(UsageError, match="it was submitted to"):
        clean_run(folder.path, kubeconfig=second.kubeconfig(folder.path.parent))
    assert second.asked == []


def test_a_finalizer_that_holds_an_object_is_named(folder: Folder) -> None:
    with ApiDouble() as double:
        run = folder.submit(double, 1).facts["run"]
        put(double, "configmaps", "held", run, finalizers=["example.com/never"])
        done = clean_run(folder.path, kubeconfig=double.kubeconfig(folder.path.parent), timeout_s=1.5)
    assert done.held == ("configmaps/held (held by example.com/never)",)
    assert names(double) == {("configmaps", "held")}
    # What is to end already is not asked to again and again.
    assert sum(asked.method == "DELETE" for asked in double.asked) == 2


def test_force_asks_for_pods_to_end_at_once(folder: Folder) -> None:
    with ApiDouble() as double:
        folder.submit(double, 2)
        clean_run(folder.path, kubeconfig=double.kubeconfig(folder.path.parent), force=True)
    asked = [each for each in double.asked if each.method == "DELETE"]
    assert [each.query["gracePeriodSeconds"] for each in asked] == ["0"]


def test_kinds_without_a_collection_go_one_by_one(folder: Folder) -> None:
    def fault(asked: Asked) -> Reply | None:
        if asked.path == "/api/v1":
            verbs = [verb for verb in VERBS if verb != "deletecollection"]
            told = [{"kind": k, "name": n, "namespaced": True, "verbs": verbs} for k, n in KINDS["v1"]]
            return Reply(200, {"resources": told})
        return None

    with ApiDouble(fault) as double:
        folder.submit(double, 30)
        clean_run(folder.path, kubeconfig=double.kubeconfig(folder.path.parent))
        assert double.objects == {}
    assert sum(asked.method == "DELETE" for asked in double.asked) == 30


def test_a_collection_that_is_refused_goes_one_by_one(folder: Folder) -> None:
    def fault(asked: Asked) -> Reply | None:
        whole = asked.method == "DELETE" and asked.path.endswith("/pods")
        return refusal(403, "Forbidden", "cannot deletecollection") if whole else None

    with ApiDouble(fault) as double:
        folder.submit(double, 3)
        clean_run(folder.path, kubeconfig=double.kubeconfig(folder.path.parent))
        assert double.objects == {}


def test_a_collection_that_takes_too_long_is_gone_on_with(folder: Folder) -> None:
    lock, times = threading.Lock(), iter(range(100))

    def fault(asked: Asked) -> Reply | None:
        if asked.method != "DELETE":
            return None
        with lock:
            return refusal(504, "Timeout", "too slow") if next(times) == 0 else None

    with ApiDouble(fault) as double:
        folder.submit(double, 3)
        clean_run(folder.path, kubeconfig=double.kubeconfig(folder.path.parent))
        assert double.objects == {}


@pytest.mark.parametrize("how", [DROP, LOST])
def test_a_server_that_hangs_up_is_asked_again(folder: Folder, how: str) -> None:
    """As one does that is busy: deleting a large collection takes longer than it gives a request."""
    lock, lost = threading.Lock(), {"DELETE": 1, "GET": 1}

    def fault(asked: Asked) -> Reply | str | None:
        if asked.path.count("/") < 5 or asked.method not in lost:
            return None
        with lock:
            lost[asked.method] -= 1
            return how if lost[asked.method] >= 0 else None

    with ApiDouble() as double:
        folder.submit(double, 3)
        double.fault = fault
        done = clean_run(folder.path, kubeconfig=double.kubeconfig(folder.path.parent))
        assert double.objects == {}
        assert done.held == ()
    assert max(lost.values()) <= 0, "both were hung up on"


def test_kinds_that_cannot_be_listed_are_noted_and_own_ones_end_it(folder: Folder) -> None:
    def fault(asked: Asked) -> Reply | None:
        listed = asked.method == "GET" and asked.path.endswith(forbidden)
        return refusal(403, "Forbidden", "cannot list") if listed else None

    with ApiDouble(fault) as double:
        forbidden = "/nothing"
        folder.submit(double, 1)
        config = double.kubeconfig(folder.path.parent)
        forbidden = "/jobs"
        assert any("may not list jobs.batch" in note for note in clean_run(folder.path, kubeconfig=config).notes)
        forbidden = "/pods"
        with pytest.raises(KubeRefused, match="403"):
            clean_run(folder.path, kubeconfig=config)


def test_a_group_whose_server_is_down_stops_nothing(folder: Folder) -> None:
    def fault(asked: Asked) -> Reply | None:
        down = asked.path == "/apis/apps/v1"
        return refusal(503, "ServiceUnavailable", "the server is currently unable") if down else None

    with ApiDouble(fault) as double:
        folder.submit(double, 1)
        done = clean_run(folder.path, kubeconfig=double.kubeconfig(folder.path.parent))
        assert double.objects == {}
    assert any("apps/v1 could not be asked" in note for note in done.notes)


def test_more_than_a_page_is_found(folder: Folder) -> None:
    with ApiDouble() as double:
        for index in range(1203):
            put(double, "configmaps", f"c{index}", "k7w2qzxd")
        done = clean_run("k7w2qzxd", kubeconfig=double.kubeconfig(folder.path.parent))
        assert double.objects == {}
    assert len(done.found["configmaps"]) == 1203


def test_a_folder_without_a_submission_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"version": 1}')
    with pytest.raises(UsageError, match="nothing was submitted"):
        clean_run(tmp_path)


def test_what_goes_slowly_is_waited_for(folder: Folder) -> None:
    """One object at each listing, over a longer time than the timeout."""
    lock, listed = threading.Lock(), iter(range(10**6))

    def fault(asked: Asked) -> Reply | None:
        with lock:
            if asked.method == "DELETE":
                return Reply(200, {"kind": "Status", "status": "Success"})
            if asked.method == "GET" and asked.path.endswith("/configmaps") and next(listed) > 0 and double.objects:
                double.objects.pop(next(iter(double.objects)))
        return None

    with ApiDouble(fault) as double:
        for index in range(6):
            put(double, "configmaps", f"c{index}", "k7w2qzxd")
        done = clean_run("k7w2qzxd", kubeconfig=double.kubeconfig(folder.path.parent), timeout_s=1.2)
    assert done.held == ()
