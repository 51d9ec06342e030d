"""Who ended a level: by itself, the user, a rule; while it sent, or while its last answers were awaited."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import polars as pl
import pytest

import gpusize
from gpusize.analysis.stop_cause import StopCause, stop_cause_of
from gpusize.base.interrupt import StopSwitch
from gpusize.engine.clock_log import ClockLog
from gpusize.measure.level_json import judge_level
from gpusize.measure.monitor import Stop
from gpusize.measure.recovery import finished_steps
from gpusize.measure.sweep import ProgressEvent, Step, Sweep
from gpusize.records.schema import OUTCOMES
from gpusize.records.store import RunStore, level_dirs, read_level
from gpusize.workload.load import Load
from tests.cli.conftest import chat
from tests.run.fakes import MS, FakeClock, FakeEngine, FakeLevel, outcome, write_part
from tests.servers.scripted import Request, Script, ScriptedServer, Wait
from tests.servers.scripted import Step as Answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusize.engine.session import Engine, LevelOutcome

RULE = Stop("errors", 3, "shed > 0 for 1s: 7 of 9 in the last 1 s ended as shed, too many for 1 s")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with RunStore.create(tmp_path, {"run": "r", "levels": []}) as made:
        yield made


class Draining(FakeLevel):
    """Has sent everything, and ends only when it is stopped: what it waited for is cut off."""

    def poll(self) -> dict[str, Any]:
        return {**super().poll(), "state": "draining"}

    def outcome(self) -> dict[str, Any]:
        self.reason = "duration"
        return super().outcome()


class Monitor:
    """Stands in for ``gpusize.measure.monitor.RunMonitor``: its rule comes true at the first look."""

    def look(self, *_: object) -> Stop:
        return RULE

    def ended(self, *_: object) -> None:
        """Nothing to be done."""


def swept(
    store: RunStore, level: type[FakeLevel], changed: Mapping[str, Any], *, rule: bool = False, share: float = 0.01
) -> list[dict[str, Any]]:
    """The levels of a sweep over one step, which is asked to end when it is first looked at."""
    switch, engine = StopSwitch(), FakeEngine(looks=9, outcomes={0: changed})
    engine.queue = lambda plan, **_: level(engine, plan)  # type: ignore[method-assign]

    def describe(step: Step, outcome: LevelOutcome, folder: Path, cause: StopCause) -> dict[str, Any]:
        return judge_level(step.setting, outcome, folder, max_error_share=share, cause=cause)

    def ask(_event: ProgressEvent) -> None:
        if not rule:
            switch.ask()

    load = Load(stages="4/s@1s")
    pairs = zip(load.settings(4), load.plans(4), strict=True)
    steps = [Step(index, setting, plan) for index, (setting, plan) in enumerate(pairs)]
    clocks = ClockLog(read=FakeClock().pair)
    running = Sweep(cast("Engine", engine), store, clocks, switch, 7 * MS, describe, ask)
    running.monitor = Monitor() if rule else None  # type: ignore[assignment]
    running.run(steps)
    return [read_level(folder) for folder in level_dirs(store.path)]


CUT: Mapping[str, Any] = {"due": 40, "sent": 30, "rows": 40, "outcomes": {"ok": 30, "cancelled": 10}}


def test_an_end_in_the_drain_makes_a_level_cancelled(store: RunStore, unsent: None) -> None:
    [level] = swept(store, Draining, CUT)
    assert (level["state"], level["stop_reason"]) == ("cancelled", "cancelled")
    assert level["alerts"][0] == "cut off while it drained: the user ended 10 of its 40 requests"
    assert finished_steps(store.path) == set()


def test_a_rule_in_the_drain_keeps_the_level_and_says_so(store: RunStore, unsent: None) -> None:
    [level] = swept(store, Draining, CUT, rule=True)
    assert (level["state"], level["stop_reason"]) == ("done", "errors")
    assert level["alerts"][0] == f"cut off while it drained: a rule ({RULE.text}) ended 10 of its 40 requests"
    assert finished_steps(store.path) == {0}


def test_a_drain_that_was_cut_off_after_all_that_counts_is_no_loss(tmp_path: Path) -> None:
    """Of 100 requests the last two were in flight, and due in the drain: the window has none of them."""
    names = ["ok"] * 98 + ["cancelled"] * 2
    (tmp_path / "records").mkdir()
    write_part(tmp_path / "records" / "part-00000.parquet", 0, names, 0)
    ended = {"due": 100, "sent": 100, "rows": 100, "stop_reason": "duration", "outcomes": {"ok": 98, "cancelled": 2}}
    setting = {"kind": "open", "rate": 100.0, "process": "constant", "duration_s": 1.0}
    cause = StopCause("user", "cancelled", "", draining=True)
    # One residence is 10 ms: the drain begins at 975 ms, and the two were due at 980 and 990 ms.
    facts = outcome(0, **ended, close_ns=985 * MS, end_ns=1100 * MS)
    level = judge_level(setting, cast("LevelOutcome", facts), tmp_path, max_error_share=0.01, cause=cause)
    assert (level["state"], level["stop_reason"]) == ("done", "duration")
    [alert] = level["alerts"]
    assert alert.startswith("cut off while it drained: the user ended 2 of its 100 requests, none of which counts")


def test_nothing_was_cut_off_where_all_had_ended(store: RunStore) -> None:
    [level] = swept(store, Draining, {})
    assert (level["state"], level["stop_reason"]) == ("done", "duration")
    assert not any("cut off" in text for text in level["alerts"])


def test_a_rule_about_failures_ends_the_run_and_voids_nothing(store: RunStore) -> None:
    shed = {"due": 213, "sent": 13, "rows": 213, "outcomes": {"ok": 10, "shed": 150, "cancelled": 53}}
    [level] = swept(store, FakeLevel, shed, rule=True)
    assert (level["state"], level["stop_reason"]) == ("done", "errors")
    assert level["alerts"][0] == f"ended early: {RULE.text}"


def test_only_the_error_rate_voids(store: RunStore) -> None:
    error = {"id": 0, "outcome": "timeout", "status": None, "message": "late", "count": 4}
    cut = {"id": 1, "outcome": "cancelled", "status": None, "message": "ended by the user", "count": 53}
    failed = {"outcomes": {"ok": 6, "timeout": 4, "shed": 50, "cancelled": 53}, "errors": [error, cut]}
    [level] = swept(store, FakeLevel, {**failed, "due": 113, "rows": 113}, rule=True)
    assert (level["state"], level["stop_reason"]) == ("interrupted", "errors")
    # What was shed or cancelled was not sent, or counts nowhere.
    assert level["alerts"][0] == "interrupted: 4 of 10 requests failed (4 x timeout: late)"
    assert level["alerts"][1] == f"ended early: {RULE.text}"


def test_a_rule_that_ends_a_level_before_anything_was_answered_leaves_it_to_be_measured(store: RunStore) -> None:
    [level] = swept(store, FakeLevel, {"due": 9, "sent": 2, "rows": 9, "outcomes": {"cancelled": 9}}, rule=True)
    assert (level["state"], level["stop_reason"]) == ("cancelled", "errors")
    assert level["alerts"][0] == f"ended early: {RULE.text}"
    assert finished_steps(store.path) == set()


def test_a_level_that_was_void_when_the_rule_came_true_stays_void() -> None:
    told = cast("LevelOutcome", outcome(0, stop_reason="errors"))
    assert stop_cause_of(told, user=False, rule=RULE, sending=False) == StopCause()
    assert stop_cause_of(told, user=False, rule=RULE, sending=True).by == "rule"
    assert stop_cause_of(told, user=True, rule=None, sending=True) == StopCause()


@pytest.mark.parametrize("reason", ["stopped", "cancelled"])
def test_a_level_that_the_user_ended_while_it_sent(reason: str) -> None:
    told = cast("LevelOutcome", outcome(0, stop_reason=reason))
    assert stop_cause_of(told, user=True, rule=None, sending=True) == StopCause("user", reason)
    assert stop_cause_of(told, user=False, rule=None, sending=True) == StopCause()


@pytest.fixture
def unsent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that are cancelled have not been sent."""

    def write(file: Path, visit: int, names: Sequence[str], start_ns: int) -> None:
        write_part(file, visit, names, start_ns)
        sent = pl.when(pl.col("outcome") != OUTCOMES.index("cancelled")).then(pl.col("sent_ns"))
        pl.read_parquet(file).with_columns(sent.alias("sent_ns")).write_parquet(file)

    monkeypatch.setattr("tests.run.fakes.write_part", write)


