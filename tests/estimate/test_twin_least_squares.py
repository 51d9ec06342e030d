"""Non-negative least squares: the conditions of Kuhn and Tucker hold, whatever the scales, also without rank."""

from __future__ import annotations

import numpy as np
import pytest

from gpusize.estimate.twin.least_squares import inside, non_negative, triangle


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


@pytest.mark.parametrize("n", [1, 3, 4, 5, 200, 8192, 8193, 30_000])
def test_a_few_rows_have_the_least_squares_of_many(n):
    """The costs and the squares that are left, against all rows by themselves."""
    rng = np.random.default_rng(n)
    design = np.abs(rng.normal(size=(n, 3))) * [1.0, 1e3, 1e-2]
    took = design @ [0.02, 3e-6, 0.5] + 0.01 * rng.normal(size=n)
    found = triangle(design, took)
    assert found.shape[0] == min(n, 4)
    costs, *_ = np.linalg.lstsq(found[:, :3], found[:, 3], rcond=None)
    for tried in (costs, np.array([0.02, 3e-6, 0.5]), np.array([1.0, -1.0, 0.0])):
        left = ((found[:, :3] @ tried - found[:, 3]) ** 2).sum()
        assert left == pytest.approx(((design @ tried - took) ** 2).sum(), rel=1e-9, abs=1e-18)
    if n > 3:
        assert costs == pytest.approx(np.linalg.lstsq(design, took, rcond=None)[0], rel=1e-9)


def test_what_only_negative_coefficients_explain_is_explained_by_none():
    assert non_negative(np.ones((3, 2)), -np.ones(3)) == pytest.approx([0.0, 0.0])


def test_hiccups_are_outside():
    off = np.concatenate([np.random.default_rng(1).normal(size=200), [30.0, -40.0]])
    assert list(inside(off)[-2:]) == [False, False]
    assert inside(off)[:200].mean() > 0.97
