"""Rows that fail by themselves end levels of few requests: that is said, and no count is made of it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from gpusize.analysis.level import LevelData
from gpusize.analysis.slo import Slo
from gpusize.estimate.methods import Question, estimate
from gpusize.estimate.rows_failing import rows_failing
from gpusize.records.schema import OUTCOMES
from tests.analysis.synthetic import MS, closed, level

FAILED = OUTCOMES.index("http_error")
ROWS = 8


def stopped(users: int, requests: int, visit: int, *, bad: int | None = 3) -> LevelData:
    """A level in order of the rows, ended by its failures where it has any."""
    rows = [k % ROWS for k in range(requests)]
    outcome = [FAILED if row == bad else 0 for row in rows]
    columns: dict[str, Any] = {**closed(users, lambda _: 50 * MS, count=requests), "row": rows, "outcome": outcome}
    broke = any(outcome)
    found = level(users, columns, visit=visit, gpus=1, state="interrupted" if broke else "done", passes=2)
    return replace(found, meta={**found.meta, "stop_reason": "errors" if broke else "count"})


SWEEP = ((1, 2), (2, 4), (4, 8), (1, 2), (8, 16), (16, 32))


@pytest.mark.parametrize("bad", [3, None])
def test_a_bad_row_is_named_and_makes_no_count(bad: int | None) -> None:
    levels = [stopped(users, requests, visit, bad=bad) for visit, (users, requests) in enumerate(SWEEP)]
    [found] = estimate(levels, Question(100, [Slo.parse("p95 runtime <= 250ms")]))
    said = [found.reason or "", *found.warnings]
    assert any("row 3 of the dataset (from 0) failed all 8 times" in each for each in said) is (bad == 3)
    # 50 ms at any load: nothing bounds how many a GPU carries, but what was measured.
    assert found.gpus is None
    assert found.gpus_high is None or found.gpus_high >= 7


def test_rows_that_fail_under_load_alone_are_not_blamed() -> None:
    held = stopped(1, 16, 0, bad=None)
    assert rows_failing([held, stopped(8, 16, 1)]) is None
    # Once is not each time.
    assert rows_failing([stopped(2, 4, 0)]) is None


@pytest.mark.parametrize("share, seed", [(0.4, 1), (0.4, 2), (0.05, 3)])
def test_rows_that_failed_each_time_by_chance_are_not_named(share: float, seed: int) -> None:
    rng, levels = random.Random(seed), []
    for visit, users in enumerate((8, 16, 32)):
        rows = [rng.randrange(200) for _ in range(150)]
        outcome = [FAILED if rng.random() < share else 0 for _ in rows]
        columns: dict[str, Any] = {**closed(users, lambda _: 50 * MS, count=150), "row": rows, "outcome": outcome}
        found = level(users, columns, visit=visit, gpus=1, state="interrupted", count=150)
        levels.append(replace(found, meta={**found.meta, "stop_reason": "errors"}))
    assert rows_failing(levels) is None


def test_a_share_that_fails_at_every_load_is_answered_with_what_helps() -> None:
    """3 % fail, whichever row: a lower load would be void as well, and so would the levels to be measured next."""
    rng, levels = random.Random(5), []
    for visit, users in enumerate((2, 4, 8)):
        outcome = [FAILED if k % 33 == 9 else 0 for k in range(200)]
        columns = {**closed(users, lambda _: 50 * MS, count=200), "row": [rng.randrange(90) for _ in outcome]}
        one = level(users, {**columns, "outcome": outcome}, visit=visit, gpus=1, state="interrupted", count=200)
        levels.append(replace(one, meta={**one.meta, "stop_reason": "errors"}))
    [found] = estimate(levels, Question(100, [Slo.parse("p95 runtime <= 250ms")]))
    assert "About 3 % failed at every load alike" in str(found.reason)
    assert "--max-error-rate 0.1" in str(found.reason)
    assert "Measure a lower load" not in str(found.reason)
    assert found.next_levels == ()
    [lower] = estimate(levels[1:2], Question(100, [Slo.parse("p95 runtime <= 250ms")]))
    assert "Measure a lower load again" in str(lower.reason)


def test_a_dataset_of_one_row_has_no_row_to_blame() -> None:
    levels = [
        replace(each, records=each.records.with_columns(row=0))
        for each in (stopped(2, 4, 0, bad=0), stopped(4, 4, 1, bad=0))
    ]
    assert rows_failing(levels) is None
