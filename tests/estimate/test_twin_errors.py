"""What keeps the twin honest: clustered misses, models that say other shares, widened intervals, uncertain losses."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from gpusize.estimate.twin.batching import fit_service
from gpusize.estimate.twin.calibration import calibrated
from gpusize.estimate.twin.conformal import SCALES, wider
from gpusize.estimate.twin.contention import Contention
from gpusize.estimate.twin.curve import Curve
from gpusize.estimate.twin.observed import Objective
from gpusize.estimate.twin.simulated import Values
from gpusize.estimate.twin.size import MOST_HALF, _open
from gpusize.slo import Slo
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


@dataclass(frozen=True)
class Halved:
    """A model that says of every load that a half of the requests miss, and that hardly depends on the bound."""

    factors: tuple[float, ...] = (1.0,)

    def trial(self, *_: object) -> Values:
        return Values.of(np.array([[1e-9] * 500 + [1e9] * 500]))

    def scaled(self, factors: object) -> Halved:
        return replace(self, factors=tuple(factors))  # type: ignore[arg-type]


def test_a_model_that_says_other_shares_than_were_measured_is_far_off():
    curve = Curve(OBJECTIVE, 0, [drawn(12, 0.3), drawn(14, 0.32)])
    found = calibrated("batching", Halved(), [curve], [14.0], prior=0.004, reach=0.6, sampled=0.01)  # type: ignore[arg-type]
    assert found.distance == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("key", SCALES)
def test_intervals_are_as_wide_as_experience_says(key: tuple[str, bool]):
    model, even = key
    kappa, delta = SCALES[key]
    assert wider(0.1, model, even=even) == pytest.approx(kappa * math.hypot(0.1, delta))
    assert wider(0.0, model, even=even) == pytest.approx(kappa * delta)
    assert math.isinf(wider(math.inf, model, even=even))


def test_an_interval_that_says_nothing_is_open():
    assert _open(MOST_HALF) == MOST_HALF
    assert math.isinf(_open(MOST_HALF + 0.01))


def test_a_loss_is_weakened_by_its_error_and_never_below_none():
    loss = Contention(0.05, 0.0, 0.02)
    assert loss.weaker(0) is loss
    assert loss.weaker(1).sigma == pytest.approx(0.03)
    assert loss.weaker(5).sigma == 0.0
    assert Contention().weaker(2) == Contention()
