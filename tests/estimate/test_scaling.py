"""The scaling method: capacities of several counts, users and rates, hosts, refusals; studies that are known."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from gpusize.analysis.slo import Slo
from gpusize.base.errors import UsageError
from gpusize.estimate.capacities import capacities
from gpusize.estimate.laws import Law
from gpusize.estimate.methods import Question, estimate
from gpusize.studies.imports.perf_analyzer import read_perf_analyzer
from tests.analysis.open_levels import START_NS, arrivals, columns, served
from tests.analysis.synthetic import MS, closed, level

FIXTURES = Path(__file__).parents[1] / "fixtures"
SLO = Slo.parse("p95 runtime <= 550ms")


def traccc(folder):
    """The study's rows as the CSV that they came from: levels of 1 and 4 GPUs."""
    rows = json.loads((FIXTURES / "traccc" / "scaling.json").read_text())["rows"]
    levels = []
    for gpus in (1, 4):
        lines = ["Concurrency,Inferences/Second,Server Queue,Server Compute Infer,p50 latency"]
        lines += [",".join(map(str, row[1:6])) for row in rows if row[0] == gpus]
        (folder / f"{gpus}.csv").write_text("\n".join(lines) + "\n")
        levels += read_perf_analyzer(folder / f"{gpus}.csv", gpus=gpus).levels
    return levels


def instances(*counts):
    return [
        lv for n in counts for lv in read_perf_analyzer(FIXTURES / "perf_analyzer" / f"inst{n}_c1-8.csv", gpus=n).levels
    ]


def constant(runtime_ns):
    return lambda _: runtime_ns


def own(gpus, servers, concurrencies, *, visit=0):
    """Closed loops on ``servers`` that share the work of 50 ms a request: c users take 50 ms x max(1, c / servers)."""
    levels = []
    for c in concurrencies:
        runtime_ns = round(50 * MS * max(1.0, c / servers))
        made = closed(c, constant(runtime_ns), count=40 * c)
        levels.append(level(c, made, gpus=gpus, visit=visit + c, count=40 * c, run=f"r{gpus}"))
    return levels


def at_rates(gpus, rates):
    """Open loops of a minute on one server per GPU, 50 ms a request."""
    levels = []
    for rate in rates:
        due_s = arrivals("poisson", rate, 60.0, seed=int(rate))
        made = level(None, columns(due_s, served(due_s, 0.05, [(0.0, gpus)])), gpus=gpus, visit=int(rate), rate=rate)
        facts = {"start_ns": START_NS, "close_ns": START_NS + 60 * 10**9, "stop_reason": "duration"}
        levels.append(replace(made, setting={**made.setting, "duration_s": 60.0}, meta={**made.meta, **facts}))
    return levels


@pytest.mark.parametrize("gpus", [1, 2])
def test_rates_that_were_all_kept_up_with_are_enough_for_less_and_bound_more(gpus):
    """Nobody has seen the capacity, but 9 requests/s were carried: so is less, and four times it by four times."""
    levels = at_rates(gpus, (4, 7, 9))
    less = ask(levels, rate=8.0)
    assert (less.gpus, less.gpus_low, less.gpus_high) == (gpus, None, gpus)
    assert any("measured to be enough" in text for text in less.warnings)
    more = ask(levels, rate=30.0)
    assert (more.gpus, more.gpus_high) == (None, 4 * gpus)
    assert f"at most {4 * gpus} GPUs are needed" in more.reason


def test_a_burst_is_no_rate_that_was_carried():
    """Twenty requests in half a second, 2 s each: eighty in flight, which 40 requests/s are, were never seen."""
    levels = []
    for rate in (20, 40):
        due_s = arrivals("constant", rate, 20 / rate)
        made = level(None, columns(due_s, due_s + 2.0), gpus=1, visit=rate, rate=float(rate))
        facts = {"start_ns": START_NS, "close_ns": START_NS + round(20 / rate * 1e9), "stop_reason": "count"}
        levels.append(replace(made, meta={**made.meta, **facts}))
    found = ask(levels, rate=40.0, slos=(Slo.parse("p95 runtime <= 3s"),))
    assert (found.gpus, found.gpus_high) == (None, None)


