"""What a session does beside sending: plans that are handed over, and the addresses that it used."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from benches.client import target_spec
from gpusize import _core
from tests.servers.drive import drive
from tests.servers.scripted import Script, ScriptedServer, Send, answer

DUE_TIMES = 4_000_000
PLANNED = {"open": {"streams": [{"arrivals": "plan"}], "connections": 1}}


@pytest.fixture
def unhurried() -> Iterator[None]:
    """No thread has to give the interpreter up: who waits for it gets it when it is let go."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(100.0)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@pytest.mark.usefixtures("unhurried")
def test_other_threads_run_while_a_long_plan_is_handed_over() -> None:
    session = _core.Session(json.dumps(target_spec(1)), "[]", [[]], workers=1)
    # An hour ahead: nothing is sent before the session is closed.
    due = b"".join(number.to_bytes(8, "little") for number in (3_600_000_000_000,)) * DUE_TIMES
    plan = json.dumps({"visit": 0, "load": PLANNED, "stop": {"duration_ns": 7_200_000_000_000}})
    turns, ends = [0], threading.Event()

    def count() -> None:
        while not ends.is_set():
            turns[0] += 1
            time.sleep(0)

    counter = threading.Thread(target=count)
    counter.start()
    try:
        moved = False
        for _ in range(5):
            before = turns[0]
            session.level(plan, due=due)
            moved = moved or turns[0] > before
            if moved:
                break
    finally:
        ends.set()
        counter.join()
        session.close()
    assert moved, "the interpreter was held while the plan was copied"


def test_the_outcome_says_how_many_connections_each_address_had(
    scripted_server: Callable[[Script], ScriptedServer],
) -> None:
    server = scripted_server(lambda _: [Send(answer())])
    visit = drive(server.port, count=12, load={"closed": {"concurrency": 3}})
    told = [{"target": 0, "address": f"127.0.0.1:{server.port}", "connections": 3}]
    assert visit.outcome["addresses"] == told
    assert server.connections == visit.outcome["connects"] == 3
