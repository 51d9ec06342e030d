"""One level over several sessions, as over several hosts: it counts like one, starts as one and ends as one."""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import polars as pl
import pytest

from benches.client import level_plan, target_spec
from gpusize import _core
from gpusize.base.errors import UsageError
from gpusize.records.schema import from_arrow
from tests.servers.drive import closed
from tests.servers.scripted import Script, ScriptedServer, Send, answer

Start = Callable[[Script], ScriptedServer]

MS = 1_000_000
AHEAD_NS = 150 * MS
"""From telling a start to it: the machine may be busy."""

ROWS: list[list[bytes]] = [[b"a"], [b"b"], [b"c"], [b"d"], [b"e"]]
MIX = {
    "requests": [{"path": "/", "segments": [], "headers": []}],
    "of_row": [0] * 5,
    "sessions": [1, 1, 2, 1, 2],
}
TURNS = 3
"""Of the longest conversation in ``MIX``."""

HOSTS = (2, 1, 3)
"""Workers of each host."""


def _stream(number: int, process: str, *phases: tuple[int, float, float], **more: Any) -> dict[str, Any]:
    pieces = [{"duration_ns": ms * MS, "from": low, "to": high} for ms, low, high in phases]
    rate = {"phases": pieces, "process": process, "shape": 0.5, "repeat": True}
    return {"id": number, "arrivals": {"rate": rate}, **more}


LOADS: dict[str, dict[str, Any]] = {
    "streams": {
        "streams": [
            _stream(0, "poisson", (100, 300, 300), (50, 0, 800)),
            _stream(3, "gamma", (120, 250, 250), rows=[1, 3], start_ns=40 * MS),
            _stream(7, "constant", (30, 400, 0), (30, 0, 0), count=25),
        ]
    },
    "conversations": {"streams": [_stream(0, "poisson", (100, 250, 500))], "unit": "session"},
    "planned": {"streams": [{"id": 0, "arrivals": "plan"}, {"id": 2, "arrivals": "plan"}]},
}


@contextlib.contextmanager
def _sessions(port: int, *workers: int) -> Iterator[list[_core.Session]]:
    with contextlib.ExitStack() as stack:
        sessions = []
        for count in workers:
            session = _core.Session(json.dumps(target_spec(port)), "[]", ROWS, workers=count, mix=json.dumps(MIX))
            stack.callback(session.close)
            sessions.append(session)
        yield sessions


def _plan(load: Mapping[str, Any], stop: Mapping[str, Any], **changes: Any) -> str:
    return json.dumps(level_plan(dict(load), dict(stop), None, **changes))


def _parts(workers: tuple[int, ...]) -> list[dict[str, int]]:
    return [{"first": sum(workers[:host]), "stride": sum(workers), "host": host} for host, _ in enumerate(workers)]


def _started(levels: list[_core.Level]) -> int:
    """Start held levels at one instant, and say when."""
    for level in levels:
        assert level.prepared(60.0), level.poll()
        assert json.loads(level.poll())["state"] == "held"
    start_ns = _core.monotonic_ns() + AHEAD_NS
    for level in levels:
        level.start_at(start_ns)
    return start_ns


def _finished(level: _core.Level) -> tuple[dict[str, Any], pl.DataFrame]:
    assert level.wait(60.0), f"still running: {level.poll()}"
    batches = level.rows()
    assert batches is not None
    return json.loads(level.outcome()), from_arrow(batches).collect()


def _asked(frames: list[pl.DataFrame], start_ns: int, turns: int = 1) -> bytes:
    """What was due of a schedule, in its order, as bytes; of conversations their beginnings."""
    frame = pl.concat(frames).filter(pl.col("seq") % turns == 0)
    frame = frame.select("stream", "seq", "row", pl.col("due_ns") - start_ns).sort("due_ns", "stream", "seq")
    assert frame.height > 50
    return b"".join(frame[name].to_numpy().tobytes() for name in frame.columns)


