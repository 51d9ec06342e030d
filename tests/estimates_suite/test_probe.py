"""What an estimator gets to see: levels as real runs have them, within the budget."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benches.estimates.probe import BudgetSpent, Probe
from benches.estimates.question import Visible, attainments, judged, metric_ns
from benches.estimates.scenario import Scenario
from benches.estimates.worlds import OwnWorld, WorldLoad
from gpusize.analysis.checks import check
from gpusize.analysis.slo import Slo
from gpusize.base.errors import UsageError
from gpusize.records.schema import outcome_dtype, record_dtypes
from tests.estimates_suite.simple import turns
from tests.estimates_suite.test_worlds import CONFIG

SLOS = ("p95 runtime <= 600ms", "p90 ttft <= 42ms", "p50 itl_mean <= 24ms")


def scenario(**visible: object) -> Scenario:
    output = {"lognormal": {"median_tokens": 20.0, "sigma": 0.5, "max_tokens": 100}}
    world = OwnWorld({**CONFIG, "output_tokens": output})
    asked = Visible(tuple(map(Slo.parse, SLOS)), users=8, replicas=(1, 2))
    return replace(turns(8, SLOS[0]), world=world, visible=replace(asked, **visible))  # type: ignore[arg-type]


def test_a_level_looks_like_a_real_one() -> None:
    level = Probe(scenario(), 1).measure(8, replicas=2, requests=600)
    frame = level.records.collect()
    assert dict(frame.schema) == {**record_dtypes(), "outcome": outcome_dtype()}
    assert (level.concurrency, level.gpus, level.state) == (8, 2, "done")
    assert [each["name"] for each in level.intervals] == ["warmup", "steady", "drain"]
    found = check(level)
    assert (found.flags, found.little.status) == ([], "ok")


@pytest.mark.parametrize(
    "changes",
    [{"think": "fixed", "think_s": 0.5}, {"think": "exponential", "think_s": 0.5}, {"users": None, "rate": 20.0}],
)
def test_no_check_finds_fault_with_other_loads(changes: dict[str, object]) -> None:
    found = scenario(**changes)
    level = Probe(found, 1).measure(found.visible.load, requests=2000)
    assert check(level).flags == []
    assert level.rate == found.visible.rate


def test_the_suite_judges_as_the_project_does() -> None:
    found = scenario()
    rows = found.world.run(WorldLoad(users=8, requests=600), gpus=1, seed=900_001_001)
    level = Probe(found, 1).measure(8, requests=600)
    whole = replace(level, intervals=())
    shares = attainments(rows, found.visible)
    assert shares == [slo.count(whole.records).within / judged(rows, slo)[1].sum() for slo in found.visible.slos]
    assert len({*shares, 0.0, 1.0}) == 5
    for slo in found.visible.slos:
        values = metric_ns(rows, slo.metric)
        np.testing.assert_allclose(whole.values(slo.metric), values[~np.isnan(values)] / 1e9)
    joint = attainments(rows, replace(found.visible, goodput=True))
    assert joint[0] < min(shares)
    assert joint[0] > sum(shares) - 2


def test_the_budget_is_an_upper_bound() -> None:
    probe = Probe(scenario(), 1, 1000)
    probe.measure(4, requests=700)
    assert (probe.spent, probe.left) == (700, 300)
    with pytest.raises(BudgetSpent):
        probe.measure(4, requests=301)
    assert probe.spent == 700
    probe.measure(4, requests=300)
    assert probe.left == 0


def test_levels_that_nobody_can_have_are_refused() -> None:
    probe = Probe(scenario(), 1)
    for asked in ({"load": 4, "replicas": 3}, {"load": 0}, {"load": 1.5}):
        with pytest.raises(UsageError):
            probe.measure(**asked, requests=10)
    assert probe.spent == 0


def test_visits_differ_and_repeat_with_the_seed() -> None:
    def ends(seed: int) -> list[list[int]]:
        probe = Probe(scenario(), seed)
        return [probe.measure(4, requests=50).records.collect()["end_ns"].to_list() for _ in range(2)]

    first, second = ends(1)
    assert first != second
    assert ends(1) == [first, second]
    assert ends(2)[0] != first


def test_passes_begin_at_once_and_count_in_full() -> None:
    level = Probe(scenario(), 1).measure(8, requests=8, passes=True)
    assert level.records.collect()["due_ns"].to_list() == [0] * 8
    assert sum(level.outcomes().values()) == 8


def test_an_open_question_may_be_measured_in_a_closed_loop() -> None:
    level = Probe(scenario(users=None, rate=20.0), 1).measure(3, requests=200, closed=True)
    assert (level.concurrency, level.rate) == (3, None)
