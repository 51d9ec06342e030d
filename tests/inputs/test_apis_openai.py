"""The OpenAI family: what a row asks for, and what is content, reasoning, an error or the end in real answers."""

import json
from typing import Any

import pytest

from gpusize.base.errors import DatasetError, UsageError
from gpusize.targets.apis import ApiOptions, create_api, render
from gpusize.workload.dataset import Dataset
from tests.inputs.reading import read


def body(api, row, key=None, **options):
    pairs = json.loads(
        render(create_api(api, ApiOptions(**options)), Dataset.from_rows([row], key=key)[0]), object_pairs_hook=list
    )
    names = [name for name, _ in pairs]
    assert len(names) == len(set(names)), "every member stands once"
    return json.loads(render(create_api(api, ApiOptions(**options)), Dataset.from_rows([row], key=key)[0]))


def answers(api, events, **options):
    return read(create_api(api, ApiOptions(**options)).response(), events)


@pytest.mark.parametrize("api,name", [("openai-completions", "max_tokens"), ("openai-responses", "max_output_tokens")])
def test_an_asked_length_bounds_the_tokens(api, name):
    row = {"prompt": "x", "output_tokens": 40, "input_tokens": 9, "model": "theirs"}
    asked = body(api, row)
    assert (asked[name], asked["model"]) == (40, "theirs")
    assert "output_tokens" not in asked
    assert "min_tokens" not in asked
    exact = body(api, row, output_length="exact")
    assert (exact[name], exact["min_tokens"], exact["ignore_eos"]) == (40, 40, True)


def test_options_win_over_the_rows_own():
    row = {"prompt": "x", "output_tokens": 40, "model": "theirs"}
    asked = body("openai-chat", row, model="mine", max_tokens=5, output_length="exact")
    assert (asked["model"], asked["max_tokens"], asked["min_tokens"], asked["ignore_eos"]) == ("mine", 5, 5, True)
    assert body("openai-chat", row, output_length="exact", extra_body={"ignore_eos": False})["ignore_eos"] is False


def test_a_cell_of_a_table_is_a_number_too():
    assert body("openai-chat", {"prompt": "x", "output_tokens": "40"})["max_tokens"] == 40
    assert body("openai-chat", {"prompt": "x", "output_tokens": 40.0})["max_tokens"] == 40
    assert "max_tokens" not in body("openai-chat", {"prompt": "x", "output_tokens": "", "model": None})


@pytest.mark.parametrize(
    "fields,what",
    [({"output_tokens": 0}, "output_tokens"), ({"output_tokens": "many"}, "output_tokens"), ({"model": 3}, "model")],
)
def test_what_a_row_cannot_ask_for(fields, what):
    with pytest.raises(DatasetError, match=what):
        body("openai-chat", {"prompt": "x", **fields})


def test_our_own_fields_are_not_sent():
    row = {"prompt": "x", "session": "s", "turn": 1, "arrival_s": 0.5, "delay_s": 2, "seed": 1}
    row |= {"input_tokens": 3, "output_tokens": 7}
    assert body("openai-completions", row, key=".", stream=False) == {
        "stream": False,
        "prompt": "x",
        "max_tokens": 7,
        "seed": 1,
    }


def test_tools_go_with_the_messages():
    turns = [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function"}]},
        {"role": "tool", "tool_call_id": "1", "content": "sunny"},
        {"role": "user", "content": "and tomorrow?"},
    ]
    tools = [{"type": "function", "function": {"name": "weather"}}]
    assert body("openai-chat", {"messages": turns, "tools": tools, "note": "not sent"}, stream=False) == {
        "stream": False,
        "messages": turns,
        "tools": tools,
    }
    inside = {"body": {"messages": turns, "tools": tools, "tool_choice": "auto"}}
    assert body("openai-chat", inside)["tool_choice"] == "auto"


def test_embeddings():
    assert body("openai-embeddings", "x", model="m", extra_body={"dimensions": 8}) == {
        "model": "m",
        "dimensions": 8,
        "input": "x",
    }
    assert body("openai-embeddings", {"input": ["a", "b"], "output_tokens": 3}) == {"input": ["a", "b"]}
    assert body("openai-embeddings", {"text": [[1, 2], [3]]}) == {"input": [[1, 2], [3]]}
    assert ("Accept", "application/json") in create_api("openai-embeddings").headers()
    for bad in ("", [], [1.5], [["a"], "b"], {"x": 1}, None):
        with pytest.raises(DatasetError):
            body("openai-embeddings", {"input": bad})
    for options in (ApiOptions(max_tokens=1), ApiOptions(temperature=1)):
        with pytest.raises(UsageError, match="generate nothing"):
            create_api("openai-embeddings", options)


def test_an_embedding_without_a_vector_is_no_success():
    good = {"data": [{"embedding": [0.1], "index": 0}], "usage": {"prompt_tokens": 5, "total_tokens": 5}}
    assert answers("openai-embeddings", [good]).satisfied
    assert answers("openai-embeddings", [good]).tokens == {"tokens_in": 5}
    assert answers("openai-embeddings", [{"data": [{"embedding": "AACAPw=="}]}]).satisfied
    assert not answers("openai-embeddings", [{"data": []}]).satisfied


def chunk(**delta):
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}], "usage": None}


