"""Offered and achieved rates of open loops: equal where the target keeps up, its capacity where it does not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpusize.analysis.breakdown import breakdown
from gpusize.analysis.goodput import goodput
from gpusize.analysis.read_levels import read_levels
from gpusize.analysis.slo import Slo
from gpusize.analysis.throughput import is_brief, kept_up_in_time, overrun_rate, responses, throughput
from gpusize.estimate.slo_limit import slo_limit
from gpusize.records.schema import OUTCOMES
from tests.analysis.closed_levels import alone, by_passes, passes_of, queued, shared
from tests.analysis.open_levels import START_NS, arrivals, columns, open_setting, run_of, sample_down, served
from tests.analysis.synthetic import MS, SOURCE, closed, level, lognormal_ns

SERVICE_S = 0.08
SERVERS = 4
CAPACITY = SERVERS / SERVICE_S
SHED = OUTCOMES.index("shed")


def made(due_s, end_s, rate, length_s, **more):
    """A level in memory, with the facts that the engine writes."""
    found = level(None, columns(due_s, end_s, **more), **open_setting(rate, length_s))
    facts = {"start_ns": START_NS, "close_ns": START_NS + round(length_s * 1e9)}
    return replace(found, meta={**found.meta, **facts})


def bounded(due_s, queue):
    """Ends and outcomes of a queue for four servers in which at most so many wait; of what is shed nan."""
    free, ends, outcome = np.zeros(SERVERS), np.full(due_s.size, np.nan), np.zeros(due_s.size, int)
    begins: list[float] = []
    for k, at in enumerate(due_s):
        if free.min() > at and sum(begin > at for begin in begins[-queue - SERVERS :]) >= queue:
            outcome[k] = SHED
            continue
        first = int(free.argmin())
        begins.append(max(at, free[first]))
        free[first] = ends[k] = begins[-1] + SERVICE_S
    return ends, outcome.tolist()


@pytest.mark.parametrize("process", ["constant", "poisson"])
@pytest.mark.parametrize("rate, length_s", [(5, 2), (20, 60)])
def test_a_target_that_keeps_up_achieves_what_is_offered(process, rate, length_s):
    due = arrivals(process, rate, length_s)
    found = throughput(made(due, due + 0.067, rate, length_s))
    assert found.achieved == pytest.approx(found.offered)


@pytest.mark.parametrize("queue", [0, 20, 100_000])
def test_at_twice_its_capacity_a_target_achieves_its_capacity(queue):
    due = arrivals("poisson", 2 * CAPACITY, 30)
    ends, outcome = bounded(due, queue)
    sent = np.where(np.isnan(ends), np.nan, ends - SERVICE_S)
    lv = made(due, ends, 2 * CAPACITY, 30, sent_s=sent, outcome=outcome)
    found = throughput(lv)
    # Without a queue a server idles until the next request comes: the loss formula of Erlang, for four servers at 8.
    blocked = 8**4 / 24 / sum(8**k / f for k, f in enumerate((1, 1, 2, 6, 24)))
    wanted = CAPACITY if queue else 2 * CAPACITY * (1 - blocked)
    assert found.achieved == pytest.approx(wanted, rel=0.03)
    assert found.offered == pytest.approx(2 * CAPACITY, rel=0.05)
    outcomes = lv.meta["outcomes"]
    assert outcomes["ok"] + outcomes.get("shed", 0) == due.size


def test_a_level_after_an_overload_is_not_charged_with_its_backlog():
    """Answers to the level before come first; those to this one then come as fast as they are due."""
    due = arrivals("constant", 20, 30)
    ends = served(due, SERVICE_S, ((4.0, SERVERS),))
    found = throughput(made(due, ends, 20, 30))
    assert found.achieved == pytest.approx(20, rel=0.1)


@pytest.mark.parametrize("rate", [20, 80, 320])
def test_thirty_requests_at_once_do_not_make_a_target_faster(rate):
    """Four at a time, each 0.92 s: 4.3 per second, however fast they are asked for."""
    length_s = 30 / rate
    due = arrivals("constant", rate, length_s)[:30]
    found = throughput(made(due, served(due, 0.92, ((0.0, 4),)), rate, length_s))
    assert found.offered == pytest.approx(rate)
    assert found.achieved == pytest.approx(4 / 0.92, rel=0.1)


@pytest.mark.parametrize("runtime_s", [1.0, 9.9, 10.1, 12.0, 60.0])
def test_long_answers_to_a_short_load_that_are_kept_up_with_are_as_fast_as_it(runtime_s):
    """Ten per second for ten seconds, each answered after so long: as many came per second, only later."""
    due = arrivals("constant", 10, 10)
    level_ = made(due, due + runtime_s, 10, 10)
    assert throughput(level_).achieved == pytest.approx(10)
    assert is_brief(level_) == (runtime_s > 10)
    # Nobody saw whether it would have gone on like that; a limit that all keep is not missed by it.
    found = slo_limit([level_], Slo.parse("p95 runtime <= 100s"))
    assert found.kind == "above"


@pytest.mark.parametrize(
    "slo, rate, length_s",
    [
        (None, 44, 60),
        *(
            (f"p{share} runtime <= 300ms", rate, length_s)
            for share in (50, 80, 95)
            for rate, length_s in ((44, 60), (60, 60), (300, 60), (300, 4))
        ),
    ],
)
def test_no_capacity_is_above_what_came_of_more_than_a_target_can_do(slo, rate, length_s):
    """Four at a time, each 0.1 s: 40 per second, whatever is offered, and however far away the next rate below is."""
    levels = []
    for each, seconds in ((10, 20), (20, 20), (rate, length_s)):
        due = arrivals("constant", each, seconds)
        levels.append(made(due, served(due, 0.1, ((0.0, 4),)), each, seconds))
    found = slo_limit(levels, None if slo is None else Slo.parse(slo))
    assert found.kind == "found"
    assert 20 < found.at <= 1.02 * 40
    assert found.right <= 1.02 * 40
    assert overrun_rate(levels[-1]) == pytest.approx(40, rel=0.02)
    assert overrun_rate(levels[0]) is None


def test_a_target_that_collapses_when_it_is_overrun_is_not_held_to_what_it_answered_then():
    """40 per second; of 80 all but a few ran into the client's timeout, which says nothing of 30."""
    levels = []
    for each in (10, 20):
        due = arrivals("constant", each, 20)
        levels.append(made(due, served(due, 0.1, ((0.0, 4),)), each, 20))
    due = arrivals("constant", 80, 20)
    timeout = OUTCOMES.index("timeout")
    outcome = [0 if k % 80 == 0 else timeout for k in range(due.size)]
    levels.append(made(due, due + np.where(np.arange(due.size) % 80 == 0, 0.4, 2.0), 80, 20, outcome=outcome))
    for slo in (None, "p95 runtime <= 500ms"):
        found = slo_limit(levels, None if slo is None else Slo.parse(slo))
        assert (found.kind, found.left, found.right) == ("found", 20, 80)
        assert found.at - 2 * found.se < 40 < found.at + 2 * found.se


