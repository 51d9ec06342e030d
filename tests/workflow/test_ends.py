"""How requests and levels end early: time-outs, Ctrl-C, calls that do not let go."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpusize.base.errors import TargetError
from gpusize.base.interrupt import StopSwitch
from gpusize.targets.workflow import call
from gpusize.targets.workflow.in_flight import GRACE_S
from gpusize.targets.workflow.level import VOID_DRAIN_NS, WorkflowLevel
from gpusize.targets.workflow.target import WorkflowTarget
from gpusize.workload.dataset import Dataset
from gpusize.workload.load import Load
from tests.workflow import flows
from tests.workflow.conftest import Measure, VirtualTarget

PATH = "tests.workflow.flows"


@pytest.fixture
def released() -> Iterator[None]:
    flows.release.clear()
    yield
    flows.release.set()


class _Stopper:
    """Asks for an end, so many times, as soon as a level has a number of requests in flight and a number done."""

    def __init__(self, in_flight: int, done: int = 0, asks: int = 1) -> None:
        self.switch = StopSwitch()
        self._in_flight = in_flight
        self._done = done
        self._asks = asks
        self.asked = threading.Event()

    def __call__(self, event: Any) -> None:
        found = event.progress
        if event.kind == "running" and found["in_flight"] >= self._in_flight and found["done"] >= self._done:
            for _ in range(self._asks - self.switch.asked):
                self.switch.ask()
            self.asked.set()


def test_a_request_that_runs_out_of_time_is_cancelled_and_recorded(measure: Measure) -> None:
    target = VirtualTarget(f"{PATH}:first_then_for_ever", timeout_s=50.0)
    load = Load(concurrencies=(2,), count=4, max_error_share=1.0)
    result = measure(target, ["first", "hang"], load)
    assert result.records.sort("seq")["outcome"].to_list() == ["ok", "timeout"] * 2
    hung = result.records.filter(outcome="timeout")
    assert (hung["end_ns"] - hung["sent_ns"]).to_list() == [50_000_000_000] * 2
    assert result.levels[0].meta["errors"][0]["message"] == "no result within 50 s"
    assert result.levels[0].meta["generator"]["left_running"] == 0


def test_a_call_inside_shares_the_end_of_its_request(measure: Measure) -> None:
    async def hang_in_a_call(question: str) -> None:
        with call("llm"):
            if question == "hang":
                await asyncio.Event().wait()

    load = Load(concurrencies=(1,), count=2, max_error_share=1.0)
    result = measure(VirtualTarget(hang_in_a_call, timeout_s=50.0), ["first", "hang"], load)
    [level] = result.levels
    assert level.calls is not None
    assert level.calls.sort("seq").collect()["outcome"].to_list() == ["ok", "timeout"]


def test_a_thread_that_runs_out_of_time_is_left_and_counted(measure: Measure, released: None) -> None:
    # The bound is for those too that end, on a thread that has to be started first. Both that do not end wait at once.
    target = WorkflowTarget(f"{PATH}:stuck", timeout_s=2.0)
    load = Load(concurrencies=(2,), count=4, max_error_share=1.0)
    result = measure(target, ["first", "hang"], load)
    assert result.records.sort("seq")["outcome"].to_list() == ["ok", "timeout"] * 2
    assert result.levels[0].meta["generator"]["left_running"] == 2
    assert any("2 calls could not be stopped" in alert for alert in result.summary["alerts"][0])


def test_a_call_that_will_not_be_cancelled_does_not_hold_the_level(measure: Measure) -> None:
    async def stubborn(question: str) -> None:
        if question != "hang":
            return
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    load = Load(concurrencies=(1,), count=2, max_error_share=1.0)
    result = measure(VirtualTarget(stubborn, timeout_s=50.0), ["first", "hang"], load)
    records = result.records.sort("seq")
    assert records["outcome"].to_list() == ["ok", "timeout"]
    [level] = result.levels
    assert level.meta["generator"]["left_running"] == 1
    assert level.meta["end_ns"] == records["end_ns"][1] + round(GRACE_S * 1e9)


@pytest.mark.parametrize("asks", [1, 2])
def test_ctrl_c_keeps_what_was_measured(measure: Measure, asks: int) -> None:
    # The first row comes twice before all eight users have one that never ends.
    stopper = _Stopper(in_flight=8, done=2, asks=asks)
    load = Load(concurrencies=(8, 16), duration_s=600.0, drain_s=0.1)
    rows = ["first", *["hang"] * 7]
    target = WorkflowTarget(f"{PATH}:first_then_for_ever")
    result = measure(target, rows, load, stop=stopper.switch, progress=stopper)
    assert result.cancelled
    [level] = result.levels
    assert level.state == "cancelled"
    assert level.meta["stop_reason"] == "cancelled"
    outcomes = result.records["outcome"].to_list()
    assert (outcomes.count("ok"), outcomes.count("cancelled"), len(outcomes)) == (2, 8, 10)


def test_ctrl_c_lets_requests_end_while_it_drains(measure: Measure) -> None:
    stopper = _Stopper(in_flight=4)

    async def until_asked(question: str) -> None:
        if question == "wait":
            await asyncio.to_thread(stopper.asked.wait)

    load = Load(concurrencies=(4,), duration_s=600.0, drain_s=60.0)
    result = measure(
        WorkflowTarget(until_asked), ["first", *["wait"] * 99], load, stop=stopper.switch, progress=stopper
    )
    assert result.levels[0].meta["stop_reason"] == "stopped"
    assert set(result.records["outcome"].to_list()) == {"ok"}


def test_too_many_failures_cut_off_what_is_in_flight(measure: Measure) -> None:
    async def some_fail(question: str) -> None:
        if question == "hang":
            await asyncio.Event().wait()
        if question == "bad":
            raise ValueError("no")

    result = measure(VirtualTarget(some_fail), ["first", "hang", "bad"], Load(concurrencies=(3,), passes=1))
    records = result.records.sort("seq")
    assert records["outcome"].to_list() == ["ok", "cancelled", "api_error"]
    assert records["end_ns"][1] == records["end_ns"][2] + VOID_DRAIN_NS
    assert result.levels[0].state == "interrupted"
    assert result.levels[0].meta["stop_reason"] == "errors"


def test_a_full_disk_ends_the_level(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_self: object, _rows: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gpusize.targets.workflow.record.PartWriter._write", full)
    with pytest.raises(OSError, match="No space left"):
        measure(WorkflowTarget(f"{PATH}:plain"), ["a"], Load(concurrencies=(1,), passes=1))


def test_a_blocked_event_loop_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusize.targets.workflow.level.DEAF_NS", 20_000_000)
    release, blocked = threading.Event(), threading.Event()

    async def blocks(question: str) -> None:
        if question == "block":
            blocked.set()
            release.wait()

    folder = tmp_path / ".0000.open" / "records"
    folder.mkdir(parents=True)
    closed = {"concurrency": 1, "think": {"fixed": 0}, "start": "burst"}
    plan = {"visit": 0, "seed": 1, "load": {"closed": closed}, "stop": {"count": 2}, "dir": str(folder)}
    with WorkflowTarget(blocks).open(Dataset.from_rows(["first", "block"])) as engine:
        level = engine.queue(plan)
        blocked.wait()
        # The only request left blocks the loop, and the level has closed by its count: it can still be waited for.
        assert level.poll()["state"] == "draining"
        release.set()
        _wait(level)
        blocked.clear()
        release.clear()
        second = engine.queue({**plan, "visit": 1, "stop": {"count": 3}, "dir": str(folder)})
        blocked.wait()
        second.stop(0)
        with pytest.raises(TargetError, match="blocks the event loop"):
            _wait(second)
        release.set()


def _wait(level: WorkflowLevel) -> None:
    while not level.wait(0.05):
        pass
