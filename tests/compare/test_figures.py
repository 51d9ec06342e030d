"""Figures of a level with their errors, against closed forms and against many levels of the same cluster."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from gpusize.analysis.compare.figures import figure, usual_figures
from gpusize.analysis.level import LevelData
from gpusize.base.errors import SloError
from gpusize.records.schema import OUTCOMES, outcome_dtype, record_dtypes
from tests.analysis.closed_levels import alone, passes_of, queued, shared
from tests.estimate.virtual import level


def independent(n: int, seed: int, *, failed: int = 0) -> LevelData:
    """Requests of an open loop whose runtimes are independent and exponential with a mean of a second."""
    rng = np.random.default_rng(seed)
    due = np.sort(rng.integers(0, n * 1_000_000_000, n))
    end = due + (rng.exponential(1.0, n) * 1e9).astype(np.int64) + 1
    bad = set(rng.choice(n, failed, replace=False).tolist())
    known: dict[str, Any] = {
        "due_ns": due,
        "fired_ns": due,
        "sent_ns": due,
        "first_byte_ns": end,
        "end_ns": end,
        "outcome": pl.Series(OUTCOMES, dtype=outcome_dtype()).gather(
            [OUTCOMES.index("http_error") if k in bad else OUTCOMES.index("ok") for k in range(n)]
        ),
        "tokens_out": np.full(n, 10),
    }
    zero = ("visit", "stream", "attempt", "row")
    dtypes = {**record_dtypes(), "outcome": outcome_dtype()}
    records = pl.DataFrame(
        {
            name: pl.Series(known[name]).cast(dtype)
            if name in known
            else pl.repeat(0 if name in zero else None, n, dtype=dtype, eager=True)
            for name, dtype in dtypes.items()
        }
    )
    last = int(end.max()) + 1
    return LevelData(
        visit=0,
        setting={"kind": "open", "rate": 1.0},
        state="done",
        intervals=[{"name": "steady", "start_ns": 0, "end_ns": last}],
        gpus=1,
        run="made",
        meta={"start_ns": 0, "close_ns": last, "end_ns": last},
        records=records.lazy(),
    )


@pytest.mark.parametrize("prob", [0.5, 0.95])
def test_the_error_of_a_quantile_is_its_closed_form(prob: float) -> None:
    """Of exponential times the error of log q is sqrt(p (1 - p) / n) / ((1 - p) q)."""
    n, quantile = 8000, -math.log(1 - prob)
    found = [figure(f"p{100 * prob:g} runtime").measure(independent(n, seed)) for seed in range(16)]
    assert np.mean([each.value for each in found]) == pytest.approx(quantile, rel=0.02)
    truth = math.sqrt(prob / (1 - prob) / n) / quantile
    assert np.mean([each.error for each in found]) == pytest.approx(truth, rel=0.08)


def test_the_error_of_a_mean_is_its_closed_form() -> None:
    found = figure("mean runtime").measure(independent(8000, 2))
    assert found.error == pytest.approx(1 / math.sqrt(8000), rel=0.15)


def test_the_error_of_a_rate_is_its_closed_form() -> None:
    """Due times are uniform: responses in equal pieces are nearly Poisson, but their sum is not random."""
    found = figure("achieved rate").measure(independent(8000, 3))
    assert found.error == pytest.approx(1 / math.sqrt(8000), rel=0.2)
    tokens = figure("output rate").measure(independent(8000, 3))
    assert tokens.value == pytest.approx(10 * found.value)


def test_the_error_of_a_share() -> None:
    found = figure("error share").measure(independent(8000, 4, failed=80))
    assert found.value == pytest.approx(0.01)
    assert found.error == pytest.approx(math.sqrt(0.01 * 0.99 / 8000), rel=0.2)
    none = figure("error share").measure(independent(8000, 4))
    assert none.value == 0.0
    assert none.error == pytest.approx(math.sqrt(0.5 / 8001 / 8000), rel=1e-3)


def test_a_share_of_few_requests_or_of_all() -> None:
    few = figure("error share").measure(independent(10, 4, failed=2))
    least = 2.5 / 11
    assert few.value == 0.2
    assert few.error == pytest.approx(math.sqrt(least * (1 - least) / 10))
    every = figure("error share").measure(independent(10, 4, failed=10))
    assert every.value == 1.0
    assert 0 < every.error < 0.1


def test_figures_of_few_requests_have_no_error() -> None:
    level = independent(12, 4)
    for name in ("p50 runtime", "mean runtime", "achieved rate"):
        found = figure(name).measure(level)
        assert found.value > 0
        assert math.isnan(found.error), name


def test_failures_that_come_together_weigh_more() -> None:
    """800 failures in one stretch are one outage, and not 800 independent ones."""
    level = independent(8000, 4)
    outcome = pl.when(pl.int_range(pl.len()).is_between(3000, 3799)).then(pl.lit("http_error")).otherwise(pl.lit("ok"))
    broken = replace(level, records=level.records.with_columns(outcome.cast(outcome_dtype()).alias("outcome")))
    found = figure("error share").measure(broken)
    assert found.value == pytest.approx(0.1)
    assert found.error > 5 * math.sqrt(0.1 * 0.9 / 8000)


def test_a_percentile_beyond_the_requests_has_no_error() -> None:
    found = figure("p99.9 runtime").measure(independent(400, 5))
    assert found.value > 0
    assert math.isnan(found.error)


def test_errors_inside_a_run_are_those_from_run_to_run() -> None:
    """A queue's requests depend on each other; counted as independent ones their error would be far too small."""
    many = [level(24, requests=1500, seed=seed) for seed in range(24)]
    for name in ("p50 runtime", "mean runtime"):
        found = [figure(name).measure(each) for each in many]
        spread = float(np.std([math.log(each.value) for each in found], ddof=1))
        inside = float(np.sqrt(np.mean([each.error**2 for each in found])))
        assert inside == pytest.approx(spread, rel=0.5), name


@pytest.mark.parametrize(
    "text, what",
    [
        ("p95", "a metric is missing"),
        ("runtime", "a percentile or mean is missing"),
        ("p95 nonsense", "nonsense"),
        ("share error", "a share is no figure"),
        ("p95 runtime <= 3s", "is not expected here"),
        ("", "starts with a word"),
    ],
)
def test_what_is_no_figure_is_refused(text: str, what: str) -> None:
    with pytest.raises(SloError, match=what):
        figure(text)


def test_names_of_other_tools_are_read() -> None:
    assert figure("P95  latency").name == figure("p95 latency").name
    assert figure("mean ttft").name == "mean ttft"


def test_usual_figures_are_those_that_are_known() -> None:
    assert [each.name for each in usual_figures([independent(100, 1)])] == [
        *("p50 runtime", "p95 runtime", "p99 runtime", "achieved rate", "output rate", "error share")
    ]


@pytest.mark.parametrize("target", [alone, queued, shared], ids=["alone", "queued", "shared"])
@pytest.mark.parametrize("name", ["achieved rate", "output rate"])
def test_the_error_of_a_rate_of_few_passes_is_as_wide_as_such_levels_differ(target: Any, name: str) -> None:
    found = [figure(name).measure(passes_of(target, 32, 12, seed)) for seed in range(40)]
    spread = float(np.std([math.log(each.value) for each in found]))
    assert float(np.median([each.error for each in found])) == pytest.approx(spread, rel=0.4)
