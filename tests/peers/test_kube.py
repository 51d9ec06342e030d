"""The control plane itself: what tests of the cluster go by is what Kubernetes does, and not what we believe of it."""

from __future__ import annotations

import base64
import gzip
import json
import ssl
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.servers.kube import ControlPlane
from tests.servers.kube.objects import GPU, condition, create, items, node, pod, until

NODES, GPUS, PODS = 20, 8, 50
FULL = "/api/v1/namespaces/full/pods"


@pytest.fixture(scope="module")
def admin(control_plane: ControlPlane) -> Iterator[httpx.Client]:
    """Twenty nodes and fifty bound pods; the nodes go with the module."""
    with control_plane.client() as client:
        for each in range(NODES):
            create(client, "/api/v1/nodes", node(f"full-{each}", GPUS))
        create(client, "/api/v1/namespaces", {"metadata": {"name": "full"}})
        for each in range(PODS):
            create(client, FULL, pod(f"pod-{each}", gpus=1 + each % 4))
        until(lambda: items(client, FULL, fieldSelector="spec.nodeName="), lambda pending: not pending)
        yield client
        # Nobody is there to end bound pods: without grace.
        client.delete(FULL, params={"gracePeriodSeconds": 0}).raise_for_status()
        for each in range(NODES):
            client.delete(f"/api/v1/nodes/full-{each}").raise_for_status()


def watched(client: httpx.Client, path: str, **query: str) -> Iterator[dict[str, Any]]:
    """The events of a watch."""
    asked = {"watch": "true", "timeoutSeconds": "60", **query}
    with client.stream("GET", path, params=asked) as answer:
        assert answer.status_code == httpx.codes.OK, answer.read()
        yield from map(json.loads, answer.iter_lines())


def time_of(text: str) -> datetime:
    assert len(text) == len("2026-11-28T00:00:00.000000Z"), "microseconds"
    return datetime.fromisoformat(text)


def test_it_says_what_was_built(admin: httpx.Client) -> None:
    assert admin.get("/version").json()["gitVersion"] == "v1.37.2"


def test_the_scheduler_binds_what_fits(admin: httpx.Client) -> None:
    pods = items(admin, FULL)
    assert len(pods) == PODS
    assert all(condition(each, "PodScheduled")["status"] == "True" for each in pods)
    taken: Counter[str] = Counter()
    for each in pods:
        taken[each["spec"]["nodeName"]] += int(each["spec"]["containers"][0]["resources"]["limits"][GPU])
    assert taken.total() == sum(1 + each % 4 for each in range(PODS))
    assert max(taken.values()) <= GPUS


def test_what_fits_nowhere_is_unschedulable(admin: httpx.Client) -> None:
    nodes = len(items(admin, "/api/v1/nodes"))
    create(admin, FULL, pod("too-large", gpus=GPUS + 1))
    found = until(lambda: admin.get(f"{FULL}/too-large").json(), lambda each: condition(each, "PodScheduled") != {})
    verdict = condition(found, "PodScheduled")
    assert (verdict["status"], verdict["reason"]) == ("False", "Unschedulable")
    assert verdict["message"].startswith(f"0/{nodes} nodes are available: {nodes} Insufficient {GPU}.")
    # Unbound, it is gone at once.
    admin.delete(f"{FULL}/too-large").raise_for_status()
    assert admin.get(f"{FULL}/too-large").status_code == httpx.codes.NOT_FOUND


def test_the_audit_log_has_the_order_of_a_pods_life(admin: httpx.Client, control_plane: ControlPlane) -> None:
    def stamps(verb: str, subresource: str = "") -> dict[str, datetime]:
        events = control_plane.audit("pods", verb, subresource)
        return {
            event["objectRef"]["name"]: time_of(event["requestReceivedTimestamp"])
            for event in events
            if event["objectRef"]["namespace"] == "full" and event["responseStatus"]["code"] == httpx.codes.CREATED
        }

    created, bound = stamps("create"), stamps("create", "binding")
    named = {f"pod-{each}" for each in range(PODS)}
    assert created.keys() & named == bound.keys() & named == named
    assert all(created[name] < bound[name] for name in named)
    in_turn = [created[f"pod-{each}"] for each in range(PODS)]
    assert all(one < other for one, other in pairwise(in_turn))
    by = {event["user"]["username"] for event in control_plane.audit("pods", "create", "binding")}
    assert by == {"system:kube-scheduler"}
    for event in control_plane.audit():
        assert time_of(event["requestReceivedTimestamp"]) <= time_of(event["stageTimestamp"])


def test_the_schedulers_events_have_microseconds(admin: httpx.Client) -> None:
    path = "/apis/events.k8s.io/v1/namespaces/full/events"

    def scheduled() -> dict[str, dict[str, Any]]:
        found = items(admin, path, fieldSelector="reason=Scheduled")
        return {event["regarding"]["name"]: event for event in found}

    events = until(scheduled, lambda found: len(found) >= PODS)
    assert all(time_of(event["eventTime"]) for event in events.values())
    assert all(event["reportingController"] == "default-scheduler" for event in events.values())


def test_its_metrics_count_what_it_did(admin: httpx.Client, control_plane: ControlPlane) -> None:
    lines = control_plane.scheduler_metrics().splitlines()
    start = 'scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"}'
    (line,) = (line for line in lines if line.startswith(start))
    assert float(line.rpartition(" ")[2]) >= PODS


