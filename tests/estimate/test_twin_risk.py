"""The count of least expected cost, and what one replica less or more would keep."""

from __future__ import annotations

import json
import math
from statistics import NormalDist

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusize.analysis.slo import Slo
from gpusize.base.errors import UsageError
from gpusize.cli import question_options
from gpusize.engine.session import core
from gpusize.estimate.methods import Estimate, Question, estimate
from gpusize.estimate.question import RISK
from gpusize.estimate.twin.method import Fitted
from gpusize.estimate.twin.sizing import MOST_BIAS, lean
from gpusize.report.summary.words import answer, decides_text, neighbours_text, slos_of
from tests.estimate.virtual import CLUSTER, level

SLO = Slo.parse("p95 runtime <= 8s")
NORMAL = np.array([NormalDist().inv_cdf((k + 0.5) / 20_000) for k in range(20_000)])
"""Quantiles that are as likely: sums over them are expectations."""


@pytest.fixture(scope="module")
def levels():
    return [level(users, requests=1500 if users > 12 else 200) for users in (1, 4, 12, 20, 22, 24, 26, 30)]


def ask(levels, users=100, **more) -> Estimate:
    [found] = estimate(levels, Question(users, [SLO], **more), "twin")
    return found


@given(st.floats(1.0, 20.0), st.floats(0.02, 0.4), st.floats(3.0, 60.0))
def test_the_count_costs_least_of_all_that_there_are(risk: float, half: float, guess: float):
    # By the losses themselves: what the formula of the quantile knows nothing of.
    spread = half / 1.96
    needs = np.ceil(guess * np.exp(spread * NORMAL))
    counts = np.arange(1, math.ceil(4 * guess) + 2)
    cost = [float(np.where(needs > n, risk * (needs - n), n - needs).mean()) for n in counts]
    found = math.ceil(guess * math.exp(lean(half, risk)))
    # Where two counts cost the same but for the steps of the quantiles, either will do.
    assert cost[found - 1] <= 1.002 * min(cost) + 0.002


def test_as_likely_too_few_as_too_many_leans_nowhere_and_more_risk_leans_further():
    assert lean(0.2, 1.0) == pytest.approx(0.0, abs=1e-12)
    leans = [lean(0.2, risk) for risk in (0.5, 1.0, 1.5, 3.0, 20.0)]
    assert leans == sorted(leans)
    assert lean(math.inf, 3.0) == lean(MOST_BIAS, 3.0)


def test_more_risk_never_asks_for_fewer_and_the_best_guess_stays(levels):
    found = [ask(levels, 400, risk=risk) for risk in (0.2, RISK, 100.0)]
    counts = [each.gpus or 0 for each in found]
    assert counts == sorted(counts)
    assert counts[-1] > counts[0]
    assert len({each.gpus_raw for each in found}) == 1
    assert ask(levels).gpus == ask(levels, risk=RISK).gpus


@pytest.mark.parametrize("risk", [0.0, -1.0, math.nan, math.inf, 2000.0])
def test_a_risk_is_a_ratio(risk: float):
    with pytest.raises(UsageError, match="risk must be above 0 and at most 1000"):
        Question(1, [SLO], risk=risk)


def test_the_command_has_the_same_default():
    assert question_options.RISK == RISK


def test_the_neighbours_are_what_the_true_cluster_keeps(levels):
    found = ask(levels)
    each = found.details["neighbours"]
    assert [one["gpus"] for one in each] == [found.gpus - 1, found.gpus, found.gpus + 1]
    assert all(one["asked"] == 0.95 for one in each)
    shares = [one["attainment"] for one in each]
    assert shares == sorted(shares)
    for one in each:
        assert one["attainment"] == pytest.approx(_kept(one["gpus"]), abs=0.04)


