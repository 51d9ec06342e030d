"""The machine's time, and loops that go by a clock."""

from __future__ import annotations

import threading
import time

import pytest

from gpusize.base.clock import MACHINE
from gpusize.engine.session import monotonic_ns
from tests.virtual_time import VirtualClock


def test_the_machines_time_is_the_engines() -> None:
    before_ns = monotonic_ns()
    now_ns, now_s = MACHINE.now_ns(), MACHINE.now_s()
    assert before_ns <= now_ns <= monotonic_ns()
    assert now_ns <= now_s * 1e9 + 1e3
    assert now_s <= time.monotonic()


def test_the_machine_lets_time_pass_and_wakes_whoever_waits() -> None:
    event = threading.Event()
    before_ns = monotonic_ns()
    assert not MACHINE.wait(event, 0.01)
    MACHINE.sleep(0.01)
    assert monotonic_ns() - before_ns >= 20_000_000
    threading.Timer(0.01, event.set).start()
    assert MACHINE.wait(event, 600)
    assert monotonic_ns() - before_ns < 500_000_000_000


def repeated(took_s: list[float], end_s: float) -> list[float]:
    """When something was done each 15 s that takes so long each time, and then no time, until it ends."""
    clock, stop, at_s = VirtualClock(), threading.Event(), list[float]()

    def act() -> None:
        at_s.append(clock.passed_s)
        clock.advance(round((took_s.pop(0) if took_s else 0) * 1e9))

    clock.at(end_s, stop.set)
    clock.repeat(15.0, stop, act)
    assert stop.is_set()
    return at_s


def test_repeats_come_each_so_often_until_the_end() -> None:
    assert repeated([], 70.0) == [15.0, 30.0, 45.0, 60.0]
    assert repeated([], 10.0) == []


@pytest.mark.parametrize(
    "took_s, at_s",
    [
        # A while: the next ones are due when they were due.
        ([4.0], [15.0, 30.0, 45.0, 60.0, 75.0, 90.0]),
        # From 15 to 52 s: what was due meanwhile comes once, at once, and the next one 15 s after that.
        ([37.0], [15.0, 52.0, 67.0, 82.0, 97.0]),
    ],
)
def test_what_takes_long_delays_what_comes_after_it(took_s: list[float], at_s: list[float]) -> None:
    assert repeated(took_s, 100.0) == at_s
