"""A level after one that the target did not keep up with: what is said of it, held against the queue itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpusize.analysis.carried_over import carried_over
from gpusize.analysis.checks import check, unbelieved
from gpusize.analysis.level import LevelData
from gpusize.analysis.read_levels import read_levels
from gpusize.analysis.steadiness import growth_of
from tests.analysis.open_levels import START_NS, arrivals, columns, open_setting, served, write_level, write_run

SERVICE_S = 0.1
"""One server takes so long for each request: it answers 10/s."""


def run(
    tmp_path: Path, *loads: tuple[float, float], pause_s: float = 0.0, seed: int = 7
) -> tuple[list[LevelData], list[float]]:
    """Levels of (rate, seconds) one after the other on one server; and when the queue was empty last in each, seconds
    after its begin: nan where it never was."""
    begins = np.cumsum([0.0, *(length + pause_s for _, length in loads)])
    dues = [arrivals("poisson", rate, length, seed=seed + k) for k, (rate, length) in enumerate(loads)]
    due = np.concatenate([begin + each for begin, each in zip(begins, dues, strict=False)])
    end = served(due, SERVICE_S)
    place, first, empty = write_run(tmp_path / "run"), 0, []
    for visit, ((rate, length), own) in enumerate(zip(loads, dues, strict=True)):
        ends = end[first : first + own.size] - begins[visit]
        start = START_NS + round(begins[visit] * 1e9)
        write_level(
            place, visit, columns(own, ends, start_ns=start), open_setting(rate, length), length, start_ns=start
        )
        at_once = np.isclose(ends - own, SERVICE_S)
        empty.append(float(own[at_once.argmax()]) if at_once.any() else float("nan"))
        first += own.size
    return read_levels(place), empty


def test_a_level_after_an_overload_is_of_both(tmp_path: Path) -> None:
    (_, heavy, light), _ = run(tmp_path, (5, 60), (20, 30), (5, 30))
    assert "carried-over" in check(light).flags
    assert unbelieved(light)
    assert not unbelieved(heavy)
    assert "carried-over" not in check(heavy).flags


def test_how_long_it_lasts_is_when_the_queue_is_empty(tmp_path: Path) -> None:
    (_, light), (_, empty_s) = run(tmp_path, (20, 30), (5, 300))
    [told] = [each for each in check(light).alerts if each.startswith("carried over")]
    found = re.search(r"first ([0-9.]+) s waited behind those of a level before", told)
    assert found is not None, told
    assert float(found[1]) == pytest.approx(empty_s, rel=0.1)
    # Behind it nothing is carried over, and times are those of the server.
    _, again = read_levels(tmp_path / "run", warmup_s=float(found[1]) + 0.1)
    assert not unbelieved(again)
    assert float(np.median(again.values("runtime"))) < 2 * SERVICE_S


def test_a_backlog_goes_through_a_level_to_the_next(tmp_path: Path) -> None:
    (heavy, light, lighter), (_, first_s, second_s) = run(tmp_path, (20, 30), (9, 40), (8, 20))
    assert np.isnan([first_s, second_s]).all(), "the queue is never empty"
    assert heavy.meta["end_ns"] < lighter.meta["start_ns"], "what the last one waits behind are requests of the second"
    assert unbelieved(light)
    assert unbelieved(lighter)


def test_thousands_of_levels_are_no_matter(tmp_path: Path) -> None:
    [level], _ = run(tmp_path, (5, 30))
    for visit in range(1, 5000):
        level = replace(level, visit=visit, before=level)
    assert not unbelieved(level)


@pytest.mark.parametrize("loads", [((5, 60), (8, 60), (5, 60)), ((5, 60), (20, 30)), ((5, 60), (20, 30), (30, 30))])
def test_others_are_not_doubted(tmp_path: Path, loads: tuple[tuple[float, float], ...]) -> None:
    levels, _ = run(tmp_path, *loads)
    assert [unbelieved(each) for each in levels] == [False] * len(loads)


def test_a_pause_lets_it_go(tmp_path: Path) -> None:
    """As after --resume: the queue was empty long before the next level began."""
    (_, light), _ = run(tmp_path, (20, 30), (5, 30), pause_s=60)
    assert not unbelieved(light)


@pytest.mark.parametrize("seed", range(4))
def test_an_hour_later_a_queue_is_the_targets_own(tmp_path: Path, seed: int) -> None:
    """Near the capacity requests take many times as long as on an empty target, whatever came before."""
    (_, later), _ = run(tmp_path, (20, 30), (9.3, 120), pause_s=3600, seed=seed)
    assert not unbelieved(later)


@pytest.mark.parametrize("length_s, flagged", [(20, True), (600, False)])
def test_in_a_long_level_a_queue_that_stays_is_the_targets_own(tmp_path: Path, length_s: float, flagged: bool) -> None:
    """As with batches: they take 5 s where a single request takes 0.1 s. In a short level it may be the backlog's."""
    place = write_run(tmp_path / "run")
    due = arrivals("constant", 13, 30)
    write_level(place, 0, columns(due, served(due, SERVICE_S)), open_setting(13, 30, "constant"), 30)
    start, own = START_NS + 30 * 10**9, arrivals("poisson", 7, length_s)
    given = columns(own, own + 5.0, start_ns=start)
    write_level(place, 1, given, open_setting(7, length_s), length_s, start_ns=start)
    assert unbelieved(read_levels(place)[1]) is flagged


