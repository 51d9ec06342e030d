"""Comparisons of runs in virtual time: what is matched, what is said, and what gates make of it."""

from __future__ import annotations

import io
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any
from xml.etree import ElementTree

import polars as pl
import pytest

from gpusize.analysis.compare.comparison import Comparison, compare_sides
from gpusize.analysis.compare.differences import Difference
from gpusize.analysis.compare.figures import figure
from gpusize.analysis.compare.gates import Gate, judge, refuse_unknown, refuse_unplanned
from gpusize.analysis.compare.matching import Run, Side, load_names, turns
from gpusize.analysis.compare.student import t_quantile
from gpusize.analysis.level import LevelData
from gpusize.base.errors import SloError, UsageError
from gpusize.report.comparison.show import document, junit_xml, markdown, print_comparison
from gpusize.report.comparison.words import change_text, finding, gate_text, interval_text, remarks, value_text
from gpusize.report.summary.terminal import make_console
from tests.estimate.virtual import level

LOADS = (4, 16)


@cache
def measured(seed: int, slowness: float = 1.0, loads: Sequence[int] = LOADS) -> tuple[LevelData, ...]:
    return tuple(level(users, requests=300, slowness=slowness, seed=1000 * seed + users) for users in loads)


def side(name: str, *seeds: int, slowness: float = 1.0, loads: Sequence[int] = LOADS, step: int = 1) -> Side:
    return Side(name, [Run(f"{name}{k}", f"2026-11-{step * k + 1:02d}", measured(k, slowness, loads)) for k in seeds])


@cache
def slower() -> Comparison:
    return compare_sides([side("old", *range(6)), side("new", *range(20, 26), slowness=1.3)])


def test_a_slower_system_is_found_slower_at_every_load() -> None:
    found = slower()
    [name] = {each.side for each in found.differences}
    assert name == "new"
    runtimes = [each for each in found.differences if each.figure == "p50 runtime"]
    assert [each.load for each in runtimes] == ["4 users", "16 users"]
    for each in runtimes:
        assert each.verdict == "worse"
        assert each.low < 0.3 < each.high
        assert each.runs == (6, 6)
    assert finding(found).startswith("new against old: worse in ")


def test_values_are_the_means_of_the_runs() -> None:
    [each] = [each for each in slower().differences if (each.figure, each.load) == ("p95 runtime", "16 users")]
    wanted = [level.quantile("runtime", 0.95) for k in range(6) for level in measured(k) if level.concurrency == 16]
    assert each.a == pytest.approx(math.prod(v or 0 for v in wanted) ** (1 / 6))
    assert each.change == pytest.approx(each.b / each.a - 1)


def test_the_frame_has_a_row_for_each_difference() -> None:
    found = slower()
    frame = found.frame
    assert frame.height == len(found.differences)
    assert frame["runs_a"].to_list() == [6] * frame.height
    assert set(frame["verdict"]) <= {"worse", "better", "equivalent", "no evidence"}


def test_only_common_loads_are_compared_and_the_others_are_named() -> None:
    found = compare_sides([side("old", 1, 2, loads=(4, 8)), side("new", 3, 4, loads=(8, 16))])
    assert {each.load for each in found.differences} == {"8 users"}
    assert found.alone == {"old": ["4 users"], "new": ["16 users"]}
    with pytest.raises(UsageError, match="no load was measured on every side") as error:
        compare_sides([side("old", 1, loads=(4,)), side("new", 2, loads=(8,))])
    assert "old: 4 users; new: 8 users" in str(error.value)


def test_levels_that_did_not_end_as_intended_are_left_out() -> None:
    broken = [Run("b", "1", [replace(each, state="interrupted") for each in measured(1)])]
    with pytest.raises(UsageError, match="no load is left on every side") as error:
        compare_sides([side("old", 1), Side("new", [*broken, *broken])])
    assert error.value.where == (
        "old: 4 users, 16 users; left out of new: 4 users, interrupted (2 runs); 16 users, interrupted (2 runs)"
    )


