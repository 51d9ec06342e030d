"""The error of a mean of dependent values against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusize.analysis.compare.blocks import FEWEST_BLOCKS, block_error, block_length


def chain(rng: np.random.Generator, n: int, rho: float) -> NDArray[np.float64]:
    """A first-order autoregression with variance 1: the variance of its mean is (1 + rho) / (1 - rho) / n."""
    noise = rng.normal(size=n) * math.sqrt(1 - rho * rho)
    values = np.empty(n)
    values[0] = rng.normal()
    for k in range(1, n):
        values[k] = rho * values[k - 1] + noise[k]
    return values


@pytest.mark.parametrize("rho, tolerance", [(0.0, 0.04), (0.5, 0.06), (0.9, 0.16)])
def test_the_error_of_a_chain_is_that_of_its_closed_form(rho: float, tolerance: float) -> None:
    rng = np.random.default_rng(7)
    truth = math.sqrt((1 + rho) / (1 - rho) / 4000)
    found = [block_error(chain(rng, 4000, rho)).error for _ in range(40)]
    assert np.mean(found) == pytest.approx(truth, rel=tolerance)


def test_blocks_are_as_long_as_the_memory() -> None:
    rng = np.random.default_rng(3)
    lengths = [np.median([block_length(chain(rng, 4000, rho)) for _ in range(15)]) for rho in (0.0, 0.5, 0.9)]
    assert lengths[0] < 4
    assert lengths[0] < lengths[1] < lengths[2]
    # Of a first-order chain the best length is (6 rho^2 / (1 - rho^2)^2 n)^(1/3).
    assert lengths[2] == pytest.approx((6 * 0.81 / (1 - 0.81) ** 2 * 4000) ** (1 / 3), rel=0.35)


def test_few_blocks_say_nothing() -> None:
    steps = np.repeat([0.0, 1.0], 20)
    found = block_error(steps)
    assert found.blocks < FEWEST_BLOCKS
    assert math.isnan(found.error)
    assert math.isnan(block_error(np.array([1.0])).error)


def test_values_that_are_all_the_same_have_no_error() -> None:
    assert block_error(np.full(100, 2.5)) == (0.0, 100.0)
