"""The search for the fewest replicas, over replicas of which every attainment is known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusize.estimate.twin.fewest_replicas import ROUGHLY, Counter
from gpusize.estimate.twin.load import ClusterLoad

TARGET = 0.95


@dataclass(frozen=True)
class Known:
    """A run of which every attainment is known."""

    replica: Lognormal
    load: float
    replicas: int
    runtime_s: float = 1.0

    @property
    def in_flight(self) -> float:
        return self.load

    def share(self, number: int, stretch: float) -> float:
        return self.replica.share(self.load, self.replicas, stretch)


@dataclass(eq=False)
class Lognormal:
    """Times are lognormal about a power of the requests in flight on each replica."""

    power: float = 1.0
    spread: float = 0.3
    certain: bool = True
    most_per_s: float = math.inf
    patience_s: float = 0.0
    factors: tuple[float, ...] = (1.0,)

    def share(self, load: float, replicas: int, stretch: float) -> float:
        return NormalDist(0.0, self.spread).cdf(math.log(stretch) - self.power * math.log(load / replicas / 10))

    def run(self, asked: ClusterLoad, replicas: int, *, seed: int = 1, requests: int | None = None) -> Known:
        return Known(self, asked.load, replicas)

    def at_work_s(self, asked: ClusterLoad, replicas: int) -> float:
        return 1.0

    residence_s = scaled = tokens = None


def counter_of(replica: Any, users: float) -> Counter:
    return Counter(replica, ClusterLoad(users=users), [TARGET])


def by_counting(replica: Lognormal, users: float, stretch: float) -> int:
    """One replica after the other, with nothing but the attainment."""
    n = 1
    while replica.share(users, n, stretch) < TARGET:
        n += 1
    return n


def found_by(counter: Counter) -> int:
    found = counter.fewest(counter.asked.load / 10)
    assert found is not None
    return found


POWERS, SPREADS = st.floats(0.3, 3), st.floats(0.05, 0.8)
USERS, STRETCHES = st.integers(1, 3_000), st.floats(0.7, 1.5)


@given(POWERS, SPREADS, USERS, STRETCHES, st.floats(0.3, 4), st.booleans())
def test_it_is_the_count_that_counting_finds(power, spread, users, stretch, off, near):
    replica = Lognormal(power, spread, factors=(stretch,))
    right = by_counting(replica, users, stretch)
    assert counter_of(replica, users).fewest(off * right, near=near) == right


@given(POWERS, SPREADS, USERS, STRETCHES, st.floats(0.3, 4))
def test_roughly_it_is_at_most_so_much_more(power, spread, users, stretch, off):
    replica = Lognormal(power, spread, factors=(stretch,))
    right = by_counting(replica, users, stretch)
    found = counter_of(replica, users).fewest(off * right, close=ROUGHLY)
    assert right <= found <= max(right, right * (1 + ROUGHLY) + 1)


@given(POWERS, SPREADS, USERS, st.floats(-1, 1))
def test_a_lighter_load_is_a_load(power, spread, users, lighter):
    replica = Lognormal(power, spread)
    load = users * math.exp(-lighter)
    assert counter_of(replica, users).fewest(load / 4, lighter) == by_counting(replica, load, 1.0)


def test_the_most_that_is_tried_is_tried():
    """983 lie between 520, the last that doubling from 9 comes to, and 64 times 16."""
    assert by_counting(Lognormal(), 6_000, 1.0) == 983
    assert counter_of(Lognormal(), 6_000).fewest(9) == 983


def test_a_guess_from_nearby_takes_few_runs():
    """Of 983 replicas: both neighbours of the answer, and one or two where the line meets the target."""
    for guess in (983, 993):
        counter = counter_of(Lognormal(), 6_000)
        assert counter.fewest(guess, near=True) == 983
        assert counter.runs <= 4


def test_none_where_no_number_is_enough():
    class Never(Lognormal):
        def share(self, load: float, replicas: int, stretch: float) -> float:
            return 0.5

    assert counter_of(Never(), 100).fewest(5) is None
    assert counter_of(Never(), 100).fewest(math.inf) is None


@given(POWERS, st.floats(0.05, 0.4), st.integers(40, 3_000))
def test_the_unrounded_count_is_where_the_law_crosses_the_target(power, spread, users):
    replica = Lognormal(power, spread)
    counter = counter_of(replica, users)
    each = 10 * math.exp(-spread * NormalDist().inv_cdf(TARGET) / power)
    found = counter.raw(found_by(counter))
    # Users are whole.
    assert found == pytest.approx(users / each, rel=0.004 + 1 / users)


@given(st.floats(0.5, 3), st.floats(0.05, 0.4), st.integers(200, 3_000), st.floats(0.01, 0.2))
def test_sides_are_those_of_the_law(power, spread, users, reach):
    counter = counter_of(Lognormal(power, spread), users)
    for side in counter.sides(found_by(counter), reach):
        # n goes with the bound to the power of -1 / power.
        assert side == pytest.approx(reach / power, abs=0.004 + 2 / users)


def test_a_side_is_infinite_where_no_number_is_enough():
    class Floor(Lognormal):
        def share(self, load: float, replicas: int, stretch: float) -> float:
            return super().share(load, replicas, stretch) if stretch >= 1 else 0.5

    counter = counter_of(Floor(), 300)
    below, above = counter.sides(found_by(counter), 0.05)
    assert math.isfinite(below)
    assert above == math.inf


@pytest.mark.parametrize("users", [0.3, 1.0, 1.5])
def test_part_of_a_user_has_sides_too(users):
    """There is no load below one user, and where even that is too slow, no side."""
    counter = counter_of(Lognormal(1.0, 0.3), users)
    assert counter.fewest(1) == 1
    tight = math.log(users / 10) + 0.3 * NormalDist().inv_cdf(TARGET) - 0.5
    assert counter.carried(1, tight) is None
    assert counter.sides(1, 0.1)[0] == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("power", [1e-9, 1e-6, 1e-3])
def test_times_that_hardly_grow_leave_the_ends_open(power: float) -> None:
    """The line through two loads meets the bounds at none that a double holds."""
    for replicas in (1, 3):
        counter = counter_of(Lognormal(power, spread=0.05), 300)
        assert all(half >= 0 for half in counter.sides(replicas, 0.2))