@pytest.mark.parametrize("name", LOADS)
def test_hosts_send_together_what_one_session_sends(scripted_server: Start, name: str) -> None:
    server = scripted_server(lambda _: [Send(answer())])
    load = {"open": {"connections": 8, **LOADS[name]}}
    stop = {"duration_ns": 400 * MS}
    arrays: dict[str, bytes] = {}
    if name == "planned":
        due = [k * k * 40_000 for k in range(90)]
        arrays = {
            "due": struct.pack("<90q", *due),
            "rows": struct.pack("<90I", *(k * 7 % 5 for k in range(90))),
            "streams": struct.pack("<90H", *(2 * (k % 3 == 0) for k in range(90))),
        }
    turns = TURNS if name == "conversations" else 1
    with _sessions(server.port, *HOSTS, sum(HOSTS)) as (*hosts, single):
        plans = [_plan(load, stop, order="shuffled", held=True, partition=part) for part in _parts(HOSTS)]
        levels = [session.level(plan, **arrays) for session, plan in zip(hosts, plans, strict=True)]
        start_ns = _started(levels)
        done = [_finished(level) for level in levels]
        alone = _finished(single.level(_plan(load, stop, order="shuffled"), **arrays))
    assert [outcome["start_ns"] for outcome, _ in done] == [start_ns] * len(HOSTS)
    assert [outcome["close_ns"] - start_ns for outcome, _ in done] == [400 * MS] * len(HOSTS)
    assert min(min(frame["due_ns"].to_list()) for _, frame in done) >= start_ns
    together = _asked([frame for _, frame in done], start_ns, turns)
    assert together == _asked([alone[1]], alone[0]["start_ns"], turns)
    for host, ((_, frame), part) in enumerate(zip(done, _parts(HOSTS), strict=True)):
        assert frame["host"].unique().to_list() == [host]
        numbers = range(part["first"], part["first"] + HOSTS[host])
        assert set(frame["worker"].unique()) <= set(numbers)
    # The schedule by itself.
    if name == "streams":
        walked = pl.DataFrame(_core.schedule(_plan(load, stop, order="shuffled"), len(ROWS)))
        walked = walked.select("stream", "seq", "row", "due_ns").sort("due_ns", "stream", "seq")
        assert together == b"".join(walked[column].to_numpy().tobytes() for column in walked.columns)


@pytest.mark.parametrize("users", [2, 4, 7])
def test_a_count_of_a_closed_loop_is_sent_once_over_all_hosts(scripted_server: Start, users: int) -> None:
    server = scripted_server(lambda _: [Send(answer())])
    with _sessions(server.port, *HOSTS) as hosts:
        plans = [_plan(closed(users), {"count": 61}, partition=part) for part in _parts(HOSTS)]
        done = [_finished(session.level(plan)) for session, plan in zip(hosts, plans, strict=True)]
    numbers = pl.concat([frame for _, frame in done])["seq"].sort().to_list()
    assert numbers == list(range(61))
    assert server.connections == users
    assert [outcome["stop_reason"] for outcome, _ in done] == ["count"] * len(HOSTS)


def test_a_host_without_a_user_ends_by_its_time(scripted_server: Start) -> None:
    server = scripted_server(lambda _: [Send(answer())])
    with _sessions(server.port, 1, 1) as hosts:
        plans = [_plan(closed(1), {"duration_ns": 80 * MS}, held=True, partition=part) for part in _parts((1, 1))]
        levels = [session.level(plan) for session, plan in zip(hosts, plans, strict=True)]
        start_ns = _started(levels)
        (busy, _), (idle, rows) = [_finished(level) for level in levels]
        # It takes the next level as any other.
        after = _plan(closed(2), {"count": 6}, partition={"first": 1, "stride": 2})
        assert _finished(hosts[1].level(after))[0]["outcomes"] == {"ok": 3}
    assert (idle["due"], rows.height, idle["stop_reason"]) == (0, 0, "duration")
    assert busy["due"] > 0
    assert (
        (idle["start_ns"], idle["close_ns"]) == (start_ns, start_ns + 80 * MS) == (busy["start_ns"], busy["close_ns"])
    )


