"""All watches together against a server that fails on demand: what is stamped, and what is said to be missing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gpusize.base.errors import TargetError, UsageError
from gpusize.cluster.access.api import connect
from gpusize.cluster.access.refused import KubeRefused
from gpusize.cluster.folder import read_facts
from gpusize.cluster.tables import MOMENTS, stamps_schema
from gpusize.cluster.watch import feed as feeds
from gpusize.cluster.watch.watching import Watching
from tests.cluster.watch.pods import pod, stamps
from tests.cluster.watch.watch_double import WatchDouble

Act = Callable[[WatchDouble, Watching], Awaitable[None]]
POD = [("v1", "Pod")]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "_PAUSE_S", (0.01, 0.02))


def watch(double: WatchDouble, folder: Path, act: Act, *, canary: bool = False, **more: Any) -> dict[str, Any]:
    """What sampling says of itself when ``act`` happens while it watches."""

    async def work() -> dict[str, Any]:
        async with connect(double.kubeconfig(folder)) as api:
            out = folder / "out"
            async with Watching(api, out, more.pop("kinds", POD), more.pop("run", "r1"), canary=canary) as watching:
                await watching.ready()
                await act(double, watching)
                return await watching.finish()

    return asyncio.run(work())


async def until(good: Callable[[], bool]) -> None:
    """Look again and again; the test's own timeout bounds it."""
    while not good():  # noqa: ASYNC110 - of another thread
        await asyncio.sleep(0.005)


def rows_of(folder: Path, moment: str) -> pl.DataFrame:
    return stamps(folder / "out").filter(pl.col("moment") == moment)


def test_a_pod_that_lives_while_it_is_watched(tmp_path: Path) -> None:
    async def act(double: WatchDouble, watching: Watching) -> None:
        for state in ("new", "refused", "scheduled", "started", "ready", "ended"):
            await asyncio.to_thread(double.put, "pods", pod(1, state))
        await asyncio.to_thread(double.put, "pods", pod(2, "new", run="another"))
        await asyncio.to_thread(double.delete, "pods", "uid-1")
        await until(lambda: watching.feeds[0].lines >= 8)

    with WatchDouble() as double:
        facts = watch(double, tmp_path, act)
    rows = stamps(tmp_path / "out")
    assert dict(rows.schema) == stamps_schema()
    assert set(rows["workload"]) == {"w-1"}
    assert rows["reported"].all()
    assert set(rows["moment"]) <= set(MOMENTS)
    order = rows.filter(pl.col("source") == "watch").sort("at_ns", maintain_order=True)["moment"].to_list()
    assert order == [
        "created",
        "unschedulable",
        "bound",
        "scheduled",
        "started",
        "running",
        "ready",
        "succeeded",
        "deleted",
    ]
    assert facts["gaps"] == []
    assert read_facts(tmp_path / "out")["sample"] == json.loads(json.dumps(facts))


@pytest.mark.parametrize("how", ["line", "drop", "end", "garbage"])
def test_a_watch_that_breaks_goes_on_and_misses_nothing(tmp_path: Path, how: str) -> None:
    async def act(double: WatchDouble, watching: Watching) -> None:
        await asyncio.to_thread(double.put, "pods", pod(1, "new"))
        await until(lambda: watching.feeds[0].objects == 1)
        assert await asyncio.to_thread(double.cut, "pods", how) == 1
        await asyncio.to_thread(double.put, "pods", pod(1, "scheduled"))
        await asyncio.to_thread(double.delete, "pods", "uid-1")
        await until(lambda: watching.feeds[0].objects == 0)

    with WatchDouble() as double:
        facts = watch(double, tmp_path, act)
    assert rows_of(tmp_path, "bound")["name"].to_list() == ["p-1"]
    assert rows_of(tmp_path, "deleted").height == 1
    assert facts["gaps"] == []


