"""Steps of the load, what follows them, and courses of readings: by hand, and against sums over a fine grid."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpusize.analysis.slo import as_slos
from gpusize.estimate.plan.autoscale.judge.load_steps import LoadStep, load_steps
from gpusize.estimate.plan.autoscale.judge.requests import Requests
from gpusize.estimate.plan.autoscale.judge.responses import begun_to_serve, recovery, response
from gpusize.estimate.plan.autoscale.judge.run_clock import RunClock
from gpusize.estimate.plan.autoscale.judge.series import PulledSeries
from gpusize.estimate.plan.autoscale.judge.track import Track, added
from gpusize.workload.load import Load, Stream
from gpusize.workload.load.superposition import stream_levels
from tests.autoscale.judged import MONO_NS, START_WALL_NS, Pulled, level, records


def requests(due_s: np.ndarray, slow: np.ndarray, slo: str = "p90 runtime <= 1s") -> Requests:
    rows = records(due_s, due_s + np.where(slow, 5.0, 0.5))
    return Requests.of([level({"kind": "open", "rate": 1.0}, rows, 0, 1000)], as_slos(slo), MONO_NS)


STEADY = requests(np.arange(0.0, 900.0), np.zeros(900, bool))


def track(*readings: tuple[float, float], step_s: float = 10.0, end_s: float = 900.0) -> Track:
    at, values = zip(*readings, strict=True)
    return Track.of_readings(np.array(at, float), np.array(values, float), step_s, end_s)


def course(values: dict[int, float], first: float, end: int = 900, step: int = 10) -> Track:
    """Readings every ten seconds of a number that changes at some of them."""
    held, found = first, []
    for at in range(-10, end + step, step):
        held = values.get(at, held)
        found.append((float(at), held))
    return track(*found, end_s=float(end))


@pytest.mark.parametrize(
    "moves, first, step, expected",
    [
        ({330: 2}, 1, LoadStep(300, 600, 1, 2, "requests/s"), (20, 30)),
        # The first of several; not the one after the next step.
        ({350: 2, 360: 3}, 1, LoadStep(300, 600, 1, 2, "requests/s"), (40, 50)),
        ({610: 2}, 1, LoadStep(300, 600, 1, 2, "requests/s"), None),
        # A reading at the step itself is of what was before.
        ({300: 2}, 1, LoadStep(300, 600, 1, 2, "requests/s"), None),
        ({310: 2}, 1, LoadStep(305, 600, 1, 2, "requests/s"), (0, 5)),
        # The other way does not count.
        ({320: 1, 400: 3}, 2, LoadStep(300, 600, 1, 2, "requests/s"), (90, 100)),
        ({320: 5, 400: 3}, 4, LoadStep(300, 600, 2, 1, "requests/s"), (90, 100)),
        ({}, 4, LoadStep(300, 600, 2, 1, "requests/s"), None),
    ],
)
def test_how_soon_replicas_move(moves, first, step, expected) -> None:
    moved = course(moves, first)
    found = response(step, STEADY, 60, desired=moved, ready=moved, serving=None, needed=None)
    assert found.desired == found.ready == expected
    assert found.serving is None
    assert found.enough is None


def test_a_move_in_a_gap_is_as_unsure_as_the_gap() -> None:
    seen = track(*((float(at), 1.0) for at in range(-10, 310, 10)), (400.0, 2.0), (410.0, 2.0))
    step = LoadStep(295, 600, 1, 2, "requests/s")
    found = response(step, STEADY, 60, desired=seen, ready=None, serving=None, needed=None)
    assert found.desired == (5.0, 105.0)
    assert found.ready is None


def test_enough_are_ready_once_the_estimate_says_so() -> None:
    step = LoadStep(300, 600, 1, 4, "requests/s")
    ready = course({330: 2, 390: 3, 480: 4}, 1)

    def enough(needed: int):
        return response(step, STEADY, 60, desired=None, ready=ready, serving=None, needed=needed).enough

    assert enough(1) == (0, 0)
    assert enough(2) == (20, 30)
    assert enough(4) == (170, 180)
    assert enough(5) is None


@pytest.mark.parametrize(
    "slow, expected",
    [
        ([], (False, None)),
        ([(300, 400)], (True, 120)),
        # It comes back and stays away again: kept again is the last time.
        ([(300, 330), (480, 500)], (True, 240)),
        ([(300, 600)], (True, None)),
        ([(580, 600)], (True, None)),
    ],
)
def test_when_the_slo_is_kept_again_and_stays_so(slow, expected) -> None:
    due = np.arange(0.0, 900.0)
    late = np.zeros(due.size, bool)
    for since, until in slow:
        late |= (due >= since) & (due < until)
    found = recovery(requests(due, late), 300.0, 600.0, 60.0)
    assert (found.fell, found.after_s) == expected
    assert found.lowest == pytest.approx(min(1 - late[k : k + 60].mean() for k in range(300, 600, 60)))


def test_a_miss_of_few_requests_is_chance() -> None:
    due = np.arange(0.0, 900.0, 10.0)
    found = recovery(requests(due, due == 400.0), 300.0, 600.0, 60.0)
    # 5 of 6 within: below 90 %, and no evidence of it.
    assert found.lowest == pytest.approx(5 / 6)
    assert not found.fell
    assert recovery(requests(due, (due >= 360) & (due < 420)), 300.0, 600.0, 60.0).fell


def test_nothing_was_lost_where_nobody_asked() -> None:
    found = recovery(requests(np.arange(0.0, 100.0), np.zeros(100, bool)), 300.0, 600.0, 60.0)
    assert found == (found.__class__)(fell=False, after_s=None, lowest=None)


def opened(pulled: Pulled, folder: Path, end_s: float = 900.0) -> PulledSeries:
    clock = RunClock(MONO_NS, np.array([MONO_NS]), np.array([START_WALL_NS]), 0.0)
    return PulledSeries.open(pulled.write(folder), clock, end_s)


def test_when_new_replicas_have_their_first_request(tmp_path: Path) -> None:
    pulled = Pulled(offset_s=100.0)
    at = np.arange(0.0, 900.0, 10.0)
    pulled.add("running", at, np.ones(at.size), pod="a")
    # There from 300 s on, at work from 320 s on.
    pulled.add("running", at[at >= 300], (at[at >= 300] >= 320) * 1.0, pod="b")
    # Never at work.
    pulled.add("running", at[at >= 500], at[at >= 500] * 0, pod="c")
    # Gone from 600 s on, and back at 700 s under its name.
    back = at[(at >= 400) & ((at < 600) | (at >= 700))]
    pulled.add("running", back, np.ones(back.size), pod="d")
    # What nobody read is no end of a replica.
    pulled.rows = [row for row in pulled.rows if not 800 <= row[0] < 850]
    found = begun_to_serve(opened(pulled, tmp_path))
    assert found.tolist() == [[310, 320], [390, 400], [690, 700]]
    step = LoadStep(300, 600, 1, 2, "requests/s")
    seen = response(step, STEADY, 60, desired=None, ready=None, serving=found, needed=None)
    assert seen.serving is not None
    assert tuple(seen.serving) == (10, 20)
    # Of what was asked for before the step nothing follows from it: b was on its way, d came after.
    asked, ready = course({250: 2, 370: 3}, 1), course({310: 2, 390: 3}, 1)
    assert response(step, STEADY, 60, desired=asked, ready=ready, serving=found, needed=None).serving == (90, 100)
    # None is at work before it is asked for, however late the others are ready.
    late = response(step, STEADY, 60, desired=course({330: 2}, 1), ready=None, serving=found, needed=None)
    assert [tuple(each or ()) for each in (late.desired, late.serving)] == [(20, 30), (90, 100)]
    never = response(step, STEADY, 60, desired=course({250: 2}, 1), ready=None, serving=found, needed=None)
    assert never.desired is None
    assert never.serving is None
    down = LoadStep(300, 600, 2, 1, "requests/s")
    assert response(down, STEADY, 60, desired=None, ready=None, serving=found, needed=None).serving is None


@pytest.mark.parametrize("seed", range(8))
def test_replicas_are_scraped_at_times_of_their_own(seed: int, tmp_path: Path) -> None:
    """Each at its own phase, late by milliseconds, some missed: added up, and each new one found."""
    rnd = np.random.default_rng(seed)
    pulled, end, step = Pulled(), 900.0, 15.0
    born: list[tuple[float, float]] = []
    lives = []
    for k in range(12):
        since = 0.0 if k < 3 else float(rnd.uniform(60, 700))
        until = end + 60 if rnd.random() < 0.6 else since + float(rnd.uniform(100, 400))
        at = np.arange(rnd.uniform(0, step), end + 60, step) - 30 + rnd.uniform(0, 0.002)
        at = at[(at >= (since if k >= 3 else -30)) & (at < until)]
        idle = int(rnd.integers(0, 3)) if k >= 3 else 0
        values = np.where(np.arange(at.size) < idle, 0.0, 4.0)
        pulled.add("running", at, values, pod=f"llama-{k}", engine="0")
        if k >= 3 and at.size > idle:
            born.append((at[idle - 1] if idle else at[0] - step, at[idle]))
        lives.append((at, values))
    series = opened(pulled, tmp_path)
    found = begun_to_serve(series)
    assert found == pytest.approx(np.array(sorted(born, key=lambda each: each[1])), abs=1e-3)
    track = series.over_replicas("running", "sum")
    # In the middle of an interval whose replicas all stay: the sum of what each said last.
    for middle in np.arange(100.0, end - 50, 7.0):
        near = [(at, values) for at, values in lives if ((at > middle - 40) & (at < middle + 40)).any()]
        if any(at[0] > middle - 40 or at[-1] < middle + 40 for at, _ in near):
            continue
        if any(np.ptp(values[(at > middle - 40) & (at < middle + 40)]) for at, values in near):
            continue
        expected = sum(values[at <= middle][-1] for at, values in near)
        assert track.at([middle])[0] == pytest.approx(expected)


def test_the_counter_of_requests_tells_too(tmp_path: Path) -> None:
    pulled = Pulled()
    at = np.arange(0.0, 900.0, 10.0)
    pulled.add("requests", at, at + 5, pod="a")
    pulled.add("requests", at[at >= 300], np.maximum(at[at >= 300] - 330, 0), pod="b")
    assert begun_to_serve(opened(pulled, tmp_path)).tolist() == [[330, 340]]
    assert begun_to_serve(opened(_empty(), tmp_path / "none")) is None


def _empty() -> Pulled:
    pulled = Pulled()
    pulled.add("replicas_ready", [0.0], [1.0])
    return pulled


# --- the load


def stage(rate: float, from_s: float, until_s: float, **more: object):
    due = np.array([from_s])
    return level({"kind": "open", "rate": rate, "process": "poisson", **more}, records(due, due), from_s, until_s)


def told(levels, end_s: float) -> list[tuple]:
    found = load_steps(levels, MONO_NS, end_s)
    return [(each.at_s, each.until_s, each.before, each.after, each.ramp_s) for each in found]


def test_stages_are_steps() -> None:
    levels = [stage(0.5, 0, 600), stage(1.0, 600, 1200), stage(1.02, 1200, 1500), stage(0.3, 1500, 1800)]
    assert told(levels, 1810) == [
        (0, 600, 0, 0.5, 0),
        (600, 1500, 0.5, 1.0, 0),
        (1500, 1810, 1.02, 0.3, 0),
    ]


def test_streams_that_begin_later_are_steps() -> None:
    """The seed's stair: four streams of half a request per second, one after another."""
    load = Load(streams=[Stream(name=f"s{k}", rate=0.5, start_s=600.0 * k) for k in range(4)], duration_s=3600)
    due = np.array([0.0])
    levels = [
        level(setting, records(due, due), setting["at_s"], setting["at_s"] + setting["duration_s"])
        for setting in (each.setting for each in stream_levels(load, 10, None))
    ]
    assert told(levels, 3600) == [
        (600 * k, 600 * (k + 1) if k < 3 else 3600, 0.5 * k, 0.5 * (k + 1), 0) for k in range(4)
    ]