def test_a_held_level_that_is_stopped_has_sent_nothing(scripted_server: Start) -> None:
    seen: list[object] = []

    def script(request: object) -> list[Send]:
        seen.append(request)
        return [Send(answer())]

    server = scripted_server(script)
    with _sessions(server.port, 2) as (session,):
        level = session.level(_plan(closed(4), {"count": 10}, held=True))
        assert level.prepared(60.0)
        assert not level.wait(0.05)
        level.stop(0)
        outcome, rows = _finished(level)
        assert (outcome["start_ns"], outcome["due"], outcome["stop_reason"], rows.height) == (0, 0, "stopped", 0)
        assert outcome["connects"] == 4
        assert level.prepared(0.0)
        with pytest.raises(UsageError, match="the level is over"):
            level.start_at(_core.monotonic_ns() + AHEAD_NS)
        assert not seen
        # What comes after it finds the connections.
        after, _ = _finished(session.level(_plan(closed(4), {"count": 10})))
        assert (after["outcomes"], after["connects"]) == ({"ok": 10}, 0)


def test_a_session_that_closes_ends_a_held_level(scripted_server: Start) -> None:
    server = scripted_server(lambda _: [Send(answer())])
    with _sessions(server.port, 1) as (session,):
        level = session.level(_plan(closed(1), {"count": 10}, held=True))
        assert level.prepared(60.0)
        session.close()
    assert _finished(level)[0]["stop_reason"] == "stopped"
    with pytest.raises(UsageError, match="the session is closed"):
        level.start_at(_core.monotonic_ns() + AHEAD_NS)


def test_a_start_that_is_too_late_is_refused_and_another_taken(scripted_server: Start) -> None:
    server = scripted_server(lambda _: [Send(answer())])
    with _sessions(server.port, 1) as (session,):
        level = session.level(_plan(closed(1), {"count": 3}, held=True))
        assert level.prepared(60.0)
        with pytest.raises(UsageError, match=r"the start is 50\d\d\.\d* ms too late") as refused:
            level.start_at(_core.monotonic_ns() - 5_000 * MS)
        assert "still held" in str(refused.value)
        with pytest.raises(UsageError, match="too late"):
            level.start_at(_core.monotonic_ns() + MS)
        assert json.loads(level.poll())["state"] == "held"
        start_ns = _started([level])
        with pytest.raises(UsageError, match="has been told its start"):
            level.start_at(start_ns + MS)
        outcome, rows = _finished(level)
        assert (outcome["start_ns"], rows["due_ns"].min()) == (start_ns, start_ns)
        assert json.loads(level.poll())["start_ns"] == start_ns
        other = session.level(_plan(closed(1), {"count": 3}))
        with pytest.raises(UsageError, match="is not held"):
            other.start_at(_core.monotonic_ns() + AHEAD_NS)


@pytest.mark.parametrize("drift_ns", [-90_000, 0, 130_000])
def test_levels_of_hosts_whose_clocks_drift_go_over_at_their_own_instants(
    scripted_server: Start, drift_ns: int
) -> None:
    server = scripted_server(lambda _: [Send(answer())])
    # The last arrival is due 50 us before the duration is over.
    grid = {"phases": [{"from": 1000, "to": 1000}], "process": "constant", "lead": 0.95}
    load = {"open": {"streams": [{"arrivals": {"rate": grid}}], "connections": 4}}
    stop = {"duration_ns": 200 * MS}
    waited: list[int] = []
    # A machine that stalls lets a user begin later, and none sooner.
    while not waited or (waited[-1] > 0 and len(waited) < 5):
        with _sessions(server.port, 2) as (session,):
            start_ns = _core.monotonic_ns() + AHEAD_NS
            boundary_ns = start_ns + 200 * MS + drift_ns
            first = session.level(_plan(load, stop, start_ns=start_ns, close_at_ns=boundary_ns))
            users = closed(3) | {"closed": {**closed(3)["closed"], "start": "staggered", "stagger_ns": 0}}
            end_ns = boundary_ns + 100 * MS + drift_ns
            then = session.level(_plan(users, {"duration_ns": 100 * MS}, start_ns=boundary_ns, close_at_ns=end_ns))
            (before, rows), (after, more) = _finished(first), _finished(then)
        assert before["start_ns"] == start_ns
        offsets = (rows["due_ns"] - start_ns).sort().to_list()
        assert offsets == [950_000 + k * MS for k in range(200)], "its duration says what it sends"
        late = boundary_ns <= start_ns + offsets[-1]
        assert before["close_ns"] == (start_ns + offsets[-1] + 1 if late else boundary_ns)
        assert late == (drift_ns < 0)
        assert (after["start_ns"], after["close_ns"]) == (boundary_ns, end_ns)
        assert max(more["due_ns"].to_list()) < end_ns
        waited.append(min(more["due_ns"].to_list()) - boundary_ns)
    assert (min(waited), waited[-1]) == (0, 0)


