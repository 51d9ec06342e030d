"""The server's clock, told by whole seconds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpusize.cluster.watch.clock_offset import SECOND_NS, ClockOffset

MS = 1_000_000


def answer(offset: ClockOffset, sent_ns: int, there_ns: int, back_ns: int, ahead_ns: int) -> int:
    """Send at this time by our clock; the server is ahead. When the answer is read."""
    handled = sent_ns + there_ns
    offset.add(sent_ns, handled + back_ns, (handled + ahead_ns) // SECOND_NS)
    return handled + back_ns


@given(
    st.integers(-(10**13), 10**13),
    st.lists(st.tuples(st.integers(0, 5 * SECOND_NS), st.integers(0, 80 * MS), st.integers(0, 80 * MS)), min_size=1),
)
def test_the_bounds_always_hold_the_truth(ahead_ns: int, requests: list[tuple[int, int, int]]) -> None:
    offset, now = ClockOffset(), 1_795_825_000 * SECOND_NS
    for pause_ns, there_ns, back_ns in requests:
        now = answer(offset, now + pause_ns, there_ns, back_ns, ahead_ns)
        assert offset.lo is not None
        assert offset.hi is not None
        assert offset.lo <= ahead_ns <= offset.hi
    assert offset.steps == 0
    assert offset.n == len(requests)


@given(st.integers(-(10**13), 10**13), st.integers(0, SECOND_NS), st.integers(100_000, 10 * MS))
def test_a_dozen_well_timed_requests_leave_little(ahead_ns: int, start_ns: int, one_way_ns: int) -> None:
    offset, now = ClockOffset(), 1_795_825_000 * SECOND_NS + start_ns
    for _ in range(14):
        now = offset.next_ns(now, offset.narrowest if offset.n else 0)
        now = answer(offset, now, one_way_ns, one_way_ns, ahead_ns)
    assert offset.lo is not None
    assert offset.hi is not None
    assert offset.hi - offset.lo <= 2 * one_way_ns + 2 * MS


def test_it_never_waits_for_more_than_a_second() -> None:
    offset = ClockOffset()
    assert offset.next_ns(5) == 5
    offset.add(0, 1000, 7)
    assert 0 <= offset.next_ns(123_456_789) - 123_456_789 < SECOND_NS


def test_a_clock_that_is_set_begins_anew_and_is_counted() -> None:
    offset, now = ClockOffset(), 1_795_825_000 * SECOND_NS
    for _ in range(5):
        now = answer(offset, now + SECOND_NS // 3, MS, MS, 0)
    answer(offset, now + SECOND_NS, MS, MS, 60 * SECOND_NS)
    assert offset.steps == 1
    assert offset.n == 1
    assert offset.document() is not None
    assert offset.lo is not None
    assert offset.lo > 58 * SECOND_NS


def test_nothing_is_known_before_the_first_answer() -> None:
    assert ClockOffset().document() is None
    assert ClockOffset().middle is None
