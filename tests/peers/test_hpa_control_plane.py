"""The HPA's rules against a whole control plane: API server, controller manager, and metrics asked for over HTTP.

`test_hpa` holds them against the controller's own package, on a clock of its own. Here its defaults, its validation and
its clients are in between as well, and the time is real: what it asked and when is written down, and our rules are
given the same.
"""

from __future__ import annotations

import json
import random
import threading
from bisect import bisect_right
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

from gpusize import _core
from tests.servers.kube import ControlPlane
from tests.servers.kube.external_metrics import Asked, ExternalMetrics
from tests.servers.kube.objects import create, until

HPAS, SYNCS, SYNC_S = 80, 15, 3
TARGETS = "/apis/test.gpusize.dev/v1/namespaces/default/targets"
AUTOSCALERS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"

# What is scaled: an object that has replicas and nothing else, so that the test says how many there are.
TARGET_CRD = {
    "metadata": {"name": "targets.test.gpusize.dev"},
    "spec": {
        "group": "test.gpusize.dev",
        "names": {"plural": "targets", "singular": "target", "kind": "Target"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                "subresources": {
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    }
                },
            }
        ],
    },
}


def policy_of(seed: int) -> dict[str, Any]:
    """A seeded policy. Times are no multiples of the sync period: a millisecond then decides nothing."""
    rnd = random.Random(seed)
    least = rnd.choice((1, 1, 2, 3))

    def rules(windows: tuple[int | None, ...]) -> dict[str, Any]:
        limits = [
            {
                "kind": kind,
                "value": rnd.choice((1, 2, 4) if kind == "pods" else (10, 50, 100)),
                "period_s": rnd.choice((4, 8, 20)),
            }
            for kind in rnd.sample(("pods", "percent"), rnd.choice((1, 2)))
        ]
        return {
            "stabilization_s": rnd.choice(windows),
            "select": rnd.choice(("max", "max", "min", "disabled")),
            "policies": limits,
            "tolerance": None,
        }

    behavior = None if rnd.random() < 0.4 else {"up": rules((0, 0, 7, 16)), "down": rules((None, 0, 7, 16, 28))}
    return {
        "min_replicas": least,
        "max_replicas": least + rnd.choice((0, 5, 20, 60)),
        "metrics": [
            {"source": "external", "target": {"average_value": rnd.choice((700, 1000, 5000, 333))}}
            for _ in range(rnd.choice((1, 1, 2)))
        ],
        "behavior": behavior,
    }


def manifest(seed: int, policy: dict[str, Any]) -> dict[str, Any]:
    """The same as a HorizontalPodAutoscaler."""

    def rules(told: dict[str, Any]) -> dict[str, Any]:
        limits = [
            {"type": each["kind"].capitalize(), "value": each["value"], "periodSeconds": each["period_s"]}
            for each in told["policies"]
        ]
        window = {} if told["stabilization_s"] is None else {"stabilizationWindowSeconds": told["stabilization_s"]}
        return {"selectPolicy": told["select"].capitalize(), "policies": limits, **window}

    behavior = policy["behavior"]
    spec = {
        "scaleTargetRef": {"apiVersion": "test.gpusize.dev/v1", "kind": "Target", "name": f"target-{seed}"},
        "minReplicas": policy["min_replicas"],
        "maxReplicas": policy["max_replicas"],
        "metrics": [
            {
                "type": "External",
                "external": {
                    "metric": {"name": f"metric-{seed}-{number}"},
                    "target": {"type": "AverageValue", "averageValue": f"{metric['target']['average_value']}m"},
                },
            }
            for number, metric in enumerate(policy["metrics"])
        ],
    }
    if behavior:
        spec["behavior"] = {"scaleUp": rules(behavior["up"]), "scaleDown": rules(behavior["down"])}
    return {"metadata": {"name": f"hpa-{seed}"}, "spec": spec}


