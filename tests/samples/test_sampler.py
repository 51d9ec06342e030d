from __future__ import annotations

import pytest

from gpusize.observe.metrics.buffer import ReadingBuffer
from gpusize.observe.metrics.reading import Reading
from gpusize.observe.metrics.sampler import MOST_CPU, Sampler, next_due
from tests.samples.sources import Clock, S, Scripted, failed

NEVER_S = 1e6
A, B = ("a", ""), ("b", 'k="v"')


def values(buffer: ReadingBuffer, start_ns: int = 0) -> list[tuple[int, str, float]]:
    frame = buffer.take(start_ns)
    return [row for row in frame.select("t_ns", "metric", "value").iter_rows() if row[1] in "ab"]


def test_readings_asked_for_are_taken_and_kept():
    clock = Clock(5)
    source = Scripted(clock, {A: 1.0}, {A: 2.0, B: 3.0}, name="here")
    sampler = Sampler(source, NEVER_S, clock)
    sampler.start()
    clock.now_ns = 7
    assert sampler.wait(sampler.ask(), 30)
    sampler.stop()
    frame = sampler.buffer.take(0)
    assert frame.columns == ["t_ns", "source", "metric", "labels", "value"]
    assert frame["source"].unique().to_list() == ["here"]
    assert frame.filter(metric="b").rows() == [(7, "here", "b", 'k="v"', 3.0)]
    assert frame.filter(metric="up")["value"].to_list() == [1, 1]
    assert frame.filter(metric="scrape_duration_seconds")["value"].to_list() == [0.002, 0.002]
    assert source.closed
    assert sampler.facts()["readings"] == 2


def test_a_reading_that_fails_is_counted_and_the_next_one_is_taken():
    clock = Clock()
    sampler = Sampler(Scripted(clock, {A: 1.0}, failed("no route"), ValueError("odd\x1b"), {A: 4.0}), NEVER_S, clock)
    sampler.start()
    said = []
    for at in (1, 2, 3):
        clock.now_ns = at
        assert sampler.wait(sampler.ask(), 30)
        said.append(sampler.last_failure)
    sampler.stop()
    assert (sampler.readings, sampler.failures) == (2, 2)
    assert said == ["no route", "ValueError: odd\\x1b", "ValueError: odd\\x1b"]
    frame = sampler.buffer.take(0)
    assert frame.filter(metric="up").select("t_ns", "value").rows() == [(0, 1), (1, 0), (2, 0), (3, 1)]
    assert frame.filter(metric="a")["value"].to_list() == [1, 4]


def test_a_source_that_gives_up_for_good_is_left_alone():
    clock = Clock()
    source = Scripted(clock, {A: 1.0}, failed("not allowed", final=True))
    sampler = Sampler(source, NEVER_S, clock)
    sampler.start()
    assert sampler.wait(sampler.ask(), 30)
    # The thread has ended, so that this one is not served, and it does not take its time either.
    assert not sampler.wait(sampler.ask(), 30)
    assert source.asked == 2
    sampler.stop()


def test_due_times_that_pass_during_a_reading_are_missed():
    clock = Clock()

    def long_reading() -> None:
        if source.asked == 1:
            clock.now_ns = round(4.5 * S)

    source = Scripted(clock, {A: 1.0}, before=long_reading)
    sampler = Sampler(source, 1.0, clock)
    sampler.start()
    assert sampler.wait(sampler.ask(), 30)
    sampler.stop()
    # Due at 1 s, read until 4.5 s: those at 2, 3 and 4 s passed; the next is due at 5 s.
    assert sampler.missed == 3


def test_the_schedule_goes_on_by_itself():
    clock = Clock()
    third = Scripted(clock, {A: 1.0})
    sampler = Sampler(third, 0.001)
    sampler.start()
    for _ in range(3):
        assert sampler.wait(sampler.ask(), 30)
    sampler.stop()
    assert sampler.readings >= 4


def test_stopping_twice_and_before_the_start_is_safe():
    sampler = Sampler(Scripted(Clock(), {A: 1.0}), NEVER_S, Clock())
    sampler.stop()
    sampler.stop()


def buffer_with(*times: int) -> ReadingBuffer:
    buffer = ReadingBuffer("s")
    for at in times:
        buffer.add(Reading(at, 0, {A: float(at)}))
    return buffer


def test_a_level_takes_its_readings_and_the_last_before():
    buffer = buffer_with(1, 2, 3)
    assert [row[0] for row in values(buffer, 2)] == [1, 2, 3]
    for at in (4, 5):
        buffer.add(Reading(at, 0, {A: float(at)}))
    # The next level began at 3, before this one ended: what both need is in both, what is older is gone.
    assert [row[0] for row in values(buffer, 3)] == [3, 4, 5]


def test_readings_between_levels_are_never_lost():
    buffer = buffer_with(1, 2)
    assert [row[0] for row in values(buffer, 1)] == [1, 2]
    for at in (3, 4, 5, 6):
        buffer.add(Reading(at, 0, {A: float(at)}))
    assert [row[0] for row in values(buffer, 6)] == [3, 4, 5, 6]


def test_series_may_come_and_go():
    buffer = ReadingBuffer("s")
    buffer.add(Reading(1, 0, {A: 1.0}))
    buffer.add(Reading(2, 0, {B: 2.0, A: 3.0}))
    buffer.add(Reading(3, 0, {}))
    assert values(buffer) == [(1, "a", 1.0), (2, "b", 2.0), (2, "a", 3.0)]


def test_an_empty_buffer_gives_an_empty_frame():
    buffer = ReadingBuffer("s")
    assert buffer.last_ns() is None
    assert buffer.take(0).columns == ["t_ns", "source", "metric", "labels", "value"]


@pytest.mark.parametrize("start_ns", [0, 10])
def test_taking_twice_gives_what_is_still_needed(start_ns: int):
    buffer = buffer_with(1, 2)
    first = values(buffer, start_ns)
    assert [row[0] for row in first] == [1, 2]
    assert [row[0] for row in values(buffer, start_ns)] == ([1, 2] if start_ns == 0 else [2])


def test_a_page_that_takes_long_to_read_is_read_less_often() -> None:
    """300,000 series cost half a second of CPU each second, and two levels of 4 s took 45 s."""
    second = 10**9
    assert next_due(second, second + 9, second // 100, second) == (2 * second, 0)
    assert next_due(second, 3 * second + 9, 0, second) == (4 * second, 2), "slow, but not by work of ours"
    due_ns, busy_ns, now_ns, left_out = second, 0, 0, 0
    for _ in range(100):
        now_ns = due_ns + 600_000_000
        busy_ns += 600_000_000
        due_ns, missed = next_due(due_ns, now_ns, 600_000_000, second)
        left_out += missed
    assert busy_ns / due_ns <= MOST_CPU
    assert left_out == due_ns // second - 1 - 100
