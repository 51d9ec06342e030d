"""What a server counted is in the records once, also over hand-overs, several servers, Ctrl-C and random faults."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from tests.faults import http1
from tests.faults.exchange import assert_balance, number_of, send
from tests.faults.matrix import Counts, Fault
from tests.servers.drive import closed, open_loop
from tests.servers.scripted import Request, ScriptedServer, Send, Step, Wait, answer

# Those that end by themselves: what stops for ever would only test the timeout again and again.
QUICK = [fault for fault in http1.FAULTS if not fault.target and "says nothing" not in fault.does]
LOADS: dict[str, list[dict[str, Any]]] = {
    "closed": [closed(6), closed(3)],
    "closed, taken over": [
        closed(4),
        {"closed": {**closed(6)["closed"], "start": "staggered", "stagger_ns": 1_000_000}},
    ],
    "open": [open_loop(900.0, connections=6), open_loop(500.0, connections=3)],
    "open, shed": [open_loop(3000.0, connections=2, queue=3), open_loop(900.0, connections=6)],
    "closed, then open": [closed(4), open_loop(800.0, connections=4)],
}


def _servers(faults: Sequence[Fault], seed: int, counts: Counts, count: int) -> list[ScriptedServer]:
    lock = threading.Lock()

    def script(request: Request) -> Sequence[Step]:
        name = number_of(request)
        draw = random.Random(f"{seed} {name}")
        fault = draw.choice(faults) if draw.random() < 0.4 else None
        with lock:
            counts.counted[name] += 1
            if fault is None or fault.outcome == "ok":
                counts.answered.add(name)
        if fault is None:
            return [Send(answer())]
        return fault.steps(request) if callable(fault.steps) else fault.steps

    return [ScriptedServer(script) for _ in range(count)]


def _send(servers: Sequence[ScriptedServer], levels: Sequence[dict[str, Any]], **more: Any) -> Any:
    further = [{"host": "127.0.0.1", "port": server.port, "tls": None} for server in servers[1:]]
    try:
        return send(servers[0].port, levels, replicas=further, **more)
    finally:
        for server in servers:
            server.close()


@pytest.mark.parametrize("name", LOADS)
@pytest.mark.parametrize("replicas", [1, 3])
def test_levels_that_follow_each_other_lose_and_double_nothing(name: str, replicas: int) -> None:
    counts = Counts()
    servers = _servers(QUICK, replicas, counts, replicas)
    outcomes, rows = _send(servers, LOADS[name], counts=[80, 60], workers=2)
    assert [outcome["due"] for outcome in outcomes] == [80, 60]
    assert_balance(outcomes, rows, counts.counted, counts.answered)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOADS)
@pytest.mark.parametrize("seed", range(40))
def test_random_faults_lose_and_double_nothing(name: str, seed: int) -> None:
    counts = Counts()
    servers = _servers(QUICK, seed, counts, 1 + seed % 3)
    outcomes, rows = _send(servers, LOADS[name], counts=[80, 60], workers=1 + seed % 2)
    assert_balance(outcomes, rows, counts.counted, counts.answered)


@pytest.mark.parametrize("load", [closed(6), open_loop(2000.0, connections=6, queue=1000)], ids=["closed", "open"])
def test_a_level_that_is_cancelled_has_a_row_for_all_that_the_server_counted(load: dict[str, Any]) -> None:
    counts = Counts()
    lock = threading.Lock()

    def script(request: Request) -> Sequence[Step]:
        name = number_of(request)
        with lock:
            counts.counted[name] += 1
            if name[1] < 20:
                counts.answered.add(name)
        # From the twentieth on nothing is answered, so that requests are in flight whenever it stops.
        return [Send(answer())] if name[1] < 20 else [Wait()]

    outcomes, rows = _send([ScriptedServer(script)], [load], counts=[10_000], workers=2, stop_after_sent=24)
    assert outcomes[0]["stop_reason"] == "cancelled"
    assert outcomes[0]["outcomes"]["cancelled"] >= 1
    assert_balance(outcomes, rows, counts.counted, counts.answered)
