"""Bodies of conversations whose later turns repeat what the server answered."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusize.base.errors import DatasetError, UsageError
from gpusize.measure.encode import prepare
from gpusize.measure.mix import dealt, streamed
from gpusize.targets.apis import ApiOptions, BodyTemplate, create_api, render
from gpusize.targets.server import Target
from gpusize.workload.dataset import Dataset
from gpusize.workload.load import Load, Stream

SESSIONS = Load(concurrencies=[1], sessions=True)
CHAT = "http://127.0.0.1:9/v1"


def target(url=CHAT, **options):
    return Target(url, **{"history": "answers", "stream": False, **options})


def filled(segments, fields, said):
    """A body as the engine puts it together: ``said`` are the answers so far, the last one at the end."""
    pieces = []
    for segment in segments:
        if "static" in segment:
            pieces.append(segment["static"].encode())
        elif "field" in segment:
            pieces.append(fields[segment["field"]])
        else:
            pieces.append(json.dumps(said[-segment["capture"]["turns_back"]])[1:-1].encode())
    return json.loads(b"".join(pieces))


def bodies(rows, said, **options):
    """The bodies of one conversation to which the server says ``said``."""
    dataset = rows if isinstance(rows, Dataset) else Dataset.from_rows(rows)
    ready = prepare(target(**options), dataset, load=SESSIONS)
    mix = ready.mix or {}
    requests, of_row = mix["requests"], mix["of_row"]
    order = sorted(range(len(dataset)), key=mix["turns"].__getitem__)
    return [filled(requests[of_row[row]]["segments"], ready.rows[row], said[:turn]) for turn, row in enumerate(order)]


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def talk(*messages):
    """Rows with nothing but what is new in their turn."""
    return [{"session": "s", "messages": list(each)} for each in messages]


def test_rows_with_what_is_new_are_joined_with_the_answers():
    system = {"role": "system", "content": "be brief"}
    rows = talk([system, user("a")], [system, user("b")], [user("c"), user("d")])
    sent = bodies(rows, ["x", 'y "z"\n é😀'], extra_body={"seed": 1})
    assert [body["messages"] for body in sent] == [
        [system, user("a")],
        [system, user("a"), assistant("x"), user("b")],
        [system, user("a"), assistant("x"), user("b"), assistant('y "z"\n é😀'), user("c"), user("d")],
    ]
    assert all(body["seed"] == 1 and body["stream"] is False for body in sent)


def test_texts_are_messages_of_the_user_and_may_come_again():
    rows = [{"session": 1, "prompt": text} for text in ("go on", "go on", "go on")]
    assert [each["content"] for each in bodies(rows, ["x", "y"])[2]["messages"]] == [
        "go on",
        "x",
        "go on",
        "y",
        "go on",
    ]


def test_turns_go_by_their_numbers():
    rows = [{"session": 1, "prompt": text, "turn": turn} for text, turn in (("b", 1), ("a", 0))]
    assert [each["content"] for each in bodies(rows, ["x"])[1]["messages"]] == ["a", "x", "b"]
    ready = prepare(target(), Dataset.from_rows(rows), load=SESSIONS)
    # The first row is probed by itself, and has to make a body.
    assert [each["content"] for each in filled(ready.segments, ready.rows[0], [""])["messages"]] == ["a", "", "b"]


@pytest.mark.parametrize("fmt", ["sharegpt", "multi-turn"])
def test_recorded_answers_give_way(fmt, tmp_path):
    path = tmp_path / "talks.json"
    if fmt == "sharegpt":
        said = [("system", "s"), ("human", "a"), ("gpt", "no"), ("gpt", "no more"), ("human", "b"), ("human", "c")]
        row = {"id": "t", "conversations": [{"from": name, "value": text} for name, text in said]}
    else:
        system = {"role": "system", "content": "s"}
        row = {"messages": [system, user("a"), assistant("no"), assistant("no more"), user("b"), user("c")]}
    path.write_text(json.dumps([row]), "utf-8")
    sent = bodies(Dataset.read(path, fmt=fmt), ["x", "y"])
    contents = [[each["content"] for each in body["messages"]] for body in sent]
    assert contents == [["s", "a"], ["s", "a", "x", "b"], ["s", "a", "x", "b", "y", "c"]]
    plain = prepare(target(history="recorded"), Dataset.read(path, fmt=fmt), load=SESSIONS)
    assert "no more" in plain.rows[1][0].decode()
    assert all("capture" not in each for request in (plain.mix or {})["requests"] for each in request["segments"])


def test_texts_without_answers_need_no_ellipsis(tmp_path):
    path = tmp_path / "turns.jsonl"
    path.write_text('{"turns": ["a", "b", "c"]}\n', "utf-8")
    contents = [each["content"] for each in bodies(Dataset.read(path), ["x", "y"])[2]["messages"]]
    assert contents == ["a", "x", "b", "y", "c"]


def test_examples_in_the_first_turn_stay():
    shots = [user("1+1"), assistant("2"), user("2+2")]
    sent = bodies(talk(shots, [user("3+3")]), ["4"])
    assert [each["content"] for each in sent[1]["messages"]] == ["1+1", "2", "2+2", "4", "3+3"]


def test_complete_bodies_keep_their_other_members():
    rows = [
        {"session": 1, "body": {"messages": [user(text)], "model": "m", "seed": seed}}
        for seed, text in enumerate(("a", "b"))
    ]
    sent = bodies(rows, ["x"])
    assert [(body["seed"], len(body["messages"])) for body in sent] == [(0, 1), (1, 3)]


def test_completions_go_on_in_one_text():
    rows = [{"session": 1, "prompt": "Q: é\nA:"}, {"session": 1, "prompt": '\nQ: "b"\nA:', "output_tokens": 9}]
    sent = bodies(rows, [' x\\"'], url="http://127.0.0.1:9/v1/completions")
    assert sent[1]["prompt"] == 'Q: é\nA: x\\"\nQ: "b"\nA:'
    assert sent[1]["max_tokens"] == 9
    tokens = Dataset.from_rows([{"session": 1, "prompt": [1, 2]}])
    with pytest.raises(DatasetError, match="is a list of token ids"):
        prepare(target("http://127.0.0.1:9/v1/completions"), tokens, load=SESSIONS)


def test_responses_take_items():
    rows = [{"session": 1, "input": "a"}, {"session": 1, "input": [user("b")], "instructions": "brief"}]
    sent = bodies(rows, ["x"], url="http://127.0.0.1:9/v1/responses")
    assert (sent[1]["input"], sent[1]["instructions"]) == ([user("a"), assistant("x"), user("b")], "brief")


TEXT = st.text(max_size=8)


@given(st.lists(TEXT, min_size=1, max_size=5), st.lists(TEXT, min_size=5, max_size=5), st.booleans())
def test_any_conversation_is_what_was_asked_and_answered(asked, said, whole):
    recorded = [user(asked[0])]
    rows = [{"session": 1, "messages": [user(text)]} for text in asked]
    for turn, text in enumerate(asked[1:], 1) if whole else ():
        recorded = [*recorded, assistant("recorded"), user(text)]
        rows[turn]["messages"] = recorded
    sent = bodies(rows, said)
    for turn, body in enumerate(sent):
        expected = [asked[0]]
        for earlier in range(turn):
            expected += [said[earlier], asked[earlier + 1]]
        assert [each["content"] for each in body["messages"]] == expected
        assert [each["role"] for each in body["messages"]] == (["user", "assistant"] * len(asked))[: 2 * turn + 1]


@pytest.mark.parametrize(
    "rows,what",
    [
        (talk([user("a")], [user("z"), assistant("n"), user("b")]), "does not begin with the messages"),
        (talk([user("a")], [user("a"), assistant("n")]), "asks nothing after the last answer"),
        (talk([user("a")], [{"role": "tool", "content": "sunny"}, user("b")]), "has calls of tools"),
        (talk([user("a")], [user("a"), {**assistant(""), "tool_calls": [{}]}, user("b")]), "has calls of tools"),
        (talk([user("a")], [user("a"), {"type": "reasoning", "role": ["x"]}, user("b")]), "items without a speaker"),
        ([{"session": 1, "prompt": "a", "tools": [{"type": "function"}]}], "offers tools"),
    ],
)
def test_rows_that_cannot_be_turns(rows, what):
    with pytest.raises(DatasetError, match=what) as caught:
        bodies(rows, ["x"])
    assert "row" in caught.value.where


def test_tools_for_all_are_refused():
    with pytest.raises(DatasetError, match="offers tools"):
        bodies([{"session": 1, "prompt": "a"}], [], extra_body={"tools": [{"type": "function"}]})


TALK = Dataset.from_rows([{"session": 1, "prompt": "a"}, {"session": 1, "prompt": "b"}])


@pytest.mark.parametrize(
    "asked,where",
    [
        (target("http://127.0.0.1:9/ask"), "history"),
        (target("http://127.0.0.1:9/v1/embeddings"), "history"),
        (target(body_template='{"messages": ${prompt}}'), "history"),
    ],
)
def test_apis_without_room_for_answers(asked, where):
    with pytest.raises(UsageError) as caught:
        prepare(asked, TALK, load=SESSIONS)
    assert caught.value.where == where


@pytest.mark.parametrize(
    "asked,load,where",
    [
        (target(), Load(concurrencies=[1]), "history"),
        (target(), None, "history"),
        (target(history="recorded", body_template='["${answer:-1}"]'), Load(concurrencies=[1]), "body template"),
    ],
)
def test_what_belongs_to_conversations(asked, load, where):
    with pytest.raises(UsageError, match="these are single requests") as caught:
        prepare(asked, TALK, load=load)
    assert caught.value.where == where
    assert "--sessions" in caught.value.todo


def test_a_trace_has_no_turns_of_its_own(tmp_path):
    path = tmp_path / "burst.csv"
    path.write_text("Timestamp,Session ID,Model,Request tokens,Response tokens\n0,7,m,5,2\n9,7,m,12,2\n", "utf-8")
    with pytest.raises(UsageError, match="made-up prompts of a trace already stand for the whole conversation"):
        prepare(target(), Dataset.read(path), load=SESSIONS)


def test_a_history_is_recorded_or_answers():
    assert Target(CHAT).options().get("history") is None
    assert target().options()["history"] == "answers"
    with pytest.raises(UsageError, match="is not a history"):
        Target(CHAT, history="none")  # type: ignore[arg-type]


def test_each_model_has_conversations_of_its_own():
    rows = [{"session": name, "prompt": f"{name}{turn}"} for name in "pq" for turn in range(2)]
    asked = target(model="a=2,b=1")
    load = SESSIONS.changed(concurrencies=[2])
    dataset = dealt(Dataset.from_rows(rows), asked.models)
    mix = prepare(asked, dataset, load=load).mix or {}
    talks: dict[int, list[tuple[str, str]]] = {}
    for number, row in sorted(enumerate(dataset.rows), key=lambda each: mix["turns"][each[0]]):
        talks.setdefault(mix["sessions"][number], []).append((row["model"], row["prompt"]))
    assert sorted(talks.values()) == sorted([[(m, f"{n}0"), (m, f"{n}1")] for m in ("a", "a", "b") for n in "pq"])
    kinds = {(each["model"], sum("capture" in one for one in each["segments"])) for each in mix["requests"]}
    assert kinds == {(0, 0), (0, 1), (1, 0), (1, 1)}
    generic = create_api("generic", ApiOptions())
    assert json.loads(render(generic, replace(dataset[0], key="."))) == {"session": "p", "prompt": "p0", "model": "a"}


def test_each_stream_has_conversations_of_its_own():
    load = Load(streams=[Stream(rate=1), Stream(rate=1, model="n")], duration_s=5, sessions=True)
    asked, dataset, planned = streamed(target(model="m"), TALK, load)
    assert (prepare(asked, dataset, load=planned).mix or {})["sessions"] == [0, 0, 1, 1]


def test_a_template_says_where_answers_belong():
    template = BodyTemplate.parse('{"said": "${ answer : -2 }; ${answer:-1}", "last": ${answer:-1}, "q": ${answer}}')
    dataset = Dataset.from_rows([{"answer": "the row's"}], key=".")
    assert filled(template.segments(), template.fields(dataset[0]), ['a"', "\u2028b"]) == {
        "said": 'a"; \u2028b',
        "last": "\u2028b",
        "q": "the row's",
    }
    api = create_api("generic", ApiOptions(body_template='["${answer:-1}", ${answer:-1}]'))
    assert json.loads(render(api, dataset[0])) == ["", ""]


@pytest.mark.parametrize(
    "text,quoting,what",
    [
        ('["${answer:1}"]', "json", "is not a placeholder"),
        ('["${answer:-0}"]', "json", "is not a placeholder"),
        ("q=${answer:-1}", "form", "escaped as in JSON"),
        ("${answer:-1}", "plain", "escaped as in JSON"),
        ('{"a": ${answer:-1} 1}', "json", "the template is not JSON"),
    ],
)
def test_answers_that_have_no_place(text, quoting, what):
    with pytest.raises(UsageError, match=what) as caught:
        BodyTemplate.parse(text, "t", quoting=quoting)
    assert caught.value.where.startswith("t:1:")