class Courses:
    """What each metric tells, question by question: a demand that walks, jumps and fails."""

    def __init__(self, policies: list[dict[str, Any]]) -> None:
        self._policies = policies
        self._told: dict[str, int] = {}

    def tell(self, metric: str) -> list[int] | None:
        _, seed, number = metric.split("-")
        policy = self._policies[int(seed)]
        at = self._told[metric] = self._told.get(metric, -1) + 1
        rnd = random.Random(f"{metric} {at}")
        if rnd.random() < 0.06:
            return None
        # The demand stands for some questions, so that windows pass and limits are reached.
        held = random.Random(f"{metric} held {at // 4}")
        demand = held.uniform(0, 1.3) * policy["max_replicas"] * rnd.choice((1.0, 1.0, 1.04, 0.93))
        total = int(demand * policy["metrics"][int(number)]["target"]["average_value"])
        return [total] if rnd.random() < 0.7 else [total // 2, total - total // 2]


class Follower:
    """Sets the replicas that are there to those that are wanted, and writes down both in the order of their changes."""

    def __init__(self, plane: ControlPlane, version: str) -> None:
        self.wanted: dict[str, list[int]] = {}
        self.there: dict[str, list[int]] = {}
        self._done = threading.Event()
        self._plane, self._version = plane, version
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def stop(self, client: httpx.Client) -> None:
        """Wait for its end: one more change lets it look up."""
        self._done.set()
        client.delete(f"{TARGETS}/target-0").raise_for_status()
        self._thread.join()

    def _follow(self) -> None:
        asked = {"watch": "true", "resourceVersion": self._version, "timeoutSeconds": "600"}
        with (
            self._plane.client(timeout=900) as client,
            ThreadPoolExecutor(8) as writers,
            client.stream("GET", TARGETS, params=asked) as lines,
        ):
            for line in lines.iter_lines():
                if self._done.is_set():
                    return
                target = json.loads(line)["object"]
                name, wanted = target["metadata"]["name"], target["spec"]["replicas"]
                there = target["status"]["replicas"]
                for kept, now in ((self.wanted, wanted), (self.there, there)):
                    steps = kept.setdefault(name, [])
                    if not steps or steps[-1] != now:
                        steps.append(now)
                if there != wanted:
                    writers.submit(self._write, client, name, wanted)

    @staticmethod
    def _write(client: httpx.Client, name: str, wanted: int) -> None:
        patch = {"status": {"replicas": wanted}}
        kind = {"Content-Type": "application/merge-patch+json"}
        client.patch(f"{TARGETS}/{name}", json=patch, headers=kind).raise_for_status()


def syncs_of(seed: int, metrics: int, asked: list[Asked]) -> list[list[Asked]]:
    """The questions of one HPA, sync by sync: each asks for every metric once, in order."""
    own = [each for each in asked if each.metric.split("-")[1] == str(seed)]
    found = [own[at : at + metrics] for at in range(0, len(own) - len(own) % metrics, metrics)]
    for each in found:
        assert [question.metric for question in each] == [f"metric-{seed}-{number}" for number in range(metrics)]
    return found


def changes_of(plane: ControlPlane, verb: str, subresource: str) -> dict[str, list[int]]:
    """When each target was changed by such requests, by the audit log, in ns since 1970."""
    found: dict[str, list[int]] = {}
    for event in plane.audit("targets", verb, subresource):
        if event["responseStatus"]["code"] == httpx.codes.OK:
            done = datetime.fromisoformat(event["stageTimestamp"])
            found.setdefault(event["objectRef"]["name"], []).append(round(done.timestamp() * 1e6) * 1000)
    return found


def at(values: list[int], changed_ns: list[int], ns: int) -> int:
    """The value at a time: the first one, and one more for each change until then."""
    return values[bisect_right(changed_ns, ns)]


def fits(policy: dict[str, Any], initial: int, decided: list[int], seen: list[list[dict[str, Any]]]) -> bool:
    """Whether our rules decide the same at every step, with some possibility of what was seen at each.

    The controller reads the replicas somewhat before it asks for metrics, and its clock somewhat after: the steps have
    the same possibilities in the same order, and each of them is once the one that is tried first.
    """
    for first in range(len(seen[0])):
        steps: list[dict[str, Any]] = []
        for wanted, possible in zip(decided, seen, strict=True):
            for one in (*possible[first:], *possible[:first]):
                told = json.loads(_core.hpa_decisions(json.dumps(policy), initial, json.dumps([*steps, one])))
                if told[-1]["replicas"] == wanted:
                    steps.append(one)
                    break
            else:
                break
        else:
            return True
    return False


def test_a_control_plane_decides_as_our_rules_do(
    start_control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    flags = [f"--horizontal-pod-autoscaler-sync-period={SYNC_S}s", "--concurrent-horizontal-pod-autoscaler-syncs=20"]
    plane = start_control_plane(schedulers=(), controller_flags=flags)
    policies = [policy_of(seed) for seed in range(HPAS)]
    with plane.client() as client, ExternalMetrics(tmp_path / "metrics", Courses(policies).tell) as metrics:
        create(client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", TARGET_CRD)
        until(lambda: client.get(TARGETS).status_code, lambda status: status == httpx.codes.OK)
        metrics.register(client)
        version = client.get(TARGETS).json()["metadata"]["resourceVersion"]
        follower = Follower(plane, version)
        for seed, policy in enumerate(policies):
            first = random.Random(f"first {seed}").randint(policy["min_replicas"], policy["max_replicas"])
            target = {
                "apiVersion": "test.gpusize.dev/v1",
                "kind": "Target",
                "metadata": {"name": f"target-{seed}"},
                "spec": {"replicas": first},
                "status": {"replicas": first, "selector": f"target={seed}"},
            }
            create(client, TARGETS, target)
            create(client, AUTOSCALERS, manifest(seed, policy))
        counts = [len(policy["metrics"]) for policy in policies]
        until(
            lambda: min(len(syncs_of(seed, counts[seed], metrics.asked)) for seed in range(HPAS)),
            lambda fewest: fewest >= SYNCS + 1,
        )
        asked = list(metrics.asked)
        follower.stop(client)

        scaled, followed = changes_of(plane, "update", "scale"), changes_of(plane, "patch", "")

    changes, wrong = 0, []
    for seed, policy in enumerate(policies):
        syncs = syncs_of(seed, counts[seed], asked)
        name = f"target-{seed}"
        wishes, wished_ns = follower.wanted[name], scaled.get(name, [])
        replicas, there_ns = follower.there[name], followed.get(name, [])
        # What it wished for after a sync, as seen before the next one; the last has no next.
        decided = [at(wishes, wished_ns, after[0].at_ns) for after in syncs[1:]]
        changes += sum(one != other for one, other in pairwise([wishes[0], *decided]))
        seen = [
            [
                {
                    "now_ns": sync[-1].at_ns - syncs[0][-1].at_ns + late_ns,
                    "status_replicas": at(replicas, there_ns, sync[0].at_ns - before_ns),
                    "pods": [],
                    "readings": [{"values": each.values} if each.values is not None else "failed" for each in sync],
                }
                for late_ns in (0, 20_000_000, 100_000_000, 500_000_000)
                for before_ns in (0, 20_000_000, 100_000_000, 500_000_000)
            ]
            for sync in syncs[:-1]
        ]
        if not fits(policy, wishes[0], decided, seen):
            wrong.append(f"hpa-{seed}: {decided}, policy {policy}")
    assert wrong == []
    assert changes > HPAS, "the courses change something"
