"""What bench-cluster-watch plays back: a recorded pod's events, each pod with a name, a uid and versions of its own."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from benches.cluster_watch import CLIENTS, _served, _turn
from benches.programs.watch_server import EVENTS_A_POD, HEAD, events
from gpusize.cluster.access.stream import BodyReader

PODS = 7


def test_every_pod_has_all_its_events_in_order() -> None:
    body = BodyReader().feed(HEAD + b"".join(events(PODS)))
    lines = [json.loads(line) for line in body.splitlines()]
    metas = [line["object"]["metadata"] for line in lines]
    assert [line["type"] for line in lines] == ["ADDED"] * PODS + ["MODIFIED"] * PODS * (EVENTS_A_POD - 1)
    assert set(Counter(each["uid"] for each in metas).values()) == {EVENTS_A_POD}
    assert len({each["name"] for each in metas}) == PODS
    versions = [int(each["resourceVersion"]) for each in metas]
    assert versions == sorted(set(versions))
    assert lines[-1]["object"]["status"]["phase"] == "Succeeded"


def test_every_client_sees_all_events(tmp_path: Path) -> None:
    with _served(tmp_path, PODS) as kubeconfig:
        for who in CLIENTS:
            turn = _turn(kubeconfig, who, PODS * EVENTS_A_POD)
            assert turn.events == PODS * EVENTS_A_POD
            assert turn.cpu_s > 0
            assert turn.seconds > 0
            assert turn.rss_mib > 10