def test_ramps_pauses_and_users() -> None:
    ramp = stage(5.5, 0, 100, from_rate=1.0, to_rate=10.0, duration_s=100.0)
    assert told([ramp, stage(10.0, 100, 200)], 200) == [(0, 200, 0, 10.0, 100)]
    assert told([stage(4.0, 0, 100), ramp_from(4.0, 8.0, 100, 200)], 200) == [
        (0, 100, 0, 4.0, 0),
        (100, 200, 4.0, 8.0, 100),
    ]
    assert told([stage(4.0, 0, 100), stage(4.0, 130, 200)], 200) == [
        (0, 100, 0, 4.0, 0),
        (100, 130, 4.0, 0, 0),
        (130, 200, 0, 4.0, 0),
    ]
    due = np.array([0.0])
    closed = [
        level({"kind": "closed", "concurrency": users}, records(due, due), 100 * k, 100 * (k + 1))
        for k, users in enumerate((4, 16))
    ]
    found = load_steps(closed, MONO_NS, 200)
    assert [(each.before, each.after, each.unit) for each in found] == [(0, 4, "users"), (4, 16, "users")]


def ramp_from(low: float, high: float, from_s: float, until_s: float):
    length = until_s - from_s
    return stage((low + high) / 2, from_s, until_s, from_rate=low, to_rate=high, duration_s=length)