def random_levels(tmp_path: Path, seed: int) -> Iterator[tuple[bool, bool, bool]]:
    """Of each level after the first of a random run that is not saturated: whether it is flagged, whether its p95 is a
    fifth longer than by itself, from an empty queue, and whether any level before it was beyond the capacity."""
    rng = np.random.default_rng(seed)
    servers = int(rng.choice([1, 2, 8, 32]))
    loads = [(float(rng.choice([3, 5, 7, 8.5, 13, 20, 40])), float(rng.choice([15, 30, 60, 120]))) for _ in range(4)]
    dues = [arrivals("poisson", rate, length, seed=int(rng.integers(1 << 30))) for rate, length in loads]
    # Together they answer 11 requests/s.
    services = [rng.lognormal(-0.08, 0.4, due.size) * 0.09 * servers for due in dues]
    begins = np.cumsum([0.0, *(length for _, length in loads)])
    due = np.concatenate([begin + own for begin, own in zip(begins, dues, strict=False)])
    ends = np.split(
        served(due, np.concatenate(services), ((0.0, servers),)), np.cumsum([own.size for own in dues])[:-1]
    )
    place = write_run(tmp_path / f"run-{seed}")
    for visit, ((rate, length), own, end) in enumerate(zip(loads, dues, ends, strict=True)):
        start = START_NS + round(begins[visit] * 1e9)
        given = columns(own, end - begins[visit], start_ns=start)
        write_level(place, visit, given, open_setting(rate, length), length, start_ns=start)
    for visit, level in enumerate(read_levels(place)):
        own, alone = dues[visit], served(dues[visit], services[visit], ((0.0, servers),)) - dues[visit]
        low, high = ((at - level.meta["start_ns"]) / 1e9 for at in level.window())
        steady = (own >= low) & (own < high)
        if visit and steady.any() and growth_of(level).status != "growing":
            took = ends[visit] - begins[visit] - own
            longer = np.quantile(took[steady], 0.95) > 1.2 * np.quantile(alone[steady], 0.95)
            yield bool(carried_over(level)), bool(longer), max(rate for rate, _ in loads[:visit]) > 11


def test_of_random_sweeps_those_that_are_longer_by_it_are_found(tmp_path: Path) -> None:
    levels = [each for seed in range(80) for each in random_levels(tmp_path, seed)]
    found = [flagged for flagged, longer, _ in levels if longer]
    assert len(found) > 100
    assert np.mean(found) >= 0.85
    assert not any(flagged for flagged, _, beyond in levels if not beyond)
    assert np.mean([flagged for flagged, longer, _ in levels if not longer]) <= 0.05
