"""Requests that failed, in records and in figures of other tools: the same servers are judged alike by both."""

from __future__ import annotations

import heapq
import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusize.analysis.failed_requests import OF_FAILED, misses_by_failures, quantile_of_all
from gpusize.analysis.level import LevelData
from gpusize.analysis.slo import Slo
from gpusize.estimate.methods import Question, estimate
from gpusize.records.schema import OUTCOMES
from gpusize.studies.imports.figure_levels import Remarks, figure_level
from tests.analysis.synthetic import level

LOADS = (1, 4, 8, 16, 32)
SLOTS = 8
FAILED = OUTCOMES.index("http_error")


@cache
def served(users: int, requests: int = 1_500) -> list[tuple[float, float]]:
    """(due, end) seconds of a closed loop on one server that works on 8 at a time, each for 100 to 140 ms."""
    rng = np.random.default_rng(users)
    free, loop, rows = [0.0] * SLOTS, [(0.0, k) for k in range(users)], []
    for _ in range(requests):
        due, user = heapq.heappop(loop)
        end = max(due, heapq.heappop(free)) + 0.1 + 0.04 * rng.random()
        heapq.heappush(free, end)
        heapq.heappush(loop, (end, user))
        rows.append((due, end))
    return rows


def both(users: int, share: float) -> tuple[LevelData, LevelData]:
    """The same level as records and as the figures that another tool would state, of those that ended well alone."""
    rows = served(users)
    bad = np.random.default_rng([7, users]).random(len(rows)) < share
    due, end = (np.array(column) for column in zip(*rows, strict=True))
    due_ns, end_ns = (np.round(1e9 * each + 1e9).astype(int).tolist() for each in (due, end))
    columns = {"due_ns": due_ns, "fired_ns": due_ns, "sent_ns": due_ns, "end_ns": end_ns}
    outcome = np.where(bad, FAILED, 0).tolist()
    records = level(users, {**columns, "outcome": outcome}, visit=users, gpus=1, count=len(rows))
    steady = records.steady("end_ns").collect()
    due, end = (steady[name].to_numpy() / 1e9 for name in ("due_ns", "end_ns"))
    bad = (steady["outcome"] != "ok").to_numpy()
    times = (end - due)[~bad]
    figures = {f"runtime_p{q:g}_s": float(np.quantile(times, q / 100)) for q in (50, 75, 90, 95, 99, 99.9)}
    figures["runtime_mean_s"] = float(times.mean())
    counts = {"n": bad.size, "errors": int(bad.sum())}
    told = figure_level(
        {"kind": "closed", "concurrency": users},
        figures,
        Remarks(),
        {"counts": counts, "achieved_rate": times.size / float(end.max() - due.min())},
        gpus=1,
        where="f",
    )
    return records, told


def sweep(share: float) -> tuple[list[LevelData], list[LevelData]]:
    pairs = [both(users, share) for users in LOADS]
    return [one for one, _ in pairs], [other for _, other in pairs]


@settings(max_examples=40)
@given(st.floats(0, 0.3), st.sampled_from([0.5, 0.9, 0.95, 0.99]), st.floats(0.2, 0.4))
def test_figures_are_judged_as_the_records_are(share: float, asked: float, bound: float) -> None:
    records, figures = both(16, share)
    slo = Slo("percentile", "runtime", asked, "<=", bound)
    failed = figures.meta["counts"]["errors"] / figures.meta["counts"]["n"]
    assert misses_by_failures(figures, slo) == misses_by_failures(records, slo) == (failed > 1 - asked)
    attainment, n = records.attainment(slo)
    assert n == figures.meta["counts"]["n"]
    at = quantile_of_all(figures, "runtime", asked, bound)
    if at is None:
        # Beyond the highest that is stored, which is within the bound.
        highest = figures.quantile("runtime", 0.999)
        assert highest is not None
        assert highest <= bound
        assert asked / (1 - failed) > 0.999
    elif math.isinf(at):
        assert attainment < asked
        assert figures.met(slo) is False
    elif asked / (1 - failed) > 0.999:
        assert at > bound
        assert attainment < asked
    else:
        # Between stored percentiles the figures are straight, and the records are not.
        low, high = (records.attainment(Slo("percentile", "runtime", asked, "<=", by * at))[0] for by in (0.9, 1.1))
        assert low <= asked + 0.01
        assert high >= asked - 0.01