def test_long_answers_of_many_lengths_are_no_queue():
    """Ten per second for 20 s, each answered after some ten seconds, all at once: fewer have come, and none waits."""
    due = arrivals("constant", 10, 20)
    lv = made(due, due + np.random.default_rng(5).exponential(10.0, due.size), 10, 20)
    assert throughput(lv).achieved < 0.9 * 10
    assert overrun_rate(lv) is None


@pytest.mark.parametrize("took_s, kept_up", [(13.0, True), (13.2, True), (21.0, False), (None, False)])
def test_a_short_import_whose_last_answers_take_their_time_has_kept_up(took_s, kept_up):
    """200 requests at 40/s, 8 s each: over within 13 s they waited for nothing; 15 came per second of all that."""
    counts = {"n": 200, "errors": 0}
    meta = {"imported": "tool", "counts": counts, "achieved_rate": 200 / (took_s or 13.0), "total_runtime_s": took_s}
    lv = replace(level(None, columns(np.zeros(1), np.ones(1)), **open_setting(40, 5.0)), meta=meta, percentiles={})
    lv = replace(lv, percentiles={"service_p100_s": 8.0, "service_p95_s": 8.0})
    assert kept_up_in_time(lv) is kept_up
    assert (overrun_rate(lv) is None) is kept_up
    assert slo_limit([lv], None).kind == ("above" if kept_up else "below")