def test_a_level_that_the_generator_limited_is_left_out() -> None:
    """Of 16 users only two were ever in flight: what was measured is not the target under 16 users."""
    asked = {"kind": "closed", "concurrency": 16, "count": 300}
    limited = [replace(each, setting=asked, meta={**each.meta, "setting": asked}) for each in measured(1, loads=(2,))]
    both = Side("b", [Run("b", "2", [*measured(2, loads=(4,)), *limited])])
    found = compare_sides([side("a", 3), both])
    assert {each.load for each in found.differences} == {"4 users"}
    assert found.left_out == {"b": ["16 users, the generator was the limit, or the load was not held"]}
    assert "left out of b: 16 users, the generator was the limit" in markdown(found)


def test_failed_requests_are_told_beside_percentiles_without_them() -> None:
    [level] = measured(5, loads=(4,))
    order = pl.int_range(pl.len())
    failing = pl.when(order % 4 == 0).then(pl.lit("http_error")).otherwise(pl.col("outcome").cast(pl.String))
    half = replace(
        level,
        records=level.records.with_columns(failing.cast(level.records.collect_schema()["outcome"]).alias("outcome")),
    )
    found = compare_sides([side("a", 1, loads=(4,)), Side("b", [Run("b", "2", [half])])])
    assert found.failed == {"b": {"4 users": pytest.approx(0.25, abs=0.01)}}
    assert "requests of b failed, 25 % at 4 users: the other figures are those of the rest" in markdown(found)


def test_loads_of_one_concurrency_and_other_pauses_are_kept_apart() -> None:
    pausing = [replace(each, setting={**each.setting, "think_s": 2.0}) for each in measured(2, loads=(4,))]
    both = Side("b", [Run("b", "2", [*measured(3, loads=(4,)), *pausing])])
    a = Side("a", [Run("a", "1", [*measured(1, loads=(4,)), *pausing])])
    found = compare_sides([a, both], [figure("p50 runtime")])
    assert [each.load for each in found.differences] == ["4 users, otherwise plain", "4 users, think_s 2.0"]


def test_loads_are_called_the_same_before_they_are_measured() -> None:
    pausing = [replace(each, setting={**each.setting, "think_s": 2.0}) for each in measured(2, loads=(4,))]
    levels = [*measured(1), *pausing]
    found = compare_sides([Side(name, [Run(name, "1", levels)]) for name in "ab"], [figure("p50 runtime")])
    settings = [each.setting for each in levels]
    assert load_names(settings) == found.loads == ["4 users, otherwise plain", "16 users", "4 users, think_s 2.0"]
    assert load_names([{"kind": "open", "rate": 20.0}, {"kind": "open", "rate": 2.5}]) == [
        "20 requests/s",
        "2.5 requests/s",
    ]


def test_a_gate_on_what_will_not_be_measured_is_refused() -> None:
    loads = ["4 users", "16 users"]
    for text in ("p95 runtime > +5%", "p95 ttft at 16 > +5%", "error share at 4 users > +1%"):
        refuse_unplanned([Gate.parse(text)], loads, in_parts=True)
    refuse_unplanned([Gate.parse("output rate < -5%")], loads, in_parts=False)
    with pytest.raises(UsageError, match="8 users is not among the loads") as error:
        refuse_unplanned([Gate.parse("p95 runtime at 8 users > +5%")], loads, in_parts=True)
    assert error.value.todo == "the loads are 4 users, 16 users"
    for name in ("p95 ttft", "mean itl_mean", "p50 itl_max"):
        with pytest.raises(UsageError, match="an answer that comes whole has no"):
            refuse_unplanned([Gate.parse(f"{name} > +5%")], loads, in_parts=False)


def test_a_gate_on_what_a_warm_up_does_not_have_is_refused() -> None:
    warm = [replace(each, intervals=[{"name": "steady", "start_ns": 0, "end_ns": 1}]) for each in measured(1)]
    refuse_unknown([Gate.parse("p95 runtime > +5%"), Gate.parse("error share > 1%")], "old", warm)
    with pytest.raises(UsageError, match="the answers of old in its warm-up have no p50 tokens_cached"):
        refuse_unknown([Gate.parse("p50 tokens_cached < -5%")], "old", warm)


