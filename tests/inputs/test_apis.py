"""Each API: bodies, headers, and how answers are read."""

import datetime as dt
import importlib.metadata
import json
from decimal import Decimal

import pytest

from gpusize.base.errors import DatasetError, EnvironmentLacks, UsageError
from gpusize.targets.apis import Api, ApiOptions, ResponseSpec, api_names, create_api, encode_rows, guess_api, render
from gpusize.workload.dataset import Dataset


def body(api, row, key=None, **options):
    return json.loads(render(create_api(api, ApiOptions(**options)), Dataset.from_rows([row], key=key)[0]))


def test_a_prompt_becomes_a_chat():
    assert body("openai-chat", "hi", model="m", max_tokens=5, temperature=0.5, extra_body={"top_k": 1}) == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 5,
        "temperature": 0.5,
        "top_k": 1,
        "messages": [{"role": "user", "content": "hi"}],
    }
    assert body("openai-chat", "hi", stream=False) == {"stream": False, "messages": [{"role": "user", "content": "hi"}]}


def test_messages_go_as_they_are():
    messages = [{"role": "system", "content": "ü"}, {"role": "user", "content": [{"type": "text", "text": "x"}]}]
    assert body("openai-chat", {"messages": messages})["messages"] == messages


def test_a_complete_body_keeps_what_no_option_sets():
    row = {
        "body": {
            "messages": [{"role": "user", "content": "x"}],
            "model": "theirs",
            "max_tokens": 9,
            "seed": 4,
            "stream": False,
        }
    }
    made = body("openai-chat", row, model="mine")
    assert made == {
        "model": "mine",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "x"}],
        "max_tokens": 9,
        "seed": 4,
    }
    whole = {"id": 3, "prompt": "x", "max_tokens": 2}
    assert body("openai-completions", whole, key=".", stream=False) == {"stream": False, "prompt": "x", "max_tokens": 2}


def test_every_member_stands_once_in_a_body():
    row = {"messages": [{"role": "user", "content": "x"}], "model": "a", "stream": True, "stream_options": None, "n": 1}
    dataset = Dataset.from_rows([row], key=".")
    for options in (ApiOptions(), ApiOptions(model="b", stream=False), ApiOptions(extra_body={"n": 2})):
        pairs = json.loads(render(create_api("openai-chat", options), dataset[0]), object_pairs_hook=list)
        names = [name for name, _ in pairs]
        assert len(names) == len(set(names))


def test_a_template_takes_the_place_of_the_body():
    row = {"q": "x", "n": 5}
    template = '{"messages": [{"role": "user", "content": "${q}"}], "max_tokens": ${n}}'
    made = body("openai-chat", row, key=".", body_template=template, model="not used")
    assert made == {"messages": [{"role": "user", "content": "x"}], "max_tokens": 5}


def test_the_datasets_member_is_no_option():
    with pytest.raises(UsageError, match="comes from the dataset"):
        create_api("openai-chat", ApiOptions(extra_body={"messages": []}))


def test_values_beyond_json():
    row = {"day": dt.date(2026, 1, 2), "at": dt.time(3, 4), "price": Decimal("1.5")}
    assert body("generic", row, key=".") == {"day": "2026-01-02", "at": "03:04:00", "price": 1.5}
    for bad in (b"bytes", object()):
        for api, fields in (("generic", {"a": bad}), ("openai-completions", {"prompt": "x", "a": bad})):
            with pytest.raises(DatasetError, match="row 0 is not JSON"):
                body(api, fields, key=".")


def test_completions():
    assert body("openai-completions", "hi", model="m", stream=False) == {"model": "m", "stream": False, "prompt": "hi"}
    assert body("openai-completions", {"prompt": [1, 2, 3]})["prompt"] == [1, 2, 3]


@pytest.mark.parametrize("value", [None, 3, [], ["x"], [{"content": "x"}], {"model": "m"}])
def test_what_is_no_chat(value):
    with pytest.raises(DatasetError) as caught:
        body("openai-chat", {"prompt": value})
    assert caught.value.where == "rows, row 0"


@pytest.mark.parametrize("value", [None, 3, [], ["x"], [1.5], [True], {"model": "m"}])
def test_what_is_no_prompt(value):
    with pytest.raises(DatasetError):
        body("openai-completions", {"prompt": value})


def test_generic_bodies():
    assert body("generic", {"question": "x"}, max_tokens=3) == {"question": "x", "max_tokens": 3}
    assert body("generic", {"input": {"a": 1}}) == {"a": 1}
    assert body("generic", {"id": 1, "a": 1, "b": 2}, key=".") == {"a": 1, "b": 2}
    assert body("nat", {"question": "x"}) == {"input_message": "x"}
    assert body("generic", {"q": "x"}, key="q", body_template='{"deep": {"er": "${q}"}}') == {"deep": {"er": "x"}}


def test_methods_without_a_body():
    api = create_api("generic", ApiOptions(method="GET"))
    assert (api.segments(), encode_rows(api, Dataset.from_rows(["x", "y"])), api.headers()) == (
        [],
        [[], []],
        [("Accept", "*/*")],
    )
    with pytest.raises(UsageError, match="GET sends no body"):
        create_api("openai-chat", ApiOptions(method="GET"))