def ask(levels, *, users=0, rate=None, slos=(SLO,), method="scaling", **more):
    return estimate(levels, Question(users, slos, rate=rate, **more), method)[0]


def ways(found):
    return {each["name"]: each for each in found.details["options"]}


def test_tracccs_table(tmp_path):
    found = ask(traccc(tmp_path), rate=40, slos=())
    assert [(c["gpus"], round(c["capacity"], 2)) for c in found.details["counts"]] == [(1, 11.70), (4, 26.87)]
    assert found.details["counts"][1]["efficiency"] == pytest.approx(0.574, abs=0.001)
    assert (found.gpus, found.gpus_high) == (17, None)
    assert 14 <= found.gpus_low <= 17
    assert found.next_counts == (2, 8)
    assert any("lower bound" in text for text in found.assumptions)
    more = ways(found)["more GPUs in that host"]
    assert "perhaps never" in more["text"]
    assert "26.87 requests/s with 4 GPUs" in more["text"]
    hosts = ways(found)["whole hosts of 4 GPUs"]
    assert (hosts["gpus"], hosts["low"], hosts["high"], hosts["next"]) == (8, 8, 8, (8,))
    assert hosts["text"].startswith("2 x 4 = 8 GPUs")


@pytest.mark.parametrize("rate", [60.0, 120.0, 190.0])
def test_the_loads_that_change_an_answer_follow_the_law_and_not_proportion(rate):
    """Where GPUs slow each other down one less carries more than its part: at that rate it is the answer itself."""
    known = Law("amdahl", 20.0, 0.05)
    levels = [lv for n in (1, 2, 4, 8) for lv in own(n, 0.05 * known.at(n), (4, 8, 16, 32, 64, 128), visit=100 * n)]
    found = ask(levels, rate=rate, slos=())
    law = Law(*(found.details["law"][name] for name in ("name", "one", "sigma", "kappa")))
    assert law.name == "amdahl"
    count, less = found.gpus, law.at(found.gpus - 1)
    told = re.fullmatch(
        r"more than about (\S+) requests/s need more GPUs, "
        rf"for about (\S+) requests/s or fewer {count - 1} GPUs are enough",
        found.changes[0],
    )
    for text, load in zip(told.groups(), (law.at(count), less), strict=True):
        assert float(text) <= load < float(text) * 1.011, "never rounded up"
    assert [ask(levels, rate=by * less, slos=()).gpus for by in (0.999, 1.001)] == [count - 1, count]


def test_tracccs_whole_hosts(tmp_path):
    found = ask(traccc(tmp_path), rate=40, slos=(), host_gpus=4)
    assert (found.gpus, found.gpus_low, found.gpus_high) == (8, 8, 8)
    assert found.gpus_raw == pytest.approx(8 * 40 / (2 * 26.8715))
    assert any("hosts share nothing" in text for text in found.assumptions)
    one = ask(traccc(tmp_path), rate=20, slos=(), host_gpus=4)
    assert (one.gpus, one.gpus_low, one.gpus_high) == (3, 2, 3)
    unseen = ask(traccc(tmp_path), rate=40, slos=(), host_gpus=2)
    # Amdahl's law gives two GPUs 18.76 requests/s.
    assert unseen.gpus == 6
    assert "were not measured: 18.76 requests/s each" in ways(unseen)["whole hosts of 2 GPUs"]["text"]
    assert unseen.gpus_low <= unseen.gpus <= unseen.gpus_high
    assert unseen.next_counts == (2,)


def test_beyond_amdahls_limit_there_is_no_number_but_hosts(tmp_path):
    found = ask(traccc(tmp_path), rate=60, slos=())
    assert not found.answered
    assert "perhaps never" in found.reason
    assert "47.31 requests/s" in found.reason
    assert "3 x 4 = 12 GPUs" in found.reason


