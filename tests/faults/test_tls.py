"""Each fault of TLS: its outcome, and every request that came in counted once."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.faults.exchange import assert_balance, send
from tests.faults.matrix import outcomes_by_seq
from tests.faults.tls import FAULTS, TlsFault, TlsServer
from tests.servers.drive import closed
from tests.servers.fixtures import certificates as certificates  # noqa: PLC0414 (a fixture)
from tests.servers.tls import Certificates

COUNT = 4


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_of_tls_is_a_row_for_every_request(fault: TlsFault, certificates: Certificates) -> None:
    tls = {"server_name": "localhost", "ca_file": str(certificates.ca), "insecure": False}
    with TlsServer(fault.talk, certificates) as server:
        outcomes, rows = send(server.port, [closed(1)], counts=[COUNT], tls=tls, **fault.target)
        counted = Counter((0, int(json.loads(body[body.index(b"{") :])["seq"])) for body in server.requests)
    assert outcomes_by_seq(rows) == dict.fromkeys(range(COUNT), fault.outcome), outcomes[0]["errors"]
    assert fault.says in outcomes[0]["errors"][0]["message"] if fault.says else True
    assert_balance(outcomes, rows, counted, set(counted) if fault.outcome == "ok" else set())
    reached = fault.outcome in {"ok", "truncated", "protocol_error"} or "body" in fault.does
    assert sum(counted.values()) == (COUNT if reached else 0)
