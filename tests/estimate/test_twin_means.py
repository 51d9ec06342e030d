"""Means: what the core sums, the curve of a mean with its errors, and counts for SLOs on means, each against rows."""

from __future__ import annotations

import json
import math

import numpy as np
import polars as pl
import pytest

from gpusize.analysis.slo import Slo
from gpusize.engine.session import core
from gpusize.estimate.methods import Question, estimate
from gpusize.estimate.twin.attainment_curve import Curve
from gpusize.estimate.twin.flow_model import Flow
from gpusize.estimate.twin.load import ClusterLoad
from gpusize.estimate.twin.simulate import TimeBound
from gpusize.estimate.twin.visit_data import Objective, tightest
from tests.estimate.test_twin_fit import drawn
from tests.estimate.virtual import CLUSTER, level

MEAN = Slo.parse("mean runtime <= 6s")
TRUE_MEAN = math.exp(0.045)
"""Of a visit of ``drawn`` with scale 1."""


def rows_of(users: int, gpus: int, think_s: float, router: str, seed: int) -> pl.DataFrame:
    closed = {"users": users, "think_s": think_s, "think": "exponential", "stagger_s": 8.0}
    load = {
        "arrivals": {"closed": closed},
        "requests": 6000,
        "warmup_requests": 4 * users,
        "prompt_tokens": {"fixed": {"tokens": 100}},
    }
    config = {**CLUSTER, "gpus": gpus, "router": router, "seed": seed}
    stream, _ = core().simulate(json.dumps(config), json.dumps(load))
    return pl.DataFrame(stream).filter(~pl.col("warmup"))


def mean_s(rows: pl.DataFrame) -> float:
    return float((rows["end_ns"] - rows["due_ns"]).mean()) / 1e9  # type: ignore[arg-type]


def test_the_core_sums_what_its_rows_say():
    load = {"arrivals": {"closed": {"users": 24}}, "requests": 500, "warmup_requests": 50}
    bounds = [{"metric": name, "bound_s": 1.0} for name in ("runtime", "ttft", "itl_mean")]
    stream, told = core().simulate(
        json.dumps(CLUSTER), json.dumps(load), judge=json.dumps({"bounds": bounds, "every_s": 2.0})
    )
    rows = pl.DataFrame(stream).filter(~pl.col("warmup"))
    first, gaps = pl.col("first_token_ns"), pl.col("tokens_out").cast(pl.Int64) - 1
    each = rows.select(
        step=pl.col("due_ns") // 2_000_000_000,
        runtime=(pl.col("end_ns") - pl.col("due_ns")) / 1e9,
        ttft=(first - pl.col("due_ns")) / 1e9,
        itl_mean=pl.when(gaps >= 1).then((pl.col("end_ns") - first) / gaps / 1e9),
    )
    judged = json.loads(told)["judged"]
    for place, name in enumerate(("runtime", "ttft", "itl_mean")):
        assert judged["sums_s"][place] == pytest.approx(each[name].sum())
        sums = each.group_by("step").agg(pl.col(name).sum()).sort("step")
        found = np.array(judged["steps"]["sums_s"][place])
        np.testing.assert_allclose(found[sums["step"].to_numpy()], sums[name].to_numpy(), rtol=1e-9)
        assert found.sum() == pytest.approx(judged["sums_s"][place])


def test_the_curve_of_a_mean_is_off_by_what_it_says():
    objective = Objective.of(Slo.parse(f"mean runtime <= {TRUE_MEAN}s"))
    found = [Curve(objective, 0, [drawn(10, 1.0, batch=0.5, seed=seed)]).at(10) for seed in range(1, 61)]
    values = np.array([each.value for each in found])
    assert values.mean() == pytest.approx(1.0, abs=0.01)
    assert np.mean([each.error for each in found]) == pytest.approx(values.std(), rel=0.3)


def test_between_its_levels_a_mean_moves_with_them():
    curve = Curve(Objective.of(MEAN), 0, [drawn(10, 4.0), drawn(20, 8.0)])
    assert curve.at(10).value == pytest.approx(2 - 4 * TRUE_MEAN / 6, abs=0.03)
    assert curve.at(14).value == pytest.approx(2 - 4 * 1.4 * TRUE_MEAN / 6, abs=0.08)
    assert curve.stretched(20, 2.0) == pytest.approx(2 - 8 * TRUE_MEAN / 12, abs=0.03)


def test_a_flow_server_keeps_a_mean_as_its_closed_form_says():
    """M/M/1 with processor sharing: the mean is 1 / (mu - lambda), whatever the sizes' spread."""
    sizes = np.random.default_rng(1).exponential(1.0, 4000)
    server = Flow(np.ones(64), sizes / sizes.mean(), [], [TimeBound("runtime", 2.5, mean=True)])
    found = server.run(ClusterLoad(rate=0.6), 1, requests=60_000)
    assert found.share(0, 1.0) == pytest.approx(2 - 1 / (1 - 0.6) / 2.5, abs=0.05)
    assert found.share(0, 1.0) == pytest.approx(2 - found.runtime_s / 2.5, abs=1e-9)


@pytest.mark.parametrize("router", ["least_loaded", "round_robin"])
def test_the_count_for_a_mean_is_true_where_users_pause(router):
    """Against rows of the cluster itself. Attainments that are cut at 1 by request ask for half as many again."""
    users, think_s = 150, 4.0
    levels = [level(n, requests=900, noise_sigma=0.1) for n in (1, 4, 8, 16, 24, 32, 48)]
    question = Question(users, (MEAN,), router=router, think_s=think_s, think="exponential")
    found = estimate(levels, question)[0]
    means = {
        gpus: np.mean([mean_s(rows_of(users, gpus, think_s, router, seed)) for seed in (1, 2, 3)])
        for gpus in range(1, 9)
    }
    true = next(gpus for gpus, mean in means.items() if mean <= 6.0)
    assert 1 < true < 8, means
    assert found.method == "twin"
    assert found.gpus == true
    assert found.gpus_low <= true <= found.gpus_high


def test_a_mean_with_room_decides_less_than_a_share_without():
    assert tightest((1.08, 0.951), (1.0, 0.95)) == 1
    assert tightest((1.001, 0.99), (1.0, 0.95)) == 0
    assert tightest((0.9, 0.9), (1.0, 0.95)) == 0
