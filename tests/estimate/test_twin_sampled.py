"""Large levels: a part of their answers tells the costs as all of them do, and the answer says that it is a part."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from gpusize.analysis.slo import Slo
from gpusize.estimate.methods import Question
from gpusize.estimate.twin import lives
from gpusize.estimate.twin.lives import Lives
from gpusize.estimate.twin.load import Asked
from gpusize.estimate.twin.method import Twin
from gpusize.estimate.twin.sizing import Sizer
from gpusize.estimate.twin.visit_data import Objective, observe
from tests.estimate.virtual import level

SLO = Slo.parse("p95 runtime <= 6s")
COSTS = np.array([0.02, 0.001, 0.00005])


def sampled(monkeypatch: pytest.MonkeyPatch, *, large: int, blocks: int, block: int) -> None:
    for name, value in (("LARGE", large), ("BLOCKS", blocks), ("BLOCK", block)):
        monkeypatch.setattr(lives, name, value)


@pytest.mark.parametrize("users", [1, 6, 40])
@pytest.mark.parametrize("batch", [4, 64])
def test_of_an_answer_that_is_taken_the_same_is_said_as_without_a_sample(monkeypatch, users, batch):
    (visit,) = observe(level(users, requests=3000, max_batch=batch, noise_sigma=0.4), [Objective.of(SLO)])
    whole = Lives.of(visit)
    sampled(monkeypatch, large=1000, blocks=9, block=40)
    part = Lives.of(visit)
    assert whole is not None
    assert part is not None
    told = visit.tokens_out >= 3
    begins = [round((k + 0.5) * 3000 / 9 - 0.5) - 20 for k in range(9)]
    taken = np.zeros(3000, dtype=bool)
    for begin in begins:
        taken[begin : begin + 40] = True
    assert part.took.size == (taken & told).sum() > 300
    assert part.lasts.size < 0.8 * whole.lasts.size
    rows = whole.design(COSTS)[taken[told]]
    np.testing.assert_allclose(part.design(COSTS), rows, rtol=1e-9)
    np.testing.assert_array_equal(part.took, whole.took[taken[told]])


@pytest.mark.parametrize("seed", range(3))
def test_a_part_of_the_answers_gives_the_estimate_of_all(monkeypatch, seed):
    """Both are an eighth or less of what a run has: large samples are nearer to the whole."""
    rng = np.random.default_rng(seed)
    batch = int(rng.choice([8, 16, 32]))
    costs: dict[str, Any] = {
        "iteration_base_s": float(rng.uniform(0.005, 0.03)),
        "noise_sigma": float(rng.choice([0.0, 0.3])),
    }
    users = (1, batch // 2, batch, 3 * batch // 2)
    levels = [level(n, requests=12_000, max_batch=batch, seed=seed, **costs) for n in users]
    bound = levels[-2].quantile("runtime", 0.97)
    objectives = [Objective.of(Slo.parse(f"p95 runtime <= {bound:.3f}s"))]
    visits = [visit for each in levels for visit in observe(each, objectives)]
    asked = Asked(users=float(rng.integers(50, 500)), router="round_robin")
    whole = Sizer(visits, objectives).size(asked)
    sampled(monkeypatch, large=4096, blocks=128, block=32)
    part = Sizer(visits, objectives).size(asked)
    assert whole.raw is not None
    assert part.raw is not None
    assert whole.model == part.model == "batching"
    off = abs(math.log(part.raw / whole.raw))
    # A sample 32 times as large, as that of a run, is nearer by a factor of more than 5.
    assert off < 0.01
    assert off < 0.5 * math.log(whole.raw_high / whole.raw_low)


def test_an_answer_from_a_part_says_so(monkeypatch):
    levels = [level(n, requests=600) for n in (1, 8, 16, 32)]
    question = Question(200, (SLO,), router="round_robin")
    assert not [text for text in Twin().answer(levels, question).assumptions if "spread evenly" in text]
    sampled(monkeypatch, large=500, blocks=8, block=50)
    told = [text for text in Twin().answer(levels, question).assumptions if "spread evenly" in text]
    assert told == [
        "costs are fitted to 400 answers, spread evenly over the level, of each of the 4 level visits with more"
    ]
