"""Each fault of TLS: its outcome, and every request that came in counted once."""

from __future__ import annotations

import functools
import json
from collections import Counter

import pytest

from tests.faults.at_once import AtOnce, at_once
from tests.faults.exchange import assert_balance, send
from tests.faults.matrix import outcomes_by_seq
from tests.faults.tls import FAULTS, TlsFault, TlsServer
from tests.servers.drive import closed
from tests.servers.fixtures import certificates
from tests.servers.tls import Certificates

__all__ = ["at_once", "certificates"]

COUNT = 4
WAITING_COUNT = 2


def run(fault: TlsFault, certificates: Certificates) -> None:
    count = WAITING_COUNT if fault.waits else COUNT
    tls = {"server_name": "localhost", "ca_file": str(certificates.ca), "insecure": False}
    with TlsServer(fault.talk, certificates) as server:
        outcomes, rows = send(server.port, [closed(1)], counts=[count], tls=tls, **fault.target)
        counted = Counter((0, int(json.loads(body[body.index(b"{") :])["seq"])) for body in server.requests)
    assert outcomes_by_seq(rows) == dict.fromkeys(range(count), fault.outcome), outcomes[0]["errors"]
    assert fault.says in outcomes[0]["errors"][0]["message"] if fault.says else True
    assert_balance(outcomes, rows, counted, set(counted) if fault.outcome == "ok" else set())
    reached = fault.outcome in {"ok", "truncated", "protocol_error"} or "body" in fault.does
    assert sum(counted.values()) == (count if reached else 0)


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_of_tls_is_a_row_for_every_request(
    fault: TlsFault, certificates: Certificates, at_once: AtOnce
) -> None:
    if not fault.waits:
        run(fault, certificates)
        return
    cases = {str(each): functools.partial(run, each, certificates) for each in FAULTS if each.waits}
    at_once.run("waiting", cases, str(fault))
