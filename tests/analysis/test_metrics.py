"""The registry of metrics: complete, right on a row made by hand, and equal to its documentation."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from gpusize.analysis.metrics import METRICS, QUANTILES, by_second, metric
from gpusize.analysis.metrics_page import markdown
from gpusize.base.errors import UsageError
from tests.analysis.synthetic import MS, frame

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "reference" / "metrics.md"
RUN = ROOT / "tests" / "fixtures" / "before" / "run"

ROW = {
    "due_ns": [1000 * MS],
    "fired_ns": [1001 * MS],
    "sent_ns": [1003 * MS],
    "connect_ns": [MS],
    "first_byte_ns": [1100 * MS],
    "first_token_ns": [1203 * MS],
    "first_output_ns": [1303 * MS],
    "itl_p99_ns": [15 * MS],
    "itl_max_ns": [40 * MS],
    "last_token_ns": [2203 * MS],
    "end_ns": [2253 * MS],
    "events": [51],
    "tokens_in": [7],
    "tokens_out": [101],
    "bytes_in": [4000],
}


def value(name: str, **changes: list[int | None]) -> float | None:
    found: float | None = frame({**ROW, **changes}).select(metric(name).expr()).item()
    return found


@pytest.mark.parametrize(
    "name, expected",
    [
        ("runtime", 1.253),
        ("service", 1.25),
        ("ttft", 0.203),
        ("ttft_sent", 0.2),
        ("ttfo", 0.303),
        ("itl_mean", 0.01),
        ("itl_p99", 0.015),
        ("itl_max", 0.04),
        ("output_rate", 80.8),
        ("tokens_in", 7.0),
        ("tokens_out", 101.0),
        ("tokens_cached", None),
        ("first_byte", 0.097),
        ("lateness", 0.003),
        ("pacer_late", 0.001),
        ("no_connection", 0.002),
        ("connect", 0.001),
        ("tls", None),
        ("bytes_in", 4000.0),
        ("bytes_out", 0.0),
    ],
)
def test_values_of_one_request(name, expected):
    assert value(name) == (None if expected is None else pytest.approx(expected, rel=1e-12))


def test_itl_mean_counts_events_where_the_server_reported_no_tokens():
    assert value("itl_mean", tokens_out=[None]) == pytest.approx(1.0 / 50)


@pytest.mark.parametrize("tokens", [0, 1])
def test_itl_mean_needs_two_tokens(tokens):
    assert value("itl_mean", tokens_out=[tokens]) is None


def test_a_request_never_sent_has_no_times():
    facts = {"due_ns": [5], "outcome": [9]}
    row = frame(facts).select(
        m.expr().alias(m.name) for m in METRICS.values() if m.unit == "s" and m.table == "records"
    )
    assert row.null_count().row(0) == (1,) * row.width


def test_lateness_is_the_sum_of_its_two_parts():
    assert value("lateness") == pytest.approx((value("pacer_late") or 0) + (value("no_connection") or 0))


def test_a_metric_that_is_not_per_request_says_so():
    with pytest.raises(UsageError, match="not known per request"):
        metric("itl").expr()


def test_a_metric_of_calls_is_taken_from_their_table():
    calls = pl.DataFrame({"start_ns": [5 * MS, 7 * MS], "end_ns": [25 * MS, None]})
    assert metric("llm_latency").table == "calls"
    assert metric("llm_latency").values(calls.lazy()).tolist() == [pytest.approx(0.02)]


def test_an_unknown_metric_is_named_with_the_nearest():
    with pytest.raises(UsageError, match=r"'runtme'.*Did you mean runtime"):
        metric("runtme")


def test_every_expression_is_numeric():
    schema = frame(ROW).select(m.expr().alias(m.name) for m in METRICS.values() if m.table == "records").schema
    assert set(schema.dtypes()) == {pl.Float64()}


def test_the_documentation_is_current():
    assert DOCS.read_text("utf-8") == markdown()


def named(page: str, *marks: str) -> set[str]:
    """Names in code on the one line of a page that has all these marks."""
    [line] = [line for line in (ROOT / "docs" / page).read_text("utf-8").splitlines() if all(m in line for m in marks)]
    return set(re.findall(r"`(\w+)`", line))


def test_the_engine_counts_what_the_table_says_by_the_second():
    counted = pl.scan_parquet(RUN / "levels" / "*" / "histograms" / "*.parquet").select("metric").unique().collect()
    assert set(counted["metric"]) == set(by_second())


def test_pages_that_list_metrics_list_those_of_the_table():
    exported = [name for name, each in METRICS.items() if each.exported]
    assert named("reference/records.md", "`metric`", "of requests that ended ok") == {"metric", *by_second()}
    assert named("how-to/watch-a-run.md", "pNN METRIC >") == set(by_second())
    ok, sent = (set(by_second(requests)) & set(exported) for requests in ("ok", "sent"))
    assert named("how-to/watch-a-run.md", "histograms of requests that ended ok") == {f"{name}_seconds" for name in ok}
    assert named("how-to/watch-a-run.md", "histograms of all that were sent") == {f"{name}_seconds" for name in sent}
    page = " ".join((ROOT / "docs" / "reference" / "python.md").read_text("utf-8").split())
    summary = [name for name, each in METRICS.items() if each.summary and each.table != "calls"]
    families = ", ".join(f"`{name}_`" for name in summary[:-1]) + f" and `{summary[-1]}_`"
    assert f"{families} each with {', '.join(f'`{q}_s`' for q in QUANTILES)};" in page


def test_pairs_count_the_same_time_from_the_other_origin():
    pairs = {each.name: each.pair for each in METRICS.values() if each.pair}
    assert all(pairs[pair] == name for name, pair in pairs.items())
    assert {each.origin for each in METRICS.values() if each.pair} == {"due", "sent"}
    late = value("lateness") or 0
    for name, pair in pairs.items():
        from_due, from_sent = (name, pair) if metric(name).origin == "due" else (pair, name)
        assert value(from_due) == pytest.approx((value(from_sent) or 0) + late)
