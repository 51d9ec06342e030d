"""Where no measured load misses an SLO: what is true of the levels, and what follows from them."""

from __future__ import annotations

import polars as pl
import pytest

from gpusize.analysis.slo import Slo
from gpusize.estimate.methods import Estimate, Question, estimate, levels_from_frames

LOADS = (1, 2, 4, 8, 16)
ROUNDS = 40


def answer(
    base_s: float, per_user_s: float, slo: str = "p95 runtime <= 1s", users: float = 60, rate: float | None = None
) -> Estimate:
    """The default's answer for a server whose requests take ``base_s + per_user_s * in flight``."""
    rows, levels = [], []
    for visit, c in enumerate(LOADS):
        took = base_s + per_user_s * c
        levels.append({"visit": visit, "concurrency": c, "gpus": 1})
        for round_ in range(ROUNDS):
            begin = round_ * took
            rows += [
                {"visit": visit, "due_s": begin + k * took / c, "end_s": begin + k * took / c + took} for k in range(c)
            ]
    made = levels_from_frames(pl.DataFrame(rows), pl.DataFrame(levels))
    return estimate(made, Question(users if rate is None else 0, [Slo.parse(slo)], rate=rate))[0]


def test_a_curve_that_rises_fourfold_is_not_called_flat() -> None:
    found = answer(0.2, 0.04)
    assert found.gpus is None
    reason = found.reason or ""
    assert "flat" not in reason
    assert "never near" not in reason
    assert "no measured load misses an SLO, up to 16 in flight" in reason
    assert "p95 of runtime rises from 240ms at 1 to 840ms at 16, where 1s is asked for" in reason


def test_what_was_carried_bounds_the_count_from_above() -> None:
    found = answer(0.2, 0.04)
    # 16 users were carried by one GPU, so ceil(60 / 16) of them carry 60.
    assert found.gpus_high == 4
    assert "at most 4 GPUs are needed" in (found.reason or "")
    assert answer(0.2, 0.04, users=17).gpus_high == 2


def test_the_lines_number_is_shown_as_an_extrapolation() -> None:
    found = answer(0.2, 0.04)
    # By hand: 0.2 + 0.04 c = 1 at c = 20, and 60 users are 3 times that.
    assert found.details["extrapolated"]["gpus"] == 3
    assert found.details["extrapolated"]["capacity_concurrency"] == pytest.approx(20, rel=1e-3)
    reason = found.reason or ""
    assert "would say 3 GPUs, as it meets the SLO at 20 in flight: an extrapolation" in found.warnings[0]
    assert found.next_levels in {(20, 25), (19, 25)}
    assert f"Measure {found.next_levels[0]} and {found.next_levels[1]} in flight" in reason


def test_times_that_do_not_rise_are_called_so_and_no_line_is_drawn() -> None:
    found = answer(0.2, 0.0)
    assert found.gpus is None
    assert "p95 of runtime does not rise up to there: 200ms at 1 to 200ms at 16" in (found.reason or "")
    assert "extrapolated" not in found.details
    assert found.gpus_high == 4
    assert found.next_levels == (32, 64)


def test_as_many_users_as_were_carried_need_no_more_than_what_carried_them() -> None:
    assert answer(0.2, 0.04, users=16).gpus == 1


def test_a_load_that_was_not_reached_bounds_nothing() -> None:
    """24 requests cannot be 200 in flight: that one GPU answered them says nothing of 200 users."""
    rows, levels = [], []
    for visit, (c, n) in enumerate(((4, 400), (8, 400), (200, 24))):
        levels.append({"visit": visit, "concurrency": c, "gpus": 1})
        took = 0.3 + 0.005 * min(c, n)
        slots = min(c, n)
        rows += [{"visit": visit, "due_s": (k // slots) * took, "end_s": (k // slots + 1) * took} for k in range(n)]
    made = levels_from_frames(pl.DataFrame(rows), pl.DataFrame(levels))
    found = estimate(made, Question(200, [Slo.parse("p95 runtime <= 2s")]))[0]
    assert found.gpus is None
    # Of 8 users 25 GPUs are enough for 200.
    assert found.gpus_high == 25
    assert "at most 1 GPU" not in (found.reason or "")


def test_throughput_that_has_levelled_off_bounds_the_count_for_a_rate_from_below() -> None:
    """40 a second from the first user on: 400 need ten, or more where they come when they like."""
    found = answer(0.0, 0.025, rate=400)
    assert found.gpus is None
    assert found.gpus_low in (9, 10)
    assert "Throughput has levelled off at 40 requests/s, so at least" in (found.reason or "")
    rising = answer(0.2, 0.001, rate=400)
    assert (rising.gpus, rising.gpus_low) == (None, None)
