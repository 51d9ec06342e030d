"""Each fault of HTTP/2 and gRPC: its outcome, its neighbours, and every request counted once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gpusize.targets.apis import ApiOptions, create_api
from tests.faults.at_once import AtOnce, at_once
from tests.faults.exchange import assert_balance, number_in_body, send
from tests.faults.frames import Call, FrameServer
from tests.faults.http2 import GRPC, GRPC_TARGET, HTTP2, FrameFault, good_call, good_grpc
from tests.faults.matrix import Counts, outcomes_by_seq
from tests.servers.drive import closed, open_loop

__all__ = ["at_once"]

COUNT = 9
WAITING_COUNT = 6
"""Of a fault of time: two of its requests wait for their timeout."""


def run(
    fault: FrameFault,
    good: Callable[[int], Sequence[bytes]],
    target: dict[str, Any],
    load: dict[str, Any],
    workers: int,
) -> None:
    counts, count = Counts(), WAITING_COUNT if fault.waits else COUNT

    def script(call: Call) -> Sequence[bytes]:
        name = (0, number_in_body(call.body[call.body.index(b"{") :]))
        counts.counted[name] += 1
        is_hit = name[1] % 3 == 1
        if not is_hit or "ok" in fault.outcomes:
            counts.answered.add(name)
        return fault.frames(call.stream) if is_hit else good(call.stream)

    with FrameServer(script, fault.first) as server:
        more = {"trace": False, **target, **fault.target}
        outcomes, rows = send(server.port, [load], counts=[count], workers=workers, **more)
    hows = outcomes_by_seq(rows)
    hit = {seq: how for seq, how in hows.items() if seq % 3 == 1}
    shares = "streams" in target and fault.spills
    if shares:
        # What was on the connection beside it goes with it: the answer may have been on its way.
        counts.answered = {name for name in counts.answered if hows[name[1]] == "ok"}
    assert_balance(outcomes, rows, counts.counted, counts.answered)
    allowed = {"ok", "truncated", "protocol_error"} if shares else {"ok"}
    assert {how for seq, how in hows.items() if seq not in hit} <= allowed, outcomes[0]["errors"]
    assert set(hit.values()) <= (fault.outcomes | allowed if shares else fault.outcomes), outcomes[0]["errors"]
    if fault.says:
        assert any(fault.says in error["message"] for error in outcomes[0]["errors"]), outcomes[0]["errors"]
    asked_again = set(rows.filter((rows["seq"] % 3 == 1) & (rows["attempt"] > 0))["seq"].to_list())
    assert fault.again or shares or not asked_again, "a fault that was asked again"


GRPC_MORE = {**GRPC_TARGET, "response": create_api("kserve-grpc", ApiOptions(model="m")).response()}
KINDS = {"http2": (HTTP2, good_call, {"transport": "http2"}), "grpc": (GRPC, good_grpc, GRPC_MORE)}
LOADS = {
    "one at a time": (closed(1), 1),
    "closed loop": (closed(4), 2),
    "open loop": (open_loop(400.0, connections=4), 2),
}


def check(at_once: AtOnce, kind: str, fault: FrameFault, name: str = "one at a time", streams: int = 1) -> None:
    """Run a fault; those that wait all together."""
    faults, good, target = KINDS[kind]
    more = {**target, "streams": streams} if streams > 1 else target
    load, workers = LOADS[name]
    if not fault.waits:
        run(fault, good, more, load, workers)
        return
    cases = {str(each): functools.partial(run, each, good, more, load, workers) for each in faults if each.waits}
    at_once.run(f"{kind} {name} {streams}", cases, str(fault))


OTHER = pytest.mark.parametrize("name", ["closed loop", "open loop"])
SHARED = pytest.mark.parametrize("streams", [1, 4])


@pytest.mark.parametrize("fault", HTTP2, ids=str)
def test_a_fault_of_http2_is_a_row_and_its_neighbours_are_not_touched(fault: FrameFault, at_once: AtOnce) -> None:
    check(at_once, "http2", fault)


@pytest.mark.parametrize("fault", GRPC, ids=str)
def test_a_fault_of_grpc_is_a_row_and_its_neighbours_are_not_touched(fault: FrameFault, at_once: AtOnce) -> None:
    check(at_once, "grpc", fault)


@pytest.mark.slow
@pytest.mark.parametrize("fault", HTTP2, ids=str)
@OTHER
@SHARED
def test_a_fault_of_http2_under_other_loads(fault: FrameFault, name: str, streams: int, at_once: AtOnce) -> None:
    check(at_once, "http2", fault, name, streams)


@pytest.mark.slow
@pytest.mark.parametrize("fault", GRPC, ids=str)
@OTHER
@SHARED
def test_a_fault_of_grpc_under_other_loads(fault: FrameFault, name: str, streams: int, at_once: AtOnce) -> None:
    check(at_once, "grpc", fault, name, streams)