def test_a_forgotten_version_is_a_gap_that_says_what_it_hides(tmp_path: Path) -> None:
    async def act(double: WatchDouble, watching: Watching) -> None:
        for number in (1, 2):
            await asyncio.to_thread(double.put, "pods", pod(number, "new"))
        await until(lambda: watching.feeds[0].objects == 2)
        await asyncio.to_thread(double.stop)
        double._delete("pods", "uid-1")
        double._put("pods", pod(2, "scheduled"))
        double._put("pods", pod(3, "new"))
        double._put("pods", pod(4, "new"))
        double._delete("pods", "uid-4")
        double._oldest = double._version
        double._history.clear()
        await asyncio.to_thread(double.start)
        await until(lambda: any(each.relisted for each in watching.feeds[0].lost))
        await asyncio.to_thread(double.put, "pods", pod(3, "scheduled"))
        await until(lambda: watching.feeds[0].lines >= 4)

    with WatchDouble() as double:
        facts = watch(double, tmp_path, act)
    (gap,) = [each for each in facts["gaps"] if each["kind"] == "Pod"]
    assert (gap["appeared"], gap["changed"], gap["vanished"]) == (1, 1, 1)
    assert (gap["appeared_names"], gap["vanished_names"]) == (["p-3"], ["p-1"])
    assert gap["from"] < gap["to"]
    assert "410 Expired: too old resource version" in gap["why"]
    assert rows_of(tmp_path, "deleted").select("name", "reported").rows() == [("p-1", False)]
    bound = dict(rows_of(tmp_path, "bound").select("name", "reported").iter_rows())
    assert bound == {"p-2": False, "p-3": True}
    assert "p-4" not in set(stamps(tmp_path / "out")["name"])  # no one can tell


def test_a_server_that_is_away_tells_late_and_that_is_said(tmp_path: Path) -> None:
    async def act(double: WatchDouble, watching: Watching) -> None:
        await asyncio.to_thread(double.put, "pods", pod(1, "new"))
        await until(lambda: watching.feeds[0].objects == 1)
        await asyncio.to_thread(double.stop)
        await asyncio.sleep(0.15)
        double._put("pods", pod(2, "new"))
        await asyncio.to_thread(double.start)
        await until(lambda: watching.feeds[0].objects == 2)

    with WatchDouble() as double:
        facts = watch(double, tmp_path, act)
    assert facts["gaps"] == []
    assert {each["kind"] for each in facts["late"]} >= {"Pod"}
    assert all(each["to"] - each["from"] > 100_000_000 for each in facts["late"])
    created = rows_of(tmp_path, "created").filter(pl.col("source") == "watch")
    assert dict(created.select("name", "reported").iter_rows()) == {"p-1": True, "p-2": False}


@pytest.mark.parametrize("watch_lists", [True, False])
def test_what_is_there_before_is_found_and_not_reported(tmp_path: Path, watch_lists: bool) -> None:
    async def act(double: WatchDouble, watching: Watching) -> None:
        await asyncio.to_thread(double.put, "pods", pod(2, "new"))
        await until(lambda: watching.feeds[0].objects == 2)

    with WatchDouble(watch_lists=watch_lists) as double:
        double.put("pods", pod(1, "scheduled"))
        facts = watch(double, tmp_path, act)
    created = rows_of(tmp_path, "created").filter(pl.col("source") == "watch")
    assert dict(created.select("name", "reported").iter_rows()) == {"p-1": False, "p-2": True}
    assert facts["gaps"] == []


def test_a_server_that_dies_for_good_leaves_what_it_had_told(tmp_path: Path) -> None:
    async def act(double: WatchDouble, watching: Watching) -> None:
        await asyncio.to_thread(double.put, "pods", pod(1, "scheduled"))
        await until(lambda: watching.feeds[0].objects == 1)
        await asyncio.to_thread(double.stop)

    with WatchDouble() as double:
        facts = watch(double, tmp_path, act)
    assert "no answer from the API server" in facts["reconciled"]["Pod"]["problem"]
    assert rows_of(tmp_path, "bound").height == 1


def test_an_error_in_the_block_loses_no_row(tmp_path: Path) -> None:
    async def act(double: WatchDouble, watching: Watching) -> None:
        await asyncio.to_thread(double.put, "pods", pod(1, "scheduled"))
        await until(lambda: watching.feeds[0].objects == 1)
        raise RuntimeError("stop")

    with WatchDouble() as double, pytest.raises(RuntimeError, match="stop"):
        watch(double, tmp_path, act)
    assert rows_of(tmp_path, "bound").height == 1