@pytest.mark.parametrize("count", [1, 2, 4])
def test_instances_carry_what_the_servers_own_compute_time_says(count):
    [found] = capacities(instances(count), None, rate=True).capacities
    columns = ("Server Compute Input", "Server Compute Infer", "Server Compute Output")
    told = [sum(lv.meta["perf_analyzer"][name] for name in columns) * 1e-6 for lv in instances(count)]
    assert found.load == pytest.approx(count / (sum(told) / len(told)), rel=0.05)
    assert found.load == pytest.approx({1: 40, 2: 77, 4: 154}[count], rel=0.05)


def test_the_law_through_all_instances_agrees_with_their_compute_times_too():
    found = ask(instances(1, 2, 4), rate=100, slos=())
    law = found.details["law"]
    for count, told in ((1, 40), (2, 77), (4, 154)):
        fitted = law["one"] * count / (1 + law["sigma"] * (count - 1) + law["kappa"] * count * (count - 1))
        assert fitted == pytest.approx(told, rel=0.05)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_law_with_a_peak_is_found_from_levels_and_ends_where_it_does(seed):
    # Gunther's law with its peak between six and seven; each count is off by 1 %, its levels by more.
    known, noise = Law("usl", 1.0, 0.05, 0.02), random.Random(seed)
    levels = [
        lv
        for n in (1, 2, 4, 6, 8)
        for lv in own(n, known.at(n) * (1 + 0.01 * noise.gauss(0, 1)), (1, 4 * n, 8 * n, 16 * n, 24 * n))
    ]
    found = ask(levels, rate=19.7 * known.at(5), slos=())
    assert found.details["law"]["name"] == "usl"
    assert found.details["law"]["kappa"] == pytest.approx(0.02, abs=0.006)
    assert found.details["law"]["peak_gpus"] == pytest.approx(known.peak, abs=1.0)
    assert (found.gpus_low, found.gpus) == (4, 5)
    never = ask(levels, rate=1.3 * 20 * known.limit, slos=())
    assert never.gpus is None
    assert "hosts" in never.reason


def test_four_instances_follow_from_one_and_two():
    [four] = capacities(instances(4), None, rate=True).capacities
    found = ask(instances(1, 2), rate=four.load, slos=())
    law = found.details["law"]
    assert law["name"] == "amdahl"
    predicted = law["one"] * 4 / (1 + law["sigma"] * 3)
    assert predicted == pytest.approx(four.load, rel=0.10)
    assert found.gpus in (4, 5)
    assert (found.gpus_high, found.next_counts) == (None, (4, 8))


def test_three_counts_are_bounded_on_both_sides():
    found = ask(instances(1, 2, 4), rate=150, slos=())
    assert found.details["law"]["name"] == "linear"
    assert (found.gpus_low, found.gpus) == (4, 4)
    assert found.gpus_high in (4, 5)
    assert not found.outside_tested_range
    assert set(found.details["gpus_by_law"]) == {"linear", "amdahl", "usl"}


def test_imported_percentiles_are_judged_by_interpolation():
    found = ask(instances(1, 2, 4), rate=100, slos=[Slo.parse("p95 runtime <= 60ms")])
    at = {c["gpus"]: c["users"] for c in found.details["counts"]}
    # p95 is 54.6 ms at 2 users and 81.3 ms at 3; of four instances 60.3 at 5 and 58.2 at 6 are pooled.
    assert at[1] == pytest.approx(2 + (60 - 54.613) / (81.275 - 54.613), abs=0.01)
    assert at[1] < at[2] < at[4]
    assert found.answered


def test_users_by_attainment_with_a_loss_between_gpus():
    # Two GPUs are worth 1.6, four 2.29: Amdahl with s = 0.25. 550 ms are kept by 11 users per server.
    levels = [
        lv for g, s in ((1, 1.0), (2, 1.6), (4, 16 / 7)) for lv in own(g, s, (1, 4, 8, 11, 12, 16, 17, 18, 25, 26))
    ]
    found = ask(levels, users=40)
    loads = [c["capacity"] for c in found.details["counts"]]
    assert loads == pytest.approx([11, 17, 25], abs=1.0)
    assert found.details["law"]["sigma"] == pytest.approx(0.25, abs=0.06)
    assert found.gpus > 2 * 4
    assert found.gpus_low <= found.gpus
    assert found.outside_tested_range


