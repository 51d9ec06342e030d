"""Groups of runs: which loads are held against each other, what is refused, and the law of scaling."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpusize.analysis.compare.comparison import Comparison, compare_sides
from gpusize.analysis.compare.matching import Run
from gpusize.analysis.level import LevelData
from gpusize.api.groups import grouped, unlike, with_groups
from gpusize.base.errors import UsageError
from gpusize.report.comparison.show import document, markdown
from gpusize.report.comparison.words import remarks
from tests.analysis.synthetic import MS, level
from tests.compare.by_hand import about, geometric, measured, rate, run, said

Runs = list[tuple[Run, Mapping[str, Any]]]


def compared(runs: Runs, by: str = "gpus") -> Comparison:
    groups = grouped(runs, by)
    return with_groups(compare_sides(groups.sides, shared=False), groups)


def usl(n: int, one: float, s: float, k: float) -> float:
    return one * n / (1 + s * (n - 1) + k * n * (n - 1))


def saturating(gpus: int, most: float, seed: int = 0, noise: float = 0.0, per: Sequence[int] = (1, 4, 8, 16)) -> Runs:
    """A run of so many GPUs whose rate rises with the users to its most, levels measured in no order."""
    rng = np.random.default_rng(seed)
    levels = [said(u, most * min(1.0, u / (4 * gpus)) * math.exp(noise * rng.normal()), gpus=gpus) for u in
              (gpus * each for each in per)]  # fmt: skip
    rng.shuffle(levels)
    return [(run(f"{gpus}-{seed}", 10 * seed + gpus % 10, levels), about(gpus))]


@settings(max_examples=8)
@given(seed=st.integers(0, 10_000), shrink=st.floats(0.5, 0.95))
def test_speed_ups_are_those_of_the_records_at_the_same_load_and_per_gpu(seed: int, shrink: float) -> None:
    loads = {1: (2, 4, 8), 2: (4, 8, 16)}
    levels = {
        gpus: [
            [measured(u, mean_ms=60 * shrink ** (gpus - 1), seed=seed + 97 * u + 7 * k, gpus=gpus) for u in users]
            for k in range(2)
        ]
        for gpus, users in loads.items()
    }  # fmt: skip
    runs: Runs = [
        (run(f"{g}{k}", 2 * g + k, each), about(g)) for g, takes in levels.items() for k, each in enumerate(takes)
    ]
    found = compared(runs)
    rates = {
        (g, lv.concurrency): geometric([rate(take[i]) for take in takes])
        for g, takes in levels.items()
        for i, lv in enumerate(takes[0])
    }
    by_load = {each.load: each for each in found.scaled if each.per == "load" and each.figure == "achieved rate"}
    assert set(by_load) == {"4 users", "8 users"}
    for users in (4, 8):
        assert by_load[f"{users} users"].speed_up == pytest.approx(rates[2, users] / rates[1, users])
        assert by_load[f"{users} users"].efficiency == pytest.approx(rates[2, users] / rates[1, users] / 2)
    per_gpu = {each.load: each for each in found.scaled if each.per == "count" and each.figure == "achieved rate"}
    assert set(per_gpu) == {"2 users per GPU", "4 users per GPU", "8 users per GPU"}
    for each in (2, 4, 8):
        assert per_gpu[f"{each} users per GPU"].speed_up == pytest.approx(rates[2, 2 * each] / rates[1, each])
        # Half of the time a request, and as many users each: without loss it is twice the work over the shrinkage.
        assert per_gpu[f"{each} users per GPU"].low < per_gpu[f"{each} users per GPU"].high
    told = remarks(found)
    assert any("all have the same load" in text for text in told)
    assert any("N times as many users on N GPUs" in text for text in told)


def test_loads_that_only_grow_with_the_gpus_are_compared_per_gpu() -> None:
    runs = [*saturating(1, 10, per=(1, 4)), *saturating(16, 100, per=(1, 4))]
    found = compared(runs)
    assert found.differences == []
    assert {(each.load, each.per) for each in found.scaled} == {
        ("1 user per GPU", "count"),
        ("4 users per GPU", "count"),
    }
    assert "no load is common to all" in markdown(found)


def open_level(rate_s: float, answered: float, gpus: int) -> LevelData:
    """An open loop of 10 s: answers come at a steady rate, from the first request on."""
    n, done = round(10 * rate_s), round(10 * rate_s)
    due = [10**9 + round(k / rate_s * 1e9) for k in range(n)]
    end = [10**9 + max(round((k + 1) / answered * 1e9), round(k / rate_s * 1e9) + 50 * MS) for k in range(done)]
    columns = {"due_ns": due, "fired_ns": due, "sent_ns": due, "end_ns": end}
    return level(None, columns, gpus=gpus, rate=rate_s, duration_s=10)


def test_a_rate_that_was_kept_up_with_is_no_speed_up() -> None:
    """20/s were too much for either; 10/s two GPUs kept up with, 4/s both: their rates are the load's own."""
    loads = {1: ((4, 4), (10, 6), (20, 6)), 2: ((4, 4), (10, 10), (20, 11))}
    runs: Runs = [
        (run(str(gpus), gpus, [open_level(due, done, gpus) for due, done in each]), about(gpus))
        for gpus, each in loads.items()
    ]
    found = compared(runs)
    ups = {each.load: each for each in found.scaled if each.figure == "achieved rate"}
    assert set(ups) == {"20 requests/s"}
    assert ups["20 requests/s"].speed_up == pytest.approx(11 / 6, rel=0.03)
    assert found.kept_up == {"2 GPUs": ["4 requests/s", "10 requests/s"]}
    assert "no speed-up of 2 GPUs at 4 requests/s, 10 requests/s" in "\n".join(remarks(found))