def test_events_find_their_object_whichever_comes_first(tmp_path: Path) -> None:
    def event(number: int) -> dict[str, Any]:
        about = {"kind": "Pod", "name": f"p-{number}", "namespace": "team", "uid": f"uid-{number}"}
        return {"metadata": {"name": f"p-{number}.18ec0e0d3d722afb", "uid": f"e-{number}"}, "regarding": about,
                "reason": "Scheduled", "eventTime": "2026-11-28T00:00:00.123456Z", "note": "assigned"}  # fmt: skip

    async def act(double: WatchDouble, watching: Watching) -> None:
        (events,) = [each for each in watching.feeds if each.kind == "Event"]
        await asyncio.to_thread(double.put, "pods", pod(1, "new"))
        await asyncio.to_thread(double.put, "events", event(1))
        await asyncio.to_thread(double.put, "events", event(2))
        await asyncio.to_thread(double.put, "events", event(3))  # of a pod that nobody asked for
        await until(lambda: events.objects == 3)
        await asyncio.to_thread(double.put, "pods", pod(2, "new"))
        await until(lambda: watching.feeds[0].objects == 2)

    with WatchDouble() as double:
        watch(double, tmp_path, act)
    rows = stamps(tmp_path / "out").filter(pl.col("source").str.starts_with("event"))
    assert set(rows.select("workload", "kind", "name", "source", "resolution_ns").iter_rows()) == {
        (f"w-{n}", "Pod", f"p-{n}", source, resolution)
        for n in (1, 2)
        for source, resolution in (("event Scheduled", 1000), ("event Scheduled name", 1))
    }


def test_objects_belong_to_their_owners_workload(tmp_path: Path) -> None:
    made = {"namespace": "team", "creationTimestamp": "2026-11-28T00:00:00Z"}

    def owned(uid: str, owner: str, **more: Any) -> dict[str, Any]:
        references = [{"uid": owner, "kind": "Job", "name": "x"}]
        return {"metadata": {"name": uid, "uid": uid, **made, "ownerReferences": references, **more}}

    async def act(double: WatchDouble, watching: Watching) -> None:
        by_kind = {each.kind: each for each in watching.feeds}
        await asyncio.to_thread(double.put, "pods", {**owned("a", "job"), "spec": {"volumes": [
            {"persistentVolumeClaim": {"claimName": "data"}}]}})  # fmt: skip
        await asyncio.to_thread(double.put, "workloads", owned("b", "job"))
        await asyncio.to_thread(double.put, "pods", owned("c", "nobody", labels={"job-name": "guessed"}))
        claim = {"metadata": {"name": "data", "uid": "claim", **made}, "status": {"phase": "Bound"}}
        await asyncio.to_thread(double.put, "persistentvolumeclaims", claim)
        job = {"metadata": {"name": "w-1", "uid": "job", **made}}
        await asyncio.to_thread(double.put, "jobs", job)
        await until(lambda: by_kind["Job"].objects == by_kind["PersistentVolumeClaim"].objects == 1)
        await until(lambda: by_kind["Pod"].objects == 2 and by_kind["Workload"].objects == 1)

    with WatchDouble() as double:
        watch(double, tmp_path, act, kinds=[("batch/v1", "Job")], run=None)
    found = stamps(tmp_path / "out").select("uid", "workload").unique()
    assert dict(found.iter_rows()) == {"a": "w-1", "b": "w-1", "job": "w-1", "claim": "w-1", "c": "guessed"}


def test_the_canary_knows_the_servers_clock_and_is_gone_afterwards(tmp_path: Path) -> None:
    async def act(_: WatchDouble, watching: Watching) -> None:
        canary = watching._canary
        assert canary is not None
        await until(lambda: canary.offset.n >= 4 and len(canary.lags_ns) >= 2)

    with WatchDouble(skew_s=7.25) as double:
        facts = watch(double, tmp_path, act, canary=True)
        assert not [item for (plural, _), item in double._objects.items() if plural == "leases"]
    clock = facts["clock"]
    assert clock["lo"] <= 7_250_000_000 <= clock["hi"]
    assert clock["hi"] - clock["lo"] < 1_000_000_000  # less than one answer says
    assert clock["steps"] == 0
    assert facts["watch_lag_ns"]["n"] >= 2
    assert facts["watch_lag_ns"]["p50"] <= facts["watch_lag_ns"]["max"]


