"""Two sides of cluster tests: what differs, and how sure that is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpusize.base.errors import UsageError
from gpusize.cluster.compare import compare_tests
from tests.cluster.folders import save
from tests.cluster.synthetic import S, World

FAST = World(n=80, every_s=0.05, starting_s=0.1)
SLOW = replace(FAST, scheduling_s=(0.1, 1.0))


def repeats(folder: Path, world: World, seeds: range) -> Path:
    for seed in seeds:
        save(replace(world, seed=seed), folder / f"run-{seed}")
    return folder


def test_repeats_give_a_verdict(tmp_path: Path) -> None:
    a = repeats(tmp_path / "a", FAST, range(4))
    b = repeats(tmp_path / "b", SLOW, range(10, 14))
    found = compare_tests({"a": a, "b": b})
    assert dict(found.sides) == {"a": 4, "b": 4}
    verdicts = {each.figure: each.verdict for each in found.differences}
    assert verdicts["p50 scheduled"] == verdicts["p95 scheduled"] == "worse"
    assert verdicts["p50 acknowledgement"] in ("no evidence", "equivalent")
    each = next(each for each in found.differences if each.figure == "p50 scheduled")
    assert each.low < each.change < each.high
    back = {each.figure: each.verdict for each in compare_tests({"b": b, "a": a}, ["scheduled"]).differences}
    assert back["p95 scheduled"] == "better"


def test_equal_sides_are_not_told_apart(tmp_path: Path) -> None:
    a = repeats(tmp_path / "a", FAST, range(3))
    b = repeats(tmp_path / "b", FAST, range(20, 23))
    found = compare_tests({"a": a, "b": b}, ["scheduled", "ready"])
    assert not {each.verdict for each in found.differences} & {"better", "worse"}


def test_one_test_a_side_gives_none(tmp_path: Path) -> None:
    made = save(FAST, tmp_path / "a")
    save(SLOW, tmp_path / "b")
    found = compare_tests({"a": tmp_path / "a", "b": tmp_path / "b"}, ["scheduled"])
    assert {each.verdict for each in found.differences} == {"within these two runs"}
    median = next(each for each in found.differences if each.figure == "p50 scheduled")
    true = [made.true_delta(name, "submitted", "last_scheduled") for name in made.truth]
    assert median.a == pytest.approx(float(np.quantile(np.array(true) / S, 0.5)), rel=0.1)
    assert median.low > 0


def test_what_was_not_reached_is_told(tmp_path: Path) -> None:
    save(FAST, tmp_path / "a")
    save(replace(FAST, never=0.3, seed=5), tmp_path / "b")
    found = compare_tests({"a": tmp_path / "a", "b": tmp_path / "b"}, ["scheduled"])
    assert ("p95 scheduled", 0, 1) in found.not_reached
    assert "p95 scheduled" not in {each.figure for each in found.differences}


def test_what_is_refused(tmp_path: Path) -> None:
    save(FAST, tmp_path / "a")
    with pytest.raises(UsageError, match="a test is on both sides"):
        compare_tests({"a": tmp_path / "a", "b": tmp_path / "a"})
    with pytest.raises(UsageError, match="two folders are compared, and 1 given"):
        compare_tests({"a": tmp_path / "a"})
    save(SLOW, tmp_path / "b")
    with pytest.raises(UsageError, match="there is no phase sheduled"):
        compare_tests({"a": tmp_path / "a", "b": tmp_path / "b"}, ["sheduled"])