def test_repetitions_inside_a_run_are_one_measurement() -> None:
    twice = Side("b", [Run("b", "2", [*measured(3, loads=(4,)), *measured(4, loads=(4,))])])
    [found] = compare_sides([side("a", 1, loads=(4,)), twice], [figure("p50 runtime")]).differences
    assert found.runs == (1, 1)


@pytest.mark.parametrize(
    "order, how",
    [
        *(("ABAB", "one first"), ("BABABA", "one first"), ("ABBA", "balanced"), ("ABBAAB", "balanced")),
        *(("AABB", "no"), ("ABA", "no"), ("ABBABAAABB", "no")),
    ],
)
def test_runs_in_turns(order: str, how: str) -> None:
    a, b = (Side(each, [Run(each, f"{k:03d}", []) for k, whose in enumerate(order) if whose == each]) for each in "AB")
    assert turns(a, b) == how


def test_a_drift_is_no_difference_of_runs_made_in_turns() -> None:
    """Each pair is slower than the one before; B is 3 % slower within each."""

    def drifting(name: str, extra: float, first: int) -> Side:
        runs = [Run(name, f"2026-11-{2 * k + first:02d}", measured(7, extra * 1.2**k, loads=(4,))) for k in range(1, 6)]
        return Side(name, runs)

    a, b = drifting("a", 1.0, 0), drifting("b", 1.03, 1)
    [found] = compare_sides([a, b], [figure("p50 runtime")], margin=0.01).differences
    assert (found.design, found.verdict) == ("pairs", "worse")
    assert found.change == pytest.approx(0.03, abs=0.002)
    assert "swap every second pair" in markdown(compare_sides([a, b], [figure("p50 runtime")]))
    late = Side("b", [replace(run, began="2027" + run.began) for run in b.runs])
    [apart] = compare_sides([a, late], [figure("p50 runtime")]).differences
    assert (apart.design, apart.verdict) == ("runs", "no evidence")