def test_the_engine_is_asked_to_end_while_requests_wait(
    tmp_path: Path, scripted_server: Callable[[Script], ScriptedServer]
) -> None:
    """All are due and two are with a server that never answers, when the user asks for the end."""
    switch, never = StopSwitch(), threading.Event()

    def script(_request: Request) -> Sequence[Answer]:
        return chat(_request) if len(server.requests) <= 1 else [Wait(never)]

    def ask(event: ProgressEvent) -> None:
        if event.progress["state"] == "draining" and not switch.asked:
            switch.ask()

    server = scripted_server(script)
    load = Load(rates=(200.0,), duration_s=0.3, connections=2, drain_s=0.1, process="constant")
    target = gpusize.Target(f"http://127.0.0.1:{server.port}/v1", model="m", stream=False)
    dataset = gpusize.Dataset.from_prompt("x")
    try:
        result = gpusize.run(target, dataset, load, out=tmp_path, stop=switch, progress=ask)
    finally:
        never.set()
    [level] = result.levels
    assert (level.state, level.meta["stop_reason"]) == ("cancelled", "cancelled")
    due = level.meta["due"]
    assert level.meta["outcomes"] == {"cancelled": due}
    assert level.meta["alerts"][0] == f"cut off while it drained: the user ended {due} of its {due} requests"
    text = result.summary["delivery"].item()
    assert f"2 of {due} requests were sent: {due - 2} were never sent: the user ended the run" in text
    assert finished_steps(result.path) == set()