def test_one_count_names_the_linear_assumption():
    found = ask(own(2, 2.0, (1, 8, 16, 22, 23, 30)), users=100)
    assert found.gpus == 10
    assert any("in proportion" in text and "one count" in text for text in found.assumptions)
    assert found.gpus_high is None
    assert found.next_counts == (4, 8)


def test_users_of_one_count_are_not_asked_of_it_among_all_methods():
    levels = own(2, 2.0, (1, 8, 16, 22, 23, 30))
    assert [e.method for e in estimate(levels, Question(100, [SLO]), "all")] == ["twin", "slope", "crossing"]
    both = estimate([*levels, *own(4, 4.0, (1, 30, 40, 48))], Question(100, [SLO]), "all")
    assert [e.method for e in both] == ["twin", "scaling", "slope", "crossing"]
    rate = estimate(levels, Question(0, [SLO], rate=30), "all")
    assert [e.method for e in rate] == ["twin", "scaling"]


def test_other_methods_refuse_a_rate():
    found = ask(own(2, 2.0, (1, 8, 16, 30)), rate=30, method="crossing")
    assert (found.gpus, found.users, found.rate) == (None, None, 30)
    assert "take the scaling method" in found.reason


def test_a_rate_from_closed_loops_is_their_throughput_at_the_edge():
    found = ask(own(2, 2.0, (1, 2, 4, 8, 16, 22, 23, 30)), rate=100, process="constant")
    [count] = found.details["counts"]
    assert count["capacity"] == pytest.approx(40, rel=0.04)
    assert count["users"] == pytest.approx(22, abs=1)
    assert found.capacity_rate == count["capacity"]
    assert any("less evenly they wait longer" in text for text in found.assumptions)


def test_requests_at_random_need_more_than_closed_loops_carry():
    """Two servers of 50 ms keep the SLO to 22 in flight: M/M/2 finds less than that, 19 times of 20, up to 34.8/s."""
    levels = own(2, 2.0, (1, 2, 4, 8, 16, 22, 23, 30))
    found, evenly = (ask(levels, rate=38, process=process) for process in ("poisson", "constant"))
    assert (evenly.gpus, found.gpus) == (2, 3)
    # They may come as evenly as in the loops.
    assert found.gpus_low == evenly.gpus_low
    busy = found.capacity_rate * 0.05 / 2
    waits = 2 * busy**2 / (1 + busy)
    assert waits * busy ** (22 - 2) == pytest.approx(0.05, rel=0.1)
    assert found.details["at_random"]["closed"] == evenly.capacity_rate
    # What changes the count is what another number was found to carry.
    least, most = (float(text) for text in re.findall(r"about ([\d.]+) requests/s", found.changes[0])[::-1])
    assert [ask(levels, rate=rate).gpus for rate in (least, least + 0.2, most, most + 0.3)] == [2, 3, 3, 4]
    for text, there in (("come at random", True), ("less evenly", False)):
        assert any(text in each for each in found.assumptions) is there


def test_what_keeps_a_load_in_a_closed_loop_need_not_keep_it_at_random():
    """Four GPUs carry 160/s with eight in flight, their largest level; who comes ninth was never seen."""
    levels = [*own(1, 0.5, (1, 2, 4, 5, 6, 8)), *own(4, 8.0, (1, 4, 8))]
    found, evenly = (ask(levels, rate=150, process=process) for process in ("poisson", "constant"))
    assert (evenly.gpus, evenly.gpus_high) == (4, 4)
    assert found.gpus == 8
    assert found.warnings[0].startswith("by the closed loops 4 GPUs carry ")
    alone = ask([*levels[:6], *at_rates(4, (40, 70))], rate=60)
    assert (alone.gpus, alone.warnings[0].partition(";")[0]) == (4, "4 GPUs were measured to be enough")
    fewer = ask(levels, rate=60)
    assert (fewer.gpus, fewer.warnings[0].partition(";")[0]) == (4, "4 GPUs are enough by the closed loops")


