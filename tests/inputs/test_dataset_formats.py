"""Conversations, batches, payloads and traces: what each file becomes, and where a mistake is said to be."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpusize.base.errors import DatasetError
from gpusize.workload.dataset import Dataset
from gpusize.workload.dataset.formats import rows_of

SHAREGPT = [
    {
        "id": "a",
        "conversations": [
            {"from": "system", "value": "Be short."},
            {"from": "human", "value": "Hi"},
            {"from": "gpt", "value": "Hello there"},
            {"from": "human", "value": "Why?"},
            {"from": "gpt", "value": "Because."},
        ],
    },
    {"id": "b", "conversations": [{"from": "gpt", "value": "left over"}, {"from": "human", "value": "Next"}]},
    {"id": "c", "conversations": [{"from": "gpt", "value": "nobody asked"}]},
]


def write(folder: Path, name: str, content) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


def jsonl(rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def refused(path: Path, **options) -> DatasetError:
    with pytest.raises(DatasetError) as caught:
        Dataset.read(path, **options)
    return caught.value


def test_sharegpt_is_recognised_and_becomes_a_row_for_each_turn_of_the_user(tmp_path):
    path = write(tmp_path, "d.json", "[" + ",\n".join(json.dumps(row) for row in SHAREGPT) + "]")
    dataset = Dataset.read(path)
    assert (dataset.fmt, dataset.key) == ("sharegpt", "messages")
    assert list(dataset.ids) == ["a_turn0", "a_turn1", "b_turn0"]
    assert [message["role"] for message in dataset[1].value] == ["system", "user", "assistant", "user"]
    assert dataset[0].value == [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}]
    assert [(row["session"], row["turn"]) for row in dataset.rows] == [("a", 0), ("a", 1), ("b", 0)]
    assert "output_tokens" not in dataset.rows[0]
    assert dataset.where(2) == f"{path}:2"
    assert len(dataset.notes) == 2
    assert "1 conversations have no turn of the user" in dataset.notes[0]
    assert Dataset.read(path, "messages", "sharegpt") == dataset


def test_answers_give_output_lengths_when_they_are_asked_for(tmp_path):
    dataset = Dataset.read(write(tmp_path, "d.json", SHAREGPT), tokenizer="estimate")
    # "Hello there" has 11 characters, "Because." has 8; the last conversation has no answer.
    assert [row.get("output_tokens") for row in dataset.rows] == [3, 2, None]
    assert dataset.counted_by == "the estimate of 4 characters per token"
    assert dataset.options()["tokenizer"] == "estimate"
    assert dataset.options()["dataset_format"] == "sharegpt"


@pytest.mark.parametrize(
    "row,what",
    [
        ({"id": 1}, 'this row has no list "conversations"'),
        ({"conversations": [{"from": "human"}]}, '{"from": "human"} is not a turn'),
        ({"conversations": [{"from": "alien", "value": "x"}]}, "the speaker alien is not known"),
        ({"conversations": [{"from": ["human"], "value": "x"}]}, 'the speaker ["human"] is not known'),
    ],
)
def test_broken_sharegpt(tmp_path, row, what):
    path = write(tmp_path, "d.jsonl", jsonl([SHAREGPT[0], row]))
    problem = refused(path, fmt="sharegpt")
    assert (problem.what, problem.where) == (what, f"{path}:2")


def test_messages_stay_one_row_unless_they_are_to_be_expanded(tmp_path):
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    path = write(tmp_path, "d.jsonl", jsonl([{"messages": said, "topic": "x"}]))
    assert [row.value for row in Dataset.read(path)] == [said]
    dataset = Dataset.read(path, fmt="multi-turn")
    assert [row.value for row in dataset] == [said[:1], said]
    assert [row["topic"] for row in dataset.rows] == ["x", "x"]
    assert dataset.rows[1]["session"] == "0"
    assert not dataset.notes


def test_turns_without_answers(tmp_path):
    rows = [{"question_id": 81, "turns": ["Write.", "Again.", {"text": "More."}]}]
    dataset = Dataset.read(write(tmp_path, "d.jsonl", jsonl(rows)))
    assert (dataset.fmt, len(dataset)) == ("multi-turn", 3)
    assert [one["content"] for one in dataset[2].value] == ["Write.", "…", "Again.", "…", "More."]
    assert dataset.rows[0]["session"] == "81"
    assert "2 answers are not recorded" in dataset.notes[0]
    assert "output_tokens" not in Dataset.read(dataset.source, tokenizer="estimate").rows[0]
    assert refused(write(tmp_path, "e.jsonl", '{"turns": [3]}')).what == "3 is not a turn"


def batch(url="/v1/chat/completions", **changed):
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    return {"custom_id": "r1", "method": "POST", "url": url, "body": body, **changed}


def test_a_batch_file(tmp_path):
    path = write(tmp_path, "d.jsonl", jsonl([batch(), batch(custom_id="r2")]))
    dataset = Dataset.read(path)
    assert (dataset.fmt, dataset.key, dataset.api) == ("openai-batch", "body", "openai-chat")
    assert list(dataset.ids) == ["r1", "r2"]
    assert dataset[0].value == batch()["body"]
    assert dataset.rows[0]["model"] == "m"
    assert list(dataset.notes) == [f"{path}: a batch for /v1/chat/completions"]
    whole = write(tmp_path, "f.jsonl", jsonl([batch("https://host/v1/embeddings")]))
    assert Dataset.read(whole).api == "openai-embeddings"


@pytest.mark.parametrize(
    "row,what",
    [
        (batch("/v1/embeddings"), "this row goes to /v1/embeddings, those before to /v1/chat/completions"),
        (batch("/v1/images"), '"/v1/images" is not an address of the API'),
        (batch(method="GET"), "the method is GET, not POST"),
        (batch(body=[1]), "this is not a request of a batch"),
    ],
)
def test_a_broken_batch(tmp_path, row, what):
    path = write(tmp_path, "d.jsonl", jsonl([batch(), row]))
    problem = refused(path, fmt="openai-batch")
    assert (problem.what, problem.where) == (what, f"{path}:2")


def test_perf_analyzers_payloads(tmp_path):
    entries = [
        {"payload": [{"model": "m", "prompt": "a"}], "session_id": ["s"], "delay": [250], "timestamp": [1000]},
        {"payload": [{"prompt": "b"}, '{"prompt": "c"}'], "session_id": ["s"], "timestamp": [1500, 3000]},
    ]
    path = write(tmp_path, "d.json", '{"data": [\n' + ",\n".join(map(json.dumps, entries)) + "\n]}\n")
    dataset = Dataset.read(path)
    assert (dataset.fmt, dataset.key) == ("perf-analyzer", "body")
    assert [row["prompt"] for row in (each.value for each in dataset)] == ["a", "b", "c"]
    assert [(row["session"], row["turn"], row["arrival_s"]) for row in dataset.rows] == [
        ("s", 0, 0.0),
        ("s", 1, 0.5),
        ("s", 2, 2.0),
    ]
    assert dataset.rows[0]["delay_s"] == 0.25
    assert dataset.where(0) == f"{path}:2"
    assert len(Dataset.read(write(tmp_path, "e.json", {"payload": [{"prompt": "x"}]}))) == 1


@pytest.mark.parametrize(
    "content",
    [{"data": [{"IN": [1.0]}]}, {"data": [[{"IN": [1.0]}]]}, {"data": [{"IN": {"content": [1], "shape": [1]}}]}],
)
def test_tensors_are_pointed_to_their_option(tmp_path, content):
    problem = refused(write(tmp_path, "d.json", content), fmt="perf-analyzer")
    assert problem.what == "this is perf_analyzer's input of tensors"
    assert "--input" in problem.todo


def test_broken_payloads(tmp_path):
    path = write(tmp_path, "d.json", {"data": [{"payload": [{}, {}], "delay": [1, 2, 3]}]})
    assert refused(path).what == '"delay" has 3 values for 2 payloads'
    assert refused(write(tmp_path, "e.json", {"payload": [1]})).what == "a payload is not an object"
    path = write(tmp_path, "f.json", {"payload": [{}], "timestamp": [-1]})
    assert refused(path).what == "-1 is not a time in milliseconds"
    assert refused(write(tmp_path, "g.json", {"rows": []})).what == (
        "the top level is an object, not an array of objects"
    )


MOONCAKE = [
    {"timestamp": 27482, "input_length": 1100, "output_length": 52, "hash_ids": [46, 47, 48]},
    {"timestamp": 30535, "input_length": 1200, "output_length": 26, "hash_ids": [46, 47, 50]},
    {"timestamp": 31000, "input_length": 600, "output_length": 9, "hash_ids": [99, 47]},
]


def test_mooncake_blocks_are_shared_prefixes(tmp_path):
    dataset = Dataset.read(write(tmp_path, "d.jsonl", jsonl(MOONCAKE)))
    assert (dataset.fmt, dataset.key) == ("mooncake", "prompt")
    first, second, third = (row.value for row in dataset)
    assert [len(text.split()) for text in (first, second, third)] == [1100, 1200, 600]
    assert first.split()[:1024] == second.split()[:1024]
    assert first.split()[1024:1100] != second.split()[1024:1100]
    assert third.split()[:512] != first.split()[:512]
    assert third.split()[512:600] == first.split()[512:600]
    assert [row["arrival_s"] for row in dataset.rows] == [0.0, 3.053, 3.518]
    assert [(row["input_tokens"], row["output_tokens"]) for row in dataset.rows] == [(1100, 52), (1200, 26), (600, 9)]
    assert dataset.rows[0]["hash_ids"] == [46, 47, 48]
    assert "4 characters per token" in dataset.notes[0]
    assert Dataset.read(dataset.source) == dataset


def test_azure(tmp_path):
    head = "TIMESTAMP,ContextTokens,GeneratedTokens"
    text = f"{head}\r\n2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:50.9951690,396,109\r\n"
    dataset = Dataset.read(write(tmp_path, "d.csv", text))
    assert dataset.fmt == "azure"
    assert [row["input_tokens"] for row in dataset.rows] == [374, 396]
    assert dataset.rows[1]["arrival_s"] == pytest.approx(4.314579, abs=1e-6)
    assert len(dataset[0].value) == 374 * 4 - 1
    later = f"{head}\n2024-05-10 00:00:01.5+00:00,2,3\n2024-05-10 01:00:00.009930+01:00,2,3\n"
    dataset = Dataset.read(write(tmp_path, "e.csv", later))
    assert [round(row["arrival_s"], 5) for row in dataset.rows] == [0.0, 1.49007]
    assert "in order of time" in " ".join(dataset.notes)
    assert dataset.where(0) == f"{dataset.source}:3"


def test_burstgpt(tmp_path):
    head = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    rows = (
        "5,7,1.2,ChatGPT,472,18,490,Conversation log\n45,,2,GPT-4,1087,0,1087,API log\n118.5,8,2,GPT-4,4,2,6,API log\n"
    )
    dataset = Dataset.read(write(tmp_path, "d.csv", head + rows))
    assert dataset.fmt == "burstgpt"
    assert [row.get("session") for row in dataset.rows] == ["7", "8"]
    assert [row["arrival_s"] for row in dataset.rows] == [0.0, 113.5]
    assert "model" not in dataset.rows[0]
    assert "1 requests of 0 tokens are left out" in dataset.notes[0]


@pytest.mark.parametrize(
    "fmt,row,what",
    [
        ("mooncake", {"timestamp": 1}, 'this row has no "input_length"'),
        ("mooncake", {**MOONCAKE[0], "input_length": 1.5}, '"input_length" is 1.5, not a number of tokens'),
        ("mooncake", {**MOONCAKE[0], "timestamp": "x"}, "x is not a number of 0 or more"),
        ("mooncake", {**MOONCAKE[0], "timestamp": 10**400}, f"1{'0' * 38}… is not a number of 0 or more"),
        ("mooncake", {**MOONCAKE[0], "hash_ids": ["a"]}, '"hash_ids" is ["a"]'),
        ("azure", {"TIMESTAMP": "yesterday", "ContextTokens": 1, "GeneratedTokens": 1}, "yesterday is not a time"),
    ],
)
def test_broken_traces(tmp_path, fmt, row, what):
    good = {**MOONCAKE[0], "TIMESTAMP": "2023-11-16 18:15:46", "ContextTokens": 1, "GeneratedTokens": 1}
    path = write(tmp_path, "d.jsonl", jsonl([good, row]))
    problem = refused(path, fmt=fmt)
    assert (problem.what, problem.where) == (what, f"{path}:2")


def test_a_trace_too_large_for_memory_is_refused(tmp_path):
    rows = [{**MOONCAKE[0], "input_length": 9_000_000}] * 200
    assert refused(write(tmp_path, "d.jsonl", jsonl(rows))).what == "its prompts would take 7.2 GB of memory"


def test_a_trace_of_failures_alone_is_empty(tmp_path):
    path = write(tmp_path, "d.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,0,0\n")
    assert refused(path).what == "the dataset is empty"


def test_a_named_key_or_container_leaves_rows_as_they_are(tmp_path):
    path = write(tmp_path, "d.json", SHAREGPT)
    assert Dataset.read(path, key="conversations").fmt == "json"
    assert Dataset.read(path, key="id", fmt="json")[0].value == "a"
    mixed = write(tmp_path, "e.jsonl", jsonl([{"prompt": "p", **MOONCAKE[0]}]))
    assert Dataset.read(mixed).fmt == "jsonl"


ATOMS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4)
NAMES = st.sampled_from([
    *("conversations", "from", "value", "messages", "turns", "role", "content", "text", "payload", "session_id", "id"),
    *("delay", "timestamp", "custom_id", "url", "method", "body", "input_length", "output_length", "hash_ids"),
])  # fmt: skip
VALUES = st.recursive(
    ATOMS | st.sampled_from(["human", "user", "gpt", "/v1/completions", 7]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=12,
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.dictionaries(NAMES, VALUES, max_size=6), min_size=1, max_size=3),
    st.sampled_from([None, "sharegpt", "multi-turn", "openai-batch", "perf-analyzer", "mooncake"]),
)
def test_whatever_a_file_holds_it_is_read_or_refused(rows, fmt):
    data = jsonl(rows).encode()
    refusal, found = None, None
    try:
        found = rows_of(data, "f.jsonl", fmt, None, "estimate")
    except DatasetError as problem:
        refusal = problem
    assert refusal is None or str(refusal.where).startswith("f.jsonl:")
    assert found is None or len(found.parsed.lines) == len(found.parsed.rows)
