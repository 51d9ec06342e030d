"""The default may not get notably worse: a fixed part of the suite, with stored truths, in seconds.

The bars are what the default showed when they were set, less what a change for the better elsewhere may cost here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from benches.estimates import subset
from benches.estimates.judge import Outcome
from benches.estimates.methods import JUDGED
from benches.estimates.table import Figures
from benches.estimates.truth import cache_folder


def short_of(outcomes: Sequence[Outcome]) -> list[str]:
    """Which bars these outcomes do not keep."""
    found = Figures.of(outcomes)
    kept = {
        "answered": found.answered.value >= 0.85,
        "exact up to 20": found.exact.value >= 0.6,
        "within one up to 20": found.within_one.value >= 0.88,
        "within 5 % above 20": found.near.value >= 0.6,
        "too few": found.too_few.value <= 0.2,
        "unrounded, median": found.raw_median.value <= 0.02,
        "interval of the count": found.covered.value >= 0.8,
        "refused for the right reason": found.refused.value == 1,
        "no crash": found.crashed == 0,
    }
    return [name for name, good in kept.items() if not good]


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return subset.lay()


@pytest.mark.timeout(600)  # half a minute on an idle core
def test_the_default_keeps_its_bars(stored: set[str]) -> None:
    outcomes = subset.judged(JUDGED[-1])
    assert len(outcomes) == len(subset.NUMBERS)
    assert all(each.spent <= each.budget for each in outcomes)
    table = [(each.scenario, each.right, each.answer, each.reason, each.crash) for each in outcomes if not each.exact]
    assert short_of(outcomes) == [], table
    found = {path.name for path in cache_folder().iterdir()}
    assert found == stored, "scenarios have changed; store their truths again: python -m benches.estimates.subset"


@pytest.mark.usefixtures("stored")
def test_the_bars_tell_the_default_from_a_straight_line() -> None:
    assert {"answered", "exact up to 20"} <= set(short_of(subset.judged("slope", subset.NUMBERS[:6])))