@pytest.mark.parametrize("of_figures", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("load", [{"users": 40}, {"users": 0, "rate": 150.0}])
def test_no_number_of_gpus_mends_failures(share: float, load: dict[str, Any], of_figures: bool) -> None:
    levels = sweep(share)[of_figures]
    [found] = estimate(levels, Question(slos=(Slo.parse("p95 runtime <= 300ms"),), **load), "auto")
    if not share:
        # One replica carries some 16 users or 60 requests/s.
        assert found.gpus == 3
        return
    assert (found.gpus, found.gpus_low, found.gpus_high) == (None, None, None)
    assert "more requests failed than p95 runtime <= 300ms allows at every" in str(found.reason)
    assert (found.next_levels, found.next_counts) == ((), ())
    assert any(text.startswith("requests failed at concurrency 1, 4, 8, 16, 32") for text in found.warnings)


@pytest.mark.parametrize("of_figures", [False, True])
@pytest.mark.parametrize("load", [{"users": 40}, {"users": 0, "rate": 150.0}])
def test_a_mean_is_kept_by_none_of_which_a_request_failed(load: dict[str, Any], of_figures: bool) -> None:
    """An error is endless: with 1 % of them there is no mean, and no count that would follow from the others'."""
    slo = Slo.parse("mean runtime <= 300ms")
    none, some = (estimate(sweep(share)[of_figures], Question(slos=(slo,), **load), "auto")[0] for share in (0.0, 0.01))
    assert none.gpus == 3
    assert some.gpus is None
    assert "more requests failed than mean runtime <= 300ms allows" in str(some.reason)


def test_percentiles_that_are_not_high_enough_are_said() -> None:
    figures = [
        figure_level(
            {"kind": "closed", "concurrency": users},
            {"service_p95_s": 0.1 * users, "service_p99_s": 0.11 * users},
            Remarks(),
            {"counts": {"n": 1_000, "errors": 5}, "achieved_rate": 10.0},
            gpus=1,
            where="f",
        )
        for users in (1, 2, 4)
    ]
    [found] = estimate(figures, Question(8, (Slo.parse("p99 service <= 1s"),)), "auto")
    assert found.gpus is None
    assert "the figures state no percentile that is high enough to tell" in str(found.reason)
    # What is beyond the bound already is missed, however far the rest is beyond it.
    [near] = estimate(figures, Question(8, (Slo.parse("p99 service <= 300ms"),)), "auto")
    assert near.gpus is None
    assert "concurrency 4, its smallest level, misses the SLO" in str(near.reason)


def test_a_share_is_judged_by_the_figures_that_count_both() -> None:
    _, figures = both(8, 0.1)
    counts = figures.meta["counts"]
    right = 1 - counts["errors"] / counts["n"]
    for text, met in (("share ok >= 99%", False), ("share ok >= 85%", True), ("share error <= 1%", False)):
        slo = Slo.parse(text)
        share, n = figures.attainment(slo)
        assert (share, n) == pytest.approx((right, counts["n"]))
        assert figures.met(slo) is met
    assert figures.attainment(Slo.parse("share timeout <= 1%"))[1] == 0


def test_few_failures_move_the_quantile_to_a_higher_one() -> None:
    """Of 3 % failed the 95th percentile is that of the others at 97.94: between the stored 95 and 99."""
    figures = figure_level(
        {"kind": "closed", "concurrency": 4},
        {"service_p95_s": 1.0, "service_p99_s": 2.0},
        Remarks(),
        {"counts": {"n": 1_000, "errors": 30}},
        gpus=1,
        where="f",
    )
    assert quantile_of_all(figures, "service", 0.95, 3.0) == pytest.approx(1 + (0.95 / 0.97 - 0.95) / 0.04)
    assert quantile_of_all(figures, "service", 0.99, 3.0) == math.inf
    assert quantile_of_all(figures, "ttft", 0.9, 3.0) is None


@pytest.mark.parametrize("errors", [0, 1])
@pytest.mark.parametrize("stored,asked", [((50,), 0.95), ((50, 90), 0.99), ((99,), 0.5), ((50, 99), 0.95)])
def test_no_percentile_stands_for_another(stored: tuple[int, ...], asked: float, errors: int) -> None:
    """With a failure as without: what the other tool did not state is not known."""
    figures = figure_level(
        {"kind": "closed", "concurrency": 4},
        {f"service_p{q}_s": 0.1 * q for q in stored},
        Remarks(),
        {"counts": {"n": 1_000, "errors": errors}},
        gpus=1,
        where="f",
    )
    assert quantile_of_all(figures, "service", asked, 100.0) is None


def test_times_that_are_of_failed_requests_too_are_taken_for_the_fastest() -> None:
    facts = {"counts": {"n": 1_000, "errors": 20}, OF_FAILED: True}
    figures = figure_level(
        {"kind": "closed", "concurrency": 4},
        {"service_p95_s": 1.0, "service_p99_s": 2.0},
        Remarks(),
        facts,
        gpus=1,
        where="f",
    )
    assert quantile_of_all(figures, "service", 0.95, 3.0) == pytest.approx(1.5)


@pytest.mark.parametrize("load", [{"users": 40}, {"users": 0, "rate": 150.0}])
def test_shares_without_a_failure_are_kept(load: dict[str, Any]) -> None:
    """They are no times: that none of them has one says nothing of failures."""
    records = sweep(0.0)[0]
    one, both_ = (
        estimate(records, Question(slos=tuple(map(Slo.parse, texts)), **load), "auto")[0]
        for texts in (["p95 runtime <= 300ms"], ["p95 runtime <= 300ms", "share ok >= 99%"])
    )
    assert one.gpus == both_.gpus == 3
    [alone] = estimate(records, Question(slos=(Slo.parse("share error <= 1%"),), **load), "auto")
    assert "requests failed" not in str(alone.reason)
    some = sweep(0.1)[0]
    [none] = estimate(some, Question(slos=(Slo.parse("share ok >= 99%"),), **load), "auto")
    assert none.gpus is None


@pytest.mark.parametrize("n", [20, 60, 700, 1_000, 123_460])
def test_just_as_many_failures_as_are_allowed(n: int) -> None:
    """0.95 / (1 - 0.05) is a little more than 1 in floating point."""
    figures = figure_level(
        {"kind": "closed", "concurrency": 4},
        {"service_p95_s": 1.0, "service_p99_s": 2.0},
        Remarks(),
        {"counts": {"n": n, "errors": n // 20}},
        gpus=1,
        where="f",
    )
    assert quantile_of_all(figures, "service", 0.95, 1.5) == 2.0
    assert quantile_of_all(figures, "service", 0.95, 3.0) is None
    assert not misses_by_failures(figures, Slo.parse("p95 service <= 3s"))
    assert misses_by_failures(figures, Slo.parse("p96 service <= 3s"))


def test_what_an_import_found_wrong_weakens_the_answer() -> None:
    _, levels = sweep(0.0)
    for each in levels[1:]:
        each.meta["alerts"].append("its figures are of no steady load")
        each.meta["flags"].append("ramp")
    [found] = estimate(levels, Question(40, (Slo.parse("p95 runtime <= 300ms"),)), "auto")
    assert "concurrency 4, 8, 16, 32: its figures are of no steady load" in found.warnings