def test_a_watch_can_begin_with_a_list(admin: httpx.Client) -> None:
    query = {"sendInitialEvents": "true", "allowWatchBookmarks": "true", "resourceVersionMatch": "NotOlderThan"}
    names = []
    for event in watched(admin, FULL, **query):
        if event["type"] == "BOOKMARK":
            assert event["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
            break
        assert event["type"] == "ADDED"
        names.append(event["object"]["metadata"]["name"])
    assert sorted(names) == sorted(each["metadata"]["name"] for each in items(admin, FULL))


def test_such_a_watch_may_be_gzip_of_many_members(admin: httpx.Client) -> None:
    """Since 1.37, for clients that take gzip. Python's httpx and zlib stop without a word after the first member."""
    query = {"watch": "true", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    query |= {"allowWatchBookmarks": "true", "timeoutSeconds": "2"}
    compressed = bytearray()
    with admin.stream("GET", FULL, params=query, headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        for piece in answer.iter_raw():
            compressed += piece
    events = [json.loads(line) for line in gzip.decompress(compressed).splitlines()]
    assert Counter(event["type"] for event in events)["BOOKMARK"] >= 1
    assert sum(event["type"] == "ADDED" for event in events) == len(items(admin, FULL))


def test_a_version_that_it_has_no_more_is_gone(admin: httpx.Client, control_plane: ControlPlane) -> None:
    before = items(admin, FULL)
    control_plane.restart_apiserver()
    (event,) = watched(admin, FULL, resourceVersion="1")
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert event["object"]["message"].startswith("too old resource version: 1 (")
    assert items(admin, FULL) == before
    # The scheduler has lived through it.
    create(admin, FULL, pod("later"))
    until(lambda: admin.get(f"{FULL}/later").json(), lambda found: "nodeName" in found["spec"])


GANGS = {"feature_gates": "GenericWorkload=true", "flags": ["--runtime-config=scheduling.k8s.io/v1beta1=true"]}


def test_gangs_and_a_second_scheduler(start_control_plane: Callable[..., ControlPlane]) -> None:
    """The pod groups of Kubernetes itself, a beta of 1.37: three of four are not bound, as long as the fourth lacks."""
    plane = start_control_plane(schedulers=("default-scheduler", "second"), **GANGS)
    path = "/api/v1/namespaces/default/pods"
    with plane.client() as client:
        create(client, "/api/v1/nodes", node("n", GPUS))
        group = {"metadata": {"name": "four"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}}
        create(client, "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups", group)

        def member(index: int) -> dict[str, Any]:
            body = pod(f"member-{index}")
            body["spec"]["schedulingGroup"] = {"podGroupName": "four"}
            return body

        def at(name: str) -> str:
            where: str = client.get(f"{path}/{name}").json()["spec"].get("nodeName", "")
            return where

        for each in range(3):
            create(client, path, member(each))
        create(client, path, pod("alone", scheduler="second"))
        create(client, path, pod("behind"))
        create(client, path, pod("of-nobody", scheduler="third"))
        for name in ("alone", "behind"):
            until(partial(at, name), bool)
        assert [at(f"member-{each}") for each in range(3)] == [""] * 3
        create(client, path, member(3))
        for each in range(4):
            until(partial(at, f"member-{each}"), bool)
        assert at("of-nobody") == ""
        events = items(client, "/apis/events.k8s.io/v1/namespaces/default/events", fieldSelector="reason=Scheduled")
        by = {event["regarding"]["name"]: event["reportingController"] for event in events}
        assert (by["alone"], by["behind"], by["member-3"]) == ("second", "default-scheduler", "default-scheduler")


def log_in(config: dict[str, Any], folder: Path) -> httpx.Client:
    """As a client does that goes by the current context of a kubeconfig."""
    by_name = {kind: {each["name"]: each for each in config[kind]} for kind in ("contexts", "clusters", "users")}
    context = by_name["contexts"][config["current-context"]]["context"]
    cluster, user = by_name["clusters"][context["cluster"]]["cluster"], by_name["users"][context["user"]]["user"]
    inline = cluster.get("certificate-authority-data")
    tls = ssl.create_default_context(
        cafile=cluster.get("certificate-authority"), cadata=inline and base64.b64decode(inline).decode()
    )
    token = user.get("token")
    if "exec" in user:
        said = subprocess.run([user["exec"]["command"]], capture_output=True, check=True).stdout
        token = json.loads(said)["status"]["token"]
    if "client-key-data" in user:
        parts = [user["client-certificate-data"], user["client-key-data"]]
        (folder / "both.pem").write_bytes(b"".join(map(base64.b64decode, parts)))
        tls.load_cert_chain(folder / "both.pem")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.Client(base_url=cluster["server"], verify=tls, headers=headers, trust_env=False, timeout=60)


@pytest.mark.parametrize(
    "context, status, groups",
    [
        ("admin", httpx.codes.OK, {"system:masters"}),
        ("certificate", httpx.codes.OK, {"system:masters"}),
        ("exec", httpx.codes.OK, {"system:masters"}),
        ("limited", httpx.codes.FORBIDDEN, set()),
        ("stranger", httpx.codes.UNAUTHORIZED, None),
    ],
)
def test_each_user_gets_in_by_its_own_way(
    context: str, status: int, groups: set[str] | None, control_plane: ControlPlane, tmp_path: Path
) -> None:
    config = json.loads(control_plane.kubeconfig(context).read_text())
    calls = control_plane.users.exec_calls()
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    with log_in(config, tmp_path) as client:
        assert client.get("/api/v1/namespaces/default/pods").status_code == status
        answer = client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json=review)
    if groups is None:
        assert answer.status_code == httpx.codes.UNAUTHORIZED
    else:
        info = answer.json()["status"]["userInfo"]
        assert (info["username"], {*info["groups"]}) == (context, groups | {"system:authenticated"})
    assert control_plane.users.exec_calls() - calls == (context == "exec")
