"""Rates that another tool sent for some seconds: whether the target kept up is judged as its known capacity says."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpusize
from gpusize.analysis.slo import Slo
from gpusize.analysis.throughput import only_in_flight, process_of
from gpusize.estimate.level_quality import LevelFindings
from gpusize.estimate.measured_bounds import MeasuredBounds
from gpusize.estimate.methods import Question, estimate
from gpusize.estimate.slo_limit import slo_limit
from gpusize.report.figures.timeline import timeline
from gpusize.studies.imports.request_rows import RequestLevel, Told
from gpusize.studies.imports.run_folder import run_of, write_run
from tests.analysis.open_levels import arrivals, served

FIXTURES = Path(__file__).parents[1] / "fixtures" / "guidellm"
WALL = 1_795_172_678_070_459_821
SERVERS, SERVICE_S = 8, 0.4
CAPACITY = SERVERS / SERVICE_S
LOOSE = Slo.parse("p50 runtime <= 100s")
"""Only whether the target keeps up decides."""


def sent(rate: float, seconds: float, *, seed: int, failing: float = 0.0, process: str = "constant") -> RequestLevel:
    """A tool that begins with an idle target of eight servers and cuts off what is under way at its end."""
    rng = np.random.default_rng(seed)
    due_s = arrivals(process, rate, seconds, seed=seed)
    end_s = served(due_s, SERVICE_S * rng.lognormal(-0.18, 0.6, due_s.size), ((0.0, SERVERS),))
    failures = np.floor(np.arange(1, due_s.size + 1) * failing) > np.floor(np.arange(due_s.size) * failing)
    outcome = np.where(failures, "http_error", "ok")
    outcome = np.where(end_s > seconds, "cancelled", outcome)
    stamps = {"due_ns": due_s, "sent_ns": due_s, "end_ns": np.minimum(end_s, seconds)}
    frame = pl.DataFrame(
        {
            **{name: (values * 1e9).astype(np.int64) + WALL for name, values in stamps.items()},
            "outcome": outcome.tolist(),
            "error": ["broken" if each == "http_error" else None for each in outcome],
        }
    ).with_columns(end_ns=pl.when(pl.col("outcome") != "cancelled").then("end_ns"))
    return RequestLevel({"kind": "open", "rate": rate, "process": process}, [frame], "rows.json")


def run(out: Path, *levels: RequestLevel) -> gpusize.Result:
    about = run_of("other-1", levels, {"tool": "other", "warnings": []}, api="other", gpus=1)
    return gpusize.open_run(write_run(out, about, levels))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.2, 0.85), st.floats(12, 40), st.sampled_from(["constant", "poisson"]))
def test_what_is_in_flight_at_the_end_is_no_backlog(seed: int, part: float, seconds: float, process: str) -> None:
    """A target that has room keeps up, however short the level and however many requests its end cut off."""
    with TemporaryDirectory() as folder:
        [level] = run(Path(folder), sent(part * CAPACITY, seconds, seed=seed, process=process)).levels
        assert only_in_flight(level)
        assert slo_limit([level], LOOSE).kind == "above"


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(1.3, 3.0), st.floats(12, 40))
def test_a_queue_that_grows_is_one(seed: int, part: float, seconds: float) -> None:
    with TemporaryDirectory() as folder:
        [level] = run(Path(folder), sent(part * CAPACITY, seconds, seed=seed)).levels
        assert not only_in_flight(level)
        assert slo_limit([level], LOOSE).kind == "below"


@pytest.mark.parametrize("failing, kept", [(0.0, True), (0.06, True), (0.3, False)])
def test_requests_that_an_slo_lets_fail_are_no_backlog(tmp_path: Path, failing: float, kept: bool) -> None:
    """Of requests that the SLO lets fail no answer comes: six of a hundred are fewer than one of ten."""
    levels = run(tmp_path, *(sent(rate, 60, seed=4, failing=failing) for rate in (6.0, 12.0))).levels
    slo = Slo.parse("p90 runtime <= 3s")
    assert [level.met(slo) for level in levels] == [kept, kept]
    assert slo_limit(levels, slo).kind == ("above" if kept else "below")
    [answer] = estimate(levels, Question(0, (slo,), rate=10.0, process="constant"), "auto")
    assert answer.gpus == (1 if kept else None)
    # Of our own levels, which do not begin with an idle target, likewise.
    ours = [replace(level, meta={key: v for key, v in level.meta.items() if key != "due_known"}) for level in levels]
    assert slo_limit(ours, slo).kind == ("above" if kept else "below")


def test_what_a_tool_sent_is_the_load_and_not_what_it_was_asked_for(tmp_path: Path) -> None:
    """perf_analyzer sends 8 requests/s where it is asked for a Poisson rate of 10."""
    asked = [(10.0, 8.0), (15.0, 12.0), (25.0, 20.0), (35.0, 28.0)]
    levels = [replace(sent(rate, 60, seed=4), setting={"kind": "open", "rate": of}) for of, rate in asked]
    found = slo_limit(run(tmp_path, *levels).levels, Slo.parse("p95 runtime <= 3s"))
    assert found.kind == "found"
    assert found.at == pytest.approx(CAPACITY, rel=0.02)


def test_a_smallest_level_that_misses_by_chance_is_measured_again(tmp_path: Path) -> None:
    """Of 48 requests six are late, where five may be: that says little, and fewer per second would mend nothing."""
    levels = run(tmp_path, sent(4.0, 12, seed=4), sent(8.0, 12, seed=5)).levels
    bounds = (Slo.parse(f"p90 runtime <= {ms}ms") for ms in range(1500, 300, -5))
    slo = next(slo for slo in bounds if all(level.met(slo) is False for level in levels))
    assert slo_limit(levels, slo).by_chance
    [answer] = estimate(levels, Question(0, (slo,), rate=10.0, process="constant"), "auto")
    assert answer.gpus is None
    assert "4 requests/s, its smallest level, misses the SLO by no more than chance allows" in str(answer.reason)
    assert "measure 4 for longer" in str(answer.reason)


@pytest.mark.parametrize("name, load", [("concurrent", {"users": 30}), ("constant", {"users": 0, "rate": 20.0})])
def test_benchmarks_for_a_time_have_their_requests(tmp_path: Path, name: str, load: dict) -> None:
    """GuideLLM cuts off what is in flight at the end, and may count one request fewer than it lists."""
    result = gpusize.read(FIXTURES / f"{name}_for_seconds.json", tmp_path, gpus=1)
    assert result.notes == []
    [level] = result.levels
    outcomes = level.outcomes()
    assert outcomes["cancelled"] == (6 if name == "concurrent" else 5)
    [row] = result.summary.iter_rows(named=True)
    assert row["delivered"] is True
    assert "little" not in row["flags"]
    assert not [alert for alert in row["alerts"] if "thought" in alert]
    assert slo_limit([level], LOOSE).kind == "above"


def test_what_was_cut_off_is_in_flight_no_longer_than_its_level(tmp_path: Path) -> None:
    levels = run(tmp_path, sent(30.0, 20, seed=4), sent(5.0, 20, seed=5)).levels
    assert levels[0].outcomes()["cancelled"] > 100
    made = timeline(levels, {})
    assert made is not None
    assert made.in_flight.max() > 100
    assert made.in_flight[-1] <= SERVERS


@pytest.mark.parametrize(
    "came, asked, kept, missed",
    [
        ("constant", "constant", True, True),
        ("poisson", "poisson", True, True),
        # More even than what is asked for: kept says nothing, missed does.
        ("constant", "poisson", False, True),
        ("poisson", "constant", True, False),
        (None, "poisson", False, False),
        (None, "constant", True, False),
    ],
)
def test_rates_are_evidence_for_those_that_come_no_more_and_no_less_evenly(
    tmp_path: Path, came: str | None, asked: str, kept: bool, missed: bool
) -> None:
    few, many = (sent(rate, 60, seed=4) for rate in (6.0, 30.0))
    setting = {} if came is None else {"process": came}
    levels = [replace(each, setting={"kind": "open", "rate": each.setting["rate"], **setting}) for each in (few, many)]
    slo = Slo.parse("p90 runtime <= 3s")
    bounds = MeasuredBounds(run(tmp_path, *levels).levels, LevelFindings())
    found = bounds.brackets(Question(0, (slo,), rate=10.0, process=asked), [slo])
    assert [(each.kept > 0, each.missed < math.inf) for each in found] == ([(kept, missed)] if kept or missed else [])


def test_what_came_evenly_says_how_many_are_enough_for_what_comes_so(tmp_path: Path) -> None:
    levels = run(tmp_path, sent(6.0, 60, seed=4), sent(12.0, 60, seed=4)).levels
    slo = Slo.parse("p90 runtime <= 3s")
    [at_random], [evenly] = (
        estimate(levels, Question(0, (slo,), rate=30.0, process=process), "auto") for process in ("poisson", "constant")
    )
    assert (at_random.gpus, at_random.gpus_high) == (None, None)
    said = "at most 3 GPUs are needed, if capacity grows in proportion from 12 requests/s on 1 GPU"
    assert f"Of requests that come evenly (--process constant) {said}" in str(at_random.reason)
    assert (evenly.gpus, evenly.gpus_high) == (None, 3)
    assert f"So {said}" in str(evenly.reason)


def test_how_requests_came_is_known_of_guidellm_and_of_ours(tmp_path: Path) -> None:
    [level] = gpusize.read(FIXTURES / "constant_for_seconds.json", tmp_path, gpus=1).levels
    assert process_of(level) == "constant"
    [other] = run(tmp_path, replace(sent(5.0, 20, seed=1), setting={"kind": "open", "rate": 5.0})).levels
    assert process_of(other) is None
    ours = replace(other, meta={key: value for key, value in other.meta.items() if key != "due_known"})
    assert process_of(ours) == "poisson"


def test_a_burst_is_no_closed_loop(tmp_path: Path) -> None:
    """GuideLLM's sweep begins with one request at a time, and then with all that it has at once."""
    due_s = np.zeros(60)
    end_s = served(due_s, SERVICE_S, ((0.0, SERVERS),))
    stamps = {name: (at * 1e9).astype(np.int64) + WALL for name, at in (("sent_ns", due_s), ("end_ns", end_s))}
    told = Told(flags=("burst",))
    burst = RequestLevel({"kind": "closed", "concurrency": 60}, [pl.DataFrame(stamps)], "rows.json", told)
    levels = run(tmp_path, burst).levels
    [answer] = estimate(levels, Question(4, (Slo.parse("p95 service <= 3s"),)), "auto")
    assert answer.gpus is None
    assert "all its requests were sent at once" in str(answer.reason)
