"""Submissions into a double that fails as it is told to: every attempt a row, and held against what the server saw."""

from __future__ import annotations

import itertools
import os
import re
import threading
from collections import Counter
from datetime import datetime
from email.utils import formatdate
from typing import Any

import polars as pl
import pytest

from gpusize.base.errors import StoreError, TargetError, UsageError
from gpusize.base.files import lock_folder
from gpusize.base.interrupt import StopSwitch
from gpusize.cluster.access.refused import KubeRefused
from gpusize.cluster.folder import append_rows
from gpusize.cluster.submit import journal
from gpusize.cluster.submit.options import SubmitOptions
from gpusize.cluster.submit.schedule import due_times
from tests.cluster.api_double import DROP, LOST, ApiDouble, Asked, Reply, refusal
from tests.cluster.submit.conftest import Folder


def once_each(*names: int, of: Any) -> Any:
    """A fault for the first creation of these workloads."""
    seen: set[str] = set()
    lock = threading.Lock()

    def fault(asked: Asked) -> Any:
        if not asked.creates or int(asked.name.rpartition("-")[2]) not in names:
            return None
        with lock:
            if asked.name in seen:
                return None
            seen.add(asked.name)
        return of(asked) if callable(of) else of

    return fault


def held_against(folder: Folder, double: ApiDouble) -> None:
    """Rows are exactly the requests that the server saw, and what it has is what we say was created."""
    seen = Counter(asked.name for asked in double.asked if asked.creates)
    assert Counter(folder.attempts["name"].to_list()) == seen
    created = {name for _, _, name in double.objects}
    assert set(folder.attempts.filter(pl.col("uid").is_not_null())["name"]) == created
    assert {entry["jobName"] for entry in folder.submitted} == created
    assert folder.facts["counts"]["created"] == len(created)
    uids = {value["metadata"]["uid"] for value in double.objects.values()}
    assert set(folder.attempts["uid"].drop_nulls()) == uids


def test_exactly_so_many_are_created_remainder_included(folder: Folder) -> None:
    with ApiDouble() as double:
        done = folder.submit(double, 11)
    assert done.complete
    assert double.most_under_way <= 4
    held_against(folder, double)
    assert folder.attempts["status"].to_list() == [201] * 11
    assert folder.attempts["index"].to_list() == list(range(11))
    run = folder.facts["run"]
    assert [entry["jobName"] for entry in folder.submitted] == [f"j-{run}-{index}" for index in range(11)]
    for value in double.objects.values():
        assert value["metadata"]["labels"]["gpusize.dev/run"] == run


def test_submitted_json_has_the_shape_of_the_seed(folder: Folder) -> None:
    with ApiDouble() as double:
        folder.submit(double, 3, workload_type="training", namespace=None)
    for entry, sent_ns in zip(folder.submitted, folder.attempts["sent_ns"], strict=True):
        assert list(entry) == ["jobName", "projectName", "jobNamespace", "submitTimestamp"]
        assert (entry["projectName"], entry["jobNamespace"]) == ("project-0", "runai-project-0")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", entry["submitTimestamp"])
        assert datetime.fromisoformat(entry["submitTimestamp"]).timestamp() == pytest.approx(sent_ns / 1e9, abs=2e-6)


def test_stamps_are_in_order_and_rounds_follow_each_other(folder: Folder) -> None:
    with ApiDouble() as double:
        folder.submit(double, 10)
    rows = folder.attempts
    assert (rows["due_ns"] <= rows["sent_ns"]).all()
    assert (rows["sent_ns"] <= rows["acknowledged_ns"]).all()
    rounds = [rows.slice(0, 4), rows.slice(4, 4), rows.slice(8, 2)]
    for each, after in itertools.pairwise(rounds):
        assert each["due_ns"].n_unique() == 1
        assert each["acknowledged_ns"].max() <= after["due_ns"].min()


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_what_is_put_off_waits_as_long_as_it_is_told_to(folder: Folder, form: str) -> None:
    def put_off(_: Asked) -> Reply:
        if form == "seconds":
            return refusal(429, "TooManyRequests", "slow down", {"Retry-After": "1"})
        # Of a server whose clock is years away: its own Date counts.
        dates = {"Date": formatdate(1000, usegmt=True), "Retry-After": formatdate(1001, usegmt=True)}
        return refusal(429, "TooManyRequests", "slow down", dates)

    with ApiDouble(once_each(1, 2, of=put_off)) as double:
        done = folder.submit(double, 4)
    assert done.complete
    held_against(folder, double)
    rows = folder.attempts.filter(pl.col("index").is_in([1, 2]))
    assert rows["status"].to_list() == [429, 201] * 2
    assert rows["attempt"].to_list() == [0, 1] * 2
    assert rows["retry_after_s"].to_list() == [1.0, None] * 2
    for first, second in ((0, 1), (2, 3)):
        assert rows["due_ns"][second] - rows["acknowledged_ns"][first] >= 10**9
    session = folder.facts["sessions"][0]
    assert (session["throttled"], session["told_to_wait_s"], session["retried"]) == (2, 2.0, 2)


