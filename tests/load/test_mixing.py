"""Streams with rows, models and priorities of their own, down to the bytes that are sent."""

import json

import pytest

from gpusize.base.errors import UsageError
from gpusize.measure.encode import prepare
from gpusize.measure.mix import server_priorities, streamed, think_times_ns, with_priority_header
from gpusize.targets.apis import render
from gpusize.targets.server import Target
from gpusize.workload.dataset import Dataset
from gpusize.workload.load import Load, Stream

BASE = Dataset.from_rows(["a", "b", "c"])


def target(model="base"):
    return Target("http://127.0.0.1:9/v1", model=model)


def load_of(*streams, **more):
    return Load(streams=streams, duration_s=10, **more)


def bodies(asked, dataset):
    return [json.loads(render(asked.make_api(), row)) for row in dataset]


def test_streams_without_differences_share_the_rows():
    load = load_of(Stream(rate=1), Stream(rate=2))
    asked = target()
    assert streamed(asked, BASE, load) == (asked, BASE, load)


def test_each_model_and_priority_gets_rows_of_its_own():
    load = load_of(Stream(rate=1), Stream(rate=2, model="lora"), Stream(rate=3, priority=5), Stream(rate=3, priority=5))
    asked, rows, planned = streamed(target(), BASE, load)
    assert [stream.rows for stream in planned.streams] == [(0, 3), (3, 3), (6, 3), (6, 3)]
    assert len(rows) == 9
    assert len(set(rows.ids)) == 9
    assert asked.models == {"base": 1, "lora": 1}
    assert rows.sha256 == BASE.sha256
    [level] = planned.levels(rows)
    assert [each["rows"] for each in level.plan["load"]["open"]["streams"]] == [[0, 3], [3, 3], [6, 3], [6, 3]]


def test_what_a_server_is_told():
    streams = [
        Stream(rate=1, model="m", priority=2),
        Stream(rate=1, model="m", server_priority=9),
        Stream(rate=1, model="n"),
    ]
    asked, rows, _ = streamed(target(), BASE, load_of(*streams))
    sent = bodies(asked, rows)
    # vLLM serves lower numbers first.
    assert [body.get("priority") for body in sent] == [-2] * 3 + [9] * 3 + [None] * 3
    assert [body["model"] for body in sent] == ["m"] * 6 + ["n"] * 3
    assert {body["messages"][0]["content"] for body in sent} == {"a", "b", "c"}
    assert all("stream_priority" not in body for body in sent)


def test_a_header_tells_it_instead():
    load = load_of(Stream(rate=1, priority=2), Stream(rate=1), priority_header="X-Priority")
    asked, rows, _ = streamed(target(), BASE, load)
    assert all("priority" not in body for body in bodies(asked, rows))
    plain = {"path": "/", "segments": [], "headers": [["A", "1"]], "model": 0}
    mix = with_priority_header({"requests": [plain], "of_row": [0] * 6, "turns": None}, rows, "X-Priority")
    assert [each["headers"] for each in mix["requests"]] == [[["A", "1"], ["X-Priority", "2"]], [["A", "1"]]]
    assert (mix["of_row"], mix["turns"]) == ([0, 0, 0, 1, 1, 1], None)
    assert server_priorities(load) == []


def test_kserve_counts_ranks_from_the_top():
    load = load_of(
        Stream(rate=1, priority=10), Stream(rate=1, priority=-3), Stream(rate=1), Stream(rate=1, server_priority=8)
    )
    assert server_priorities(load) == [1, 2, 8]


def test_datasets_of_their_own(tmp_path):
    (tmp_path / "one.jsonl").write_text('{"question": "x"}\n{"question": "y"}\n', "utf-8")
    (tmp_path / "two.csv").write_text("prompt,extra\nz,1\n", "utf-8")
    one, two = str(tmp_path / "one.jsonl"), str(tmp_path / "two.csv")
    load = load_of(Stream(rate=1, dataset=one), Stream(rate=1, dataset=two), Stream(rate=1))
    assert [len(each) for each in list(load.own_datasets().values())] == [2, 1]
    asked, rows, planned = streamed(target(), BASE, load)
    assert [stream.rows for stream in planned.streams] == [(0, 2), (2, 1), (3, 3)]
    assert [body["messages"][0]["content"] for body in bodies(asked, rows)] == ["x", "y", "z", "a", "b", "c"]
    assert rows.options() == BASE.options()
    assert rows.sha256 != streamed(target(), BASE, load_of(*load.streams[:2]))[1].sha256
    again = load_of(*(Stream(rate=1, dataset=each.dataset) for each in load.streams[:2]))
    alone = streamed(target(), None, again)[1]
    assert (len(alone), alone.options()) == (3, {})
    with pytest.raises(UsageError, match="it has nothing to send"):
        streamed(target(), None, load)


