"""sampled.json: the form of the Run:ai scale test tool, without its defects."""

from __future__ import annotations

import asyncio
import json
import random
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gpusize.cluster.seed_files.read import SAMPLED
from gpusize.cluster.watch.sampled import KEYS, sampled_rows, write_sampled
from gpusize.cluster.watch.stamp_book import StampBook
from tests.cluster.watch.pods import line, take, text

Item = dict[str, Any]


def meta(name: str, second: int, **more: Any) -> Item:
    return {"name": name, "namespace": "runai-p", "uid": name, "creationTimestamp": text(second), **more}


def pod(name: str, workload: str, second: int, scheduled: int | None, *, refused: int | None = None) -> Item:
    condition: Item = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    if scheduled is not None:
        condition = {"type": "PodScheduled", "status": "True"}
    condition["lastTransitionTime"] = text(scheduled if scheduled is not None else refused or second)
    return {"metadata": meta(name, second, labels={"release": workload}), "status": {"conditions": [condition]}}


def run_ai(name: str, second: int) -> Item:
    return {"metadata": meta(f"generated-{name}", second), "spec": {"name": {"value": name}}}


def of_release(name: str, workload: str, second: int) -> Item:
    return {"metadata": meta(name, second, labels={"release": workload})}


def seen(items: list[tuple[str, Item]], gone: list[str] = []) -> pl.DataFrame:  # noqa: B006 - not changed
    book = StampBook(Path("/nonexistent/gpusize"), ["TrainingWorkload"])
    for kind, item in items:
        take(book, kind, item, 1)
        if item["metadata"]["name"] in gone:
            book.take_lines(kind, line("DELETED", item), 2, initial=False, late=False)
    return book.frame()


def gang() -> list[tuple[str, Item]]:
    """A workload with its job, its pod group and three pods, the first of which was scheduled first."""
    return [
        ("TrainingWorkload", run_ai("j-1", 1)),
        ("RunaiJob", {"metadata": meta("j-1", 2, labels={"release": "j-1"})}),
        ("PodGroup", of_release("pg-j-1", "j-1", 5)),
        ("Pod", pod("a", "j-1", 3, 10)),
        ("Pod", pod("b", "j-1", 4, 12)),
        ("Pod", pod("c", "j-1", 3, 11)),
    ]


def test_a_complete_workload_has_the_tools_keys_in_its_order() -> None:
    rows, workloads = sampled_rows(seen(gang()), "p")
    assert workloads == 1
    (row,) = rows
    assert tuple(row) == KEYS
    decided = text(12).replace("Z", "+00:00")
    assert row == {
        "jobName": "j-1",
        "jobNamespace": "runai-p",
        "projectName": "p",
        "workloadCreatedTimestamp": text(1),
        "jobCreatedTimestamp": text(2),
        "firstPodCreatedTimestamp": text(3).replace("Z", "+00:00"),
        "lastPodCreatedTimestamp": text(4).replace("Z", "+00:00"),
        "podGroupCreatedTimestamp": text(5),
        "podSchedulingDecisionTimestamp": decided,
        "firstEvictionTimestamp": decided,
        "firstPVCBindRequestTimestamp": decided,
        "firstPVCBindTimestamp": decided,
        "backendJobCreatedTimestamp": text(1),
    }


def test_the_last_pod_decides_in_whatever_order_they_come() -> None:
    items = gang()
    for seed in range(5):
        random.Random(seed).shuffle(items)
        (row,), _ = sampled_rows(seen(items), "p")
        assert datetime.fromisoformat(row["podSchedulingDecisionTimestamp"]) == datetime.fromisoformat(text(12))


def test_a_verdict_of_unschedulable_is_no_decision() -> None:
    waits = ("Pod", pod("d", "j-1", 4, None, refused=6))
    assert sampled_rows(seen([*gang(), waits]), "p") == ([], 1)
    # Once it is scheduled, its decision counts, and not the verdict before.
    (row,), _ = sampled_rows(seen([*gang(), waits, ("Pod", pod("d", "j-1", 4, 30))]), "p")
    assert row["podSchedulingDecisionTimestamp"] == text(30).replace("Z", "+00:00")


