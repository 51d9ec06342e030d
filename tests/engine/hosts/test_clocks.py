"""Offset and drift of another clock from pings, on clocks that the test makes: the truth is within what is said."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusize.engine.hosts.clocks import STRETCH_NS, HostClock, Ping
from gpusize.engine.hosts.watch import AGENT_PATIENCE_S, HEAD_PATIENCE_S, pace_s

MS = 1_000_000
SECOND = 1_000_000_000
START = 3_600 * SECOND


@dataclass
class Link:
    """A host with another clock, and the way there and back; all in ns.

    Attributes:
        offset_ns: its clock less ours at `START`.
        drift: by which share it runs faster.
        there_ns: the least that the way there takes.
        back_ns: the least that the way back takes.
        jitter_ns: mean of what waits beside that, on either way.
    """

    offset_ns: float
    drift: float
    there_ns: float
    back_ns: float
    jitter_ns: float
    seed: int = 1

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def clock(self, at_ns: float) -> float:
        """Its clock at a moment of ours."""
        return at_ns + self.offset_ns + self.drift * (at_ns - START)

    def ping(self, at_ns: float) -> Ping:
        came = at_ns + self.there_ns + self._wait()
        left = came + 20_000
        back = left + self.back_ns + self._wait()
        return Ping(round(at_ns), round(self.clock(came)), round(self.clock(left)), round(back))

    def _wait(self) -> float:
        return self._random.expovariate(1 / self.jitter_ns) if self.jitter_ns else 0.0

    def known(self, span_ns: int) -> HostClock:
        """What pings over a span of time tell, at the pace of a head's."""
        clock, at_ns = HostClock(), START
        while at_ns < START + span_ns:
            clock.add(self.ping(at_ns))
            at_ns += round(SECOND * pace_s((at_ns - START) / SECOND))
        return clock


def off_by(clock: HostClock, link: Link, at_ns: int) -> tuple[float, float]:
    """By how much the reading is off at a moment, and what it says that it is off by at most."""
    found = clock.at(at_ns)
    assert found is not None
    return abs(at_ns + found.offset_ns - link.clock(at_ns)), found.uncertainty_ns


@pytest.mark.parametrize("offset_ms", [-200, 200])
@pytest.mark.parametrize("drift", [-50e-6, 0.0, 50e-6])
@pytest.mark.parametrize("way_ms", [0.02, 1, 20])
def test_a_start_is_right_to_a_millisecond_over_every_link(offset_ms: float, drift: float, way_ms: float) -> None:
    link = Link(offset_ms * MS, drift, way_ms * MS, way_ms * MS, 0.01 * way_ms * MS)
    clock = link.known(2 * SECOND)
    error, said = off_by(clock, link, START + 2 * SECOND + 200 * MS)
    assert error < 1 * MS
    assert error <= said
    # Half the round trip, and little beside it.
    assert said < way_ms * MS + 2 * MS


def test_a_drift_is_found_and_carried_on() -> None:
    link = Link(150 * MS, 50e-6, 1 * MS, 1 * MS, 20_000)
    clock = link.known(60 * SECOND)
    found = clock.at(START + 60 * SECOND)
    assert found is not None
    assert found.drift == pytest.approx(50e-6, abs=1e-6)
    error, said = off_by(clock, link, START + 120 * SECOND)
    assert error < 0.2 * MS
    assert error <= said


@settings(deadline=None, max_examples=150)
@given(
    offset_ms=st.floats(-200, 200),
    drift=st.floats(-100e-6, 100e-6),
    there_ms=st.floats(0.01, 25),
    back_ms=st.floats(0.01, 25),
    jitter=st.floats(0, 10),
    span_s=st.floats(0.2, 400),
    ahead_s=st.floats(-1, 20),
    seed=st.integers(0, 2**32),
)
def test_the_truth_is_within_what_is_said(
    offset_ms: float,
    drift: float,
    there_ms: float,
    back_ms: float,
    jitter: float,
    span_s: float,
    ahead_s: float,
    seed: int,
) -> None:
    """Also where one way takes longer than the other: no ping can tell that, so it is part of the bound."""
    link = Link(offset_ms * MS, drift, there_ms * MS, back_ms * MS, jitter * min(there_ms, back_ms) * MS, seed)
    clock = link.known(round(span_s * SECOND))
    error, said = off_by(clock, link, START + round((span_s + ahead_s) * SECOND))
    assert error <= said


def test_the_truth_is_within_what_is_said_where_even_the_fastest_ping_waited() -> None:
    """As on a machine whose cores are all taken: a level begins soon after its host has joined."""
    draws = random.Random(5)
    for seed in range(1_000):
        link = Link(0, 0.0, 20_000, 20_000, draws.uniform(40_000, 200_000), seed)
        span_ns, ahead_ns = round(draws.uniform(0.2, 2) * SECOND), round(draws.uniform(0, 1) * SECOND)
        error, said = off_by(link.known(span_ns), link, START + span_ns + ahead_ns)
        assert error <= said, seed


def test_one_way_that_is_slower_is_inside_the_bound_and_nearly_all_of_it() -> None:
    link = Link(0, 0.0, 20 * MS, 0.1 * MS, 0)
    error, said = off_by(link.known(5 * SECOND), link, START + 5 * SECOND)
    assert error == pytest.approx(9.95 * MS, rel=0.01)
    assert error <= said <= 1.1 * error


def test_a_busy_minute_does_not_move_the_line() -> None:
    quiet, busy = Link(5 * MS, 20e-6, MS, MS, 10_000), Link(5 * MS, 20e-6, MS, MS, 30 * MS, seed=2)
    clock = HostClock()
    for k in range(600):
        link = busy if 200 <= k < 500 else quiet
        clock.add(link.ping(START + k * 100 * MS))
    error, said = off_by(clock, quiet, START + 60 * SECOND)
    assert error < 0.1 * MS
    assert error <= said


def test_pings_that_are_rare_still_tell_the_clock_and_that_a_host_is_there() -> None:
    paces = [pace_s(k / 10) for k in range(36_000)]
    assert paces == sorted(paces)
    # Of each stretch there are several to choose from, and some may be lost before anybody is given up.
    assert 2 * paces[-1] * SECOND <= STRETCH_NS
    assert 5 * paces[-1] < AGENT_PATIENCE_S < HEAD_PATIENCE_S


def test_nothing_is_said_before_the_first_ping() -> None:
    assert HostClock().at(START) is None
    with pytest.raises(LookupError):
        HostClock().to_host(START)