@settings(max_examples=10)
@given(one=st.floats(1, 500), s=st.floats(0, 0.4), k=st.floats(0, 0.02))
def test_the_law_is_the_one_that_made_the_rates(one: float, s: float, k: float) -> None:
    """By another way: n / X is linear in 1, n and n (n - 1), so that least squares give s and k in closed form."""
    counts = (1, 2, 4, 8, 16)
    assume(all(usl(b, one, s, k) > 1.02 * usl(a, one, s, k) for a, b in itertools.pairwise(counts)))
    found = compared([each for n in counts for each in saturating(n, usl(n, one, s, k))])
    assert found.law is not None
    assert [each.count for each in found.law.measured] == list(counts)
    assert [each.rate.value for each in found.law.measured] == pytest.approx([usl(n, one, s, k) for n in counts])
    for each in found.law.measured:
        assert each.speed_up.value == pytest.approx(usl(each.count, 1, s, k))
        assert each.efficiency.value == pytest.approx(usl(each.count, 1, s, k) / each.count)
    rows = np.array([[1.0, n, n * (n - 1)] for n in counts])
    d, b, c = np.linalg.lstsq(rows, np.array([n / usl(n, one, s, k) for n in counts]), rcond=None)[0]
    assert found.law.sigma.low - 1e-6 <= b / (d + b) <= found.law.sigma.high + 1e-6
    assert found.law.kappa.low - 1e-6 <= c / (d + b) <= found.law.kappa.high + 1e-6
    for each in found.law.curve:
        assert each.rate.low <= usl(each.count, one, s, k) * (1 + 1e-6)
        assert each.rate.high >= usl(each.count, one, s, k) * (1 - 1e-6)
    assert found.law.curve[-1].count == 32


def test_takes_are_averaged_and_their_spread_is_the_error() -> None:
    """Three takes of each count: the geometric mean of their plateaus, and no smaller an interval than they differ."""
    mosts = {1: (10.0, 11.0, 12.0), 2: (18.0, 20.0, 22.0), 4: (30.0, 33.0, 36.0)}
    runs = [each for n, takes in mosts.items() for k, most in enumerate(takes) for each in saturating(n, most, seed=k)]
    law = compared(runs).law
    assert law is not None
    for each in law.measured:
        takes = mosts[each.count]
        assert each.runs == 3
        assert each.rate.value == pytest.approx(geometric(takes))
        # Over all counts takes differ by this; Student's t has 6 degrees of freedom.
        pooled = math.sqrt(np.mean([np.var(np.log(each), ddof=1) for each in mosts.values()]))
        assert math.log(each.rate.high / each.rate.value) == pytest.approx(2.446912 * pooled / math.sqrt(3), rel=1e-5)


def test_intervals_hold_as_often_as_they_say() -> None:
    """25 studies of three counts and three takes each, which differ by 3 % from run to run."""
    one, s, k = 20.0, 0.05, 0.004
    hits: dict[str, list[bool]] = {"speed-up": [], "twice as many": []}
    for study in range(25):
        rng = np.random.default_rng([5, study])
        runs: Runs = [
            (run(f"{n}-{take}", 3 * take, [said(n * each, most, gpus=n) for each in (4, 8, 16)]), about(n))
            for n in (1, 2, 4, 8)
            for take in range(3)
            for most in [usl(n, one, s, k) * math.exp(0.03 * rng.normal())]
        ]
        law = compared(runs).law
        assert law is not None
        top, ahead = law.measured[-1].speed_up, law.curve[-1]
        hits["speed-up"].append(top.low <= usl(8, 1, s, k) <= top.high)
        hits["twice as many"].append(ahead.rate.low <= usl(16, one, s, k) <= ahead.rate.high)
    # Fewer than 20 of 25 at 95 % each have a probability below 1 in 100.
    assert {name: sum(each) >= 20 for name, each in hits.items()} == dict.fromkeys(hits, True)


def test_two_counts_have_speed_up_but_no_law() -> None:
    found = compared([*saturating(1, 11.7), *saturating(4, 26.87)])
    assert found.law is not None
    assert found.law.measured[1].speed_up.value == pytest.approx(26.87 / 11.7)
    assert found.law.why_not == "it takes 3 counts or more, and 2 show their most"
    assert f"no law of scaling: {found.law.why_not}" in remarks(found)
    assert (found.law.name, found.law.curve) == ("", ())