def test_a_burst_does_not_say_how_much_a_target_can_do():
    due = np.linspace(0.0, 0.0001, 10)
    assert overrun_rate(made(due, due + 0.213, 1e5, 0.0002)) is None


def test_a_burst_that_ends_in_a_burst_took_its_time():
    """Ten requests of one moment that are all answered 213 ms later are 47 per second, not thousands."""
    due = np.linspace(0.0, 0.0001, 10)
    found = throughput(made(due, due + 0.213, 1e5, 0.0002, tokens_out=[10] * 10))
    assert found.achieved == pytest.approx(10 / 0.213, rel=0.01)
    assert found.tokens_out == pytest.approx(100 / 0.213, rel=0.01)


def test_nothing_counts_after_the_level_was_ended():
    due = arrivals("constant", 10, 4)
    lv = made(due, due + 3.0, 10, 10)
    cut = replace(lv, meta={**lv.meta, "stop_reason": "stopped", "end_ns": START_NS + 5 * 10**9})
    # Answers come from 3 s on; what is asked is not how many would have come until 13 s.
    assert throughput(cut).achieved == pytest.approx(10, rel=0.06)


def test_a_target_that_never_answers_achieves_nothing():
    due = arrivals("constant", 10, 4)
    lv = made(due, due + 1.0, 10, 4, outcome=[OUTCOMES.index("timeout")] * due.size)
    assert throughput(lv) == (10.0, 0.0, None, None)


def test_tokens_are_those_of_the_answers():
    due = arrivals("constant", 10, 20)
    found = throughput(made(due, due + 0.1, 10, 20, tokens_out=[16] * due.size, tokens_in=[5] * due.size))
    assert found.tokens_out == pytest.approx(160)
    assert found.tokens_in == pytest.approx(50)


@pytest.mark.parametrize("told", [{"tokens_in": [5]}, {"tokens_out": [16]}])
def test_tokens_that_nobody_counts_are_unknown(told):
    """Answers of embeddings have no output tokens: none is not 0 per second."""
    due = arrivals("constant", 10, 20)
    found = throughput(made(due, due + 0.1, 10, 20, **{name: value * due.size for name, value in told.items()}))
    assert (found.tokens_in is None, found.tokens_out is None) == ("tokens_in" not in told, "tokens_out" not in told)


def test_of_a_sampled_level_seconds_tell_and_rows_say_the_tokens(tmp_path):
    due = arrivals("poisson", 2 * CAPACITY, 30)
    ends = served(due, SERVICE_S, ((0.0, SERVERS),))
    tokens: dict[str, Any] = {"tokens_out": [16] * due.size, "tokens_in": [5] * due.size}
    place = run_of(tmp_path / "r", due, ends, open_setting(2 * CAPACITY, 30), 30, **tokens)
    [whole] = map(throughput, read_levels(place))
    sample_down(place / "levels" / "0000", 7)
    [sampled] = read_levels(place)
    assert sampled.sampled == 7
    for found in (whole, throughput(sampled)):
        assert found.achieved == pytest.approx(CAPACITY, rel=0.03)
        assert found.tokens_out == pytest.approx(16 * found.achieved)
        assert found.tokens_in == pytest.approx(5 * found.achieved)


def test_a_closed_loop_is_counted_by_what_was_due():
    lv = level(8, closed(8, lambda k: 50 * MS, duration_ns=4000 * MS), duration_s=4)
    assert throughput(lv).achieved == pytest.approx(160, rel=0.02)


def ends_per_s(lv):
    """By hand: answers over the time from when all slots ran to the close."""
    rows = lv.records.collect()
    sent, ends = np.sort(rows["sent_ns"].to_numpy()), np.sort(rows["end_ns"].to_numpy())
    full = next(at for at in sent if (sent <= at).sum() - (ends <= at).sum() >= 0.95 * lv.concurrency)
    low, high = max(lv.window()[0], full), min(lv.window()[1], lv.meta["close_ns"])
    ok = rows.filter(rows["outcome"] == "ok")["end_ns"].to_numpy()
    return ((ok > low) & (ok <= high)).sum() / (high - low) * 1e9


