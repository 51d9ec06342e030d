"""Python workflows leave the same columns, outcomes and files as the engine."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

import gpusize
from gpusize.base.errors import StoreError, UsageError
from gpusize.engine.clock_log import ClockLog
from gpusize.records.calls import scan_calls
from gpusize.records.schema import SERVER_TIMES, record_dtypes
from gpusize.records.store import level_dirs, read_level
from gpusize.targets.workflow import call
from gpusize.targets.workflow.record import outcome_of
from gpusize.targets.workflow.recorder import RecordedLevel
from tests.run.fakes import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[gpusize.Recorder]:
    clock = FakeClock()
    made = gpusize.Recorder(
        tmp_path, target="flow", gpus=8, model="m", labels={"k": "v"}, clock=clock.ns, clocks=ClockLog(read=clock.pair)
    )
    with made:
        yield made


def test_stamps_are_in_order_and_the_row_is_complete(recorder: gpusize.Recorder) -> None:
    with recorder.level(2) as level, level.request(row=5) as request:
        request.first_byte()
        request.token()
        request.token()
        request.report(tokens_in=10, tokens_out=2, status=200)
    [part] = (level_dirs(recorder.path)[0] / "records").iterdir()
    frame = pl.read_parquet(part)
    # No server tells a recorder how long it took.
    assert dict(frame.schema) == {name: kind for name, kind in record_dtypes().items() if name not in SERVER_TIMES}
    row = frame.row(0, named=True)
    stamps = ["due_ns", "sent_ns", "first_byte_ns", "first_token_ns", "last_token_ns", "end_ns"]
    assert [row[name] for name in stamps] == sorted({row[name] for name in stamps})
    assert (row["row"], row["events"], row["tokens_in"], row["tokens_out"], row["status"]) == (5, 2, 10, 2, 200)
    assert (row["outcome"], row["error_id"], row["visit"], row["seq"]) == (0, None, 0, 0)


def test_a_result_reads_what_the_recorder_wrote(recorder: gpusize.Recorder) -> None:
    for concurrency in (1, 2):
        with recorder.level(concurrency) as level:
            for _ in range(3):
                with level.request() as request:
                    request.first_token()
                    request.first_token()
    result = gpusize.open_run(recorder.path)
    assert result.records.height == 6
    assert result.records["events"].to_list() == [1] * 6
    assert result.summary["concurrency"].to_list() == [1, 2]
    assert result.summary["n"].to_list() == [3, 3]
    assert result.summary["state"].to_list() == ["done", "done"]
    assert result.levels[0].gpus == 8
    assert result.meta["labels"] == {"k": "v"}


def test_an_exception_is_an_outcome_and_goes_on(recorder: gpusize.Recorder) -> None:
    with recorder.level(1) as level:
        for error in (ValueError("no"), TimeoutError("late"), ValueError("no")):
            with pytest.raises(type(error)), level.request():
                raise error
        with level.request() as request:
            request.fail("truncated", "half an answer")
    folder = level_dirs(recorder.path)[0]
    found = read_level(folder)
    assert found["outcomes"] == {"api_error": 2, "timeout": 1, "truncated": 1}
    assert [(e["id"], e["outcome"], e["message"], e["count"]) for e in found["errors"]] == [
        (0, "api_error", "ValueError: no", 2),
        (1, "timeout", "TimeoutError: late", 1),
        (2, "truncated", "half an answer", 1),
    ]
    records = gpusize.open_run(recorder.path).records
    assert records["error_id"].to_list() == [0, 1, 0, 2]
    assert records["outcome"].to_list() == ["api_error", "timeout", "api_error", "truncated"]


@pytest.mark.parametrize(
    "error, outcome",
    [
        (asyncio.CancelledError(), "cancelled"),
        (KeyboardInterrupt(), "cancelled"),
        (TimeoutError(), "timeout"),
        (ssl.SSLError(), "tls_error"),
        (ConnectionResetError(), "connect_error"),
        (OSError(), "api_error"),
    ],
)
def test_exceptions_by_outcome(error: BaseException, outcome: str) -> None:
    assert outcome_of(error) == outcome


def test_an_exception_in_the_level_voids_it_and_keeps_it(recorder: gpusize.Recorder) -> None:
    def workflow() -> None:
        with recorder.level(1) as level:
            with level.request():
                pass
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        workflow()
    found = read_level(level_dirs(recorder.path)[0])
    assert (found["state"], found["rows"]) == ("interrupted", 1)
    with pytest.raises(KeyboardInterrupt), recorder.level(1):
        raise KeyboardInterrupt
    assert read_level(level_dirs(recorder.path)[1])["state"] == "cancelled"


def test_many_threads_lose_nothing(recorder: gpusize.Recorder) -> None:
    threads, each = 8, 50
    barrier = threading.Barrier(threads)

    def work(level: RecordedLevel) -> None:
        barrier.wait()
        for _ in range(each):
            with level.request():
                pass

    with recorder.level(threads) as level, ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(work, level) for _ in range(threads)]:
            future.result()
    records = gpusize.open_run(recorder.path).records
    assert sorted(records["seq"].to_list()) == list(range(threads * each))


def test_a_request_that_outlives_its_level_is_an_error(recorder: gpusize.Recorder) -> None:
    with recorder.level(1) as level:
        request = level.request()
        request.__enter__()
    with pytest.raises(UsageError, match="ended outside its level"):
        request.__exit__(None, None, None)


def test_what_cannot_be_meant_is_refused(recorder: gpusize.Recorder) -> None:
    with pytest.raises(UsageError, match="must be 1 or more, not 0"):
        recorder.level(0)
    with recorder.level(1) as level, level.request() as request:
        with pytest.raises(UsageError, match="'tokens' cannot be reported"):
            request.report(tokens=1)
        with pytest.raises(UsageError, match="'bad' is not an outcome"):
            request.fail("bad")


def test_a_writer_that_fails_is_told_when_the_level_is_left(recorder: gpusize.Recorder) -> None:
    def workflow() -> None:
        with recorder.level(1) as level:
            with level.request():
                pass
            folder = recorder.path / "levels" / ".0000.open" / "records"
            folder.rename(folder.with_name("gone"))

    with pytest.raises(StoreError, match="part-00000"):
        workflow()


def test_calls_inside_a_request_are_kept_with_it(recorder: gpusize.Recorder) -> None:
    @call("tool", name="search")
    def search() -> None:
        pass

    @call("llm", name="chat")
    async def chat() -> None:
        raise TimeoutError

    with recorder.level(1) as level:
        with level.request() as request:
            with call("llm", name="plan") as made:
                made.token()
                made.usage(tokens_in=5, tokens_out=2)
            search()
            with contextlib.suppress(TimeoutError):
                asyncio.run(chat())
            with request.call("llm", name="by hand") as made:
                made.fail("api_error")
        with level.request():
            search()
    search()
    folder = level_dirs(recorder.path)[0]
    assert read_level(folder)["spans"] == 5
    frame = scan_calls(sorted((folder / "spans").iterdir()))
    assert frame is not None
    rows = frame.sort("seq", "call").collect()
    assert rows.select("seq", "call", "kind", "name", "outcome").rows() == [
        (0, 0, "llm", "plan", "ok"),
        (0, 1, "tool", "search", "ok"),
        (0, 2, "llm", "chat", "timeout"),
        (0, 3, "llm", "by hand", "api_error"),
        (1, 0, "tool", "search", "ok"),
    ]
    plan = rows.row(0, named=True)
    assert (plan["tokens_in"], plan["tokens_out"], plan["domain"]) == (5, 2, 0)
    assert plan["start_ns"] < plan["first_token_ns"] < plan["end_ns"]
    assert gpusize.open_run(recorder.path).summary["llm_calls"].to_list() == [3]


def test_a_call_that_outlives_its_request_has_no_end(recorder: gpusize.Recorder) -> None:
    with recorder.level(1) as level:
        with level.request():
            left = call("llm")
            left.__enter__()
        with level.request() as request:
            call("llm").__enter__()
            request.fail("api_error", "no")
    left.__exit__(None, None, None)
    frame = scan_calls(sorted((level_dirs(recorder.path)[0] / "spans").iterdir()))
    assert frame is not None
    assert frame.sort("seq").select("end_ns", "outcome").collect().rows() == [(None, "truncated"), (None, "api_error")]


def test_what_cannot_be_meant_of_a_call(recorder: gpusize.Recorder) -> None:
    with pytest.raises(UsageError, match="without a kind"):
        call("")
    with recorder.level(1) as level, level.request(), call("llm") as made:
        with pytest.raises(UsageError, match="tokens_out is -1"):
            made.usage(tokens_out=-1)
        with pytest.raises(UsageError, match="'bad' is not an outcome"):
            made.fail("bad")


def test_gaps_between_tokens_are_digested(recorder: gpusize.Recorder) -> None:
    with recorder.level(1) as level, level.request() as request:
        for _ in range(3):
            request.token()
    # The clock moves one millisecond at each look.
    assert request.gaps_ns == [1_000_000, 1_000_000]
    assert {name: request.values[name] for name in ("itl_min_ns", "itl_p50_ns", "itl_max_ns")} == dict.fromkeys(
        ("itl_min_ns", "itl_p50_ns", "itl_max_ns"), 1_000_000
    )
