"""Failures hide slow requests: no verdict and no gate may rest on the times of those that are left."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import polars as pl
import pytest

from gpusize.analysis.compare.comparison import Comparison, compare_sides
from gpusize.analysis.compare.differences import Difference
from gpusize.analysis.compare.figures import figure
from gpusize.analysis.compare.gates import Gate, Judged, judge
from gpusize.analysis.compare.matching import Run, Side
from gpusize.analysis.compare.survivors import hidden
from gpusize.analysis.level import LevelData
from gpusize.report.comparison.show import document, junit_xml, markdown
from tests.analysis.synthetic import closed, level

FIGURES = ("p50 runtime", "p95 runtime", "mean runtime")
SLOW_NS = 150_000_000


@cache
def measured(seed: int, slowness: float = 1.0, fail_slow: bool = False, fail: float = 0.0) -> LevelData:
    """400 requests of lognormal times, of which those beyond 150 ms fail, or a random share does."""
    rng = np.random.default_rng(seed)
    times = slowness * 1e8 * np.exp(rng.normal(0, 0.01) + 0.4 * rng.normal(size=400))
    columns = closed(8, lambda k: int(times[k]), count=400)
    took = np.array(columns["end_ns"]) - np.array(columns["sent_ns"])
    bad = took > SLOW_NS if fail_slow else rng.random(400) < fail
    return level(8, {**columns, "outcome": np.where(bad, 1, 0).tolist()}, count=400)


def side(name: str, first: int, slowness: float = 1.0, *, fail_slow: bool = False, fail: float = 0.0) -> Side:
    runs = [
        Run(f"{name}{k}", f"{first + k:04d}", [measured(first + k, slowness, fail_slow=fail_slow, fail=fail)])
        for k in range(6)
    ]
    return Side(name, runs)


def compared(a: Side, b: Side) -> Comparison:
    return compare_sides([a, b], [figure(each) for each in (*FIGURES, "error share", "achieved rate")])


def of(found: Comparison, name: str) -> Difference:
    [one] = [each for each in found.differences if each.figure == name]
    return one


def judged(found: Comparison, text: str) -> Judged:
    [one] = judge(found, [Gate.parse(text)])
    return one


def test_who_fails_its_slow_requests_is_not_better_and_passes_no_gate():
    found = compared(side("a", 0), side("b", 100, fail_slow=True))
    p95 = of(found, "p95 runtime")
    assert p95.change < -0.2
    assert p95.p < 1e-4
    assert (p95.verdict, p95.hidden) == ("no evidence", math.inf)
    assert of(found, "error share").verdict == "worse"
    assert "no verdict on" in markdown(found)
    assert "p95 runtime at 8 users" in found.withheld["b"]
    assert document(found)["withheld"] == found.withheld
    for name in ("p95", "mean"):
        gate = judged(found, f"{name} runtime > +5%")
        assert (gate.failed, gate.judged) == (False, False)
        assert "which may have been the slowest" in junit_xml([gate])
    assert judged(found, "error share > +1%").failed


def test_who_answers_what_the_other_failed_is_not_worse_and_fails_no_gate():
    found = compared(side("a", 0, fail_slow=True), side("b", 100))
    p95 = of(found, "p95 runtime")
    assert p95.change > 0.2
    assert p95.p < 1e-4
    assert (p95.verdict, p95.hidden) == ("no evidence", -math.inf)
    gate = judged(found, "p95 runtime > +5%")
    assert (gate.failed, gate.judged) == (False, False)


def test_what_is_slower_among_the_rest_already_is_worse():
    found = compared(side("a", 0), side("b", 100, 1.6, fail_slow=True))
    assert of(found, "p50 runtime").verdict == "worse"
    assert judged(found, "p50 runtime > +5%").failed


def test_equal_failures_hide_nothing():
    found = compared(side("a", 0, fail=0.2), side("b", 100, 1.3, fail=0.2))
    assert abs(of(found, "p50 runtime").hidden) < 0.05
    assert of(found, "p50 runtime").verdict == "worse"
    assert judged(found, "p50 runtime > +5%").failed
    assert not found.withheld


def test_equal_systems_of_which_one_fails_at_random_are_not_called_equivalent():
    a, b = side("a", 0), side("b", 100, fail=0.3)
    plain = compare_sides([a, side("b", 100)], [figure("p50 runtime")], margin=0.2)
    assert plain.differences[0].verdict == "equivalent"
    found = compare_sides([a, b], [figure("p50 runtime")], margin=0.2)
    assert found.differences[0].verdict == "no evidence"
    assert found.withheld == {"b": ["p50 runtime at 8 users"]}


@pytest.mark.parametrize("prob", [0.5, 0.8])
def test_hidden_is_the_percentile_with_the_failed_as_the_slowest(prob: float):
    """By hand: of all requests, the failed ones above all others, the percentile of the rows themselves."""
    a, b = measured(1), measured(2, fail=0.1)
    rows = b.records.collect()
    ok = (rows["outcome"] == "ok").to_numpy()
    took = np.sort((rows["end_ns"] - rows["due_ns"]).to_numpy()[ok])
    every = np.concatenate((took, np.full(400 - took.size, np.inf)))
    low, high = np.quantile(took, prob), np.quantile(every, prob)
    name = f"p{100 * prob:g} runtime"
    assert hidden(figure(name), [a], [b], margin=0.02) == pytest.approx(math.log(high / low), abs=0.01)
    assert hidden(figure(name), [b], [a], margin=0.02) == pytest.approx(-math.log(high / low), abs=0.01)
    assert hidden(figure("achieved rate"), [a], [b], margin=0.02) == 0
    assert hidden(figure("p95 runtime"), [a], [b], margin=0.02) == math.inf
    assert pl.Series([hidden(figure("mean output_rate"), [a], [b], margin=0.02)]).to_list() == [-math.inf]
