"""Duets: the order of the visits, what an interruption and a dead target leave, and that the folders say it again."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

import gpusize
from gpusize.analysis.compare.differences import difference
from gpusize.analysis.compare.figures import Measured, figure
from gpusize.api.duet import alternate
from gpusize.base.errors import TargetError, UsageError
from gpusize.base.interrupt import StopSwitch
from gpusize.result import Result, open_run
from tests.estimate.virtual import level
from tests.whatif.folder import stored


class Visits:
    """Measures in virtual time; ``new`` takes 30 % longer. One visit may be interrupted, or find its target dead."""

    def __init__(self, interrupted: int | None = None, dead: int | None = None) -> None:
        self.order: list[str] = []
        self.interrupted, self.dead = interrupted, dead

    def __call__(self, name: str, folder: Path, stop: StopSwitch) -> Result:
        k = len(self.order)
        self.order.append(name)
        if k == self.dead:
            raise TargetError("connection refused", "http://127.0.0.1:1", "start it")
        known = [level(4, requests=100, slowness=1.3 if name == "new" else 1.0, seed=k)]
        about = {"schema": 1, "run": f"run-{k}", "created": f"2026-11-01T00:00:{k:02d}Z", "labels": {}}
        stored(folder, about, known)
        result = open_run(folder / f"run-{k}")
        if k == self.interrupted:
            stop.ask()
            result.cancelled = True
        return result


def test_visits_alternate_and_the_folders_give_the_same_answer(tmp_path: Path) -> None:
    visits, told = Visits(), list[str]()
    made = alternate(["old", "new"], visits, rounds=4, out=tmp_path / "d", stop=StopSwitch(), tell=told.append)
    assert told[:4] == ["old in its warm-up", "new in its warm-up", "old in round 1 of 4", "new in round 1 of 4"]
    assert len(told) == 10
    assert visits.order == ["old", "new", *("old", "new", "new", "old") * 2]
    found = gpusize.compare(made)
    assert found.in_turns == {"new": "balanced"}
    [p50] = [each for each in found.differences if each.figure == "p50 runtime"]
    assert (p50.design, p50.verdict, p50.runs) == ("pairs", "worse", (4, 4))
    again = gpusize.compare({name: tmp_path / "d" / name for name in made})
    assert [replace(each, side="") for each in again.differences] == [replace(each, side="") for each in
                                                                     found.differences]  # fmt: skip


def test_an_interruption_keeps_all_and_compares_whole_rounds(tmp_path: Path) -> None:
    made = alternate(["old", "new"], Visits(interrupted=7), rounds=9, out=tmp_path, stop=StopSwitch())
    assert {name: len(runs) for name, runs in made.items()} == {"old": 2, "new": 2}
    assert len(list((tmp_path / "unfinished").glob("*/*/run.json"))) == 2
    assert gpusize.compare({name: tmp_path / name for name in made}).sides == {"old": 2, "new": 2}


def test_a_dead_target_ends_it_without_a_verdict(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="new failed in round 2 of 5: connection refused"):
        alternate(["old", "new"], Visits(dead=4), rounds=5, out=tmp_path, stop=StopSwitch())
    assert len(list((tmp_path / "old").glob("*/run.json"))) == 1


@pytest.mark.parametrize("names, rounds, what", [(["a"], 4, "two targets"), (["a", "b/c"], 4, "b/c"),
                                                 (["a", "b"], 1, "2 or more")])  # fmt: skip
def test_bad_input_is_named(tmp_path: Path, names: list[str], rounds: int, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        alternate(names, Visits(), rounds=rounds, out=tmp_path, stop=StopSwitch())


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(UsageError, match="is not empty"):
        alternate(["a", "b"], Visits(), rounds=2, out=tmp_path, stop=StopSwitch())


def test_the_interval_covers_under_a_changing_neighbour_and_the_sign_test_agrees() -> None:
    rnd = random.Random(5)
    runtime, covered, found, signs = figure("p50 runtime"), 0, 0, 0
    for _ in range(400):
        neighbour, sides = 0.0, {"old": [0.0] * 10, "new": [0.0] * 10}
        for k in range(10):
            for name in ("old", "new") if k % 2 == 0 else ("new", "old"):
                neighbour += rnd.gauss(0, 0.02)
                sides[name][k] = neighbour + rnd.gauss(0, 0.01) + (math.log(1.05) if name == "new" else 0)
        old, new = ([Measured(math.exp(each), math.nan, 0) for each in sides[name]] for name in ("old", "new"))
        made = difference("new", "4 users", runtime, old, new, paired=True)
        covered += made.low <= 0.05 <= made.high
        found += made.p < 0.05
        signs += sum(b > a for a, b in zip(sides["old"], sides["new"], strict=True)) >= 9
    assert 366 <= covered <= 394, "95 % of 400, give or take three standard errors"
    assert found >= 360
    assert signs >= 300, "nine of ten pairs, by a test that knows no normal distribution"
