"""What as much again would buy: foretold by one search, and held against another that had it."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpusize.analysis.level import LevelData
from gpusize.analysis.slo import Slo
from gpusize.estimate.as_much_again import Spent, again_text, counts_again, spent_on
from gpusize.estimate.isotonic import t_quantile
from gpusize.estimate.methods import estimate
from gpusize.estimate.question import Estimate, Question
from gpusize.estimate.search import Adaptive
from gpusize.estimate.search.margin import Pooled
from gpusize.estimate.search.planner import Chosen, Over
from gpusize.estimate.search.result import found_of
from gpusize.estimate.twin.attainment_curve import Curve
from gpusize.estimate.twin.conformal import SCALES
from gpusize.estimate.twin.foretold import foretold_interval
from gpusize.estimate.twin.visit_data import Objective, observe
from tests.adaptive.test_planner import SLO, search
from tests.estimate import virtual


def test_half_widths_are_foretold_for_twice_the_budget() -> None:
    """Of a handful of searches; docs/reference/search.md has those of all clusters."""
    ratios = []
    for seed, text in itertools.product((1, 2), ("p95 runtime <= 9s", "p90 runtime <= 6s", "p95 ttft <= 0.2s")):
        slo = Slo.parse(text)

        def measure(number: int, chosen: Chosen, seed: int = seed) -> LevelData:
            level = virtual.level(chosen.look.users, requests=chosen.requests, seed=1000 * seed + number)
            meta = {**level.meta, "search": chosen.facts(), "due": chosen.requests}
            return replace(level, visit=number, meta=meta)

        found = []
        for budget in (2000, 4000):
            terms = Adaptive(precision=0.001, budget=budget)
            _, levels, over = search(terms, measure, slo)
            assert over == Over("budget")
            found.append(found_of(levels, [slo], terms))
        once, twice = found
        assert once is not None
        assert twice is not None
        if once.precision is None or twice.precision is None:
            # An end is open, and nothing is foretold from that.
            assert once.precision is not None or once.again is None
            continue
        assert once.again is not None
        assert once.again.requests == once.requests
        assert once.again.precision < once.precision
        ratios.append(once.again.precision / twice.precision)
    assert len(ratios) >= 4
    assert abs(math.log(float(np.median(ratios)))) < math.log(1.25)


def test_an_error_at_one_load_falls_with_the_root_of_the_requests() -> None:
    """Nothing is moved there, so that only chance is left."""
    objective = Objective.of(SLO)
    visits = observe(virtual.level(24, requests=3000, seed=3), [objective])
    pooled = Pooled(Curve(objective, 0, visits))
    now = pooled.at(24)
    for times in (1.0, 2.0, 7.5):
        then = pooled.at(24, times)
        assert then.value == now.value
        assert then.error == pytest.approx(now.error / math.sqrt(times))
        assert then.freedom == pytest.approx(times * now.freedom)
    # From a load that was not measured, moves are wrong however many requests there are.
    assert pooled.at(22, 1e9).error > 0.1 * pooled.at(22).error > 0


def details(**more: Any) -> dict[str, Any]:
    known = {"error": 0.03, "misfit": 0.02, "freedom": 20.0, "situation": "even", "model": "batching", "slowness": []}
    return {**known, "halves": [0.07, 0.07], **more}


def test_what_is_no_chance_stays() -> None:
    rng = np.random.default_rng(9)
    for _ in range(200):
        model = str(rng.choice(["batching", "measured", "static"]))
        kappa, delta = SCALES[model, "even"]
        error, misfit, freedom, raw = (
            rng.uniform(0.001, 0.1),
            rng.uniform(0, 0.1),
            rng.uniform(2, 60),
            rng.uniform(1, 30),
        )
        wide = math.hypot(error, 0.5 * misfit, 0.003)
        side = float(t_quantile(freedom) * wide * rng.uniform(0.5, 2))
        half = kappa * math.hypot(side, delta)
        known = details(model=model, error=error, misfit=misfit, freedom=freedom, halves=[side, side])
        known |= {"raw_interval": [raw * math.exp(-half), raw * math.exp(half)]}
        same = foretold_interval(known, raw, 1.0)
        assert same == pytest.approx(tuple(known["raw_interval"]))
        ends = [foretold_interval(known, raw, times) for times in (1, 2, 9, 1e12)]
        widths = [math.log(each[1] / each[0]) for each in ends if each is not None]
        assert len(widths) == len(ends)
        assert all(b <= a * (1 + 1e-12) for a, b in itertools.pairwise(widths))
        # However many requests: the misfit by the normal quantile, and what experience adds.
        rest = side * 1.96 * math.hypot(0.5 * misfit, 0.003) / (t_quantile(freedom) * wide)
        assert widths[-1] == pytest.approx(2 * kappa * math.hypot(rest, delta), rel=2e-3)


@pytest.mark.parametrize(
    "more",
    [{"halves": [0.07, None]}, {"raw_interval": [7.0, None]}, {"slowness": [(2, 1.1, 0.02)]}, {"halves": None}],
)
def test_an_open_end_is_not_foretold(more: dict[str, Any]) -> None:
    assert foretold_interval(details(raw_interval=[7.0, 9.0]) | more, 8.0, 2.0) is None


FIXED = {("batching", "even"): (1.3, 0.05), ("measured", "even"): (1.0, 0.02)}
"""What experience adds, whatever is learnt later."""

QUESTION = Question(80, [SLO])
SPENT = Spent(16_000, 250.0, 2.2)


def answer(low: float, raw: float, model: str = "batching") -> Estimate:
    """Of the model, with all of its interval by chance and by what experience adds."""
    ends = (low, raw, raw**2 / low)
    kappa, delta = FIXED[model, "even"]
    side = math.sqrt((math.log(raw / low) / kappa) ** 2 - delta**2)
    told = details(raw_interval=[low, ends[2]], misfit=0.0, halves=[side, side], model=model)
    told["error"] = side / t_quantile(20)
    least, gpus, most = (math.ceil(each) for each in ends)
    return Estimate("twin", 1, 80, gpus=gpus, gpus_raw=raw, gpus_low=least, gpus_high=most, details=told)


def test_it_is_said_in_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusize.estimate.twin.conformal.SCALES", FIXED)
    wide = answer(6.6, 7.7)
    assert (wide.gpus_low, wide.gpus_high) == (7, 9)
    assert counts_again(wide, QUESTION, SPENT) == (7, 9)
    assert again_text(wide, QUESTION, SPENT) == "as many again (16,000 requests, about 4m10s) would hardly change that"
    less, one = answer(6.95, 7.55), answer(6.9, 7.5, "measured")
    assert (less.gpus_low, less.gpus_high) == (one.gpus_low, one.gpus_high) == (7, 9)
    assert counts_again(less, QUESTION, SPENT) == (8, 9)
    assert again_text(less, QUESTION, SPENT).endswith("would probably leave 8 or 9")
    assert counts_again(one, QUESTION, SPENT) == (8, 8)
    assert again_text(one, QUESTION, SPENT).endswith("would probably leave 8")
    # Bounds that were measured stay, and so does the answer.
    assert counts_again(replace(wide, gpus_low=8), QUESTION, SPENT) == (8, 9)
    assert counts_again(replace(less, gpus=9), QUESTION, SPENT) == (8, 9)
    assert counts_again(replace(wide, gpus_high=None), QUESTION, SPENT) is None
    assert again_text(replace(wide, gpus=None), QUESTION, SPENT) == ""


def test_an_answer_from_a_search_says_what_as_many_again_would_leave() -> None:
    def measure(number: int, chosen: Chosen) -> LevelData:
        level = virtual.level(chosen.look.users, requests=chosen.requests, seed=100 + number)
        return replace(level, visit=number, meta={**level.meta, "search": chosen.facts(), "due": chosen.requests})

    chosen, levels, _ = search(Adaptive(precision=0.001, budget=2000), measure)
    spent = spent_on(levels)
    assert spent is not None
    assert spent.requests == sum(each.requests for each in chosen)
    looks = sum(each.requests for each in chosen if each.why != "grow")
    assert spent.times == pytest.approx(1 + spent.requests / looks)
    assert spent.length_s == pytest.approx(sum(each.meta["end_ns"] for each in levels) / 1e9)
    question = Question(300, [SLO])
    [found] = estimate(levels, question)
    assert found.gpus_low != found.gpus_high
    [told] = [each for each in found.changes if each.startswith("more requests")]
    assert told.endswith(again_text(found, question, spent))
    assert f"as many again ({spent.requests:,} requests" in told
    # Levels that somebody named say nothing of what more of them would cost.
    named = [replace(each, meta={k: v for k, v in each.meta.items() if k != "search"}) for each in levels]
    assert spent_on(named) is None
    assert not any("as many again" in each for each in estimate(named, question)[0].changes)
