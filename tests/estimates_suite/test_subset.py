"""A small fixed part of the suite, whole: draw, truth, methods, judgement. What it finds may not change by accident."""

from __future__ import annotations

from pathlib import Path

import pytest

from benches.estimates.__main__ import main
from benches.estimates.judge import ORACLE, Outcome, Task, judge
from benches.estimates.methods import JUDGED
from benches.estimates.table import Figures

SEED = 5
NUMBERS = (1, 2, 3)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Outcome]]:
    with pytest.MonkeyPatch.context() as patch:
        cache: Path = tmp_path_factory.mktemp("truths")
        patch.setenv("XDG_CACHE_HOME", str(cache))
        found = [judge(Task(SEED, number, (*JUDGED, ORACLE))) for number in NUMBERS]
    return {name: [each for one in found for each in one if each.method == name] for name in (*JUDGED, ORACLE)}


def test_no_method_raises_or_overspends(outcomes: dict[str, list[Outcome]]) -> None:
    every = [each for found in outcomes.values() for each in found]
    assert [each.crash for each in every if each.crash] == []
    assert all(each.spent <= each.budget for each in every)


def test_every_method_answers_or_says_why_not(outcomes: dict[str, list[Outcome]]) -> None:
    every = [each for found in outcomes.values() for each in found]
    assert all((each.answer is None) == bool(each.reason) for each in every)


def test_truths_lie_where_they_were_drawn(outcomes: dict[str, list[Outcome]]) -> None:
    for each in outcomes[ORACLE]:
        if each.n is not None:
            assert each.raw is not None
            assert each.raw_error is not None
            assert each.n in each.right
            error = 3 * each.raw_error * each.raw
            assert each.n - 1 - error <= each.raw <= each.n + error


def test_the_oracle_is_near_in_every_case(outcomes: dict[str, list[Outcome]]) -> None:
    found = Figures.of(outcomes[ORACLE])
    assert (found.answered.value, found.within_one.value) == (1, 1)
    assert found.raw_median.value < 0.04


def test_the_command_prints_tables_and_bars(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    words = ["--seeds", str(SEED), "--count", "2", "--jobs", "1", "--method", "slope,crossing"]
    assert main([*words, "--outcomes", str(tmp_path / "outcomes.jsonl")]) == 1
    printed = capsys.readouterr().out
    assert "### Methods, foreign mechanisms" in printed
    assert "BAR estimate_exact_up_to_20 " in printed
    assert len((tmp_path / "outcomes.jsonl").read_text().splitlines()) == 6
