"""A double of an API server for what a real one does not do on demand: 410, cuts in the middle of a line, silence.

Its contract is what was observed on real servers: one version for all kinds, 200 and then an ERROR line for a version
that is forgotten, one chunk for each event, bookmarks that end a watch list. `tests/peers/test_cluster_sample.py` holds
the same code against a real one.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Coroutine
from email.utils import formatdate
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from gpusize.cluster.clock import CLIENT

__all__ = ["WatchDouble"]

KINDS = {
    "v1": {"pods": "Pod", "persistentvolumeclaims": "PersistentVolumeClaim"},
    "batch/v1": {"jobs": "Job"},
    "events.k8s.io/v1": {"events": "Event"},
    "coordination.k8s.io/v1": {"leases": "Lease"},
    "kueue.x-k8s.io/v1beta2": {"workloads": "Workload"},
}
NAMED = re.compile(
    r"/(?:api|apis)/(?P<version>.+)/namespaces/(?P<space>[^/]+)/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?\Z"
)


class WatchDouble:
    """Keeps objects and their history, lists and watches them. A context manager; it answers in a thread of its own.

    Attributes:
        watch_lists: whether it knows ``sendInitialEvents``.
        skew_s: how far its clock is ahead.
        refused: status with which requests are refused whose path ends in this, or whose target contains it.
        asked: the requests that came: method and target.
    """

    def __init__(self, *, watch_lists: bool = True, skew_s: float = 0.0) -> None:
        self.watch_lists = watch_lists
        self.skew_s = skew_s
        self.refused: dict[str, int] = {}
        self.asked: list[str] = []
        self.port = 0
        self._version = 10
        self._oldest = 0
        self._objects: dict[tuple[str, str], dict[str, Any]] = {}
        self._history: list[tuple[int, str, str, dict[str, Any]]] = []
        self._watches: set[_Watch] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def start(self) -> None:
        """Listen, on the port of the time before where there was one."""

        async def listen() -> None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

        self._do(listen())

    def stop(self) -> None:
        """Close the port and all connections, as a server that is killed; objects and history stay."""

        async def close() -> None:
            if self._server is not None:
                self._server.close()
                self._server = None
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self._do(close())

    def kubeconfig(self, folder: Path) -> str:
        """The path of one."""
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
        user = {"name": "u", "user": {"token": "secret"}}
        context = {"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "team"}}
        text = json.dumps(
            {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "users": [user], "contexts": [context],
             "current-context": "x"}
        )  # fmt: skip
        file = folder / "kubeconfig.json"
        file.write_text(text)
        return str(file)

    def put(self, plural: str, item: dict[str, Any]) -> dict[str, Any]:
        """Add or change an object, by its uid; as it is kept."""
        made: dict[str, Any] = self._call(self._put, plural, item)
        return made

    def delete(self, plural: str, uid: str) -> None:
        """Let an object be gone."""
        self._call(self._delete, plural, uid)

    def forget(self) -> None:
        """Forget the history, as a server that compacts: watches from before now get 410."""

        def change() -> None:
            self._oldest = self._version
            self._history.clear()

        self._call(change)

    def cut(self, plural: str, how: str = "line") -> int:
        """End the watches of this kind: in the middle of a ``line``, with the connection (``drop``), in order
        (``end``), or with a line that is no JSON (``garbage``). How many there were."""
        found = self._call(lambda: [each for each in self._watches if each.plural == plural])
        for each in found:
            self._call(each.queue.put_nowait, how)
        return len(found)

    def watching(self, plural: str) -> int:
        """How many watches of this kind are open."""
        return len(self._call(lambda: [each for each in self._watches if each.plural == plural]))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _call(self, function: Any, *arguments: Any) -> Any:
        async def call() -> Any:
            return function(*arguments)

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()

    def _put(self, plural: str, item: dict[str, Any]) -> dict[str, Any]:
        key = (plural, item["metadata"]["uid"])
        self._version += 1
        item = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self._version)}}
        self._tell("MODIFIED" if key in self._objects else "ADDED", plural, item)
        self._objects[key] = item
        return item

    def _delete(self, plural: str, uid: str) -> None:
        item = self._objects.pop((plural, uid))
        self._version += 1
        self._tell("DELETED", plural, {**item, "metadata": {**item["metadata"], "resourceVersion": str(self._version)}})

    def _tell(self, what: str, plural: str, item: dict[str, Any]) -> None:
        self._history.append((self._version, what, plural, item))
        for watch in self._watches:
            if watch.plural == plural:
                watch.queue.put_nowait((what, item))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                method, target, _ = head.split(" ", 2)
                length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
                body = json.loads(await reader.readexactly(int(length[1]))) if length else None
                self.asked.append(f"{method} {target}")
                await self._answer(writer, method, target, body)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.transport.abort()

    async def _answer(self, writer: asyncio.StreamWriter, method: str, target: str, body: Any) -> None:
        split = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(split.query).items()}
        path = unquote(split.path)
        for ending, status in self.refused.items():
            if path.endswith(ending) or ending in target:
                await self._say(writer, status, {"kind": "Status", "reason": "No", "message": "not here"})
                return
        found = NAMED.match(path.replace("/v1/nodes", "/v1/namespaces/none/nodes"))
        if found is None:
            await self._say(writer, 200, _discovery(path))
        elif "watch" in query:
            await self._watch(writer, found["plural"], query)
        elif method == "GET":
            items = [item for (plural, _), item in self._objects.items() if plural == found["plural"]]
            chosen = [item for item in items if _selected(item, query)]
            # An API server answers so where partial metadata of a kind was asked for and there is none.
            listed = chosen if chosen or found["plural"] in ("pods", "nodes", "events") else None
            await self._say(writer, 200, {"metadata": {"resourceVersion": str(self._version)}, "items": listed})
        else:
            await self._change(writer, method, found, body)

    async def _change(self, writer: asyncio.StreamWriter, method: str, found: re.Match[str], body: Any) -> None:
        name = found["name"] or body["metadata"]["name"]
        uid = f"{found['plural']}-{name}"
        if method == "DELETE":
            self._delete(found["plural"], uid)
            await self._say(writer, 200, {})
            return
        old = self._objects.get((found["plural"], uid), {"metadata": {}})
        metadata = {**old["metadata"], **body.get("metadata", {}), "name": name, "uid": uid}
        made = self._put(found["plural"], {**old, **body, "metadata": metadata})
        await self._say(writer, 201 if method == "POST" else 200, made)

    async def _say(self, writer: asyncio.StreamWriter, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        date = formatdate(CLIENT.now_ns() / 1e9 + self.skew_s, usegmt=True)
        writer.write(f"HTTP/1.1 {status} X\r\nDate: {date}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        await writer.drain()

    async def _watch(self, writer: asyncio.StreamWriter, plural: str, query: dict[str, str]) -> None:
        streamed = "sendInitialEvents" in query
        if streamed and not self.watch_lists:
            await self._say(writer, 422, {"kind": "Status", "message": "sendInitialEvents is forbidden"})
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        if not streamed and int(query["resourceVersion"]) < self._oldest:
            said = f"too old resource version: {query['resourceVersion']} ({self._oldest})"
            status = {"kind": "Status", "metadata": {}, "status": "Failure", "code": 410, "reason": "Expired"}
            _line(writer, "ERROR", {**status, "message": said})
            writer.write(b"0\r\n\r\n")
            return
        watch = _Watch(plural)
        self._watches.add(watch)
        try:
            self._catch_up(writer, plural, query)
            await self._go_on(writer, watch, query)
        finally:
            self._watches.discard(watch)

    def _catch_up(self, writer: asyncio.StreamWriter, plural: str, query: dict[str, str]) -> None:
        if "sendInitialEvents" in query:
            for (kind, _), item in self._objects.items():
                if kind == plural and _selected(item, query):
                    _line(writer, "ADDED", item)
            notes = {"resourceVersion": str(self._version), "annotations": {"k8s.io/initial-events-end": "true"}}
            _line(writer, "BOOKMARK", {"metadata": notes})
        else:
            for version, what, kind, item in self._history:
                if version > int(query["resourceVersion"]) and kind == plural and _selected(item, query):
                    _line(writer, what, item)

    async def _go_on(self, writer: asyncio.StreamWriter, watch: _Watch, query: dict[str, str]) -> None:
        while True:
            await writer.drain()
            told = await watch.queue.get()
            if isinstance(told, str):
                _end(writer, told)
                await writer.drain()
                if told == "end":
                    return
                raise ConnectionError
            if _selected(told[1], query):
                _line(writer, *told)


class _Watch:
    def __init__(self, plural: str) -> None:
        self.plural = plural
        self.queue: asyncio.Queue[Any] = asyncio.Queue()


def _line(writer: asyncio.StreamWriter, what: str, item: dict[str, Any]) -> None:
    data = json.dumps({"type": what, "object": item}).encode() + b"\n"
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))


def _end(writer: asyncio.StreamWriter, how: str) -> None:
    if how == "line":
        writer.write(b'30\r\n{"type":"MODIFIED","object":{"metadata":{"na')
    elif how == "garbage":
        writer.write(b"a\r\nno object\n\r\n")
    elif how == "end":
        writer.write(b"0\r\n\r\n")


def _selected(item: dict[str, Any], query: dict[str, str]) -> bool:
    labels = item["metadata"].get("labels") or {}
    label, _, value = query.get("labelSelector", "").partition("=")
    field, _, name = query.get("fieldSelector", "").partition("=")
    return (not label or labels.get(label) == value) and (not field or item["metadata"]["name"] == name)


def _discovery(path: str) -> dict[str, Any]:
    if path == "/apis":
        groups = [version for version in KINDS if "/" in version]
        return {"groups": [{"name": each.partition("/")[0], "preferredVersion": {"groupVersion": each}, "versions": []}
                           for each in groups]}  # fmt: skip
    known = KINDS.get(path.removeprefix("/apis/").removeprefix("/api/"), {})
    return {"resources": [{"name": name, "kind": kind, "namespaced": True} for name, kind in known.items()]}