# --- readings


@pytest.mark.parametrize("seed", range(20))
def test_a_track_is_what_a_fine_grid_sees(seed: int) -> None:
    rnd = np.random.default_rng(seed)
    end = 500
    at = np.sort(rnd.choice(np.arange(-20, end + 20, 10), rnd.integers(2, 40), replace=False)).astype(float)
    values = rnd.integers(0, 6, at.size).astype(float)
    values[rnd.random(at.size) < 0.1] = np.nan
    found = Track.of_readings(at, values, 10.0, float(end))
    known = ~np.isnan(values)
    at, values = at[known], values[known]
    grid = np.arange(0.5, end, 1.0)
    expected = np.full(grid.size, np.nan)
    for k, moment in enumerate(grid):
        before = np.flatnonzero(at <= moment)
        if not before.size:
            continue
        last = before[-1]
        following = at[last + 1] if last + 1 < at.size else np.inf
        # It holds until the next one, or for a step where the next one is late.
        if following - at[last] <= 15 or moment < at[last] + 10:
            expected[k] = values[last]
    assert np.array_equal(found.at(grid), expected, equal_nan=True)
    assert found.total() == pytest.approx((np.nansum(expected), (~np.isnan(expected)).sum()))
    assert sum(until - since for since, until in found.unknown()) == np.isnan(expected).sum()
    low, high = sorted(rnd.choice(np.arange(0, end), 2, replace=False).astype(float))
    inside = (grid >= low) & (grid < high)
    assert found.part(low, high).total().value == pytest.approx(np.nansum(expected[inside]))
    if (~np.isnan(expected)).any():
        assert found.known().end_s == (~np.isnan(expected)).sum()