def test_without_leases_the_clock_is_told_all_the_same(tmp_path: Path) -> None:
    async def act(_: WatchDouble, watching: Watching) -> None:
        canary = watching._canary
        assert canary is not None
        await until(lambda: canary.offset.n >= 3)

    with WatchDouble(skew_s=-3.5) as double:
        double.refused["/leases"] = 403
        facts = watch(double, tmp_path, act, canary=True)
    assert facts["clock"]["lo"] <= -3_500_000_000 <= facts["clock"]["hi"]
    assert facts["watch_lag_ns"] is None
    assert "403" in facts["canary"]


def test_a_kind_that_may_not_be_listed_is_left_out_unless_it_is_needed(tmp_path: Path) -> None:
    async def nothing(_: WatchDouble, __: Watching) -> None:
        return

    with WatchDouble() as double:
        double.refused["/workloads"] = 403
        facts = watch(double, tmp_path, nothing)
        assert list(facts["left_out"]) == ["Workload"]
        assert "Workload" not in facts["kinds"]
        double.refused["/pods"] = 403
        with pytest.raises(KubeRefused, match="403"):
            watch(double, tmp_path, nothing)


def test_a_kind_that_may_be_listed_and_not_watched_is_left_out(tmp_path: Path) -> None:
    async def act(double: WatchDouble, watching: Watching) -> None:
        await asyncio.to_thread(double.put, "pods", pod(1, "new"))
        await until(lambda: watching.feeds[0].objects == 1)

    with WatchDouble() as double:
        double.refused["/workloads?watch"] = 403
        facts = watch(double, tmp_path, act)
    assert list(facts["left_out"]) == ["Workload"]
    assert "Pod" in facts["kinds"]
    assert "Workload" not in facts["kinds"]


def test_after_watches_that_end_at_once_a_list_looks_whether_all_is_well(tmp_path: Path) -> None:
    def watches(double: WatchDouble) -> int:
        return sum("/jobs?watch" in each for each in double.asked)

    async def act(double: WatchDouble, watching: Watching) -> None:
        for count in range(1, 5):
            await until(lambda: watches(double) == count and double.watching("jobs") == 1)  # noqa: B023 - at once
            await asyncio.to_thread(double.cut, "jobs", "end")
        await until(lambda: watches(double) == 5 and double.watching("jobs") == 1)

    with WatchDouble() as double:
        facts = watch(double, tmp_path, act)
        lists = [each for each in double.asked if "/jobs?" in each and "watch" not in each and "limit=500" in each]
    assert [(each["kind"], each["vanished"]) for each in facts["gaps"]] == [("Job", 0)]
    assert len(lists) == 2  # that one, and the last


def test_a_kind_that_the_cluster_lacks_is_named(tmp_path: Path) -> None:
    async def nothing(_: WatchDouble, __: Watching) -> None:
        return

    with WatchDouble() as double, pytest.raises(UsageError, match="knows no TrainingWorkload"):
        watch(double, tmp_path, nothing, kinds=[("run.ai/v2alpha1", "TrainingWorkload")])


def test_the_gpus_of_the_nodes_are_counted_where_they_may_be_listed(tmp_path: Path) -> None:
    async def act(_: WatchDouble, __: Watching) -> None:
        return

    with WatchDouble() as double:
        for number, room in enumerate(({"nvidia.com/gpu": "8", "cpu": "64"}, {"amd.com/gpu": "4"}, {})):
            double.put(
                "nodes", {"metadata": {"name": f"n{number}", "uid": f"n{number}"}, "status": {"allocatable": room}}
            )
        assert watch(double, tmp_path, act)["gpus"] == 12
        double.refused["/nodes"] = 403
        (tmp_path / "b").mkdir()
        assert watch(double, tmp_path / "b", act)["gpus"] is None


def test_no_server_is_said_at_once(tmp_path: Path) -> None:
    async def nothing(_: WatchDouble, __: Watching) -> None:
        return

    with WatchDouble() as double:
        double.stop()
        with pytest.raises(TargetError, match="no answer from the API server"):
            watch(double, tmp_path, nothing)
