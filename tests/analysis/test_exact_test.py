"""The exact test against whole numbers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusize.analysis.exact_test import chance_of_as_many


@given(st.integers(1, 60), st.integers(1, 60), st.data())
def test_the_chance_is_that_of_draws_without_putting_back(ended: int, lower: int, data: st.DataObject) -> None:
    """By whole numbers: all the ways in which the failures lie among the requests."""
    here, there = data.draw(st.integers(0, ended)), data.draw(st.integers(0, lower))
    ways = sum(
        math.comb(ended, k) * math.comb(lower, here + there - k) for k in range(here, min(ended, here + there) + 1)
    )
    exact = ways / math.comb(ended + lower, here + there)
    assert chance_of_as_many(here, ended, here + there, ended + lower) == pytest.approx(exact, rel=1e-6, abs=1e-12)


def test_the_chance_of_a_million_requests_takes_no_time() -> None:
    assert chance_of_as_many(60_000, 1_000_000, 110_000, 2_000_000) < 1e-9
    assert chance_of_as_many(55_000, 1_000_000, 110_000, 2_000_000) == pytest.approx(0.5, abs=0.01)
