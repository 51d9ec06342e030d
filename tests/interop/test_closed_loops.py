"""Little's law over the figures of a finite closed loop: what a loop that ends gives is no contradiction."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np
import pytest
from numpy.random import Generator

from gpusize.studies.imports.figure_levels import Remarks

TIMES: dict[str, Callable[[Generator], float]] = {
    "constant": lambda _rnd: 0.1,
    "uniform": lambda rnd: float(rnd.uniform(0.05, 0.15)),
    "exponential": lambda rnd: float(rnd.exponential(0.1)),
    "heavy": lambda rnd: float(rnd.lognormal(-3, 1.2)),
}


def loop(users: int, requests: int, draw: Callable[[Generator], float], rnd: Generator) -> tuple[np.ndarray, float]:
    """Times of the requests of a loop that ends after so many, and how long it took, to the last answer."""
    free = [0.0] * users
    took = []
    for _ in range(requests):
        start = heapq.heappop(free)
        took.append(draw(rnd))
        heapq.heappush(free, start + took[-1])
    return np.array(took), max(free)


def flags(took: np.ndarray, seconds: float, users: int, others: int = 0) -> list[str]:
    remarks = Remarks()
    mean_s, longest_s = float(took.mean()), float(took.max())
    remarks.little(took.size / seconds, mean_s, users, longest_s=longest_s, seconds=seconds, others=others)
    return remarks.flags


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("rounds", [1, 2, 5, 20])
@pytest.mark.parametrize("users", [1, 2, 8, 32])
def test_a_loop_that_ends_is_not_flagged(name: str, rounds: int, users: int):
    rnd = np.random.default_rng(rounds * 100 + users)
    for _ in range(40):
        took, seconds = loop(users, users * rounds, TIMES[name], rnd)
        assert flags(took, seconds, users) == []


@pytest.mark.parametrize("name", ["uniform", "exponential"])
def test_without_its_end_a_short_loop_would_be_flagged(name: str):
    rnd = np.random.default_rng(1)
    loops = [loop(8, 40, TIMES[name], rnd) for _ in range(40)]
    bare = []
    for took, seconds in loops:
        remarks = Remarks()
        remarks.little(took.size / seconds, float(took.mean()), 8)
        bare.append(remarks.flags)
    assert bare.count(["little"]) > 20


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("users", [2, 8, 32])
def test_half_and_twice_the_users_are_flagged(name: str, users: int):
    rnd = np.random.default_rng(users)
    for _ in range(20):
        took, seconds = loop(users, users * 40, TIMES[name], rnd)
        assert flags(took, seconds, users // 2) == ["little"]
        if took.max() < 0.2 * seconds:
            assert flags(took, seconds, users * 2) == ["little"]


def test_failures_hold_places_too():
    rnd = np.random.default_rng(3)
    took, seconds = loop(4, 200, TIMES["uniform"], rnd)
    failed = rnd.random(took.size) < 0.2
    assert flags(took[~failed], seconds, 4) == ["little"]
    assert flags(took[~failed], seconds, 4, others=int(failed.sum())) == []
