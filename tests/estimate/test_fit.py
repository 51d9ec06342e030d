"""The calculator's arithmetic against its published and its measured numbers, and against scipy."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusize.analysis.slo import Slo
from gpusize.estimate.calculator_line import FitConfig, capacity, fit_line, rough_gpus
from gpusize.estimate.methods import Question, estimate, to_calc_output
from tests.analysis.synthetic import percentile_level

VECTORS = json.loads((Path(__file__).parents[1] / "fixtures" / "nat" / "vectors.json").read_text())
BY_NAME = {vector["name"]: vector for vector in VECTORS["vectors"]}
TV1 = BY_NAME["doc table, workflow runtime"]["p95_s"]
LEVELS = [1, 2, 4, 8, 16, 32]


def close(expected):
    return pytest.approx(expected, rel=1e-9, abs=1e-12)


def line(*args, **more):
    fit = fit_line(*args, **more).fit
    assert fit is not None
    return fit


def levels_of(vector):
    states = ["interrupted" if c in vector["interrupted"] else "done" for c in vector["concurrency"]]
    rows = zip(vector["concurrency"], vector["p95_s"], states, strict=True)
    return [percentile_level(c, p95, state=state, gpus=vector["test_gpu_count"]) for c, p95, state in rows]


def question_of(vector):
    return Question(vector["users"], [Slo.parse(f"p95 runtime <= {vector['target_s']}s")])


@pytest.mark.parametrize("name", BY_NAME)
def test_golden_vectors(name):
    vector = BY_NAME[name]
    (found,) = estimate(levels_of(vector), question_of(vector), "slope")
    fit = vector["fit"]
    assert found.details["fit"] == (
        None if fit is None else {k: close(v) if k != "outliers_removed" else v for k, v in fit.items()}
    )
    expected = vector["gpu_estimate"]
    if expected is None:
        assert (found.gpus, found.gpus_raw, found.capacity_concurrency) == (None, None, None)
        assert found.reason
    else:
        assert found.gpus_raw == close(expected)
        assert found.capacity_concurrency == close(vector["calculated_concurrency"])
        assert found.gpus == math.ceil(round(expected, 9))
        assert found.reason is None


@pytest.mark.parametrize("name", BY_NAME)
def test_golden_vectors_under_the_calculators_field_names(name):
    vector = BY_NAME[name]
    document = to_calc_output(levels_of(vector), question_of(vector))
    expected = vector["gpu_estimate"]
    assert document["gpu_estimates"] == {
        "gpu_estimate_by_wf_runtime": None if expected is None else close(expected),
        "gpu_estimate_by_llm_latency": None,
    }
    rough = {c: level["gpu_estimates"]["gpu_estimate_by_wf_runtime"] for c, level in document["calc_data"].items()}
    assert rough == {c: None if value is None else close(value) for c, value in vector["rough"].items()}
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_the_vectors_constants_are_ours():
    assert FitConfig(**VECTORS["fit_config"]) == FitConfig()


def test_prose_example():
    at_target, reason = capacity(line([1, 2], [4.1, 4.7]), 10.0)
    assert reason is None
    assert at_target == close((10 - 3.5) / 0.6)
    assert 100 / at_target * 8 == close(73.84615384615384)


@pytest.mark.parametrize("target,users,gpus", [(20, 25, 7.73953145765708), (40, 100, 14.212044914601904)])
def test_other_targets(target, users, gpus):
    at_target, _ = capacity(line(LEVELS, TV1), target)
    assert users / at_target * 8 == close(gpus)


def test_without_the_outlier_rule():
    older = BY_NAME["older doc table, workflow runtime"]["p95_s"]
    fit = line(LEVELS, older, FitConfig(remove_outliers=False))
    assert fit.slope == close(0.608826304193319)
    assert fit.intercept == close(4.115615472636819)
    assert fit.r_squared == close(0.9729645999)
    assert 100 / capacity(fit, 10)[0] * 8 == close(82.77179050583042)


@pytest.mark.parametrize(
    "concurrencies,removed",
    [([2**k for k in range(7)], ()), ([2**k for k in range(8)], (128,)), ([2**k for k in range(9)], ())],
)
def test_exact_lines_and_the_trap_at_eight_levels(concurrencies, removed):
    fit = line(concurrencies, [2 + 0.5 * c for c in concurrencies])
    assert fit.outliers_removed == removed
    assert (fit.slope, fit.intercept, fit.r_squared) == (close(0.5), close(2.0), close(1.0))


@pytest.mark.parametrize(
    "values,message",
    [
        ([2, 2, 2, 2, 2, 4], "flat"),
        ([3, 3, 3, 3], "flat"),
        ([0.1] * 6, "flat"),
        ([1, 2, 40, 8], "R2 is 0.049"),
        ([5], "two levels"),
        ([], "two levels"),
    ],
)
def test_no_fit_has_a_reason(values, message):
    result = fit_line(LEVELS[: len(values)], values)
    assert result.fit is None
    assert message in result.reason


def test_a_fifth_level_saves_a_hopeless_fit():
    fit = line([1, 2, 4, 8, 16], [1, 2, 40, 8, 16])
    assert fit.outliers_removed == (4,)
    assert 100 / capacity(fit, 10)[0] * 8 == close(80)


def test_a_real_run_loses_a_level_over_a_millisecond():
    assert line([1, 2, 3, 4, 8], [0.221345, 0.240179, 0.258976, 0.278057, 0.354212]).outliers_removed == (8,)


def test_one_concurrency_is_no_line():
    result = fit_line([4, 4, 4], [1, 2, 3])
    assert "two levels of different concurrency, there are 1" in result.reason


@pytest.mark.parametrize("slope_sign,target,message", [(-1, 5, "does not rise"), (1, 1, "not above the intercept")])
def test_what_would_crash_the_calculator_has_a_reason(slope_sign, target, message):
    fit = line([1, 2, 3], [4 + slope_sign * 0.1 * c for c in (1, 2, 3)])
    at_target, reason = capacity(fit, target)
    assert at_target is None
    assert message in reason


def test_rough_figure():
    assert rough_gpus(1, 3.864478802680969, 10, 100, 8) == close(309.15830421447754)


POINTS = st.lists(
    st.tuples(st.integers(1, 512), st.floats(0.01, 1000)), min_size=0, max_size=14, unique_by=lambda point: point[0]
)


@settings(deadline=None)
@given(POINTS)
def test_the_line_is_scipys_over_the_levels_that_were_kept(points):
    result = fit_line([c for c, _ in points], [y for _, y in points])
    assert (result.fit is None) == (result.reason is not None)
    line = result.fit or result.rejected
    if line is None:
        return
    kept = [(c, y) for c, y in points if c not in line.outliers_removed]
    oracle = scipy.stats.linregress([c for c, _ in kept], [y for _, y in kept])
    scale = max(y for _, y in kept)
    assert line.slope == pytest.approx(oracle.slope, rel=1e-6, abs=1e-6 * scale)
    assert line.intercept == pytest.approx(oracle.intercept, rel=1e-6, abs=1e-6 * scale)
    # Of a constant y some versions of SciPy say 0 and some NaN.
    assert line.r_squared == pytest.approx(0.0 if math.isnan(oracle.rvalue) else oracle.rvalue**2, abs=1e-6)


@settings(deadline=None)
@given(POINTS, st.floats(0.01, 1000), st.integers(1, 1000))
def test_no_data_makes_it_raise(points, target, users):
    levels = [percentile_level(c, y) for c, y in points[:4] if c <= 16]
    if levels:
        (found,) = estimate(levels, Question(users, [Slo.parse(f"p95 runtime <= {target!r}s")]), "slope")
        assert (found.gpus is None) == (found.reason is not None)
        json.dumps(found.to_json(), allow_nan=False)
