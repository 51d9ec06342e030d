"""The small parts: trace ids, histograms, schedules, and the tying of calls to requests."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from gpusize.records.calls import scan_calls, write_spans
from gpusize.records.schema import OUTCOMES
from gpusize.targets.workflow.histogram import LONGEST_NS, Times
from gpusize.targets.workflow.llm_proxy import LlmProxy
from gpusize.targets.workflow.match_calls import tie, visit_of
from gpusize.targets.workflow.proxy.responses import ResponseReader
from gpusize.targets.workflow.schedule import RowOrder
from gpusize.targets.workflow.trace_ids import key_of, key_of_traceparent, trace_id, traceparent
from tests.analysis.synthetic import frame

MS = 1_000_000


def test_a_trace_id_says_its_request() -> None:
    assert trace_id(3, 41, 2) == "67700000000300020000000000000029"
    assert key_of(trace_id(3, 41, 2)) == (3, 2, 41)
    assert traceparent(0, 0) == "00-67700000000000000000000000000000-0000000000000001-01"
    assert key_of_traceparent(traceparent(7, 2**40).upper()) == (7, 0, 2**40)
    for other in (
        "",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-6770-1-01",
        traceparent(1, 1)[:-1],
    ):
        assert key_of_traceparent(other) is None


@pytest.mark.parametrize("time_ns", [0, 511, 512, 131_071, 131_072, 999_999_937, LONGEST_NS])
def test_buckets_hold_their_time_and_are_narrow(time_ns: int) -> None:
    times = Times()
    times.record(time_ns)
    [[low, high, count]] = times.buckets()
    assert low <= time_ns <= high
    assert count == 1
    assert high - low < max(512, 0.008 * time_ns)
    middle = times.quantile_ns(0.5)
    assert middle is not None
    assert low <= middle <= high


def test_odd_times_stay_inside_and_quantiles_are_ranks() -> None:
    times = Times()
    assert times.quantile_ns(0.5) is None
    for time_ns in (-5, 2 * LONGEST_NS, *(k * MS for k in range(1, 100))):
        times.record(time_ns)
    assert times.quantile_ns(0.0) == 255
    assert times.quantile_ns(0.5) == pytest.approx(50 * MS, rel=0.008)
    assert times.quantile_ns(1.0) == pytest.approx(LONGEST_NS, rel=0.008)
    buckets = times.buckets()
    assert all(before[1] < after[0] for before, after in itertools.pairwise(buckets))


def test_buckets_are_those_of_the_engine(tmp_path: Path) -> None:
    """A level of the engine and one of ours can be added up: their buckets have the same bounds."""
    from gpusize.api.run import run
    from gpusize.targets.simulated.cluster import SimulatedCluster
    from gpusize.workload.load import Load

    with SimulatedCluster({"gpus": 1}) as cluster:
        result = run(cluster, _prompts(tmp_path), Load(concurrencies=(2,), passes=4), out=tmp_path / "runs")
    histogram = result.levels[0].histograms
    assert histogram is not None
    seen = histogram.collect()
    assert seen.height > 3
    for low, high in seen.select("low_ns", "high_ns").rows():
        for time_ns in (low, high):
            times = Times()
            times.record(time_ns)
            assert times.buckets() == [[low, high, 1]]


def _prompts(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "one"}\n{"prompt": "two"}\n')
    return file


def test_each_round_of_a_shuffle_has_every_row_once() -> None:
    order = RowOrder(7, "shuffled", 3)
    rows = [order.row(seq) for seq in range(21)]
    assert [sorted(rows[k : k + 7]) for k in (0, 7, 14)] == [list(range(7))] * 3
    assert len({tuple(rows[k : k + 7]) for k in (0, 7, 14)}) > 1
    assert [RowOrder(3, "file", 3).row(seq) for seq in range(5)] == [0, 1, 2, 0, 1]


def _level(tmp_path: Path, requests: list[tuple[int, int, str]]) -> Path:
    """A level's open folder with requests of these times in milliseconds."""
    folder = tmp_path / "levels" / ".0002.open"
    (folder / "records").mkdir(parents=True)
    sent = [start * MS for start, _, _ in requests]
    rows = frame(
        {
            "visit": [2] * len(requests),
            "due_ns": sent,
            "sent_ns": sent,
            "end_ns": [end * MS for _, end, _ in requests],
            "outcome": [OUTCOMES.index(outcome) for _, _, outcome in requests],
        }
    )
    rows.write_parquet(folder / "records" / "part-00000.parquet")
    return folder


def _call(start: int, end: int, key: list[int] | None = None, outcome: str = "ok") -> dict[str, Any]:
    return {"key": key, "kind": "llm", "name": "m", "start_ns": start * MS, "end_ns": end * MS, "outcome": outcome,
            "relay_ns": 5}  # fmt: skip


