"""Blocks: correlation lengths against closed forms, means by loops, and lengths that only grow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusize.analysis.detect.blocks import lag1
from gpusize.analysis.proof.blocks import block_length, block_means, correlation_length
from tests.proof.queues import ar1, mm1


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9, 0.98])
def test_the_correlation_length_of_an_autoregression_is_known(phi: float) -> None:
    """(1 + phi) / (1 - phi), which is the sum over all lags."""
    found = [correlation_length([ar1(phi, 0.5, 40_000, seed)[1]]) for seed in range(8)]
    assert np.mean(found) == pytest.approx((1 + phi) / (1 - phi), rel=0.1)


def test_parts_count_together_and_no_lag_reaches_over_a_gap() -> None:
    values = ar1(0.9, 0.5, 60_000, 1)[1]
    assert correlation_length(list(np.split(values, 12))) == pytest.approx(19, rel=0.25)
    assert correlation_length([np.ones(50)]) == 1.0
    assert correlation_length([]) == 1.0


@given(st.lists(st.lists(st.integers(0, 1), max_size=30), max_size=4), st.integers(1, 9))
def test_means_of_blocks_by_loops(parts: list[list[int]], length: int) -> None:
    wanted = []
    for part in parts:
        rest = list(part)
        while len(rest) >= length:
            wanted.append(sum(rest[:length]) / length)
            rest = rest[length:]
    assert block_means(parts, length).tolist() == pytest.approx(wanted)


@pytest.mark.parametrize("made", [lambda seed: ar1(0.95, 0.9, 40_000, seed), lambda seed: mm1(0.8, 0.9, 40_000, seed)])
def test_blocks_say_little_of_each_other(made: object) -> None:
    assert callable(made)
    found = []
    for seed in range(10):
        within, runtimes = made(seed)
        length = block_length([within], [runtimes])
        assert length > 10
        found.append(lag1(block_means([within], length)))
    assert np.mean(found) < 0.12, "single requests: more than 0.5"


def test_a_block_does_not_become_shorter_again() -> None:
    within, runtimes = ar1(0.0, 0.9, 5_000, 1)
    assert block_length([within], [runtimes]) < 40
    assert block_length([within], [runtimes], 40) == 40