def test_a_rate_that_was_kept_up_with_is_carried_whatever_closed_loops_say_of_it():
    """Lengths that are all equal wait half as long as the closed loops' queue has it."""
    closed_loops, rates = own(2, 2.0, (1, 2, 4, 8, 16, 22, 23, 30)), at_rates(2, (20, 36))
    assert all(level.met(SLO) for level in rates)
    assert ask(closed_loops, rate=36).gpus == 3
    both = ask([*closed_loops, *rates], rate=36)
    assert (both.gpus, both.gpus_high) == (2, 2)
    assert "2 GPUs were measured to be enough" in both.warnings[0]


def test_only_rates_at_random_show_that_they_are_carried():
    """Thirty-six requests a second at equal distances never meet: they say nothing of those that do."""
    loops = own(2, 2.0, (1, 2, 4, 8, 16, 22, 23, 30))
    due_s = arrivals("constant", 36, 60.0)
    made = level(None, columns(due_s, served(due_s, 0.05, [(0.0, 2)])), gpus=2, visit=36, rate=36.0)
    even = replace(made, setting={**made.setting, "process": "constant", "duration_s": 60.0})
    assert ask([*loops, even], rate=36).gpus == 3
    assert ask([*loops, even], rate=36, process="constant").gpus == 2


def test_what_was_kept_up_with_is_the_least_that_is_said_to_be_carried():
    loops, rates = own(2, 2.0, (1, 2, 4, 8, 16, 22, 23, 30)), at_rates(2, (20, 36))
    for asked in (30, 36):
        found = ask([*loops, *rates], rate=asked)
        assert found.gpus == 2
        assert found.capacity_rate == 36
        assert found.changes[0].startswith("more than about 36 requests/s")


def test_rates_and_closed_loops_of_several_counts_are_of_one_kind():
    """One GPU by rates, four by closed loops: all is of requests that come at random, and four carry four times one."""
    four = own(4, 4.0, (1, 4, 8, 16, 32, 44, 45, 60))
    found = ask([*at_rates(1, (8, 14, 17, 18, 22)), *four], rate=100)
    one, all_four = found.details["counts"]
    assert (one["from"], all_four["from"]) == ("open", "queue")
    assert all_four["capacity"] == ask(four, rate=100).capacity_rate < 80
    assert "at_random" not in found.details
    said = " ".join(found.assumptions)
    assert "come at random, to a queue" in said
    assert "as in the closed loop" not in said


@pytest.mark.parametrize("process", ["poisson", "constant"])
def test_loads_that_change_a_count_in_proportion_change_it(process):
    """One GPU carries little; four carried seventy, their largest rate, so that eight are enough for 130."""
    levels = [*own(1, 0.5, (1, 2, 4, 5, 6, 8)), *at_rates(4, (40, 70))]
    found = ask(levels, rate=130, process=process)
    assert found.gpus == 8
    assert found.warnings[0].startswith("70, the largest load of 4 GPUs, was carried still")
    least, most = (float(text) for text in re.findall(r"about ([\d.]+) requests/s", found.changes[0])[::-1])
    assert most == pytest.approx(140, rel=0.02)
    asked = [ask(levels, rate=rate, process=process).gpus for rate in (least, most, most + 3)]
    assert asked[0] < 8 == asked[1] < asked[2]


def p95_of(file, rows):
    file.write_text(
        "Concurrency,Inferences/Second,p50 latency,p90 latency,p95 latency,p99 latency\n"
        + "".join(",".join(map(str, row)) + "\n" for row in rows)
    )
    return file


def two_hosts(folder):
    """One GPU, and four that lose much of one another's, as another tool's percentiles tell them."""
    one = [(1, 10, 100000, 101000, 102000, 103000), (2, 11.4, 175000, 177000, 180000, 185000)]
    four = [(1, 10, 100000, 101000, 102000, 103000), (4, 24, 166000, 168000, 170000, 180000)]
    ends = (4, 11.7, 340000, 345000, 350000, 360000), (8, 26.87, 297000, 299000, 302000, 310000)
    return [
        *read_perf_analyzer(p95_of(folder / "1.csv", [*one, ends[0]]), gpus=1).levels,
        *read_perf_analyzer(p95_of(folder / "4.csv", [*four, ends[1]]), gpus=4).levels,
    ]


