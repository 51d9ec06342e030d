"""Coordinated omission: every request that is due while the server stalls must show it, sent or not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import pytest

from tests.servers.drive import SECOND_NS, drive, open_loop
from tests.servers.scripted import Request, Script, ScriptedServer, Send, Step, Wait, answer

pytestmark = pytest.mark.alone("a stall of one second is measured to the request")

RATE = 200
STALL_AT = 100


class StallingScript:
    """Answers at once, but for one second from the ``STALL_AT``-th request on answers nobody."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.seen = 0
        self.start_ns = self.end_ns = 0
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> Sequence[Step]:
        with self._lock:
            self.seen += 1
            if self.seen == STALL_AT:
                self.gate.clear()
                self.start_ns = time.monotonic_ns()
                threading.Timer(1.0, self._end).start()
        return [Wait(self.gate), Send(answer())]

    def _end(self) -> None:
        self.end_ns = time.monotonic_ns()
        self.gate.set()


def test_a_stall_shows_in_every_request_that_was_due_in_it(scripted_server: Callable[[Script], ScriptedServer]) -> None:
    script = StallingScript()
    # Eight connections are all stuck after 40 ms: the other requests of that second cannot even be sent in it.
    visit = drive(scripted_server(script).port, count=3 * RATE, load=open_loop(RATE, connections=8))
    assert visit.outcome["outcomes"] == {"ok": 3 * RATE}
    due, end, sent = visit.column("due_ns"), visit.column("end_ns"), visit.column("sent_ns")
    period_ns = SECOND_NS // RATE
    assert [at - due[0] for at in due] == [k * period_ns for k in range(3 * RATE)]
    stalled = [k for k in range(3 * RATE) if script.start_ns <= due[k] < script.end_ns]
    # A whole second of the schedule, to the request, though the server took none of it.
    assert len(stalled) in {(script.end_ns - script.start_ns) // period_ns + extra for extra in (0, 1)}
    assert len(stalled) >= RATE
    for k in stalled:
        assert end[k] >= script.end_ns
        assert end[k] - due[k] >= script.end_ns - due[k]
    # By service time most of them look fast: that is what a tool that counts from the write would report.
    unsent = [k for k in stalled if sent[k] >= script.end_ns]
    assert len(unsent) >= RATE - 8 - 1
    for row in visit.rows.select("due_ns", "fired_ns", "sent_ns", "first_byte_ns", "end_ns").iter_rows():
        assert list(row) == sorted(row)


def test_a_full_queue_sheds_and_says_so(scripted_server: Callable[[Script], ScriptedServer]) -> None:
    script = StallingScript()
    load = open_loop(RATE, connections=2, queue=10)
    visit = drive(scripted_server(script).port, count=2 * RATE, load=load, stop={"max_error_share": None})
    counts = visit.outcome["outcomes"]
    assert set(counts) == {"ok", "shed"}
    assert sum(counts.values()) == visit.outcome["rows"] == 2 * RATE
    # Of the second's 200 requests two are in flight and ten wait; those due in it beyond them have nowhere to go.
    assert counts["shed"] >= RATE - 2 - 10 - 2
    shed = visit.rows.filter(visit.rows["outcome"].cast(str) == "shed")
    assert shed["sent_ns"].null_count() == shed["first_byte_ns"].null_count() == shed.height
    assert visit.column("seq") == list(range(2 * RATE))
