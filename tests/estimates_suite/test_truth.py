"""Truths: by hand where that is possible, ties where nothing can be said, and the cache."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from benches.estimates import edges
from benches.estimates import truth as module
from benches.estimates.edges import edge_of
from benches.estimates.oracle import oracle
from benches.estimates.probe import Probe
from benches.estimates.scenario import horizon
from benches.estimates.truth import NoTruth, cache_folder, truth
from benches.estimates.worlds import ForeignWorld
from gpusize.analysis.slo import Slo
from tests.estimates_suite.simple import turns


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize(
    "users, bound, hint, n",
    [
        (12, "p95 runtime <= 3s", 2, 4),
        (12, "p95 runtime <= 3s", 9, 4),
        (13, "p95 runtime <= 3s", 4, 5),
        (5, "p95 runtime <= 9s", 3, 1),
        (12, "mean runtime <= 3.5s", 3, 4),
    ],
)
def test_turns_are_counted(users: int, bound: str, hint: int, n: int) -> None:
    scenario = turns(users, bound, hint=hint)
    found = truth(scenario)
    assert (found.n, found.right, found.monotone) == (n, (n,), True)
    assert found.gpus_raw is not None
    assert n - 1 <= found.gpus_raw <= n


def test_an_edge_lies_between_whole_users() -> None:
    # Three users on a GPU keep 3 s, four do not.
    assert 3 <= edge_of(turns(12, "p95 runtime <= 3s"), 1).load <= 4
    assert 6 <= edge_of(turns(12, "p95 runtime <= 3s"), 2).load <= 7


def test_an_edge_that_more_seeds_put_below_one_user_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = turns(12, "p95 runtime <= 3s")
    first = math.ceil(edges.EDGE_REQUESTS[0] / horizon(scenario, 1.0)[0])

    def attained(_scenario: object, _replicas: int, load: float, seed: int) -> list[float]:
        assert load >= 1
        usual = 0.5 if load > 1 else 0.97 if seed < edges.FIRST_SEED + first else 0.9
        return [usual + (0.02 if seed % 2 else -0.02)]

    monkeypatch.setattr(edges, "attained", attained)
    found = edge_of(scenario, 1)
    assert found.load < 1
    assert math.isinf(found.error)


def test_an_open_edge_is_where_the_queue_says() -> None:
    # M/D/1 at rate 0.5: the wait is 0.5 s on average, and nobody who comes to an idle server takes more than 1 s.
    sharing = {"rates": [1.0], "max_active": 1, "work": {"exponential": {"mean": 1.0, "max": 1e9}}}
    lengths = {"apart": {"prompt": {"fixed": {"value": 1}}, "output": {"fixed": {"value": 1}}}}
    world = ForeignWorld({"mechanics": {"sharing": sharing}, "lengths": lengths})
    base = turns(1, "p90 runtime <= 4s", world=world, edge=0.5, per_load=2.0)
    scenario = replace(base, visible=replace(base.visible, users=None, rate=0.5))
    # M/M/1 in order: runtimes are exponential with rate 1 - lambda, so p90 <= 4 s at lambda = 1 - ln(10) / 4.
    assert edge_of(scenario, 1).load == pytest.approx(1 - 2.302585 / 4, rel=0.02)


def test_a_question_without_an_answer_is_checked() -> None:
    assert truth(turns(12, "p95 runtime <= 900ms", expects="single")).n is None
    with pytest.raises(NoTruth, match="should be single"):
        truth(turns(12, "p95 runtime <= 3s", expects="single"))


def test_truths_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = turns(12, "p95 runtime <= 3s")
    first = truth(scenario)
    [path] = cache_folder().iterdir()
    assert json.loads(path.read_text())["n"] == 4
    monkeypatch.setattr(module, "_found", lambda _scenario: pytest.fail("worked out again"))
    assert truth(scenario) == first
    assert replace(scenario, visible=replace(scenario.visible, users=13)).digest() != scenario.digest()


def test_what_cannot_be_told_is_a_tie() -> None:
    # Random routes: about half of the requests keep a bound in the middle, at 4 GPUs as at 5.
    visible = replace(turns(12, "p95 runtime <= 3s").visible, router="random")
    base = turns(12, "p95 runtime <= 3s", visible=visible, hint=6)
    shares = module._Judge(base)
    share = float(shares.shares(6, 8).mean())
    slo = Slo("percentile", "runtime", round(share - 1e-4, 4), "<=", 3.0)
    found = truth(replace(base, visible=replace(visible, slos=(slo,))))
    assert found.tie
    assert 6 in found.right


def test_the_horizon_is_counted_in_rounds() -> None:
    scenario = turns(12, "p95 runtime <= 3s")
    assert horizon(scenario, 12) == (4000, 48)
    assert horizon(scenario, 1000) == (24_000, 4000)
    assert horizon(scenario, 10_000) == (100_000, 40_000)


def test_the_oracle_finds_the_edge_again() -> None:
    scenario = turns(12, "p95 runtime <= 3s")
    probe = Probe(scenario, 1)
    found = oracle(probe, scenario.visible, truth(scenario))
    assert found.gpus == 4
    assert probe.spent <= 4000