def test_a_mix_of_models_is_dealt_out_where_no_stream_names_one():
    _, rows, planned = streamed(target("a=2,b=1"), BASE, load_of(Stream(rate=1), Stream(rate=1, priority=1)))
    assert [row["model"] for row in rows.rows[:3]].count("a") == 2
    assert planned.streams[1].rows == (len(rows) // 2, len(rows) // 2)


@pytest.mark.parametrize("models, asked_for", [("base", {"base"}), ("base=1,more=1", {"base", "more"})])
def test_streams_without_a_model_ask_for_that_of_the_run(models, asked_for, tmp_path):
    (tmp_path / "own.jsonl").write_text('{"prompt": "x"}\n', "utf-8")
    own = Stream(rate=1, dataset=str(tmp_path / "own.jsonl"))
    asked, rows, planned = streamed(target(models), BASE, load_of(Stream(rate=1), Stream(rate=1, model="n"), own))
    sent = [body["model"] for body in bodies(asked, rows)]
    parts = [set(sent[first : first + count]) for first, count in (each.rows or (0, 0) for each in planned.streams)]
    assert parts == [asked_for, {"n"}, asked_for]


def test_streams_without_a_model_need_one():
    load = load_of(Stream(rate=1), Stream(rate=1, model="n"))
    with pytest.raises(UsageError, match="some streams name a model"):
        streamed(Target("http://127.0.0.1:9/v1"), BASE, load)


def test_recorded_think_times():
    rows = Dataset.from_rows([{"prompt": "a", "delay_s": 1.5}, {"prompt": "b"}, {"prompt": "c", "delay_s": "2"}])
    assert think_times_ns(rows) == [1_500_000_000, 0, 2_000_000_000]
    with pytest.raises(UsageError, match="no row says"):
        think_times_ns(BASE)
    with pytest.raises(UsageError, match='"delay_s" is -1'):
        think_times_ns(Dataset.from_rows([{"prompt": "a", "delay_s": -1}]))


def test_turns_are_counted_where_rows_do_not_number_them():
    rows = [{"prompt": text, "session": name} for text, name in (("a", "x"), ("b", "y"), ("c", "x"), ("d", "x"))]
    talks = Dataset.from_rows([*rows, {"prompt": "e"}, {"prompt": "f", "session": "y", "turn": 7}])
    mix = prepare(target(), talks, load=Load(concurrencies=[1], sessions=True)).mix
    assert mix is not None
    assert (mix["sessions"], mix["turns"]) == ([0, 1, 0, 0, 2, 1], [0, 0, 1, 2, 0, 7])


def test_sessions_need_rows_that_say_theirs():
    with pytest.raises(UsageError, match="no row says which conversation"):
        prepare(target(), BASE, load=Load(concurrencies=[1], sessions=True))


def test_marks_are_never_sent():
    rows = Dataset.from_rows([{"id": "x", "a": 1}], key=".")
    for header in (None, "X-Priority"):
        load = load_of(Stream(rate=1, priority=1), Stream(rate=2), priority_header=header)
        asked = Target("http://127.0.0.1:9/any", api="generic")
        _, joined, _ = streamed(asked, rows, load)
        assert [row.value for row in joined] == [{"a": 1}] * 2


def test_rows_of_several_keys_are_sent_by_the_runs_own(tmp_path):
    (tmp_path / "q.csv").write_text("question\nwhy\n", "utf-8")
    load = load_of(Stream(rate=1, dataset=str(tmp_path / "q.csv")), Stream(rate=2))
    asked, rows, planned = streamed(target(), BASE, load)
    assert (rows.key, rows.source, planned.streams[0].rows) == ("prompt", "rows", (0, 1))
    assert bodies(asked, rows)[0]["messages"][0]["content"] == "why"
