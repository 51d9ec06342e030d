"""Levels that Little's law contradicts: no answer is fitted to them, whichever method is asked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpusize.analysis.checks import check
from gpusize.analysis.slo import Slo
from gpusize.estimate.methods import Question, estimate
from tests.estimate import worlds

SLO = Slo.parse("p95 runtime <= 505ms")
LOADS = (1, 2, 4, 8, 12, 16, 20, 24)


@pytest.fixture(scope="module")
def levels():
    return worlds.levels(worlds.Server(lambda at_work: 0.2 + 0.025 * at_work), LOADS)


def other_load(level, users):
    """The level as one that asked for more than were in flight."""
    setting = {**level.setting, "concurrency": users}
    return replace(level, setting=setting, meta={**level.meta, "setting": setting})


@pytest.mark.parametrize("method", ["auto", "twin", "scaling"])
def test_levels_that_littles_law_contradicts_are_not_fitted(levels, method):
    question = Question(100, [SLO])
    # Records of 1 in flight, under the name of 40.
    odd = other_load(levels[0], 40)
    assert "little" in check(odd).flags
    [with_it], [without] = estimate([*levels, odd], question, method), estimate(levels, question, method)
    assert (with_it.gpus, with_it.gpus_raw) == (without.gpus, without.gpus_raw)
    assert "concurrency 40 is left out, as fewer or more requests were in flight than asked for" in with_it.warnings


def test_a_repeat_that_littles_law_contradicts_is_not_fitted(levels):
    question = Question(100, [SLO])
    odd = other_load(levels[0], 16)
    [with_it], [without] = estimate([*levels, odd], question), estimate(levels, question)
    assert (with_it.gpus, with_it.gpus_raw) == (without.gpus, without.gpus_raw)
    assert any(text.startswith("a repeat of concurrency 16 is left out") for text in with_it.warnings)


def test_no_method_in_one_table_rests_on_a_level_that_another_leaves_out(levels):
    odd = other_load(levels[0], 40)
    whole = estimate([*levels, odd], Question(100, [SLO]), "all")
    for found in whole:
        [alone] = estimate(levels, Question(100, [SLO]), found.method)
        assert (found.gpus, found.gpus_raw) == (alone.gpus, alone.gpus_raw)
