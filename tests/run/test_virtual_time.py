"""Virtual time from Python: tables to draw from, verdicts without rows, flow-equivalent servers."""

from __future__ import annotations

import json
import sys
from array import array
from typing import Any

import polars as pl
import pytest

from gpusize.base.errors import UsageError
from gpusize.engine.session import core

CLOSED: dict[str, Any] = {"arrivals": {"closed": {"users": 9}}, "requests": 600, "warmup_requests": 36}


def little(code: str, numbers: list[int] | list[float]) -> bytes:
    values = array(code, numbers)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def simulated(config: dict[str, Any], load: dict[str, Any], **beside: Any) -> tuple[pl.DataFrame, dict[str, Any]]:
    stream, summary = core().simulate(json.dumps(config), json.dumps(load), **beside)
    return pl.DataFrame(stream), json.loads(summary)


def flow(config: dict[str, Any], load: dict[str, Any], **beside: Any) -> tuple[pl.DataFrame, dict[str, Any]]:
    stream, summary = core().simulate_flow(json.dumps(config), json.dumps(load), **beside)
    return pl.DataFrame(stream), json.loads(summary)


def test_pairs_of_a_table_stay_together() -> None:
    tables = {"prompt_tokens": little("I", [10, 500]), "output_tokens": little("I", [3, 40])}
    rows, _ = simulated({}, CLOSED, **tables)
    pairs = rows.group_by("prompt_tokens", "tokens_out").len().sort("prompt_tokens")
    assert pairs.select("prompt_tokens", "tokens_out").rows() == [(10, 3), (500, 40)]
    assert pairs["len"].min() > 250
    due = little("q", [k * 50_000_000 for k in range(300)])
    planned, _ = simulated({}, {"arrivals": "plan"}, due=due, resample=True, **tables)
    assert planned["tokens_out"].to_list() == rows["tokens_out"].to_list()[:300]


def test_a_plan_has_lengths_of_its_own_unless_told_otherwise() -> None:
    due = little("q", [0, 10, 20])
    rows, _ = simulated({}, {"arrivals": "plan"}, due=due, output_tokens=little("I", [5, 6, 7]))
    assert rows["tokens_out"].to_list() == [5, 6, 7]
    with pytest.raises(UsageError, match=r"plan\.output_tokens"):
        simulated({}, {"arrivals": "plan"}, due=due, output_tokens=little("I", [5, 6]))
    with pytest.raises(UsageError, match="resample=True"):
        simulated({}, {"arrivals": "plan"}, due=due, cost_factors=little("d", [1.0] * 3))


def test_cost_factors_make_slow_requests() -> None:
    config = {"gpus": 9, "output_tokens": {"fixed": {"tokens": 20}}, "iteration_base_s": 0.0}
    rows, _ = simulated(config, CLOSED, cost_factors=little("d", [1.0, 3.0]))
    runtimes = (rows["end_ns"] - rows["due_ns"]).unique().sort()
    assert runtimes.len() == 2
    assert runtimes[1] / runtimes[0] == pytest.approx(3, rel=1e-3)


def test_verdicts_need_no_rows() -> None:
    judge = json.dumps(
        {"bounds": [{"metric": "runtime", "bound_s": 0.5}, {"metric": "tpot", "bound_s": 0.006}], "every_s": 2}
    )
    rows, summary = simulated({}, CLOSED, judge=judge)
    none, alone = simulated({}, CLOSED, judge=judge, rows=False)
    assert none.is_empty()
    assert alone["judged"] == summary["judged"]
    counted = rows.filter(~pl.col("warmup"))
    runtime_s = (pl.col("end_ns") - pl.col("due_ns")) / 1e9
    gap_s = (pl.col("end_ns") - pl.col("first_token_ns")) / 1e9 / (pl.col("tokens_out") - 1)
    within = counted.select(a=runtime_s <= 0.5, b=gap_s <= 0.006)
    judged = summary["judged"]
    assert [bound["within"] for bound in judged["bounds"]] == [within["a"].sum(), within["b"].sum()]
    assert judged["all"]["within"] == (within["a"] & within["b"]).sum()
    by_step = counted.group_by(pl.col("due_ns") // 2_000_000_000).len().sort("due_ns")["len"].to_list()
    assert [requests for requests in judged["steps"]["requests"] if requests] == by_step
    assert "judged" not in simulated({}, CLOSED)[1]


def test_flow_servers_share_their_rate() -> None:
    # All different, so that no two are done at once: the first of them would find its server emptier.
    sizes = [0.5 + k / 97 for k in range(97)]
    rows, summary = flow({"rates": [1.0, 1.6, 1.8], "gpus": 3}, CLOSED, sizes=little("d", sizes))
    counted = rows.filter(~pl.col("warmup"))
    assert set(counted["active_at_arrival"]) == {3}
    shares = (counted["end_ns"] - counted["due_ns"]) / 1e9 / pl.Series(sizes).gather(counted["size"])
    assert shares.to_list() == pytest.approx([3 / 1.8] * 600, rel=1e-6)
    assert summary["in_flight"] == pytest.approx(9, abs=0.01)
    assert rows.columns == [
        *("index", "user", "warmup", "gpu", "due_ns", "sent_ns", "start_ns", "end_ns"),
        *("size", "active_at_arrival", "outcome"),
    ]


def test_flow_servers_take_plans_connections_and_verdicts() -> None:
    load = {"arrivals": "plan", "connections": 1, "queue": 0}
    due = little("q", [k * 500_000_000 for k in range(10)])
    judge = json.dumps({"bounds": [{"metric": "service", "bound_s": 1.0}]})
    rows, summary = flow({"rates": [1.1]}, load, sizes=little("d", [1.0]), due=due, judge=judge)
    assert rows["gpu"].null_count() == summary["outcomes"]["shed"] == 5
    assert summary["judged"]["all"] == {"within": 5, "over": 5, "undetermined": 0}
    assert rows.filter(pl.col("gpu").is_null())["start_ns"].null_count() == 5


def test_what_cannot_be_meant_is_refused() -> None:
    one = little("d", [1.0])
    cases: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]] = [
        ({"rates": []}, CLOSED, {"sizes": one}, r"flow\.rates"),
        ({"rates": [1.0]}, CLOSED, {"sizes": b""}, r"flow\.sizes"),
        ({"rates": [1.0]}, CLOSED, {"sizes": b"123"}, "not an array"),
        ({"rates": [1.0]}, CLOSED, {"sizes": one, "judge": '{"bound": []}'}, "unknown field"),
        ({"rates": [1.0]}, {"arrivals": "plan"}, {"sizes": one}, "due times"),
    ]
    for config, load, beside, what in cases:
        with pytest.raises(UsageError, match=what):
            flow(config, load, **beside)
