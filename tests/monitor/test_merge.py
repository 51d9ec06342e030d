"""Seconds of levels that overlap become seconds of the run."""

from __future__ import annotations

from gpusize.measure.monitor.run_seconds import SecondsOfRun
from tests.monitor.seconds import second

S = 1_000_000_000


def numbers(rows: list) -> list[int]:
    return [row["second"] for row in rows]


def test_one_level_is_given_out_as_it_comes() -> None:
    run = SecondsOfRun()
    run.level("a", 5 * S, 2.5, [second(0, ok=3), second(1, ok=4)])
    first = run.complete()
    assert [(row["second"], row["outcomes"]["ok"], row["in_flight"]) for row in first] == [(0, 3, 8), (1, 4, 8)]
    assert run.complete() == []


def test_a_level_that_drains_adds_to_the_next() -> None:
    run = SecondsOfRun()
    run.level("a", 0, 10.0, [second(n, ok=1) for n in range(10)])
    assert numbers(run.complete()) == list(range(10))
    run.level("a", 0, 12.0, [second(10, ok=1, ms=9000), second(11, ok=1, ms=9000)])
    run.level("b", 10 * S, 1.2, [second(0, ok=5, timeout=1)])
    [both] = run.complete()
    assert (both["second"], both["outcomes"], both["in_flight"]) == (10, {"ok": 6, "timeout": 1}, 16)
    assert both["times"]["ttft"] == [[9 * S, 9 * S, 1], [S // 10, S // 10, 5]]
    run.ended("a")
    run.level("b", 10 * S, 3.0, [second(1, ok=5), second(2, ok=5)])
    assert [(row["second"], row["done"]) for row in run.complete()] == [(11, 6), (12, 5)]


def test_seconds_without_an_event_keep_what_is_in_flight() -> None:
    run = SecondsOfRun()
    run.level("a", 0, 1.0, [second(0, ok=1, in_flight=7, waiting=2)])
    run.level("a", 0, 10.0, [second(4, ok=1)])
    rows = run.complete()
    assert numbers(rows) == list(range(7)), "up to three seconds ago"
    assert [(row["in_flight"], row["waiting"], row["done"]) for row in rows[1:4]] == [(7, 2, 0)] * 3
    run.level("a", 0, 10.0, [second(5, ok=9), second(8, ok=2)])
    assert [(row["second"], row["done"]) for row in run.complete()] == [(7, 0), (8, 2)], "what comes too late is left"


def test_a_pause_between_levels_is_no_second_of_the_run() -> None:
    run = SecondsOfRun()
    run.level("a", 0, 2.0, [second(0, ok=1), second(1, ok=1)])
    run.ended("a")
    assert numbers(run.complete()) == [0, 1]
    run.level("b", 7 * S, 1.0, [second(0, ok=1)])
    assert numbers(run.complete()) == [7]
