"""What a workflow's requests are counted in by the second: the engine's tables, in little memory."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl

from gpusize.analysis.metrics import by_second
from gpusize.records.schema import OUTCOMES
from gpusize.targets.workflow.level_counts import Tally
from gpusize.targets.workflow.per_second import KEPT_SECONDS, SecondLog
from gpusize.targets.workflow.record import PartWriter, RecordedRequest, part_age_s

if TYPE_CHECKING:
    from pathlib import Path

S = 1_000_000_000
START = 7 * S + 5


def row(due_ns: int, took_ns: int | None, **more: Any) -> dict[str, Any]:
    due = START + due_ns
    if took_ns is None:
        return {"due_ns": due, "fired_ns": None, "sent_ns": None, "end_ns": None, **more}
    return {"due_ns": due, "fired_ns": due + 500, "sent_ns": due + 1_500, "end_ns": due + took_ns, **more}


def made() -> SecondLog:
    log = SecondLog()
    log.start_ns = START
    return log


def test_requests_count_where_they_were_due_sent_and_ended() -> None:
    log = made()
    log.ended(row(S // 2, S // 4, first_token_ns=START + S // 2 + 7_000), "ok", [10, 20])
    log.ended(row(S // 2, S), "timeout", [])
    log.ended(row(S - 1_000, 2 * S, stream=3), "ok", [])
    log.ended(row(3 * S, None), "shed", [])
    tables = log.tables()
    seconds = tables["seconds"]
    assert seconds.columns == ["second", "stream", "due", "sent", "done", *OUTCOMES, *(f"due_{o}" for o in OUTCOMES)]
    lines = [{name: n for name, n in line.items() if n} for line in seconds.iter_rows(named=True)]
    assert lines == [
        {"due": 2, "sent": 2, "done": 1, "ok": 1, "due_ok": 1, "due_timeout": 1},
        {"stream": 3, "due": 1, "due_ok": 1},
        {"second": 1, "done": 1, "timeout": 1},
        {"second": 1, "stream": 3, "sent": 1},
        {"second": 2, "stream": 3, "done": 1, "ok": 1},
        {"second": 3, "due": 1, "done": 1, "shed": 1, "due_shed": 1},
    ]
    histograms = tables["histograms"]
    counts = dict(histograms.group_by("metric").agg(pl.col("count").sum()).iter_rows())
    sent, ok = ("lateness", "pacer_late", "no_connection"), ("runtime", "service")
    assert counts == {**dict.fromkeys(sent, 3), **dict.fromkeys(ok, 2), "ttft": 1, "ttft_sent": 1, "itl": 2}
    assert set(histograms.filter(pl.col("stream") == 3)["second"]) == {0}
    assert log.tables() == {}


def test_seconds_are_told_once_they_are_over() -> None:
    log = made()
    for due_ns in (0, S // 2, S):
        log.due(START + due_ns)
        log.sent(START + due_ns)
    log.ended(row(0, S // 4), "ok", [])
    assert log.seconds(0, START + S - 1) == []
    [first] = log.seconds(0, START + S)
    assert (first["due"], first["sent"], first["done"], first["in_flight"]) == (2, 2, 1, 1)
    assert first["outcomes"] == {"ok": 1}
    assert set(first["times"]) == set(by_second())
    assert log.recent(START + S)["p50_ns"] is not None
    log.ended(row(S // 2, S // 10), "ok", [])  # it ended in a second that has been told of
    log.ended(row(S, S // 4), "http_error", [])
    later = log.seconds(1, None)
    assert [(each["second"], each["done"], each["in_flight"]) for each in later] == [(1, 2, 0)]
    assert log.recent(START + 3 * S)["p50_ns"] is None
    log.ended(row(5_000_000 * S, 1), "ok", [])
    assert len(log.seconds(0, None)) == KEPT_SECONDS


def test_nothing_grows_when_nobody_looks() -> None:
    log = made()
    for second in range(3 * KEPT_SECONDS):
        log.ended(row(second * S, S // 4), "ok", [])
    assert len(log._open) <= KEPT_SECONDS + 1
    assert len(log._kept) <= KEPT_SECONDS


def test_of_a_sample_all_are_counted(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    writer = PartWriter(tmp_path)
    tally = Tally(4, writer, {}, proxied=False, sample=5)
    writer.tables = tally.tables
    clock = iter(range(START, START + 10**9)).__next__
    tally.begin(START)
    for seq in range(23):
        request = RecordedRequest(0, None, clock, tally.add)
        request.values |= {"seq": seq}
        tally.sent(request.values["due_ns"], request.values["due_ns"])
        request.begin()
        request.end()
    writer.close()
    told = tally.outcome()
    assert (told["due"], told["rows"], told["sampled"], told["outcomes"]) == (23, 5, 5, {"ok": 23})
    assert pl.read_parquet(tmp_path / writer.parts[0])["seq"].to_list() == [0, 5, 10, 15, 20]
    [second_part], [histogram_part] = writer.table_parts["seconds"], writer.table_parts["histograms"]
    assert pl.read_parquet(tmp_path / second_part).select("due", "ok").rows() == [(23, 23)]
    counts: Counter[str] = Counter()
    for metric, count in pl.read_parquet(tmp_path / histogram_part).select("metric", "count").iter_rows():
        counts[metric] += count
    assert counts["runtime"] == counts["lateness"] == 23


def test_parts_of_a_long_level_grow_older() -> None:
    assert [part_age_s(s) for s in (0, 600, 1200, 86_400)] == [5.0, 5.0, 10.0, 60.0]
