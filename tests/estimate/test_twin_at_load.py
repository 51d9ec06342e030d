"""A level counts for as many users as were in flight: what is sent while they begin makes a load look easy."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from gpusize.analysis.level import LevelData
from gpusize.analysis.slo import Slo
from gpusize.estimate.from_frames import levels_from_frames
from gpusize.estimate.question import Question
from gpusize.estimate.search.looks import Budget, Search
from gpusize.estimate.twin.method import Twin
from gpusize.estimate.twin.visit_data import Objective, Observed, observe

OBJECTIVES = [Objective.of(Slo.parse("p95 runtime <= 30s"))]
SERVICE_S = 0.1


def queue(users: int, requests: int, begin_s: float, *, think_s: float = 0.0) -> LevelData:
    """A closed loop on a server that serves one after the other, whose users begin over some seconds.

    By hand: who is next is who was free first, and begins when the one before has ended.
    """
    free = list(np.linspace(0.0, begin_s, users, endpoint=False))
    rows, busy_until = [], 0.0
    for _ in range(requests):
        due = free.pop(0)
        busy_until = max(busy_until, due) + SERVICE_S
        rows.append((due, busy_until))
        free.append(busy_until + think_s)
        free.sort()
    records = pl.DataFrame({"visit": [1] * requests, "due_s": [d for d, _ in rows], "end_s": [e for _, e in rows]})
    level = {"visit": 1, "concurrency": users, "gpus": 1}
    paused = {"think_s": think_s, "think": "fixed"} if think_s else {}
    [found] = levels_from_frames(records, pl.DataFrame([{**level, **paused}]))
    return found


def seen(level: LevelData) -> Observed:
    [found] = observe(level, OBJECTIVES)
    return found


def kept(visit: Observed) -> float:
    return float((visit.values[0][visit.steady] <= OBJECTIVES[0].bound).mean())


def test_what_was_sent_while_users_began_does_not_count():
    """400 users, of whom each waits 40 s once all are there; while they begin nearly all are served within 30 s."""
    visit = seen(queue(400, 1000, begin_s=41.0))
    assert visit.users == 400
    assert kept(visit) == 0.0
    early = visit.sent_s < 36.0
    assert early.sum() > 300
    assert not (visit.steady & early).any()


def test_a_load_that_was_never_reached_counts_for_what_there_was():
    level = queue(400, 700, begin_s=120.0)
    visit = seen(level)
    sent, left = visit.sent_s, visit.last_s
    in_flight = [int(((sent <= at) & (left > at)).sum()) for at in sent[visit.steady]]
    assert visit.users == pytest.approx(np.mean(in_flight), rel=0.1)
    assert visit.users < 200


def test_an_estimate_says_which_load_counts_for_fewer_users():
    levels = [queue(users, 700, begin_s=begin_s) for users, begin_s in ((10, 0.5), (20, 1.0), (400, 120.0))]
    estimate = Twin().answer(levels, Question(users=100, slos=(Slo.parse("p95 runtime <= 30s"),)))
    [warning] = [each for each in estimate.warnings if "in flight" in each]
    assert warning == (
        f"concurrency 400 was not reached: it counts as {seen(levels[-1]).users}, the mean number in flight"
    )


def test_users_who_all_begin_at_once_are_all_in_flight():
    visit = seen(queue(50, 125, begin_s=0.0))
    assert (visit.users, visit.steady.sum()) == (50, 125)


def test_a_level_at_its_load_is_left_as_it_is():
    visit = seen(queue(20, 2000, begin_s=2.0))
    assert visit.users == 20
    assert visit.settled
    start, end = visit.window
    assert visit.steady.sum() > 1000
    assert (visit.steady == ((visit.last_s >= start) & (visit.last_s < end))).all()


def test_users_who_pause_are_not_asked_to_be_in_flight():
    visit = seen(queue(20, 400, begin_s=2.0, think_s=5.0))
    assert (visit.users, visit.think_s) == (20, 5.0)


def test_a_search_asks_for_a_load_that_was_not_reached_again_and_longer():
    short = seen(queue(400, 700, begin_s=120.0))
    assert short.asked == 400
    look = Search(OBJECTIVES, Budget(100_000, 0)).growth([seen(queue(10, 50, begin_s=0.5)), short], 750)
    assert look is not None
    assert (look.users, look.requests + look.warmup) == (400, 1400)
    reached = seen(queue(10, 50, begin_s=0.5))
    look = Search(OBJECTIVES, Budget(100_000, 0)).growth([reached], 50)
    assert look is not None
    assert look.users > 10
