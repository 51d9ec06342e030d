"""The ``openai`` package and gpusize get the same answers from the same simulated cluster, and count them alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import gpusize
from tests.peers.calls import Programs
from tests.peers.sizing import Gpusize, Sized
from tests.peers.wire import Exchange, exchanges
from tests.servers.tap import Tap

Cluster = Callable[..., gpusize.SimulatedCluster]
Tapped = Callable[[int], Tap]

QUICK = {"iteration_base_s": 0.0005, "iteration_per_sequence_s": 0.0, "prefill_per_token_s": 0.0}
SEED = 14
"""With it some requests fail, and not the first."""
PROMPTS = ["a", "two words", "é and ü and 語", 'with "quotes" and \\', "a longer one " * 40, "last"]
FIELDS = {"chat": "messages", "completions": "prompt", "responses": "input"}
APIS = {kind: f"openai-{kind}" for kind in (*FIELDS, "embeddings")}
# What the same counts are called in the answers.
TOKENS = {
    "chat": {"tokens_in": "prompt_tokens", "tokens_out": "completion_tokens"},
    "completions": {"tokens_in": "prompt_tokens", "tokens_out": "completion_tokens"},
    "responses": {"tokens_in": "input_tokens", "tokens_out": "output_tokens"},
}


def port_of(cluster: gpusize.SimulatedCluster) -> int:
    return int(urlsplit(cluster.url).port or 0)


def body(kind: str, prompt: str, **more: Any) -> dict[str, Any]:
    asked = [{"role": "user", "content": prompt}] if kind == "chat" else prompt
    return {"model": "simulated", FIELDS[kind]: asked, **more}


def dataset(folder: Path) -> Path:
    path = folder / "prompts.json"
    path.write_text(json.dumps([{"prompt": prompt} for prompt in PROMPTS]), encoding="utf-8")
    return path


def sized(sizing: Gpusize, port: int, kind: str, *argv: str) -> Sized:
    """One round through the prompts, one at a time; the engine's first request stands before them."""
    url = f"http://127.0.0.1:{port}/v1"
    load = ("--concurrencies", "1", "--count", str(len(PROMPTS)), "--metrics-url", "none")
    target = ("--url", url, "--api", APIS[kind], "--model", "simulated", "--dataset", dataset(sizing.folder))
    return sizing.run(*target, *load, *argv)


def called(program: Programs, cluster: gpusize.SimulatedCluster, kind: str, **more: Any) -> list[dict[str, Any]]:
    """The same through ``openai``: the first prompt twice, as gpusize asks once before it starts."""
    calls = [{"kind": kind, "body": body(kind, prompt, **more)} for prompt in (PROMPTS[0], *PROMPTS)]
    answers: list[dict[str, Any]] = program("openai_calls.py", {"base_url": f"{cluster.url}/v1", "calls": calls})
    return answers


def texts(kind: str, exchange: Exchange) -> list[str]:
    """What a user sees of an answer that came whole."""
    if kind == "responses":
        return [part["text"] for item in exchange.got["output"] for part in item.get("content", [])]
    choice = exchange.got["choices"][0]
    return [choice["message"]["content"] if kind == "chat" else choice["text"]]


def streamed(kind: str, exchange: Exchange) -> list[str]:
    """The content events of an answer that was a stream."""
    if kind == "responses":
        return [event["delta"] for event in exchange.events if event["type"] == "response.output_text.delta"]
    choices = [choice for event in exchange.events for choice in event["choices"]]
    found = [choice["delta"].get("content") if kind == "chat" else choice["text"] for choice in choices]
    return [each for each in found if each]


@pytest.mark.parametrize("kind", FIELDS)
def test_streams(kind: str, cluster: Cluster, tapped: Tapped, sizing: Gpusize, program: Programs) -> None:
    config = {**QUICK, "seed": 11, "output_tokens": {"uniform": {"min_tokens": 1, "max_tokens": 40}}}
    wishes = {} if kind == "responses" else {"stream_options": {"include_usage": True}}
    theirs = called(program, cluster(**config), kind, stream=True, **wishes)
    tap = tapped(port_of(cluster(**config)))
    records = sized(sizing, tap.port, kind).records
    tap.close()
    assert [answer["texts"] for answer in theirs] == [streamed(kind, exchange) for exchange in exchanges(tap)]
    assert records["outcome"].cast(str).to_list() == ["ok"] * len(PROMPTS)
    assert records["events"].to_list() == [len(answer["texts"]) for answer in theirs[1:]]
    for column, name in TOKENS[kind].items():
        assert records[column].to_list() == [answer["usage"][name] for answer in theirs[1:]]
    assert {answer["finish"] for answer in theirs} <= {"stop", "length", "completed"}


