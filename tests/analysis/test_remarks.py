"""What is said of tokens, lengths and calls, and when nothing is."""

from __future__ import annotations

import pytest

from gpusize.analysis.checks import check
from gpusize.result import Result
from tests.analysis.synthetic import MS
from tests.report.folders import level_columns, run_folder, streamed


def level_of(place, columns, **more):
    return Result([run_folder(place / "r", {2: columns}, **more)]).levels[0]


def said(place, columns, **more):
    return check(level_of(place, columns, **more)).remarks


def test_a_plain_stream_needs_no_word(tmp_path):
    columns = level_columns(2)
    streamed(columns, 5, tokens=6)  # the token that ends an answer has no event
    found = check(level_of(tmp_path, columns))
    assert found.remarks == []
    assert found.flags == []


def test_several_tokens_to_an_event_are_counted_by_usage(tmp_path):
    columns = level_columns(2)
    streamed(columns, 5)
    columns["tokens_out"] = [20 if k % 4 == 0 else 5 for k in range(len(columns["due_ns"]))]
    (text,) = said(tmp_path, columns)
    assert text == (
        "25.0% of the streamed answers have several tokens to an event: "
        "itl is the gap between events, itl_mean that between tokens"
    )


def test_a_token_held_back_now_and_then_is_not_worth_a_word(tmp_path):
    columns = level_columns(2)
    streamed(columns, 5)
    columns["tokens_out"] = [20 if k == 50 else 5 for k in range(len(columns["due_ns"]))]
    assert said(tmp_path / "few", columns | {"tokens_out": [5] * len(columns["due_ns"])}) == []
    assert len(said(tmp_path / "one", columns)) == 1  # one of 96 is more than 1 %


def test_whole_answers_are_no_streams(tmp_path):
    columns = level_columns(2)
    streamed(columns, 1, tokens=50)
    assert said(tmp_path, columns) == []


def test_whole_answers_of_which_some_lack_their_usage_are_said(tmp_path):
    columns = level_columns(2)
    streamed(columns, 1, tokens=50)
    columns["tokens_out"] = [None if k % 4 == 0 else 50 for k in range(len(columns["due_ns"]))]
    (text,) = said(tmp_path / "some", columns)
    assert text == "the server reported no usage for 25.0% of the answers: tokens/s lacks their tokens"
    columns["tokens_out"] = [None] * len(columns["due_ns"])
    assert said(tmp_path / "none", columns) == []


@pytest.mark.parametrize(
    "every, words", [(1, "reported no usage:"), (2, "no usage for 50.0% of the streamed answers:")]
)
def test_an_absent_usage_is_said(tmp_path, every, words):
    columns = level_columns(2)
    streamed(columns, 5)
    columns["tokens_out"] = [None if k % every == 0 else 5 for k in range(len(columns["due_ns"]))]
    (text,) = said(tmp_path, columns)
    assert words in text


def test_an_absent_usage_matters_for_language_models_only(tmp_path):
    columns = level_columns(2)
    streamed(columns, 5)
    assert said(tmp_path, columns, targets=0) == []


@pytest.mark.parametrize("reported, flagged", [(100, False), (102, False), (103, True), (97, True)])
def test_lengths_off_by_more_than_two_percent_are_said(tmp_path, reported, flagged):
    columns = level_columns(2)
    streamed(columns, 110, tokens=reported)
    rows = [{"output_tokens": 100}]
    lv = level_of(tmp_path, columns, rows=rows)
    (length,) = lv.lengths()
    assert (length.asked_mean, length.reported_mean, length.flagged) == (100, reported, flagged)
    assert [str(length)] * flagged == check(lv).remarks


def test_requests_without_a_call_are_counted_where_others_have_one(tmp_path):
    columns = level_columns(2)
    n = len(columns["due_ns"])
    calls = [
        {"seq": k, "kind": "llm" if k % 2 else "tool", "name": "m", "outcome": "ok"}
        | {"start_ns": columns["sent_ns"][k], "end_ns": columns["sent_ns"][k] + 20 * MS}
        for k in range(n)
    ]
    (text,) = said(tmp_path / "some", columns, spans={2: calls})
    assert text.startswith("50.0% of the requests that ended ok have no LLM call")
    assert said(tmp_path / "all", columns, spans={2: [{**each, "kind": "llm"} for each in calls]}) == []
    assert said(tmp_path / "none", columns, spans={2: [{**each, "kind": "tool"} for each in calls]}) == []