def test_beyond_the_laws_limit_requests_at_random_have_no_number_but_hosts(tmp_path):
    slo = Slo.parse("p95 runtime <= 250ms")
    found = ask(two_hosts(tmp_path), rate=60, slos=(slo,))
    assert (found.gpus, found.details["carries"]) == (None, [])
    assert "requests/s in the closed loop however many there are" in found.reason
    hosts, evenly = (
        ask(two_hosts(tmp_path), rate=40, slos=(slo,), host_gpus=4, process=process)
        for process in ("poisson", "constant")
    )
    assert (hosts.gpus, evenly.gpus) == (12, 8)
    assert hosts.gpus_low == evenly.gpus_low
    # Three hosts, and two: each as many closed loops as one has.
    three, two = hosts.details["carries"]
    assert (three["gpus"], two["gpus"]) == (12, 8)
    assert two["load"] < 40 <= three["load"] < 3 * hosts.details["at_random"]["closed"]
    least, most = (float(text) for text in re.findall(r"about ([\d.]+) requests/s", hosts.changes[0])[::-1])
    asked = [ask(two_hosts(tmp_path), rate=rate, slos=(slo,), host_gpus=4) for rate in (least, least + 0.2, most)]
    assert [each.gpus for each in asked] == [8, 12, 12]


def test_imports_carry_no_more_at_random_than_in_their_loops(tmp_path):
    """Between percentiles shares are a guess, and the guess had the SLO kept far beyond its edge."""
    rows = [(1, 10, 100000, 110000, 120000, 130000), (8, 60, 120000, 200000, 250000, 258000)]
    file = p95_of(tmp_path / "x.csv", [*rows, (64, 120, 210000, 258000, 400000, 990000)])
    slo = Slo.parse("p95 runtime <= 259ms")
    found, evenly = (
        ask(read_perf_analyzer(file, gpus=1).levels, rate=500, slos=(slo,), process=process)
        for process in ("poisson", "constant")
    )
    assert found.capacity_rate <= found.details["at_random"]["closed"]
    assert found.gpus >= evenly.gpus


def test_a_target_that_is_overrun_keeps_what_its_larger_levels_keep(tmp_path):
    """From four users on it answers a third less, and keeps the SLO all the same: who comes then is not lost."""
    rows = [(1, 50, 20000, 20000, 20000, 21000), (2, 60, 33000, 34000, 35000, 36000)]
    rows += [(4, 40, 100000, 110000, 120000, 130000), (8, 40, 200000, 210000, 220000, 230000)]
    levels = read_perf_analyzer(p95_of(tmp_path / "x.csv", rows), gpus=1).levels
    found = ask(levels, rate=35, slos=(Slo.parse("p95 runtime <= 150ms"),))
    assert 25 < found.capacity_rate < 40


def test_a_rate_beyond_anything_has_no_number():
    found = ask(own(2, 2.0, (1, 16, 22, 23, 30)), rate=1e14)
    assert not found.answered
    assert "no number of GPUs" in found.reason


