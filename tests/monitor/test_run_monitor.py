"""What the sweep shows the monitor, and what it hears back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from gpusize.base.errors import UsageError
from gpusize.measure.monitor import RunMonitor, parse_rules
from gpusize.measure.monitor.run_counts import RunTally
from tests.monitor.seconds import second

S = 1_000_000_000
SETTING = {"kind": "open", "rate": 100.0}


@dataclass
class Level:
    """A level that runs on a made-up clock."""

    visit: int
    start_ns: int
    rows: list[dict[str, Any]]
    asked: list[int] = field(default_factory=list)

    def seconds(self, after: int) -> Sequence[dict[str, Any]]:
        self.asked.append(after)
        return [row for row in self.rows if row["second"] >= after]

    def progress(self, now_ns: int) -> dict[str, Any]:
        done = sum(row["done"] for row in self.rows)
        facts = {"state": "running", "elapsed_ns": now_ns - self.start_ns, "due": done, "sent": done}
        return {**facts, "ok": done, "failed": {}, "in_flight": 8, "cpu_share": 0.2, "connects": 8}

    def outcome(self, end_ns: int) -> dict[str, Any]:
        done = sum(row["done"] for row in self.rows)
        return {"start_ns": self.start_ns, "end_ns": end_ns, "due": done, "sent": done, "outcomes": {"ok": done}}


def test_rules_hold_across_levels_and_each_second_is_read_once() -> None:
    now = [0]
    tally = RunTally(levels=2)
    monitor = RunMonitor(parse_rules(["p99 ttft > 2s for 15s"]), tally, clock=lambda: now[0])
    first, next_one = Level(1, 0, []), Level(2, 10 * S, [])
    stops = []
    for tick in range(200):
        now[0] = tick * S // 10
        level = first if tick < 100 else next_one
        if tick % 10 == 0 and tick:
            begun = first if tick <= 100 else next_one
            begun.rows.append(second(len(begun.rows), ok=90, slow=10))
        if tick == 100:
            monitor.ended(first, first.outcome(10 * S))
        stops.append(monitor.look(level, level.visit, SETTING, level.progress(now[0])))
    stop = monitor.stop
    assert stop is not None
    assert (stop.reason, stop.second) == ("slo", 14)
    assert stops.index(stop) == 150, "told with the second that decides"
    assert first.asked == [0, *range(10)], "once a second, each second once"
    view = tally.view()
    assert (view.stopped, view.level, view.finished) == ("slo", 2, False)
    assert view.outcomes["ok"] == view.counts["sent"] == 1900
    assert view.histograms["ttft"].cumulative()[-1][1] == 1900
    assert view.cpu_s == pytest.approx(0.19)


def test_a_level_that_has_not_begun_is_left_alone() -> None:
    level = Level(1, 0, [])
    monitor = RunMonitor(parse_rules(["saturation"]), clock=lambda: 0)
    assert monitor.look(level, 1, SETTING, {"state": "queued"}) is None
    assert level.asked == []


def test_nothing_is_read_when_nobody_watches() -> None:
    level = Level(1, 0, [])
    monitor = RunMonitor(clock=lambda: 0)
    monitor.look(level, 1, SETTING, level.progress(S))
    monitor.ended(level, level.outcome(S))
    assert level.asked == []


@dataclass
class Mute:
    visit: int = 1


def test_an_engine_that_tells_no_seconds_has_counts_and_no_rules() -> None:
    progress = {"state": "running", "elapsed_ns": S, "due": 5, "sent": 4, "ok": 2, "failed": {"timeout": 1}}
    with pytest.raises(UsageError, match="does not report"):
        RunMonitor(parse_rules(["saturation"]), clock=lambda: 0).look(Mute(), 1, SETTING, progress)  # type: ignore[arg-type]
    tally = RunTally()
    RunMonitor(tally=tally, clock=lambda: 0).look(Mute(), 1, SETTING, progress)  # type: ignore[arg-type]
    assert tally.view().outcomes == {"ok": 2, "timeout": 1}


class Door:
    def __init__(self, tally: RunTally) -> None:
        self.tally = tally
        self.finished = False

    def close(self) -> None:
        self.finished = self.tally.view().finished


def test_what_shows_it_ends_after_the_last_word() -> None:
    tally = RunTally()
    door = Door(tally)
    with pytest.raises(KeyboardInterrupt), RunMonitor(tally=tally, closing=[door]):
        raise KeyboardInterrupt
    assert door.finished
