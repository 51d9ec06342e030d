"""A plan as words, as a table and as a picture."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from gpusize.base.errors import UsageError
from gpusize.estimate.plan import Failed, Price, Row, WhatIf
from gpusize.estimate.plan.price import cost
from gpusize.report.figures.plan import draw_plan, plan_figure
from gpusize.report.plans.plan import plan_columns, print_plan
from gpusize.report.plans.words import finding, interval_text
from gpusize.report.summary.terminal import make_console

SLO = "p95 runtime <= 2s"


def row(users: float | None, gpus: int | None, **more: object) -> Row:
    known = {} if gpus is None else {"gpus_low": gpus - 1, "gpus_high": gpus + 1, "gpus_raw": gpus - 0.5}
    asked = {"step": "now", "growth": 1.0, "users": users, "rate": None, "token_rate": None}
    whole = {**asked, "bound_s": None, "bound_factor": None, "slos": (SLO,), "method": "twin", "gpus": gpus, **known}
    return Row(**{**whole, **more})  # type: ignore[arg-type]


def text(plan: WhatIf, width: int = 110) -> str:
    out = io.StringIO()
    print_plan(plan, make_console(out, width=width))
    return out.getvalue()


def curve(**more: object) -> WhatIf:
    return WhatIf(tuple(row(10.0 * k, k + 1) for k in range(1, 6)), **more)  # type: ignore[arg-type]


def test_the_finding_names_the_ends():
    assert finding(curve()) == "2 GPUs for 10 users, 6 for 50 users"
    bounds = WhatIf((row(9, 4, bound_s=0.5), row(9, 2, bound_s=2.0)))
    assert finding(bounds) == "9 users: 4 GPUs at 500 ms, 2 at 2 s"
    growth = WhatIf((row(9, 4), row(18, 8, step="x 2", growth=2.0)))
    assert finding(growth) == "4 GPUs now, 8 x 2"
    both = WhatIf((row(9, 4, bound_s=1.0), row(18, 8, bound_s=1.0), row(9, 3, bound_s=2.0), row(18, None, bound_s=2.0)))
    assert finding(both) == "3 to 8 GPUs for 9 to 18 users at several bounds"
    assert finding(WhatIf((row(9, None, reason="no"),))) == "No row of the plan has an answer"
    assert finding(WhatIf((row(1, 1),))) == "1 GPU for 1 user"


def test_intervals_with_one_end():
    assert interval_text(row(9, 4)) == "3 to 5"
    assert interval_text(row(9, 4, gpus_low=None)) == "at most 5"
    assert interval_text(row(9, 4, gpus_high=None)) == "at least 3"
    assert interval_text(row(9, 4, gpus_low=4, gpus_high=4)) == "4"


def test_columns_are_those_that_were_asked_for():
    keys = [column.key for column in plan_columns(curve())]
    assert keys == ["load", "gpus", "interval", "bar", "raw"]
    failed = Failed(0.9, 0.95, kept=False, gpus=7)
    rows = (row(9, 4, failed=failed, cost=cost(Price(2.0), 4, None, None), raised=True), row(9, 4, method="crossing"))
    keys = [column.key for column in plan_columns(WhatIf(rows, failed=1, price=Price(2.0)))]
    assert keys[5:] == [
        "failed",
        "failed_gpus",
        "per_hour",
        "per_month",
        "per_million_requests",
        "per_million_tokens",
        "method",
        "note",
    ]


def test_a_capacity_that_is_not_that_of_the_rows_says_so():
    rows = tuple(row(users, 4, gpus_raw=raw) for users, raw in ((40, 3.2), (80, 6.6)))
    alike = WhatIf(rows[:1], capacity=12.5, tested_gpus=1)
    said = [line.rstrip() for line in text(alike).splitlines()]
    assert any(line.endswith("12.5 requests in flight on the 1 GPU tested") for line in said)
    other = text(WhatIf(rows, capacity=12.0, tested_gpus=1), width=160)
    clusters = "in the simulated clusters of the rows as many GPUs carry 12.1 to 12.5"
    assert f"12 requests in flight on the 1 GPU tested; {clusters} users" in other
    # Of what was raised, or is no simulation, nothing follows.
    for plain in (row(40, 4, gpus_raw=3.2, raised=True), row(40, 4, gpus_raw=3.2, method="crossing")):
        assert "simulated clusters" not in text(WhatIf((plain,), capacity=12.0, tested_gpus=1), width=160)


def test_without_an_slo_it_says_what_the_counts_are_for():
    plan = WhatIf((row(None, 4, rate=9.0, slos=(), method="scaling"),))
    assert "without an SLO: at their full throughput" in text(plan)
    assert "at p95 runtime <= 2s" in text(curve())


def test_reasons_stand_once_with_their_rows():
    plan = WhatIf((row(10, 2), row(20, None, reason="because"), row(30, None, reason="because")), next_levels=(64,))
    assert "• 20, 30 users: because" in text(plan)
    assert "measure next  64 in flight" in text(plan)


def test_hostile_text_and_narrow_or_plain_terminals():
    plan = WhatIf((row(10, 2), row(20, None, reason="\x1b[31mred\x07 [bold]x")), price=Price(1.0, "EUR"))
    assert "\x1b" not in text(plan)
    assert "red [bold]x" in text(plan)
    assert max(len(line) for line in text(plan, 60).splitlines()) <= 60
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    print_plan(plan, make_console(out, width=160))
    out.flush()
    assert b"####" in out.buffer.getvalue()


def test_a_picture_with_a_line_for_each_bound(tmp_path: Path):
    rows = [
        row(10.0 * k, None if k == 5 and s == 2 else k + 3 - s, bound_s=float(s)) for s in (1, 2) for k in range(1, 6)
    ]
    figure = plan_figure(WhatIf(tuple(rows)))
    [axes] = figure.axes
    drawn = {line.get_label(): line for line in axes.lines}
    assert "no answer" in drawn
    assert {each.get_text() for each in axes.texts} == {"1 s", "2 s"}
    curves = [ys for line in axes.lines if len(ys := np.asarray(line.get_ydata()).tolist()) >= 4]
    assert curves == [[3, 4, 5, 6, 7], [2, 3, 4, 5]]
    assert draw_plan(WhatIf(tuple(rows)), tmp_path / "plan.png").stat().st_size > 1000


def test_costs_stand_at_the_right_and_failures_as_a_line():
    failed = Failed(0.9, 0.95, kept=False, gpus=9)
    rows = tuple(row(10.0 * k, k + 1, failed=failed) for k in range(1, 6))
    figure = plan_figure(WhatIf(rows, price=Price(2.0, "EUR"), failed=1))
    [axes] = figure.axes
    [beside] = axes.child_axes
    assert beside.get_ylabel() == "EUR per month"
    assert [each.get_text() for each in axes.get_legend().get_texts()] == [
        "GPUs",
        "interval",
        "GPUs that stand 1 failed replica",
    ]
    figure.draw_without_rendering()
    assert beside.get_ylim()[1] == pytest.approx(2.0 * 730 * axes.get_ylim()[1])


def test_dotted_lines_are_named_however_many_there_are():
    failed = Failed(0.9, 0.95, kept=False, gpus=9)
    rows = [row(10.0 * k, k + 1, failed=failed, bound_s=bound) for bound in (1.0, 2.0) for k in range(1, 4)]
    legend = plan_figure(WhatIf(tuple(rows), failed=1)).axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["GPUs that stand 1 failed replica"]


def test_wide_curves_are_logarithmic_both_ways():
    axes = plan_figure(WhatIf((row(10, 1), row(100, 9), row(1000, 90)))).axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    axes = plan_figure(WhatIf((row(10, 1), row(100, 9)))).axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "linear")


def test_what_cannot_be_drawn():
    with pytest.raises(UsageError, match="nothing to draw"):
        plan_figure(WhatIf((row(10, None),)))
    many = tuple(row(load, 2, bound_s=float(s)) for s in range(1, 11) for load in (1, 2))
    with pytest.raises(UsageError, match="10 lines"):
        plan_figure(WhatIf(many))
