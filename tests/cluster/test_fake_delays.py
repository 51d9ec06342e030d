"""Delays of pods on fake nodes: drawn by name, with the distribution that was asked for."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from scipy import stats

from gpusize.base.errors import UsageError
from gpusize.cluster.fake.delays import Delays, share_of

PODS = [f"work/pod-{number}" for number in range(4000)]

LAWS = {
    "uniform(50ms,500ms)": stats.uniform(0.05, 0.45),
    "exp(2s)": stats.expon(scale=2.0),
    "lognormal(1s,0.5)": stats.lognorm(0.5, scale=1.0),
}


@pytest.mark.parametrize("text", LAWS)
def test_delays_have_the_distribution_that_was_asked_for(text: str) -> None:
    delays = Delays.parse(start=text, seed=7)
    drawn = [delays.start_ns(pod) / 1e9 for pod in PODS]
    assert stats.kstest(drawn, LAWS[text].cdf).pvalue > 1e-3


def test_a_pod_has_the_same_delays_again_and_its_steps_are_independent() -> None:
    delays = Delays.parse(start="exp(1s)", ready="exp(1s)", run="exp(1s)")
    again = Delays.parse(start="exp(1s)", ready="exp(1s)", run="exp(1s)")
    assert [delays.start_ns(pod) for pod in PODS] == [again.start_ns(pod) for pod in PODS]
    other = Delays.parse(start="exp(1s)", seed=1)
    assert [delays.start_ns(pod) for pod in PODS[:5]] != [other.start_ns(pod) for pod in PODS[:5]]
    pairs = stats.pearsonr([delays.start_ns(pod) for pod in PODS], [delays.ready_ns(pod) or 0 for pod in PODS])
    assert abs(pairs.statistic) < 4 / math.sqrt(len(PODS))


def test_shares_of_pods_go_wrong_and_keep_to_their_fate() -> None:
    delays = Delays.parse(never=0.05, fail=0.1)
    fates = [delays.fate(pod) for pod in PODS]
    for fate, share in (("never", 0.05), ("fails", 0.1), ("starts", 0.85)):
        assert stats.binomtest(fates.count(fate), len(PODS), share).pvalue > 1e-3
    # Who never starts with 5 % does not start with 20 % either: two tests differ by what was changed alone.
    more = Delays.parse(never=0.2)
    assert all(more.fate(pod) == "never" for pod, fate in zip(PODS, fates, strict=True) if fate == "never")


def test_draws_lie_in_the_unit_interval() -> None:
    drawn = sorted(share_of(3, pod, "start") for pod in PODS)
    assert drawn[0] >= 0
    assert drawn[-1] < 1
    assert all(first < second for first, second in pairwise(drawn))


@pytest.mark.parametrize(
    "asked, where",
    [
        ({"start": "soon"}, "--start-after"),
        ({"run": "recorded"}, "--run-for"),
        ({"never": 1.5}, "--never"),
        ({"never": 0.6, "fail": 0.6}, "--never"),
    ],
)
def test_what_cannot_be_is_refused_by_its_option(asked: dict[str, object], where: str) -> None:
    with pytest.raises(UsageError) as refused:
        Delays.parse(**asked)  # type: ignore[arg-type]
    assert str(refused.value).startswith(where)
