"""Each fault of HTTP/1.1: its outcome, its text, its neighbours untouched, and every request counted once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults import chat, http1
from tests.faults.exchange import assert_balance, number_of, send
from tests.faults.matrix import Counts, Fault, outcomes_by_seq, script_of
from tests.servers.drive import closed, open_loop
from tests.servers.scripted import ScriptedServer

COUNT = 9


def run(fault: Fault, load: dict[str, Any], *, workers: int = 1, servers: int = 1) -> None:
    counts = Counts()
    replicas = [ScriptedServer(script_of(fault, number_of, counts)) for _ in range(servers)]
    try:
        further = [{"host": "127.0.0.1", "port": replica.port, "tls": None} for replica in replicas[1:]]
        target = {"replicas": further, **fault.target}
        outcomes, rows = send(replicas[0].port, [load], counts=[COUNT], workers=workers, **target)
    finally:
        for replica in replicas:
            replica.close()
    assert_balance(outcomes, rows, counts.counted, counts.answered)
    expected = {seq: fault.outcome if seq % 3 == 1 else "ok" for seq in range(COUNT)}
    assert outcomes_by_seq(rows) == expected, outcomes[0]["errors"]
    if fault.says:
        assert any(fault.says in error["message"] for error in outcomes[0]["errors"])
    asked_again = set(rows.filter((rows["seq"] % 3 == 1) & (rows["attempt"] > 0))["seq"].to_list())
    # A connection that ends after a good answer may end under the next request: that one is rightly asked again.
    assert fault.again or fault.outcome == "ok" or not asked_again, "a fault that was asked again"


@pytest.mark.parametrize("fault", [*http1.FAULTS, *chat.FAULTS], ids=str)
def test_a_fault_is_a_row_and_its_neighbours_are_not_touched(fault: Fault) -> None:
    run(fault, closed(1))


@pytest.mark.slow
@pytest.mark.parametrize("fault", [*http1.FAULTS, *chat.FAULTS], ids=str)
@pytest.mark.parametrize(
    "load, workers, servers",
    [(closed(4), 2, 1), (open_loop(400.0, connections=4), 2, 1), (closed(4), 2, 3)],
    ids=["closed loop", "open loop", "replicas"],
)
def test_a_fault_under_other_loads(fault: Fault, load: dict[str, Any], workers: int, servers: int) -> None:
    run(fault, load, workers=workers, servers=servers)
