"""The search for settings, against days and settings that it has not seen."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from gpusize.base.errors import ConfigError, UsageError
from gpusize.estimate.plan.autoscale.days import another_day
from gpusize.estimate.plan.autoscale.manifest import read_policies
from gpusize.estimate.plan.autoscale.rewrite import rewritten, write_policy
from gpusize.estimate.plan.autoscale.setting import Setting
from gpusize.estimate.plan.autoscale.trials import Days, tolerance
from gpusize.estimate.plan.autoscale.tune import EDGE, Tuned, tune
from gpusize.estimate.plan.over_time.demand import Demand, demand
from gpusize.estimate.plan.over_time.doubt import Doubt
from gpusize.estimate.plan.over_time.over_time import Need, Planner, planner
from gpusize.estimate.plan.over_time.policies import ScalingRules
from gpusize.report.plans.tuned import conclusion, tuned_json
from gpusize.result import open_run
from tests.autoscale.test_manifest import FILES, MODIFIED
from tests.autoscale.test_scale_to_zero import to_zero
from tests.autoscale.test_simulated import policy
from tests.whatif.folder import run_folder


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("day") / "day.csv"
    place.write_text("time_s,rate_per_s\n0,2\n450,4\n900,11\n1350,4\n1800,4\n")
    return place


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, day: Path) -> Planner:
    result = open_run(run_folder(tmp_path_factory.mktemp("runs"), first=True))
    found = planner(result.levels, result.question(rate=1.0), demand(day), ScalingRules(start_delay_s=60.0))
    assert isinstance(found, Planner)
    return found


def test_another_day_has_the_same_course_and_other_chances() -> None:
    rnd = np.random.default_rng(1)
    edges = np.array([0, 60, 120, 180, 270], np.int64) * 10**9
    counts = np.array([300, 0, 900, 60])
    due = np.concatenate([np.sort(rnd.integers(a, b, n)) for a, b, n in zip(edges, edges[1:], counts, strict=False)])
    tokens = np.stack([np.repeat([1, 2, 3, 4], counts), np.arange(due.size)]).astype(np.uint32)
    base = Demand("day", due, 270.0, tokens)
    drawn = [another_day(base, edges, seed) for seed in range(200)]
    found = np.array([np.histogram(each.due_ns, edges)[0] for each in drawn])
    # Poisson: mean and variance are the day's count.
    assert found.mean(axis=0) == pytest.approx(counts, rel=0.05)
    assert found.var(axis=0) == pytest.approx(counts, rel=0.35)
    for each in drawn[:20]:
        assert (np.diff(each.due_ns) >= 0).all()
        # Lengths are those of the window's own requests.
        window = np.searchsorted(edges, each.due_ns, "right")
        assert each.tokens is not None
        assert (each.tokens[0] == window).all()
    again = another_day(base, edges, 3)
    assert (again.due_ns == drawn[3].due_ns).all()
    assert not np.array_equal(drawn[3].due_ns, drawn[4].due_ns)


@pytest.mark.parametrize("days, exact", [(5, 4.203), (10, 2.911), (20, 2.396), (50, 2.065)])
def test_the_spread_between_days_is_allowed_for(days: int, exact: float) -> None:
    # The exact factors are those of table A-7 of the same book.
    assert tolerance(days) == pytest.approx(exact, rel=0.015)
    # The second way: 19 in 20 samples have a bound below which at most a twentieth of all draws lies.
    rnd = np.random.default_rng(days)
    drawn = rnd.normal(size=(20_000, days))
    bound = drawn.mean(axis=1) - tolerance(days) * drawn.std(axis=1, ddof=1)
    assert np.mean(bound <= NormalDist().inv_cdf(0.05)) == pytest.approx(0.95, abs=0.01)


def test_days_differ_by_chance_and_by_the_fits_error(made: Planner) -> None:
    found = made.answer()
    days = Days(made, 4, 1)
    drawn = days.draw(20, found.edges_ns)
    errors = np.log([each.doubt.slower for each in drawn])
    assert (np.diff(errors) < 0).all()
    assert errors.mean() == pytest.approx(0, abs=0.1 * days.error)
    assert errors.std() == pytest.approx(days.error, rel=0.15)
    counts = np.array([each.demand.due_ns.size for each in drawn])
    # Chance of the recorded day and of the other: twice the variance of either.
    assert counts.std(ddof=1) == pytest.approx(np.sqrt(2 * made.demand.due_ns.size), rel=0.5)
    assert len({each.doubt.seed for each in drawn}) == 20
    # A day is simulated on a slower replica, as the simulation itself would.
    day, other = drawn[0], days.slower(0.0, found.edges_ns)
    trial = days.trial(policy(), [day, other])
    courses = [made.scaled(policy(), each.demand, doubt=each.doubt) for each in (day, other)]
    limited = [made.scaled(policy(), each.demand, doubt=replace(each.doubt, limited=True)) for each in (day, other)]
    pairs = list(zip(courses, limited, strict=True))
    assert days.unseen == 30
    assert trial.kept == sum(a.keeps and b.keeps for a, b in pairs)
    assert trial.shares == (min(min(a.shares, b.shares)[0] for a, b in pairs),)
    assert trial.gpu_hours == pytest.approx(np.mean([max(a.gpu_hours, b.gpu_hours) for a, b in pairs]))
    assert days.trial(policy(max_replicas=1), drawn[:6], misses=0) is None


def test_nothing_is_asked_of_a_replica_that_it_was_not_seen_to_do(made: Planner) -> None:
    """Up to 30 in flight were measured and no queue was seen: more than 30 at work on each may never come."""
    running = {"series": {"quantity": "running", "over_time": "last", "window_s": 300.0, "across": "sum"}}
    loose = replace(policy(metrics=[{"source": "external", "target": {"average_value": 30_500}}]), signals=(running,))
    day = Days(made, 4, 1).slower(0.0, made.answer().edges_ns)
    without = made.scaled(loose, day.demand, doubt=day.doubt)
    limited = made.scaled(loose, day.demand, doubt=replace(day.doubt, limited=True))
    # Where 30 is the limit they are never more than 30 on average, and replicas are never added for them.
    assert limited.schedule.peak == max(1, limited.schedule.asked[0])
    assert without.schedule.peak > limited.schedule.peak
    tuned = tune(made, loose, days=5)
    assert tuned.unseen == 30
    if tuned.setting.min_replicas < 4:
        [target] = tuned.policy.policy["metrics"][0]["target"].values()
        assert target < 30_000
    told = tuned_json(tuned, loose)
    assert any("measure 60 in flight" in each for each in told["doubts"])
    assert told["after"]["days"] == 5
    assert f"targets {told['setting']['targets'][0]:.4g}, " in conclusion(tuned, loose)
    assert tuned.before is not None
    assert tuned.after is not None
    dearer = replace(tuned, before=replace(tuned.before, gpu_hours=tuned.after.gpu_hours / 3.5))
    assert conclusion(dearer, loose).endswith("; 250% more GPU-hours than as it is")


LOOSE = policy(metrics=[{"source": "external", "target": {"average_value": 3000}}])


@pytest.fixture(scope="module")
def tuned(made: Planner) -> Tuned:
    return tune(made, LOOSE, days=5)


def test_the_settings_keep_the_slos_for_fewer_gpu_hours(made: Planner, tuned: Tuned) -> None:
    setting, after, before = tuned.setting, tuned.after, tuned.before
    assert tuned.policy is not None
    assert (before.kept, before.days) == (5, 5)
    assert after.gpu_hours < before.gpu_hours
    assert after.kept == 5
    # Larger targets are fewer GPU-hours and more misses.
    assert [factor for factor, _ in tuned.edge] == list(EDGE)
    kept = [trial.kept for _, trial in tuned.edge]
    assert kept == sorted(kept, reverse=True)
    assert kept[-1] < kept[0]
    assert setting.min_replicas >= 1
    # Days of seeds that the search does not use.
    days = [another_day(made.demand, tuned.found.edges_ns, 777_000 + k) for k in range(20)]
    courses = [made.scaled(tuned.policy, each, doubt=Doubt(seed=k)) for k, each in enumerate(days)]
    assert sum(course.keeps for course in courses) >= 19
    assert np.mean([course.gpu_hours for course in courses]) == pytest.approx(after.gpu_hours, rel=0.04)


def test_no_settings_by_lot_keep_the_slos_for_much_less(made: Planner, tuned: Tuned) -> None:
    """The second way: none that keeps five days is a tenth cheaper: so much the room for their spread costs."""
    days = [another_day(made.demand, tuned.found.edges_ns, 777_000 + k) for k in range(5)]
    rnd = random.Random(2)
    kept = 0
    for _ in range(25):
        other = Setting(2 ** rnd.uniform(-2, 4), rnd.choice((60, 120, 300, 600)), rnd.randint(1, 4)).on(LOOSE)
        hours = []
        for day in days:
            course = made.scaled(other, day)
            if not course.keeps:
                break
            hours.append(course.gpu_hours)
        else:
            kept += 1
            assert np.mean(hours) > 0.9 * tuned.after.gpu_hours, other
    assert kept >= 3


def test_replicas_that_the_policy_keeps_are_kept(made: Planner) -> None:
    tuned = tune(made, policy(min_replicas=2), days=5)
    assert tuned.setting.min_replicas >= 2


def test_a_policy_that_is_too_small_has_no_setting(made: Planner) -> None:
    tuned = tune(made, policy(max_replicas=1), days=5)
    assert (tuned.setting, tuned.policy, tuned.after) == (None, None, None)
    assert tuned.before.kept == 0


def test_too_few_days_tell_no_spread(made: Planner) -> None:
    with pytest.raises(UsageError, match="4 days"):
        tune(made, policy(), days=4)


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Planner:
    """Two busy hours with nothing between them."""
    place = tmp_path_factory.mktemp("nights") / "day.csv"
    place.write_text("time_s,rate_per_s\n0,6\n3600,0\n14400,6\n18000,0\n21600,0\n")
    result = open_run(run_folder(tmp_path_factory.mktemp("runs"), first=True))
    asked = result.question(slos="p90 runtime <= 8s", rate=1.0)
    found = planner(result.levels, asked, demand(place), ScalingRules(start_delay_s=20.0))
    assert isinstance(found, Planner)
    return found


@pytest.mark.slow
def test_none_at_night_where_the_slos_allow_it(nights: Planner) -> None:
    tuned = tune(nights, to_zero(), days=5)
    assert tuned.setting is not None
    assert tuned.policy is not None
    assert tuned.setting.min_replicas == 0
    assert (tuned.policy.keda or {})["min_replicas"] == 0
    assert tuned.policy.policy["min_replicas"] == 1
    assert tuned.after is not None
    # With one all night the same settings cost more.
    kept = replace(tuned.setting, min_replicas=1).on(to_zero())
    assert nights.scaled(kept).gpu_hours > nights.scaled(tuned.policy).gpu_hours + 2


@pytest.mark.parametrize("factor, target", [(1.0, "10"), (1.26, "13"), (0.01, "1")])
def test_settings_of_a_formula_are_its_target(tmp_path: Path, factor: float, target: str) -> None:
    source = tmp_path / "m.yaml"
    text = MODIFIED.replace('target: "2.5"', 'target: "10"').replace("idleReplicaCount: 1", "idleReplicaCount: 0")
    source.write_text(text)
    [read] = read_policies(source)
    wanted = Setting(factor, 90, 3).on(read)
    assert (wanted.keda or {})["modifiers"]["target"] == target
    assert wanted.policy["metrics"] == [{"source": "external", "target": {"value": 1000 * int(target)}}]
    [found] = read_policies(write_policy(source, wanted, tmp_path / "out.yaml"))
    assert (found.policy, found.keda) == (wanted.policy, wanted.keda)


@pytest.mark.parametrize("name", ["hpa", "scaledobject"])
def test_a_manifest_that_was_written_is_the_policy_that_was_found(name: str, tmp_path: Path) -> None:
    source = FILES / f"{name}.yaml"
    signals = {"running": "sum(running)"}
    [read] = read_policies(source, signals)
    for setting in (Setting(1.37, 240, 3), Setting(0.25, 0, 1), Setting(4.0, 600, 2)):
        wanted = setting.on(read)
        place = write_policy(source, wanted, tmp_path / "out.yaml")
        [found] = read_policies(place, signals)
        assert (found.policy, found.keda) == (wanted.policy, wanted.keda)
        assert found.signals == read.signals
    text = source.read_text()
    # What is not changed is as it was written.
    same = rewritten(text, Setting(1.0, read.policy["behavior"]["down"]["stabilization_s"], 99).on(read), "x")
    lines = [line for line in text.splitlines() if "min" not in line]
    assert {line.strip() for line in lines} - {line.strip() for line in same.splitlines()} <= {
        'threshold: "16"', 'threshold: "0.7"', 'target: {type: AverageValue, averageValue: "1"}',
        'target: {type: AverageValue, averageValue: "16"}',
    }  # fmt: skip
    with pytest.raises(ConfigError):
        rewritten(f"{text}\n---\n{text}", read, "two.yaml")


def test_nothing_is_needed_where_nothing_comes(tmp_path: Path) -> None:
    """One rule for days that are simulated and for runs that are judged."""
    place = tmp_path / "day.csv"
    place.write_text("time_s,rate_per_s\n0,4\n600,0\n1200,8\n1800,8\n")
    result = open_run(run_folder(tmp_path / "runs", first=True))
    load = demand(place)
    found = planner(result.levels, result.question(rate=1.0), load, ScalingRules(start_delay_s=60.0))
    assert isinstance(found, Planner)
    needed = found.needed()
    assert isinstance(needed, Need)
    due, _ = np.histogram(load.due_ns, needed.edges_ns)
    assert ((needed.replicas == 0) == (due == 0)).all()
    assert (due == 0).sum() >= 9
