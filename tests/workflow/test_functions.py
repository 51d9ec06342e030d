"""A workflow in Python gives the same columns, files and outcomes as a server."""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import gpusize
from gpusize.base.errors import EnvironmentLacks, TargetError, UsageError
from gpusize.records.calls import span_dtypes
from gpusize.records.schema import SERVER_TIMES, record_dtypes
from gpusize.targets.workflow.function import is_asynchronous, load_function, name_of
from gpusize.targets.workflow.target import WorkflowTarget, workflow_from_options
from gpusize.workload.load import Load
from tests.workflow import flows
from tests.workflow.conftest import Measure

PATH = "tests.workflow.flows"
ONCE = Load(concurrencies=(1,), passes=1)


def test_two_hundred_at_once_lose_nothing_and_are_in_flight(measure: Measure) -> None:
    result = measure(WorkflowTarget(f"{PATH}:two_calls", gpus=4), ["a", "b"], Load(concurrencies=(200,), passes=5))
    records = result.records
    assert sorted(records["seq"].to_list()) == list(range(1000))
    assert records["outcome"].unique().to_list() == ["ok"]
    assert records["row"].value_counts().sort("row")["count"].to_list() == [500, 500]
    [level] = result.levels
    assert level.state == "done"
    assert level.gpus == 4
    # All slots start at one instant: the first 200 are due then, and nobody is due before.
    due = records.sort("seq")["due_ns"]
    assert due.head(200).unique().to_list() == [level.meta["start_ns"]]
    assert due.min() == level.meta["start_ns"]
    stamps = records.select(pl.all_horizontal(
        pl.col("due_ns") <= pl.col("fired_ns"), pl.col("fired_ns") <= pl.col("sent_ns"),
        pl.col("sent_ns") <= pl.col("end_ns"),
    ))  # fmt: skip
    assert stamps.to_series().all()


def test_files_have_the_columns_of_the_engine(measure: Measure) -> None:
    result = measure(WorkflowTarget(f"{PATH}:two_calls"), ["a"], ONCE)
    folder = result.path / "levels" / "0000"
    [record_part] = (folder / "records").iterdir()
    [span_part] = (folder / "spans").iterdir()
    stored = pl.read_parquet(record_part)
    # No server tells a function how long it took.
    assert dict(stored.schema) == {name: kind for name, kind in record_dtypes().items() if name not in SERVER_TIMES}
    needed = ("visit", "stream", "seq", "attempt", "row", "target", "model", "host", "worker", "conn", "events")
    assert stored.select(needed).null_count().row(0) == (0,) * len(needed)
    spans = pl.read_parquet(span_part)
    assert dict(spans.schema) == span_dtypes()
    assert (
        spans.select("visit", "stream", "seq", "attempt", "call", "domain", "outcome").null_count().row(0) == (0,) * 7
    )
    meta = result.levels[0].meta
    assert (meta["spans"], meta["span_parts"]) == (3, ["spans/part-00000.parquet"])
    assert meta["generator"]["kind"] == "python"
    assert meta["generator"]["runs"] == "an asynchronous function"
    assert 0 <= meta["generator"]["cpu_share"] < 64
    histogram = result.levels[0].histograms
    assert histogram is not None
    counts = histogram.filter(pl.col("metric") == "runtime").collect()
    assert counts["count"].sum() == 1
    assert ((counts["high_ns"] - counts["low_ns"]) <= 0.008 * counts["high_ns"]).all()


def test_overlapping_calls_are_told_apart(measure: Measure) -> None:
    result = measure(WorkflowTarget(f"{PATH}:two_calls"), ["a"], Load(concurrencies=(4,), passes=2))
    [level] = result.levels
    assert level.calls is not None
    calls = level.calls.collect()
    assert calls.group_by("name").len().sort("name").rows() == [("one", 8), ("two", 8)]
    for _, pair in calls.group_by("seq"):
        one, two = (pair.filter(pl.col("name") == name).row(0, named=True) for name in ("one", "two"))
        assert one["start_ns"] < two["end_ns"]
        assert two["start_ns"] < one["end_ns"]
        assert {one["call"], two["call"]} == {0, 1}
        assert (one["tokens_in"], one["tokens_out"], one["kind"], one["outcome"]) == (7, 3, "llm", "ok")
        assert one["start_ns"] <= one["first_token_ns"] <= one["end_ns"]
    values = level.values("llm_latency")
    assert sorted(values) == pytest.approx(sorted((calls["end_ns"] - calls["start_ns"]) / 1e9))
    summary = result.summary
    assert summary["llm_calls"].to_list() == [16]
    assert summary["llm_latency_max_s"].to_list() == [pytest.approx(max(values))]