@pytest.mark.parametrize("seconds", [2, 4, 20, 60])
def test_a_level_whose_drain_is_kept_is_as_fast_as_a_long_one(seconds):
    """Sixteen slots with answers of 345 ms on average make 46.3 a second, however short the level is."""
    mean_s, count = 0.345, 16
    service = lognormal_ns(3, mean_s * 1e9 / np.exp(0.5 * 0.5**2), 0.5)
    lv = level(count, closed(count, service, duration_ns=seconds * 1000 * MS), duration_s=seconds)
    kept = [each["name"] for each in lv.intervals]
    assert ("drain" in kept) is (seconds > 2), "short levels keep their drain"
    found = throughput(lv)
    assert found.achieved == pytest.approx(ends_per_s(lv))
    assert found.achieved == pytest.approx(count / mean_s, rel=0.12 if seconds < 5 else 0.05)
    assert found.offered == pytest.approx(count / mean_s, rel=0.3 if seconds < 5 else 0.05)


@pytest.mark.parametrize("passes", [2, 3, 5, 10, 25])
@pytest.mark.parametrize(
    "target, capacity", [(alone, 24.0), (queued, 6.0), (shared, 1.0)], ids=["alone", "queued", "shared"]
)
def test_few_passes_answer_as_many_a_second_as_many(target, capacity, passes):
    """Counted by when they came they were a fourth too few of two passes where requests share, or do not."""
    found = [throughput(passes_of(target, 24, passes, seed)) for seed in range(12)]
    assert np.mean([each.achieved for each in found]) == pytest.approx(capacity, rel=0.07)
    assert [each.tokens_out for each in found] == pytest.approx([20 * (each.achieved or 0) for each in found])


def test_a_slow_first_request_of_each_slot_is_not_the_rate():
    """Sixteen users, 1 s each but for the first, 30 s: the rate is no lower than that of all answers to the last."""
    service = lognormal_ns(3, 1000 * MS, 0.4)
    columns_ = closed(16, lambda k: 30_000 * MS if k < 16 else service(k), count=16 * 10)
    found = throughput(level(16, columns_, passes=10))
    length_s = (max(columns_["end_ns"]) - min(columns_["due_ns"])) / 1e9
    assert found.achieved >= 160 / length_s * (1 - 1e-9)


def test_two_slow_answers_that_are_alike_are_no_rate_of_their_own():
    """Two users in two passes: 4 requests in 0.69 s are 5.8 a second, though the last two took 0.47 s each."""
    due_ns = [START_NS, START_NS, START_NS + 210 * MS, START_NS + 220 * MS]
    end_ns = [START_NS + 210 * MS, START_NS + 220 * MS, START_NS + 680 * MS, START_NS + 690 * MS]
    found = throughput(by_passes(2, 2, {"due_ns": due_ns, "end_ns": end_ns}))
    assert found.achieved == pytest.approx(4 / 0.69)


def test_a_level_whose_drain_is_left_out_is_counted_as_its_answers_came():
    """Without a warm-up its window begins at the start, and ends before its last requests."""
    found = [passes_of(alone, 20, 10, seed) for seed in range(8)]
    until = [{"name": "steady", "start_ns": START_NS, "end_ns": each.meta["close_ns"] - 2 * 10**9} for each in found]
    cut = [throughput(replace(each, intervals=[part])) for each, part in zip(found, until, strict=True)]
    assert np.mean([each.achieved or 0 for each in cut]) == pytest.approx(20, rel=0.08)


def test_few_passes_with_idle_slots_are_counted_as_they_came():
    """Each slot waits 60 ms between an answer and its next request, which the generator took."""
    service = lognormal_ns(3, 100 * MS, 0.4)
    columns_ = closed(8, lambda k: service(k) + 60 * MS, count=24)
    columns_["end_ns"] = [end - 60 * MS for end in columns_["end_ns"]]
    found = throughput(level(8, columns_, passes=3))
    assert found.achieved <= 8 / 0.16


