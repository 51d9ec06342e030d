"""The benchmark of real servers: its questions, its truths out of raw records, and how answers are judged."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benches.lib.host import CpuTimes
from benches.lib.results import Report
from benches.real.judge import Judged, tell
from benches.real.levels import CANCELLED, COLUMNS, OK, seconds
from benches.real.question import Answer, Asked, Question, Truth, draw, holds, right
from gpusize.analysis.slo import Slo
from gpusize.records.schema import OUTCOMES, empty

USERS = (Asked(6), Asked(12))


def times(*scales: float) -> dict[int, dict[Asked, np.ndarray]]:
    """Exponential times whose mean is each count's, twice as long with twice the users."""
    unit = -np.log1p(-(np.arange(400) + 0.5) / 400)
    return {
        count: {asked: unit * scale * asked.amount / 6 for asked in USERS}
        for count, scale in enumerate(scales, start=1)
    }


@pytest.mark.parametrize("seed", range(20))
def test_limits_lie_where_the_drawn_count_is_the_fewest(seed: int) -> None:
    measured = times(1.0, 0.4, 0.2)
    found = draw("w", measured, np.full(10, 0.05), "runtime", 8, seed)
    assert [truth.count for _, truth in found] == [1, 2, 3, 4, 1, 2, 3, 4]
    for question, truth in found:
        within = [float(np.mean(measured[n][question.asked] <= question.limit_s)) for n in (1, 2, 3)]
        assert [truth.attained[n] for n in (1, 2, 3)] == within
        fewest = next((n for n, share in enumerate(within, start=1) if share >= question.share), 4)
        assert truth.count == fewest
        slo = Slo.parse(question.slo)
        assert (slo.metric, slo.share) == ("runtime", question.share)
        assert slo.bound == pytest.approx(question.limit_s)


def test_no_limit_is_drawn_between_counts_that_hardly_differ() -> None:
    found = draw("w", times(1.0, 0.99, 0.5), np.full(10, 0.05), "runtime", 9, 1)
    assert {truth.count for _, truth in found} == {1, 3, 4}
    with pytest.raises(ValueError, match="only 0 of 2 questions"):
        draw("w", times(math.inf, math.inf, math.inf), np.full(10, 0.05), "runtime", 2, 1)


BETWEEN = Truth({1: 0.2, 2: 0.97, 3: 1.0}, alone=1.0, share=0.95)
BEYOND = Truth({1: 0.0, 2: 0.5, 3: 0.9}, alone=1.0, share=0.95)
NEVER = Truth({1: 0.0, 2: 0.0, 3: 0.1}, alone=0.2, share=0.95)


@pytest.mark.parametrize(
    "truth, answer, is_right, does_hold",
    [
        (BETWEEN, Answer(2, 2, 3), True, True),
        (BETWEEN, Answer(3, 3, 4), False, False),
        (BETWEEN, Answer(1), False, True),  # without ends an interval is open
        (BETWEEN, Answer(None), False, True),
        (BEYOND, Answer(7, 5, 9), True, True),
        (BEYOND, Answer(3, 2, 3), False, False),
        (BEYOND, Answer(None), False, True),
        (NEVER, Answer(None), True, True),
        (NEVER, Answer(4, 4, 5), True, True),
        (NEVER, Answer(2, 1, 2), False, False),
    ],
)
def test_an_answer_is_held_against_what_was_measured(
    truth: Truth, answer: Answer, is_right: bool, does_hold: bool
) -> None:
    assert (right(answer, truth), holds(answer, truth)) == (is_right, does_hold)


MS = 1_000_000


def row(due_ms: float, **more: int | None) -> dict[str, int | None]:
    """A request that is due and sent at once, has a token after 10 ms and ends after 50."""
    due = round(due_ms * MS)
    usual = {"due_ns": due, "sent_ns": due, "first_token_ns": due + 10 * MS, "end_ns": due + 50 * MS, "outcome": 0}
    return {**usual, **more}


def test_seconds_are_those_of_the_raw_records(tmp_path: Path) -> None:
    rows = [
        row(0, end_ns=900 * MS),  # of the first quarter
        row(260, sent_ns=280 * MS, first_token_ns=290 * MS, end_ns=330 * MS),
        row(500),
        row(700, outcome=3, first_token_ns=None),  # timed out
        row(900, outcome=8, first_token_ns=None),  # cancelled at the end
        row(950, first_token_ns=None),  # an answer without a token
        row(1000),
    ]
    assert set(COLUMNS) <= set(empty().collect_schema().names())
    assert (OUTCOMES[OK], OUTCOMES[CANCELLED]) == ("ok", "cancelled")
    pl.DataFrame(rows[:3], schema=dict.fromkeys(COLUMNS, pl.Int64)).write_parquet(tmp_path / "part-00000.parquet")
    pl.DataFrame(rows[3:], schema=dict.fromkeys(COLUMNS, pl.Int64)).write_parquet(tmp_path / "part-00001.parquet")
    assert seconds(tmp_path, "runtime").tolist() == pytest.approx([0.05, 0.05, math.inf, 0.05, 0.05])
    assert seconds(tmp_path, "ttft").tolist() == pytest.approx([0.01, 0.01, math.inf, 0.01])


@pytest.mark.parametrize("late_ms, keeps_up", [(0, True), (20, True), (2_000, False)])
def test_at_a_rate_waiting_counts_and_replicas_keep_up_or_not(tmp_path: Path, late_ms: int, keeps_up: bool) -> None:
    rows = [row(10 * k, sent_ns=(10 * k + late_ms) * MS, end_ns=(10 * k + late_ms + 50) * MS) for k in range(100)]
    pl.DataFrame(rows, schema=dict.fromkeys(COLUMNS, pl.Int64)).write_parquet(tmp_path / "part-00000.parquet")
    found = seconds(tmp_path, "runtime", due=True)
    assert set(found) == ({(50 + late_ms) / 1e3} if keeps_up else {math.inf})
    assert set(seconds(tmp_path, "runtime")) == {0.05}


def test_shares_and_bars_count_the_answers(capsys: pytest.CaptureFixture[str]) -> None:
    class Telling:
        report = Report()

    question = Question("lengths", Asked(12, think_s=1.0), "runtime", 0.95, 0.5)
    said = {"auto": Answer(2, 2, 3), "crossing": Answer(None), "slope": Answer(1)}
    judged = [Judged(question, BETWEEN, said), Judged(question, BEYOND, {**said, "auto": Answer(3, 2, 3)})]
    tell(Telling(), "it", judged, "A note.", CpuTimes.now())  # type: ignore[arg-type]
    lines = {bar.name: bar.measured.value for bar in Telling.report.bars}
    assert lines == {"real_it_exact": 0.5, "real_it_within_one": 1.0, "real_it_holds": 0.5}
    printed = capsys.readouterr().out
    assert "lengths, 12 users, pauses of 1 s" in printed
    assert "1: 20.0, 2: 97.0, 3: 100.0" in printed
    assert "over 3" in printed
