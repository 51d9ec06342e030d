"""Four machines over links of 1 and 20 ms whose clocks are off by 200 ms either way: they begin together, as one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benches.client import target_spec
from gpusize import _core
from gpusize.engine.hosts.head import Head, HostsOptions
from gpusize.engine.session import Engine
from gpusize.workload.load import Load
from tests.engine.hosts.clocks_apart import can_move_clocks, in_time_of_its_own, slow_link
from tests.engine.hosts.hosting import LOOPBACK, agents, kept, run_levels, schedule_of

WAYS_MS = [1, 1, 20, 20]
OFFSETS_MS = [200, -200, 210, -210]
ROWS = [[f"row {k}".encode()] for k in range(7)]
SEGMENTS = [{"field": 0}]


@pytest.fixture
def server() -> Iterator[Any]:
    found = _core.NullServer("127.0.0.1", 0, threads=1)
    yield found
    found.stop()


@pytest.mark.skipif(not can_move_clocks(), reason="time namespaces need privileges")
def test_four_machines_apart_send_as_one(server: Any, tmp_path: Path) -> None:
    load = Load(stages="200/s@1500ms, 200/s..600/s@1s, 300/s@1s", connections=16, process="constant")
    target = target_spec(server.port)
    with Engine(target, SEGMENTS, ROWS, workers=1) as one:
        alone = run_levels(one, load, len(ROWS), tmp_path / "alone")
    before = server.requests
    with contextlib.ExitStack() as stack:
        started = stack.enter_context(agents(tmp_path))
        head = stack.enter_context(Head(HostsOptions(4, LOOPBACK)))
        for way_ms, offset_ms in zip(WAYS_MS, OFFSETS_MS, strict=True):
            place = stack.enter_context(slow_link(head.address, way_ms / 1e3))
            started.start(place, 1, command=in_time_of_its_own(offset_ms * 1_000_000))
        head.gather()
        with head.engine(target, SEGMENTS, ROWS, workers=1) as many:
            together = run_levels(many, load, len(ROWS), tmp_path / "together")
    assert sum(each["sent"] + each["asked_again"] for each in together) == server.requests - before
    for visit, (mine, theirs) in enumerate(zip(together, alone, strict=True)):
        rows, expected = kept(tmp_path / "together", mine, visit), kept(tmp_path / "alone", theirs, visit)
        assert schedule_of(rows).equals(schedule_of(expected))
        truths_ms = []
        for host in mine["hosts"]:
            # What the clocks are off by is known here, and so what each start was off by in truth.
            truth_ms = min(OFFSETS_MS, key=lambda offset_ms: abs(host["offset_ns"] / 1e6 - offset_ms))
            truths_ms.append(truth_ms)
            assert abs(host["offset_ns"] - truth_ms * 1e6) <= host["uncertainty_ns"]
            assert abs(-host["shift_ns"] - truth_ms * 1e6) <= host["start_uncertainty_ns"], host
            print(visit, truth_ms, "ms: began", (-host["shift_ns"] - truth_ms * 1e6) / 1e6, "ms late")
        assert sorted(truths_ms) == sorted(OFFSETS_MS)
        trips_ms = sorted(host["round_trip_ns"] / 1e6 for host in mine["hosts"])
        assert all(trip_ms >= 2 * way_ms for trip_ms, way_ms in zip(trips_ms, WAYS_MS, strict=True))
