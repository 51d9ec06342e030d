"""llama.cpp, a server that nobody here wrote: every event and content as a straightforward client gets them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import httpx
import polars as pl
import pytest

from gpusize.records.schema import SERVER_TIMES
from tests.peers.sizing import Gpusize, Sized
from tests.peers.wire import Event, events, exchanges
from tests.servers.llama import MODEL, LlamaServer
from tests.servers.tap import Tap

Tapped = Callable[[int], Tap]

# Random weights answer with random bytes: some prompts begin with half a character, which is an event without text.
PROMPTS = ["abc def", "hello there", "gpusize", "x", "the quick brown fox", "zzz"]
KINDS = {"completions": ("/completions", "openai-completions"), "chat": ("/chat/completions", "openai-chat")}
WISHES = {"temperature": 0.0, "max_tokens": 40, "seed": 7}


def body(kind: str, prompt: str, **more: Any) -> dict[str, Any]:
    asked = {"messages": [{"role": "user", "content": prompt}]} if kind == "chat" else {"prompt": prompt}
    return {"model": MODEL, **asked, **WISHES, **more}


def text(kind: str, event: dict[str, Any]) -> str:
    """What an event adds to the answer."""
    (choice,) = event["choices"]
    return str((choice["delta"].get("content") if kind == "chat" else choice["text"]) or "")


def straightforward(server: LlamaServer, kind: str, prompt: str) -> list[str]:
    """The texts of all events of a stream, by a client of ten lines."""
    found = []
    with httpx.stream(
        "POST", f"{server.url}{KINDS[kind][0]}", json=body(kind, prompt, stream=True), timeout=60
    ) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                found.append(text(kind, json.loads(line.removeprefix("data: "))))
            elif line.startswith("data:"):
                assert line == "data: [DONE]"
    return found


@dataclass(frozen=True)
class Streams:
    """What the server told gpusize, stream by stream, beside gpusize's records of them."""

    streams: list[list[Event]]
    records: pl.DataFrame


def sized(sizing: Gpusize, port: int, kind: str, *argv: str) -> Sized:
    path = sizing.folder / "prompts.json"
    path.write_text(json.dumps([{"prompt": prompt} for prompt in PROMPTS]), encoding="utf-8")
    target = ("--url", f"http://127.0.0.1:{port}/v1", "--api", KINDS[kind][1], "--model", MODEL, "--dataset", path)
    wishes = ("--temperature", "0", "--max-tokens", "40", "--extra-body", '{"seed": 7}')
    load = ("--concurrencies", "1", "--count", str(len(PROMPTS)), "--metrics-url", "none")
    return sizing.run(*target, *wishes, *load, *argv)


def measure(sizing: Gpusize, server: LlamaServer, tapped: Tapped, kind: str, *argv: str) -> Streams:
    """One stream per prompt at concurrency 1; the request that gpusize sends before it starts is left out."""
    tap = tapped(server.port)
    done = sized(sizing, tap.port, kind, *argv)
    tap.close()
    assert done.code == 0, done.err
    by_id: dict[str, list[Event]] = {}
    for connection in tap.connections:
        for event in events(connection.answered):
            by_id.setdefault(event.content["id"], []).append(event)
    return Streams(list(by_id.values())[1:], done.records)


def contents(kind: str, stream: Sequence[Event]) -> list[Event]:
    return [event for event in stream if text(kind, event.content)]


@pytest.mark.parametrize("kind", KINDS)
def test_events_and_contents_are_those_of_a_straightforward_client(
    kind: str, llama: LlamaServer, tapped: Tapped, sizing: Gpusize
) -> None:
    theirs = [straightforward(llama, kind, prompt) for prompt in PROMPTS]
    ours = measure(sizing, llama, tapped, kind)
    assert [[text(kind, event.content) for event in stream] for stream in ours.streams] == theirs
    assert ours.records["outcome"].cast(str).to_list() == ["ok"] * len(PROMPTS)
    assert ours.records["events"].to_list() == [sum(map(bool, texts)) for texts in theirs]
    assert any("" in texts[: texts.index(next(filter(None, texts)))] for texts in theirs), "no event without text first"
    # This server does not report usage in a stream, also when asked for it: unknown, not guessed.
    assert ours.records["tokens_out"].to_list() == [None] * len(PROMPTS)


