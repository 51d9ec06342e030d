"""Thresholds on phases: their grammar, and how a test is held against them."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import polars as pl
import pytest

from gpusize.base.errors import SloError
from gpusize.cluster.phases.statistics import PERCENTILES, phase_figures
from gpusize.cluster.phases.thresholds import PRESETS, Threshold, judge, thresholds
from gpusize.cluster.phases.timed import time_workloads
from gpusize.cluster.report.documents import document, junit_xml
from gpusize.report.export import dumps
from tests.cluster.synthetic import S, World, make


def test_they_are_read() -> None:
    found = Threshold.parse("p99.9  scheduled <= 500 ms")
    assert found == Threshold("p99.9 scheduled <= 500 ms", "percentile", "scheduled", 0.999, "<=", 0.5)
    every = Threshold.parse("scheduled < 2min")
    assert every == Threshold("scheduled < 2min", "percentile", "scheduled", 1.0, "<", 120.0)
    assert Threshold.parse("share ready >= 99.5%").bound == pytest.approx(0.995)
    assert Threshold.parse("mean pod_startup <= 1s").kind == "mean"


@pytest.mark.parametrize(
    "text, said",
    [
        ("p99 schedule <= 5s", "there is no phase schedule"),
        ("p99 scheduled 5s", "a comparison is missing"),
        ("p99 scheduled >= 5s", ">= does not fit"),
        ("share ready <= 5%", "<= does not fit"),
        ("p99 scheduled <= 5", "the bound has no unit"),
        ("p0 scheduled <= 5s", "not a percentile"),
        ("share ready >= 120%", "a share lies between 0 and 1"),
        ("p99 scheduled <= 5s now", "not expected here"),
        ("kubernets", "there is no preset kubernets"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    with pytest.raises(SloError, match=said):
        thresholds([text])


def test_presets() -> None:
    for name, texts in PRESETS.items():
        assert [each.text for each in thresholds([name])] == list(texts)
        assert {each.preset for each in thresholds([name])} == {name}


def test_judged_at_the_worse_end() -> None:
    """Whole seconds: what may as well have been a second longer does not keep a bound that its middle keeps."""
    made = make(World(n=60, seed=21, watch=False, events=0.0, scheduling_s=(0.1, 0.4)))
    timed = time_workloads(made.stamps, made.attempts.with_columns(uid=pl.lit(None, pl.String)), made.facts)
    row = timed.summary().filter(pl.col("phase") == "pod_scheduled").row(0, named=True)
    assert row["p95_s"] <= 1.0
    assert row["p95_worst_s"] > 1.5
    loose, tight = judge(timed, thresholds(["p95 pod_scheduled <= 3s", "p95 pod_scheduled <= 1.2s"]))
    assert (loose.met, tight.met) == (True, False)
    true = sorted(times["pod 0 scheduled"] - times["pod 0 created"] for times in made.truth.values())
    assert loose.value * S >= true[56], "the worse end is no less than the truth"


def test_what_never_ended_is_no_success() -> None:
    made = make(World(n=50, seed=22, never=0.2))
    timed = time_workloads(made.stamps, made.attempts, made.facts)
    texts = ["p50 scheduled <= 1h", "p99 scheduled <= 1h", "mean scheduled <= 1h", "share scheduled >= 99%"]
    found = judge(timed, thresholds([*texts, "share scheduled >= 50%", "p99 admitted <= 1s"]))
    assert [each.met for each in found] == [True, False, False, False, True, False]
    assert found[1].why == "40 of 50 ended within 3600 s, and 10 had waited for less: too early to say"
    [sooner] = judge(timed, thresholds(["p99 scheduled <= 5s"]))
    assert "had not ended at the last look, so it was not reached" in sooner.why
    assert found[-1].why == "nothing is known of this phase"


@pytest.mark.parametrize("seed", range(4))
def test_what_was_refused_is_never_scheduled_however_soon_it_is_looked_at(seed: int) -> None:
    """Those that succeed take up to 20 s; it is looked at as soon as they have, so that the refused are younger."""
    made = make(World(n=60, seed=30 + seed, refused=0.2, scheduling_s=(0.1, 20.0), look_s=28.0))
    timed = time_workloads(made.stamps, made.attempts, made.facts)
    rows = timed.rows("scheduled")
    refused = set(timed.workloads.filter(pl.col("outcome") == "refused")["workload"])
    assert len(refused) > 5
    assert set(rows.filter("never")["workload"]) == refused
    figures = phase_figures(rows)
    assert figures["never"] == len(refused)
    share = 1 - len(refused) / 60
    asked = [(name, part) for name, part in PERCENTILES.items() if part > share]
    assert len(asked) >= 4
    assert [figures[f"{name}_s"] for name, _ in asked] == [None] * len(asked)
    texts = ["scheduled <= 1h", *(f"p{100 * part:g} scheduled <= 1h" for _, part in asked if part < 1)]
    assert not any(each.met for each in judge(timed, thresholds(texts)))


def test_it_is_too_early_to_say_that_a_bound_is_met() -> None:
    """Of 40 all but the last few are scheduled, and these were asked for less than the bound ago."""
    made = make(World(n=40, seed=41, scheduling_s=(0.5, 1.5), look_s=8.2))
    timed = time_workloads(made.stamps, made.attempts, made.facts)
    rows = timed.rows("scheduled")
    waiting = rows.filter(pl.col("state") == "censored")
    assert 2 < waiting.height < 12
    assert not waiting["never"].any()
    early, tight = judge(timed, thresholds(["p99 scheduled <= 5s", "p50 scheduled <= 3s"]))
    assert (early.met, tight.met) == (False, True)
    assert f"{waiting.height} had waited for less: too early to say" in early.why


def test_as_junit_and_json() -> None:
    made = make(World(n=20, seed=23))
    timed = time_workloads(made.stamps, made.attempts, made.facts)
    judged = judge(timed, thresholds(["kubernetes", "p99 ready <= 1ms", "p99 admitted <= 1s"]))
    root = ElementTree.fromstring(junit_xml(judged))
    assert root.attrib == {"tests": "3", "failures": "1", "skipped": "0", "errors": "1"}
    cases = root.findall("./testsuite/testcase")
    assert [case.get("classname") for case in cases] == ["kubernetes", "threshold", "threshold"]
    assert [[child.tag for child in case] for case in cases] == [[], ["failure"], ["error"]]
    found = document(timed, timed.summary(), judged)
    assert found["met"] is False
    assert [each["met"] for each in found["thresholds"]] == [True, False, False]
    assert found["thresholds"][2]["value"] is None
    assert '"NaN"' not in dumps(found)


def test_presets_name_phases_that_exist(tmp_path: Path) -> None:
    made = make(World(n=20, seed=24))
    timed = time_workloads(made.stamps, made.attempts, made.facts)
    assert all(each.n == 20 for each in judge(timed, thresholds(PRESETS)))
