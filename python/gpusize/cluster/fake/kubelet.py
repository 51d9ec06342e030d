"""Does for the pods on fake nodes what kubelets do: each step when its delay is over."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import json
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import TargetError
from gpusize.cluster.access.refused import KubeRefused
from gpusize.cluster.access.stream import open_lines
from gpusize.cluster.clock import CLIENT
from gpusize.cluster.fake import pods
from gpusize.cluster.fake.nodes import second_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpusize.cluster.access.api import KubeApi
    from gpusize.cluster.fake.delays import Delays

__all__ = ["FakeKubelet", "Step"]

_PODS: Final = "/api/v1/pods"
_WATCH_S: Final = 300
_SILENT_S: Final = 30.0
_BACK_OFF_S: Final = (0.1, 0.5, 1.0, 2.0, 5.0)
_KEPT: Final = 10_000
"""Steps whose lateness is told of."""

_SENDERS: Final = 64
"""Requests under way at once."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of one pod, as it was done: the truth that a measurement can be held against.

    Attributes:
        namespace: of the pod.
        name: its name.
        uid: its uid.
        step: ``start``, ``ready``, ``end``, ``fail`` or ``remove``.
        seen_ns: when what it follows was seen (a binding, a deletion), or done (the step before), by our clock.
        delay_ns: drawn delay.
        sent_ns: when the status was sent.
        done_ns: when the server had taken it.
    """

    namespace: str
    name: str
    uid: str
    step: str
    seen_ns: int
    delay_ns: int
    sent_ns: int
    done_ns: int


@dataclass
class _Pod:
    """A pod on one of our nodes."""

    body: dict[str, Any]
    stage: str
    step: str
    seen_ns: int
    delay_ns: int
    turn: int


@dataclass
class FakeKubelet:
    """Watches all pods of a cluster, and moves those that are bound to fake nodes.

    Args:
        api: the cluster.
        nodes: names of the fake nodes.
        delays: of the steps.
        on_step: told of each step that was done.
    """

    api: KubeApi
    nodes: frozenset[str]
    delays: Delays
    on_step: Callable[[Step], None] = lambda _step: None
    counts: dict[str, int] = field(default_factory=dict)
    """Steps done, by name."""
    trouble: str = ""
    """What the last request failed with; empty while all is well."""

    def __post_init__(self) -> None:
        self._pods: dict[str, _Pod] = {}
        self._due: list[tuple[int, int, str, int]] = []
        self._numbers = itertools.count()
        self._wake = asyncio.Event()
        self._slots = asyncio.Semaphore(_SENDERS)
        self._sent: set[asyncio.Task[None]] = set()
        self.late_ns: deque[int] = deque(maxlen=_KEPT)

    async def run(self) -> None:
        """Go on until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(self._act())

    def told(self) -> str:
        """What was done so far, in words, with how late it was by our own doing."""
        done = ", ".join(f"{count} {step}" for step, count in sorted(self.counts.items()))
        late = sorted(self.late_ns)
        ms = late[min(len(late) - 1, int(0.99 * len(late)))] / 1e6 if late else 0.0
        return f"steps of pods: {done}; 99 % at most {ms:.0f} ms late" if done else "steps of pods: none"

    async def _watch(self) -> None:
        failures = 0
        while True:
            try:
                version = await self._list()
                while version:
                    failures = 0
                    version = await self._follow(version)
            except TargetError as problem:
                self.trouble = str(problem)
                if isinstance(problem, KubeRefused) and problem.status in (401, 403):
                    raise
                await asyncio.sleep(_BACK_OFF_S[min(failures, len(_BACK_OFF_S) - 1)])
                failures += 1

    async def _list(self) -> str:
        version = ""
        there = set()
        async for page in self.api.pages(_PODS):
            version = page["metadata"]["resourceVersion"]
            for pod in page["items"]:
                there.add(pod["metadata"]["uid"])
                self._see(pod, CLIENT.now_ns())
        for uid in set(self._pods) - there:
            del self._pods[uid]
        self.trouble = ""
        return version

    async def _follow(self, version: str) -> str:
        """Follow a watch to its end; returns the version to go on from, empty where a list is needed."""
        asked = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_S),
        }
        opened = open_lines(self.api.access, _PODS, asked, silent_s=_WATCH_S + _SILENT_S)
        async with opened as reads:
            async for at_ns, lines in reads:
                for line in filter(None, lines.split(b"\n")):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        return ""
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] == "DELETED":
                        self._pods.pop(event["object"]["metadata"]["uid"], None)
                    elif event["type"] != "BOOKMARK":
                        self._see(event["object"], at_ns)
        return version

    def _see(self, pod: dict[str, Any], at_ns: int) -> None:
        if (pod.get("spec") or {}).get("nodeName") not in self.nodes:
            return
        uid = pod["metadata"]["uid"]
        stage = pods.next_step(pod)
        known = self._pods.get(uid)
        if stage is None:
            self._pods.pop(uid, None)
        elif known is not None and known.stage == stage:
            known.body = pod
        else:
            self._plan(uid, pod, stage, at_ns)

    def _plan(self, uid: str, pod: dict[str, Any], stage: str, seen_ns: int) -> None:
        key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        step, delay_ns = stage, 0
        if stage == "start":
            fate = self.delays.fate(key)
            if fate == "never":
                self._pods[uid] = _Pod(pod, stage, fate, seen_ns, 0, next(self._numbers))
                return
            step, delay_ns = "fail" if fate == "fails" else "start", self.delays.start_ns(key)
        elif stage == "ready":
            delay_ns = self.delays.ready_ns(key)
        elif stage == "end":
            run_ns = self.delays.run_ns(key)
            if run_ns is None:
                self._pods.pop(uid, None)
                return
            delay_ns = run_ns
        turn = next(self._numbers)
        self._pods[uid] = _Pod(pod, stage, step, seen_ns, delay_ns, turn)
        heapq.heappush(self._due, (seen_ns + delay_ns, turn, uid, turn))
        self._wake.set()

    async def _act(self) -> None:
        try:
            while True:
                self._wake.clear()
                wait_s = (self._due[0][0] - CLIENT.now_ns()) / 1e9 if self._due else None
                if wait_s is None or wait_s > 0:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._wake.wait(), wait_s)
                    continue
                due_ns, _turn, uid, turn = heapq.heappop(self._due)
                pod = self._pods.get(uid)
                if pod is None or pod.turn != turn:
                    continue
                await self._slots.acquire()
                task = asyncio.create_task(self._do(uid, pod, due_ns))
                self._sent.add(task)
                task.add_done_callback(self._sent.discard)
        finally:
            for task in self._sent:
                task.cancel()

    async def _do(self, uid: str, pod: _Pod, due_ns: int) -> None:
        try:
            sent_ns = CLIENT.now_ns()
            body = await self._send(pod)
            done_ns = CLIENT.now_ns()
        except KubeRefused as refused:
            # Gone meanwhile, or replaced by another of its name: nothing is left to do for it.
            if refused.status not in (404, 409):
                self._again(uid, pod, str(refused))
            return
        except TargetError as problem:
            self._again(uid, pod, str(problem))
            return
        finally:
            self._slots.release()
        self.trouble = ""
        self.late_ns.append(sent_ns - due_ns)
        self.counts[pod.step] = self.counts.get(pod.step, 0) + 1
        meta = pod.body["metadata"]
        self.on_step(Step(meta["namespace"], meta["name"], uid, pod.step, pod.seen_ns, pod.delay_ns, sent_ns, done_ns))
        # The next step counts from this one, not from when the watch shows it.
        if body is not None and self._pods.get(uid) is pod:
            self._see(body, done_ns)

    def _again(self, uid: str, pod: _Pod, why: str) -> None:
        self.trouble = why
        if self._pods.get(uid) is pod:
            heapq.heappush(self._due, (CLIENT.now_ns() + 500_000_000, next(self._numbers), uid, pod.turn))
            self._wake.set()

    async def _send(self, pod: _Pod) -> dict[str, Any] | None:
        meta = pod.body["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        if pod.step == "remove":
            now = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
            await self.api.request("DELETE", path, now)
            return None
        moment = second_time()
        key = f"{meta['namespace']}/{meta['name']}"
        if pod.step == "start":
            status = pods.started(pod.body, moment, is_ready=self.delays.ready_ns(key) == 0)
        elif pod.step == "ready":
            status = pods.ready(pod.body, moment)
        else:
            status = pods.ended(pod.body, moment, 1 if pod.step == "fail" else 0)
        patch: Mapping[str, Any] = {"metadata": {"uid": meta["uid"]}, **status}
        found: dict[str, Any] = await self.api.request("PATCH", f"{path}/status", patch, patch="strategic-merge-patch")
        return found