@pytest.mark.parametrize("status, reason", [(500, "InternalError"), (503, "ServiceUnavailable"), (504, "Timeout")])
def test_what_the_server_fails_at_is_sent_again(folder: Folder, status: int, reason: str) -> None:
    with ApiDouble(once_each(0, of=refusal(status, reason, "oh"))) as double:
        assert folder.submit(double, 2).complete
    held_against(folder, double)
    assert folder.attempts.filter(index=0)["status"].to_list() == [status, 201]
    assert folder.attempts["reason"][0] == reason
    assert folder.facts["sessions"][0]["server_errors"] == 1


def test_a_dropped_connection_is_an_attempt_without_an_answer(folder: Folder) -> None:
    with ApiDouble(once_each(2, of=DROP)) as double:
        assert folder.submit(double, 4).complete
    held_against(folder, double)
    rows = folder.attempts.filter(index=2)
    assert rows["status"].to_list() == [0, 201]
    assert rows["acknowledged_ns"][0] is None
    assert rows["reason"][0] == "NoAnswer"


def test_a_lost_answer_makes_no_second_object(folder: Folder) -> None:
    with ApiDouble(once_each(2, of=LOST)) as double:
        done = folder.submit(double, 4)
    assert done.complete
    held_against(folder, double)
    rows = folder.attempts.filter(index=2)
    assert rows["status"].to_list() == [0, 409]
    assert "it is ours" in rows["message"][1]


def test_a_name_that_somebody_else_has_is_a_named_failure(folder: Folder) -> None:
    with ApiDouble() as double:
        folder.submit(double, 2)
        key = next(key for key in double.objects if key[2].endswith("-1"))
        foreign = {"metadata": {"name": key[2], "uid": "theirs", "labels": {}}}
        # A folder that knows nothing of workload 1, whose name is taken meanwhile.
        for part in (folder.path / "attempts").glob("*.parquet"):
            pl.read_parquet(part).filter(pl.col("index") != 1).write_parquet(part)
        double.objects[key] = foreign
        with pytest.raises(KubeRefused, match="409 AlreadyExists"):
            folder.submit(double, 2)
        assert double.objects[key] == foreign


def test_a_name_that_is_taken_while_it_is_sent_is_a_named_failure(folder: Folder) -> None:
    def taken(asked: Asked) -> None:
        double.objects["pods", "default", asked.name] = {"metadata": {"name": asked.name, "uid": "t", "labels": {}}}

    with ApiDouble(once_each(1, of=taken)) as double:
        done = folder.submit(double, 3)
    assert not done.complete
    assert done.facts["counts"]["failed"] == {"409 AlreadyExists": 1}
    assert "not of this run" in folder.attempts.filter(index=1)["message"][0]
    assert len(folder.submitted) == 2


def test_one_that_is_refused_stops_no_other(folder: Folder) -> None:
    invalid = refusal(422, "Invalid", 'Pod "x" is invalid: spec.nodeName: no', causes=[{"field": "spec.nodeName"}])
    with ApiDouble(once_each(0, 5, of=invalid)) as double:
        done = folder.submit(double, 12)
    assert done.facts["counts"] == {
        "workloads": 12,
        "created": 10,
        "failed": {"422 Invalid": 2},
        "unanswered": 0,
        "partly": 0,
        "not_sent": 0,
    }
    held_against(folder, double)
    assert "spec.nodeName" in folder.attempts.filter(index=5)["message"][0]


def test_where_the_first_ten_all_fail_the_others_are_not_tried(folder: Folder) -> None:
    quota = refusal(403, "Forbidden", "exceeded quota")

    def fault(asked: Asked) -> Reply | None:
        return quota if asked.creates else None

    with ApiDouble(fault) as double:
        done = folder.submit(double, 100)
    assert done.gave_up == "the first 10 workloads all failed, the last with 403 Forbidden: exceeded quota"
    assert 10 <= len(folder.attempts) <= 12
    assert done.facts["counts"]["not_sent"] == 100 - len(folder.attempts)
    assert done.facts["state"] == "gave up"