def in_turns(pairs: int, *, loads: Sequence[int] = LOADS) -> list[Side]:
    """A B B A ..., each run 10 % slower than the one before; b is 30 % slower besides."""
    runs: dict[str, list[Run]] = {"a": [], "b": []}
    for k, name in enumerate("abba" * (pairs // 2)):
        slowness = 1.1**k * (1.3 if name == "b" else 1.0)
        runs[name].append(Run(f"{name}{k}", f"2026-11-{k + 1:02d}", measured(k, slowness, loads)))
    return [Side(name, each) for name, each in runs.items()]


def without(one: Side, k: int, load: int) -> Side:
    """The side whose k-th run has no such level."""
    left = [replace(run, levels=[level for level in run.levels if level.concurrency != load or number != k])
            for number, run in enumerate(one.runs)]  # fmt: skip
    return replace(one, runs=left)


@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize("k", [0, 2, 5])
def test_a_level_that_is_missing_takes_its_pair_only(missing: int, k: int) -> None:
    """At that load the answer is that of the other five rounds, at the other load that of all six."""
    sides = in_turns(6)
    part = [without(each, k, 16) if number == missing else each for number, each in enumerate(sides)]
    found = compare_sides(part, [figure("p50 runtime"), figure("achieved rate")])
    rest = [replace(each, runs=[run for number, run in enumerate(each.runs) if number != k]) for each in sides]
    wanted = {"4 users": compare_sides(sides, [figure("p50 runtime"), figure("achieved rate")]),
              "16 users": compare_sides(rest, [figure("p50 runtime"), figure("achieved rate")])}  # fmt: skip
    for each in found.differences:
        [same] = [one for one in wanted[each.load].differences if (one.figure, one.load) == (each.figure, each.load)]
        assert each.design == same.design == "pairs"
        assert replace(each, verdict=same.verdict) == same
        assert each.runs == ((6, 6) if each.load == "4 users" else (5, 5))
    assert found.unpaired == {"b": {"16 users": 5}}
    assert found.loads == ["4 users", "16 users"]
    assert "pairs that b and a both measured: 5 of 6 at 16 users" in markdown(found)


def test_loads_keep_their_order_where_the_first_run_lacks_one() -> None:
    a, b = in_turns(4)
    runs = [replace(run, levels=[replace(run.levels[0], state="interrupted"), run.levels[1]] if k == 0 else run.levels)
            for k, run in enumerate(a.runs)]  # fmt: skip
    assert compare_sides([replace(a, runs=runs), b], [figure("p50 runtime")]).loads == ["4 users", "16 users"]


def test_the_interval_of_the_rest_is_that_of_their_changes() -> None:
    """By hand, from the medians of the five rounds that are whole."""
    sides = in_turns(6, loads=(4,))
    [found] = compare_sides([sides[0], without(sides[1], 3, 4)], [figure("p50 runtime")]).differences
    medians = [[run.levels[0].quantile("runtime", 0.5) or 0 for run in each.runs] for each in sides]
    changes = [math.log(b / a) for k, (a, b) in enumerate(zip(*medians, strict=True)) if k != 3]
    mean, half = statistics.mean(changes), 2.7764451 * statistics.stdev(changes) / math.sqrt(5)
    assert (found.low, found.high) == pytest.approx((math.expm1(mean - half), math.expm1(mean + half)), rel=1e-6)


def test_a_run_without_the_figure_takes_its_pair_only() -> None:
    a, b = in_turns(6, loads=(4,))
    runs = [replace(run, levels=[failing(run.levels[0])] if k == 2 else run.levels) for k, run in enumerate(b.runs)]
    [found] = compare_sides([a, replace(b, runs=runs)], [figure("p50 runtime")]).differences
    assert (found.design, found.runs, found.lacking) == ("pairs", (5, 5), (0, 1))
    assert not_passed(a, replace(b, runs=runs)) == {"4 users": "a run of b has no such figure there"}


@pytest.mark.parametrize(
    "gone, why",
    [
        ((0,), "only 1 of 2 pairs of runs was measured whole: it takes 2 or more"),
        ((0, 1), "none of 2 pairs of runs was measured whole: it takes 2 or more"),
    ],
)
def test_halves_of_pairs_are_not_held_against_each_other(gone: Sequence[int], why: str) -> None:
    """What is left of a was measured at another time than what is left of b."""
    a, b = in_turns(2)
    for k in gone:
        a, b = (without(a, k, 16), b) if k == 0 else (a, without(b, k, 16))
    assert not_passed(a, b, "p50 runtime > +40%") == {"4 users": "passed", "16 users": why}
    assert not_passed(a, b, "p50 runtime at 16 > +10%") == {"16 users": why}
    rows = [each for each in compare_sides([a, b]).differences if each.load == "16 users"]
    assert {each.verdict for each in rows} <= {"within these two runs"}


def test_a_figure_that_nobody_has_is_no_row() -> None:
    found = compare_sides([side("a", 1), side("b", 2)], [figure("p50 runtime"), figure("p50 tokens_cached")])
    assert {each.figure for each in found.differences} == {"p50 runtime"}


def test_what_is_not_the_same_is_named() -> None:
    other = [Run("b", "2", [replace(each, source={"models": ["m2"]}, gpus=2) for each in measured(2)])]
    known = [Run("a", "1", [replace(each, source={"models": ["m1"]}) for each in measured(1)])]
    found = compare_sides([Side("a", known), Side("b", other)])
    assert found.differing == {"models": [["m1"], ["m2"]], "gpus": [1, 2]}
    assert 'the models differ: a: ["m1"], b: ["m2"]' in markdown(found).replace("\\", "")


def test_one_side_says_how_much_it_differs_from_itself() -> None:
    found = compare_sides([side("old", *range(6))])
    assert not found.differences
    [noise] = [each for each in found.noise if (each.figure, each.load) == ("p50 runtime", "16 users")]
    logs = [math.log(level.quantile("runtime", 0.5) or 0) for k in range(6) for level in measured(k)[1:]]
    mean = sum(logs) / 6
    assert noise.spread == pytest.approx(math.expm1(math.sqrt(sum((v - mean) ** 2 for v in logs) / 5)))
    assert noise.detectable > noise.spread
    small = compare_sides([side("fast", *range(6), slowness=0.01)])
    [same] = [each for each in small.noise if (each.figure, each.load) == ("p50 runtime", "16 users")]
    assert same.spread == pytest.approx(noise.spread, rel=1e-3)
    with pytest.raises(UsageError, match="nothing to be compared with"):
        compare_sides([side("old", 1)])


def test_several_sides_are_held_against_the_first() -> None:
    sides = [side("a", 1, 2, 3), side("b", 4, 5, 6), side("c", 7, 8, 9, slowness=1.5)]
    found = compare_sides(sides, [figure("p50 runtime")])
    assert [(each.side, each.verdict) for each in found.differences if each.load == "16 users"] == [
        ("b", "no evidence"),
        ("c", "worse"),
    ]
    assert "c against a: worse" in finding(found)


def test_single_runs_are_called_so() -> None:
    found = compare_sides([side("a", 1), side("b", 2, slowness=2.0)])
    assert {each.verdict for each in found.differences} == {"within these two runs"}
    assert "no verdict on the systems" in finding(found)
    assert "repeat it for a verdict" in markdown(found)


def test_gates_fail_only_where_the_evidence_carries_it() -> None:
    found = slower()
    judged = judge(found, [Gate.parse("p50 runtime > +10%"), Gate.parse("p50 runtime > +40%")])
    assert [(each.gate.text, each.difference.load, each.failed) for each in judged] == [
        ("p50 runtime > +10%", "4 users", True),
        ("p50 runtime > +10%", "16 users", True),
        ("p50 runtime > +40%", "4 users", False),
        ("p50 runtime > +40%", "16 users", False),
    ]
    assert all(each.judged for each in judged)
    [rate] = judge(found, [Gate.parse("achieved rate at 16 users < -5%")])
    assert rate.failed
    [short] = judge(found, [Gate.parse("achieved rate at 16 < -50%")])
    assert not short.failed
    cases = ElementTree.fromstring(junit_xml(judged)).findall(".//testcase")
    assert [case.find("failure") is not None for case in cases] == [True, True, False, False]


def test_a_gate_cannot_be_judged_between_single_runs() -> None:
    judged = judge(compare_sides([side("a", 1), side("b", 2, slowness=2.0)]), [Gate.parse("p50 runtime > 0%")])
    assert not any(each.failed or each.judged for each in judged)
    assert {each.why_not for each in judged} == {"it takes two runs a side or more"}
    assert junit_xml(judged).count("<error") == 2


def failing(level: LevelData, every: int = 1) -> LevelData:
    """The same requests, of which each so many-th failed."""
    order = pl.int_range(pl.len())
    outcome = pl.when(order % every == 0).then(pl.lit("http_error")).otherwise(pl.col("outcome").cast(pl.String))
    dtype = level.records.collect_schema()["outcome"]
    return replace(level, records=level.records.with_columns(outcome.cast(dtype).alias("outcome")))


def not_passed(a: Side, b: Side, text: str = "p50 runtime > +10%") -> dict[str, str]:
    """By load why a gate was not judged; of loads at which it was, ``failed`` or ``passed``."""
    judged = judge(compare_sides([a, b]), [Gate.parse(text)])
    return {each.difference.load: each.why_not or ("failed" if each.failed else "passed") for each in judged}


def test_a_side_that_only_failed_does_not_pass_a_gate() -> None:
    """Every request of b at 16 users failed: it has no runtime that could be longer."""
    a, b = side("a", *range(4)), side("b", *range(20, 24))
    dead = replace(b, runs=[replace(run, levels=[run.levels[0], failing(run.levels[1])]) for run in b.runs])
    wanted = {"4 users": "passed", "16 users": "b has no such figure there"}
    assert not_passed(a, dead) == wanted
    assert not_passed(a, dead, "achieved rate < -10%") == wanted
    assert not_passed(a, dead, "error share > +1%") == {"4 users": "passed", "16 users": "failed"}
    assert not_passed(dead, a) == wanted
    also = replace(a, runs=[replace(run, levels=[run.levels[0], failing(run.levels[1])]) for run in a.runs])
    assert not_passed(also, dead) == {"4 users": "passed", "16 users": "a and b has no such figure there"}


def test_runs_that_only_failed_are_not_left_out_of_a_gate() -> None:
    """Three runs of b are fine and one failed altogether: the survivors do not speak for it."""
    a, b = side("a", *range(4), loads=(4,)), side("b", *range(20, 24), loads=(4,))
    runs = [replace(run, levels=[failing(run.levels[0])] if k == 1 else run.levels) for k, run in enumerate(b.runs)]
    [found] = compare_sides([a, replace(b, runs=runs)], [figure("p50 runtime")]).differences
    assert (found.runs, found.lacking) == ((4, 3), (0, 1))
    assert not_passed(a, replace(b, runs=runs)) == {"4 users": "a run of b has no such figure there"}


@pytest.mark.parametrize("state", ["failed", "interrupted", "cancelled", "partial"])
def test_a_level_that_broke_off_does_not_pass_a_gate(state: str) -> None:
    a, b = side("a", *range(4)), side("b", *range(20, 24))
    some = [
        replace(run, levels=[run.levels[0], replace(run.levels[1], state=state) if k < 2 else run.levels[1]])
        for k, run in enumerate(b.runs)
    ]
    every = [replace(run, levels=[run.levels[0], replace(run.levels[1], state=state)]) for run in b.runs]
    for runs in (some, every):
        found = not_passed(a, replace(b, runs=runs))
        assert found == {"4 users": "passed", "16 users": "a level of b did not end as intended"}


def test_loads_that_one_side_lacks_do_not_pass_a_gate() -> None:
    a, b = side("a", *range(4)), side("b", *range(20, 24), loads=(4,))
    assert not_passed(a, b) == {"4 users": "passed", "16 users": "only a has this load"}
    assert not_passed(b, a) == {"4 users": "passed", "16 users": "only a has this load"}
    assert not_passed(a, b, "p50 runtime at 4 > +10%") == {"4 users": "passed"}
    with pytest.raises(UsageError, match="nothing was compared at 16"):
        not_passed(a, b, "p50 runtime at 16 > +10%")


def test_runs_that_are_equal_to_the_last_digit_do_not_pass_a_gate() -> None:
    """Imported runs say nothing of what varies inside them: without any spread nothing is sure."""
    one = Difference(
        *("b", "4 users", "p50 runtime", "s", "less", "ratio", 1.0, 1.5, 0.5),
        *(math.nan, math.nan, math.nan, math.nan, (3, 3), "runs"),
    )
    [judged] = judge(Comparison({"a": 3, "b": 3}, [one]), [Gate.parse("p50 runtime > +10%")])
    assert (judged.failed, judged.why_not) == (False, "nothing says how much runs differ")


@pytest.mark.parametrize(
    "change, error, text, wanted",
    [
        (0.28, 0.17, "p50 runtime > +5%", "blind"),
        (0.055, 0.004, "p50 runtime > +5%", "passed"),
        (0.04, 0.17, "p50 runtime > +5%", "passed"),
        (-0.04, 0.05, "p50 runtime < -2%", "blind"),
        (-0.04, 0.05, "p50 runtime > +5%", "passed"),
    ],
)
def test_what_lies_beyond_the_bound_passes_only_where_so_much_would_have_been_seen(
    change: float, error: float, text: str, wanted: str
) -> None:
    """Two whole pairs of six: one degree of freedom, and an interval of -76 to +577 %."""
    freedom = 1 if error == 0.17 else 9
    detectable = math.expm1((t_quantile(0.975, freedom) + t_quantile(0.8, freedom)) * error)
    one = Difference(
        *("b", "4 users", "p50 runtime", "s", "less", "ratio", 1.0, 1.0 + change, change),
        *(-0.5, 5.0, 0.3, detectable, (2, 2), "pairs"),
    )
    found = Comparison({"a": 2, "b": 2}, [replace(one, standard_error=error, freedom=freedom)])
    [judged] = judge(found, [Gate.parse(text)])
    assert not judged.failed
    assert judged.judged == (wanted == "passed")
    assert gate_text(judged).startswith("passed: " if wanted == "passed" else "not judged: ")
    assert ("beyond the bound" in gate_text(judged)) == Gate.parse(text).is_beyond(change)


def test_one_round_is_not_told_to_be_repeated() -> None:
    found = compare_sides([side("a", 1), side("b", 2)])
    assert "repeat it for a verdict" in markdown(found)
    one = markdown(replace(found, rounds=1))
    assert "it takes two whole rounds for a verdict" in one
    assert "repeat it" not in one


def test_many_gates_are_judged_together() -> None:
    """A p of 0.03 fails one gate, and not if it is the least of ten."""
    [each] = [each for each in slower().differences if (each.figure, each.load) == ("p50 runtime", "16 users")]
    low, high = 0.0, each.change
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if each.above(middle) < 0.03 else (low, middle)
    gates = [Gate(str(k), "p50 runtime", "16 users", above=True, bound=low if k == 0 else 1.0) for k in range(10)]
    assert judge(slower(), gates[:1])[0].failed
    assert not judge(slower(), gates)[0].failed


def test_where_the_least_p_is_not_enough_no_other_is() -> None:
    """0.03 is above 5 % over two; 0.04 is below 5 % over one, and comes after it."""
    one = Difference(
        "b", "4 users", "p50 runtime", "s", "less", "ratio", 1.0, 1.1, 0.1, 0.0, 0.2, 0.04, 0.1, (3, 3), "runs"
    )
    found = Comparison({"a": 3, "b": 3}, [replace(one, standard_error=0.05, freedom=1e9)])
    bounds = [math.expm1(math.log(1.1) - 0.05 * z) for z in (1.8808, 1.7507)]
    gates = [Gate(str(k), "p50 runtime", None, above=True, bound=bound) for k, bound in enumerate(bounds)]
    judged = judge(found, gates)
    assert [round(each.p, 3) for each in judged] == [0.03, 0.04]
    assert not any(each.failed for each in judged)
    assert judge(found, gates[1:])[0].failed


@pytest.mark.parametrize(
    "text, error",
    [
        ("p95 runtime", UsageError),
        ("p95 runtime > 5", UsageError),
        ("p95 runtime >= 5%", UsageError),
        ("p95 nonsense > 5%", SloError),
        ("> 5%", UsageError),
        ("achieved rate < -100%", UsageError),
        ("error share > 100%", UsageError),
    ],
)
def test_what_is_no_gate_is_refused(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        Gate.parse(text)


def test_gates_about_what_was_not_compared_are_refused() -> None:
    for text, what in (
        ("p90 service > 1%", "there is no p90 service"),
        ("p95 runtime at 64 > 1%", "nothing was compared at 64"),
    ):
        with pytest.raises(UsageError, match=what):
            judge(slower(), [Gate.parse(text)])


def test_the_document_is_what_the_comparison_holds() -> None:
    found = slower()
    told: dict[str, Any] = document(found, judge(found, [Gate.parse("p50 runtime > +10%")]))
    assert told["sides"] == [{"name": "old", "runs": 6}, {"name": "new", "runs": 6}]
    assert [each["verdict"] for each in told["differences"]] == [each.verdict for each in found.differences]
    assert [each["failed"] for each in told["gates"]] == [True, True]


def test_markdown_shows_names_as_they_are() -> None:
    sides = [side("a|b", 1, 2), side("<script>", 3, 4)]
    text = markdown(compare_sides(sides, [figure("p50 runtime")]))
    assert "a\\|b" in text
    assert "<script>" not in text
    header = text.splitlines()[2]
    assert header.replace("\\|", "").count("|") == 9


def test_what_is_said_where_nothing_differs() -> None:
    rows = [replace(each, detectable=0.03) for each in slower().differences[:4]]
    some = Comparison({"a": 3, "b": 3}, [replace(each, side="b", verdict="no evidence") for each in rows[:3]])
    known = replace(rows[3], side="b", verdict="equivalent")
    assert finding(replace(some, differences=[*some.differences, known])) == (
        "b against a: no evidence of a difference; 1 of 4 figures are equivalent (within 2.0 %); "
        "of the others a change of 3.0 % would typically have been seen"
    )
    assert finding(replace(some, differences=[known])) == "b against a: equivalent, all 1 figures within 2.0 %"


def test_words() -> None:
    [each] = [each for each in slower().differences if (each.figure, each.load) == ("p50 runtime", "16 users")]
    plain = replace(each, change=0.0512, low=0.0391, high=0.0634)
    assert (change_text(plain), interval_text(plain)) == ("+5.1 %", "[+3.9, +6.3]")
    points = replace(each, scale="share", change=0.002, low=-0.0011, high=0.0051)
    assert (change_text(points), interval_text(points)) == ("+0.2 points", "[-0.1, +0.5]")
    unknown = replace(each, change=math.nan, low=math.nan)
    assert (change_text(unknown), interval_text(unknown)) == ("\u2013", "\u2013")
    lopsided = replace(each, change=0.06, low=0.002, high=0.12)
    assert interval_text(lopsided) == "[+0.2, +12.0]"
    assert [value_text(value, "s") for value in (2.5, 0.25, 25e-6)] == ["2.5 s", "250 ms", "25 \u00b5s"]
    assert [value_text(value, "s") for value in (2.5e-8, 5e-10)] == ["25 ns", "0.5 ns"]
    assert [value_text(0.012, "share"), value_text(12.5, "requests/s")] == ["1.2 %", "12.5 requests/s"]


def test_the_largest_change_is_the_one_that_is_told() -> None:
    first = slower().differences[0]
    changes = {"p50 runtime": 0.05, "p95 runtime": 0.3, "achieved rate": -0.28}
    worse = [
        replace(first, figure=name, change=change, low=change - 0.02, high=change + 0.02, verdict="worse")
        for name, change in changes.items()
    ]
    told = finding(Comparison({"old": 6, "new": 6}, worse))
    # A rate that falls by 28 % is a server that takes 39 % longer.
    assert told == "new against old: worse in 3 of 3 figures, most in achieved rate at 4 users: -28 % [-30, -26]"


def test_the_table_has_every_row_and_each_load_once() -> None:
    stream = io.StringIO()
    found = slower()
    print_comparison(found, make_console(stream, width=160), noise=True)
    lines = stream.getvalue().splitlines()
    first, second = (k for k, line in enumerate(lines) if line.split()[:1] == ["load"] or "from run to run" in line)
    table = lines[first + 2 : first + 2 + len(found.differences)]
    assert [line.split("  ")[0].strip() for line in table].count("4 users") == 1
    for line, each in zip(table, found.differences, strict=True):
        assert each.figure in line
        assert each.verdict in line
        assert change_text(each) in line
    noise = lines[second + 2 : second + 2 + len(found.noise)]
    assert [each.figure in line for line, each in zip(noise, found.noise, strict=True)] == [True] * len(found.noise)
    [share] = [line for line, each in zip(table, found.differences, strict=True) if "error share" in line][:1]
    assert share.rstrip().endswith("points")


@pytest.mark.parametrize("margin", [0.0, 1.0, -0.1, math.nan])
def test_a_margin_is_a_share(margin: float) -> None:
    with pytest.raises(UsageError, match="margin: must be above 0"):
        compare_sides([side("a", 1), side("b", 2)], margin=margin)


def test_targets_are_told_by_their_address_or_as_simulated() -> None:
    targets = [[{"url": None, "simulated": {"gpus": n, "seed": 7}}] for n in (1, 2)]
    found = replace(slower(), differing={"targets": targets})
    [said] = [each for each in remarks(found) if each.startswith("the targets")]
    assert said == "the targets differ: old: a simulated cluster of 1, new: a simulated cluster of 2"
