"""A canary: an object of our own, written now and then, that tells the server's clock and how late its watches are."""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import json
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import TargetError
from gpusize.cluster.access.stream import open_lines
from gpusize.cluster.clock import CLIENT
from gpusize.cluster.tables import LABEL_RUN
from gpusize.cluster.watch.clock_offset import SECOND_NS, ClockOffset
from gpusize.cluster.watch.times import parse_time

if TYPE_CHECKING:
    from gpusize.cluster.access.api import Answer, KubeApi

__all__ = ["Canary"]

_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
_QUICK: Final = 12
"""So many writes at first, each as soon as it tells something new of the clock."""
_WATCH_S: Final = 300
_MOST: Final = 100_000


class Canary:
    """Writes a Lease every few seconds, and watches it.

    Where Leases may not be written, the clock is told from the ``Date`` of ``/version``, and the lag stays unknown.

    Args:
        api: the server.
        namespace: of the Lease.
        run: the run's id, as its label; None for none.
        every_s: pause between two writes, after the first ones.
    """

    def __init__(self, api: KubeApi, namespace: str, run: str | None, every_s: float = 2.0) -> None:
        self.offset = ClockOffset()
        self.lags_ns: list[int] = []
        self.refused: str | None = None
        self._api = api
        self._every_s = every_s
        self._folder = _LEASES.format(namespace)
        self._name = f"gpusize-canary-{secrets.token_hex(4)}"
        self._labels = {LABEL_RUN: run} if run else {}
        self._acknowledged: dict[str, int] = {}
        self._watched: dict[str, int] = {}
        self._made = False

    async def run(self) -> None:
        """Until it is cancelled; the Lease is then deleted."""
        watch: asyncio.Task[None] | None = None
        try:
            version = await self._create()
            if version is not None:
                watch = asyncio.create_task(self._watch(version))
            count = 0
            while True:
                await self._pause(count)
                with contextlib.suppress(TargetError):
                    await self._write()
                    count += 1
        finally:
            if watch is not None:
                watch.cancel()
            if self._made:
                with contextlib.suppress(TargetError):
                    await asyncio.shield(self._api.ask("DELETE", f"{self._folder}/{self._name}", timeout_s=5.0))

    def lag(self) -> dict[str, Any] | None:
        """How much later than the answer to a write a watch told of it, in ns; None where nothing was measured.

        Negative where the watch was first.
        """
        if not self.lags_ns:
            return None
        ranked = sorted(self.lags_ns)
        most = len(ranked)
        at = {"p50": ranked[(most - 1) // 2], "p99": ranked[max(0, -(-most * 99 // 100) - 1)], "max": ranked[-1]}
        return {**at, "n": most}

    async def _pause(self, count: int) -> None:
        now = CLIENT.now_ns()
        takes = self.offset.narrowest if self.offset.n else 0
        due = self.offset.next_ns(now, takes)
        if count >= _QUICK:
            due += round(self._every_s - 1) * SECOND_NS
        # A quarter of a second at least: what is known after a write is not known while its answer is under way.
        await asyncio.sleep(max(0.0, (due - now) / SECOND_NS))
        if due - now < SECOND_NS // 50:
            await asyncio.sleep(0.05)

    async def _create(self) -> str | None:
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "labels": self._labels},
            "spec": {"holderIdentity": "gpusize", "renewTime": _micro_time(CLIENT.now_ns())},
        }
        try:
            made = await self._ask("POST", self._folder, body)
        except TargetError as problem:
            self.refused = str(problem)
            return None
        self._made = True
        return str(made["metadata"]["resourceVersion"])

    async def _write(self) -> None:
        if not self._made:
            await self._ask("GET", "/version")
            return
        change = {"spec": {"renewTime": _micro_time(CLIENT.now_ns())}}
        made = await self._ask("PATCH", f"{self._folder}/{self._name}", change)
        self._acknowledge(str(made["metadata"]["resourceVersion"]))

    async def _ask(self, method: str, path: str, body: object = None) -> Any:
        sent = CLIENT.now_ns()
        answer = await self._api.ask(
            method,
            path,
            content=None if body is None else json.dumps(body).encode(),
            content_type="application/merge-patch+json" if method == "PATCH" else "application/json",
            timeout_s=10.0,
        )
        read = CLIENT.now_ns()
        self._read_ns = read
        if answer.status >= 400:
            raise TargetError(f"{answer.status}: {answer.body[:200].decode('utf-8', 'replace')}", f"{method} {path}")
        for second in _server_seconds(answer):
            self.offset.add(sent, read, second)
        return answer.json()

    _read_ns = 0

    def _acknowledge(self, version: str) -> None:
        self._acknowledged[version] = self._read_ns
        self._match(version)

    def _match(self, version: str) -> None:
        if version in self._acknowledged and version in self._watched and len(self.lags_ns) < _MOST:
            self.lags_ns.append(self._watched.pop(version) - self._acknowledged.pop(version))

    async def _watch(self, version: str) -> None:
        while True:
            params = {
                "watch": "true",
                "fieldSelector": f"metadata.name={self._name}",
                "resourceVersion": version,
                "timeoutSeconds": str(_WATCH_S),
            }
            with contextlib.suppress(TargetError, ValueError, KeyError):
                async with open_lines(self._api.access, self._folder, params, silent_s=_WATCH_S + 30) as lines:
                    async for at_ns, several in lines:
                        for line in filter(None, several.split(b"\n")):
                            said = json.loads(line)
                            if said["type"] in ("ADDED", "MODIFIED"):
                                version = str(said["object"]["metadata"]["resourceVersion"])
                                self._watched[version] = at_ns
                                self._match(version)
            # What was written meanwhile came late for another reason than the watch's lag.
            self._acknowledged.clear()
            self._watched.clear()
            await asyncio.sleep(1.0)


def _micro_time(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / SECOND_NS, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _server_seconds(answer: Answer) -> list[int]:
    """The whole seconds that the server says the request was handled in: the answer's date, and of a write its time."""
    found = []
    with contextlib.suppress(TypeError, ValueError):
        found.append(int(email.utils.parsedate_to_datetime(answer.headers.get("date") or "").timestamp()))
    with contextlib.suppress(ValueError, AttributeError, TypeError, KeyError):
        written = [entry["time"] for entry in answer.json()["metadata"].get("managedFields") or () if "time" in entry]
        times = [parsed for each in written if (parsed := parse_time(each)) is not None]
        last = max(times)[0] // SECOND_NS if times else 0
        # A server that keeps the time of an earlier write says nothing of this one.
        if found and 0 <= found[0] - last <= 1:
            found.append(last)
    return found