def test_calls_are_tied_by_key_else_by_being_alone(tmp_path: Path) -> None:
    folder = _level(tmp_path, [(0, 100, "ok"), (50, 150, "timeout"), (300, 400, "ok"), (500, 600, "ok")])
    write_spans(
        folder, [{"visit": 2, "seq": 2, "kind": "tool", "name": "t", "start_ns": 1, "end_ns": 2, "outcome": "ok"}]
    )
    calls = [
        _call(10, 40),  # only request 0 is in flight
        _call(10, 60),  # two are
        _call(60, 90, [2, 0, 1], "truncated"),  # its request ran out of time
        _call(310, 390),
        _call(320, 330),
        _call(350, 450),  # goes on beyond its request
        _call(700, 710),  # nobody is in flight
        _call(1, 2, [2, 0, 99]),  # no such request
    ]
    rows, unassigned = tie(folder, visit_of(folder), calls)
    assert unassigned == 4
    assert [(row["seq"], row["call"], row["outcome"]) for row in rows] == [
        (0, 0, "ok"),
        (1, 0, "timeout"),
        (2, 1, "ok"),
        (2, 2, "ok"),
    ]


def test_each_level_gets_its_own_calls(tmp_path: Path) -> None:
    folder = _level(tmp_path, [(100, 200, "ok")])
    proxy = LlmProxy("http://127.0.0.1:1/v1")
    before, probe, mine, late = (_call(10, 20), _call(11, 12, [0xFFFF_FFFF, 0, 0]), _call(120, 130), _call(900, 910))
    following = _call(150, 160, [3, 0, 0])
    proxy._calls = [before, probe, mine, late, following]
    facts = proxy.level(folder, 100 * MS, 200 * MS)
    assert (facts["llm_proxy"]["calls"], facts["llm_proxy"]["unassigned"], facts["alerts"]) == (1, 0, [])
    assert (facts["spans"], facts["span_parts"]) == (1, ["spans/proxy-00000.parquet"])
    assert proxy._calls == [late, following]
    found = scan_calls([folder / "spans" / "proxy-00000.parquet"])
    assert found is not None
    assert found.select("visit", "seq", "start_ns").collect().rows() == [(2, 0, 120 * MS)]


def test_answers_are_read_in_whatever_pieces_they_come() -> None:
    events = [
        b'data: {"model":"m","choices":[{"delta":{"role":"assistant","content":""}}]}\n\n',
        b": still there\n\n",
        b'data: {"choices":[{"delta":{"content":"one"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"two"}}],"usage":null}\n\n',
        b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}\n\ndata: [DONE]\n\n',
    ]
    text = b"".join(events)
    for size in (1, 7, len(text)):
        reader = ResponseReader("text/event-stream; charset=utf-8")
        for at in range(0, len(text), size):
            reader.feed(text[at : at + size], at)
        reader.end()
        assert (reader.model, reader.tokens_in, reader.tokens_out, reader.failed) == ("m", 9, 2, False)
        begins = text.index(b"one")
        assert reader.first_token_ns is not None
        assert begins - size < reader.first_token_ns <= text.index(b"\n", begins)


@pytest.mark.parametrize(
    "content_type, body, expected",
    [
        ("application/json", b'{"model":"e","usage":{"input_tokens":4,"output_tokens":1}}', ("e", 4, 1, False)),
        ("application/json", b'{"error":{"message":"no"}}', (None, None, None, True)),
        ("application/json", b'{"usage":{"prompt_tokens":-1,"completion_tokens":true}}', (None, None, None, False)),
        ("application/json", b"[" * 100_000, (None, None, None, False)),
        ("text/plain", b'{"model":"e"}', (None, None, None, False)),
    ],
)
def test_whole_answers(content_type: str, body: bytes, expected: tuple[Any, ...]) -> None:
    reader = ResponseReader(content_type)
    reader.feed(body, 1)
    reader.end()
    assert (reader.model, reader.tokens_in, reader.tokens_out, reader.failed) == expected


@pytest.mark.parametrize(
    "event",
    [
        b'{"type":"response.output_text.delta","delta":"x"}',
        b'{"type":"content_block_delta","delta":{"text":"x"}}',
        b'{"choices":[{"text":"x"}]}',
        b'{"choices":[{"delta":{"reasoning_content":"x"}}]}',
        b'{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}',
    ],
)
def test_content_of_every_api(event: bytes) -> None:
    reader = ResponseReader("text/event-stream")
    reader.feed(b'data: {"type":"response.created","response":{"model":"m"}}\n\n', 1)
    before = reader.first_token_ns
    reader.feed(b"data: " + event + b"\n\n", 2)
    assert (before, reader.first_token_ns, reader.model) == (None, 2, "m")


def test_frames_of_polars_are_not_needed_to_mark_calls() -> None:
    import subprocess
    import sys

    code = "import sys; import gpusize.targets.workflow; print({'polars', 'httpx', 'h11'} & {*sys.modules})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
