"""What servers say of themselves, in the twin's fit: limits, steps where nothing was streamed, and contradictions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gpusize.analysis.level import LevelData
from gpusize.analysis.slo import Slo
from gpusize.estimate.methods import Question, estimate
from gpusize.estimate.twin.batch_limit import limits
from gpusize.estimate.twin.batching_model import fit_service
from gpusize.estimate.twin.server_figures import Served, served, served_limit, steps
from gpusize.estimate.twin.server_findings import server_findings
from gpusize.estimate.twin.visit_data import Objective, observe
from gpusize.records.samples import sample_schema
from gpusize.targets.kserve.stats import between, counters
from tests.estimate.virtual import CLUSTER, level

FIXTURES = Path(__file__).parents[1] / "fixtures"
SLO = Slo.parse("p95 runtime <= 8s")
OBJECTIVES = [Objective.of(SLO)]
S = 10**9


def row(metric: str, mean: float | None = None, *, delta: float | None = None, rate: float | None = None) -> Any:
    return {"metric": metric, "labels": None, "mean": mean, "delta": delta, "rate": rate}


def sampled(
    folder: Path, series: dict[str, Sequence[float]], *, replicas: int = 1, rows: Sequence[Any] = (), **meta: Any
) -> LevelData:
    """A level of ten seconds with a reading of each series a second, of so many replicas."""
    frame = pl.DataFrame(
        [
            (k * S, "http://m", name, f'engine="{replica}"', float(value))
            for name, values in series.items()
            for replica in range(replicas)
            for k, value in enumerate(values)
        ],
        schema=sample_schema(),
        orient="row",
    )
    (folder / "samples").mkdir(parents=True)
    frame.write_parquet(folder / "samples" / "part-00000.parquet")
    known = {"start_ns": 0, "end_ns": 10 * S, "server": [row("running", 1.0), *rows], **meta}
    setting = {"kind": "closed", "concurrency": 4}
    return LevelData(1, setting, "done", (), 1, "r", known, folder=folder)


def vllm(running: Sequence[float], waiting: Sequence[float], cache: float = 0.1) -> dict[str, Sequence[float]]:
    used = [cache] * len(running)
    return {
        "vllm:num_requests_running": running,
        "vllm:num_requests_waiting": waiting,
        "vllm:kv_cache_usage_perc": used,
    }


@pytest.mark.parametrize(
    "running, waiting, cache, found",
    [
        ([8, 8, 7, 8, 8], [5, 4, 6, 5, 5], 0.3, (8, False)),
        # One that waits now and then is one that has just come.
        ([8, 8, 7, 8, 8], [0, 0, 1, 0, 0], 0.3, (None, False)),
        ([30, 24, 27, 35, 26], [5, 4, 6, 5, 5], 0.97, (27, True)),
        # The number varies for a reason that is not told: no limit of its own.
        ([30, 14, 27, 35, 20], [5, 4, 6, 5, 5], 0.5, (27, True)),
        ([8, 8], [5, 4], 0.3, (None, False)),
    ],
)
def test_what_runs_while_others_wait_is_the_limit(tmp_path, running, waiting, cache, found):
    said = served(sampled(tmp_path, vllm(running, waiting, cache)))
    assert said is not None
    assert (said.at_once, said.varies) == found


def test_replicas_behind_one_target_add_up(tmp_path):
    said = served(sampled(tmp_path, vllm([8] * 5, [3] * 5), replicas=3))
    assert said is not None
    assert said.at_once == 24


@pytest.mark.parametrize("answered, known", [(100.0, True), (92.0, True), (50.0, False), (130.0, False)])
def test_figures_of_another_load_are_none_of_this(tmp_path, answered, known):
    rows = [row("requests", delta=answered), row("token_gap", 0.02), row("tokens_out", rate=100.0)]
    said = served(sampled(tmp_path, vllm([8] * 5, [3] * 5), rows=rows, outcomes={"ok": 98, "timeout": 2}))
    assert said is not None
    assert said.answered == answered
    assert ((said.at_once, said.step_s) == (8, 0.02)) is known
    assert known or (said.at_once, said.step_s) == (None, None)


def test_the_end_of_a_level_is_no_lack_of_a_queue(tmp_path):
    running, waiting = [8, 8, 8, 8, 5, 1], [4, 4, 4, 4, 0, 0]
    ended, open_still = (
        served(sampled(tmp_path / str(k), vllm(running, waiting), close_ns=close_s * S))
        for k, close_s in enumerate((3.5, 10))
    )
    assert ended is not None
    assert open_still is not None
    assert (ended.at_once, open_still.at_once) == (8, None)


def test_nothing_is_told_without_samples_and_of_workflows():
    plain = level(4)
    assert served(plain) is None
    meta = {**plain.meta, "server": [row("requests", delta=600.0)]}
    assert served(replace(plain, meta=meta)) is not None
    assert served(replace(plain, meta=meta, source={"targets": [{"api": "nat-generate"}]})) is None


def test_busy_instances_are_the_limit_of_a_server_that_queues_and_does_not_batch(tmp_path):
    document = json.loads((FIXTURES / "kserve" / "triton_stats.json").read_text())
    [model] = between({}, counters(document["model_stats"]))
    facts = model.facts()
    assert facts["queue_s"] > 0.9 * facts["request_s"]
    alone = {**facts, "batches": facts["batches"][:1]}

    def at_once(name: str, busy: float, *models: Any) -> int | None:
        said = served(sampled(tmp_path / name, {}, rows=[row("busy", rate=busy)], models=list(models)))
        assert said is not None
        return said.at_once

    assert at_once("queued", 1.93, alone) == 2
    # In the fixture, half of the executions are batches of eight: what waits for its turn is no queue.
    assert at_once("batched", 1.93, facts) is None
    assert at_once("free", 0.4, {**alone, "queue_s": 0.01 * facts["request_s"]}) is None
    assert at_once("two", 1.93, alone, alone) is None
    assert at_once("idle", 1.93, alone, {**alone, "requests": 0}) == 2


def test_the_limit_of_several_visits():
    assert served_limit([None, Served(), Served(at_once=7), Served(at_once=8), Served(at_once=8)]) == (8, False)
    full = [Served(at_once=n, varies=True) for n in (24, 27, 30)]
    assert served_limit(full) == (27, True)
    assert served_limit([*full, Served(at_once=32)]) == (32, False)
    assert served_limit([None, Served()]) is None


def test_costs_follow_from_the_servers_steps():
    base_s, each_s, prompt_s = 0.02, 0.001, 5e-5

    def at(sequences: float, prompts_per_s: float) -> Served:
        step_s = (base_s + each_s * sequences) / (1 - prompt_s * prompts_per_s)
        prefill_s = base_s + each_s * sequences + prompt_s * (200 + prompts_per_s * step_s)
        return Served(
            step_s=step_s,
            sequences=sequences,
            prompt_tokens_per_s=prompts_per_s,
            prompt_tokens=200.0,
            prefill_s=prefill_s,
        )

    found = steps([at(1, 100), at(8, 600), at(30, 1500)])
    assert found == pytest.approx((base_s, each_s, prompt_s), rel=1e-6)
    assert steps([at(8, 600), at(9, 650)]) is None
    assert steps([at(8, 600)]) is None
    assert steps([Served(), None]) is None


def unstreamed(users: int, **more: Any) -> LevelData:
    """A level of which no first token is known, with what its server would say of it."""
    whole = level(users, requests=800, **more)
    records = whole.records.collect()

    def total(column: str) -> float:
        return float(records[column].to_numpy().sum())

    length_s = float(records["end_ns"].to_numpy().max()) / 1e9
    told_of = [
        row("token_gap", (total("end_ns") - total("first_token_ns")) / 1e9 / (total("tokens_out") - records.height)),
        row("tokens_out", rate=total("tokens_out") / length_s),
        row("tokens_in", rate=total("tokens_in") / length_s, delta=total("tokens_in")),
        row("requests", delta=float(records.height)),
        row("prefill_time", (total("first_token_ns") - total("due_ns")) / 1e9 / records.height if users < 8 else None),
    ]
    first = pl.lit(None, dtype=pl.Int64).alias("first_token_ns")
    hidden = records.with_columns(first, first.alias("first_byte_ns"))
    return replace(whole, records=hidden.lazy(), meta={**whole.meta, "server": told_of})


@pytest.fixture(scope="module")
def hidden() -> list[LevelData]:
    return [unstreamed(users) for users in (1, 4, 12, 20, 24, 28)]


def test_answers_without_a_stream_are_fitted_by_the_servers_steps(hidden):
    visits = [visit for each in hidden for visit in observe(each, OBJECTIVES)]
    found = fit_service(visits)
    assert found is not None
    assert found.base_s == pytest.approx(CLUSTER["iteration_base_s"], rel=0.05)
    assert found.per_sequence_s == pytest.approx(CLUSTER["iteration_per_sequence_s"], rel=0.1)
    assert fit_service([replace(visit, served=None) for visit in visits]) is None


def test_the_answer_says_that_the_servers_figures_were_used(hidden):
    [found] = estimate(hidden, Question(100, [SLO], router="random"), "twin")
    assert found.details["model"] == "batching"
    assert any("the server's own: no first tokens" in text for text in found.assumptions)
    assert found.details["served"]["steps"][0] == pytest.approx(CLUSTER["iteration_base_s"], rel=0.05)
    json.dumps(found.to_json(), allow_nan=False)
    streamed = [level(users, requests=800) for users in (1, 4, 12, 20, 24, 28)]
    [plain] = estimate(streamed, Question(100, [SLO], router="random"), "twin")
    assert "served" not in plain.details
    assert found.gpus_raw == pytest.approx(plain.gpus_raw, rel=0.06)


def test_a_limit_that_the_server_shows_goes_before_the_one_that_times_show():
    visits = [visit for n in (1, 4, 16, 24) for visit in observe(level(n, max_batch=8), OBJECTIVES)]
    assert limits(visits) == (8, None)
    shown = [replace(visit, served=Served(at_once=7)) for visit in visits]
    assert limits(shown) == (7, None)
    # A number that varies is none that the records could not tell better.
    assert limits([replace(visit, served=Served(at_once=7, varies=True)) for visit in visits]) == (8, None)
    hidden = [replace(visit, first_s=np.full_like(visit.first_s, np.nan)) for visit in visits]
    assert limits(hidden) == (None, None)
    assert limits([replace(visit, served=Served(at_once=7, varies=True)) for visit in hidden]) == (7, None)


@pytest.mark.parametrize(
    "said, text",
    [
        (Served(answered=1500.0), "others use it too"),
        (Served(answered=603.0), None),
        (Served(answered=300.0), "of 300 of 600 requests, so of some replicas only"),
        (Served(request_s=0.5), "outside the server"),
        (Served(step_s=0.015, sequences=4.0), "ms apart"),
        (Served(step_s=0.024, sequences=4.0), None),
        (Served(preemptions=12.0), "preempted 12 requests"),
    ],
)
def test_what_speaks_against_the_records_is_said(said, text):
    [visit] = observe(level(4), OBJECTIVES)
    found = server_findings([replace(visit, served=said)], "batching")
    assert [text in each for each in found.warnings] == ([True] if text else [])
    assert server_findings([visit], "batching").details == {}
