"""The cards of every level against the summary, and against the raw rows read by plain polars."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gpusize.report.page.cards import level_cards
from gpusize.report.summary.sweep import sweep_of
from gpusize.result import Result
from tests.analysis.synthetic import MS, closed
from tests.report.folders import run_folder

BOUND_MS = 150
UNITS = {"µs": 1e-6, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}


def seconds(text: str) -> float:
    found = re.fullmatch(r"([\d.,]+) (\S+)", text)
    assert found, text
    return float(found[1].replace(",", "")) * UNITS[found[2]]


def slower(users: int) -> dict[str, Any]:
    """A closed loop of requests of 11 lengths, longer with more users."""
    return closed(users, lambda k: (60 + 5 * users + 7 * (k % 11)) * MS, duration_ns=20_000 * MS, start_ns=10**9)


def test_cards_of_every_level_are_the_summarys_and_the_rows_own(tmp_path: Path) -> None:
    levels = {c: slower(c) for c in (1, 2, 4, 8)}
    result = Result([run_folder(tmp_path / "run", levels)], slos=[f"p95 runtime <= {BOUND_MS}ms"])
    made, _ = level_cards(sweep_of(result))
    assert [each.name for each in made] == ["1", "2", "4", "8"]
    for visit, (each, row) in enumerate(zip(made, result.summary.to_dicts(), strict=True)):
        cards = {card.title: card for card in each.cards}
        raw = pl.read_parquet(result.path / "levels" / f"{visit:04d}" / "records" / "*.parquet")
        times_s = raw.select(((pl.col("end_ns") - pl.col("due_ns")) / 1e9).alias("s"))["s"]
        # In whole nanoseconds: a request of 150 ms is within a bound of 150 ms.
        within = raw.select(((pl.col("end_ns") - pl.col("due_ns")) <= BOUND_MS * MS).mean()).item()
        runtime = cards["runtime, p50"]
        assert seconds(runtime.value) == pytest.approx(row["runtime_p50_s"], rel=6e-3)
        assert seconds(runtime.value) == pytest.approx(times_s.quantile(0.5, "nearest"), rel=0.06)
        for name, share in (("p95", 0.95), ("p99", 0.99)):
            told = re.search(rf"{name} ([\d.]+ \S+?)(?:,|$)", runtime.more)
            assert told, runtime.more
            assert seconds(told[1]) == pytest.approx(row[f"runtime_{name}_s"], rel=6e-3)
            assert seconds(told[1]) == pytest.approx(times_s.quantile(share, "nearest"), rel=0.06)
        rate = float(cards["requests/s"].value)
        assert rate == pytest.approx(row["achieved_rate"], rel=6e-3)
        assert rate == pytest.approx(int(each.name) / times_s.mean(), rel=0.05)
        shown = float(cards["within the SLO"].value.rstrip("%")) / 100
        assert shown == pytest.approx(row["slo_0_attainment"], abs=1e-3)
        assert shown == pytest.approx(within, abs=0.03)
        assert cards["errors"].value == "0"
