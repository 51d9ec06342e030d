"""A judged run against the simulator's own log and the raw requests, over random loads, scrapes and clocks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gpusize.api.judged_autoscaler import judge_autoscaler
from gpusize.base.errors import StoreError, UsageError
from gpusize.estimate.plan.autoscale.judge.needed import Needed
from tests.autoscale.judged import Truth, level, records, run_of, scraped, simulated, stages

HOUR = 3600.0
EVERY = 15.0


def drawn(seed: int) -> tuple[list[tuple[float, float]], Truth, np.ndarray, np.ndarray]:
    """Stages of random lengths and rates, their truth, outcomes and tokens."""
    rnd = np.random.default_rng(seed)
    rates = [(float(rnd.integers(120, 400)), float(rnd.uniform(0.3, 7))) for _ in range(rnd.integers(2, 5))]
    truth = simulated(
        rates, seed=seed, start_delay_s=float(rnd.integers(5, 90)), target_milli=int(rnd.integers(2, 6)) * 1000
    )
    outcome = np.where(rnd.random(truth.due_s.size) < 0.03, 1, 0)
    return rates, truth, outcome, rnd.integers(1, 300, truth.due_s.size)


@pytest.mark.parametrize("seed", range(12))
def test_figures_are_those_of_the_log_and_the_raw_requests(seed: int, tmp_path: Path) -> None:
    rnd = np.random.default_rng(100 + seed)
    rates, truth, outcome, tokens = drawn(seed)
    gpus, bound, window = int(rnd.integers(1, 9)), float(rnd.uniform(0.55, 2.5)), float(rnd.integers(20, 90))
    offset = float(rnd.choice([0.0, 7.5, -3600.0, 0.004]))
    run = run_of(tmp_path, stages(rates, truth, outcome=outcome, tokens_out=tokens))
    scraped(truth, first_s=-float(rnd.uniform(15, 60)), offset_s=offset).write(run / "series")
    slo = f"p95 runtime <= {bound:.3f}s"
    found = judge_autoscaler(run, None, slo, gpus_per_replica=gpus, window_s=window, gpu_hour_price="2 EUR")
    end = truth.end
    assert found.duration_s == pytest.approx(end, abs=1e-6)

    # Replicas: second by second from the simulator's log; a reading is at most one scrape late.
    seconds = np.arange(0, end, 0.1)
    for hours, course in ((found.paid.ready_gpu_hours, truth.ready), (found.paid.gpu_hours, truth.asked)):
        by_log = course(seconds)
        late_s = np.abs(np.diff(by_log)).sum() * EVERY
        assert hours == pytest.approx(by_log.sum() * 0.1 * gpus / HOUR, abs=(late_s + 1) * gpus / HOUR)
    assert found.paid.cost == pytest.approx(2 * found.paid.gpu_hours)
    assert found.paid.known_s == pytest.approx(end, abs=1e-5)

    # Requests, one by one.
    kept = (outcome == 0) & (np.rint((truth.end_s - truth.due_s) * 1e9) <= float(f"{bound:.3f}") * 1e9)
    assert found.whole.shares[0] == pytest.approx(kept.mean())
    assert found.keeps == (kept.mean() >= 0.95)
    assert found.paid.requests == (outcome == 0).sum()
    assert found.paid.tokens == tokens[outcome == 0].sum()
    assert found.paid.within == kept.sum()
    shares = found.windows.shares[0]
    for k, (since, until) in enumerate(zip(found.edges_s[:-1], found.edges_s[1:], strict=True)):
        inside = (truth.due_s >= since - 1e-9) & (truth.due_s < until - 1e-9)
        if inside.any():
            assert shares[k] == pytest.approx(kept[inside].mean())
        else:
            assert np.isnan(shares[k])
    at = 0.0
    for stage, (length, _) in zip(found.stages, rates, strict=True):
        inside = (truth.due_s >= at) & (truth.due_s < at + length)
        assert stage.requests == inside.sum()
        assert stage.shares[0] == pytest.approx(kept[inside].mean())
        at += length


@pytest.mark.parametrize("seed", range(6))
def test_readings_are_added_up_to_the_second(seed: int, tmp_path: Path) -> None:
    """What the server was told, by itself: each reading holds until the next one."""
    rates, truth, *_ = drawn(seed)
    run = run_of(tmp_path, stages(rates, truth))
    scraped(truth, first_s=-20.0).write(run / "series")
    found = judge_autoscaler(run, None, "p95 runtime <= 1s")
    at = np.arange(-20.0, truth.end + 60, EVERY)
    seconds = np.arange(0.005, truth.end, 0.01)
    told = truth.ready(np.maximum(at, 0))[np.searchsorted(at, seconds, "right") - 1]
    assert found.paid.ready_gpu_hours == pytest.approx(told.sum() * 0.01 / HOUR, abs=2e-5)
    assert found.scaling.peak == told.max()
    assert found.scaling.mean == pytest.approx(told.mean(), abs=1e-3)
    steps = np.diff(told)
    assert (found.scaling.ups, found.scaling.downs) == ((steps > 0).sum(), (steps < 0).sum())


@pytest.mark.parametrize("offset_s", [0.0, 12.5, -400.0])
def test_the_servers_clock_is_taken_off(offset_s: float, tmp_path: Path) -> None:
    """A server that is ahead of us tells later times: the same run, whatever its clock says."""
    rates = [(300.0, 1.0), (300.0, 7.0)]
    truth = simulated(rates)
    run = run_of(tmp_path, stages(rates, truth))
    # No reading is late but by the clock: the steps are read when they happen, every second.
    scraped(truth, every_s=1.0, first_s=-5.0, offset_s=offset_s).write(run / "series")
    found = judge_autoscaler(run, None, "p95 runtime <= 1s")
    assert found.offset_s == offset_s
    ups = [at for (at, count), (_, before) in zip(truth.steps[1:], truth.steps, strict=False) if count > before]
    up = next(at for at in ups if at > 300)
    asked = found.responses[1].desired
    assert asked.latest_s == pytest.approx(up - 300, abs=1.0)
    assert asked.latest_s - asked.earliest_s == pytest.approx(1.0, abs=1e-6)
    if offset_s:
        about = json.loads((run / "series" / "series.json").read_text())
        about["clock"]["offset_ns"] *= -1
        (run / "series" / "series.json").write_text(json.dumps(about))
        wrong = judge_autoscaler(run, None, "p95 runtime <= 1s").responses[1].desired
        assert wrong is None or abs(wrong.latest_s - asked.latest_s) > 10


@pytest.mark.parametrize("seed", range(8))
def test_gaps_are_cut_out_and_told(seed: int, tmp_path: Path) -> None:
    rnd = np.random.default_rng(seed)
    rates, truth, outcome, _ = drawn(seed)
    run = run_of(tmp_path, stages(rates, truth, outcome=outcome))
    pulled = scraped(truth, first_s=-15.0)
    since = EVERY * rnd.integers(2, 6)
    until = since + EVERY * rnd.integers(3, 8)
    # The reading at ``since`` is the last before the gap, the one at ``until`` the first after it.
    pulled.rows = [row for row in pulled.rows if not since < row[0] < until]
    pulled.write(run / "series")
    found = judge_autoscaler(run, None, "p95 runtime <= 1s")
    gap = (since + EVERY, until)
    [span] = found.ready.unknown()
    assert span == pytest.approx(gap, abs=1e-6)
    assert found.paid.known_s == pytest.approx(truth.end - (until - since - EVERY), abs=1e-5)
    at = np.arange(-15.0, truth.end + 60, EVERY)
    seconds = np.arange(0.05, truth.end, 0.1)
    seconds = seconds[(seconds < gap[0]) | (seconds >= gap[1])]
    told = truth.ready(np.maximum(at, 0))[np.searchsorted(at, seconds, "right") - 1]
    assert found.paid.ready_gpu_hours == pytest.approx(told.sum() * 0.1 / HOUR, rel=2e-3)
    # What was answered in the gap is in no figure per GPU-hour.
    ok = truth.end_s[outcome == 0]
    assert found.paid.requests == ((ok < gap[0]) | (ok >= gap[1])).sum()
    [fact] = [each.facts for each in found.findings if each.code == "gap"]
    assert fact["names"] == ["replicas_desired", "replicas", "replicas_ready"]
    assert fact["unknown_s"] == pytest.approx(gap[1] - gap[0], abs=1e-6)


def test_a_stage_of_which_nothing_is_known_has_no_figures(tmp_path: Path) -> None:
    """The gap ends a moment after the next stage begins, as clocks and scrapes have it, or before this one ends."""
    rates = [(120.0, 2.0), (60.0, 2.0), (120.0, 2.0)]
    truth = simulated(rates, seed=3)
    run = run_of(tmp_path, stages(rates, truth))
    for late_s in (1e-9, 0.5, -0.5):
        pulled = scraped(truth, first_s=-15.0)
        pulled.rows = [(row[0] + late_s, *row[1:]) for row in pulled.rows if not 105 < row[0] < 180]
        pulled.write(run / "series")
        before, gap, after = judge_autoscaler(run, None, "p95 runtime <= 1s").stages
        assert (gap.ready, gap.gpu_hours) == (None, None)
        assert None not in (before.ready, before.gpu_hours, after.ready, after.gpu_hours)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("holes", [False, True])
def test_too_few_and_too_many_second_by_second(seed: int, holes: bool, tmp_path: Path) -> None:
    rnd = np.random.default_rng(seed)
    rates, truth, *_ = drawn(seed)
    run = run_of(tmp_path, stages(rates, truth))
    pulled = scraped(truth, every_s=1.0, first_s=-2.0)
    if holes:
        pulled.rows = [row for row in pulled.rows if not 50 < row[0] < 90]
    pulled.write(run / "series")
    edges = np.append(np.arange(0, truth.end - 30, 60.0), truth.end)
    wanted = rnd.integers(1, 7, edges.size - 1)
    from gpusize.analysis.slo import as_slos
    from gpusize.estimate.plan.autoscale.judge.judge import judge_run
    from gpusize.estimate.plan.autoscale.judge.types import Terms
    from gpusize.result import open_run

    handed: list[tuple[np.ndarray, float, float]] = []

    def need(due_s: np.ndarray, end_s: float, window_s: float) -> Needed:
        handed.append((due_s, end_s, window_s))
        return Needed(edges, wanted, np.arange(1.0, 9.0))

    levels = open_run(run).levels
    found = judge_run(run, levels, run / "series", as_slos("p95 runtime <= 1s"), Terms(4), need)
    assert handed[0][0] == pytest.approx(truth.due_s, abs=1e-6)
    assert list(handed[0][1:]) == pytest.approx([truth.end, 60.0])
    middles = np.arange(0.05, truth.end, 0.1)
    if holes:
        middles = middles[(middles < 51) | (middles >= 90)]
    there = truth.ready(np.floor(middles))
    needed = wanted[np.searchsorted(edges, middles, "right") - 1]
    elastic = found.elasticity
    assert elastic.under_s == pytest.approx(np.maximum(needed - there, 0).sum() * 0.1, abs=2)
    assert elastic.over_s == pytest.approx(np.maximum(there - needed, 0).sum() * 0.1, abs=2)
    assert elastic.under_share == pytest.approx((there < needed).mean(), abs=3e-3)
    assert elastic.under == pytest.approx((np.maximum(needed - there, 0) / needed).mean(), abs=3e-3)
    told = found.to_json()["elasticity"]
    assert told["under_gpu_s"] == pytest.approx(4 * elastic.under_s)
    # A step up to r requests/s needs ceil(r) replicas here: 1, 2, ... carry 1, 2, ... requests/s.
    for response, (_, rate) in zip(found.responses[1:], rates[1:], strict=False):
        if response.step.up and response.enough is not None:
            at = response.step.at_s + response.enough.latest_s
            assert truth.ready(np.array([np.floor(at)]))[0] >= np.ceil(rate)


def test_windows_without_requests_are_no_hundred_per_cent(tmp_path: Path) -> None:
    due = np.array([1.0, 2.0, 3.0, 250.0])
    rows = records(due, due + 0.5, outcome=np.array([0, 0, 1, 0]))
    run = run_of(tmp_path, [level({"kind": "open", "rate": 1.0, "process": "poisson"}, rows, 0, 300)])
    scraped(Truth(due, due, [(0.0, 1)], 0.0, 300.0)).write(run / "series")
    found = judge_autoscaler(run, None, "p50 runtime <= 1s")
    assert found.windows.shares[0] == pytest.approx([2 / 3, np.nan, np.nan, np.nan, 1.0], nan_ok=True)
    assert found.to_json()["windows"]["shares"][0][1] is None
    assert found.below == (0, 2)
    assert judge_autoscaler(run, None, "p95 runtime <= 1s").below == (1, 2)


def test_several_slos_are_judged_each_and_at_once(tmp_path: Path) -> None:
    due = np.arange(100.0)
    ends = due + np.where(due % 10 == 0, 3.0, 0.5)
    firsts = due + np.where(due % 4 == 0, 0.4, 0.1)
    run = run_of(tmp_path, [level({"kind": "open", "rate": 1.0}, records(due, ends, first_s=firsts), 0, 100)])
    scraped(Truth(due, ends, [(0.0, 1)], 0.0, 100.0)).write(run / "series")
    found = judge_autoscaler(run, None, ["p90 runtime <= 1s", "p75 ttft <= 200ms"])
    slow, late = due % 10 == 0, due % 4 == 0
    assert found.whole.shares == pytest.approx((1 - slow.mean(), 1 - late.mean(), 1 - (slow | late).mean()))
    assert found.keeps
    assert found.paid.within == (~(slow | late)).sum()


def test_what_cannot_be_judged_is_refused(tmp_path: Path) -> None:
    due = np.arange(10.0)
    run = run_of(tmp_path, [level({"kind": "open", "rate": 1.0}, records(due, due + 1), 0, 10)])
    with pytest.raises(StoreError, match="not a folder of pulled series"):
        judge_autoscaler(run, None, "p95 runtime <= 1s")
    scraped(Truth(due, due, [(0.0, 1)], 0.0, 10.0)).write(run / "series")
    for slo, said in (
        ("mean runtime <= 1s", "request by request"),
        ("p95 ttft <= 1s", "no request of the run"),
    ):
        with pytest.raises(UsageError, match=said):
            judge_autoscaler(run, None, slo)
    with pytest.raises(UsageError, match="no SLO"):
        judge_autoscaler(run)
    for more in ({"gpus_per_replica": 0}, {"window_s": 0.5}):
        with pytest.raises(UsageError):
            judge_autoscaler(run, None, "p95 runtime <= 1s", **more)
    (run / "clocks.parquet").unlink()
    with pytest.raises(StoreError, match="time of day"):
        judge_autoscaler(run, None, "p95 runtime <= 1s")


def test_damaged_series_are_named(tmp_path: Path) -> None:
    due = np.arange(10.0)
    run = run_of(tmp_path, [level({"kind": "open", "rate": 1.0}, records(due, due + 1), 0, 10)])
    folder = scraped(Truth(due, due, [(0.0, 1)], 0.0, 10.0)).write(run / "series")
    (folder / "series.parquet" / "part-000001.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(StoreError, match="unreadable series"):
        judge_autoscaler(run, None, "p95 runtime <= 1s")
    (folder / "series.json").write_text("{")
    with pytest.raises(StoreError, match="broken JSON"):
        judge_autoscaler(run, None, "p95 runtime <= 1s")
