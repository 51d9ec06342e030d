"""Non-negative least squares: the conditions of Kuhn and Tucker hold, whatever the scales, also without rank."""

from __future__ import annotations

import numpy as np
import pytest

from gpusize.estimate.twin.least_squares import inside, non_negative


@pytest.mark.parametrize("seed", range(30))
def test_no_step_that_stays_non_negative_makes_it_less(seed):
    rng = np.random.default_rng(seed)
    columns = int(rng.integers(1, 7))
    design = np.abs(rng.normal(size=(40, columns))) * 10.0 ** rng.integers(-3, 4, columns)
    if seed % 3 == 0 and columns > 1:
        design[:, -1] = design[:, 0]
    took = design @ (rng.normal(0.3, 1.0, columns) / design.mean(axis=0)) + 0.1 * rng.normal(size=40)
    found = non_negative(design, took)
    assert (found >= 0).all()
    # As correlations, so that scales do not matter.
    gain = (design / np.linalg.norm(design, axis=0)).T @ (took - design @ found) / np.linalg.norm(took)
    assert gain.max() < 1e-8
    assert np.abs(gain[found > 0]).max(initial=0.0) < 1e-8


def test_what_only_negative_coefficients_explain_is_explained_by_none():
    assert non_negative(np.ones((3, 2)), -np.ones(3)) == pytest.approx([0.0, 0.0])


def test_hiccups_are_outside():
    off = np.concatenate([np.random.default_rng(1).normal(size=200), [30.0, -40.0]])
    assert list(inside(off)[-2:]) == [False, False]
    assert inside(off)[:200].mean() > 0.97
