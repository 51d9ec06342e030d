"""Levels are queued ahead, committed when they end, and stopped in order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import polars as pl
import pytest

from gpusize.base.errors import StoreError
from gpusize.base.interrupt import StopSwitch
from gpusize.engine.clock_log import ClockLog
from gpusize.measure.level_json import judge_level
from gpusize.measure.monitor import Stop
from gpusize.measure.sweep import AHEAD, ProgressEvent, Step, Sweep
from gpusize.records.store import RunStore, level_dirs, open_level_dirs, read_level
from gpusize.workload.load import Load
from tests.run.fakes import MS, FakeClock, FakeEngine, FakeLevel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusize.analysis.stop_cause import StopCause
    from gpusize.engine.session import Engine, LevelOutcome


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with RunStore.create(tmp_path, {"run": "r", "levels": []}) as made:
        yield made


def steps_of(load: Load) -> list[Step]:
    pairs = zip(load.settings(4), load.plans(4), strict=True)
    return [Step(index, setting, plan) for index, (setting, plan) in enumerate(pairs)]


def describe(step: Step, outcome: LevelOutcome, folder: Path, cause: StopCause) -> dict[str, Any]:
    share = step.plan["stop"]["max_error_share"]
    return judge_level(step.setting, outcome, folder, max_error_share=share, cause=cause)


def sweep(engine: FakeEngine, store: RunStore, switch: StopSwitch | None = None, **more: Any) -> Sweep:
    clocks = ClockLog(read=FakeClock().pair)
    return Sweep(cast("Engine", engine), store, clocks, switch or StopSwitch(), 7 * MS, describe, **more)


def states(store: RunStore) -> list[str]:
    return [read_level(folder)["state"] for folder in level_dirs(store.path)]


def test_timed_levels_are_queued_two_ahead(store: RunStore) -> None:
    engine = FakeEngine()
    sweep(engine, store).run(steps_of(Load(concurrencies=(1, 2, 4), count=4)))
    assert engine.log == ["queue 0", "queue 1", "queue 2", "outcome 0", "outcome 1", "outcome 2"]
    assert engine.most_waiting == AHEAD
    assert states(store) == ["done"] * 3
    assert [read_level(f)["setting"]["concurrency"] for f in level_dirs(store.path)] == [1, 2, 4]
    assert [read_level(f)["step"] for f in level_dirs(store.path)] == [0, 1, 2]


def test_levels_that_only_drain_hold_no_further_one_up(store: RunStore) -> None:
    engine = FakeEngine(looks=2)
    queue = engine.queue

    def queue_and_drain(plan: Mapping[str, Any], **arrays: bytes) -> FakeLevel:
        level = queue(plan, **arrays)
        level.drains = level.visit == 0
        return level

    engine.queue = queue_and_drain  # type: ignore[method-assign]
    sweep(engine, store).run(steps_of(Load(stages="1/s@1s, 2/s@1s, 3/s@1s, 4/s@1s, 5/s@1s")))
    # The first one's answers are still to come: the three after it that send, or will, are with the engine already.
    assert engine.log.index("queue 3") < engine.log.index("outcome 0")


@pytest.mark.parametrize("load", [Load(rates=(1, 2, 3), duration_s=1), Load(concurrencies=(1, 2, 4), duration_s=1)])
def test_levels_that_wait_between_begin_when_all_is_answered(store: RunStore, load: Load) -> None:
    engine = FakeEngine(looks=3)
    sweep(engine, store, wait_s=60.0, now_s=lambda: 0.0).run(steps_of(load))
    assert engine.log == ["queue 0", "queue 1", "outcome 0", "queue 2", "outcome 1", "outcome 2"]
    assert engine.most_waiting == 1


def test_levels_that_wait_between_wait_no_longer_than_asked(store: RunStore) -> None:
    """The first level sends for three looks of a second each, then answers come for ever so long."""
    engine, looked = FakeEngine(looks=20), 0
    queue = engine.queue

    def queue_and_drain(plan: Mapping[str, Any], **arrays: bytes) -> FakeLevel:
        engine.log.append(f"after {looked}")
        return queue(plan, **arrays)

    def look(event: ProgressEvent) -> None:
        nonlocal looked
        looked += event.kind == "running"
        engine.levels[0].drains = looked >= 3

    engine.queue = queue_and_drain  # type: ignore[method-assign]
    steps = steps_of(Load(rates=(1, 2), duration_s=1))
    sweep(engine, store, progress=look, wait_s=5.0, now_s=lambda: float(looked)).run(steps)
    # It is seen to have closed at the look after the third, and has five seconds from then.
    assert engine.log[:4] == ["after 0", "queue 0", "after 8", "queue 1"]


def test_progress_is_of_the_newest_level_that_has_begun(store: RunStore) -> None:
    engine = FakeEngine(looks=3)
    queue, started = engine.queue, engine.started

    def queue_and_drain(plan: Mapping[str, Any], **arrays: bytes) -> FakeLevel:
        level = queue(plan, **arrays)
        level.drains = level.visit == 0
        return level

    engine.queue = queue_and_drain  # type: ignore[method-assign]
    # As with the engine: the second level runs while the first one's answers are still to come.
    engine.started = lambda level: level.visit == 1 or started(level)  # type: ignore[method-assign]
    seen: list[ProgressEvent] = []
    sweep(engine, store, progress=seen.append).run(steps_of(Load(stages="1/s@1s, 2/s@1s, 3/s@1s")))
    first = seen[0]
    assert (first.kind, first.position, first.step, first.setting["rate"]) == ("running", 2, 1, 2.0)
    assert [(each.position, each.progress["state"]) for each in first.before] == [(1, "draining")]
    assert [each.position for each in seen if each.kind == "level"] == [1, 2, 3]
    assert all(each.before == () for each in seen if each.kind == "level")


def test_a_resumed_run_says_where_it_is_among_all_levels(store: RunStore) -> None:
    seen: list[ProgressEvent] = []
    steps = steps_of(Load(concurrencies=(1, 2, 4), passes=1))
    sweep(FakeEngine(), store, progress=seen.append).run(steps[1:])
    assert [(each.position, each.total, each.step) for each in seen if each.kind == "level"] == [(1, 2, 1), (2, 2, 2)]


def test_where_the_steps_are_the_most_there_may_be_no_total_is_told(store: RunStore) -> None:
    seen: list[ProgressEvent] = []
    sweep(FakeEngine(), store, progress=seen.append, open_end=True).run(steps_of(Load(concurrencies=(1, 2), count=4)))
    assert {each.total for each in seen} == {0}


def test_levels_by_passes_run_one_after_the_other(store: RunStore) -> None:
    engine = FakeEngine()
    sweep(engine, store).run(steps_of(Load(concurrencies=(1, 2), passes=2)))
    assert engine.most_waiting == 1
    assert states(store) == ["done", "done"]


def test_a_failure_voids_a_level_and_the_next_goes_on(store: RunStore) -> None:
    error = {"id": 0, "outcome": "http_error", "status": 500, "message": "no\x1b[2J room", "count": 1}
    failed = {"outcomes": {"ok": 3, "http_error": 1}, "errors": [error], "stop_reason": "errors"}
    engine = FakeEngine(outcomes={0: failed})
    sweep(engine, store).run(steps_of(Load(concurrencies=(1, 2), passes=2)))
    assert states(store) == ["interrupted", "done"]
    [alert] = read_level(level_dirs(store.path)[0])["alerts"]
    assert alert == r"interrupted: 1 of 4 requests failed (1 x http_error 500: no\x1b[2J room)"


def test_a_tolerated_failure_is_told_and_does_not_void(store: RunStore) -> None:
    engine = FakeEngine(outcomes={0: {"outcomes": {"ok": 3, "timeout": 1}}})
    sweep(engine, store).run(steps_of(Load(concurrencies=(1,), count=4, max_error_share=0.25)))
    level = read_level(level_dirs(store.path)[0])
    assert level["state"] == "done"
    assert "1 of 4 requests failed" in level["alerts"]


def test_one_wish_to_stop_drains_and_keeps_everything(store: RunStore) -> None:
    switch = StopSwitch()
    engine = FakeEngine(looks=3)
    seen: list[ProgressEvent] = []

    def progress(event: ProgressEvent) -> None:
        seen.append(event)
        if event.position == 2 and event.kind == "running" and not switch.asked:
            switch.ask()

    sweep(engine, store, switch, progress=progress).run(steps_of(Load(concurrencies=(1, 2, 4, 8), count=4)))

    # The queued ones are stopped first: none of them must start when the running one stops.
    assert [line for line in engine.log if line.startswith("stop")] == [f"stop {visit} {7 * MS}" for visit in (3, 2, 1)]
    assert states(store) == ["done", "cancelled"]
    assert open_level_dirs(store.path) == []
    assert [event.position for event in seen if event.kind == "level"] == [1, 2]


class Monitor:
    """Stands in for ``gpusize.measure.monitor.RunMonitor``: its rule comes true at a level."""

    def __init__(self, visit: int) -> None:
        self._visit = visit
        self.ends: list[int] = []

    def look(self, level: FakeLevel, position: int, setting: Mapping[str, Any], progress: Mapping[str, Any]) -> Any:
        assert position >= 1
        assert setting
        assert progress
        return (
            Stop("slo", 3, "p99 runtime > 1s for 3s: 2 s") if level.visit == self._visit and level.began_now() else None
        )

    def ended(self, level: FakeLevel, outcome: Mapping[str, Any]) -> None:
        assert outcome["visit"] == level.visit
        self.ends.append(level.visit)


def test_a_rule_ends_the_run_and_keeps_what_was_measured(store: RunStore) -> None:
    engine = FakeEngine(looks=3)
    monitor = Monitor(1)
    running = sweep(engine, store)
    running.monitor = monitor  # type: ignore[assignment]
    running.run(steps_of(Load(concurrencies=(1, 2, 4, 8, 16), count=4)))
    assert [line for line in engine.log if line.startswith("stop")] == [f"stop {visit} {7 * MS}" for visit in (3, 2, 1)]
    levels = [json.loads((path / "level.json").read_text("utf-8")) for path in sorted(store.path.glob("levels/0*"))]
    assert [level["stop_reason"] for level in levels] == ["count", "slo"]
    assert levels[1]["alerts"][0] == "ended early: p99 runtime > 1s for 3s: 2 s"
    assert monitor.ends[:2] == [0, 1]
    assert open_level_dirs(store.path) == []


def test_a_second_wish_cancels_at_once(store: RunStore) -> None:
    switch = StopSwitch()
    engine = FakeEngine(looks=3)

    class Stubborn(FakeLevel):
        def wait(self, _timeout_s: float) -> bool:
            switch.ask()
            return len(self.stopped) > 1

    def queue(plan: Mapping[str, Any], **_arrays: bytes) -> FakeLevel:
        return Stubborn(engine, plan)

    engine.queue = queue  # type: ignore[method-assign]
    sweep(engine, store, switch).run(steps_of(Load(concurrencies=(1,), count=4)))
    assert [line for line in engine.log if line.startswith("stop")] == [f"stop 0 {7 * MS}", "stop 0 0"]
    assert states(store) == ["cancelled"]


def test_a_level_that_ended_before_the_wish_is_done(store: RunStore) -> None:
    switch = StopSwitch()
    engine = FakeEngine()
    engine.on_end = lambda _level: switch.ask()
    engine.outcomes = {0: {"stop_reason": "count"}}
    sweep(engine, store, switch).run(steps_of(Load(concurrencies=(1, 2), passes=1)))
    assert states(store)[0] == "done"
    assert len(states(store)) == 1


def test_a_full_disk_ends_the_run_and_keeps_what_there_is(store: RunStore) -> None:
    engine = FakeEngine(outcomes={1: {"write_error": "No space left on device (os error 28)"}})
    with pytest.raises(StoreError, match=r"No space left on device.*--resume") as caught:
        sweep(engine, store).run(steps_of(Load(concurrencies=(1, 2, 4), count=4)))
    assert caught.value.exit_code == 3
    assert states(store) == ["done", "partial"]
    assert "stop 2 0" in engine.log


def test_clock_pairs_are_written_with_every_level(store: RunStore) -> None:
    engine = FakeEngine(looks=5)
    sweep(engine, store).run(steps_of(Load(concurrencies=(1, 2), count=4)))
    pairs = pl.read_parquet(store.path / "clocks.parquet")
    assert pairs.columns == ["mono_ns", "wall_ns", "uncertainty_ns"]
    assert pairs.height == 1  # the fake clock moves 1 ms at each look: 10 s never pass


def test_clock_pairs_are_10_s_apart() -> None:
    at = iter(range(0, 10**12, 3 * 10**9))
    log = ClockLog(read=lambda: (now := next(at), now, 1))
    for _ in range(12):
        log.tick()
    assert [pair[0] // 10**9 for pair in log.pairs] == [0, 12, 24]


def test_pairs_survive_a_resume(tmp_path: Path) -> None:
    clock = FakeClock()
    first = ClockLog(read=clock.pair)
    first.take()
    first.write(tmp_path / "clocks.parquet")
    second = ClockLog.resumed(tmp_path / "clocks.parquet")
    assert second.pairs == first.pairs
    assert ClockLog.resumed(tmp_path / "none.parquet").pairs == []


def test_what_was_shed_voids_no_level(store: RunStore) -> None:
    engine = FakeEngine(outcomes={0: {"due": 4, "sent": 1, "outcomes": {"ok": 1, "shed": 3}}})
    sweep(engine, store).run(steps_of(Load(stages="4/s@1s")))
    assert states(store) == ["done"]


def test_steps_may_follow_from_the_levels_before_them(store: RunStore) -> None:
    load = Load(concurrencies=(1, 2, 4), passes=1)
    plans = steps_of(load)
    engine = FakeEngine()
    seen: list[ProgressEvent] = []
    asked: list[int] = []

    def follow() -> Step | None:
        asked.append(len(level_dirs(store.path)))
        return replace(plans[len(asked) - 1], search={"why": "grow"}) if len(asked) <= 3 else None

    sweep(engine, store, progress=seen.append).run([], follow)
    # Each is asked for when all before it are committed.
    assert asked == [0, 1, 2, 3]
    assert [read_level(folder)["search"] for folder in level_dirs(store.path)] == [{"why": "grow"}] * 3
    ends = [each for each in seen if each.kind == "level"]
    assert [(each.position, each.total, each.search) for each in ends] == [(k, 0, {"why": "grow"}) for k in (1, 2, 3)]


def test_nothing_follows_on_a_wish_to_stop(store: RunStore) -> None:
    switch = StopSwitch()
    engine = FakeEngine()
    engine.on_end = lambda _level: switch.ask()
    steps = iter(steps_of(Load(concurrencies=(1, 2), passes=1)))
    sweep(engine, store, switch).run([], lambda: next(steps, None))
    assert len(states(store)) == 1
