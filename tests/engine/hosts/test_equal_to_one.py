"""Two and three agents send what one machine sends: every stream, number, row and due time, once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benches.client import target_spec
from gpusize import _core
from gpusize.engine.session import Engine
from gpusize.workload.load import Load
from tests.engine.hosts.hosting import hosts, kept, run_levels, schedule_of

ROWS = [[f"row {k}".encode()] for k in range(7)]
SEGMENTS = [{"field": 0}]


@pytest.fixture
def server() -> Iterator[Any]:
    found = _core.NullServer("127.0.0.1", 0, threads=1)
    yield found
    found.stop()


LOADS = {
    "poisson": Load(rates=[400.0], duration_s=1.5, connections=8, seed=3),
    "by count": Load(rates=[500.0], count=301, connections=8, process="constant"),
    "stages": Load(stages="200/s@700ms, 200/s..600/s@600ms, 300/s@500ms", connections=8, process="constant"),
    "closed by count": Load(concurrencies=[5], count=203),
    "fewer users than workers": Load(concurrencies=[2], count=40),
    "passes": Load(concurrencies=[1, 4], passes=3, order="shuffled"),
}


@pytest.mark.parametrize("name", LOADS)
@pytest.mark.parametrize("count", [2, 3])
def test_the_union_is_the_single_runs(name: str, count: int, server: Any, tmp_path: Path) -> None:
    load, target = LOADS[name], target_spec(server.port)
    with Engine(target, SEGMENTS, ROWS, workers=1) as one:
        alone = run_levels(one, load, len(ROWS), tmp_path / "alone")
    before = server.requests
    with hosts(tmp_path, count) as (head, started), head.engine(target, SEGMENTS, ROWS, workers=1) as many:
        together = run_levels(many, load, len(ROWS), tmp_path / "together")
    assert [code for code, _ in started.ended()] == [0] * count
    assert started.left_behind() == []
    assert sum(each["sent"] + each["asked_again"] for each in together) == server.requests - before
    for visit, (mine, theirs) in enumerate(zip(together, alone, strict=True)):
        rows, expected = kept(tmp_path / "together", mine, visit), kept(tmp_path / "alone", theirs, visit)
        # On a busy machine pings wait, and clocks are known less well; that is said, and changes nothing here.
        assert [alert for alert in mine["hosts_alerts"] if "the clock of" not in alert] == []
        assert (mine["due"], mine["sent"], mine["rows"]) == (theirs["due"], theirs["sent"], theirs["rows"])
        assert mine["outcomes"] == theirs["outcomes"] == {"ok": mine["rows"]}
        assert mine["stop_reason"] == theirs["stop_reason"]
        if "open" in load.plans(len(ROWS))[visit]["load"]:
            assert schedule_of(rows).equals(schedule_of(expected))
        else:
            # Answers decide when the next request of a user is due.
            assert schedule_of(rows).drop("due_ns").equals(schedule_of(expected).drop("due_ns"))
        assert rows.select("host", "worker").unique().height <= count


def test_a_stage_begins_where_the_one_before_ends(server: Any, tmp_path: Path) -> None:
    load = LOADS["stages"]
    with hosts(tmp_path, 2) as (head, _), head.engine(target_spec(server.port), SEGMENTS, ROWS, workers=1) as many:
        outcomes = run_levels(many, load, len(ROWS), tmp_path / "levels")
    for before, after in itertools.pairwise(outcomes):
        # The end of the one was told when the least was known of a host's clock, the start of the other a little later.
        known_to = sum(
            max(max(host["uncertainty_ns"], host["start_uncertainty_ns"]) for host in stage["hosts"])
            for stage in (before, after)
        )
        assert abs(after["start_ns"] - before["close_ns"]) <= known_to
        for host in after["hosts"]:
            assert abs(host["start_error_ns"]) <= host["uncertainty_ns"] + host["start_uncertainty_ns"]


def test_times_of_the_hosts_own_clocks_come_back_by_the_shift(server: Any, tmp_path: Path) -> None:
    load = LOADS["poisson"]
    with hosts(tmp_path, 2) as (head, _), head.engine(target_spec(server.port), SEGMENTS, ROWS, workers=1) as many:
        (outcome,) = run_levels(many, load, len(ROWS), tmp_path / "levels")
    rows = kept(tmp_path / "levels", outcome, 0)
    for host in outcome["hosts"]:
        mine = rows.filter(rows["host"] == host["host"])
        assert mine.height == host["rows"] == host["due"]
        assert set(mine["worker"].to_list()) == {host["first_worker"]}
        # Both are this machine's clock, so the shift is what the start was off.
        assert host["shift_ns"] == -host["start_error_ns"] - host["offset_ns"]
        assert abs(host["shift_ns"]) <= host["uncertainty_ns"] + host["start_uncertainty_ns"]
