"""Replicas of one run held against each other: what is found, and that equal ones are hardly ever told apart."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpusize.analysis.level import LevelData
from gpusize.analysis.read_levels import read_levels
from gpusize.analysis.slo import Slo
from gpusize.analysis.unlike_replicas import unlike_replicas
from gpusize.estimate.balanced_otherwise import balanced_otherwise
from gpusize.estimate.methods import Question, estimate
from gpusize.report.summary.columns import run_notes
from gpusize.result import Result
from tests.analysis.open_levels import arrivals, columns, open_setting, served, write_level, write_run
from tests.analysis.synthetic import level

A, B = "http://a/v1", "http://b/v1"
SOURCE = {"targets": [{"url": A}, {"url": B}], "models": ["m"], "dataset": "ab"}
LENGTH_S = 20.0


def due_and_ends(rate: float, seed: int, slow: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Requests in turn to two servers of exponential service, the second ``slow`` times as slow as the first."""
    rng = np.random.default_rng(seed)
    due_s = arrivals("poisson", rate, LENGTH_S, seed=seed)
    target = np.arange(due_s.size) % 2
    end_s = np.empty(due_s.size)
    for k, times in ((0, 1.0), (1, slow)):
        mine = target == k
        end_s[mine] = served(due_s[mine], rng.exponential(0.1 * times, int(mine.sum())))
    return due_s, end_s, target


def two(rates: tuple[float, ...], seed: int, slow: float = 1.0) -> list[LevelData]:
    made = []
    for k, rate in enumerate(rates):
        due_s, end_s, target = due_and_ends(rate, 1000 * seed + k, slow)
        given = columns(due_s, end_s, target=target.tolist())
        made.append(level(None, given, visit=k, gpus=2, rate=rate, source=SOURCE))
    return made


@pytest.mark.parametrize("slow, wrong", [(2.0, (B, A)), (0.5, (A, B))])
def test_a_replica_that_is_twice_as_slow_is_named(slow: float, wrong: tuple[str, str]) -> None:
    found = unlike_replicas(two((4.0, 8.0, 9.0), 3, slow))
    assert found is not None
    assert (found.slow, found.fast) == wrong
    assert found.levels >= 2
    assert found.slow_s > 1.3 * found.fast_s
    assert f"it was the slower one at {found.levels} of 3 levels" in str(found)


def test_equal_replicas_are_hardly_ever_told_apart() -> None:
    """200 runs of three levels, light to heavy: by chance one of two equal replicas has the longer queue."""
    flagged = sum(unlike_replicas(two((4.0, 10.0, 16.0), seed)) is not None for seed in range(200))
    assert flagged <= 2


def test_one_replica_and_few_requests_tell_nothing() -> None:
    heavy = two((8.0, 9.0), 3, 3.0)
    assert unlike_replicas(heavy) is not None
    assert unlike_replicas(heavy[:1]) is None
    assert unlike_replicas([replace(each, source={"targets": [{"url": A}]}) for each in heavy]) is None
    assert unlike_replicas([replace(each, records=each.records.head(30)) for each in heavy]) is None


def test_an_estimate_and_the_summary_say_so(tmp_path: Path) -> None:
    targets = [{"url": url, "api": "openai-chat", "model": "m", "gpus": 1, "tls_verified": None, "simulated": None}
               for url in (A, B)]  # fmt: skip
    run = write_run(tmp_path / "r", targets=targets, options={"url": [A, B]})
    for k, rate in enumerate((4.0, 8.0, 9.0)):
        due_s, end_s, target = due_and_ends(rate, 3000 + k, 2.0)
        given = columns(due_s, end_s, target=target.tolist())
        write_level(run, k, given, open_setting(rate, LENGTH_S), LENGTH_S)
    levels = read_levels(run)
    assert {each.balance for each in levels} == {"round_robin"}
    [found] = estimate(levels, Question(0, (Slo.parse("p95 runtime <= 3s"),), rate=8.0))
    assert any(text.startswith("replicas are not alike") for text in found.warnings)
    assert any("(--balance round_robin)" in text for text in found.warnings)
    [(where, texts)] = run_notes(Result([run]))
    assert (where, texts[0].startswith("replicas are not alike")) == ("the whole run", True)
    file = run / "run.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "targets": targets[:1]}))
    assert {each.balance for each in read_levels(run)} == {""}


@pytest.mark.parametrize("balance, router, said", [
    ("round_robin", "least_loaded", "measure with --balance least_outstanding, or ask with --router round_robin"),
    ("least_outstanding", "random", "ask with --router least_loaded"),
    ("round_robin", "shared", "has one queue for all replicas: ask with --router round_robin"),
    ("round_robin", "round_robin", None),
    ("least_outstanding", "least_loaded", None),
    ("", "least_loaded", None),
])  # fmt: skip
def test_another_rule_than_the_routers_is_said(balance: str, router: str, said: str | None) -> None:
    found = balanced_otherwise([replace(two((4.0,), 1)[0], balance=balance)], router)
    assert (found == ()) if said is None else (said in found[0])
