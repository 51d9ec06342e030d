"""What keeps the twin honest: clustered misses, models that say other times, widened intervals, uncertain losses."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest

from gpusize.analysis.slo import Slo
from gpusize.estimate.twin import model_choice
from gpusize.estimate.twin.attainment_curve import Curve
from gpusize.estimate.twin.batching_model import fit_service
from gpusize.estimate.twin.calibration import LEAST_FELT, WIDEST, Candidate, calibrated, felt
from gpusize.estimate.twin.candidates import batching
from gpusize.estimate.twin.conformal import SCALES, wider
from gpusize.estimate.twin.contention import Contention
from gpusize.estimate.twin.flow_model import Flow
from gpusize.estimate.twin.load import ClusterLoad, Situation
from gpusize.estimate.twin.model_choice import MISFIT, UNLIKE
from gpusize.estimate.twin.resemblance import runtimes_off
from gpusize.estimate.twin.simulate import TimeBound, Values
from gpusize.estimate.twin.sizing import MOST_HALF, UNFIT, _open
from gpusize.estimate.twin.visit_data import Objective
from gpusize.estimate.twin.words import fallen
from tests.estimate.test_twin_fit import drawn, visits
from tests.estimate.virtual import CLUSTER

OBJECTIVE = Objective.of(Slo.parse("p95 runtime <= 2s"))


def test_requests_that_were_alone_price_the_prompts():
    seen = visits([1, 2, 8, 32])
    found = fit_service(seen, prompts_alone=True)
    assert found is not None
    assert found.per_prompt_token_s == pytest.approx(CLUSTER["prefill_per_token_s"], rel=0.003)
    assert found.per_sequence_s == pytest.approx(CLUSTER["iteration_per_sequence_s"], rel=0.01)
    assert fit_service([each for each in seen if each.users > 1], prompts_alone=True) is None


def test_a_level_without_a_miss_is_not_sure_where_misses_come_together():
    # Far below the bound: nothing is missed, whether requests share their fate or not.
    alone, together = (Curve(OBJECTIVE, 0, [drawn(12, 0.3, batch=batch)]) for batch in (0.0, 0.9))
    assert alone.at(12).value == together.at(12).value == 1.0
    assert together.at(12).error > 2 * alone.at(12).error


def test_few_requests_that_all_keep_the_bound_do_not_outweigh_many_that_do_not():
    """As of a real server whose speed wandered: a look at 48 users was lucky, and its neighbours say so."""
    wanders = drawn(46, 1.0, n=550)
    slower = np.exp(np.linspace(math.log(1.75), math.log(2.6), 550))
    wanders = replace(wanders, values=slower * wanders.values ** (0.05 / 0.3))
    lucky = drawn(48, 1.0, n=120)
    lucky = replace(lucky, values=1.7 * lucky.values ** (0.05 / 0.3))
    curve = Curve(OBJECTIVE, 0, [drawn(30, 0.5, n=70), wanders, lucky, drawn(54, 2.6, n=500)])
    own = curve.own(curve.levels[1])
    assert own.value < 0.5
    assert curve.own(curve.levels[2]).value == 1.0
    assert abs(curve.at(46).value - own.value) < 3 * own.error


def test_a_heavier_load_with_shorter_times_is_told_of():
    """As of a real llama.cpp: 2.14 s with 46 users, and ten seconds before 1.78 s with 51."""
    slower, faster = drawn(46, 2.14, n=330), drawn(51, 1.78, n=310)
    told = fallen(Curve(OBJECTIVE, 0, [drawn(30, 1.1, n=70), slower, faster]))
    assert told is not None
    assert re.match(
        r"the median of runtime was 2\.\d+ s with 46 users and 1\.\d+ s with 51: the target is not the", told
    )
    assert fallen(Curve(OBJECTIVE, 0, [slower, replace(faster, settled=False)])) is None
    for seed in range(40):
        same = [drawn(users, 1.0, n=300, seed=seed) for users in (40, 44, 48, 52)]
        assert fallen(Curve(OBJECTIVE, 0, same)) is None, seed


def test_levels_of_different_length_do_not_lean_to_those_that_were_lucky():
    """Short levels miss nothing in one case of several; those that do not must not count for more than the others."""
    truth = float(np.mean([Curve(OBJECTIVE, 0, [drawn(46, 1.22, n=20_000, seed=s)]).at(46).value for s in range(3)]))
    found = []
    for seed in range(80):
        lengths = enumerate(((44, 60), (46, 600), (48, 60)))
        seen = [drawn(users, 1.22, n=n, batch=0.6, seed=7 * seed + k) for k, (users, n) in lengths]
        found.append(Curve(OBJECTIVE, 0, seen).at(46).value)
    assert np.mean(found) == pytest.approx(truth, abs=0.008)


@dataclass(frozen=True)
class Halved:
    """A model that says of every load that a half of the requests miss, and that hardly depends on the bound."""

    factors: tuple[float, ...] = (1.0,)

    def run(self, *_: object, **__: object) -> Values:
        return Values.of(np.array([[1e-9] * 500 + [1e9] * 500]))

    def scaled(self, factors: object) -> Halved:
        return replace(self, factors=tuple(factors))  # type: ignore[arg-type]


def test_a_model_that_says_other_times_than_were_measured_is_far_off():
    curve = Curve(OBJECTIVE, 0, [drawn(12, 0.3), drawn(14, 0.32)])
    found = calibrated("batching", Halved(), [curve], [14.0], prior=0.004, reach=0.6, sampled=0.01)  # type: ignore[arg-type]
    assert found.distance == pytest.approx(WIDEST, abs=0.01)


@dataclass(frozen=True)
class Slower:
    """A model that says the measured times, longer by a factor."""

    curve: Curve
    factor: float
    factors: tuple[float, ...] = (1.0,)

    def run(self, asked: ClusterLoad, *_: object, **__: object) -> Values:
        logs = next(each.logs for each in self.curve.levels if each.users == asked.users)
        return Values.of(self.factor * np.exp(logs)[None, :] / OBJECTIVE.bound)

    def scaled(self, factors: object) -> Slower:
        return replace(self, factors=tuple(factors))  # type: ignore[arg-type]


def cliff() -> Curve:
    """All is kept below the capacity, and all is missed above it: as with fixed lengths."""
    return Curve(OBJECTIVE, 0, [drawn(12, 0.3), drawn(14, 0.32), drawn(16, 9.0), drawn(18, 9.3)])


@pytest.mark.parametrize("factor", [1.0, 1.2])
def test_where_shares_say_nothing_times_are_held_against_each_other(factor: float):
    curve = cliff()
    found = calibrated("batching", Slower(curve, factor), [curve], [15.0], prior=0.004, reach=0.6, sampled=0.01)  # type: ignore[arg-type]
    assert [users for users, *_ in found.levels] == [12, 14, 16, 18]
    assert found.corrections[0] == pytest.approx(math.log(factor), abs=0.01)
    assert found.distance == pytest.approx(math.log(factor), abs=0.02)


def narrow(power: float) -> Curve:
    """Times within some percent of each other that grow with the load to a power."""
    seen = []
    for users in (10, 12, 14, 16, 18):
        visit = drawn(users, 1.0)
        median = OBJECTIVE.bound / math.exp(1.645 * 0.02) * (users / 14) ** power
        seen.append(replace(visit, values=median * visit.values ** (0.02 / 0.3)))
    return Curve(OBJECTIVE, 0, seen)


@pytest.mark.parametrize("power", [0.04, 0.3, 1.0, 2.5])
def test_how_much_of_the_load_a_time_tells(power: float):
    assert narrow(power).elasticity(14) == pytest.approx(power, rel=0.1)
    assert felt(narrow(power), 14.0) == pytest.approx(min(1.0, power), rel=0.1)
    assert felt(Curve(OBJECTIVE, 0, [drawn(12, 0.3)]), 12.0) == LEAST_FELT


def test_an_error_that_is_little_of_the_bound_and_much_of_the_load_is_corrected():
    """1.2 % too slow is a third of the load where times grow with its 25th root, and 1 % where in proportion."""
    for power, least, most in ((0.04, 0.9, 1.0), (1.0, 0.0, 0.75)):
        curve = narrow(power)
        found = calibrated("batching", Slower(curve, 1.012), [curve], [14.0], prior=0.004, reach=0.6, sampled=0.001)  # type: ignore[arg-type]
        assert least <= found.corrections[0] / math.log(1.012) <= most, power
        assert found.felt == pytest.approx(power, rel=0.1)


def test_a_model_that_was_held_against_nothing_is_no_match():
    curve = Curve(OBJECTIVE, 0, [replace(each, settled=False) for each in cliff().visits])
    found = calibrated("batching", Slower(curve, 1.0), [curve], [14.0], prior=0.004, reach=0.6, sampled=0.01)  # type: ignore[arg-type]
    assert found.levels == ()
    assert found.corrections == (0.0,)
    assert MISFIT < found.distance < UNFIT


def test_a_quantile_of_a_level_and_its_error():
    spread = []
    for seed in range(40):
        curve = Curve(OBJECTIVE, 0, [drawn(12, 0.3, seed=seed)])
        spread.append(curve.tail(curve.levels[0], 0.95))
    at, errors, _ = (np.array(each) for each in zip(*(each for each in spread if each is not None), strict=True))
    # The logarithm of the value is normal, with standard deviation 0.3.
    assert at.mean() == pytest.approx(math.log(0.3) + 1.645 * 0.3, abs=0.005)
    assert errors.mean() == pytest.approx(max(at.std(), 0.01), rel=0.5)
    missed = drawn(12, 0.3)
    missed.values[0, ::10] = np.inf
    curve = Curve(OBJECTIVE, 0, [missed])
    assert curve.tail(curve.levels[0], 0.95) is None


def test_runtimes_tell_a_model_without_the_mechanism():
    seen = visits([1, 4, 16, 20], requests=1500)
    curves = [Curve(OBJECTIVE, 0, seen)]
    replica = batching(seen, curves, joint=False, prompts_alone=True)
    assert replica is not None
    assert runtimes_off(replica, seen, 18.0) < UNLIKE
    # A half of the requests wait for their turn as long as they then take.
    late = [replace(each, last_s=each.last_s + (np.arange(each.due_s.size) % 2) * each.residence_s) for each in seen]
    assert runtimes_off(replica, late, 18.0) > 4 * UNLIKE
    assert math.isinf(runtimes_off(replica, seen, 400.0))
    assert math.isinf(runtimes_off(Halved(), seen, 18.0))  # type: ignore[arg-type]


@pytest.mark.parametrize("key", SCALES)
def test_intervals_are_as_wide_as_experience_says(key: tuple[str, Situation]):
    kappa, delta = SCALES[key]
    assert wider(0.1, *key) == pytest.approx(kappa * math.hypot(0.1, delta))
    assert wider(0.0, *key) == pytest.approx(kappa * delta)
    assert math.isinf(wider(math.inf, *key))
    # Experience never says that an error is smaller than chance alone makes it.
    assert kappa >= 1


@pytest.mark.parametrize(
    "load, situation",
    [
        (ClusterLoad(users=10), "even"),
        (ClusterLoad(users=10, think_s=1.0, think="constant"), "varying"),
        (ClusterLoad(users=10, router="random"), "varying"),
        (ClusterLoad(rate=10.0), "varying"),
        (ClusterLoad(rate=10.0, router="round_robin"), "in turn"),
        (ClusterLoad(users=10, router="round_robin"), "in turn"),
    ],
)
def test_a_load_is_even_varying_or_in_turn(load: ClusterLoad, situation: Situation):
    assert load.situation == situation


def test_an_interval_that_says_nothing_is_open():
    assert _open(MOST_HALF) == MOST_HALF
    assert math.isinf(_open(MOST_HALF + 0.01))


def test_a_loss_is_weakened_by_its_error_and_never_below_none():
    loss = Contention(0.05, 0.0, 0.02)
    assert loss.weaker(0) is loss
    assert loss.weaker(1).sigma == pytest.approx(0.03)
    assert loss.weaker(5).sigma == 0.0
    assert Contention().weaker(2) == Contention()


@pytest.mark.parametrize(
    "metric, off, answers", [("ttft", 0.1, "batching"), ("ttft", 0.2, "flow"), ("runtime", 0.1, "flow")]
)
def test_a_time_that_is_read_from_the_curve_is_no_proof_of_the_model(monkeypatch, metric, off, answers):
    """At a curve's own points nothing can be off; a model of how they come about may be, and still be the nearer."""
    away = {"batching": off, "flow": 0.0}
    server = Flow(np.ones(4), np.ones(4), [], [TimeBound(metric, 1.0)])
    likely = SimpleNamespace(replica="batching", nearly=False)
    monkeypatch.setattr(model_choice, "likest", lambda *_, **__: likely)
    monkeypatch.setattr(model_choice, "static", lambda *_, **__: None)
    monkeypatch.setattr(model_choice, "flow", lambda *_: server)
    monkeypatch.setattr(
        model_choice,
        "calibrated",
        lambda name, replica, *_, **__: Candidate(name, replica, (0.0,), 0.01, 10.0, 0.0, away[name]),
    )
    visits = [drawn(12, 0.3), drawn(14, 0.32)]
    found = model_choice.choose(visits, [Curve(OBJECTIVE, 0, visits)], [14.0], even=False, model=None)
    assert found is not None
    assert found.name == answers


@pytest.mark.parametrize("power, answers", [(0.04, "measured"), (1.0, "batching")])
def test_an_even_load_is_read_from_the_curve_where_a_model_is_off_by_much_of_the_load(monkeypatch, power, answers):
    """2 % of the bound is half of the load, or 2 %."""
    curve = narrow(power)
    likely = SimpleNamespace(replica="batching", nearly=True)
    monkeypatch.setattr(model_choice, "likest", lambda *_, **__: likely)
    monkeypatch.setattr(model_choice, "static", lambda *_, **__: None)
    monkeypatch.setattr(model_choice, "runtimes_off", lambda *_: 0.0)
    monkeypatch.setattr(
        model_choice,
        "calibrated",
        lambda name, replica, *_, **__: Candidate(name, replica, (0.0,), 0.01, 10.0, 0.0, 0.02, felt=felt(curve, 14.0)),
    )
    for even, wanted in ((True, answers), (False, "batching")):
        found = model_choice.choose(curve.visits, [curve], [14.0], even=even, model=None)
        assert found is not None
        assert found.name == wanted