def test_label_sets_are_added_and_one_that_is_not_read_makes_the_sum_unknown(tmp_path: Path) -> None:
    pulled = Pulled()
    at = np.arange(0.0, 900.0, 10.0)
    pulled.add("replicas_ready", at, np.full(at.size, 2.0), deployment="prefill")
    decode = at[(at < 300) | (at >= 400)]
    pulled.add("replicas_ready", decode, np.full(decode.size, 3.0), deployment="decode")
    # One that is made later, and one that is gone before the end.
    pulled.add("replicas_ready", at[at >= 600], np.full(30, 1.0), deployment="canary")
    pulled.add("replicas_ready", at[at < 200], np.full(20, 1.0), deployment="old")
    found = opened(pulled, tmp_path).track(["replicas_ready"])
    assert found.at([100, 250, 350, 450, 650]).tolist()[:2] == [6, 5]
    assert np.isnan(found.at([350])[0])
    assert found.at([450, 650]).tolist() == [5, 6]
    assert found.unknown() == [(300, 400)]


def test_tracks_add_up() -> None:
    a, b = track((0.0, 1.0), (10.0, 2.0), (20.0, 1.0)), track((5.0, 3.0), (15.0, 4.0))
    assert added([a, b]).at([2, 7, 12, 17]).tolist()[1:] == [4, 5, 6]


def test_the_clock_goes_along_its_pairs() -> None:
    mono = np.array([0, 10**12, 2 * 10**12]) + MONO_NS
    # Our wall clock was set forward by half a second between the pairs.
    wall = START_WALL_NS + np.array([0, 10**12, 2 * 10**12 + 5 * 10**8])
    clock = RunClock(MONO_NS + 10**10, mono, wall, 0.001)
    assert clock.at_s(np.array([START_WALL_NS + 10**10])) == pytest.approx([0.0], abs=1e-9)
    assert clock.at_s(wall) == pytest.approx([-10.0, 990.0, 1990.0], abs=1e-6)
    assert clock.at_s(wall[2:] + 10**9) == pytest.approx([1991.0], abs=1e-6)
    for at_s in (-20.0, 0.0, 700.0, 1500.25, 3000.0):
        assert clock.at_s(np.array([clock.wall_at(at_s)])) == pytest.approx([at_s], abs=1e-6)