def test_retries_end(folder: Folder) -> None:
    def fault(asked: Asked) -> Reply | None:
        return refusal(503, "ServiceUnavailable", "no") if asked.creates and asked.name.endswith("-1") else None

    with ApiDouble(fault) as double:
        done = folder.submit(double, 2, retries=1)
    assert done.facts["counts"]["failed"] == {"503 ServiceUnavailable": 1}
    assert folder.attempts.filter(index=1)["attempt"].to_list() == [0, 1]


def stopped_after(number: int) -> tuple[StopSwitch, Any]:
    """A switch that is asked when so many creations have been answered."""
    switch, count, lock = StopSwitch(), iter(range(10**6)), threading.Lock()

    def fault(asked: Asked) -> None:
        if asked.creates:
            with lock:
                if next(count) == number:
                    switch.ask()

    return switch, fault


def test_a_submission_that_was_stopped_goes_on_and_sends_nothing_twice(folder: Folder) -> None:
    switch, fault = stopped_after(9)
    with ApiDouble(fault) as double:
        first = folder.submit(double, 40, switch=switch, delay_s=0.05)
        assert first.interrupted
        assert first.facts["state"] == "interrupted"
        before = first.facts["counts"]
        assert 10 <= before["created"] < 40
        assert before["not_sent"] == 40 - before["created"]
        held_against(folder, double)
        second = folder.submit(double, 40, delay_s=0.05)
        assert second.complete
        assert second.facts["run"] == first.facts["run"]
        assert second.facts["started_ns"] == first.facts["started_ns"]
        assert len(second.facts["sessions"]) == 2
        held_against(folder, double)
        assert sorted(Counter(double.created()).values()) == [1] * 40
        sent = len(double.created())
        third = folder.submit(double, 40, delay_s=0.05)
        assert third.complete
        assert len(double.created()) == sent
        assert any("submitted before" in note for note in third.notes)


def test_what_was_sent_without_an_answer_is_looked_up_when_it_goes_on(folder: Folder) -> None:
    """One was created and its answer lost, one was lost on the way: the first is found, the second is sent."""
    switch = StopSwitch()

    def fault(asked: Asked) -> str | None:
        if asked.creates and asked.name.endswith(("-1", "-2")):
            switch.ask()
            return LOST if asked.name.endswith("-1") else DROP
        return None

    with ApiDouble(fault) as double:
        first = folder.submit(double, 4, switch=switch)
        assert first.interrupted
        assert first.facts["counts"]["unanswered"] == 2
        double.fault = None
        assert folder.submit(double, 4).complete
        held_against(folder, double)
    assert folder.attempts.filter(index=1)["status"].to_list() == [0, 409]
    assert folder.attempts.filter(index=2)["status"].to_list() == [0, 201]
    # It was submitted when it was first sent, not when it was found.
    entry = datetime.fromisoformat(folder.submitted[1]["submitTimestamp"]).timestamp()
    assert entry == pytest.approx(folder.attempts.filter(index=1)["sent_ns"][0] / 1e9, abs=2e-6)


def test_asked_twice_to_stop_it_waits_for_no_answer(folder: Folder) -> None:
    switch, gate = StopSwitch(), threading.Event()

    def fault(asked: Asked) -> None:
        if asked.creates and asked.name.endswith("-1"):
            switch.ask()
            switch.ask()
            gate.wait(60)

    with ApiDouble(fault) as double:
        try:
            first = folder.submit(double, 8, switch=switch)
            # The gate is shut still: nobody waited for what is behind it.
            assert not gate.is_set()
        finally:
            gate.set()
        assert first.interrupted
        row = folder.attempts.filter(index=1).row(0, named=True)
        assert (row["status"], row["reason"], row["acknowledged_ns"]) == (0, "Interrupted", None)
        double.fault = None
        assert folder.submit(double, 8).complete
        held_against(folder, double)


