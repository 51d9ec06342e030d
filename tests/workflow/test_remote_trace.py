"""A workflow that is a server and passes traces on: calls of requests that overlap are tied to theirs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

import gpusize
from gpusize.base.errors import UsageError
from gpusize.measure import execute
from gpusize.measure.encode import prepare
from gpusize.measure.spec import RunSpec
from gpusize.result import Result
from gpusize.targets.workflow.llm_proxy import LlmProxy
from gpusize.targets.workflow.trace_ids import key_of_traceparent
from gpusize.workload.dataset import Dataset
from gpusize.workload.load import Load

CONCURRENCY = 4
PASSES = 4
QUESTIONS = [{"body": {"q": "why", "tokens": tokens}} for tokens in (2, 3, 5, 7)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with gpusize.SimulatedCluster({"gpus": 2}) as cluster:
        yield f"{cluster.url}/v1"


class _Workflow:
    """Asks its model twice at once for every request, with the header that the request came with.

    Requests of a level are held until so many are there as are sent at once: then no call can be tied by being alone.
    """

    def __init__(self, model: str) -> None:
        self.model = model
        self.heard: list[str] = []
        self._together = asyncio.Barrier(CONCURRENCY)
        self._client = httpx.AsyncClient(timeout=30, trust_env=False)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await self._head(reader):
                asked = json.loads(await reader.readexactly(int(head["content-length"])))
                said = await self._answer(head.get("traceparent", ""), asked["tokens"])
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n" % len(said))
                writer.write(b"Content-Type: application/json\r\n\r\n" + said)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def close(self) -> None:
        await self._client.aclose()

    async def _head(self, reader: asyncio.StreamReader) -> dict[str, str]:
        with contextlib.suppress(asyncio.IncompleteReadError):
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:-2]
            return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return {}

    async def _answer(self, trace: str, tokens: int) -> bytes:
        self.heard.append(trace)
        key = key_of_traceparent(trace)
        # The first request goes alone, before the load.
        if key is not None and key.visit == 0:
            await self._together.wait()
        await asyncio.gather(self._ask(trace, tokens, stream=False), self._ask(trace, tokens + 10, stream=True))
        return b'{"value": "done"}'

    async def _ask(self, trace: str, tokens: int, *, stream: bool) -> None:
        body = {"model": "simulated", "messages": [{"role": "user", "content": "why"}], "max_tokens": tokens}
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        headers = {"traceparent": trace}
        answer = await self._client.post(f"{self.model}/chat/completions", json=body, headers=headers)
        answer.raise_for_status()


@contextlib.contextmanager
def _serving(model: str) -> Iterator[tuple[str, _Workflow]]:
    """The workflow on a loop of its own: its address, and itself."""
    loop = asyncio.new_event_loop()
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = loop.create_task(workflow.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def up() -> tuple[asyncio.Server, _Workflow]:
        return await asyncio.start_server(connected, "127.0.0.1", 0), _Workflow(model)

    async def down() -> None:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await workflow.close()

    server, workflow = loop.run_until_complete(up())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/ask", workflow
    finally:
        asyncio.run_coroutine_threadsafe(down(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _run(url: str, proxy: LlmProxy, out: Path) -> Result:
    return execute.execute(
        RunSpec(
            target=gpusize.Target(url, api="generic", timeout_s=60),
            dataset=Dataset.from_rows(QUESTIONS),
            load=Load(concurrencies=(CONCURRENCY,), passes=PASSES),
            out=out,
            observers=(proxy,),
        )
    )


def test_every_call_of_requests_that_overlap_is_tied_to_its_own(tmp_path: Path, cluster: str) -> None:
    proxy = LlmProxy(cluster)
    proxy.start()
    try:
        with _serving(proxy.base_url()) as (url, workflow):
            result = _run(url, proxy, tmp_path / "runs")
    finally:
        proxy.stop()
    requests = len(result.records)
    assert requests % CONCURRENCY == 0
    assert requests >= CONCURRENCY * PASSES
    assert result.records["outcome"].to_list() == ["ok"] * requests
    facts = result.levels[0].meta["llm_proxy"]
    assert (facts["calls"], facts["unassigned"]) == (2 * requests, 0)
    assert result.levels[0].calls is not None
    calls = result.levels[0].calls.collect()
    assert calls["outcome"].unique().to_list() == ["ok"]
    # What each request asked for says whose its calls are.
    asked = result.records.select("seq", "row", "sent_ns", "end_ns")
    tied = calls.join(asked, on="seq", suffix="_of_request")
    assert len(tied) == 2 * requests
    for row, tokens in tied.group_by("row").agg("tokens_out").iter_rows():
        plain = QUESTIONS[row]["body"]["tokens"]
        assert Counter(tokens) == {plain: len(tokens) // 2, plain + 10: len(tokens) // 2}
    assert (tied["sent_ns"] <= tied["start_ns"]).all()
    assert (tied["end_ns"] <= tied["end_ns_of_request"]).all()
    # The engine's requests said which one they are: each of the level once, beside the one before it.
    keys = [key_of_traceparent(trace) for trace in workflow.heard]
    assert None not in keys
    seqs = sorted(key.seq for key in keys if key is not None and key.visit == 0)
    assert seqs == sorted(result.records["seq"].to_list())


def _spec(
    proxies: tuple[LlmProxy, ...], open_engine: Callable[..., object], headers: dict[str, str]
) -> dict[str, object]:
    """What the engine is opened with."""
    specs: list[dict[str, object]] = []

    def engine(spec: dict[str, object], *_: object, **__: object) -> None:
        specs.append(spec)

    request = RunSpec(
        target=gpusize.Target("http://127.0.0.1:9/ask", api="generic", headers=headers),
        dataset=Dataset.from_rows(QUESTIONS),
        load=Load(concurrencies=(1,), passes=1),
        observers=proxies,
    )
    open_engine(request, engine)
    return specs[0]


def test_requests_are_traced_only_beside_a_proxy() -> None:
    proxy = LlmProxy("http://127.0.0.1:9/v1")
    assert not _spec((), execute._open_engine, {}).get("trace", False)
    assert _spec((proxy,), execute._open_engine, {})["trace"] is True


def test_a_traceparent_of_the_users_own_is_refused_beside_a_proxy() -> None:
    target = gpusize.Target("http://127.0.0.1:9/ask", api="generic", headers={"Traceparent": "00-1-2-01"})
    ready = prepare(target, Dataset.from_rows(QUESTIONS), trace=True)
    with pytest.raises(UsageError, match="traceparent"):
        gpusize.engine.session.Engine(ready.spec, ready.segments, ready.rows)
