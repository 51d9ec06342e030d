"""Levels of workflows by plans in full: streams, overload, ramps, pauses, conversations, due times by plan."""

from __future__ import annotations

import asyncio
import json
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import gpusize
from gpusize.base.errors import UsageError
from gpusize.engine.session import core
from gpusize.records.schema import OUTCOMES
from gpusize.targets.workflow.engine import WorkflowEngine
from gpusize.targets.workflow.schedule import Conversations, Due, Thinks, arrivals
from gpusize.workload.dataset import Dataset
from gpusize.workload.load import Stream
from tests.servers.fixtures import scripted_server
from tests.servers.scripted import Script, ScriptedServer, Send, answer
from tests.virtual_time import VirtualClock, VirtualLoop
from tests.workflow import flows

__all__ = ["scripted_server"]

MS = 1_000_000
TALKS: list[dict[str, Any]] = [
    {"prompt": "a0", "session": "a", "turn": 0},
    {"prompt": "b0", "session": "b", "turn": 0, "delay_s": 9},
    {"prompt": "a1", "session": "a", "turn": 1, "delay_s": "0.003"},
    {"prompt": "c"},
]


@pytest.mark.parametrize("sessions", [False, True])
def test_a_shuffled_closed_loop_sends_a_workflow_the_rows_that_it_sends_a_server(
    tmp_path: Path, scripted_server: Callable[[Script], ScriptedServer], sessions: bool
) -> None:
    rows = [{"prompt": str(k), "session": str(k // 2)} for k in range(10)]
    load = gpusize.Load(concurrencies=[1], count=24, order="shuffled", seed=11, sessions=sessions)
    server = scripted_server(lambda _: [Send(answer(b'{"text":"hi"}', headers=["Content-Type: application/json"]))])

    async def workflow(_prompt: str) -> str:
        return "hi"

    sent = []
    for name, target in (("server", gpusize.Target(f"http://127.0.0.1:{server.port}/x")), ("workflow", workflow)):
        result = gpusize.run(target, gpusize.Dataset.from_rows(rows), load, out=tmp_path / name)
        parts = result.path / "levels" / "0000" / "records" / "part-*.parquet"
        sent.append(pl.read_parquet(parts).sort("sent_ns")["row"].to_list())
    assert sent[0] == sent[1]
    assert sent[0] != sorted(sent[0])


async def remember(prompt: str) -> None:
    """Remembers what it was asked."""
    flows.seen.append(prompt)


def test_streams_of_a_workflow_send_their_own_datasets(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.jsonl").write_text(
            "".join(f'{{"id": "{name} {k}", "prompt": "{name} {k}"}}\n' for k in range(3))
        )
    streams = [
        Stream(name=name, rate=200, count=4, dataset=str(tmp_path / f"{name}.jsonl"), priority=number)
        for number, name in enumerate(("one", "two"))
    ]
    load = gpusize.Load(streams=[*streams, Stream(name="plain", rate=200, count=2)], duration_s=0.1)
    result = gpusize.run(
        remember, gpusize.Dataset.from_rows([{"id": "plain", "prompt": "plain"}]), load, out=tmp_path / "runs"
    )
    rows = pl.read_parquet(result.path / "levels" / "0000" / "records" / "part-*.parquet").sort("stream", "seq")
    # What the function was called with, beyond the probe, and what the records say of it.
    asked = ["one 0", "one 1", "one 2", "one 0", "two 0", "two 1", "two 2", "two 0", "plain", "plain"]
    assert sorted(flows.seen[1:]) == sorted(asked)
    sent = pl.read_parquet(result.path / "dataset.parquet")
    assert [sent["id"][row] for row in rows["row"]] == asked


@pytest.mark.parametrize("told", [{"model": "m"}, {"server_priority": 3}])
def test_what_a_stream_would_tell_a_server_is_refused_for_a_workflow(tmp_path: Path, told: dict[str, Any]) -> None:
    load = gpusize.Load(streams=[Stream(name="chat", rate=5, **told)], duration_s=1)
    with pytest.raises(
        UsageError, match=f'"chat": a workflow cannot take a stream.s {next(iter(told)).replace("_", " ")}'
    ):
        gpusize.run(remember, gpusize.Dataset.from_prompt("x"), load, out=tmp_path / "runs")


def steady(rate: float, **more: Any) -> dict[str, Any]:
    """A stream at one rate."""
    return {"arrivals": {"rate": {"phases": [{"from": rate, "to": rate}], **more}}}


def plan_of(load: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A LevelPlan."""
    return {"visit": 0, "seed": 3, "load": load, "stop": {"count": 10}, **more}


def open_plan(*streams: dict[str, Any], connections: int = 100, queue: int = 100, **more: Any) -> dict[str, Any]:
    """A LevelPlan of an open loop."""
    load = {
        "streams": [{"id": k, **each} for k, each in enumerate(streams)],
        "connections": connections,
        "queue": queue,
    }
    return plan_of({"open": {**load, **more.pop("load", {})}}, **more)


def plain(rows: int = 3) -> Conversations:
    """Rows that are conversations of their own."""
    return Conversations([{} for _ in range(rows)], "request")


def virtual_engine(what: Any, dataset: Dataset, clock: VirtualClock | None = None) -> WorkflowEngine:
    """An engine in virtual time."""
    clock = clock or VirtualClock()
    return WorkflowEngine(what, dataset, name="flow", timeout_s=20.0, clock=clock, loop=VirtualLoop(clock))


class Runs:
    """Runs levels of a function in virtual time, and remembers what they ended with."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.outcome: dict[str, Any] = {}

    def run(self, what: Any, data: list[Any], plan: dict[str, Any], **arrays: bytes) -> pl.DataFrame:
        """The records of one level, by stream and number."""
        records = self._folder / f".{len(list(self._folder.iterdir())):04}.open" / "records"
        records.mkdir(parents=True)
        with virtual_engine(what, Dataset.from_rows(data, key="prompt")) as engine:
            level = engine.queue({**plan, "dir": str(records)}, **arrays)
            while not level.wait(0.05):
                pass
        self.outcome = dict(level.outcome())
        found = pl.read_parquet(records / "*.parquet").sort("stream", "seq")
        return found.with_columns(pl.Series("outcome", [OUTCOMES[code] for code in found["outcome"]]))


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


async def quick(_row: Any) -> None:
    """Answers at once."""


def test_due_times_are_those_of_the_engine() -> None:
    plan = open_plan(steady(50.0, process="poisson"), steady(20.0), order="shuffled")
    ours = [each[:7] for each in arrivals(plan, plain(), {})]
    theirs = pl.DataFrame(core().schedule(json.dumps(plan), 3)).rows()
    assert ours == theirs
    assert len(ours) == core().schedule_count(json.dumps(plan), 3) == 10
    assert {each[1] for each in ours} == {0, 1}


def test_records_say_stream_number_and_row(runs: Runs) -> None:
    second = {**steady(1000.0), "rows": [1, 1], "id": 7}
    plan = open_plan(steady(500.0), second, stop={"duration_ns": 20 * MS})
    records = runs.run(quick, ["a", "b", "c"], plan)
    wanted = [(0, seq, seq % 3, 2 * seq * MS) for seq in range(10)] + [(7, seq, 1, seq * MS) for seq in range(20)]
    start_ns = runs.outcome["start_ns"]
    found = records.select("stream", "seq", "row", pl.col("due_ns") - start_ns).rows()
    assert found == wanted
    # Nothing is busy in virtual time: each begins when it is due.
    assert records["fired_ns"].to_list() == records["sent_ns"].to_list() == records["due_ns"].to_list()
    assert runs.outcome["stop_reason"] == "duration"
    assert runs.outcome["due"] == 30
    assert runs.outcome["close_ns"] == start_ns + 20 * MS


def test_due_times_by_plan_are_kept(runs: Runs) -> None:
    arrays = {
        "due": struct.pack("<3q", 0, 2 * MS, 2 * MS),
        "rows": struct.pack("<3I", 2, 0, 1),
        "streams": struct.pack("<3H", 1, 0, 1),
    }
    plan = open_plan({"arrivals": "plan"}, {"arrivals": "plan"}, stop={"duration_ns": 10 * MS})
    records = runs.run(quick, ["a", "b", "c"], plan, **arrays)
    start_ns = runs.outcome["start_ns"]
    found = records.select("stream", "seq", "row", pl.col("due_ns") - start_ns).rows()
    assert found == [(0, 0, 0, 2 * MS), (1, 0, 2, 0), (1, 1, 1, 2 * MS)]
    assert runs.outcome["stop_reason"] == "duration"


@pytest.mark.parametrize(
    "streams, arrays, place",
    [
        ([{"arrivals": "plan"}], {}, "due"),
        ([{"arrivals": "plan"}], {"due": b"1234567"}, "due"),
        ([{"arrivals": "plan"}], {"due": struct.pack("<2q", 5, 4)}, "due"),
        ([{"arrivals": "plan"}], {"due": bytes(8), "rows": struct.pack("<I", 9)}, "rows"),
        ([{"arrivals": "plan"}], {"due": bytes(8), "streams": struct.pack("<H", 9)}, "streams"),
        ([{"arrivals": "plan"}], {"due": bytes(8), "targets": struct.pack("<H", 1)}, "targets"),
        ([{"arrivals": "plan"}], {"rows": bytes(4)}, "rows"),
        ([steady(1.0)], {"due": bytes(8)}, "due"),
        ([{**steady(1.0), "rows": [2, 5]}], {}, "load.open.streams.rows"),
        ([steady(0.0)], {}, "load.open.streams.arrivals.rate"),
        ([{**steady(1.0), "id": 4}, {**steady(1.0), "id": 4}], {}, "load.open.streams.id"),
    ],
)
def test_what_does_not_fit_is_refused(streams: list[Any], arrays: dict[str, bytes], place: str) -> None:
    with pytest.raises(UsageError) as refused:
        list(arrivals(open_plan(*streams), plain(), arrays))
    assert refused.value.where == place


def test_a_closed_loop_has_no_schedule() -> None:
    plan = plan_of({"closed": {"concurrency": 1}})
    for ask in (core().schedule, core().schedule_count):
        with pytest.raises(UsageError, match="closed loop"):
            ask(json.dumps(plan), 1)


def test_a_limit_cuts_the_schedule() -> None:
    plan = json.dumps(open_plan(steady(1e6), stop={"duration_ns": 86_400_000_000_000}))
    assert core().schedule_count(plan, 1) == 86_400_000_000
    assert core().schedule_count(plan, 1, limit=5) == 5
    assert pl.DataFrame(core().schedule(plan, 1, limit=5))["due_ns"].to_list() == [0, 1000, 2000, 3000, 4000]
    parts = [pl.DataFrame(core().schedule(plan, 1, limit=5, worker=k, workers=2))["seq"].to_list() for k in (0, 1)]
    assert parts == [[0, 2, 4], [1, 3]]
    with pytest.raises(UsageError, match="no worker 2"):
        core().schedule(plan, 1, worker=2, workers=2)


async def until_all_are_due(_row: str) -> None:
    """Runs while the loop, which is asked for all arrivals at once, looks at each of them."""
    for _ in range(100):
        await asyncio.sleep(0)


def at_once(load: dict[str, Any], *ids: int, **stream: Any) -> tuple[dict[str, Any], dict[str, bytes]]:
    """A plan in which all arrivals, of the streams with these ids, are due at the start."""
    streams = [{"arrivals": "plan", "rows": [k, 1], **(stream if k else {})} for k in sorted(set(ids))]
    arrays = {"due": bytes(8 * len(ids)), "streams": struct.pack(f"<{len(ids)}H", *ids)}
    return open_plan(*streams, connections=1, load=load, stop={"count": len(ids)}), arrays


@pytest.mark.parametrize(
    "load, sent, shed",
    [
        ({"overload": "grow", "max_connections": 4, "queue": 0}, 4, 0),
        ({"overload": "grow", "max_connections": 3, "queue": 0}, 3, 1),
        ({"overload": "grow", "max_connections": 3}, 4, 0),
        ({"overload": "queue", "queue": 2}, 3, 1),
        ({"overload": "shed", "queue": 2}, 1, 3),
    ],
)
def test_what_becomes_of_overload(runs: Runs, load: dict[str, Any], sent: int, shed: int) -> None:
    plan, arrays = at_once(load, 0, 0, 0, 0)
    records = runs.run(until_all_are_due, ["a"], plan, **arrays)
    assert records["outcome"].to_list() == ["ok"] * sent + ["shed"] * shed
    assert runs.outcome["outcomes"] == {"ok": sent} | ({"shed": shed} if shed else {})
    assert runs.outcome["stop_reason"] == "count"


def test_who_waits_goes_by_priority(runs: Runs) -> None:
    begun: list[str] = []

    async def flow(row: str) -> None:
        begun.append(row)
        await until_all_are_due(row)

    plan, arrays = at_once({}, 0, 0, 1, 0, priority=5)
    runs.run(flow, ["low", "high"], plan, **arrays)
    assert begun == ["low", "high", "low", "low"]


RAMP_NS = 100_000 * MS


def test_users_come_along_a_ramp(runs: Runs) -> None:
    async def takes_a_while(_row: Any) -> None:
        await asyncio.sleep(4)

    load = {"concurrency": 6, "from": 1, "ramp_ns": RAMP_NS, "start": "staggered"}
    records = runs.run(takes_a_while, ["a"], plan_of({"closed": load}, stop={"count": 195}))
    spans = [(due - runs.outcome["start_ns"], end) for due, end in records.select("due_ns", "end_ns").rows()]
    users = [(at, sum(due <= at < end - runs.outcome["start_ns"] for due, end in spans)) for at, _ in spans]
    # One more every 20 s, each with a request of 4 s after the other from then on.
    assert all(count == min(1 + 5 * at // RAMP_NS, 6) for at, count in users)
    assert max(count for _, count in users) == 6
    assert {end - runs.outcome["start_ns"] - due for due, end in spans} == {4_000 * MS}


def test_users_go_along_a_ramp(runs: Runs) -> None:
    async def takes_a_while(_row: Any) -> None:
        await asyncio.sleep(4)

    load = {"concurrency": 1, "from": 6, "ramp_ns": RAMP_NS, "start": "burst"}
    records = runs.run(takes_a_while, ["a"], plan_of({"closed": load}, stop={"count": 150}))
    start_ns = runs.outcome["start_ns"]
    assert (records["due_ns"] == start_ns).sum() == 6
    for k in range(6):
        # Of six users one goes every 20 s; who is at work then ends it.
        busy = records.filter(pl.col("due_ns") == start_ns + (20_000 * k + 4_000) * MS)
        assert busy.height == 6 - k
    alone = records.filter(pl.col("due_ns") >= start_ns + RAMP_NS).sort("due_ns")
    assert alone.height > 1
    assert (alone["due_ns"].slice(1) >= alone["end_ns"].slice(0, alone.height - 1)).all()


def test_the_next_level_begins_where_the_duration_ends(tmp_path: Path) -> None:
    plan = open_plan(steady(200.0), stop={"duration_ns": 30 * MS})
    queued, clock = threading.Event(), VirtualClock()

    async def busy(_row: Any) -> None:
        """Holds up the event loop, which comes late to all that is due meanwhile, and to the end."""
        clock.advance(7 * MS)

    with virtual_engine(busy, Dataset.from_rows(["a"]), clock) as engine:
        # The first level begins when the second waits behind it, however long the queueing takes.
        engine._loop.call_soon_threadsafe(queued.wait)
        levels = []
        for visit in range(2):
            folder = tmp_path / f".{visit:04}.open" / "records"
            folder.mkdir(parents=True)
            levels.append(engine.queue({**plan, "visit": visit, "dir": str(folder)}))
        queued.set()
        for level in levels:
            while not level.wait(0.05):
                pass
    first, second = (level.outcome() for level in levels)
    assert first["close_ns"] == first["start_ns"] + 30 * MS == second["start_ns"]
    assert first["due"] == second["due"] == 6


def test_pauses_are_those_of_the_engine() -> None:
    plan = plan_of({"closed": {"concurrency": 1, "think": {"exponential": 5 * MS}}})
    thinks = Thinks(plan, plain())
    drawn = core().think_ns(json.dumps(plan), 0, 0, 2000)
    order = [1999, 0, 256, *range(2000)]
    assert [thinks.after_ns(Due(seq, 0, 0)) for seq in order] == [drawn[seq] for seq in order]
    assert sum(drawn) / 2000 == pytest.approx(5 * MS, rel=0.1)
    talks = Thinks(plan, Conversations(TALKS, "session"))
    assert talks.before_ns(Due(3, 2, 0, session=0, turn=1)) == drawn[3]
    assert talks.after_ns(Due(3, 2, 0, session=0, turn=1)) == drawn[4]


def test_recorded_pauses_belong_to_turns() -> None:
    with pytest.raises(UsageError, match="no recorded pauses"):
        Thinks(plan_of({"closed": {"concurrency": 1, "think": "recorded"}}), plain())
    load = {"concurrency": 1, "think": "recorded", "unit": "session"}
    talks = Conversations(TALKS, "session")
    thinks = Thinks(plan_of({"closed": load}), talks)
    assert thinks.before_ns(Due(1, 2, 0, session=0, turn=1)) == 3 * MS
    assert thinks.after_ns(Due(1, 2, 0, session=0, turn=1)) == 0
    bad = Conversations([{"delay_s": "soon"}], "session")
    with pytest.raises(UsageError, match="delay_s"):
        bad.recorded_ns(0)


def test_conversations_are_the_turns_of_a_session() -> None:
    talks = Conversations(TALKS, "session")
    assert (len(talks), talks.most_turns, talks.turns(2), talks.first(2)) == (3, 2, [0, 2], 3)
    assert [talks.number(row) for row in range(4)] == [0, 1, 0, 2]
    assert talks.lists() == {"sessions": [0, 1, 0, 2], "turns": [0, 0, 1, 0]}
    alone = Conversations(TALKS, "request")
    assert (len(alone), alone.most_turns, alone.number(2)) == (4, 1, None)


@pytest.mark.parametrize("kind", ["open", "closed"])
def test_turns_follow_one_another(runs: Runs, kind: str) -> None:
    said: list[str] = []

    async def talk(prompt: str) -> None:
        said.append(prompt)
        if prompt == "b0":
            raise ValueError("no")

    rows = [*TALKS, {"prompt": "b1", "session": "b", "turn": 1}]
    load: dict[str, Any] = {"think": "recorded", "unit": "session"}
    if kind == "open":
        plan = open_plan(steady(1000.0), load=load, stop={"count": 4})
    else:
        plan = plan_of({"closed": {"concurrency": 2, "start": "burst", **load}}, stop={"count": 4})
    records = runs.run(talk, rows, plan)
    found = records.select("seq", "row", "session", "turn", "outcome").rows()
    # The failed turn of b ends it; the fourth conversation is the first one again.
    assert found == [
        (0, 0, 0, 0, "ok"),
        (1, 2, 0, 1, "ok"),
        (2, 1, 1, 0, "api_error"),
        (4, 3, 2, 0, "ok"),
        (6, 0, 0, 0, "ok"),
        (7, 2, 0, 1, "ok"),
    ]
    ends, dues = records["end_ns"].to_list(), records["due_ns"].to_list()
    assert dues[1] == ends[0] + 3 * MS
    assert said.count("b1") == 0
    assert runs.outcome["stop_reason"] == "count"
