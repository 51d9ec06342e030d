"""Each fault of HTTP/1.1: its outcome, its text, its neighbours untouched, and every request counted once."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.faults import chat, http1
from tests.faults.at_once import AtOnce, at_once
from tests.faults.exchange import assert_balance, number_of, send
from tests.faults.matrix import Counts, Fault, outcomes_by_seq, script_of
from tests.servers.drive import closed, open_loop
from tests.servers.scripted import ScriptedServer

__all__ = ["at_once"]

COUNT = 9
WAITING_COUNT = 6
"""Of a fault of time: two of its requests wait for their timeout."""
FAULTS = [*http1.FAULTS, *chat.FAULTS]


def run(fault: Fault, load: dict[str, Any], *, workers: int = 1, servers: int = 1) -> None:
    counts, count = Counts(), WAITING_COUNT if fault.waits else COUNT
    replicas = [ScriptedServer(script_of(fault, number_of, counts)) for _ in range(servers)]
    try:
        further = [{"host": "127.0.0.1", "port": replica.port, "tls": None} for replica in replicas[1:]]
        target = {"replicas": further, **fault.target}
        outcomes, rows = send(replicas[0].port, [load], counts=[count], workers=workers, **target)
    finally:
        for replica in replicas:
            replica.close()
    assert_balance(outcomes, rows, counts.counted, counts.answered)
    expected = {seq: fault.outcome if seq % 3 == 1 else "ok" for seq in range(count)}
    assert outcomes_by_seq(rows) == expected, outcomes[0]["errors"]
    if fault.says:
        assert any(fault.says in error["message"] for error in outcomes[0]["errors"])
    asked_again = set(rows.filter((rows["seq"] % 3 == 1) & (rows["attempt"] > 0))["seq"].to_list())
    # A connection that ends after a good answer may end under the next request: that one is rightly asked again.
    assert fault.again or fault.outcome == "ok" or not asked_again, "a fault that was asked again"


def check(at_once: AtOnce, fault: Fault, name: str, load: dict[str, Any], **more: int) -> None:
    """Run a fault; those that wait all together."""
    if not fault.waits:
        run(fault, load, **more)
        return
    cases = {str(each): functools.partial(run, each, load, **more) for each in FAULTS if each.waits}
    at_once.run(name, cases, str(fault))


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_is_a_row_and_its_neighbours_are_not_touched(fault: Fault, at_once: AtOnce) -> None:
    check(at_once, fault, "one at a time", closed(1))


OTHER = {
    "closed loop": (closed(4), 2, 1),
    "open loop": (open_loop(400.0, connections=4), 2, 1),
    "replicas": (closed(4), 2, 3),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=str)
@pytest.mark.parametrize("name", OTHER)
def test_a_fault_under_other_loads(fault: Fault, name: str, at_once: AtOnce) -> None:
    load, workers, servers = OTHER[name]
    check(at_once, fault, name, load, workers=workers, servers=servers)
