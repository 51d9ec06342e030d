"""From levels to a judgement: counts against the raw rows, and what forbids "kept" whatever the rows say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from benches.estimates.agent_levels import calls_table
from gpusize.analysis.level import LevelData
from gpusize.analysis.proof.from_levels import Evidence, Levels
from gpusize.analysis.proof.judge import Terms
from gpusize.analysis.slo import Slo
from gpusize.records.schema import OUTCOMES
from tests.analysis.synthetic import closed, level

SLO = Slo.parse("p95 runtime <= 100ms")
USERS = 4
LONG_NS = 2_000_000_000
PLAIN = Terms(warmup_rounds=0)


def made(
    visit: int, start_ns: int, seed: int, *, slow: float = 0.02, outcomes: Sequence[str] = (), **meta: Any
) -> LevelData:
    """A level of a closed loop; a share ``slow`` of its requests takes twice as long as the SLO allows."""
    rng = np.random.default_rng(seed)
    draws = np.where(rng.random(100_000) < slow, 200, rng.integers(5, 30, 100_000)) * 1_000_000
    columns: dict[str, Any] = closed(USERS, lambda k: int(draws[k]), duration_ns=LONG_NS, start_ns=start_ns)
    n = len(columns["due_ns"])
    codes = [OUTCOMES.index(each) for each in outcomes][:n]
    columns["outcome"] = [0] * (n - len(codes)) + codes
    found = level(USERS, columns, visit=visit, duration_s=LONG_NS // 10**9)
    return replace(found, meta={**found.meta, "stop_reason": "duration", **meta}, state=meta.get("state", "done"))


def row_of(count: int, **more: Any) -> list[LevelData]:
    """Levels that follow each other without a gap."""
    return [made(k, 10**9 + k * LONG_NS, k, **more) for k in range(count)]


def judged(levels: Sequence[LevelData], terms: Terms = PLAIN) -> Evidence:
    return Levels([SLO], terms, USERS).judge(levels)


def test_counts_are_those_of_the_raw_rows() -> None:
    levels = row_of(4)
    found = judged(levels)
    rows = pl.concat([each.records.collect() for each in levels])
    assert found.requests == rows.height == found.judged.requests
    late = ((rows["end_ns"] - rows["due_ns"]) > 100_000_000).sum()
    [slo] = found.judged.slos
    assert slo.missed == late > 0
    assert slo.attainment == pytest.approx(1 - late / rows.height)
    assert found.judged.verdict == "kept"
    assert (found.levels, found.length_s) == (4, 8.0)


def test_a_part_begins_after_a_gap_and_has_a_warm_up_of_its_own() -> None:
    whole = row_of(4)
    terms = Terms(warmup_rounds=10)
    together = judged(whole, terms).judged
    assert together.warmup == 10 * USERS
    late = [*whole[:2], *(made(k, 10**10 + k * LONG_NS, k) for k in (2, 3))]
    assert judged(late, terms).judged.warmup == 2 * 10 * USERS


def test_a_level_is_judged_the_same_whether_it_was_seen_before_or_not() -> None:
    levels = row_of(5)
    step_by_step = Levels([SLO], PLAIN, USERS)
    for n in range(1, 5):
        step_by_step.judge(levels[:n])
    a, b = step_by_step.judge(levels).judged, judged(levels).judged
    assert (a.requests, a.slos[0].missed) == (b.requests, b.slos[0].missed)
    assert a.slos[0].block >= b.slos[0].block


def test_levels_that_were_cut_short_count_in_nothing() -> None:
    levels = row_of(4)
    cut = made(4, levels[-1].meta["close_ns"], 4, stop_reason="slo", slow=0.9)
    assert judged([*levels, cut]) == judged(levels)


@pytest.mark.parametrize("outcome", ["connect_error", "truncated", "protocol_error"])
def test_a_server_that_is_gone_at_the_end_of_a_level_ends_it_undecided(outcome: str) -> None:
    levels = [*row_of(4), made(4, 10**9 + 4 * LONG_NS, 4, outcomes=[outcome] * 120)]
    found = judged(levels)
    assert (found.judged.verdict, found.ends) == ("undecided", True)
    assert "found no server that answers" in found.judged.why
    assert found.over


def test_errors_that_a_server_gives_are_misses_and_no_failure() -> None:
    found = judged(row_of(4, outcomes=["http_error", "ok", "ok", "ok"] * 80))
    assert (found.judged.verdict, found.ends) == ("not kept", True)


def test_a_level_of_errors_alone_is_no_evidence_of_the_gpus() -> None:
    found = judged(row_of(2, outcomes=["http_error"] * 400))
    assert (found.judged.verdict, found.ends) == ("undecided", True)
    assert "none of the last" in found.judged.why


def test_empty_answers_are_never_kept() -> None:
    """Answers without a token end ok and do not tell their TTFT."""
    found = Levels([Slo.parse("p95 ttft <= 100ms")], PLAIN, USERS).judge(row_of(6))
    [slo] = found.judged.slos
    assert (found.judged.verdict, slo.unknown, slo.low, slo.high) == ("undecided", found.requests, 0.0, 1.0)
    # Nor would more requests tell.
    assert (found.ends, found.judged.why) == (True, "no request has data for p95 ttft <= 100ms")


CALL = Slo.parse("p90 llm_latency <= 20ms")


def with_calls(found: LevelData) -> LevelData:
    """One to three calls in each request, one after the other; some failed, and some requests have none."""
    assert found.records is not None
    rows = found.records.collect()
    rng = np.random.default_rng(found.visit)
    every: list[tuple[int, int, int, int]] = []
    outcomes: list[str] = []
    for seq, due_ns, outcome in zip(rows["seq"], rows["due_ns"], rows["outcome"], strict=True):
        for number in range(int(rng.integers(0, 4))):
            begin_ns = due_ns + 1_000_000 * number
            failed = outcome == "ok" and rng.random() < 0.02
            every.append((seq, number, begin_ns, begin_ns + int(rng.integers(1, 22)) * 1_000_000))
            outcomes.append("http_error" if failed else "ok")
    return replace(found, calls=calls_table(every, outcomes).lazy())


def test_calls_are_counted_as_levels_judge_them() -> None:
    """Warm-up left out by requests, and a part of each level apart: by hand from the tables."""
    some = ["http_error", "ok"] * 10
    levels = [with_calls(made(k, 10**9 + k * 3 * LONG_NS, k, outcomes=some)) for k in range(3)]
    levels.append(with_calls(made(3, 10**9 + 7 * LONG_NS, 3)))
    terms = Terms(warmup_rounds=5)
    found = Levels([SLO, CALL], terms, USERS).judge(levels)
    runtime, calls = found.judged.slos
    assert (runtime.of, calls.of) == ("requests", "calls")
    skipped, within, total = 5 * USERS, 0, 0
    # The last level goes on with the third one's load, so that it has no warm-up.
    for begin, each in zip((skipped, skipped, skipped, 0), levels, strict=True):
        rows = each.records.sort("due_ns").collect()[begin:]
        table = each.calls.join(rows.lazy().select("seq"), on="seq", how="semi").collect()
        good = (table["outcome"] == "ok") & (table["end_ns"] - table["start_ns"] <= 20_000_000)
        failed = rows.filter(pl.col("outcome") == "http_error")["seq"]
        alone = set(failed) - set(table.filter(pl.col("outcome") != "ok")["seq"])
        within, total = within + int(good.sum()), total + table.height + len(alone)
    assert (calls.requests, calls.missed, calls.unknown) == (total, total - within, 0)
    assert runtime.requests == found.judged.requests < total
    assert calls.low < calls.attainment < calls.high
    alone_told = Levels([CALL], terms, USERS).judge(levels).judged.slos[0]
    assert (alone_told.requests, alone_told.missed) == (calls.requests, calls.missed)


def test_calls_that_nobody_marks_end_a_proof() -> None:
    found = Levels([CALL], PLAIN, USERS).judge(row_of(2))
    assert (found.ends, found.judged.verdict) == (True, "undecided")
    assert found.judged.why == "no request has data for p90 llm_latency <= 20ms"


def test_a_load_that_was_not_delivered_is_never_kept() -> None:
    levels = row_of(4)
    assert judged(levels).judged.verdict == "kept"
    gone = {"hosts": [{"name": "b", "share": 0.5, "missing": "was lost"}]}
    short = [*levels[:3], replace(levels[3], meta={**levels[3].meta, **gone})]
    found = judged(short)
    assert (found.judged.verdict, found.ends) == ("undecided", True)
    assert "not delivered" in found.judged.why
    slow = row_of(4, slow=0.3)
    bad = [*slow[:3], replace(slow[3], meta={**slow[3].meta, **gone})]
    assert judged(bad).judged.verdict == "not kept", "more load would not have made it better"


def test_levels_in_which_the_generator_was_the_limit_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    limited = {1}
    monkeypatch.setattr(
        "gpusize.analysis.proof.from_levels.generator_limits",
        lambda each: ["it stalled"] if each.visit in limited else [],
    )
    levels = row_of(4)
    found = judged(levels)
    rows = sum(each.records.collect().height for each in levels if each.visit != 1)
    assert (found.judged.requests, found.left_out, found.ends) == (rows, 1, True)
    limited |= {2, 3}
    found = judged(levels)
    assert (found.judged.verdict, found.left_out, found.ends) == ("undecided", 3, True)
    assert "the load generator was the limit in the last 3 levels" in found.judged.why
    assert not found.over, "a resumed run goes on"
    more = [*levels, made(4, 10**9 + 4 * LONG_NS, 4)]
    assert not judged(more, Terms(least_rounds=1000)).ends


def test_an_interrupted_level_ends_it() -> None:
    broken = made(4, 10**9 + 4 * LONG_NS, 4, state="interrupted", stop_reason="errors", alerts=["interrupted: 9 of 10"])
    found = judged([*row_of(4), broken])
    assert (found.judged.verdict, found.ends) == ("undecided", True)
    assert "interrupted: 9 of 10" in found.judged.why


def test_at_a_rate_a_round_is_what_is_in_flight() -> None:
    """By Little's law, from the rows: busy time over time."""
    levels = [replace(each, setting={**each.setting, "kind": "closed"}) for each in row_of(3)]
    found = Levels([SLO], PLAIN, None).judge(levels)
    assert found.judged.in_flight == pytest.approx(USERS, rel=0.03)
