"""The audit: every figure of summary, tables, terminal and JSON against the raw requests, over random levels.

``make audit`` runs 1,000 of them; a plain run of the tests a few.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpusize.analysis.breakdown import breakdown
from gpusize.analysis.checks import check
from gpusize.analysis.delivery.delivery import counts_of
from gpusize.analysis.slo import Slo
from gpusize.analysis.summary import summarize
from gpusize.report.export import result_document
from gpusize.report.page.html import render_html
from gpusize.report.summary.columns import Column, summary_columns
from gpusize.report.summary.sweep import sweep_of
from gpusize.report.summary.terminal import print_summary
from tests.audit.by_hand import Asked, Hand, quantile, requests_of, span_s
from tests.audit.worlds import CLOSED, OPEN, Made, World, make, worlds
from tests.report.results import Source, console

CASES = int(os.environ.get("AUDIT_CASES", "60"))
"""Random levels; the same ones each time."""
FROM_DUE = {"service": "runtime", "ttft_sent": "ttft"}
FROM_SENT = {"runtime": "service", "ttft": "ttft_sent"}
BUCKET = 0.008
"""Most that the width of a bucket of the engine's histograms is, relative to its times."""


def slos() -> st.SearchStrategy[list[Asked]]:
    """Several at a time, with bounds among the times of the worlds."""
    bounds = st.integers(1, 3000)
    percentiles = st.builds(
        lambda p, metric, op, ms: Asked(f"p{p} {metric} {op} {ms}ms", "percentile", metric, p / 100, op, ms / 1e3),
        st.sampled_from([50, 90, 95, 99, 100]),
        st.sampled_from(["runtime", "service", "ttft", "ttft_sent"]),
        st.sampled_from(["<=", "<", "<=", ">="]),
        bounds,
    )
    means = st.builds(
        lambda metric, ms: Asked(f"mean {metric} <= {ms}ms", "mean", metric, 1.0, "<=", ms / 1e3),
        st.sampled_from(["runtime", "service"]),
        bounds,
    )
    shares = st.builds(
        lambda what, percent: Asked(f"share {what} >= {percent}%", "share", what, percent / 100, ">=", percent / 100),
        st.just("ok"),
        st.sampled_from([50, 90, 99]),
    )
    return st.lists(st.one_of(percentiles, percentiles, means, shares), max_size=3)


def same(found: Any, wanted: Any, what: str) -> None:
    """Equal, to rounding; None for None."""
    if wanted is None or found is None:
        assert found is wanted, f"{what}: {found} where {wanted} is right"
    else:
        assert found == pytest.approx(wanted, rel=1e-9, abs=1e-12), f"{what}: {found} where {wanted} is right"


# A level that was ended before anything was sent, of which not every request has a row.
NOTHING_SENT = World(1, None, "passes", 1, 0.18, 0.9, 1.0, 0.01, 0.0, 0, True, True, 3, 255510336)