def test_nothing_is_said_of_neighbours_where_nothing_was_measured(levels):
    """Between 12 and 30 users the model may say any share: nobody has seen one."""
    found = ask([each for each in levels if each.concurrency in (1, 4, 12, 40)] + [level(40, requests=1500)])
    assert found.gpus is not None
    assert any("no steady request was measured" in each for each in found.warnings)
    assert "neighbours" not in found.details


def _kept(gpus: int) -> float:
    """Share of requests within the bound by the cluster that the levels were measured on, from its rows."""
    config = {**CLUSTER, "gpus": gpus, "seed": 5}
    asked = {
        "arrivals": {"closed": {"users": 100}},
        "requests": 20_000,
        "warmup_requests": 1000,
        "prompt_tokens": {"uniform": {"min_tokens": 50, "max_tokens": 400}},
    }
    stream, _ = core().simulate(json.dumps(config), json.dumps(asked))
    rows = pl.DataFrame(stream).filter(~pl.col("warmup"))
    took = (rows["end_ns"] - rows["due_ns"]).to_numpy() / 1e9
    return float((took <= 8.0).mean())


def test_what_is_said_of_the_neighbours(levels):
    found = ask(levels)
    text = neighbours_text(found)
    assert text.startswith(f"{found.gpus - 1} GPU")
    assert "of the requests within the SLO, 95 % asked for" in text
    assert neighbours_text(ask(levels, headroom=0.5)) == text
    careful = ask(levels, 600, risk=100.0)
    fewer = [one["gpus"] for one in careful.details["neighbours"] if one["attainment"] >= 0.95]
    assert (min(fewer) < careful.gpus) == ("leans to the safe side" in neighbours_text(careful))
    assert neighbours_text(Estimate("slope", 1, 10, gpus=3)) == ""


def test_single_replicas_have_no_fewer(levels):
    [found] = estimate(levels, Question(2, [SLO]), "twin")
    assert found.gpus == 1
    assert [one["gpus"] for one in found.details["neighbours"]] == [1, 2]


@pytest.mark.parametrize("ttft, decides", [("60ms", 1), ("150ms", 0)])
def test_neighbours_of_several_slos_tell_what_each_keeps_least(levels, ttft, decides):
    """Held against how as many replicas fare, for both."""
    slos = [SLO, Slo.parse(f"p95 ttft <= {ttft}")]
    [found] = estimate(levels, Question(100, slos), "twin")
    counts = [each["gpus"] for each in found.details["neighbours"]]
    assert found.gpus in counts
    fitted = Fitted(levels, Question(100, slos))
    for one in found.details["neighbours"]:
        shares = fitted.performance(Question(100, slos), one["gpus"]).shares
        assert one["attainment"] == pytest.approx(min(shares), abs=0.005)
        assert one["slo"] == str(slos[shares.index(min(shares))])
    assert answer(found).endswith(f"at {slos[0]} and {slos[1]}")
    assert decides_text(found) == found.slo == str(slos[decides])
    assert f"of the requests within {found.slo}, 95 % asked for" in neighbours_text(found)
    [one] = estimate(levels, Question(100, slos[:1]), "twin")
    assert decides_text(one) == ""
    # What the same requests have to keep is one SLO, of which the levels' shares of each say nothing.
    [joint] = estimate(levels, Question(100, slos, together=True), "twin")
    assert slos_of(joint) == [f"{slos[0]} and {slos[1]}"]


def test_neighbours_that_keep_different_slos_least_say_which():
    each = [
        {"gpus": 5, "attainment": 0.881, "asked": 0.95, "slo": "p95 ttft <= 300ms"},
        {"gpus": 6, "attainment": 0.97, "asked": 0.95, "slo": "p95 runtime <= 1.7s"},
    ]
    found = Estimate("twin", 1, 100, "p95 ttft <= 300ms", gpus=6, details={"neighbours": each})
    assert neighbours_text(found) == (
        "5 GPUs: 88.1 % within p95 ttft <= 300ms, 6 GPUs: 97 % within p95 runtime <= 1.7s"
    )