def test_pods_that_are_gone_still_count() -> None:
    replaced = ("Pod", pod("old", "j-1", 2, 7))
    never = ("Pod", pod("refused", "j-1", 2, None, refused=4))
    (row,), _ = sampled_rows(seen([*gang(), replaced, never], gone=["old", "refused"]), "p")
    assert row["firstPodCreatedTimestamp"] == text(2).replace("Z", "+00:00")


def test_an_eviction_belongs_to_its_victim() -> None:
    event = {"metadata": {"name": "e", "uid": "e"}, "reason": "Evict", "eventTime": text(20),
             "note": "Pod team/a was preempted by workload runai-p/j-2",
             "regarding": {"kind": "PodGroup", "name": "pg-j-1", "uid": "pg-j-1"}}  # fmt: skip
    other = [(kind, json.loads(json.dumps(item).replace("j-1", "j-2"))) for kind, item in gang()]
    for _, item in other:
        item["metadata"]["uid"] += "-2"
    rows, _ = sampled_rows(seen([*gang(), *other, ("Event", event)]), "p")
    evicted = {row["jobName"]: row["firstEvictionTimestamp"] for row in rows}
    assert evicted == {"j-1": text(20).replace("Z", "+00:00"), "j-2": text(12).replace("Z", "+00:00")}


def test_a_claim_is_bound_after_it_was_asked_for() -> None:
    def event(reason: str, second: int) -> tuple[str, Item]:
        about = {"kind": "PersistentVolumeClaim", "name": "data", "uid": "claim"}
        return "Event", {"metadata": {"name": reason, "uid": reason}, "reason": reason, "regarding": about,
                         "eventTime": None, "deprecatedFirstTimestamp": text(second)}  # fmt: skip

    claim = ("PersistentVolumeClaim", {"metadata": meta("claim", 2, labels={"release": "j-1"})})
    items = [*gang(), claim, event("ExternalProvisioning", 6), event("ProvisioningSucceeded", 9)]
    (row,), _ = sampled_rows(seen(items), "p")
    assert row["firstPVCBindRequestTimestamp"] == text(6).replace("Z", "+00:00")
    assert row["firstPVCBindTimestamp"] == text(9).replace("Z", "+00:00")


@pytest.mark.parametrize("missing", ["TrainingWorkload", "RunaiJob", "PodGroup", "Pod"])
def test_a_workload_that_lacks_a_resource_is_not_in_it(missing: str) -> None:
    other = [(kind, json.loads(json.dumps(item).replace("j-1", "j-2"))) for kind, item in gang()]
    for _, item in other:
        item["metadata"]["uid"] += "-2"
    rows, workloads = sampled_rows(seen([*(each for each in gang() if each[0] != missing), *other]), "p")
    assert [row["jobName"] for row in rows] == ["j-2"]
    assert workloads == 2


def test_a_plain_job_stands_for_what_it_has_not() -> None:
    job = ("Job", {"metadata": meta("w", 1, labels={"gpusize.dev/workload": "w"})})
    (row,), _ = sampled_rows(seen([job, ("Pod", pod("a", "w", 2, 5))]), "p")
    assert row["workloadCreatedTimestamp"] == row["jobCreatedTimestamp"] == text(1)
    assert row["podGroupCreatedTimestamp"] == text(2)
    (row,), _ = sampled_rows(seen([("Pod", pod("a", "w", 2, 5))]), "p")
    assert row["workloadCreatedTimestamp"] == row["jobCreatedTimestamp"] == text(2)


def test_it_is_written_whole(tmp_path: Path) -> None:
    book = StampBook(tmp_path, ["TrainingWorkload"])
    for kind, item in gang():
        take(book, kind, item, 1)
    asyncio.run(book.flush(last=True))
    assert write_sampled(tmp_path, "p") == (1, 1)
    assert json.loads((tmp_path / SAMPLED).read_text())[0]["jobName"] == "j-1"
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == [SAMPLED]