SHARE = settings(max_examples=max(1, CASES // 4), derandomize=True)


@SHARE
@given(worlds(CLOSED, st.just(1)), slos())
def test_every_figure_of_a_closed_loop_follows_from_the_raw_requests(world: World, asked: list[Asked]) -> None:
    audit(world, asked)


@SHARE
@given(worlds(OPEN, st.just(1)), slos())
def test_every_figure_of_an_open_loop_follows_from_the_raw_requests(world: World, asked: list[Asked]) -> None:
    audit(world, asked)


# Two tokens a second and a bit.
SLOW_TOKENS = World(1, None, "duration", 1, 0.47788364595793337, 0.9, 0.0, 0.01, 0.0, 10_000, False, True, 2, 2)


@SHARE
@given(worlds(CLOSED, st.integers(2, 5)), slos())
@example(NOTHING_SENT, [])
@example(SLOW_TOKENS, [])
def test_a_sampled_closed_loop_says_what_all_of_its_requests_do(world: World, asked: list[Asked]) -> None:
    audit(world, asked)


@SHARE
@given(worlds(OPEN, st.integers(2, 5)), slos())
def test_a_sampled_open_loop_says_what_all_of_its_requests_do(world: World, asked: list[Asked]) -> None:
    audit(world, asked)


def audit(world: World, asked: list[Asked]) -> None:
    """One level against its requests."""
    made = make(world)
    frame = summarize([made.level], [Slo.parse(each.text) for each in asked])
    [row] = frame.to_dicts()
    hand = Hand(requests_of(made.raw), made.level.meta, made.level.window())
    (whole if world.sampled == 1 else of_a_sample)(made, hand, row, asked)
    shown(frame, row, asked, page=world.seed % 8 == 0)


def whole(made: Made, hand: Hand, row: dict[str, Any], asked: Sequence[Asked]) -> None:
    """All requests have a row: everything is exact."""
    for name, value in {**hand.counts(), **hand.times(), **hand.rates()}.items():
        if name.startswith("err_"):
            same(row.get(name, 0), value, name)
        else:
            same(row[name], value, name)
    same(row["goodput"], hand.goodput(asked, swapped=FROM_DUE), "goodput")
    same(row["goodput_sent"], hand.goodput(asked, swapped=FROM_SENT), "goodput_sent")
    for k, slo in enumerate(asked):
        names = (f"slo_{k}_attainment", f"slo_{k}_over", f"slo_{k}_met")
        for name, value in zip(names, slo.judged(hand.steady), strict=True):
            same(row[name], value, f"{name} of {slo.text}")
    if row["little"] != "not checkable":
        same(row["little_n"], hand.in_flight(), "little_n")
        same(row["little_ratio"], hand.in_flight() / (hand.slots or 1), "little_ratio")
    delivered(made, hand, row)
    replicas(made, hand, row)


def delivered(made: Made, hand: Hand, row: dict[str, Any]) -> None:
    """Where the requests of the whole level went."""
    never = [each for each in hand.rows if each["sent_ns"] is None]
    shed = sum(each["outcome"] == "shed" for each in never)
    counts = counts_of(made.level)
    assert counts == (len(hand.rows), len(hand.rows) - len(never), shed, len(never) - shed)
    failed = [each for each in check(made.level).delivery.checks if each.status == "failed"]
    assert (row["delivered"] is False) is bool(failed)


def replicas(made: Made, hand: Hand, row: dict[str, Any]) -> None:
    """The table of replicas: counts, rates and percentiles of each, which add up to the level's."""
    parts = breakdown([made.level], "target").to_dicts()
    came, begun, ended = hand.answered()
    for part in parts:
        own = [each for each in hand.steady if each["target"] == part["index"]]
        times = [x for each in own if each["outcome"] == "ok" and (x := span_s(each, "runtime")) is not None]
        same(part["n"], len(own), "n of a replica")
        same(part["share"], len(own) / len(hand.steady), "share of a replica")
        same(part["errors"], sum(each["outcome"] not in ("ok", "cancelled") for each in own), "errors of a replica")
        same(part["runtime_p95_s"], quantile(times, 0.95), "p95 of a replica")
        rate = sum(each["target"] == part["index"] for each in came) / (ended - begun) * 1e9 if ended > begun else None
        same(part["achieved_rate"], rate, "rate of a replica")
    if row["achieved_rate"] is not None and len(parts) == len({each["target"] for each in hand.rows}):
        same(sum(part["achieved_rate"] for part in parts), row["achieved_rate"], "sum over replicas")


def of_a_sample(made: Made, hand: Hand, row: dict[str, Any], asked: Sequence[Asked]) -> None:
    """Counts are exact, times to the width of a bucket, shares to that of the bucket that the bound falls into."""
    start = made.level.meta["start_ns"]
    low, high = ((edge - start) / 1e9 for edge in made.level.window())
    # The window of such a level is whole seconds, unless it was too short for one.
    hand.steady = [each for each in hand.rows if round(low) <= (each["due_ns"] - start) // 1e9 < math.ceil(high)]
    hand.good = [each for each in hand.steady if each["outcome"] == "ok"]
    counts = hand.counts()
    for name in ("n", "errors", "shed", "unsent"):
        same(row[name], counts[name], name)
    for metric in ("runtime", "service", "ttft", "ttft_sent"):
        ranked = sorted(x for each in hand.good if (x := span_s(each, metric)) is not None)
        for name, prob in (("p50", 0.5), ("p95", 0.95), ("max", 1.0)):
            value = ranked[max(1, math.ceil(prob * len(ranked))) - 1] if ranked else None
            if value is None:
                assert row[f"{metric}_{name}_s"] is None
            else:
                assert row[f"{metric}_{name}_s"] == pytest.approx(value, rel=BUCKET, abs=1e-6), f"{metric} {name}"
    for k, slo in enumerate(asked):
        if slo.kind != "percentile":
            continue
        share, over, _ = slo.judged(hand.steady)
        found = row[f"slo_{k}_attainment"]
        if share is None or found is None:
            assert found is share, slo.text
            continue
        times = [x for each in hand.good if (x := span_s(each, slo.metric)) is not None]
        near = sum(abs(x - slo.bound) <= BUCKET * slo.bound for x in times)
        assert abs(found - share) <= (near + 1e-9) / ((over or 0) + round(share * len(times)) or 1) + 1e-9, slo.text


def shown(frame: pl.DataFrame, row: dict[str, Any], asked: Sequence[Asked], *, page: bool) -> None:
    """The document, the terminal and the page show the summary's own figures, in the units that they name."""
    source = Source(frame, {"run": "audit"}, slos=[each.text for each in asked])
    [told] = json.loads(json.dumps(result_document(source)))["summary"]
    for name, value in row.items():
        same(told[name], value, f"{name} in the document") if isinstance(value, (int, float)) else None
    columns = summary_columns(sweep_of(source))
    for column in columns:
        if column.key in SHOWN:
            figure(column, row[column.key])
        elif column.key.startswith("slo_"):
            share = row[f"{column.key.removesuffix('_attainment')}_attainment"]
            # Rounded down, so that no miss reads as 100 %.
            assert 100 * share - 0.1 <= float(column.cells[0].text.split("%")[0]) <= 100 * share + 1e-9, column
    out, raw = console(400)
    print_summary(source, out)
    lines = raw.getvalue().decode().splitlines()
    cells = [column.cells[0].text for column in columns if column.key in SHOWN]
    assert any(all(cell in line.split() for cell in cells) for line in lines), lines
    if page:
        written = render_html(source)
        assert all(f">{cell}<" in written for cell in cells)


SHOWN = (
    "n", "offered_rate", "achieved_rate", "tokens_out_per_s",
    *(f"{metric}_{q}_s" for metric in ("runtime", "ttft") for q in ("p50", "p95", "p99")),
)  # fmt: skip
UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "min": 60.0}


def figure(column: Column, value: float | None) -> None:
    """One cell says the value with three digits, in the unit of its header."""
    text = column.cells[0].text
    if value is None:
        assert text == "–", column
        return
    factor = UNITS.get(column.unit.split()[-1], 1.0) if column.key.endswith("_s") and "rate" not in column.key else 1.0
    factor = 1.0 if column.key == "tokens_out_per_s" else factor
    factor *= 1e3 if text.endswith("k") else 1e6 if text.endswith("M") else 1.0
    assert float(text.rstrip("kM").replace(",", "")) * factor == pytest.approx(value, rel=6e-3, abs=1e-12), column
