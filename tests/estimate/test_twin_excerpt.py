"""Models are fitted to a piece of a long visit; shares of its requests are counted over all of them."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from gpusize.analysis.slo import Slo
from gpusize.estimate.twin.attainment_curve import Curve
from gpusize.estimate.twin.batching_model import fit_service
from gpusize.estimate.twin.excerpt import REQUESTS, ROUNDS, excerpt
from gpusize.estimate.twin.load import ClusterLoad
from gpusize.estimate.twin.sizing import Sizer
from gpusize.estimate.twin.visit_data import Objective, Observed, observe
from tests.estimate.virtual import CLUSTER, level

SLO = Slo.parse("p95 runtime <= 8s")
OBJECTIVES = [Objective.of(SLO)]


def observed(users: int, requests: int) -> Observed:
    [found] = observe(level(users, requests=requests), OBJECTIVES)
    return found


@pytest.fixture(scope="module")
def long() -> Observed:
    return observed(8, 3 * REQUESTS)


def test_a_visit_of_usual_length_is_taken_whole():
    short = observed(8, 900)
    assert excerpt(short) is short


def test_the_piece_is_the_end_with_who_was_under_way(long: Observed):
    piece = excerpt(long)
    begin_s = long.due_s[-REQUESTS]
    early = piece.due_s < begin_s
    assert piece.due_s.size == REQUESTS + early.sum()
    # Seven others were in flight when the first of the last was sent.
    assert early.sum() == pytest.approx(7, abs=1)
    assert (piece.last_s[early] >= begin_s).all()
    assert piece.window == (begin_s, long.window[1])
    assert piece.rate_per_s == pytest.approx(long.rate_per_s, rel=0.02)
    assert piece.residence_s == pytest.approx(long.residence_s, rel=0.02)


def test_all_that_is_known_of_a_request_stays_together(long: Observed):
    piece = excerpt(long)
    rows = np.flatnonzero((long.due_s >= piece.window[0]) | (long.last_s >= piece.window[0]))
    for each in fields(long):
        whole, cut = getattr(long, each.name), getattr(piece, each.name)
        if isinstance(whole, np.ndarray):
            assert np.array_equal(cut, whole[..., rows], equal_nan=True), each.name


def test_many_users_have_a_longer_piece(long: Observed):
    assert excerpt(replace(long, users=REQUESTS // ROUNDS + 100)).due_s.size > REQUESTS + 50 * ROUNDS
    assert excerpt(replace(long, users=long.due_s.size // ROUNDS)).due_s.size == long.due_s.size


def test_the_costs_are_those_of_the_whole(long: Observed):
    found = fit_service([observed(1, 900), excerpt(long)])
    whole = fit_service([observed(1, 900), long])
    assert found is not None
    assert whole is not None
    assert found.base_s == pytest.approx(CLUSTER["iteration_base_s"], rel=0.01)
    assert found.base_s == pytest.approx(whole.base_s, rel=0.01)
    assert found.per_sequence_s == pytest.approx(whole.per_sequence_s, rel=0.02)
    assert found.per_prompt_token_s == pytest.approx(whole.per_prompt_token_s, rel=0.03)


def test_a_long_run_is_answered_as_a_shorter_one_and_counts_every_request(long: Observed):
    """One level is three times as long as what is fitted to; its attainment is that of all its requests."""
    bound = Slo.parse(f"p95 runtime <= {np.quantile(long.values[0], 0.95) * 1.25:.3f}s")
    objectives = [Objective.of(bound)]
    others = [observed(users, 900) for users in (1, 4, 16)]
    asked, sizer = ClusterLoad(users=80), Sizer([*others, long], objectives)
    found, expected = sizer.size(asked), Sizer([*others, excerpt(long)], objectives).size(asked)
    assert (found.replicas, found.low, found.high) == (expected.replicas, expected.low, expected.high)
    assert found.raw == pytest.approx(expected.raw, rel=0.03)
    [counted] = [each for each in sizer.curves[0].levels if each.users == 8]
    assert counted.logs.size == long.steady.sum() > 2 * REQUESTS


@pytest.mark.parametrize("seed", range(20))
def test_shares_are_those_of_counting(seed: int):
    """With ties, misses and values of zero, in batches of any length."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(3, 400))
    values = np.round(rng.lognormal(0, 1, size), int(rng.integers(0, 3)))
    values[rng.random(size) < 0.1] = np.inf
    end = np.sort(rng.uniform(0, 100, size))
    none, yes = np.full(size, np.nan), np.ones(size, bool)
    visit = Observed(
        4, 1, 0.0, (0.0, 100.0), end - 0.5, end - 0.5, none, end, none, none, none, yes, yes, values[None, :]
    )
    [found] = Curve(OBJECTIVES[0], 0, [visit]).levels
    with np.errstate(divide="ignore"):
        logs = np.log(values)
    assert np.array_equal(found.logs, logs)
    for limit in (*rng.choice(logs, 5), -np.inf, np.inf, 0.3):
        batches = zip(found.edges[:-1], found.edges[1:], strict=True)
        by_batch = [int((logs[begin:end] <= limit).sum()) for begin, end in batches]
        assert found.within(limit).tolist() == by_batch
        if np.isfinite(limit):
            near = float(np.mean(np.abs(logs - limit) <= 0.25))
            assert found.near(limit, 0.25) == pytest.approx(near, abs=1.5 / size)
    for share in (0.01, 0.5, 0.9, 0.95, 1.0, float(rng.random())):
        assert found.quantile(share) == np.quantile(logs, share, method="inverted_cdf")