@pytest.mark.parametrize("passes", [2, 3, 5, 15])
@pytest.mark.parametrize("users", [3, 8, 16, 24, 32])
def test_answers_that_come_in_waves_are_as_many_per_second_in_few_passes_as_in_many(users, passes):
    """Eight at a time, each 0.2 s: 40 per second from eight users on, and five of each below."""
    lv = by_passes(users, passes, waves(users, passes))
    found = throughput(lv)
    assert found.achieved == pytest.approx(5 * min(users, 8), rel=1e-6)
    of = responses(lv, "seq")
    assert of.answered / of.length_s == pytest.approx(found.achieved)
    assert of.rows.collect().height == of.answered


def test_slots_that_stand_idle_are_no_faster_than_they_are():
    """Eight users, 0.1 s each, and as long between an answer and the next request, which is the generator's."""
    columns_ = closed(8, lambda _: 100 * MS, count=24)
    late = {name: list(values) for name, values in columns_.items()}
    for wave in range(3):
        for k in range(8 * wave, 8 * wave + 8):
            for values in late.values():
                values[k] += wave * 100 * MS
    found = throughput(level(8, late, passes=3))
    assert found.achieved <= 8 / 0.2 + 1e-6


@pytest.mark.parametrize("passes", [2, 3, 5, 15])
@pytest.mark.parametrize("users", [8, 24])
def test_waves_of_which_some_answers_come_first_are_not_charged_with_the_others(users, passes):
    """The level closes as the first answer of its last wave comes: of eight in two passes that is nine of sixteen."""
    spread = np.random.default_rng(users + passes).normal(1, 0.05, users * passes)
    found = throughput(by_passes(users, passes, waves(users, passes, spread)))
    assert found.achieved == pytest.approx(40, rel=0.08)


def waves(users, passes, spread=None):
    """Users in a closed loop on a server that works on eight at once, first come first served."""
    takes_s = iter(np.full(users * passes, 0.2) if spread is None else 0.2 * spread)
    free, next_s, due, end = [0.0] * 8, [0.0] * users, [], []
    for _ in range(users * passes):
        user = int(np.argmin(next_s))
        at = max(next_s[user], min(free))
        done = at + float(next(takes_s))
        free[free.index(min(free))] = done
        due.append(next_s[user])
        end.append(done)
        next_s[user] = end[-1]
    ns = [START_NS + round(each * 1e9) for each in due]
    return {"due_ns": ns, "end_ns": [START_NS + round(each * 1e9) for each in end]}


def test_of_a_single_pass_all_answers_count_to_the_last():
    lv = level(4, closed(4, lambda k: (50 + 10 * k) * MS, count=4), passes=1)
    assert throughput(lv).achieved == pytest.approx(4 / 0.08)
    assert throughput(lv).offered == pytest.approx(4 / 0.08)


def test_goodput_and_tokens_are_of_the_same_answers():
    columns_ = closed(16, lognormal_ns(3, 0.3e9, 0.5), duration_ns=2000 * MS)
    size = len(columns_["due_ns"])
    lv = level(16, {**columns_, "tokens_out": [20] * size, "tokens_in": [7] * size}, duration_s=2)
    found = throughput(lv)
    assert found.tokens_out == pytest.approx(20 * found.achieved)
    assert found.tokens_in == pytest.approx(7 * found.achieved)
    all_good, some_good = (goodput(lv, [Slo.parse(text)])[0] for text in ("p95 runtime <= 1h", "p95 runtime <= 300ms"))
    assert all_good == pytest.approx(found.achieved)
    assert 0.3 * found.achieved < some_good < 0.8 * found.achieved


def test_the_rates_of_replicas_add_up_to_that_of_the_level():
    columns_ = closed(16, lognormal_ns(3, 0.3e9, 0.5), duration_ns=2000 * MS)
    target = [k % 3 for k in range(len(columns_["due_ns"]))]
    source = {**SOURCE, "targets": [{"url": f"http://127.0.0.{k}/"} for k in range(3)]}
    lv = level(16, {**columns_, "target": target}, duration_s=2, source=source)
    assert breakdown([lv], "target")["achieved_rate"].sum() == pytest.approx(throughput(lv).achieved)
