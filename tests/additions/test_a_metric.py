"""One more metric is one more entry in the table of metrics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl
import pytest

if TYPE_CHECKING:
    from tests.additions.conftest import House

ENTRIES = """\
    _time("writing", "first_token_ns", "end_ns", "from the first token to the end", title="writing", summary=True,
          shown={"p95": 1}, names={"decode_time": "from the first token to the last byte"}),
    _plain("attempts", "tokens", "attempt", "which attempt it was", summary=True, shown={"max": 1}),
"""


def test_a_metric_is_in_summary_slo_table_and_export(house: House):
    house.insert("analysis/metrics.py", '    _time(\n        "ttfo",', ENTRIES)
    load = ("--concurrency", "3", "--count", "30", "--warmup", "0s", "--prompt", "hi", "--max-tokens", "8")
    slos = ("--slo", "p90 decode_time <= 50ms", "--slo", "mean attempts < 2 tokens")
    said = house.run("run", *load, *slos, "--users", "30", "--gpus", "1", "--out", "runs", "--no-plots", exits=1)
    assert 'SLO "decode_time" is read as writing' in said
    assert "p90 writing <= 50ms" in said
    [folder] = (house.folder / "runs").iterdir()

    meta = json.loads((folder / "levels" / "0000" / "level.json").read_text())
    [(low, high)] = [(i["start_ns"], i["end_ns"]) for i in meta["intervals"] if i["name"] == "steady"]
    rows = pl.read_parquet(folder / "levels" / "0000" / "records" / "*.parquet")
    rows = rows.filter(pl.col("due_ns").is_between(low, high, closed="left"), pl.col("outcome") == 0)
    taken_s = (rows["end_ns"] - rows["first_token_ns"]) / 1e9
    [level] = json.loads((folder / "summary.json").read_text())
    p95_s = taken_s.quantile(0.95, "linear")
    assert level["writing_p95_s"] == pytest.approx(p95_s)
    assert level["attempts_max"] == rows["attempt"].max()
    assert level["slo_0_attainment"] == pytest.approx((taken_s <= 0.05).mean())
    assert level["slo_1_met"] is True

    head = (folder / "summary.csv").read_text().split("\n", 1)[0].split(",")
    assert {"writing_p50_s", "writing_max_s", "attempts_p95"} <= set(head)
    assert "writing" in (folder / "report.html").read_text()
    assert "writing" in said.split("SLO 1:")[0]
    assert f"{1000 * p95_s:.3g}" in said
    assert house.is_documented_as("a metric")