def test_a_rate_from_open_loops():
    def at(rate, late):
        due = [round(k * 1e9 / rate) + 10**9 for k in range(400)]
        slow = [late and k % 10 == 0 for k in range(400)]
        end = [d + (900 if s else 100) * MS for d, s in zip(due, slow, strict=True)]
        columns = {"due_ns": due, "fired_ns": due, "sent_ns": due, "end_ns": end}
        return level(None, columns, gpus=2, visit=rate, rate=float(rate), duration_s=400 // rate)

    found = ask([at(10, late=False), at(20, late=False), at(40, late=True)], rate=100)
    [count] = found.details["counts"]
    assert count["from"] == "open"
    # All within at 20, 90 % at 40: 95 % lies half way.
    assert count["capacity"] == pytest.approx(30, abs=0.5)
    assert found.capacity_concurrency is None


def test_a_count_without_a_capacity_is_left_out_and_said():
    levels = [*own(1, 1.0, (1, 4, 8, 10, 12, 16)), *own(4, 4.0, (1, 2, 4))]
    found = ask(levels, users=30)
    assert found.tested_gpus == 1
    assert any("4 GPUs: concurrency 4, its largest level, still meets the SLO" in text for text in found.warnings)
    assert found.next_levels == (6, 8, 11, 16)


def test_what_was_measured_to_be_enough_is_enough():
    levels = [*own(1, 0.5, (1, 2, 4, 5, 6, 8)), *own(4, 4.0, (1, 8, 30))]
    found = ask(levels, users=30)
    assert (found.gpus, found.gpus_low, found.gpus_high) == (4, None, 4)
    assert "4 GPUs were measured to be enough" in found.warnings[0]
    # With 25 users as many are enough, too: it says of 30 that they are carried, not of what it was asked.
    assert ask(levels, users=25).changes[0] == "more than about 30 users were not measured, and may need more GPUs"


def test_in_proportion_what_was_measured_to_be_enough_is_enough():
    """One GPU carries five and a half; two carried sixteen, their largest load: four carry thirty."""
    levels = [*own(1, 0.5, (1, 2, 4, 5, 6, 8)), *own(2, 2.0, (1, 8, 16))]
    found = ask(levels, users=30)
    without = ask(levels[:6], users=30)
    assert (without.gpus, found.gpus, found.gpus_high) == (6, 4, without.gpus_high)
    assert found.gpus_raw == pytest.approx(30 / 8)
    assert found.details["options"] == []
    # Far beyond what was measured it is as far as ever, and says so.
    far = ask(levels, users=1000)
    assert (far.gpus, far.outside_tested_range) == (126, True)
    assert [text for text in far.warnings if "extrapolated" in text] == [
        "extrapolated: 63 times the largest count that was measured"
    ]
    # What was measured goes before what follows in proportion.
    same = ask([*levels, *own(4, 4.0, (1, 8, 30))], users=30)
    assert "4 GPUs were measured to be enough" in same.warnings[0]
    assert found.warnings[0].startswith("16, the largest load of 2 GPUs, was carried still: in proportion 4 GPUs are")
    # Where replicas cost each other something, twice as many GPUs may carry less than twice as much.
    lossy = [*own(1, 1.0, (1, 4, 8, 10, 12, 16)), *own(4, 2.5, (8, 16, 24, 28, 32)), *own(8, 6.0, (1, 24))]
    unmoved = ask(lossy, users=60)
    assert not unmoved.answered
    assert unmoved.reason.startswith("perhaps never: by Amdahl's law")


def test_a_wide_gap_around_a_capacity_is_named_and_makes_it_unsure():
    wide, narrow = (ask(own(2, 2.0, levels), users=60) for levels in ((1, 16, 32), (1, 16, 22, 23, 32)))
    assert any("2 GPUs: nothing was measured between concurrency 16 and 32" in text for text in wide.warnings)
    assert wide.next_levels == (24,)
    assert narrow.next_levels == ()
    errors = [found.details["counts"][0]["standard_error"] for found in (wide, narrow)]
    assert errors == [pytest.approx(16 / 12**0.5, rel=0.1), pytest.approx(1 / 12**0.5, rel=0.1)]


def test_throughput_that_still_rises_is_no_capacity():
    found = ask(own(1, 8.0, (1, 2, 4)), rate=500, slos=())
    assert not found.answered
    assert "still rises at concurrency 4" in found.reason
    assert found.next_levels == (8, 16)


def test_a_target_that_is_overrun_is_not_averaged_with_its_peak(tmp_path):
    rows = "".join(
        f"{c},{x},{round(c / x * 1e6)}\n" for c, x in [(1, 10), (2, 19), (4, 30), (8, 31), (16, 20), (32, 12)]
    )
    (tmp_path / "x.csv").write_text(f"Concurrency,Inferences/Second,Avg latency\n{rows}")
    [found] = capacities(read_perf_analyzer(tmp_path / "x.csv", gpus=1).levels, None, rate=True).capacities
    assert found.load == 31


def test_a_row_that_contradicts_itself_is_no_capacity(tmp_path):
    rows = "".join(f"{c},{x},{round(c / x * 1e6)}\n" for c, x in [(1, 10), (2, 19), (4, 30), (8, 31)])
    (tmp_path / "x.csv").write_text(f"Concurrency,Inferences/Second,Avg latency\n{rows}10,806,19800\n")
    found = ask(read_perf_analyzer(tmp_path / "x.csv", gpus=1).levels, rate=60, slos=())
    assert found.capacity_rate == 31
    assert any("concurrency 10 is left out, as fewer or more requests" in text for text in found.warnings)


def test_overload_is_never_a_capacity():
    levels = read_perf_analyzer(FIXTURES / "perf_analyzer" / "v260_overload_sync.csv", gpus=1).levels
    found = ask(levels, rate=500, slos=())
    assert not found.answered
    assert "1200 requests/s, its smallest level, is already too much, or was not sent, as " in found.reason
    assert found.reason.endswith("measure 300 and 600, or numbers in flight")


def test_a_single_request_that_misses():
    found = ask(own(1, 0.05, (1, 2)), users=10)
    assert not found.answered
    assert "a single request in flight already misses the SLO" in found.reason


def test_replicas_come_whole():
    levels = [*own(2, 2.0, (1, 16, 22, 23, 30)), *own(4, 3.6, (1, 30, 39, 40, 50)), *own(3, 3.0, (1, 20, 33, 34))]
    found = ask(levels, users=100, gpus_per_replica=2)
    assert found.gpus % 2 == 0
    assert [c["gpus"] for c in found.details["counts"]] == [2, 4]
    assert any("no whole number of replicas of 2: 3 GPUs" in text for text in found.warnings)


def test_several_slos_are_all_met():
    tight = Slo.parse("p95 runtime <= 300ms")
    levels = [*own(1, 1.0, (1, 4, 6, 7, 11, 12)), *own(2, 2.0, (1, 8, 12, 13, 22, 23))]
    found = ask(levels, users=50, slos=(SLO, tight))
    assert len(found.per_slo) == 2
    assert found.slo == str(tight)
    assert found.gpus == ask(levels, users=50, slos=(tight,)).gpus


def test_the_other_methods_stay_as_they_are():
    levels = own(4, 4.0, (1, 8, 16, 32, 44, 45, 60))
    alone = estimate(levels, Question(100, [SLO]), "all")[1:]
    both = estimate([*levels, *own(1, 1.0, (1, 8, 11, 12))], Question(100, [SLO]), "all")[2:]
    assert [e.method for e in alone] == ["slope", "crossing"]
    assert [(e.method, e.gpus, e.gpus_raw, e.gpus_low, e.gpus_high) for e in alone] == [
        (e.method, e.gpus, e.gpus_raw, e.gpus_low, e.gpus_high) for e in both
    ]


@pytest.mark.parametrize(
    "more, what",
    [
        ({"users": 5, "rate": 4.0}, "are both given"),
        ({"rate": 0.0}, "the rate must be above 0"),
        ({"rate": 5.0, "host_gpus": 0}, "GPUs per host must be above 0"),
        ({"rate": 5.0, "host_gpus": 3, "gpus_per_replica": 2}, "not hold a whole number of replicas"),
        ({"users": 5, "slos": ()}, "no SLO"),
    ],
)
def test_questions_that_cannot_be_meant(more, what):
    with pytest.raises(UsageError, match=what):
        Question(**{"users": 0, "slos": [SLO], **more})


def test_an_answer_is_plain_json(tmp_path):
    document = json.loads(json.dumps(ask(traccc(tmp_path), rate=40, slos=()).to_json(), allow_nan=False))
    assert document["rate"] == 40
    assert document["details"]["law"]["peak_gpus"] is None
