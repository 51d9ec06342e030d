"""One client that watches the pods of ``benches.programs.watch_server``, and what that took.

``python -m benches.programs.watch_client WHO KUBECONFIG EVENTS FOLDER`` prints JSON: the events, seconds and CPU
seconds from the first of them to the last, and the peak of this process's resident memory. WHO:

    gpusize      everything that `gpusize cluster sample --follow` does with a pod's events: decoded, stamped, written
    httpx2       the same, but the bytes come through httpx2's stream
    lightkube    ``Client.watch``, its typed pods counted
    kubernetes   the official client's raw watch, each line by ``json.loads``
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gpusize.cluster.access.sign_in import Access


class Stopwatch:
    """Time and CPU time since the first event."""

    def __init__(self) -> None:
        self._began: tuple[float, float] | None = None

    def first(self) -> None:
        """Now, unless it has begun."""
        if self._began is None:
            self._began = (time.perf_counter(), time.process_time())

    def seconds(self) -> tuple[float, float]:
        """Both, until now."""
        assert self._began is not None
        return time.perf_counter() - self._began[0], time.process_time() - self._began[1]


async def ours(kubeconfig: str, events: int, folder: Path) -> tuple[float, float]:
    """Our own feed, book and tables; what is stamped is written once a second."""
    from gpusize.cluster.access.api import Resource, connect
    from gpusize.cluster.watch.feed import Feed
    from gpusize.cluster.watch.kinds import Watched
    from gpusize.cluster.watch.stamp_book import StampBook

    watch = Stopwatch()
    async with connect(kubeconfig) as api:
        book = StampBook(folder, ["Pod"])
        feed = Feed(api, Watched(Resource("v1", "Pod", "pods", namespaced=True)), "record", book)
        task = asyncio.create_task(feed.follow())
        flushed = time.perf_counter()
        while feed.lines < events:
            await asyncio.sleep(0.001)
            if feed.lines:
                watch.first()
            if time.perf_counter() - flushed >= 1:
                flushed = time.perf_counter()
                await book.flush()
        await book.flush(last=True)
        took = watch.seconds()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return took


async def through_httpx2(kubeconfig: str, events: int, folder: Path) -> tuple[float, float]:
    """Ours, with the lines from httpx2."""
    import httpx2

    from gpusize.cluster.access.refused import KubeRefused
    from gpusize.cluster.clock import CLIENT
    from gpusize.cluster.watch import feed

    @asynccontextmanager
    async def lines(access: Access, path: str, params: Any, **_: Any) -> AsyncIterator[Any]:
        async def split(pieces: AsyncIterator[bytes]) -> AsyncIterator[tuple[int, bytes]]:
            rest = b""
            async for piece in pieces:
                come = rest + piece
                end = come.rfind(b"\n") + 1
                lines, rest = come[:end], come[end:]
                yield CLIENT.now_ns(), lines

        asked = {"Accept": "application/json", "Accept-Encoding": "identity"}
        async with (
            httpx2.AsyncClient(base_url=access.server, verify=access.tls, auth=access.auth, timeout=None) as client,
            client.stream("GET", path, params=dict(params), headers=asked) as answer,
        ):
            if answer.status_code >= 400:
                raise KubeRefused.answered(answer.status_code, await answer.aread(), path)
            yield split(answer.aiter_raw())

    setattr(feed, "open_lines", lines)  # noqa: B010 - in place of our own
    return await ours(kubeconfig, events, folder)


def lightkube(kubeconfig: str, events: int) -> tuple[float, float]:
    """lightkube's own watch."""
    from lightkube import Client, KubeConfig
    from lightkube.resources.core_v1 import Pod

    client = Client(config=KubeConfig.from_file(kubeconfig), namespace="record")
    watch = Stopwatch()
    for seen, _ in enumerate(client.watch(Pod, resource_version="1"), 1):
        watch.first()
        if seen == events:
            break
    return watch.seconds()


def kubernetes(kubeconfig: str, events: int) -> tuple[float, float]:
    """The official client, without its models."""
    from kubernetes import client, config

    config.load_kube_config(kubeconfig)
    core = client.CoreV1Api()
    asked: dict[str, Any] = {"watch": True, "resource_version": "1", "_preload_content": False}
    answer: Any = core.list_namespaced_pod("record", **asked)
    watch, seen, rest = Stopwatch(), 0, b""
    for piece in answer.stream(amt=None, decode_content=False):
        watch.first()
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            json.loads(line)
            seen += 1
        if seen >= events:
            break
    return watch.seconds()


def main(who: str, kubeconfig: str, events: str, folder: str) -> None:
    """One turn."""
    gc.set_threshold(50_000, 20, 50)  # as gpusize's command line has it
    wanted = int(events)
    if who in ("gpusize", "httpx2"):
        seconds, cpu_s = asyncio.run((ours if who == "gpusize" else through_httpx2)(kubeconfig, wanted, Path(folder)))
    else:
        seconds, cpu_s = {"lightkube": lightkube, "kubernetes": kubernetes}[who](kubeconfig, wanted)
    rss_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"events": wanted, "seconds": seconds, "cpu_s": cpu_s, "rss_mib": rss_mib}))


if __name__ == "__main__":
    main(*sys.argv[1:])
