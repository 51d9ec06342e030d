"""Alternating turns, and the bars made of them."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from benches.lib.context import Context
from benches.lib.procs import BenchFailed, LineClient, on_core
from benches.lib.results import Report
from benches.lib.turns import Turn, alternate, cpu_rows, two_sided
from benches.sections import grpc
from benches.sections.llama import Seen
from benches.sections.triton import Counters

CORE = min(os.sched_getaffinity(0))


class _Told:
    """A context of which only the report is looked at."""

    def __init__(self) -> None:
        self.report = Report()
        self.pairs = 15


def bar_of(ratios: list[float], bound: float = 0.05) -> Any:
    told = _Told()
    two_sided(cast("Context", told), "error", ratios, bound)
    (bar,) = told.report.bars
    return bar


def test_who_goes_first_alternates() -> None:
    order: list[str] = []

    def turn(name: str) -> str:
        order.append(name)
        return name

    theirs, ours = alternate(3, lambda: turn("theirs"), lambda: turn("ours"), lambda a, b: f"{a} {b}")
    assert order == ["theirs", "ours", "ours", "theirs", "theirs", "ours"]
    assert (theirs, ours) == (["theirs"] * 3, ["ours"] * 3)


def test_cpu_per_request_is_paired() -> None:
    theirs = [Turn(1000, 0.010, 0.1, 0.0), Turn(1000, 0.020, 0.2, 0.0)]
    ours = [Turn(1000, 0.005, 0.1, 0.0), Turn(2000, 0.020, 0.2, 0.0)]
    cpu, rate = cpu_rows("64 x 1", theirs, ours)
    assert [each.value for each in cast("list[Any]", cpu[1:])] == pytest.approx([15.0, 7.5, 0.5])
    assert [each.value for each in cast("list[Any]", rate[1:])] == pytest.approx([7500.0, 10_000.0, 1.5])


@pytest.mark.parametrize("ratio", [0.97, 1.03])
def test_a_ratio_is_bounded_on_both_sides(ratio: float) -> None:
    bar = bar_of([ratio] * 15)
    assert bar.measured.value == pytest.approx(0.03)
    assert bar.measured.hi == pytest.approx(0.03)
    assert bar.ok


def test_an_interval_around_1_counts_by_its_worse_end() -> None:
    bar = bar_of([0.94, 1.0, 1.02])
    assert bar.measured.lo == 0
    assert bar.measured.value == 0
    assert bar.measured.hi == pytest.approx(0.06)
    assert not bar.ok


def test_a_peer_that_could_not_be_had_makes_its_bar_short(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(*_: str) -> str:
        raise BenchFailed("the clients environment has no perf_analyzer: make peers")

    monkeypatch.setattr(grpc, "peer_program", absent)
    told = _Told()
    grpc.against_perf_analyzer(cast("Context", told))
    (bar,) = told.report.bars
    assert math.isnan(bar.measured.hi)
    assert not bar.ok
    said = capsys.readouterr().out
    assert "make peers" in said
    assert "short" in said


def test_what_a_thread_starts_stays_on_its_core() -> None:
    before = os.sched_getaffinity(0)
    program = (
        "import os, sys, json\nfor line in sys.stdin: print(json.dumps(sorted(os.sched_getaffinity(0))), flush=True)"
    )
    with on_core(CORE):
        assert os.sched_getaffinity(0) == {CORE}
    assert os.sched_getaffinity(0) == before
    with LineClient([sys.executable, "-c", program], CORE) as client:
        assert client.ask() == client.ask() == [CORE]


def test_a_program_that_ends_is_no_measurement() -> None:
    with (
        LineClient([sys.executable, "-c", "input()"], CORE) as client,
        pytest.raises(BenchFailed, match="ended early with 0"),
    ):
        client.ask()


def test_itl_is_the_mean_of_answers_means() -> None:
    seen = Seen.of([[0.1, 0.2, 0.3], [0.3, 0.6]])
    assert (seen.ttft_s, seen.itl_s) == pytest.approx((0.2, 0.2))
    assert seen.events == 5


def test_tritons_counters() -> None:
    text = Path(__file__).with_name("triton_stats.json").read_text(encoding="utf-8")
    assert Counters.parse(text) == Counters(60, 3_000_000_000, 1_320_000_000)
