"""Watching in a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gpusize.base.errors import TargetError, UsageError
from gpusize.cluster.folder import append_rows, read_facts, update_facts
from gpusize.cluster.watch.apart import WatchingApart
from tests.cluster.watch.pods import pod, stamps
from tests.cluster.watch.watch_double import WatchDouble

POD = [("v1", "Pod")]


def apart(
    double: WatchDouble, folder: Path, act: Callable[[WatchingApart], Awaitable[None]], **more: Any
) -> dict[str, Any]:
    kubeconfig = double.kubeconfig(folder)

    async def work() -> dict[str, Any]:
        out = folder / "out"
        kinds = more.pop("kinds", POD)
        async with WatchingApart(out, kinds, "r1", kubeconfig=kubeconfig, canary=False, **more) as watching:
            await watching.ready()
            await act(watching)
            return await watching.finish()

    return asyncio.run(work())


async def told(watching: WatchingApart, **counts: int) -> None:
    """Until it has said these counts; the test's own timeout bounds it."""
    while not all(watching.told.get(name) == count for name, count in counts.items()):
        watching.check()
        await asyncio.sleep(0.01)


def test_it_stamps_as_one_within(tmp_path: Path) -> None:
    async def act(watching: WatchingApart) -> None:
        await asyncio.to_thread(double.put, "pods", pod(1, "new"))
        await asyncio.to_thread(double.put, "pods", pod(1, "ready"))
        await told(watching, pods=1, ready=1)

    with WatchDouble() as double:
        facts = apart(double, tmp_path, act)
    rows = stamps(tmp_path / "out")
    assert rows["reported"].all()
    assert {"created", "bound", "running", "ready"} <= set(rows["moment"])
    assert read_facts(tmp_path / "out")["sample"]["lines"] == facts["lines"]


def test_it_says_when_all_that_was_submitted_is_ready(tmp_path: Path) -> None:
    async def act(watching: WatchingApart) -> None:
        append_rows(tmp_path / "out", "attempts", [{"workload": "w-1", "uid": "uid-1", "status": 201}])
        await asyncio.to_thread(double.put, "pods", pod(1, "scheduled"))
        await told(watching, pods=1, ready=0)
        update_facts(tmp_path / "out", submit={"state": "done"})
        await asyncio.to_thread(double.put, "pods", pod(1, "ready"))
        await watching.reached()

    with WatchDouble() as double:
        apart(double, tmp_path, act, until="ready")


def test_what_is_refused_is_raised_here(tmp_path: Path) -> None:
    async def never(_: WatchingApart) -> None:
        raise AssertionError("it is not ready")

    with WatchDouble() as double:
        double.refused["/pods"] = 403
        with pytest.raises(TargetError, match="403 No: not here"):
            apart(double, tmp_path, never)
        with pytest.raises(UsageError, match="knows no Zeppelin"):
            apart(double, tmp_path, never, kinds=[("v1", "Zeppelin")])


def test_without_a_finish_what_was_seen_is_kept(tmp_path: Path) -> None:
    async def act(watching: WatchingApart) -> None:
        await asyncio.to_thread(double.put, "pods", pod(1, "scheduled"))
        await told(watching, pods=1)
        raise RuntimeError("stop")

    with WatchDouble() as double, pytest.raises(RuntimeError, match="stop"):
        apart(double, tmp_path, act)
    assert stamps(tmp_path / "out").filter(pl.col("moment") == "bound").height == 1


def test_it_ends_in_order_when_whoever_asked_is_gone(tmp_path: Path) -> None:
    async def act(watching: WatchingApart) -> None:
        await asyncio.to_thread(double.put, "pods", pod(1, "scheduled"))
        await told(watching, pods=1)
        child = watching._child
        assert child is not None
        assert child._process.stdin is not None
        child._process.stdin.close()
        assert watching._hearing is not None
        await watching._hearing
        assert child._process.wait() == 0

    with WatchDouble() as double:
        facts = apart(double, tmp_path, act)
    assert facts["reconciled"]["Pod"]["objects"] == 1
    assert stamps(tmp_path / "out").filter(pl.col("moment") == "bound").height == 1
