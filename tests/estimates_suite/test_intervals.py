"""How far intervals are widened: 95 % of known errors hold, with no more width than that takes."""

from __future__ import annotations

import numpy as np
import pytest

from benches.estimates.intervals import _widened


def test_errors_twice_as_large_as_calculated_double_the_interval() -> None:
    rng = np.random.default_rng(1)
    scores = [("flow", False, float(error), 0.1, 0.1) for error in 0.1 * rng.standard_normal(4000)]
    _, kappa, delta = _widened(scores)
    half = kappa * np.hypot(0.1, delta)
    assert half == pytest.approx(0.196, rel=0.05)
    assert np.mean([abs(each[2]) <= half for each in scores]) == pytest.approx(0.95, abs=0.002)


def test_what_has_no_calculated_error_gets_one() -> None:
    scores = [("measured", True, 0.05 * (-1) ** k, 0.0, 0.0) for k in range(100)]
    _, kappa, delta = _widened(scores)
    assert kappa * delta == pytest.approx(0.05)
