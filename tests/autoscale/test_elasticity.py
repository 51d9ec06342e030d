"""How well replicas followed: against sums over a fine grid."""

from __future__ import annotations

import numpy as np
import pytest

from gpusize.estimate.plan.autoscale.elasticity import elasticity


@pytest.mark.parametrize("seed", range(20))
def test_it_is_what_a_fine_grid_adds_up_to(seed: int) -> None:
    rnd = np.random.default_rng(seed)
    duration = 500

    def steps(least: int) -> tuple[np.ndarray, np.ndarray]:
        at = np.sort(rnd.choice(np.arange(1, duration), rnd.integers(1, 20), replace=False))
        return np.append(0, at).astype(float), rnd.integers(least, 9, at.size + 1)

    needed, ready = steps(1), steps(0)
    found = elasticity(needed, ready, float(duration))
    under = over = missing = spare = under_time = over_time = 0.0
    for second in range(duration):
        wanted = needed[1][[k for k, at in enumerate(needed[0]) if at <= second][-1]]
        there = ready[1][[k for k, at in enumerate(ready[0]) if at <= second][-1]]
        under += max(wanted - there, 0) / wanted
        over += max(there - wanted, 0) / wanted
        missing += max(wanted - there, 0)
        spare += max(there - wanted, 0)
        under_time += wanted > there
        over_time += there > wanted
    assert (found.under_s, found.over_s) == pytest.approx((missing, spare))
    assert (found.under, found.over) == pytest.approx((under / duration, over / duration))
    assert (found.under_share, found.over_share) == pytest.approx((under_time / duration, over_time / duration))


def test_turns_are_changes_of_direction() -> None:
    at = np.arange(7.0)
    needed = np.zeros(1), np.ones(1, int)
    for replicas, turns in (
        ([1, 2, 3, 4, 4, 5, 6], 0),
        ([1, 2, 1, 2, 1, 2, 1], 5),
        ([3, 2, 2, 1, 1, 4, 4], 1),
        ([2, 2, 2, 2, 2, 2, 2], 0),
    ):
        assert elasticity(needed, (at, np.array(replicas)), 7.0).turns == turns