@pytest.mark.parametrize("by_ms", [-140, 170])
@pytest.mark.parametrize("load", [closed(2), {"open": {"streams": [_stream(0, "constant", (100, 300, 300))]}}])
def test_an_end_by_the_clock_can_be_moved(scripted_server: Start, load: dict[str, Any], by_ms: int) -> None:
    server = scripted_server(lambda _: [Send(answer())])
    with _sessions(server.port, 2) as (session,):
        start_ns = _core.monotonic_ns() + AHEAD_NS
        end_ns = start_ns + 400 * MS
        level = session.level(_plan(load, {"duration_ns": 400 * MS}, start_ns=start_ns, close_at_ns=end_ns))
        with pytest.raises(UsageError, match="too late"):
            level.set_close_at(_core.monotonic_ns() + 50 * MS)
        level.set_close_at(end_ns + by_ms * MS)
        while json.loads(level.poll())["sent"] == 0:
            assert not level.wait(0.01)
        with pytest.raises(UsageError, match="begun"):
            level.set_close_at(end_ns + by_ms * MS + 2 * MS)
        end_ns += by_ms * MS + 300_000
        level.set_close_at(end_ns)
        outcome, rows = _finished(level)
        assert (outcome["start_ns"], outcome["close_ns"]) == (start_ns, end_ns)
        assert max(rows["due_ns"].to_list()) < end_ns
        with pytest.raises(UsageError, match="is over"):
            level.set_close_at(_core.monotonic_ns() + 500 * MS)
        other = session.level(_plan(load, {"duration_ns": 40 * MS}))
        with pytest.raises(UsageError, match="does not end by the clock"):
            other.set_close_at(_core.monotonic_ns() + 500 * MS)


def test_a_level_that_starts_after_a_pause_waits_for_its_time(scripted_server: Start) -> None:
    server = scripted_server(lambda _: [Send(answer())])
    with _sessions(server.port, 1) as (session,):
        start_ns = _core.monotonic_ns() + AHEAD_NS
        load = {"open": {"streams": [_stream(0, "constant", (100, 200, 200))], "connections": 1}}
        first = session.level(_plan(load, {"duration_ns": 50 * MS}, start_ns=start_ns))
        then = session.level(_plan(load, {"count": 5}, start_ns=start_ns + 250 * MS))
        assert _finished(first)[0]["start_ns"] == start_ns
        assert _finished(then)[0]["start_ns"] == start_ns + 250 * MS


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"partition": {"first": 1, "stride": 2}}, "2 workers from number 1 on are more than the 2"),
        ({"partition": {"first": 0, "stride": 65537}}, "more than records can number"),
        (
            {"load": {"closed": {"concurrency": 1, "from": 4, "ramp_ns": 5}}, "partition": {"first": 0, "stride": 3}},
            "whatever host",
        ),
        ({"start_ns": 1}, "ms ago"),
        ({"close_at_ns": 1 << 62}, "no duration"),
        ({"held": True, "start_ns": 1 << 62}, "held"),
    ],
)
def test_plans_that_hosts_cannot_follow_are_refused(changes: dict[str, Any], says: str) -> None:
    with _sessions(1, 2) as (session,), pytest.raises(UsageError, match=says):
        session.level(json.dumps({**level_plan(closed(1), {"count": 5}, None), **changes}))