def test_a_body_that_is_not_json_needs_a_template(tmp_path):
    with pytest.raises(UsageError, match="needs a template"):
        create_api("generic", ApiOptions(content_type="text/plain"))
    (tmp_path / "t").write_text("${prompt}!")
    api = create_api("generic", ApiOptions(content_type="text/plain", body_template=str(tmp_path / "t")))
    assert render(api, Dataset.from_rows(["x"])[0]) == b"x!"
    assert ("Content-Type", "text/plain") in api.headers()


def test_half_a_surrogate_pair_goes_as_an_escape():
    assert b"\\ud800" in render(create_api("generic"), Dataset.from_rows([{"prompt": "\ud800"}])[0])


OWN = ["openai-chat", "openai-completions", "openai-embeddings", "openai-responses", "generic", "nat", "nat-chat"]


@pytest.mark.parametrize("name", OWN)
def test_the_shape_of_every_api(name):
    api = create_api(name, ApiOptions(model="m"))
    assert isinstance(api, Api)
    assert api.name == name
    assert api.default_path.startswith("/")
    fields = {field for segment in api.segments() for field in [segment.get("field")] if field is not None}
    [values] = encode_rows(api, Dataset.from_prompt("x"))
    assert fields == set(range(len(values)))
    response = json.loads(json.dumps(api.response()))
    assert set(response) - {"success_if", "calls", "server_queue", "server_service"} == {
        *("framing", "content", "reasoning", "tokens_in", "tokens_out", "tokens_cached", "tokens_reasoning"),
        *("error", "end", "success", "json"),
    }
    assert response["success"] == [200, 299]


def test_responses_of_chat():
    response = create_api("openai-chat").response()
    assert response["end"][0] == "[DONE]"
    assert response["tokens_out"] == "/usage/completion_tokens"
    assert {"/choices/0/delta/content", "/choices/0/message/content"} <= set(response["content"])


def test_responses_can_be_changed():
    response = {"content": "/text", "success": [200, 204], "error": None, "framing": "ndjson"}
    made = create_api("generic", ApiOptions(response=response)).response()
    assert (made["content"], made["success"], made["error"], made["framing"]) == (["/text"], [200, 204], None, "ndjson")


@pytest.mark.parametrize(
    "path,method,name",
    [
        ("/v1/chat/completions", "POST", "openai-chat"),
        ("/proxy/v1/chat/completions?x=1", "POST", "openai-chat"),
        ("/v1/completions/", "POST", "openai-completions"),
        ("", "POST", "openai-chat"),
        ("/v1", "POST", "openai-chat"),
        ("/v1/embeddings", "POST", "openai-embeddings"),
        ("/v1/responses", "POST", "openai-responses"),
        ("/generate", "POST", "nat"),
        ("/generate/full", "POST", "nat"),
        ("/v1/workflow/full", "POST", "nat"),
        ("/chat", "POST", "nat-chat"),
        ("/v1/chat/stream", "POST", "nat-chat"),
        ("/v2/models/m/infer", "POST", "kserve"),
        ("/triton/v2/models/m/versions/3/infer", "POST", "kserve"),
        ("/v2/models/m", "POST", "kserve"),
        ("/v2/models/m/stats", "POST", "generic"),
        ("/inference.GRPCInferenceService/ModelInfer", "POST", "kserve-grpc"),
        ("/inference.GRPCInferenceService/ModelStreamInfer", "POST", "kserve-grpc-stream"),
        ("/predict", "POST", "generic"),
        ("/v1/chat/completions", "GET", "generic"),
        ("/", "GET", "generic"),
    ],
)
def test_guessing(path, method, name):
    assert guess_api(path, method) == name


def test_unknown_apis_list_the_known():
    with pytest.raises(UsageError) as caught:
        create_api("open-ai-chat")
    assert caught.value.what == 'there is no API "open-ai-chat"'
    assert caught.value.todo == f'did you mean "openai-chat"? known are {", ".join(api_names())}'


class Echo:
    name = "echo"
    default_path = "/echo"

    def __init__(self, options):
        self.options = options

    def segments(self):
        return [{"static": "e"}, {"field": 0}, {"counter": {"start": 0}}]

    def fields(self, row):
        return [str(row.value).encode()]

    def response(self):
        return ResponseSpec().to_dict()

    def headers(self):
        return []


def offered(monkeypatch, value):
    point = importlib.metadata.EntryPoint("echo", f"{__name__}:{value}", "gpusize.apis")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point] if group == "gpusize.apis" else [])
    monkeypatch.setattr(importlib.metadata.EntryPoint, "load", lambda _: globals()[value])


def test_third_parties_bring_their_own(monkeypatch):
    offered(monkeypatch, "Echo")
    assert api_names()[-1] == "echo"
    api = create_api("echo", ApiOptions(model="m"))
    assert render(api, Dataset.from_prompt("x")[0]) == b'ex{"counter":{"start":0}}'


def no_api(_):
    return {}


@pytest.mark.parametrize("value,what", [("Missing", "cannot be loaded"), ("no_api", "does not make an API")])
def test_third_parties_that_do_not_work(monkeypatch, value, what):
    offered(monkeypatch, value)
    with pytest.raises(EnvironmentLacks, match=what):
        create_api("echo")
