"""How far intervals are widened: so many of the counts' hold a right one, with no more width than that takes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benches.estimates.intervals import Score, held_and_width, reaches, widened


def test_errors_twice_as_large_as_calculated_double_the_interval() -> None:
    rng = np.random.default_rng(1)
    scores = [Score("flow", "varying", -float(e), float(e), 0.05, 0.05) for e in 0.1 * rng.standard_normal(4000)]
    _, kappa, delta = widened(scores, 0.92)
    half = kappa * np.hypot(0.05, delta)
    assert half == pytest.approx(0.175, rel=0.05)
    assert np.mean([abs(each.above) <= half for each in scores]) == pytest.approx(0.92, abs=0.002)
    assert held_and_width(scores, kappa, delta)[0] == pytest.approx(0.92, abs=0.002)


def test_what_has_no_calculated_error_gets_one() -> None:
    scores = [Score("measured", "even", 0.05 * (-1) ** k, -0.05 * (-1) ** k, 0.0, 0.0) for k in range(100)]
    _, kappa, delta = widened(scores, 0.92)
    assert kappa * delta == pytest.approx(0.05)


def test_an_interval_is_never_narrower_than_chance_makes_it() -> None:
    width, kappa, delta = widened([Score("batching", "even", -0.2, -0.2, 0.1, 0.1)] * 50, 0.92)
    assert (kappa, delta) == (1.0, 0.002)
    assert width == pytest.approx(math.exp(0.1) - math.exp(-0.1), rel=0.001)


def test_the_whole_numbers_of_an_interval_hold_a_right_one_as_far_as_said() -> None:
    rng = np.random.default_rng(2)
    for _ in range(300):
        raw, least = float(rng.uniform(0.2, 30)), int(rng.integers(1, 31))
        right = range(least, least + int(rng.integers(1, 3)))
        below, above = reaches(raw, right)
        # In small steps outward on one side: the first interval that holds one is the one said.
        for said, sign in ((below, -1), (above, 1)):
            for half in (said - 1e-6, said + 1e-6):
                if half <= 0 or not math.isfinite(half):
                    continue
                a, b = sorted((raw, raw * math.exp(sign * half)))
                held = math.ceil(a) <= max(right) and math.ceil(b) >= min(right)
                assert held == (half > said)
