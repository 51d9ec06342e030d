"""Plans: counts over users, rates, bounds and time, failed replicas and costs, of a cluster whose answer is known."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import polars as pl
import pytest

import gpusize
from gpusize.analysis.level import LevelData
from gpusize.analysis.slo import Slo
from gpusize.api.what_if import what_if
from gpusize.base.errors import UsageError
from gpusize.estimate.methods import Estimate, Question, estimate
from gpusize.estimate.plan import WhatIf
from gpusize.estimate.plan.ask import Answers
from gpusize.estimate.plan.ranges import Bound
from gpusize.estimate.plan.table import plan
from gpusize.estimate.plan.types import COLUMNS, Scenario
from gpusize.estimate.truth import simulate_closed, true_gpus
from tests.estimate.virtual import CLUSTER, level
from tests.whatif.folder import LOADS, SLO, levels, run_folder


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return run_folder(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def plain(run) -> WhatIf:
    return what_if(run, failed=1, gpu_hour_price="2 EUR")


def counts(found: WhatIf) -> list[Any]:
    return [row.gpus for row in found.rows]


def test_without_more_users_go_from_half_to_16_times_the_capacity(plain):
    users = [row.users for row in plain.rows]
    assert users[0] == pytest.approx(0.5 * plain.capacity, rel=0.1)
    assert users[-1] == pytest.approx(16 * plain.capacity, rel=0.1)
    assert plain.axis == "users"
    assert all(row.method == "twin" for row in plain.rows)


def test_each_row_is_what_an_estimate_says(run, plain):
    measured = gpusize.open_run(run).levels
    for row in plain.rows[::4]:
        [found] = estimate(measured, Question(row.users, [Slo.parse(SLO)]), "twin")
        assert (row.gpus, row.gpus_low, row.gpus_high) == (found.gpus, found.gpus_low, found.gpus_high)
        assert row.gpus_raw == pytest.approx(found.gpus_raw)


def test_the_count_of_a_simulated_replica_is_the_true_one(tmp_path):
    found = what_if(run_folder(tmp_path, first=True), 150, failed=1, gpu_hour_price=1)
    [row] = found.rows
    assert any("continuous batching" in text for text in found.assumptions)
    assert 0.5 < row.failed.attainment < 0.97
    load = {"prompt_tokens": {"uniform": {"min_tokens": 50, "max_tokens": 400}}}
    truth = true_gpus(CLUSTER, 150, [Slo.parse(SLO)], load=load)
    assert row.gpus_low <= truth <= row.gpus_high
    records = simulate_closed({**CLUSTER, "gpus": row.gpus}, 150, requests=6000, load=load)
    mean_s = (records["end_ns"] - records["due_ns"]).mean() / 1e9
    assert row.per_s == pytest.approx(150 / mean_s, rel=0.03)


def test_what_is_left_when_a_replica_fails(plain):
    for row in plain.rows:
        assert row.failed.target == 0.95
        assert row.failed.kept == (row.failed.attainment >= 0.95)
        assert row.failed.gpus == row.gpus + 1
    assert plain.rows[0].failed.attainment == 0.0, "of one replica none is left"
    shares = [row.failed.attainment for row in plain.rows if row.gpus > 4]
    assert min(shares) > 0.5, "of many replicas one is a small part"


def test_one_to_spare_stands_one_that_fails(run):
    found = what_if(run, "60,200", failed=1, spare=1)
    assert all(row.failed.kept and row.failed.gpus == row.gpus for row in found.rows)
    two = what_if(run, "60,200", failed=2, spare=1)
    assert [row.failed.gpus for row in two.rows] == [row.gpus + 1 for row in two.rows]
    # What is left is less than the count, which leans to the safe side: it may just keep the SLO all the same.
    for one, both in zip(found.rows, two.rows, strict=True):
        assert both.failed.attainment < one.failed.attainment
        assert both.failed.kept == (both.failed.attainment >= 0.95)
    assert not all(row.failed.kept for row in two.rows)


def test_costs_follow_the_count_and_the_rate(plain):
    for row in plain.rows:
        assert row.cost.per_hour == 2.0 * row.gpus
        assert row.cost.per_month == 730 * row.cost.per_hour
        # Little's law over the whole cluster: each user waits for one answer of some seconds.
        assert 1 < row.users / row.per_s < 8.5
        assert row.cost.per_million_requests == pytest.approx(row.cost.per_hour / row.per_s / 3600 * 1e6)
        assert row.cost.per_million_tokens == pytest.approx(row.cost.per_million_requests / plain.tokens)
    assert plain.tokens == pytest.approx(108, rel=0.1)


def test_bounds_of_the_slo(run):
    found = what_if(run, 200, bounds="6s,8s,9s")
    assert found.axis == "bound"
    assert [row.slos for row in found.rows] == [(f"p95 runtime <= {s}s",) for s in (6, 8, 9)]
    assert counts(found) == sorted(counts(found), reverse=True)
    assert counts(found)[0] > counts(found)[-1]
    assert counts(what_if(run, 200, bounds="0.75x,1x"))[0] == counts(found)[0]


def test_of_several_bounds_a_time_is_none_of_them(run):
    slos = [SLO, "p95 service <= 8s"]
    with pytest.raises(UsageError, match="2 SLOs"):
        what_if(run, 200, slos, bounds="2s")
    tighter = what_if(run, 200, slos, bounds="0.9x")
    assert tighter.rows[0].slos == ("p95 runtime <= 7.2s", "p95 service <= 7.2s")
    with pytest.raises(UsageError, match="no SLO has a bound on a time"):
        what_if(run, 200, "share ok >= 99%", bounds="0.5x")


def test_growth_multiplies_the_load(run):
    found = what_if(run, growth="30%/year for 2")
    assert found.axis == "growth"
    assert [(row.step, row.users) for row in found.rows] == [
        ("now", 100),
        ("after 1 year", 130),
        ("after 2 years", 169),
    ]
    assert counts(found) == sorted(counts(found))
    assert counts(found)[0] < counts(found)[-1]


def test_loads_bounds_and_growth_at_once(run):
    found = what_if(run, "60,100", bounds="7s,9s", growth="1.5")
    assert len(found.rows) == 8
    assert found.axis == "users"
    assert [(row.step, row.bound_s, row.users) for row in found.rows][-2:] == [("x 1.5", 9.0, 90), ("x 1.5", 9.0, 150)]


def test_rates_and_tokens(run):
    rates = what_if(run, rates="5,20/s")
    assert [row.rate for row in rates.rows] == [5.0, 20.0]
    assert [row.per_s for row in rates.rows] == [5.0, 20.0]
    each = rates.tokens
    tokens = what_if(run, token_rates=[5.0 * each, 20.0 * each])
    assert counts(tokens) == counts(rates)
    assert [row.rate for row in tokens.rows] == pytest.approx([5.0, 20.0])
    assert tokens.kind == "token_rate"


def test_pauses_routers_and_headroom_reach_every_row(run):
    base = counts(what_if(run, "60,200"))
    pauses = what_if(run, "60,200", think_s=5.0, think="exponential")
    assert all(a < b for a, b in zip(counts(pauses), base, strict=True))
    assert counts(what_if(run, "60,200", headroom=0.5)) == [-(-3 * n // 2) for n in base]
    assert any("0.5 of them as headroom" in text for text in what_if(run, "60", headroom=0.5).assumptions)


def test_what_cannot_be_answered_has_a_reason_and_no_number(run):
    found = what_if(run, 100, bounds="300ms,8s,100s")
    none, some, flat = found.rows
    assert (none.gpus, none.cost, none.failed) == (None, None, None)
    assert "single request in flight already misses" in none.reason
    assert some.gpus
    assert flat.gpus is None
    assert "no measured load misses an SLO" in flat.reason
    assert flat.gpus_high == 4, "but an upper end: 30 users on one GPU kept the SLO"
    assert found.answered
    assert not what_if(run, 100, bounds="300ms").answered


def halved() -> list[LevelData]:
    """The levels with a row for every other request only."""
    every_other = pl.col("seq") % 2 == 0
    return [replace(lv, meta={**lv.meta, "sampled": 2}, records=lv.records.filter(every_other)) for lv in levels()]


def test_a_method_without_simulation_answers_where_the_twin_does_not():
    # Of a part of the requests the twin has nothing to fit; two loads bracket the capacity for crossing.
    sampled = halved()
    question = Question(100, [Slo.parse(SLO)])
    found = plan(Answers(sampled, question), question, Scenario(users=[100.0, 200.0], failed=1))
    assert [row.method for row in found.rows] == ["crossing", "crossing"]
    assert found.rows[0].gpus
    assert found.rows[0].failed is None
    assert any("the twin does not answer" in text for text in found.warnings)
    paused = replace(question, think_s=1.0, think="fixed")
    [row] = plan(Answers(sampled, paused), paused, Scenario(users=[100.0])).rows
    assert (row.gpus, row.method) == (None, "twin")
    assert row.reason


def test_a_rate_needs_no_slo(run):
    """The full throughput of what was measured answers, as in an estimate."""
    full = [level(users, max_batch=8) for users in (1, 4, 16, 32)]
    question = Question(0, [], rate=1.0)
    found = plan(Answers(full, question), question, Scenario(rates=[5.0, 20.0, 40.0], failed=1))
    for row in found.rows:
        [alone] = estimate(full, replace(question, rate=row.rate))
        assert alone.answered
        assert (row.method, row.gpus, row.gpus_raw) == ("scaling", alone.gpus, alone.gpus_raw)
        assert row.slos == ()
    assert counts(found)[0] < counts(found)[-1]
    assert found.capacity == pytest.approx(5 / found.rows[0].gpus_raw)
    assert sum("extrapolated" in text for text in found.warnings) == 1
    rises = what_if(run, slos=[], rates="5,20")
    assert counts(rises) == [None, None]
    assert "throughput still rises at concurrency 30" in rises.rows[0].reason
    with pytest.raises(UsageError, match=r"there is no SLO to size users for.*--rate"):
        what_if(run, "5,20", slos=[])


def test_for_rates_scaling_answers_where_the_twin_does_not():
    sampled = halved()
    question = Question(0, [Slo.parse(SLO)], rate=1.0)
    found = plan(Answers(sampled, question), question, Scenario(rates=[5.0, 20.0]))
    assert [row.method for row in found.rows] == ["scaling", "scaling"]
    assert all(row.gpus for row in found.rows)
    assert any("the twin does not answer" in text for text in found.warnings)
    [default] = estimate(sampled, replace(question, rate=20.0))
    assert found.rows[1].gpus == default.gpus
    # What the twin refuses for the question's sake nobody else is asked for.
    never = replace(question, slos=[Slo.parse("p95 runtime <= 300ms")])
    [row] = plan(Answers(levels(), never), never, Scenario(rates=[5.0])).rows
    assert (row.gpus, row.method) == (None, "twin")


def late(level: LevelData) -> LevelData:
    """The level with the generator as its limit."""
    length_ns = level.meta["end_ns"] - level.meta["start_ns"]
    return replace(level, meta={**level.meta, "workers": 1, "cpu_ns": int(0.95 * length_ns)})


def test_what_an_estimate_leaves_out_a_plan_leaves_out_too():
    question = Question(200, [Slo.parse(SLO)])
    flagged = [*levels()[:-1], late(levels()[-1])]
    [default] = estimate(flagged, question)
    found = plan(Answers(flagged, question), question, Scenario(users=[200.0]))
    [row] = found.rows
    assert (row.gpus, row.gpus_raw) == (default.gpus, default.gpus_raw)
    assert "concurrency 30 is left out, as the generator was the limit" in found.warnings
    [none] = plan(Answers([late(each) for each in levels()], question), question, Scenario(users=[200.0])).rows
    assert none.gpus is None
    assert "8 levels are left out" in none.reason
    assert "more --workers" in none.reason
    # Where only those have seen the capacity, a row says that they are missing.
    flat = [each if (each.concurrency or 0) < 12 else late(each) for each in levels()]
    [unseen] = plan(Answers(flat, question), question, Scenario(users=[200.0])).rows
    assert unseen.gpus is None
    assert "no measured load misses an SLO" in unseen.reason
    assert "6 levels are left out (concurrency 12, 20, 22, 24, 26, 30), as the generator was the limit" in unseen.reason


class Noisy:
    """Answers with counts of its own, as by chance."""

    tokens = None
    most_users = 1

    def __init__(self, gpus: dict[tuple[int, str], int | None]) -> None:
        self.gpus = gpus

    def ask(self, question: Question) -> Estimate:
        n = self.gpus[round(question.users), str(question.slos[0])]
        if n is None:
            return Estimate("crossing", 1, question.users, reason="not known")
        return Estimate("crossing", 1, question.users, gpus=n, gpus_raw=n - 0.5, gpus_low=n - 1, gpus_high=n + 1)

    def performance(self, question: Question, gpus: int) -> None:
        raise AssertionError


def test_more_load_or_a_tighter_bound_never_needs_fewer():
    tight, loose = "p95 runtime <= 4s", "p95 runtime <= 8s"
    gpus = {(10, tight): 2, (20, tight): 4, (30, tight): 3, (40, tight): None, (50, tight): 6}
    gpus |= {(10, loose): 1, (20, loose): 3, (30, loose): 5, (40, loose): 4, (50, loose): 5}
    question = Question(1, [Slo.parse(loose)])
    bounds = [Bound(seconds=4.0), Bound(seconds=8.0)]
    found = plan(cast(Answers, Noisy(gpus)), question, Scenario(users=[10.0, 20.0, 30.0, 40.0, 50.0], bounds=bounds))
    # 30 users at 4 s are raised to what 30 users at 8 s need, and 40 at 8 s to what 30 do.
    assert counts(found) == [2, 4, 5, None, 6, 1, 3, 5, 5, 5]
    assert [row.raised for row in found.rows] == [False, False, True, False, False, False, False, False, True, False]
    for row in found.rows:
        assert row.gpus is None or row.gpus_low <= row.gpus <= row.gpus_high
    assert found.rows[2].gpus_high == 6
    curve = [row for row in found.rows if row.slos == (tight,) and row.gpus is not None]
    assert all(a.gpus_raw <= b.gpus_raw for a, b in itertools.pairwise(curve))


def test_the_frame_has_all_columns_and_json_the_same_rows(plain):
    assert plain.frame.columns == list(COLUMNS)
    assert plain.frame["gpus"].to_list() == counts(plain)
    assert plain.frame["currency"].to_list() == ["EUR"] * len(plain.rows)
    document = plain.to_json()
    assert document["rows"] == plain.frame.to_dicts()
    assert (document["axis"], document["load"], document["failed"]) == ("users", "users", 1)


def test_it_is_a_public_name_and_takes_a_result(run):
    result = gpusize.open_run(run)
    assert counts(gpusize.what_if(result, [60, 100])) == counts(what_if([run], "60,100"))
    told = []
    gpusize.what_if(result, [60, 100], progress=lambda done, rows: told.append((done, rows)))
    assert told == [(1, 2), (2, 2)]


def test_a_run_without_users_is_asked_around_its_capacity(tmp_path):
    found = what_if(run_folder(tmp_path, users=None), growth="2")
    assert found.rows[0].users == pytest.approx(0.5 * found.capacity, rel=0.1)


def test_a_curve_that_never_nears_the_slo_is_asked_at_one_load(run, tmp_path):
    found = what_if(run, None, "p95 runtime <= 100s")
    assert [row.users for row in found.rows] == [100]
    assert not found.answered
    assert found.next_levels == (2 * LOADS[-1], 4 * LOADS[-1])
    nobody = what_if(run_folder(tmp_path, users=None), None, "p95 runtime <= 300ms")
    assert [row.users for row in nobody.rows] == [LOADS[-1]]


def test_tokens_that_nobody_told(tmp_path):
    silent = run_folder(tmp_path, tokens=False)
    with pytest.raises(UsageError, match="tells its tokens"):
        what_if(silent, token_rates=100)
    found = what_if(silent, 60, gpu_hour_price=2.5)
    assert found.rows[0].cost.per_million_requests
    assert found.rows[0].cost.per_million_tokens is None


def test_several_kinds_of_load_are_several_questions(run):
    with pytest.raises(UsageError, match="more than one of"):
        what_if(run, 10, rates=3)
    with pytest.raises(UsageError, match="can be simulated"):
        what_if(run, 1e7)
    with pytest.raises(UsageError, match="plan of 800 rows"):
        what_if(run, list(range(1, 201)), bounds="1s,2s,3s,4s")


def test_tokens_per_second_as_an_estimate(run):
    result = gpusize.open_run(run)
    [found] = result.estimates(token_rate=2000.0, method="twin")
    each = found.details["tokens_per_request"]
    assert each == pytest.approx(108, rel=0.1)
    assert found.rate == pytest.approx(2000.0 / each)
    assert found.gpus == result.estimate(rate=2000.0 / each, method="twin").gpus
    assert any("2,000 output tokens/s are" in text for text in found.assumptions)
    with pytest.raises(UsageError, match="more than one of"):
        result.asking(users=5).estimates(token_rate=2000.0)


@pytest.mark.parametrize(
    "asked, name",
    [
        ({"failed": "x"}, "failed"),
        ({"failed": 1.5}, "failed"),
        ({"failed": -1}, "failed"),
        ({"gpus": 4}, "gpus"),
    ],
)
def test_what_is_no_number_of_replicas_is_refused(run: Path, asked: dict[str, Any], name: str) -> None:
    with pytest.raises(UsageError) as caught:
        what_if(run, "100", **asked)
    assert caught.value.where == name


def test_what_result_cannot_be_asked_is_said_before_anything_is_simulated(run: Path) -> None:
    result = gpusize.open_run(run)
    for asked, name in (
        ({"users": 1e12}, "users"),
        ({"rate": 1e12}, "rate"),
        ({"token_rate": -5}, "token_rate"),
        ({"users": 100, "gpus": 4}, "gpus"),
    ):
        with pytest.raises(UsageError) as caught:
            result.estimate(slos=SLO, **asked)
        assert caught.value.where == name
    # What the run says itself is no contradiction.
    assert result.estimate(users=100, slos=SLO, gpus=1).gpus == result.estimate(users=100, slos=SLO).gpus
