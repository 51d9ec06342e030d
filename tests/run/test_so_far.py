"""What a watcher is told of a level, held against the records and the events that it came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import gpusize
from gpusize.analysis.slo import Slo
from gpusize.measure.so_far import SoFar
from gpusize.measure.sweep import ProgressEvent
from gpusize.report.live.facts import so_far_facts
from tests.report.folders import level_columns, run_folder, streamed

SLOS = ("p95 runtime <= 300ms", "share ok >= 99%", "p95 ttft <= 12ms")


class Told:
    """A level that tells of its seconds."""

    visit = 3

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def seconds(self, after: int) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["second"] >= after]


def second(number: int, **times: list[list[int]]) -> dict[str, Any]:
    return {"second": number, "times": times}


def test_figures_of_a_run_agree_with_its_records(tmp_path: Path) -> None:
    events: list[ProgressEvent] = []
    load = gpusize.Load(concurrencies=[6], duration_s=2)
    with gpusize.SimulatedCluster({"gpus": 1}) as cluster:
        prompts = gpusize.Dataset.from_prompt("hello")
        result = gpusize.run(
            cluster, prompts, load, slos=SLOS, out=tmp_path, progress=events.append, metrics_url="none"
        )
    raw = pl.concat([pl.read_parquet(part) for part in result.path.glob("levels/*/records/*.parquet")])
    ok = raw.filter(pl.col("outcome") == 0)
    last = events[-1].so_far
    assert last is not None
    span_s = (raw["end_ns"].to_numpy().max() - raw["due_ns"].to_numpy().min()) / 1e9
    assert last["tokens_per_s"] == pytest.approx(ok["tokens_out"].to_numpy().astype(float).sum() / span_s)
    runtime = ok["end_ns"].to_numpy() - ok["due_ns"].to_numpy()
    ttft = ok["first_token_ns"].to_numpy() - ok["due_ns"].to_numpy()
    judged = raw.filter(pl.col("outcome") != 8).height
    assert last["judged"] == {
        SLOS[0]: (int((runtime <= 300_000_000).sum()), judged),
        SLOS[1]: (ok.height, judged),
        SLOS[2]: (int((ttft <= 12_000_000).sum()), judged),
    }
    for name, prob in (("p50", 0.5), ("p95", 0.95)):
        exact = np.quantile(ttft, prob, method="inverted_cdf")
        assert last[f"ttft_{name}_ns"] == pytest.approx(float(exact), rel=0.008)
    # A level whose requests all count: the summary has the same shares.
    [row] = result.summary.to_dicts()
    if row["n"] == judged:
        assert [row[f"slo_{k}_attainment"] for k in range(3)] == [n / judged for n, _ in last["judged"].values()]


def test_parts_are_read_once_and_seconds_added(tmp_path: Path) -> None:
    columns = level_columns(4)
    streamed(columns, tokens=5)
    folder = run_folder(tmp_path / "r", {4: columns}) / "levels" / "0000"
    clock = [0]
    so_far = SoFar([Slo.parse("p95 runtime <= 150ms"), Slo.parse("mean runtime <= 1s")], clock=lambda: clock[0])
    level: Any = Told([second(0, ttft=[[10, 12, 3]], itl=[[4, 6, 10]])])
    first = so_far.look(level, folder)
    n = len(columns["due_ns"])
    assert first["judged"] == {"p95 runtime <= 150ms": (n, n)}, "a mean has no share"
    assert (first["ttft_p95_ns"], first["itl_p50_ns"]) == (11, 5)
    level.rows.append(second(1, ttft=[[100, 120, 1]]))
    assert so_far.look(level, folder) == first, "not again within a second"
    clock[0] += 1_000_000_000
    later = so_far.look(level, folder)
    assert later["judged"] == first["judged"]
    assert later["tokens_per_s"] == first["tokens_per_s"]
    assert (later["ttft_p50_ns"], later["ttft_p95_ns"]) == (11, 110)


def test_what_is_not_known_is_not_there(tmp_path: Path) -> None:
    level: Any = Told([])
    assert SoFar([Slo.parse("p95 runtime <= 1s")]).look(level, tmp_path) == {}
    columns = level_columns(4)
    folder = run_folder(tmp_path / "r", {4: columns}) / "levels" / "0000"
    assert SoFar().look(level, folder) == {}, "no tokens were told, and there is no SLO"
    assert SoFar([Slo.parse("p95 runtime <= 1s")]).look(level, folder, sampled=10) == {}
    (folder / "records" / "part-00001.parquet").write_bytes(b"half a part")
    assert SoFar([Slo.parse("p95 runtime <= 1s")]).look(level, folder) == {}
    calls = Slo.parse("p95 llm_latency <= 1s")
    assert SoFar([calls]).look(level, folder, last=True) == {}


def test_words() -> None:
    found = {"ttft_p50_ns": 10e6, "ttft_p95_ns": 13.6e6, "tokens_per_s": 934.2, "judged": {"a": (97, 100)}}
    assert so_far_facts({"so_far": found}) == ["TTFT p50 10.0 p95 13.6 ms", "934 tokens/s", "SLO 97.0% of 100"]
    two = {"judged": {"a": (97, 100), "b": (2, 3)}}
    assert so_far_facts({"so_far": two}) == ["SLO 1 97.0% of 100", "SLO 2 66.6% of 3"]
    assert so_far_facts({}) == []