@pytest.mark.parametrize("kind", KINDS)
def test_no_stamp_is_earlier_than_its_event(kind: str, llama: LlamaServer, tapped: Tapped, sizing: Gpusize) -> None:
    ours = measure(sizing, llama, tapped, kind, "--record-events")
    for stream, row in zip(ours.streams, ours.records.to_dicts(), strict=True):
        passed = [event.passed_ns for event in contents(kind, stream)]
        stamps = row["events_ns"]
        assert len(stamps) == len(passed) == row["events"]
        assert all(stamp > at for stamp, at in zip(stamps, passed, strict=True))
        assert stamps == sorted(stamps)
        assert (stamps[0], stamps[-1]) == (row["first_token_ns"], row["last_token_ns"])
        gaps = sorted(b - a for a, b in pairwise(stamps))
        assert (row["itl_min_ns"], row["itl_max_ns"]) == (gaps[0], gaps[-1])


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_token_is_not_an_event_without_text(
    kind: str, llama: LlamaServer, tapped: Tapped, sizing: Gpusize
) -> None:
    ours = measure(sizing, llama, tapped, kind)
    for stream, row in zip(ours.streams, ours.records.to_dicts(), strict=True):
        found = contents(kind, stream)
        assert row["first_token_ns"] > found[0].passed_ns
        assert row["last_token_ns"] > found[-1].passed_ns
        assert row["first_byte_ns"] <= row["first_token_ns"] <= row["last_token_ns"] <= row["end_ns"]


@pytest.mark.parametrize("kind", KINDS)
def test_whole_answers_and_their_usage(kind: str, llama: LlamaServer, tapped: Tapped, sizing: Gpusize) -> None:
    path = KINDS[kind][0]
    theirs = [httpx.post(f"{llama.url}{path}", json=body(kind, prompt), timeout=60).json() for prompt in PROMPTS]
    tap = tapped(llama.port)
    records = sized(sizing, tap.port, kind, "--no-stream").records
    tap.close()
    ours = exchanges(tap)[1:]
    assert [{"stream": False, **exchange.sent} for exchange in ours] == [
        body(kind, prompt, stream=False) for prompt in PROMPTS
    ]
    assert [exchange.got["choices"] for exchange in ours] == [answer["choices"] for answer in theirs]
    # Nor does it say how long it took, as llama-server does: unknown, not guessed.
    assert not any("timings" in answer for answer in theirs)
    assert records.select(SERVER_TIMES).null_count().row(0) == (len(PROMPTS),) * 2
    for column, name in (("tokens_in", "prompt_tokens"), ("tokens_out", "completion_tokens")):
        assert records[column].to_list() == [answer["usage"][name] for answer in theirs]


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_that_is_too_long(kind: str, llama: LlamaServer, sizing: Gpusize) -> None:
    path, api = KINDS[kind]
    prompt = "x " * 4000
    whole = httpx.post(f"{llama.url}{path}", json=body(kind, prompt), timeout=60)
    stream = httpx.post(f"{llama.url}{path}", json=body(kind, prompt, stream=True), timeout=60)
    # Asked for a stream, this server says 200, then nothing at all, and the end: no error that a client could read.
    assert (whole.status_code, stream.status_code, stream.content) == (400, 200, b"")
    wanted = ("--url", llama.url, "--api", api, "--model", MODEL, "--prompt", prompt, "--concurrencies", "1")
    refused = sizing.run(*wanted, "--no-stream")
    assert refused.code == 3
    assert "maximum context length is 2048 tokens" in whole.json()["error"]["message"]
    assert "maximum context length is 2048 tokens" in refused.complaint
    cut = sizing.run(*wanted)
    assert cut.code == 3
    assert "ended without its end marker" in cut.complaint
