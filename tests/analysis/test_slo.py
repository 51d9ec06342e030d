"""SLOs: the grammar, the column of an error, and how requests are judged."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusize.analysis.metrics import METRICS
from gpusize.analysis.slo import Slo, readings
from gpusize.base.errors import SloError
from gpusize.records.schema import OUTCOMES, from_arrow
from tests.analysis.synthetic import MS, frame


@pytest.mark.parametrize(
    "text, kind, metric, share, op, bound, canonical",
    [
        ("p95 runtime <= 10s", "percentile", "runtime", 0.95, "<=", 10.0, "p95 runtime <= 10s"),
        ("P99.9 ttft<200 ms", "percentile", "ttft", 0.999, "<", 0.2, "p99.9 ttft < 200ms"),
        ("p95 runtime from sent <= 2min", "percentile", "service", 0.95, "<=", 120.0, "p95 service <= 120s"),
        ("p50 ttft from sent <= 250us", "percentile", "ttft_sent", 0.5, "<=", 0.00025, "p50 ttft_sent <= 0.25ms"),
        ("runtime from due <= 1h", "percentile", "runtime", 1.0, "<=", 3600.0, "p100 runtime <= 3600s"),
        ("mean itl_mean <= 30ms", "mean", "itl_mean", 1.0, "<=", 0.03, "mean itl_mean <= 30ms"),
        ("p90 output_rate >= 20 tok/s", "percentile", "output_rate", 0.9, ">=", 20.0, "p90 output_rate >= 20 tokens/s"),
        ("p90 bytes_in <= 2KiB", "percentile", "bytes_in", 0.9, "<=", 2048.0, "p90 bytes_in <= 2048B"),
        ("P95 TTFT ≤ 200ms", "percentile", "ttft", 0.95, "<=", 0.2, "p95 ttft <= 200ms"),
        ("p95 E2E<=1s", "percentile", "service", 0.95, "<=", 1.0, "p95 service <= 1s"),
        ("share ok ≥ 99%", "share", "ok", 0.99, ">=", 0.99, "share ok >= 99%"),
        ("share ok >= 99%", "share", "ok", 0.99, ">=", 0.99, "share ok >= 99%"),
        ("share error <= 0.01", "share", "error", 0.99, "<=", 0.01, "share error <= 1%"),
        ("share timeout <= 0.1 %", "share", "timeout", 0.999, "<=", 0.001, "share timeout <= 0.1%"),
        ("share error <= 0", "share", "error", 1.0, "<=", 0.0, "share error <= 0%"),
    ],
)
def test_parsing(text, kind, metric, share, op, bound, canonical):
    slo = Slo.parse(text)
    assert slo == Slo(kind, metric, share, op, bound)
    assert str(slo) == canonical
    assert slo.bound_s == (bound if METRICS.get(metric) and METRICS[metric].unit == "s" else None)


@pytest.mark.parametrize(
    "text, column, message",
    [
        ("", 1, "starts with a word"),
        ("95 runtime <= 1s", 1, "starts with a word"),
        ("p95 runtim <= 3s", 5, "unknown metric 'runtim'"),
        ("p95", 4, "a metric is missing"),
        ("p0 runtime <= 1s", 1, "not a percentile"),
        ("p101 runtime <= 1s", 1, "not a percentile"),
        ("p95 runtime 3s", 13, "comparison is missing"),
        ("p95 runtime <= ", 16, "number is missing"),
        ("p95 runtime <= 3", 17, "has no unit"),
        ("p95 runtime <= 3 parsec", 18, "not a unit of it"),
        ("p95 runtime <= 3 tokens", 18, "not a unit of it"),
        ("p95 runtime <= 0s", 16, "above 0"),
        ("p95 runtime <= 1e-400s", 16, "above 0"),
        ("p95 runtime <= 1e999s", 16, "too large"),
        ("p95 runtime <= 1e308h", 21, "too large"),
        ("p95 runtime <= -3s", 16, "unexpected '-'"),
        ("p95 runtime <= 3s x", 19, "is not expected here"),
        ("p95 runtime from sen <= 3s", 18, "cannot count from sen"),
        ("p95 service from due <= 3s", 18, "cannot count from due"),
        ("p95 itl <= 3ms", 5, "per level"),
        ("share ok <= 3%", 10, "needs >="),
        ("share error >= 3%", 13, "needs <="),
        ("share cancelled <= 3%", 7, "no share of cancelled"),
        ("share ok >= 300%", 17, "between 0 and 1"),
    ],
)
def test_an_error_points_at_its_column(text, column, message):
    with pytest.raises(SloError) as raised:
        Slo.parse(text)
    assert message in raised.value.what
    assert raised.value.where == f"SLO, column {column}"
    pointer = str(raised.value).splitlines()[-2:]
    assert pointer == [f"  {text}", f"  {' ' * (column - 1)}^"]


TIMES = [name for name, m in METRICS.items() if m.unit == "s" and name != "itl"]


@settings(deadline=None)
@given(
    st.sampled_from(["mean", "p50", "p95", "p99", "p99.9", "p99.99", "p100"]),
    st.sampled_from(TIMES),
    st.sampled_from(["<=", "<", ">=", ">"]),
    st.decimals("0.001", "99999", places=3),
    st.sampled_from(["us", "ms", "s", "min", "h"]),
)
def test_the_canonical_text_parses_back(head, metric, op, number, unit):
    slo = Slo.parse(f"{head} {metric} {op} {number}{unit}")
    assert Slo.parse(str(slo)) == slo
    assert str(Slo.parse(str(slo))) == str(slo)


@settings(deadline=None)
@given(st.text(max_size=60))
def test_no_text_raises_anything_else(text):
    slo = None
    with contextlib.suppress(SloError):
        slo = Slo.parse(text)
    assert slo is None or Slo.parse(str(slo)) == slo


def requests(runtimes_ms, outcomes=None):
    n = len(runtimes_ms)
    codes = [OUTCOMES.index(o) for o in outcomes] if outcomes else [0] * n
    return from_arrow(frame({"due_ns": [0] * n, "end_ns": [r * MS for r in runtimes_ms], "outcome": codes}))


def test_every_outcome_but_ok_is_a_miss_and_a_cancel_counts_nowhere():
    slo = Slo.parse("p50 runtime <= 10ms")
    records = requests([5] * len(OUTCOMES), OUTCOMES)
    assert slo.count(records) == (1, len(OUTCOMES) - 2, 0)
    assert slo.attainment(records) == (1 / (len(OUTCOMES) - 1), len(OUTCOMES) - 1)


def test_the_bound_itself_is_within():
    assert Slo.parse("p50 runtime <= 10ms").attainment(requests([10, 11])) == (0.5, 2)
    assert Slo.parse("p50 runtime < 10ms").attainment(requests([10, 9])) == (0.5, 2)


@pytest.mark.parametrize("late, met", [(0, True), (1, True), (2, False)])
def test_exactly_the_share_suffices(late, met):
    slo = Slo.parse("p95 runtime <= 10ms")
    assert slo.met(requests([5] * (20 - late) + [50] * late)) is met


def test_a_request_without_the_metric_is_undetermined():
    slo = Slo.parse("p95 ttft <= 1s")
    records = from_arrow(
        frame({"due_ns": [0, 0, 0], "end_ns": [1, 1, 1], "first_token_ns": [5, None, None], "outcome": [0, 0, 3]})
    )
    assert slo.count(records) == (1, 1, 1)
    nothing = from_arrow(frame({"due_ns": [0, 0], "end_ns": [1, 1], "outcome": [0, 3]}))
    share, n = slo.attainment(nothing)
    assert math.isnan(share)
    assert n == 0
    assert not slo.met(nothing)
    late = from_arrow(
        frame(
            {
                "due_ns": [0, 0],
                "end_ns": [3_000_000_000] * 2,
                "first_token_ns": [2_000_000_000, None],
                "outcome": [0, 0],
            }
        )
    )
    assert slo.attainment(late) == (0.0, 1)


def test_shares():
    records = requests([1] * 4, ["ok", "ok", "timeout", "http_error"])
    assert Slo.parse("share ok >= 50%").met(records)
    assert not Slo.parse("share ok >= 51%").met(records)
    assert Slo.parse("share error <= 50%").met(records)
    assert Slo.parse("share timeout <= 25%").met(records)
    assert not Slo.parse("share timeout <= 24%").met(records)
    assert Slo.parse("share api_error <= 0%").met(records)


def test_a_mean_is_endless_with_one_failure():
    slo = Slo.parse("mean runtime <= 10ms")
    assert slo.met(requests([5, 15]))
    assert not slo.met(requests([5, 16]))
    assert not slo.met(requests([1, 1], ["ok", "timeout"]))
    assert slo.met(requests([1, 1], ["ok", "cancelled"]))


def test_a_mean_of_a_rate_counts_failures_as_nothing():
    columns = {"due_ns": [0] * 2, "sent_ns": [0] * 2, "end_ns": [10**9] * 2, "tokens_out": [30, None]}
    slo = Slo.parse("mean output_rate >= 20 tokens/s")
    assert slo.met(from_arrow(frame({**columns, "outcome": [0, 8]})))
    assert not slo.met(from_arrow(frame({**columns, "outcome": [0, 3]})))


@settings(deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(1, 50), st.sampled_from([50, 90, 95, 99]))
def test_attainment_is_the_inverted_percentile(runtimes, bound, percent):
    slo = Slo.parse(f"p{percent} runtime <= {bound}ms")
    exact = np.quantile(np.array(runtimes), percent / 100, method="inverted_cdf")
    assert slo.met(requests(runtimes)) == (exact <= bound)


@pytest.mark.parametrize(
    "text, canonical",
    [
        ("p95 latency <= 2s", "p95 service <= 2s"),
        ("p95 e2e <= 2s", "p95 service <= 2s"),
        ("p95 e2e from sent <= 2s", "p95 service <= 2s"),
        ("p95 e2e from due <= 2s", "p95 runtime <= 2s"),
        ("mean tpot <= 30ms", "mean itl_mean <= 30ms"),
    ],
)
def test_names_of_other_tools_are_metrics_of_ours(text, canonical):
    assert str(Slo.parse(text)) == canonical


def test_the_answer_says_which_metric_was_taken():
    told = readings(
        ["p95 tpot <= 30ms", "p95 e2e <= 2s", "p95 latency <= 2s", "p95 llm_latency <= 2s", "runtime <= 1s"]
    )
    assert [text.partition(":")[0] for text in told] == [
        'SLO "tpot" is read as itl_mean',
        'SLO "e2e" is read as service',
        'SLO "latency" is read as service',
    ]
    assert readings("p95 tpot <= 30ms") == told[:1]
    assert readings(None) == readings("p95 e2e from due <= 2s") == []


def test_they_judge_by_the_formulas_of_other_tools():
    """e2e = end - sent, tpot = (e2e - ttft) / (tokens - 1), worked out here from the columns."""
    due, sent, first, end, tokens = 0, 500 * MS, 700 * MS, 1_690 * MS, 100
    rows = from_arrow(
        frame(
            {
                "due_ns": [due],
                "sent_ns": [sent],
                "first_token_ns": [first],
                "last_token_ns": [end],
                "end_ns": [end],
                "tokens_out": [tokens],
                "outcome": [0],
            }
        )
    )
    e2e_ms = (end - sent) / MS
    tpot_ms = (end - sent - (first - sent)) / (tokens - 1) / MS
    assert (e2e_ms, tpot_ms) == (1190.0, 10.0)
    for name, value in (("e2e", e2e_ms), ("latency", e2e_ms), ("tpot", tpot_ms)):
        assert Slo.parse(f"p95 {name} <= {value}ms").met(rows)
        assert not Slo.parse(f"p95 {name} < {value}ms").met(rows)
    assert not Slo.parse(f"p95 e2e from due <= {e2e_ms}ms").met(rows)
