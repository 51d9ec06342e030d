"""When rules come true, in virtual time."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpusize.analysis.read_levels import read_levels
from gpusize.analysis.steadiness import growth_of
from gpusize.measure.monitor import Monitor, Stop, parse_rules
from gpusize.measure.monitor.judge_rules import Second
from gpusize.records.schema import OUTCOMES
from tests.analysis.open_levels import open_setting, run_of
from tests.monitor.seconds import second


def watch(*texts: str, rows: Iterable[dict[str, Any]]) -> Stop | None:
    return Monitor(parse_rules(texts)).feed(rows)


def test_it_takes_the_whole_time() -> None:
    rule = "p99 ttft > 2s for 30s"
    bad = [second(n, ok=195, slow=5) for n in range(100)]
    stop = watch(rule, rows=bad)
    assert stop is not None
    assert (stop.reason, stop.second) == ("slo", 29)
    assert stop.text == f"{rule}: it was 5 s, 5 of 200 in the last 1 s were beyond 2 s or failed, too many for 30 s"
    assert watch(rule, rows=bad[:29]) is None


def test_a_good_second_begins_it_anew() -> None:
    rows = [second(n, ok=195, slow=0 if n == 20 else 5) for n in range(100)]
    stop = watch("p99 ttft > 2s for 30s", rows=rows)
    assert stop is not None
    assert stop.second == 50


def test_two_requests_a_second_are_judged_together() -> None:
    """One of ten is slow: too many for a p99, however they fall into the seconds."""
    rows = [second(n, ok=1, slow=n % 5 == 0, in_flight=2) if n % 5 == 0 else second(n, ok=2) for n in range(200)]
    stop = watch("p99 ttft > 2s for 30s", rows=rows)
    assert stop is not None
    assert 30 <= stop.second <= 60
    rare = [second(n, ok=1, slow=1) if n == 50 else second(n, ok=2) for n in range(200)]
    assert watch("p99 ttft > 2s for 30s", rows=rare) is None, "a single slow request ends no run"


def test_seconds_without_anything_to_do_are_left_out() -> None:
    bursts = [second(n, ok=90, slow=10) if n % 60 < 10 else second(n, in_flight=0) for n in range(400)]
    stop = watch("p99 ttft > 2s for 30s", rows=bursts)
    assert stop is not None
    assert stop.second == 129, "ten seconds of each of three bursts"


def test_a_stall_is_no_silence() -> None:
    rows = [second(n, ok=100) for n in range(10)] + [second(n, in_flight=11, waiting=3) for n in range(10, 100)]
    stop = watch("p99 ttft > 2s for 30s", rows=rows)
    assert stop is not None
    assert (stop.second, stop.reason) == (39, "slo")
    assert "nothing has ended for 30 s, with 11 requests in flight" in stop.text
    late = watch("p99 ttft > 45s for 30s", rows=rows)
    assert late is not None
    assert late.second == 54, "not before those in flight must have broken the bound"
    assert watch("errors > 5% for 10s", "p99 lateness > 1ms for 10s", rows=rows) is None


def test_a_stall_goes_on_from_what_was_broken() -> None:
    rows = [second(n, ok=50, slow=50) for n in range(10)] + [second(n) for n in range(10, 100)]
    stop = watch("p99 ttft > 2s for 30s", rows=rows)
    assert stop is not None
    assert stop.second == 29


def test_errors_name_their_kinds() -> None:
    rows = [second(n, ok=80, timeout=15, http_error=5) for n in range(100)]
    stop = watch("errors > 5% for 10s", rows=rows)
    assert stop == Stop(
        "errors",
        9,
        "errors > 5% for 10s: 20 of 100 in the last 1 s failed (15 timeout, 5 http_error), too many for 10 s",
    )
    assert watch("errors > 20% for 10s", rows=rows) is None
    shed = watch("shed > 1% for 3s", rows=[second(n, ok=9, shed=1) for n in range(100)])
    assert shed is not None
    assert "ended as shed" in shed.text


def test_so_many_failed_that_there_is_no_percentile() -> None:
    stop = watch("p95 ttft > 2s for 2s", rows=[second(n, ok=80, timeout=20) for n in range(3)])
    assert stop is not None
    assert "beyond any time, so many failed" in stop.text


def test_the_first_reason_stays() -> None:
    monitor = Monitor(parse_rules(["errors > 5% for 2s", "p99 ttft > 1s for 9s"]))
    first = monitor.feed([second(n, timeout=9) for n in range(5)])
    assert first is not None
    assert first.second == 1
    assert monitor.feed([second(n, ok=1) for n in range(5, 50)]) is first


def test_saturation_is_found_and_a_busy_target_is_not() -> None:
    grows = [second(n, ok=50, due=100, in_flight=50 * n) for n in range(60)]
    stop = watch("saturation", rows=grows)
    assert stop is not None
    assert (stop.reason, stop.second) == ("saturation", 29)
    assert "100/s were offered, 50/s were answered" in stop.text
    assert watch("saturation", rows=[second(n, ok=100, in_flight=500) for n in range(300)]) is None


@pytest.mark.parametrize("outcome", OUTCOMES[1:])
def test_a_run_is_ended_as_saturated_by_what_its_stored_levels_are_called_that_by(tmp_path: Path, outcome: str) -> None:
    """Half of the requests end in another way than ok: whether those count as answered is one rule."""
    other: dict[str, Any] = {outcome: 50}
    rows = [second(n, ok=50, due=100, in_flight=10, **other) for n in range(60)]
    due = np.arange(6000) / 100
    codes = np.where(np.arange(6000) % 2, OUTCOMES.index(outcome), 0).tolist()
    place = run_of(tmp_path / "r", due, due + 0.1, open_setting(100.0, 60, "constant"), 60, outcome=codes)
    [stored] = read_levels(place)
    assert (watch("saturation", rows=rows) is not None) is (growth_of(stored).status == "growing")


def test_the_detector_gets_the_time_that_the_rule_names() -> None:
    asked: list[int] = []

    def saturated(rows: Any) -> None:
        asked.append(len(rows))

    Monitor(parse_rules(["saturation for 20s"]), saturated=saturated).feed(second(n, ok=1) for n in range(31))
    assert asked == [20, 20, 20]


def test_a_day_second_by_second() -> None:
    """24 h in virtual time: a fault of 29 s each hour is borne, one of 30 s ends the run."""
    day = 86_400

    def rows() -> Iterable[Second]:
        for n in range(day):
            faulty = n % 3600 < 29 or day - 30 <= n
            yield second(n, ok=180 if faulty else 200, slow=20 if faulty else 0)

    monitor = Monitor(parse_rules(["p99 ttft > 2s for 30s", "errors > 5% for 10s", "p95 runtime > 10s for 1h"]))
    stop = monitor.feed(rows())
    assert stop is not None
    assert stop.second == day - 1
    assert all(len(watch.window) <= 1 for watch in monitor._watches), "what is kept does not grow with the time"


@pytest.mark.parametrize("rate", [0.1, 1, 10])
def test_memory_is_bounded_by_the_rule(rate: float) -> None:
    monitor = Monitor(parse_rules(["p99.9 ttft > 2s for 2m"]))
    for n in range(2000):
        monitor.feed([second(n, ok=int((n + 1) * rate) - int(n * rate))])
    [watched] = monitor._watches
    assert 0 < len(watched.window) <= 120
    assert watched.seen.judged == sum(seen.judged for seen, _ in watched.window)