def test_a_count_whose_rate_still_rises_has_no_most() -> None:
    rising: Runs = [(run("4", 4, [said(u, 2.0 * u, gpus=4) for u in (1, 2, 4, 8)]), about(4))]
    found = compared([*saturating(1, 10), *saturating(2, 19), *rising])
    assert found.law is not None
    assert [each.count for each in found.law.measured] == [1, 2]
    assert "throughput still rises at concurrency 8" in found.law.missing["4 GPUs"]
    assert "the most that 4 GPUs can answer is not known" in "\n".join(remarks(found))


def test_more_than_in_proportion_is_told() -> None:
    found = compared([each for n, most in ((1, 10.0), (2, 25.0), (4, 60.0)) for each in saturating(n, most)])
    assert found.law is not None
    assert "4 carry more each than 1" in found.law.remark


def test_a_batch_size_is_a_number_and_no_count() -> None:
    runs: Runs = [(run(str(b), b, [said(4, 10.0 * b)]), about(1, batch=str(b))) for b in (16, 2, 4)]
    found = compared(runs, "batch")
    assert list(found.sides) == ["batch 2", "batch 4", "batch 16"]
    assert (found.counts, found.scaled, found.law) == ({}, [], None)


@pytest.mark.parametrize(
    "labels, pick",
    [
        ([{"study": "s", "instances": "1"}, {"study": "s", "instances": "2"}], "--label instances=2"),
        ([{"owner": "a"}, {"owner": "b"}], None),
    ],
)  # fmt: skip
def test_runs_of_a_group_must_be_repeats(labels: list[dict[str, str]], pick: str | None) -> None:
    """A group of 1 GPU with 1 and with 2 instances has no rate of its own, of a study; other labels are notes."""
    runs: Runs = [(run(str(k), k, [said(4, 10.0)]), about(1, **each)) for k, each in enumerate(labels)]
    runs.append((run("x", 9, [said(4, 20.0, gpus=2)]), about(2, **labels[0])))
    if pick is None:
        assert grouped(runs, "gpus").counts == {"1 GPU": 1, "2 GPUs": 2}
        return
    with pytest.raises(UsageError, match="the runs of 1 GPU are not repeats of each other: instances is 1, 2") as error:
        grouped(runs, "gpus")
    assert pick in str(error.value)


def test_labels_in_which_repeats_differ_are_told() -> None:
    """They may be notes or settings: nobody but the reader knows."""
    users = iter((4, 4, 4, 8, 4))
    takes = [(1, "2"), (1, "10"), (1, "10"), (1, "3"), (2, "2")]
    runs: Runs = [
        (run(str(k), k, [said(next(users), 10.0, gpus=gpus)]), about(gpus, batch=batch, site="x"))
        for k, (gpus, batch) in enumerate(takes)
    ]
    found = compared(runs)
    assert found.unlike == {"1 GPU": {"batch": ["2", "10"]}}, "3 is of another load, and 2 GPUs have one run"
    assert document(found)["unlike"] == found.unlike
    line = "runs of 1 GPU count as repeats of each other and differ in labels: batch is 2, 10; pick one with"
    assert f"{line} --label batch=10" in remarks(found)
    assert unlike(runs) == {"batch": ["2", "10"]}
    assert unlike(runs, "batch") == {}


def test_a_setting_that_is_the_load_mixes_nothing() -> None:
    """A study with the users as a setting has a run for each level of a group."""
    runs: Runs = [
        (run(f"{g}-{u}", 10 * g + u, [said(u, 10.0 * g)]), about(g, study="s", users=str(u), gpus=str(g)))
        for g in (1, 2)
        for u in (4, 8, 16)
    ]
    found = compared(runs)
    assert [each.load for each in found.scaled if each.per == "load"] == ["4 users", "8 users", "16 users"]
    assert found.law is not None
    assert [each.rate.value for each in found.law.measured] == pytest.approx([10, 20])


def test_runs_of_several_gpu_counts_are_no_device() -> None:
    runs: Runs = [
        (run(str(g), g, [said(4, 10.0 * g, gpus=g)]), about(g, device="a" if g == 1 else "b")) for g in (1, 2, 4)
    ]
    with pytest.raises(UsageError, match="device b are not repeats of each other: gpus is 2, 4"):
        grouped(runs, "device")


def test_the_document_has_all_of_it() -> None:
    made = document(compared([each for n in (1, 2, 4) for each in saturating(n, 10.0 * n)]))
    assert made["by"] == "gpus"
    assert made["counts"] == {"1 GPU": 1, "2 GPUs": 2, "4 GPUs": 4}
    assert [each["count"] for each in made["law"]["measured"]] == [1, 2, 4]
    assert made["law"]["name"] == "linear"
    assert {each["figure"] for each in made["spent"]} == {"GPU time per request"}


def test_counts_are_numbers_that_can_be_and_all_else_are_words() -> None:
    for value, count in (("2", 2), ("04", 4), ("9" * 5000, None), ("0", None), ("\u0663", None), ("2.0", None)):
        labelled = [(Run(each, "", []), {"labels": {"instances": each}}) for each in ("1", value)]
        groups = grouped(labelled, "instances")
        assert len(groups.sides) == 2
        assert list(groups.counts.values()) == ([] if count is None else [1, count])