def test_a_full_disk_ends_it(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be written down is not sent either."""
    full = threading.Event()

    def append(*given: Any) -> None:
        if full.is_set():
            raise StoreError("the disk is full", str(given[0]), None)
        append_rows(*given)

    def fault(asked: Asked) -> None:
        if asked.creates and asked.name.endswith("-6"):
            full.set()

    monkeypatch.setattr(journal, "append_rows", append)
    with ApiDouble(fault) as double:
        with pytest.raises(StoreError, match="the disk is full"):
            folder.submit(double, 2000, num_processes=1, delay_s=0.1)
        assert len(double.objects) < 1000


def test_rows_that_a_killed_process_lost_do_no_harm(folder: Folder) -> None:
    with ApiDouble() as double:
        folder.submit(double, 6)
        for part in (folder.path / "attempts").glob("*.parquet"):
            part.unlink()
        (folder.path / "submitted.json").unlink()
        assert folder.submit(double, 6).complete
        assert len(double.objects) == 6
    assert folder.attempts["status"].to_list() == [409] * 6
    assert len(folder.submitted) == 6


def test_other_options_in_the_same_folder_are_refused_and_named(folder: Folder) -> None:
    with ApiDouble() as double:
        folder.submit(double, 2)
        sent = len(double.asked)
        with pytest.raises(UsageError, match="num_workloads is 2, not 3 \\(num_gpus differ too\\)"):
            folder.submit(double, 3, num_gpus=2)
        with pytest.raises(UsageError, match="template_sha256"):
            folder.submit(double, 2, overrides=["spec.priority=1"])
        assert len(double.asked) == sent
        folder.submit(double, 2, retries=9, max_in_flight=7)


def test_two_at_once_do_not_write_one_folder(folder: Folder) -> None:
    with ApiDouble() as double:
        (folder.path / "attempts").mkdir(parents=True)
        held = lock_folder(folder.path / "attempts")
        with pytest.raises(StoreError, match="another process"):
            folder.submit(double, 2)
        assert double.created() == []
        os.close(held)


def test_who_may_not_create_is_told_before_anything_is(folder: Folder) -> None:
    says = "403 Forbidden: this user may not create pods in namespace default"
    with ApiDouble(allowed=False) as double, pytest.raises(TargetError, match=says):
        folder.submit(double, 3)
    assert double.created() == []
    assert not list(folder.path.iterdir())


def test_a_namespace_that_there_is_not_is_named(folder: Folder) -> None:
    with ApiDouble() as double, pytest.raises(UsageError, match="there is no namespace nowhere"):
        folder.submit(double, 3, namespace="nowhere")
    with ApiDouble(namespaces=()) as double, pytest.raises(UsageError, match="there is no namespace runai-p"):
        folder.submit(double, 3, workload_type="training", namespace=None, project="p")


def test_a_kind_that_the_cluster_does_not_know_is_named(folder: Folder) -> None:
    with ApiDouble() as double, pytest.raises(UsageError, match=r"knows no JobSet of jobset\.x-k8s\.io/v1alpha2"):
        folder.submit(double, 3, workload_type="jobset")


def test_a_dry_run_that_is_refused_ends_it_with_the_field(folder: Folder) -> None:
    def fault(asked: Asked) -> Reply | None:
        if asked.query.get("dryRun") == "All" and asked.query.get("fieldValidation") == "Strict":
            return refusal(422, "Invalid", "spec.x: Invalid value", causes=[{"field": "spec.x"}])
        return None

    with ApiDouble(fault) as double, pytest.raises(KubeRefused) as refused:
        folder.submit(double, 3)
    assert refused.value.fields == ("spec.x",)
    assert double.created() == []


def test_a_cluster_that_cannot_try_is_noted(folder: Folder) -> None:
    def fault(asked: Asked) -> Reply | None:
        if "dryRun" in asked.query:
            return refusal(400, "BadRequest", "admission webhook x does not support dry run")
        return None

    with ApiDouble(fault) as double:
        done = folder.submit(double, 1)
    assert any("does not support dry run" in note for note in done.notes)


def test_a_claim_and_its_pod_are_created_in_order(folder: Folder) -> None:
    with ApiDouble() as double:
        done = folder.submit(double, 5, pvc=True, num_processes=1)
    assert done.facts["counts"]["created"] == 5
    assert [asked.body["kind"] for asked in double.asked if asked.creates] == ["PersistentVolumeClaim", "Pod"] * 5
    rows = folder.attempts.sort("sent_ns")
    assert rows["kind"].to_list() == ["PersistentVolumeClaim", "Pod"] * 5
    claims, pods = (rows.filter(kind=kind).to_dicts() for kind in ("PersistentVolumeClaim", "Pod"))
    for claim, pod in zip(claims, pods, strict=True):
        assert claim["acknowledged_ns"] <= pod["due_ns"] <= pod["sent_ns"]


def test_a_workload_of_which_a_part_was_refused_is_not_created(folder: Folder) -> None:
    def fault(asked: Asked) -> Reply | None:
        part = asked.creates and asked.body["kind"] == "Pod" and asked.name.endswith("-1")
        return refusal(422, "Invalid", "no") if part else None

    with ApiDouble(fault) as double:
        done = folder.submit(double, 3, pvc=True)
    assert done.facts["counts"]["created"] == 2
    assert done.facts["counts"]["failed"] == {"422 Invalid": 1}
    assert len(folder.submitted) == 2
    assert len(double.objects) == 5


def test_workloads_at_a_rate_are_sent_when_they_are_due(folder: Folder) -> None:
    with ApiDouble() as double:
        done = folder.submit(double, 20, rate=200.0, process="constant")
    assert done.complete
    held_against(folder, double)
    due = folder.attempts["due_ns"]
    gaps = due.diff().drop_nulls()
    assert gaps.min() >= 4_999_999
    assert gaps.max() <= 5_000_001
    assert (folder.attempts["sent_ns"] >= due).all()
    late = folder.facts["sessions"][0]["lateness_s"]
    measured = (folder.attempts["sent_ns"] - due).sort() / 1e9
    assert late["max"] == pytest.approx(measured[-1])
    assert late["p50"] == pytest.approx(measured[9])


def test_a_server_that_stands_still_is_seen_and_the_bound_is_said(folder: Folder) -> None:
    """Arrivals go on while nothing is answered; what waits for the bound is late, and that is the client's doing."""
    gate = threading.Event()

    def fault(asked: Asked) -> None:
        if asked.creates:
            if asked.name.endswith("-12"):
                gate.set()
            elif asked.name.endswith("-0"):
                gate.wait(20)

    with ApiDouble(fault) as double:
        done = folder.submit(double, 13, rate=500.0, process="constant", max_in_flight=13)
        assert done.complete
        # Number 12 was sent while number 0 was not answered yet.
        rows = folder.attempts
        assert rows.filter(index=12)["sent_ns"][0] < rows.filter(index=0)["acknowledged_ns"][0]
        assert folder.facts["sessions"][0]["bound_reached"] == 0


def test_a_bound_that_was_reached_is_said(folder: Folder) -> None:
    slow = threading.Event()

    def fault(asked: Asked) -> None:
        if asked.creates:
            slow.wait(0.05)

    with ApiDouble(fault) as double:
        done = folder.submit(double, 12, rate=1000.0, process="constant", max_in_flight=2)
    assert done.complete
    assert double.most_under_way <= 2
    assert folder.facts["sessions"][0]["bound_reached"] > 0
    assert any("the client was the limit" in note and "waited" in note for note in done.notes)


def test_an_open_loop_that_was_stopped_goes_on_with_its_own_schedule(folder: Folder) -> None:
    switch, fault = stopped_after(5)
    how: dict[str, Any] = {"rate": 60.0, "process": "poisson", "seed": 3}
    with ApiDouble(fault) as double:
        assert folder.submit(double, 30, switch=switch, **how).interrupted
        assert folder.submit(double, 30, **how).complete
        held_against(folder, double)
    wanted = due_times(SubmitOptions(num_workloads=30, **how)).diff().drop_nulls().to_list()
    found = folder.attempts["due_ns"].diff().drop_nulls().to_list()
    # One gap is the pause between the two commands.
    assert sum(a != b for a, b in zip(wanted, found, strict=True)) <= 1


@pytest.mark.parametrize(
    "options, says",
    [
        ({"num_workloads": 0}, "num_workloads"),
        ({}, "how many workloads is not said"),
        ({"num_workloads": 5, "stages": "1/s@10s"}, "stages say how many"),
        ({"num_workloads": 5, "rate": 1.0, "stages": "1/s@10s"}, "both given"),
        ({"num_workloads": 5, "rate": 1.0, "delay_s": 1.0}, "a delay is between rounds"),
        ({"num_workloads": 5, "process": "gamma"}, "no gamma arrivals"),
        ({"num_workloads": 5, "prefix": "Up"}, "names cannot begin"),
        ({"num_workloads": 5, "prefix": "a" * 21}, "names cannot begin"),
        ({"num_workloads": 5, "num_gpus": -1}, "GPUs cannot be asked for"),
        ({"num_workloads": 5, "num_workers": 3}, r"has no \$\{workers\}"),
        ({"num_workloads": 5, "queue": "q"}, r"has no \$\{queue\}"),
        ({"stages": "8@1m"}, "stages of concurrencies"),
    ],
)
def test_options_that_do_not_fit_are_named(folder: Folder, options: dict[str, Any], says: str) -> None:
    with ApiDouble() as double, pytest.raises(UsageError, match=says):
        folder.submit(double, options.pop("num_workloads", None), **options)
    assert double.asked == []
