"""ResponseSpec: its JSON, what it refuses, and its fields from texts."""

import pytest

from gpusize.base.errors import UsageError
from gpusize.targets.apis import ResponseSpec, response_from_texts

CALLS = {
    "field": "intermediate_data",
    "kind": "/kind",
    "start": "S",
    "end": "E",
    "id": "/id",
    "name": "/name",
    "time_s": "/t",
}


def test_places_and_conditions_as_the_engine_takes_them():
    event = {"at": "/delta", "if": {"at": "/type", "is": ["text"]}}
    made = ResponseSpec().changed(
        {
            "content": ["/text", event],
            "reasoning": "/thought",
            "tokens_in": ["/a", "/b"],
            "tokens_out": "/c",
            "error": ["/error", {"at": "/m"}],
            "end": {"at": "/type", "is": "end"},
            "success_if": {"at": "/status", "is": ["ok", 200, True]},
            "calls": CALLS,
        }
    )
    assert made.to_dict() == {
        "framing": "auto",
        "content": ["/text", event],
        "reasoning": ["/thought"],
        "tokens_in": ["/a", "/b"],
        "tokens_out": "/c",
        "tokens_cached": None,
        "tokens_reasoning": None,
        "error": ["/error", "/m"],
        "end": {"at": "/type", "is": ["end"]},
        "success": [200, 299],
        "json": "always",
        "success_if": {"at": "/status", "is": ["ok", 200, True]},
        "calls": {**CALLS, "tokens_in": None, "tokens_out": None},
    }


def test_what_is_not_set_is_left_out():
    assert {"success_if", "calls"}.isdisjoint(ResponseSpec().to_dict())
    set_once = ResponseSpec().changed({"success_if": {"at": "/a"}})
    assert set_once.to_dict()["success_if"] == {"at": "/a", "is": None}
    assert set_once.changed({"success_if": None}) == ResponseSpec()


@pytest.mark.parametrize(
    "response",
    [
        {"contents": "/text"},
        {"content": "text"},
        {"content": "/a~2"},
        {"content": [3]},
        {"content": 3},
        {"content": [{"if": {"at": "/a"}}]},
        {"content": {"at": "/a", "when": 1}},
        {"content": {"at": "/a", "if": "/b"}},
        {"tokens_in": "usage"},
        {"tokens_in": 0},
        {"error": ["/error", "x"]},
        {"framing": "xml"},
        {"success": [299, 200]},
        {"success": [200]},
        {"success": 200},
        {"success": ["200", "299"]},
        {"end": 3},
        {"end": []},
        {"end": ["[DONE]", 3]},
        {"end": ""},
        {"end": {"is": ["x"]}},
        {"success_if": "ok"},
        {"success_if": {"at": "/a", "is": []}},
        {"success_if": {"at": "/a", "is": [{}]}},
        {"success_if": {"at": "/a", "is": [None]}},
        {"calls": "/a"},
        {"calls": {**CALLS, "more": 1}},
        {"calls": {name: value for name, value in CALLS.items() if name != "id"}},
        {"calls": {**CALLS, "start": ""}},
        {"calls": {**CALLS, "name": "n"}},
    ],
)
def test_responses_that_cannot_be_meant(response):
    with pytest.raises(UsageError) as caught:
        ResponseSpec().changed(response)
    assert caught.value.where


@pytest.mark.parametrize(
    "text,name,value",
    [
        ("content=/a,/b", "content", ["/a", "/b"]),
        ("content=", "content", []),
        ("reasoning = /a", "reasoning", ["/a"]),
        ("tokens_in=/a", "tokens_in", "/a"),
        ("tokens_out=/a, /b", "tokens_out", ["/a", "/b"]),
        ("error=", "error", None),
        ("success=200-204", "success", (200, 204)),
        ("success=200", "success", (200, 200)),
        ("end=[DONE]", "end", "[DONE]"),
        ("end=a=b", "end", "a=b"),
        ("end=/type:response.completed", "end", {"at": "/type", "is": ["response.completed"]}),
        ("end=/type:a,b", "end", {"at": "/type", "is": ["a", "b"]}),
        ("end=/done", "end", {"at": "/done", "is": None}),
        ("success_if=/status:ok", "success_if", {"at": "/status", "is": ["ok"]}),
        ("success_if=/code:200", "success_if", {"at": "/code", "is": ["200", 200]}),
        ("success_if=/share:0.5", "success_if", {"at": "/share", "is": ["0.5", 0.5]}),
        ("success_if=/done:true", "success_if", {"at": "/done", "is": ["true", True]}),
        ("success_if=/x:inf", "success_if", {"at": "/x", "is": ["inf"]}),
        ("success_if=", "success_if", None),
        ("framing=ndjson", "framing", "ndjson"),
    ],
)
def test_fields_from_texts(text, name, value):
    made = response_from_texts([text])
    assert made == {name: value}
    ResponseSpec().changed(made)


def test_texts_that_cannot_be_meant():
    assert response_from_texts({"content": "/a"}) == {"content": "/a"}
    assert response_from_texts("content=/a") == {"content": ["/a"]}
    for bad in ("content", ["content"], [3], 3, "success=ok", "success=2xx-3xx", "calls=x"):
        with pytest.raises(UsageError):
            response_from_texts(bad)