def test_the_argument_is_what_the_row_sends(measure: Measure) -> None:
    measure(WorkflowTarget(flows.plain), ["a", "b"], Load(concurrencies=(1,), count=3))
    # The first row goes once before the run.
    assert flows.seen == ["a", "a", "b", "a"]
    flows.seen.clear()
    rows = [{"id": "x", "question": "why", "hints": [1]}]
    measure(WorkflowTarget(flows.agent), rows, ONCE, key=".")
    assert flows.seen[-1] == {"question": "why", "hints": [1]}
    assert flows.seen[-1]["hints"] is not rows[0]["hints"]


@pytest.mark.parametrize("name, events", [("stream", 3), ("pieces", 2), ("plain", 0)])
def test_items_of_a_generator_are_content(measure: Measure, name: str, events: int) -> None:
    [row] = measure(WorkflowTarget(f"{PATH}:{name}"), ["a"], ONCE).records.to_dicts()
    assert row["events"] == events
    if events:
        assert row["sent_ns"] <= row["first_token_ns"] <= row["last_token_ns"] <= row["end_ns"]
    else:
        assert row["first_token_ns"] is None


def test_a_function_that_blocks_runs_on_threads(measure: Measure) -> None:
    result = measure(WorkflowTarget(f"{PATH}:blocking"), ["a"], Load(concurrencies=(3,), passes=4))
    names = {name for _, name in flows.seen}
    assert names == {"gpusize-workflow"}
    assert result.levels[0].meta["generator"]["runs"] == "a function on threads"
    assert result.summary["llm_calls"].to_list() == [12]
    rest = measure(WorkflowTarget(f"{PATH}:later"), ["a"], ONCE)
    assert rest.summary["llm_calls"].to_list() == [1]


@pytest.mark.parametrize(
    "question, outcome, message",
    [
        ("value", "api_error", "ValueError: no such thing"),
        ("time", "timeout", "TimeoutError: late"),
        ("net", "connect_error", "ConnectionResetError: gone"),
        ("cancel", "api_error", "CancelledError: "),
        ("exit", "api_error", "SystemExit: 3"),
    ],
)
def test_exceptions_are_outcomes(measure: Measure, question: str, outcome: str, message: str) -> None:
    load = Load(concurrencies=(1,), count=4, max_error_share=1.0)
    result = measure(WorkflowTarget(f"{PATH}:broken"), ["fine", question], load, slos="p95 llm_latency <= 10s")
    assert result.records.sort("seq")["outcome"].to_list() == ["ok", outcome] * 2
    [error] = result.levels[0].meta["errors"]
    assert (error["outcome"], error["message"], error["count"]) == (outcome, message, 2)
    assert result.summary["slo_0_attainment"].to_list() == [0.5]
    assert result.summary["llm_calls_failed"].to_list() == [0 if question in ("cancel", "exit") else 2]


def test_a_failure_voids_a_level_by_passes(measure: Measure) -> None:
    result = measure(WorkflowTarget(f"{PATH}:broken"), ["fine", "value"], Load(concurrencies=(1, 2), passes=2))
    assert result.summary["state"].to_list() == ["interrupted", "interrupted"]
    assert [level.meta["stop_reason"] for level in result.levels] == ["errors", "errors"]


def test_levels_that_follow_at_once_lose_no_request(measure: Measure) -> None:
    load = Load(concurrencies=(2, 5, 1), count=40)
    result = measure(WorkflowTarget(f"{PATH}:two_calls"), ["a"], load)
    records = result.records
    assert [sorted(records.filter(visit=k)["seq"].to_list()) for k in range(3)] == [list(range(40))] * 3
    starts = [level.meta["start_ns"] for level in result.levels]
    closes = [level.meta["close_ns"] for level in result.levels]
    assert starts[1] >= closes[0]
    assert starts[2] >= closes[1]


def test_rows_in_a_seeded_random_order(measure: Measure) -> None:
    def order() -> list[int]:
        load = Load(concurrencies=(1,), count=20, order="shuffled", seed=5)
        result = measure(WorkflowTarget(f"{PATH}:plain"), [f"row {k}" for k in range(10)], load)
        rows: list[int] = result.records.sort("seq")["row"].to_list()
        return rows

    first = order()
    assert first == order()
    assert sorted(first[:10]) == sorted(first[10:]) == list(range(10))
    assert first[:10] != first[10:]


def test_an_open_loop_is_due_by_its_schedule(measure: Measure) -> None:
    load = Load(rates=(200.0,), count=20, process="constant")
    result = measure(WorkflowTarget(f"{PATH}:plain"), ["a"], load)
    due = result.records.sort("seq")["due_ns"]
    assert due.diff().drop_nulls().unique().to_list() == [5_000_000]


def test_an_open_loop_sheds_beyond_its_queue(measure: Measure) -> None:
    all_due = threading.Event()

    async def until_all_are_due(question: str) -> None:
        if question != "first":
            await asyncio.to_thread(all_due.wait)

    def look(event: Any) -> None:
        if event.progress["due"] == 10:
            all_due.set()

    load = Load(rates=(500.0,), count=10, process="constant", connections=1, queue=2, max_error_share=1.0)
    result = measure(WorkflowTarget(until_all_are_due), ["first", *["wait"] * 9], load, progress=look)
    outcomes = result.records.sort("seq")["outcome"].to_list()
    # Row 0 ends at once, one is in flight and two wait; or row 0 is the one, where a stall made the others due with it.
    assert outcomes[0] == "ok"
    assert (outcomes.count("ok"), outcomes.count("shed")) in [(4, 6), (3, 7)]
    shed = result.records.filter(outcome="shed")
    assert shed["sent_ns"].null_count() == shed.height


