"""Student's t against SciPy."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gpusize.analysis.compare.student import t_above, t_quantile


@given(st.floats(-60, 60), st.floats(0.6, 5000))
def test_the_tail_is_that_of_scipy(t: float, freedom: float) -> None:
    assert t_above(t, freedom) == pytest.approx(stats.t.sf(t, freedom), rel=1e-8, abs=1e-7 if abs(t) < 0.01 else 1e-300)


@given(st.floats(1e-5, 1 - 1e-5), st.floats(0.8, 2e7))
def test_the_quantile_is_that_of_scipy(prob: float, freedom: float) -> None:
    assert t_quantile(prob, freedom) == pytest.approx(stats.t.ppf(prob, freedom), rel=5e-6, abs=1e-8)


def test_with_much_freedom_it_is_the_normal_distribution() -> None:
    for freedom in (1e6, 1e7, math.inf):
        for t, above in ((-1.0, 0.8413447), (0.0, 0.5), (1.96, 0.0249979)):
            assert t_above(t, freedom) == pytest.approx(above, abs=1e-6)


def test_without_freedom_there_is_no_distribution() -> None:
    assert math.isnan(t_above(1.0, 0.0))
