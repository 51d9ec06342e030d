"""The LLM proxy: passes everything on as it comes, times it, and ties it to its request."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import httpx
import polars as pl
import pytest

import gpusize
from gpusize.base.errors import EnvironmentLacks
from gpusize.measure import execute
from gpusize.measure.spec import RunSpec
from gpusize.targets.workflow import call, llm_base_url
from gpusize.targets.workflow.llm_proxy import LlmProxy
from gpusize.targets.workflow.target import WorkflowTarget
from gpusize.targets.workflow.trace_ids import traceparent
from gpusize.workload.load import Load
from tests.workflow.conftest import Measure

BODY = {"model": "simulated", "messages": [{"role": "user", "content": "why"}]}
KEY = "sk-passes-through-and-is-kept-nowhere"


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with gpusize.SimulatedCluster({"gpus": 2}) as cluster:
        yield f"{cluster.url}/v1"


async def _ask(url: str, tokens: int, *, stream: bool, headers: dict[str, str] | None = None) -> bytes:
    body = {**BODY, "max_tokens": tokens, "stream": stream}
    if stream:
        body["stream_options"] = {"include_usage": True}
    async with (
        httpx.AsyncClient(timeout=30, trust_env=False) as client,
        client.stream("POST", f"{url}/chat/completions", json=body, headers=headers) as answer,
    ):
        return b"".join([piece async for piece in answer.aiter_raw()])


async def two_at_once(_question: str) -> None:
    """A streamed and a plain call at the same time."""
    url = llm_base_url() or ""
    await asyncio.gather(_ask(url, 5, stream=True), _ask(url, 3, stream=False))


def test_calls_of_requests_that_overlap_are_tied_to_theirs(measure: Measure, cluster: str) -> None:
    target = WorkflowTarget(two_at_once, gpus=2, llm_proxy=cluster)
    result = measure(target, ["a"], Load(concurrencies=(1, 8), passes=3), slos="p95 llm_latency <= 60s")
    one, eight = result.levels
    assert (one.meta["llm_proxy"]["calls"], eight.meta["llm_proxy"]["calls"]) == (6, 48)
    assert eight.meta["spans"] == 48
    assert one.meta["llm_proxy"]["unassigned"] == eight.meta["llm_proxy"]["unassigned"] == 0
    assert eight.meta["llm_proxy"]["added_p50_s"] > 0
    assert eight.calls is not None
    calls = eight.calls.collect()
    assert calls.group_by("seq").len()["len"].to_list() == [2] * 24
    assert calls["outcome"].unique().to_list() == ["ok"]
    assert calls["name"].unique().to_list() == ["simulated"]
    assert sorted(calls["tokens_out"].to_list()) == [3] * 24 + [5] * 24
    assert calls["tokens_in"].null_count() == 0
    streamed = calls.filter(tokens_out=5)
    assert (streamed["start_ns"] < streamed["first_token_ns"]).all()
    assert (streamed["first_token_ns"] <= streamed["end_ns"]).all()
    # A call lies within its request: both are stamped by one clock.
    both = calls.join(result.records.filter(visit=1), on="seq", suffix="_of_request")
    assert (both["sent_ns"] <= both["start_ns"]).all()
    assert (both["end_ns"] <= both["end_ns_of_request"]).all()
    assert result.summary["slo_0_attainment"].to_list() == [1.0, 1.0]
    assert result.summary["llm_calls"].to_list() == [6, 48]
    assert llm_base_url() is None
    assert "OPENAI_BASE_URL" not in os.environ


def test_a_marked_call_is_not_counted_twice(measure: Measure, cluster: str) -> None:
    async def marked(_question: str) -> None:
        with call("llm"):
            await _ask(llm_base_url() or "", 2, stream=False)

    result = measure(WorkflowTarget(marked, llm_proxy=cluster), ["a"], Load(concurrencies=(1,), passes=2))
    assert result.summary["llm_calls"].to_list() == [2]
    spans = pl.read_parquet(result.path / "levels" / "0000" / "spans" / "*.parquet")
    assert sorted(spans.select("seq", "kind", "call").rows()) == [
        (0, "llm", 1),
        (0, "llm-marked", 0),
        (1, "llm", 1),
        (1, "llm-marked", 0),
    ]


def test_a_workflow_that_cannot_be_changed(measure: Measure, cluster: str) -> None:
    """It reads its address from the environment and passes nothing on: one request in flight is told, several not."""

    async def unchanged(_question: str) -> None:
        await _ask(os.environ["OPENAI_BASE_URL"], 2, stream=True)

    target = WorkflowTarget(unchanged, llm_proxy=cluster)
    result = measure(target, ["a"], Load(concurrencies=(1, 4), passes=3))
    one, four = (level.meta["llm_proxy"] for level in result.levels)
    assert (one["calls"], one["unassigned"]) == (3, 0)
    assert four["calls"] + four["unassigned"] == 12
    assert four["unassigned"] > 0
    assert any("could not be tied" in alert for alert in result.summary["alerts"][1])


def test_commands_find_the_proxy_in_their_environment(measure: Measure, cluster: str) -> None:
    code = (
        "import json, os, urllib.request as u\n"
        f"body = json.dumps({{**{BODY!r}, 'max_tokens': 2}}).encode()\n"
        "head = {'content-type': 'application/json'}\n"
        "u.urlopen(u.Request(os.environ['OPENAI_BASE_URL'] + '/chat/completions', body, head)).read()\n"
    )
    command = shlex.join([sys.executable, "-c", code.replace("{", "{{").replace("}", "}}")])
    result = measure(WorkflowTarget(command=command, llm_proxy=cluster), ["a"], Load(concurrencies=(2,), passes=1))
    assert result.records["outcome"].to_list() == ["ok", "ok"]
    assert result.levels[0].calls is not None
    assert sorted(result.levels[0].calls.collect()["seq"].to_list()) == [0, 1]


class _Upstream(BaseHTTPRequestHandler):
    """Sends each piece when the test lets it, and keeps the headers that it got."""

    protocol_version = "HTTP/1.1"
    steps: threading.Semaphore
    heads: ClassVar[list[dict[str, str]]]
    left: threading.Event

    def do_POST(self) -> None:
        self.heads.append({name.lower(): value for name, value in self.headers.items()})
        self.rfile.read(int(self.headers["content-length"]))
        if self.path.endswith("/refused"):
            said = json.dumps({"error": {"message": f"bad key {self.headers['authorization']}"}}).encode()
            self.send_response(401)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for word in ("", "one", "two"):
                event = {"model": "m", "choices": [{"delta": {"role": "assistant", "content": word}}]}
                piece = f"data: {json.dumps(event)}\n\n".encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
                self.steps.acquire()
            self.wfile.write(b"0\r\n\r\n")
        except ConnectionError:
            self.left.set()

    def log_message(self, *_: Any) -> None:
        """Nothing on standard error."""


@pytest.fixture
def upstream() -> Iterator[tuple[str, type[_Upstream]]]:
    class Fresh(_Upstream):
        steps = threading.Semaphore(0)
        heads: ClassVar[list[dict[str, str]]] = []
        left = threading.Event()

    handler = Fresh
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/api/v1", handler
    finally:
        handler.steps.release(1000)
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def proxy(upstream: tuple[str, type[_Upstream]]) -> Iterator[LlmProxy]:
    made = LlmProxy(upstream[0])
    made.start()
    try:
        yield made
    finally:
        made.stop()


def _told(proxy: LlmProxy, count: int) -> list[dict[str, Any]]:
    """What the proxy has told, as soon as there are so many calls."""
    while len(proxy._calls) < count:
        proxy._sync()
    return list(proxy._calls)


def test_pieces_are_passed_on_as_they_come(proxy: LlmProxy, upstream: tuple[str, type[_Upstream]]) -> None:
    handler = upstream[1]
    headers = {"Authorization": f"Bearer {KEY}", "traceparent": traceparent(3, 41), "Accept-Encoding": "gzip"}
    with (
        httpx.Client(timeout=30, trust_env=False) as client,
        client.stream("POST", f"{proxy.base_url()}/chat/completions", json=BODY, headers=headers) as answer,
    ):
        lines = answer.iter_lines()
        words = []
        for line in lines:
            if line:
                # The next piece is sent only after this one has been read here: nothing was held back on the way.
                words.append(json.loads(line.removeprefix("data: "))["choices"][0]["delta"]["content"])
                handler.steps.release()
    assert words == ["", "one", "two"]
    [seen] = _told(proxy, 1)
    assert seen["key"] == [3, 0, 41]
    assert (seen["name"], seen["outcome"], seen["status"], seen["kind"]) == ("m", "ok", 200, "llm")
    # The first event has a role and no content.
    assert seen["start_ns"] < seen["first_token_ns"] < seen["end_ns"]
    [head] = handler.heads
    assert head["authorization"] == f"Bearer {KEY}"
    assert head["accept-encoding"] == "identity"
    assert head["content-length"] == str(len(json.dumps(BODY, separators=(",", ":"))))


def test_what_the_upstream_refuses_is_passed_on_and_no_key_is_told(
    proxy: LlmProxy, upstream: tuple[str, type[_Upstream]]
) -> None:
    url, headers = f"{proxy.base_url()}/refused", {"Authorization": f"Bearer {KEY}"}
    with httpx.Client(timeout=30, trust_env=False) as client:
        answers = [client.post(url, json=BODY, headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [401, 401]
    assert answers[0].json()["error"]["message"] == f"bad key Bearer {KEY}"
    told = _told(proxy, 2)
    assert [each["outcome"] for each in told] == ["http_error", "http_error"]
    assert KEY not in json.dumps(told)


def test_a_client_that_leaves_ends_the_call_upstream(proxy: LlmProxy, upstream: tuple[str, type[_Upstream]]) -> None:
    handler = upstream[1]
    with (
        httpx.Client(timeout=30, trust_env=False) as client,
        client.stream("POST", f"{proxy.base_url()}/chat/completions", json=BODY) as answer,
    ):
        next(answer.iter_raw())
    [seen] = _told(proxy, 1)
    assert seen["outcome"] == "truncated"
    while not handler.left.is_set():
        handler.steps.release()


def test_an_upstream_that_is_not_there_is_told_as_an_error() -> None:
    proxy = LlmProxy("http://127.0.0.1:9/v1")
    proxy.start()
    try:
        with httpx.Client(timeout=30, trust_env=False) as client:
            answer = client.post(f"{proxy.base_url()}/chat/completions", json=BODY)
        assert answer.status_code == 502
        assert "cannot be reached" in answer.json()["error"]["message"]
        assert _told(proxy, 1)[0]["outcome"] == "connect_error"
    finally:
        proxy.stop()


def test_a_port_that_is_taken_is_told(upstream: tuple[str, type[_Upstream]]) -> None:
    taken = int(upstream[0].partition("//")[2].partition("/")[0].rpartition(":")[2])
    proxy = LlmProxy(upstream[0], port=taken)
    with pytest.raises(EnvironmentLacks, match=f"port {taken} cannot be opened"):
        proxy.start()
    proxy.stop()


def test_keys_are_in_no_file(measure: Measure, cluster: str, tmp_path: Path) -> None:
    async def with_key(_question: str) -> None:
        await _ask(llm_base_url() or "", 2, stream=False, headers={"Authorization": f"Bearer {KEY}"})

    measure(WorkflowTarget(with_key, llm_proxy=cluster), ["a"], Load(concurrencies=(1,), passes=1))
    files = [file for file in (tmp_path / "runs").rglob("*") if file.is_file()]
    assert len(files) > 5
    assert not [file for file in files if KEY.encode() in file.read_bytes()]


class _WorkflowServer(BaseHTTPRequestHandler):
    """A workflow that is a server: asks its model once for every request, and passes no trace on."""

    protocol_version = "HTTP/1.1"
    model: str

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        with httpx.Client(timeout=30, trust_env=False) as client:
            client.post(f"{self.model}/chat/completions", json={**BODY, "max_tokens": 2}).raise_for_status()
        said = b'{"value": "done"}'
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: Any) -> None:
        """Nothing on standard error."""


def test_calls_of_a_workflow_that_is_a_server_are_tied_while_it_has_one_request(tmp_path: Path, cluster: str) -> None:
    proxy = LlmProxy(cluster)
    proxy.start()

    class Here(_WorkflowServer):
        model = proxy.base_url()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Here)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        request = RunSpec(
            target=gpusize.Target(f"http://127.0.0.1:{server.server_port}/ask", api="generic"),
            dataset=gpusize.Dataset.from_rows([{"body": {"q": "why"}}]),
            load=Load(concurrencies=(1,), passes=4),
            out=tmp_path / "runs",
            observers=(proxy,),
        )
        result = execute.execute(request)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        proxy.stop()
    assert result.records["outcome"].to_list() == ["ok"] * 4
    facts = result.levels[0].meta["llm_proxy"]
    assert (facts["calls"], facts["unassigned"]) == (4, 0)
    assert result.summary["llm_calls"].to_list() == [4]
    runtime, latency = (result.levels[0].quantile(name, 0.5) or 0.0 for name in ("runtime", "llm_latency"))
    assert 0 < latency < runtime