def test_a_call_outside_any_request_does_nothing() -> None:
    with gpusize.targets.workflow.call("llm") as made:
        made.token()
        made.usage(tokens_in=1)
    assert gpusize.targets.workflow.llm_base_url() is None


def test_what_cannot_be_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, message in (
        ("flows", "names no function"),
        ("no_such_module_here:f", "no module no_such_module_here"),
        (f"{PATH}:nothing", "no nothing in it"),
        (f"{PATH}:seen", "cannot be called"),
        ("threading:active_count", "with one argument"),
    ):
        with pytest.raises(UsageError, match=message):
            load_function(path)
    (tmp_path / "bad_workflow_module.py").write_text("import a_module_that_is_not_there\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(EnvironmentLacks, match="a_module_that_is_not_there"):
        load_function("bad_workflow_module:f")


def test_how_functions_are_called() -> None:
    assert is_asynchronous(flows.plain)
    assert is_asynchronous(flows.stream)
    assert is_asynchronous(flows.agent)
    assert is_asynchronous(functools.partial(flows.plain))
    assert not is_asynchronous(flows.blocking)
    assert not is_asynchronous(flows.pieces)
    assert name_of(flows.plain) == f"{PATH}:plain"
    assert name_of(flows.agent) == f"{PATH}:Agent"
    assert load_function(f"{PATH}:agent.answer") == flows.agent.answer


def test_a_workflow_that_fails_at_once_is_told_before_a_folder_appears(measure: Measure, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="ValueError: no such thing"):
        measure(WorkflowTarget(f"{PATH}:broken"), ["value"], ONCE)
    assert not (tmp_path / "runs").exists()


def test_secrets_of_the_environment_are_in_no_file(
    measure: Measure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret-1234")

    async def leaks(question: str) -> None:
        if question == "bad":
            raise ValueError("the key sk-very-secret-1234 was refused")

    load = Load(concurrencies=(1,), count=2, max_error_share=1.0)
    result = measure(WorkflowTarget(leaks), ["fine", "bad"], load)
    assert "(hidden)" in result.levels[0].meta["errors"][0]["message"]
    for file in (tmp_path / "runs").rglob("*"):
        assert not file.is_file() or b"sk-very-secret" not in file.read_bytes()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "a function or a command"),
        ({"workflow": "a:b", "command": "c"}, "a function or a command"),
        ({"workflow": "a:b", "gpus": 0}, "gpus is 0"),
        ({"workflow": "a:b", "timeout_s": 0}, "timeout_s is 0"),
        ({"workflow": "a:b", "llm_proxy": "ftp://x"}, "ftp"),
        ({"workflow": "a:b", "llm_proxy": "http://user:word@host/v1"}, "password"),
    ],
)
def test_targets_that_cannot_be_meant(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        WorkflowTarget(**arguments)


def test_the_engine_leaves_no_thread(measure: Measure) -> None:
    measure(WorkflowTarget(f"{PATH}:plain"), ["a"], ONCE)
    assert not [each.name for each in threading.enumerate() if each.name in ("gpusize-loop", "gpusize-parts")]


def test_options_make_the_target_and_back() -> None:
    options = {
        "workflow": f"{PATH}:plain",
        "model": "m",
        "gpus": 8,
        "timeout": "2.5s",
        "llm_proxy": "http://llm:8000/v1",
    }
    target = workflow_from_options({**options, "users": 100, "url": None})
    assert target is not None
    assert target.options() == options
    assert target.timeout_s == 2.5
    assert target.public()[0]["api"] == "workflow"
    command = workflow_from_options({"command": "prog {question}"})
    assert command is not None
    assert (command.api, command.url, command.timeout_s) == ("command", "prog {question}", 300.0)
    assert workflow_from_options({"url": "http://h", "llm_proxy": "http://llm:8000/v1"}) is None
    with pytest.raises(UsageError, match="an address and a workflow"):
        workflow_from_options({"url": "http://h", "workflow": "a:b"})


def test_the_run_folder_says_what_was_called(measure: Measure) -> None:
    result = measure(WorkflowTarget(flows.plain, gpus=8, model="m"), ["a"], ONCE)
    [target] = result.meta["targets"]
    assert (target["url"], target["api"], target["gpus"]) == (f"{PATH}:plain", "workflow", 8)
    assert result.meta["options"]["workflow"] == f"{PATH}:plain"
    assert result.meta["models"] == ["m"]
    assert any("Python is the generator" in note for note in WorkflowTarget(flows.plain).notes())
