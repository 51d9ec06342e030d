"""Verdicts on queues whose truth is known in closed form: errors over many seeds and looks, and what is never said."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusize.analysis.proof.judge import Judged, Part, PartCalls, Terms, judge
from gpusize.base.errors import UsageError
from tests.proof.queues import ar1, mm1, part

SLO = [("p95 runtime <= 1s", 0.95)]
LOOKS = [1000, 2000, 4000, 8000, 16_000]
Made = Callable[[float, int], tuple[NDArray[np.float64], NDArray[np.float64]]]
KINDS: dict[str, Made] = {
    "independent": lambda share, seed: ar1(0.0, share, LOOKS[-1], seed),
    "autoregression": lambda share, seed: ar1(0.95, share, LOOKS[-1], seed),
    "M/M/1 at 0.8": lambda share, seed: mm1(0.8, share, LOOKS[-1], seed),
    "M/M/1 at 0.95": lambda share, seed: mm1(0.95, share, LOOKS[-1], seed),
}


def inside(within: NDArray[np.float64], took_s: NDArray[np.float64]) -> Part:
    """The values as those of calls, one to five in each request; requests themselves do not tell."""
    counts = np.random.default_rng(within.size).integers(1, 6, within.size)
    of = np.repeat(np.arange(within.size), counts)[: within.size]
    requests = int(of[-1]) + 1
    return Part(
        np.full((1, requests), math.nan), np.bincount(of, took_s).astype(float), {0: PartCalls(of, within, took_s)}
    )


def looked_at(
    within: NDArray[np.float64], runtimes: NDArray[np.float64], terms: Terms, made: Callable[..., Part] = part
) -> tuple[str, bool]:
    """The first verdict of a series of looks, and whether the interval has held ``share`` at all of them."""
    blocks: dict[int, int] = {}
    held = True
    for n in LOOKS:
        found = judge([made(within[:n], runtimes[:n])], SLO, terms, in_flight=10, blocks=blocks)
        blocks = {k: each.block for k, each in enumerate(found.slos)}
        held &= found.slos[0].low <= 0.95 <= found.slos[0].high
        if found.verdict != "undecided":
            return found.verdict, held
    return "undecided", held


@pytest.mark.parametrize("kind, made", [*((kind, part) for kind in KINDS), ("M/M/1 at 0.8", inside)])
def test_at_the_target_itself_both_errors_are_as_seldom_as_stated(kind: str, made: Callable[..., Part]) -> None:
    """There every verdict of one kind is an error; 150 seeds, five looks each."""
    found = [looked_at(*KINDS[kind](0.95, seed), Terms(margin=0.0), made) for seed in range(150)]
    verdicts = Counter(verdict for verdict, _ in found)
    # 5 % of 150 and three standard errors more.
    assert verdicts["kept"] <= 15, verdicts
    assert verdicts["not kept"] <= 15, verdicts
    assert sum(not held for _, held in found) <= 26, "10 %: both ends"


CLEAR = [
    ("independent", 0.97, "kept"), ("independent", 0.93, "not kept"),
    ("autoregression", 0.995, "kept"), ("autoregression", 0.88, "not kept"),
    ("M/M/1 at 0.8", 0.999, "kept"), ("M/M/1 at 0.8", 0.85, "not kept"),
]  # fmt: skip


@pytest.mark.parametrize("kind, share, right", CLEAR)
def test_what_is_clearly_so_is_found(kind: str, share: float, right: str) -> None:
    """The true share is another one than the 95 % that are asked for."""
    found = Counter(looked_at(*KINDS[kind](share, seed), Terms())[0] for seed in range(30))
    assert found[right] >= 20, found
    assert found["not kept" if right == "kept" else "kept"] <= 1, found


def steady(n: int, misses: int = 0) -> Part:
    """Requests of which every so many-th misses."""
    within = np.ones(n)
    if misses:
        within[misses - 1 :: misses] = 0
    return part(within, np.random.default_rng(1).exponential(1.0, n))


def test_warm_up_and_the_least_are_counted_in_rounds() -> None:
    found = judge([steady(2700)], SLO, Terms(), in_flight=100)
    assert (found.verdict, found.requests, found.warmup) == ("undecided", 1900, 800)
    assert not found.enough
    assert "1,900 of the 2,000" in found.why
    found = judge([steady(2900)], SLO, Terms(), in_flight=100)
    assert (found.verdict, found.requests) == ("kept", 2100)
    two = judge([steady(1450), steady(1450)], SLO, Terms(), in_flight=100)
    assert (two.requests, two.warmup) == (1300, 1600), "each part has a warm-up of its own"


def test_a_bad_beginning_is_left_out_and_a_bad_end_is_not() -> None:
    whole = steady(5000)
    late, early = np.array(whole.within), np.array(whole.within)
    early[0, :400], late[0, -400:] = 0, 0
    assert judge([Part(early, whole.runtime_s)], SLO, Terms(), in_flight=100).verdict == "kept"
    assert judge([Part(late, whole.runtime_s)], SLO, Terms(), in_flight=100).verdict != "kept"


def test_what_still_worsens_is_not_kept_by_its_better_beginning() -> None:
    """97 % over all, but 94 % in the second half: the interval alone would do."""
    rng = np.random.default_rng(4)
    within = (rng.random(60_000) < np.r_[np.full(30_000, 1.0), np.full(30_000, 0.94)]).astype(float)
    found = judge([part(within, rng.exponential(1.0, 60_000))], SLO, Terms(margin=0.0), in_flight=10)
    assert found.verdict == "undecided"


def test_requests_that_do_not_tell_count_against_either_verdict() -> None:
    told = steady(4000)
    unknown = np.array(told.within)
    unknown[0, ::10] = math.nan
    found = judge([Part(unknown, told.runtime_s)], SLO, Terms(), in_flight=10)
    assert found.verdict == "undecided"
    [slo] = found.slos
    assert (slo.attainment, slo.unknown, slo.missed) == (1.0, 392, 0)
    assert slo.low < 0.92
    assert slo.high > 0.95
    empty = judge([Part(np.full((1, 4000), math.nan), told.runtime_s)], SLO, Terms(), in_flight=10)
    assert empty.verdict == "undecided"
    assert math.isnan(empty.slos[0].attainment)


def test_all_slos_must_be_kept_and_one_that_is_not_decides() -> None:
    good, bad = steady(4000), steady(4000, misses=5)
    slos = [*SLO, ("p90 ttft <= 1s", 0.9)]

    def both(*rows: Part) -> Judged:
        return judge([Part(np.vstack([each.within for each in rows]), good.runtime_s)], slos, Terms(), in_flight=10)

    assert both(good, good).verdict == "kept"
    missed = both(good, bad)
    assert missed.verdict == "not kept"
    assert "p90 ttft" in missed.why
    assert [each.verdict for each in missed.slos] == ["kept", "not kept"]


def test_too_near_to_tell_ends_it_and_no_margin_goes_on() -> None:
    near = steady(200_000, misses=20)
    found = judge([near], SLO, Terms(margin=0.005), in_flight=10)
    assert (found.verdict, found.settled) == ("undecided", True)
    assert "too near to tell" in found.why
    assert not judge([near], SLO, Terms(margin=0.0), in_flight=10).settled


def test_nothing_measured_says_nothing() -> None:
    assert judge([], SLO, Terms(), in_flight=0).verdict == "undecided"
    assert judge([steady(10)], SLO, Terms(), in_flight=0).verdict == "undecided"


@pytest.mark.parametrize("field, value", [("alpha", 0.0), ("beta", 0.6), ("margin", -0.1), ("margin", math.nan),
                                          ("warmup_rounds", -1.0), ("least_rounds", math.inf)])  # fmt: skip
def test_terms_out_of_range_are_refused(field: str, value: float) -> None:
    with pytest.raises(UsageError, match=field):
        Terms(**{field: value})


def test_where_the_bounds_alone_would_be_a_verdict_it_is_said_why_there_is_none() -> None:
    """Long blocks are few: their interval may lie below what is asked for."""
    rng = np.random.default_rng(1)
    within = (rng.random(2_000) < 0.5).astype(float)
    few = judge([part(within, rng.exponential(1.0, within.size))], SLO, Terms(), in_flight=1, blocks={0: 377})
    [slo] = few.slos
    assert (few.verdict, slo.blocks) == ("undecided", 5)
    assert slo.high < 0.95
    assert "they count as 5 blocks of 377 requests, and 16 are the least: measure for longer" in few.why
    assert "between" not in few.why


def test_a_load_that_worsens_is_said_to_do_so() -> None:
    rng = np.random.default_rng(1)
    within = np.concatenate([np.ones(32_000), (rng.random(32_000) < 0.945).astype(float)])
    found = judge([part(within, rng.exponential(1.0, within.size))], SLO, Terms(), in_flight=10)
    [slo] = found.slos
    assert (found.verdict, slo.low >= 0.95) == ("undecided", True)
    assert found.why.endswith("95 % are asked for, of the later half of the requests fewer are")