@pytest.mark.parametrize("kind", FIELDS)
def test_whole_answers(kind: str, cluster: Cluster, tapped: Tapped, sizing: Gpusize, program: Programs) -> None:
    config = {**QUICK, "seed": 12, "output_tokens": {"uniform": {"min_tokens": 1, "max_tokens": 40}}}
    bound = "max_output_tokens" if kind == "responses" else "max_tokens"
    theirs = called(program, cluster(**config), kind, **{bound: 25})
    tap = tapped(port_of(cluster(**config)))
    records = sized(sizing, tap.port, kind, "--no-stream", "--max-tokens", "25").records
    tap.close()
    ours = exchanges(tap)
    assert [answer["texts"] for answer in theirs] == [texts(kind, exchange) for exchange in ours]
    assert [body(kind, prompt, **{bound: 25}) for prompt in (PROMPTS[0], *PROMPTS)] == [
        {name: value for name, value in exchange.sent.items() if name in {"model", FIELDS[kind], bound}}
        for exchange in ours
    ]
    for column, name in TOKENS[kind].items():
        assert records[column].to_list() == [answer["usage"][name] for answer in theirs[1:]]


def test_embeddings(cluster: Cluster, tapped: Tapped, sizing: Gpusize, program: Programs) -> None:
    server = cluster(**QUICK)
    calls = [{"kind": "embeddings", "body": {"model": "simulated", "input": prompt}} for prompt in PROMPTS]
    theirs = program("openai_calls.py", {"base_url": f"{server.url}/v1", "calls": calls})
    tap = tapped(port_of(server))
    records = sized(sizing, tap.port, "embeddings").records
    tap.close()
    ours = [exchange.got for exchange in exchanges(tap)[1:]]
    for answer, told in zip(theirs, ours, strict=True):
        (vector,), (item,) = answer["vectors"], told["data"]
        assert vector == pytest.approx(item["embedding"], abs=1e-6)
    assert records["tokens_in"].to_list() == [answer["usage"]["prompt_tokens"] for answer in theirs]
    assert records["outcome"].cast(str).to_list() == ["ok"] * len(PROMPTS)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "fault, outcomes", [("fail_rate", {"http_error"}), ("reset_rate", {"protocol_error", "truncated"})]
)
def test_the_same_requests_fail(
    stream: bool, fault: str, outcomes: set[str], cluster: Cluster, sizing: Gpusize, program: Programs
) -> None:
    config = {**QUICK, "seed": SEED, "faults": {fault: 0.4}}
    theirs = called(program, cluster(**config), "chat", stream=stream)
    assert "error" not in theirs[0], "the seed must let the first request through, else gpusize does not start"
    wanted = ("--max-error-rate", "1", *(() if stream else ("--no-stream",)))
    records = sized(sizing, port_of(cluster(**config)), "chat", *wanted).records
    ours = [None if outcome == "ok" else outcome for outcome in records["outcome"].cast(str)]
    assert [outcome is None for outcome in ours] == ["error" not in answer for answer in theirs[1:]]
    assert {outcome for outcome in ours if outcome} <= outcomes
    assert any(ours), "the seed must let some fail"
    if fault == "fail_rate":
        failed = [answer for answer in theirs[1:] if "error" in answer]
        assert {answer["error"] for answer in failed} == {"InternalServerError"}
        assert {row["status"] for row in records.filter(records["outcome"].cast(str) != "ok").to_dicts()} == {500}


def test_a_refusal_is_told_in_the_servers_words(
    cluster: Cluster, tapped: Tapped, sizing: Gpusize, program: Programs
) -> None:
    server = cluster(**QUICK)
    call = {"kind": "chat", "body": body("chat", "x", max_tokens=-1)}
    (refused,) = program("openai_calls.py", {"base_url": f"{server.url}/v1", "calls": [call]})
    assert (refused["error"], refused["status"]) == ("BadRequestError", 400)
    tap = tapped(port_of(server))
    done = sized(sizing, tap.port, "chat", "--extra-body", '{"max_tokens": -1}')
    tap.close()
    assert done.code == 3
    (exchange,) = exchanges(tap)
    said = exchange.got["error"]["message"]
    assert said in refused["message"]
    assert "400" in done.complaint
    assert said in done.complaint
