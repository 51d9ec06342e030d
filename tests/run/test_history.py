"""Conversations that go on with what the server answered: over the wire, as the server gets them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest

import gpusize
from gpusize.base.errors import UsageError
from gpusize.cli import invoke
from gpusize.targets.apis import History
from gpusize.targets.simulated.cluster import SimulatedCluster
from tests.servers.scripted import Close, Request, ScriptedServer, Send, Step, answer

JSON = ["Content-Type: application/json"]
EVENTS = ["Content-Type: text/event-stream", "Connection: close"]
TURNS = 3


def said(first: str, turn: int) -> str:
    """What the server says in a turn of the conversation that began with ``first``."""
    return f'{first}/{turn}: "quoted" \\ <b>\n\té😀\u2028\x01 </think>'


def opening(body: dict[str, Any]) -> tuple[str, int]:
    """How a conversation began, and the turn that a request is, by its own messages."""
    asked = [each["content"] for each in body["messages"] if each["role"] == "user"]
    return asked[0], len(asked) - 1


def streamed(text: str) -> bytes:
    """An answer as events: a role, reasoning, a delta for each character, usage, the end."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, {"reasoning_content": 'let me "think"'}]
    events = [json.dumps({"choices": [{"delta": delta}]}) for delta in deltas]
    # As servers write them: escaped, or as they are; both halves of a pair in one event.
    events += [
        json.dumps({"choices": [{"delta": {"content": character}}]}, ensure_ascii=number % 2 == 0)
        for number, character in enumerate(text)
    ]
    events += [json.dumps({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": len(text)}}), "[DONE]"]
    return "".join(f"data: {event}\n\n" for event in events).encode()


def chat(request: Request) -> Sequence[Step]:
    body = json.loads(request.body)
    text = said(*opening(body))
    if body["stream"]:
        # The end of the connection ends the answer; small pieces cut lines, characters and escapes.
        return [Send(answer(streamed(text), headers=EVENTS, length=False), piece=61), Close()]
    whole = {"choices": [{"message": {"role": "assistant", "reasoning_content": "hm", "content": text}}]}
    return [Send(answer(json.dumps(whole).encode(), headers=JSON))]


def talks(path: Path, names: Sequence[str], *, whole: bool) -> Path:
    """Conversations as a ShareGPT file, or as rows with what is new in each turn."""
    if whole:
        rows: list[dict[str, Any]] = [
            {
                "id": name,
                "conversations": [
                    {"from": "gpt" if number % 2 else "human", "value": f"recorded {number}" if number else name}
                    for number in range(2 * TURNS)
                ],
            }
            for name in names
        ]
        path.write_text(json.dumps(rows), "utf-8")
        return path
    lines = [
        {"session": name, "prompt": name if turn == 0 else f"recorded {2 * turn}"}
        for turn in range(TURNS)
        for name in names
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def histories(server: ScriptedServer) -> dict[str, list[list[dict[str, str]]]]:
    """The messages of each conversation's requests, in the order of arrival; without the probe."""
    found: dict[str, list[list[dict[str, str]]]] = {}
    for request in server.requests[1:]:
        body = json.loads(request.body)
        found.setdefault(opening(body)[0], []).append(body["messages"])
    return found


def expected(name: str, turn: int) -> list[dict[str, str]]:
    messages = [{"role": "user", "content": name}]
    for earlier in range(turn):
        messages += [
            {"role": "assistant", "content": said(name, earlier)},
            {"role": "user", "content": f"recorded {2 * earlier + 2}"},
        ]
    return messages


@pytest.mark.parametrize("whole", [True, False], ids=["sharegpt", "rows"])
@pytest.mark.parametrize("stream", ["--stream", "--no-stream"])
def test_a_run_repeats_what_the_server_said(
    scripted_server: Callable[..., ScriptedServer], tmp_path: Path, stream: str, *, whole: bool
) -> None:
    server = scripted_server(chat)
    names = ["a", "b", 'c "d"']
    rows = talks(tmp_path / ("talks.json" if whole else "talks.jsonl"), names, whole=whole)
    # fmt: off
    words = [
        "run", "--url", f"http://127.0.0.1:{server.port}/v1", stream, "--dataset", str(rows), "--sessions",
        "--history", "answers", "--concurrencies", "2", "--count", "3", "--metrics-url", "none", "--quiet",
        "--out", str(tmp_path / "runs"),
    ]
    # fmt: on
    assert invoke(words) == 0
    found = histories(server)
    assert sorted(found) == sorted(names)
    for name in names:
        assert found[name] == [expected(name, turn) for turn in range(TURNS)]
    [run] = (tmp_path / "runs").iterdir()
    assert json.loads((run / "run.json").read_text("utf-8"))["options"]["history"] == "answers"


def test_after_a_turn_that_failed_nothing_is_made_up(
    scripted_server: Callable[..., ScriptedServer], tmp_path: Path
) -> None:
    def failing(request: Request) -> Sequence[Step]:
        name, turn = opening(json.loads(request.body))
        if (name, turn) == ("bad", 1):
            return [Send(answer(b'{"error": {"message": "no room"}}', status="503 Busy", headers=JSON))]
        if (name, turn) == ("silent", 0):
            said = b'{"choices": [{"message": {"content": null}}], "usage": {"completion_tokens": 0}}'
            return [Send(answer(said, headers=JSON))]
        return chat(request)

    server = scripted_server(failing)
    names = ["good", "bad", "silent"]
    result = gpusize.run(
        gpusize.Target(f"http://127.0.0.1:{server.port}/v1", stream=False, history="answers"),
        gpusize.Dataset.read(talks(tmp_path / "talks.json", names, whole=True)),
        gpusize.Load(concurrencies=[1], count=3, sessions=True, max_error_share=1.0),
        out=tmp_path / "runs",
        metrics_url="none",
    )
    found = histories(server)
    assert [len(found[name]) for name in names] == [3, 2, 3]
    assert found["silent"][1][1] == {"role": "assistant", "content": ""}
    counts = result.records.group_by("outcome").len()
    assert dict(counts.iter_rows()) == {"ok": 7, "http_error": 1}


def test_recorded_pauses_belong_to_conversations() -> None:
    with pytest.raises(UsageError, match="between the turns of a conversation") as caught:
        gpusize.Load(concurrencies=[1], count=1, think="recorded")
    assert caught.value.where == "think"


def test_users_who_come_at_a_rate_go_on_too(scripted_server: Callable[..., ScriptedServer], tmp_path: Path) -> None:
    server = scripted_server(chat)
    names = ["a", "b", "c", "d"]
    gpusize.run(
        gpusize.Target(f"http://127.0.0.1:{server.port}/v1", stream=False, history="answers"),
        gpusize.Dataset.read(talks(tmp_path / "talks.jsonl", names, whole=False)),
        gpusize.Load(rates=[40.0], count=4, process="constant", sessions=True, workers=2),
        out=tmp_path / "runs",
        metrics_url="none",
    )
    assert histories(server) == {name: [expected(name, turn) for turn in range(TURNS)] for name in names}


def test_a_template_repeats_answers_of_any_service(
    scripted_server: Callable[..., ScriptedServer], tmp_path: Path
) -> None:
    def echo(request: Request) -> Sequence[Step]:
        text = f'<{json.loads(request.body)["q"]}> "é"'
        return [Send(answer(json.dumps({"reply": {"text": text}}).encode(), headers=JSON))]

    server = scripted_server(echo)
    gpusize.run(
        gpusize.Target(
            f"http://127.0.0.1:{server.port}/ask",
            body_template='{"q": ${prompt}, "before": "${answer:-2}|${answer:-1}", "last": ${answer:-1}}',
            response={"content": ("/reply/text",)},
        ),
        gpusize.Dataset.read(talks(tmp_path / "talks.jsonl", ["a"], whole=False)),
        gpusize.Load(concurrencies=[1], count=1, sessions=True),
        out=tmp_path / "runs",
        metrics_url="none",
    )
    first, second = '<a> "é"', '<recorded 2> "é"'
    assert [json.loads(request.body) for request in server.requests[1:]] == [
        {"q": "a", "before": "|", "last": ""},
        {"q": "recorded 2", "before": f"|{first}", "last": first},
        {"q": "recorded 4", "before": f"{first}|{second}", "last": second},
    ]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
@pytest.mark.parametrize("stream", [True, False])
def test_the_simulated_cluster_knows_its_own_answers_again(tmp_path: Path, path: str, *, stream: bool) -> None:
    tokens = 50
    fast = {
        "gpus": 1,
        "iteration_base_s": 0.001,
        "output_tokens": {"fixed": {"tokens": tokens}},
        "prefix_cache": True,
        "kv_block_tokens": 1,
    }
    asked, cached = {}, {}
    for history in get_args(History):
        with SimulatedCluster(fast) as cluster:
            result = gpusize.run(
                gpusize.Target(cluster.url + path, stream=stream, history=history),
                gpusize.Dataset.read(talks(tmp_path / "talks.json", ["a"], whole=True)),
                gpusize.Load(concurrencies=[1], count=1, sessions=True),
                out=tmp_path / history,
                metrics_url="none",
            )
        records = result.records.select("turn", "tokens_in", "tokens_cached", "outcome").sort("turn")
        assert records["outcome"].to_list() == ["ok"] * TURNS
        asked[history], cached[history] = records["tokens_in"].to_list(), records["tokens_cached"].to_list()
    for turn in range(1, TURNS):
        assert asked["answers"][turn] > asked["answers"][turn - 1] + tokens
        if path.endswith("completions"):
            # All that a turn asked and was answered is cached for the next one, if each byte of it comes back.
            assert cached["answers"][turn] >= asked["answers"][turn - 1] + tokens
    assert asked["answers"][0] == asked["recorded"][0]
    assert max(asked["recorded"]) < tokens
    assert cached["recorded"][1] <= asked["recorded"][0]
