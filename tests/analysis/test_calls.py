"""The calls inside requests: their table, their latency, and SLOs that are judged by them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gpusize.analysis.level import LevelData
from gpusize.analysis.pooling import pool
from gpusize.analysis.read_levels import read_levels
from gpusize.analysis.slo import Counts, Slo
from gpusize.analysis.summary import summarize
from gpusize.base.errors import StoreError
from gpusize.estimate.crossing import effective_n
from gpusize.estimate.methods import to_calc_output
from gpusize.estimate.question import Question
from gpusize.records.calls import judged_calls, llm_calls, scan_calls, span_dtypes, write_spans
from gpusize.records.schema import OUTCOMES
from tests.analysis.synthetic import MS, level
from tests.analysis.test_levels import folder

WALL_NS = 1_700_000_000_000_000_000


def span(seq: int, ms: float | None, outcome: str = "ok", **more: Any) -> dict[str, Any]:
    """One LLM call of a request."""
    start_ns = 2_000_000_000
    end_ns = None if ms is None else start_ns + round(ms * MS)
    return {"visit": 0, "seq": seq, "kind": "llm", "name": "chat", "start_ns": start_ns, "end_ns": end_ns,
            "outcome": outcome, **more}  # fmt: skip


def made(tmp_path: Path, spans: list[dict[str, Any]], outcomes: list[str], **setting: Any) -> LevelData:
    """A level by passes with these calls; every request takes 100 ms."""
    n = len(outcomes)
    due = [1_000_000_000 + k * 10 * MS for k in range(n)]
    columns = {
        "due_ns": due,
        "fired_ns": due,
        "sent_ns": due,
        "end_ns": [each + 100 * MS for each in due],
        "outcome": [OUTCOMES.index(outcome) for outcome in outcomes],
        "row": [k % 2 for k in range(n)],
    }
    tmp_path.mkdir(exist_ok=True)
    write_spans(tmp_path, spans)
    return replace(level(2, columns, passes=2, **setting), calls=llm_calls(tmp_path))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    rows = [span(0, 5, tokens_in=7, tokens_out=2, first_token_ns=1, call=1), span(1, None, "timeout", kind="tool")]
    assert write_spans(tmp_path, rows) == ["spans/part-00000.parquet"]
    assert dict(pl.read_parquet(tmp_path / "spans" / "part-00000.parquet").schema) == span_dtypes()
    found = scan_calls([tmp_path / "spans" / "part-00000.parquet"])
    assert found is not None
    one, two = found.collect().to_dicts()
    assert (one["outcome"], one["call"], one["tokens_in"], one["domain"]) == ("ok", 1, 7, 0)
    assert (two["outcome"], two["end_ns"], two["kind"], two["call"]) == ("timeout", None, "tool", 0)


def test_no_calls_and_no_llm_calls_are_none(tmp_path: Path) -> None:
    assert llm_calls(tmp_path) is None
    assert write_spans(tmp_path, []) == []
    assert llm_calls(tmp_path) is None
    write_spans(tmp_path, [span(0, 5, kind="tool")])
    assert llm_calls(tmp_path) is None


def test_a_file_that_holds_no_calls_is_named(tmp_path: Path) -> None:
    file = tmp_path / "part-00000.parquet"
    file.write_bytes(b"nothing")
    with pytest.raises(StoreError, match="unreadable part"):
        scan_calls([file])
    pl.DataFrame({"visit": [1]}).write_parquet(file)
    with pytest.raises(StoreError, match="column stream is missing"):
        scan_calls([file])


def test_a_failed_request_without_a_failed_call_is_one_miss_more(tmp_path: Path) -> None:
    spans = [
        span(0, 10), span(0, 30),
        span(1, 10), span(1, 20, "timeout"),
        span(2, 10),
        span(4, 10), span(4, None, "cancelled"),
        span(9, 10),
    ]  # fmt: skip
    lv = made(tmp_path, spans, ["ok", "timeout", "api_error", "http_error", "cancelled"])
    assert lv.calls is not None
    judged = judged_calls(lv.calls, lv.steady()).sort("seq", "end_ns").collect()
    # Request 9 is none of this window's; 2 and 3 failed by themselves; the cancelled call counts nowhere.
    assert judged["seq"].value_counts().sort("seq").rows() == [(0, 2), (1, 2), (2, 2), (3, 1), (4, 2)]
    slo = Slo.parse("p50 llm_latency <= 20ms")
    assert slo.count(judged) == Counts(within=4, over=4, undetermined=0)
    assert lv.attainment(slo) == (0.5, 8)
    assert lv.met(slo)
    assert not lv.met(Slo.parse("p51 llm_latency <= 20ms"))
    assert not lv.met(Slo.parse("mean llm_latency <= 1h"))


def test_quantiles_are_of_calls_that_ended_ok(tmp_path: Path) -> None:
    times = [5.0, 7.0, 11.0, 20.0]
    lv = made(tmp_path, [*(span(k, ms) for k, ms in enumerate(times)), span(0, 900, "timeout")], ["ok"] * 4)
    assert lv.quantile("llm_latency", 0.95) == pytest.approx(np.quantile(times, 0.95) / 1e3)
    assert lv.mean("llm_latency") == pytest.approx(np.mean(times) / 1e3)
    assert lv.quantile("runtime", 0.5) == pytest.approx(0.1)
    assert lv.met(Slo.parse("mean llm_latency <= 1s")) is False


def test_where_no_calls_are_known_an_llm_api_has_service_and_others_have_nothing(tmp_path: Path) -> None:
    source = {"targets": [{"url": "u", "api": "openai-chat", "simulated": None}], "models": ["m"], "dataset": "d"}
    lv = made(tmp_path, [], ["ok"] * 4, source=source)
    assert lv.quantile("llm_latency", 0.5) == pytest.approx(0.1)
    assert lv.attainment(Slo.parse("p95 llm_latency <= 100ms")) == (1.0, 4)
    assert replace(lv, source={**source, "targets": [{"api": "workflow"}]}).quantile("llm_latency", 0.5) is None
    with_calls = made(tmp_path / "more", [span(0, 5)], ["ok"] * 4, source=source)
    assert with_calls.quantile("llm_latency", 0.5) == pytest.approx(0.005)


def test_calls_that_resemble_their_neighbours_are_worth_fewer(tmp_path: Path) -> None:
    start_ns = 1_000_000_000

    def calls(slow: list[bool]) -> list[dict[str, Any]]:
        spans = [span(k, 900 if each else 100) for k, each in enumerate(slow)]
        for k, each in enumerate(spans):
            length_ns = each["end_ns"] - each["start_ns"]
            each["start_ns"], each["end_ns"] = start_ns + k * 10 * MS, start_ns + k * 10 * MS + length_ns
        return spans

    slo = Slo.parse("p95 llm_latency <= 500ms")
    together = made(tmp_path / "a", calls([k >= 280 for k in range(320)]), ["ok"] * 320)
    apart = made(tmp_path / "b", calls([k % 8 == 0 for k in range(320)]), ["ok"] * 320)
    assert together.attainment(slo) == apart.attainment(slo) == (0.875, 320)
    assert effective_n(apart, slo, 0.875, 320) == 320
    assert effective_n(together, slo, 0.875, 320) < 40


def test_the_summary_has_them_only_where_they_are_known(tmp_path: Path) -> None:
    lv = made(tmp_path, [span(0, 5), span(1, 15), span(1, 4, "api_error")], ["ok", "ok", "timeout"])
    frame = summarize([lv, made(tmp_path / "none", [], ["ok"] * 2)], [Slo.parse("p95 llm_latency <= 10ms")])
    row, other = frame.to_dicts()
    assert row["llm_latency_p50_s"] == pytest.approx(0.010)
    assert row["llm_latency_max_s"] == pytest.approx(0.015)
    assert (row["llm_calls"], row["llm_calls_failed"]) == (3, 1)
    # Two of four are within: the failed call and the request that failed by itself are misses.
    assert (row["slo_0_attainment"], row["slo_0_over"], row["slo_0_met"]) == (0.25, 3, False)
    assert (other["llm_latency_p50_s"], other["llm_calls"], other["slo_0_met"]) == (None, None, None)
    plain = summarize([made(tmp_path / "never", [], ["ok"] * 2)])
    assert not [name for name in plain.columns if name.startswith("llm")]


def test_a_server_s_wall_clock_gives_durations(tmp_path: Path) -> None:
    """Intermediate steps of a remote workflow carry times of a clock whose offset nobody knows."""
    far = [
        {**span(k, ms), "start_ns": WALL_NS, "end_ns": WALL_NS + ms * MS, "domain": 1} for k, ms in enumerate((20, 40))
    ]
    lv = made(tmp_path, far, ["ok", "ok"])
    assert lv.quantile("llm_latency", 1.0) == pytest.approx(0.040)
    assert lv.met(Slo.parse("llm_latency <= 40ms"))


def test_pooled_visits_keep_their_own_calls(tmp_path: Path) -> None:
    one = made(tmp_path / "a", [span(0, 10)], ["ok", "ok"])
    two = replace(made(tmp_path / "b", [{**span(0, 30), "visit": 1}], ["ok", "ok"]), visit=1)
    (both,) = pool([one, two])
    assert sorted(both.values("llm_latency")) == [pytest.approx(0.010), pytest.approx(0.030)]
    assert both.knows_calls


def test_a_run_folder_is_read_with_its_calls(tmp_path: Path) -> None:
    lv = made(tmp_path / "spans of", [span(0, 10), span(1, 20)], ["ok"] * 4)
    run = folder(tmp_path / "run", lv)
    write_spans(run / "levels" / "0000", [span(0, 10), span(1, 20), span(1, 99, kind="tool")])
    (found,) = read_levels(run)
    assert found.knows_calls
    assert sorted(found.values("llm_latency")) == [pytest.approx(0.010), pytest.approx(0.020)]


def test_the_calculator_s_fields_come_from_the_calls(tmp_path: Path) -> None:
    spans = [span(0, 10), span(0, 30), span(1, 20), span(2, 40)]
    lv = made(tmp_path, spans, ["ok"] * 4)
    question = Question(10, [Slo.parse("p95 llm_latency <= 35ms"), Slo.parse("p95 runtime <= 1s")])
    document = to_calc_output([lv], question, ["x", "y"])
    entry = document["calc_data"]["2"]["sizing_metrics"]
    assert entry["llm_latency_p95"] == pytest.approx(np.quantile([10, 30, 20, 40], 0.95) / 1e3)
    items = entry["per_item_metrics"]
    assert {name: item["llm_latency"] for name, item in items.items()} == {
        "x": pytest.approx(np.quantile([10, 30], 0.95) / 1e3),
        "y": pytest.approx(0.020),
        "x_rep1": pytest.approx(0.040),
        "y_rep1": None,
    }
    assert document["calc_data"]["2"]["alerts"]["num_items_greater_than_target_latency"] == 1
    json.dumps(document, allow_nan=False)


def test_python_as_a_busy_generator_is_told(tmp_path: Path) -> None:
    lv = made(tmp_path, [], ["ok"] * 4)
    busy = {"kind": "python", "cpu_share": 0.97, "loop_lag_p99_s": 0.2, "left_running": 3}
    calm = {"kind": "python", "cpu_share": 0.2, "loop_lag_p99_s": 0.001, "left_running": 0}
    alerts = summarize([replace(lv, meta={**lv.meta, "generator": each}) for each in (busy, calm)])["alerts"].to_list()
    assert [text.partition(":")[0] for text in alerts[0]] == [
        "Python is the generator here and used 97% of a core",
        "Python's event loop was late, p99 0.2 s",
        "3 calls could not be stopped at their timeout and ran on",
    ]
    assert alerts[1] == []
