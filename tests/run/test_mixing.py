"""Several models behind one address: rows dealt out, bodies that ask, numbers in the records."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpusize.base.errors import UsageError
from gpusize.measure.encode import model_names, prepare
from gpusize.measure.mix import dealt
from gpusize.measure.spec import RunSpec
from gpusize.targets.server import Target
from gpusize.workload.dataset import Dataset
from gpusize.workload.load import Load

ROWS = [{"id": "x", "prompt": "one", "model": "its own"}, {"id": "y", "prompt": "two"}]


def requested(target: Target, rows: list[dict[str, Any]] = ROWS, key: str | None = None) -> RunSpec:
    return RunSpec(target, Dataset.from_rows(rows, key=key), Load(count=1))


def bodies(request: RunSpec) -> list[dict[str, Any]]:
    assert isinstance(request.target, Target)
    ready = prepare(request.target, request.dataset)
    static = [segment.get("static", "") for segment in ready.segments]
    holes = [segment.get("field") for segment in ready.segments]
    made = []
    for row in ready.rows:
        pieces = [text.encode() if hole is None else row[hole] for text, hole in zip(static, holes, strict=True)]
        made.append(json.loads(b"".join(pieces)))
    return made


def test_every_model_gets_every_row_in_its_share() -> None:
    mixed = dealt(Dataset.from_rows(ROWS), {"a": 3, "b": 1})
    assert [row["model"] for row in mixed.rows] == ["a", "a", "b", "a"] * 2
    for model, times in (("a", 3), ("b", 1)):
        sent = [row["prompt"] for row in mixed.rows if row["model"] == model]
        assert (sent.count("one"), sent.count("two")) == (times, times)
    assert len(set(mixed.ids)) == len(mixed)
    assert list(mixed.ids[:3]) == ["x", "y", "x_rep1"]


def test_a_cycle_that_would_be_too_long_is_refused() -> None:
    with pytest.raises(UsageError, match="ake fewer rows"):
        dealt(Dataset.from_rows(ROWS), {"a": 999_999, "b": 2})


@pytest.mark.parametrize(
    "api", ["openai-chat", "openai-completions", "openai-embeddings", "openai-responses", "generic"]
)
def test_bodies_ask_for_the_rows_model_and_the_records_number_it(api: str) -> None:
    request = requested(Target("http://h/v1", api=api, model="a=3,b=1"))
    asked = [body["model"] for body in bodies(request)]
    assert asked == ["a", "a", "b", "a"] * 2
    assert isinstance(request.target, Target)
    mix = prepare(request.target, request.dataset).mix
    assert mix is not None
    names = model_names(request.target, request.dataset)
    assert [names[mix["requests"][number]["model"]] for number in mix["of_row"]] == asked
    facts = request.facts()
    assert (facts["models"], facts["options"]["model"]) == (["a", "b"], "a=3,b=1")


def test_the_mix_wins_over_the_model_in_a_complete_body() -> None:
    rows = [{"body": {"model": "theirs", "messages": [{"role": "user", "content": "x"}]}}]
    request = requested(Target("http://h/v1", model="a=1,b=1"), rows)
    assert [body["model"] for body in bodies(request)] == ["a", "b"]


def test_a_template_may_name_the_rows_model() -> None:
    request = requested(Target("http://h/x", model="a,b", body_template='{"q": "${prompt}", "to": "${model}"}'))
    assert [body["to"] for body in bodies(request)] == ["a", "b"] * 2


def test_one_model_wins_over_what_rows_say_in_the_records_too() -> None:
    request = requested(Target("http://h/v1", model="m"))
    assert [body["model"] for body in bodies(request)] == ["m", "m"]
    assert isinstance(request.target, Target)
    assert prepare(request.target, request.dataset).mix is None
    assert request.facts()["models"] == ["m"]


def test_without_a_model_the_rows_own_ones_are_numbered() -> None:
    request = requested(Target("http://h/v1"))
    assert isinstance(request.target, Target)
    mix = prepare(request.target, request.dataset).mix
    assert mix is not None
    names = request.facts()["models"]
    assert [names[mix["requests"][number]["model"]] for number in mix["of_row"]] == ["its own", ""]