def test_a_chat_stream():
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "weather", "arguments": ""}}
    more = {"index": 0, "function": {"arguments": '{"city"'}}
    usage = {
        "prompt_tokens": 7,
        "completion_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    events = [
        chunk(role="assistant", content=""),
        chunk(reasoning_content="hm"),
        chunk(reasoning="so"),
        chunk(content="Hi"),
        chunk(tool_calls=[call]),
        chunk(tool_calls=[more]),
        {"choices": [], "usage": usage},
        "[DONE]",
    ]
    reading = answers("openai-chat", events)
    assert reading.content == ["Hi", "weather", '{"city"']
    assert reading.reasoning == ["hm", "so"]
    assert reading.tokens == {"tokens_in": 7, "tokens_out": 9, "tokens_cached": 4, "tokens_reasoning": 2}
    assert reading.ended
    assert reading.error is None
    assert not answers("openai-chat", events[:-1]).ended
    assert answers("openai-chat", [{"error": {"message": "out of memory"}}]).error == {"message": "out of memory"}


def test_a_chat_in_one_piece():
    message = {"role": "assistant", "content": "Hi", "reasoning_content": "hm", "tool_calls": []}
    reading = answers("openai-chat", [{"choices": [{"index": 0, "message": message}], "usage": {"prompt_tokens": 1}}])
    assert (reading.content, reading.reasoning, reading.tokens) == (["Hi"], ["hm"], {"tokens_in": 1})


RESPONSE: dict[str, Any] = {
    "id": "r",
    "object": "response",
    "status": "in_progress",
    "output": [],
    "usage": None,
    "error": None,
}
RESPONSES_USAGE = {
    "input_tokens": 11,
    "output_tokens": 6,
    "input_tokens_details": {"cached_tokens": 8},
    "output_tokens_details": {"reasoning_tokens": 3},
}
RESPONSES_TOKENS = {"tokens_in": 11, "tokens_out": 6, "tokens_cached": 8, "tokens_reasoning": 3}


def responses_stream(last, **response):
    call = {"type": "function_call", "name": "weather", "arguments": ""}
    return [
        {"type": "response.created", "response": RESPONSE},
        {"type": "response.in_progress", "response": RESPONSE},
        {"type": "response.output_item.added", "item": {"type": "reasoning", "summary": []}},
        {"type": "response.reasoning_summary_text.delta", "delta": "hm"},
        {"type": "response.reasoning_text.delta", "delta": "so"},
        {"type": "response.output_item.added", "item": {"type": "message", "content": []}},
        {"type": "response.content_part.added", "part": {"type": "output_text", "text": ""}},
        {"type": "response.output_text.delta", "delta": "Hel"},
        {"type": "response.output_text.delta", "delta": "lo"},
        {"type": "response.output_text.done", "text": "Hello"},
        {"type": "response.output_item.added", "item": call},
        {"type": "response.function_call_arguments.delta", "delta": "{}"},
        {"type": "response.audio.delta", "delta": "AAAA"},
        {"type": last, "response": {**RESPONSE, "usage": RESPONSES_USAGE, **response}},
    ]


@pytest.mark.parametrize("last", ["response.completed", "response.incomplete"])
def test_a_responses_stream(last):
    reading = answers("openai-responses", responses_stream(last, status=last.split(".")[1]))
    assert reading.content == ["Hel", "lo", "weather", "{}"]
    assert reading.reasoning == ["hm", "so"]
    assert reading.tokens == RESPONSES_TOKENS
    assert reading.ended
    assert reading.error is None
    assert not answers("openai-responses", responses_stream(last)[:-1]).ended


def test_responses_that_fail():
    failed = responses_stream("response.failed", status="failed", error={"code": "server_error", "message": "boom"})
    assert answers("openai-responses", failed).error == {"code": "server_error", "message": "boom"}
    assert answers("openai-responses", responses_stream("response.failed")).error == "response.failed"
    event = {"type": "error", "code": "rate_limit", "message": "slow down", "param": None}
    assert answers("openai-responses", [event]).error == "slow down"
    assert answers("openai-responses", [{**RESPONSE, "status": "failed"}]).error == "failed"


def test_responses_in_one_piece():
    whole = {
        **RESPONSE,
        "status": "completed",
        "usage": RESPONSES_USAGE,
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "message", "content": [{"type": "output_text", "text": "Hello"}]},
            {"type": "function_call", "name": "weather", "arguments": "{}"},
        ],
    }
    reading = answers("openai-responses", [whole])
    assert (reading.content, reading.reasoning) == (["Hello", "{}"], ["hm"])
    assert reading.tokens == RESPONSES_TOKENS
    assert reading.error is None


def test_responses_bodies():
    assert body("openai-responses", "hi", model="m", max_tokens=4) == {
        "stream": True,
        "model": "m",
        "max_output_tokens": 4,
        "input": "hi",
    }
    items = [{"role": "user", "content": "hi"}]
    assert body("openai-responses", {"input": items, "instructions": "be short"}, stream=False) == {
        "stream": False,
        "input": items,
        "instructions": "be short",
    }
    for bad in ([], ["x"], 3, None):
        with pytest.raises(DatasetError):
            body("openai-responses", {"input": bad})


def test_an_output_length_is_max_or_exact():
    with pytest.raises(UsageError, match='"about" is not a way to bound the output'):
        ApiOptions(output_length="about")  # type: ignore[arg-type]
