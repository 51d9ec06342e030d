from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusize.containers.recommend import Execution, recommend
from gpusize.observe.usage.counter_curve import span_of
from gpusize.observe.usage.readings import Readings
from gpusize.observe.usage.source_facts import Held, Limit
from gpusize.observe.usage.usage import usage_of, windowed_cores
from tests.resources.made import MIB, MS, S, readings, workload


def test_cores_over_windows_of_a_steady_workload():
    use = usage_of(workload(lambda _: 0.5, 3.0))
    assert use.duration_s == 3.0
    assert use.cpu.total_s == pytest.approx(1.5)
    assert use.cpu.mean_cores == pytest.approx(0.5)
    for window in use.cpu.windows:
        assert window.peak_cores == pytest.approx(0.5)
        assert window.percentiles == pytest.approx({50: 0.5, 90: 0.5, 95: 0.5, 99: 0.5})
    short, long = use.cpu.windows
    assert (short.window_s, short.windows, long.window_s, long.windows) == (0.1, 30, 1.0, 3)
    # One busy CPU, a tick of 4 ms.
    assert (short.error_cores, long.error_cores) == (pytest.approx(0.04), pytest.approx(0.004))


def test_a_burst_is_seen_whole_by_the_window_that_it_fills():
    burst = workload(lambda t: 4.0 if 1.25 <= t < 1.35 else 0.0, 3.0, interval_s=0.025)
    short, long = usage_of(burst).cpu.windows
    # Wherever the window lies: side by side from 0 they would cut this burst in two.
    assert short.peak_cores == pytest.approx(4.0)
    assert short.peak_at_s == pytest.approx(1.25)
    assert long.peak_cores == pytest.approx(0.4)
    assert max(windowed_cores(burst, 0.1)) == pytest.approx(2.0)


def test_a_counter_that_moves_with_the_tick_is_told_within_its_error():
    # One busy thread whose counter moves every 4 ms, read every 3 ms: single readings say 0 or 133 %.
    times = list(range(0, 3000, 3))
    made = readings({"t_ns": [t * MS for t in times], "cpu_ns": [t // 4 * 4 * MS for t in times]})
    window = usage_of(made).cpu.window(0.1)
    assert abs(window.peak_cores - 1.0) <= window.error_cores == pytest.approx(0.04)
    assert max(windowed_cores(made, 0.003)) > 1.3


def test_windows_that_the_readings_do_not_resolve_are_left_out():
    use = usage_of(workload(lambda _: 1.0, 10.0, interval_s=0.5))
    assert [window.window_s for window in use.cpu.windows] == [1.0]
    assert use.cpu.unresolved_s == (0.1,)
    assert use.cpu.mean_cores == pytest.approx(1.0)


def test_a_run_shorter_than_a_window_is_one_window():
    use = usage_of(workload(lambda _: 2.0, 0.06, interval_s=0.01))
    short, long = use.cpu.windows
    assert (short.peak_cores, long.peak_cores) == (pytest.approx(2.0), pytest.approx(2.0))
    assert (short.over_s, short.windows) == (pytest.approx(0.06), 1)
    assert short.error_cores == pytest.approx(2 * 0.004 / 0.06)


def test_a_container_that_no_reading_saw_is_told_by_its_counters():
    gone = readings(
        {"t_ns": []},
        begun_ns=5 * S,
        ended_ns=5 * S + 50 * MS,
        totals={
            "cpu_ns": 40 * MS,
            "mem_peak_bytes": 3 * MIB,
            "io_read_bytes": 10,
            "io_write_bytes": 20,
            "pids_peak": 2,
        },
        totals_from="parent",
    )
    use = usage_of(gone)
    assert use.duration_s == pytest.approx(0.05)
    assert use.cpu.total_s == pytest.approx(0.04)
    assert use.cpu.mean_cores == pytest.approx(0.8)
    assert use.cpu.window(0.1).peak_cores == pytest.approx(0.8)
    assert (use.memory.peak_bytes, use.memory.peak_from) == (3 * MIB, "kernel")
    assert (use.io.read_bytes, use.io.write_bytes, use.pids_peak) == (10, 20, 2)
    assert use.notes == ("no reading was taken: sums are from counters, peaks are not resolved",)
    json.dumps(use.to_dict(), allow_nan=False)


@pytest.mark.parametrize("columns", [{"t_ns": []}, {"t_ns": [5]}, {"t_ns": [5], "cpu_ns": [7], "mem_bytes": [9]}])
def test_with_less_than_two_readings_and_no_totals_there_is_still_an_answer(columns):
    use = usage_of(readings(columns))
    assert use.cpu is None
    assert use.duration_s == 0
    assert use.memory.peak_bytes == (columns.get("mem_bytes") or [None])[0]
    json.dumps(use.to_dict(), allow_nan=False)


def test_what_ran_before_counts_from_the_first_reading():
    made = readings({"t_ns": [0, S, 2 * S], "cpu_ns": [100 * S, 101 * S, 101 * S], "mem_peak_bytes": [9, 9, 9]})
    use = usage_of(made)
    assert use.cpu.total_s == pytest.approx(1.0)
    assert use.memory.kernel_peak_bytes is None
    assert "it ran before the first reading: sums begin there" in use.notes


def test_the_last_interval_is_taken_from_the_totals():
    made = workload(lambda _: 1.0, 1.0, ended_ns=1000 * S + 1050 * MS, totals={"cpu_ns": S + 200 * MS})
    use = usage_of(made)
    assert use.duration_s == pytest.approx(1.05)
    assert use.cpu.total_s == pytest.approx(1.2)
    # 50 ms at four cores, in the highest 100 ms beside 50 ms at one.
    assert use.cpu.window(0.1).peak_cores == pytest.approx(2.5)


def test_readings_after_the_end_do_not_stretch_it():
    made = workload(lambda t: 1.0 if t < 1.0 else 0.0, 2.0, ended_ns=1001 * S)
    assert usage_of(made).duration_s == pytest.approx(1.0)
    assert usage_of(made).cpu.mean_cores == pytest.approx(1.0)


def test_a_restart_begins_a_new_counter():
    times = [each * 100 * MS for each in range(8)]
    cpu = [0, 100, 200, 300, 50, 150, 250, 350]
    made = readings(
        {"t_ns": times, "epoch": [0] * 4 + [1] * 4, "cpu_ns": [each * MS for each in cpu]},
        begun_ns=0,
        ended_ns=times[-1],
        totals={"cpu_ns": 650 * MS},
        totals_from="parent",
    )
    use = usage_of(made)
    assert use.restarts == 1
    assert use.cpu.total_s == pytest.approx(0.65)
    assert use.cpu.window(0.1).peak_cores == pytest.approx(1.0)


def test_part_of_a_run_is_cut_out_of_its_counters():
    made = workload(lambda t: 2.0 if 1.0 <= t < 2.0 else 1.0, 3.0, memory=lambda t: (90 if t < 0.5 else 60) * MIB)
    use = usage_of(made, start_ns=1001 * S, end_ns=1002 * S)
    assert (use.duration_s, use.cpu.mean_cores) == (1.0, pytest.approx(2.0))
    assert use.cpu.window(0.1).peak_cores == pytest.approx(2.0)
    # The kernel's mark is from before this part.
    assert (use.memory.peak_bytes, use.memory.peak_from) == (60 * MIB, "sampled")
    assert usage_of(made).memory.peak_bytes == 90 * MIB


def test_a_mark_that_rose_within_a_part_is_of_the_part():
    made = workload(lambda _: 1.0, 3.0, memory=lambda t: (90 if 1.5 <= t < 1.6 else 60) * MIB)
    assert usage_of(made, start_ns=1001 * S, end_ns=1002 * S).memory.peak_from == "kernel"


def test_three_figures_of_memory():
    columns = {
        "t_ns": [0, S, 2 * S, 3 * S],
        "mem_bytes": [100, 400, 600, 300],
        "mem_inactive_file_bytes": [10, 300, None, 50],
        "mem_active_file_bytes": [20, 40, None, 100],
        "mem_slab_reclaimable_bytes": [5, None, None, 30],
        "mem_peak_bytes": [100, 450, 700, 700],
        "swap_bytes": [0, 7, None, 0],
    }
    memory = usage_of(readings(columns, begun_ns=0, ended_ns=3 * S, mem_error_bytes=16)).memory
    assert (memory.peak_bytes, memory.peak_from, memory.sampled_max_bytes) == (700, "kernel", 600)
    assert memory.working_set_peak_bytes == 250
    assert memory.hard_peak_bytes == 120
    assert memory.unseen_bytes == 200
    assert memory.error_bytes == 16
    assert memory.swap_peak_bytes == 7
    assert memory.mean_bytes == pytest.approx((250 + 500 + 450) / 3)


def test_a_process_has_no_file_cache_in_its_memory():
    columns = {"t_ns": [0, S], "mem_bytes": [100, 300], "mem_anon_bytes": [80, 200], "mem_shmem_bytes": [0, 50]}
    memory = usage_of(readings(columns, kind="process")).memory
    assert (memory.working_set_peak_bytes, memory.hard_peak_bytes, memory.unseen_bytes) == (300, 250, 0)


def test_throttling_pressure_and_io():
    columns = {
        "t_ns": [0, S, 2 * S],
        "cpu_ns": [0, S // 2, S],
        "cpu_user_ns": [0, S // 4, 3 * S // 4],
        "cpu_system_ns": [0, S // 8, S // 4],
        "cpu_periods": [0, 10, 20],
        "cpu_throttled_periods": [0, 2, 5],
        "cpu_throttled_ns": [0, S // 10, S // 5],
        "cpu_some_ns": [0, S // 2, S // 2],
        "mem_full_ns": [0, 0, S // 100],
        "io_read_bytes": [0, 4096, 8192],
        "io_write_bytes": [0, 0, 512],
        "io_reads": [0, 1, 2],
    }
    use = usage_of(readings(columns, begun_ns=0, ended_ns=2 * S))
    assert use.throttling.share == pytest.approx(0.25)
    assert use.throttling.throttled_s == pytest.approx(0.2)
    assert use.cpu.user_share == pytest.approx(0.75)
    assert use.pressure == pytest.approx({"cpu_some": 0.25, "mem_full": 0.005})
    assert (use.io.read_bytes, use.io.write_bytes, use.io.reads, use.io.writes) == (8192, 512, 2, None)
    assert use.cpu.lower_bound == "a CPU limit throttled it in 25.0% of the periods"


@pytest.mark.parametrize(
    "facts, column, why",
    [
        ({"limits": (Limit("a", 64 * MIB),)}, {}, "reached the limit of a"),
        ({}, {"mem_max_events": [0, 3]}, "reached its limit 3 times"),
        ({}, {"oom_kill_events": [0, 1]}, "1 processes were killed"),
    ],
)
def test_memory_that_touched_a_limit_is_a_lower_bound(facts, column, why):
    columns = {"t_ns": [0, S], "mem_bytes": [MIB, 64 * MIB], **column}
    assert why in usage_of(readings(columns, begun_ns=0, ended_ns=S, **facts)).memory.lower_bound
    free = {"t_ns": [0, S], "mem_bytes": [MIB, 64 * MIB], "mem_max_events": [0, 0]}
    assert usage_of(readings(free, limits=(Limit("a", 128 * MIB),))).memory.lower_bound is None


@pytest.mark.parametrize("threads, told", [(99, False), (100, True)])
def test_threads_that_came_to_their_limit_are_said(threads, told):
    made = workload(lambda _: 1.0, 2.0, limits=(Limit("box", pids=100), Limit("", pids=5000)))
    made = Readings(made.name, made.frame.with_columns(pids=threads), made.facts)
    note = "it had all 100 threads that box allows: more may have been refused"
    assert (note in usage_of(made).notes) is told


def test_cpu_that_used_all_there_is_is_a_lower_bound():
    assert "all 2 CPUs" in usage_of(workload(lambda _: 1.99, 3.0, cpus=2)).cpu.lower_bound
    limited = workload(lambda _: 1.5, 3.0, limits=(Limit("a", None, 1.5),))
    assert "CPU limit of a" in usage_of(limited).cpu.lower_bound
    assert usage_of(workload(lambda _: 1.5, 3.0)).cpu.lower_bound is None


POD = "/kubepods/pod7"
SLOWED = ", from where on it is slowed down"


@pytest.mark.parametrize(
    "held, which, why",
    [
        (
            Held(POD, "memory", 640 * MIB, 0, S, 7),
            "memory",
            "memory of /kubepods/pod7, of which it is a part, reached its limit of 640 MiB 7 times",
        ),
        (
            Held(POD, "memory", 640 * MIB, 0, S),
            "memory",
            "memory of /kubepods/pod7, of which it is a part, reached its limit of 640 MiB",
        ),
        (
            Held(POD, "memory_high", 512 * MIB, 0, S, 2),
            "memory",
            f"memory of /kubepods/pod7, of which it is a part, was above memory.high (512 MiB) 2 times{SLOWED}",
        ),
        (
            Held("/box", "memory_high", 0.5 * MIB, 0, S, 2, above=False),
            "memory",
            f"memory in use, page cache included, was above memory.high of /box (0.5 MiB) 2 times{SLOWED}",
        ),
        (
            Held(POD, "cpu", 1.5, 0, S, 12),
            "cpu",
            "the CPU limit of /kubepods/pod7 (1.5 cores), which it shares, throttled it in 12 periods",
        ),
    ],
)
def test_a_limit_of_a_group_above_makes_a_lower_bound_that_names_it(held, which, why):
    columns = {"t_ns": [0, S // 2, S], "cpu_ns": [0, S // 10, S // 5], "mem_bytes": [MIB, MIB, MIB]}
    made = readings(columns, begun_ns=0, ended_ns=S, held=(held,))
    use = usage_of(made)
    bounds = {"memory": use.memory.lower_bound, "cpu": use.cpu.lower_bound}
    assert bounds.pop(which) == why
    assert list(bounds.values()) == [None]
    advice = recommend([Execution.of(made)] * 3)
    assert f"it may need more: {why}" in advice.doubts
    assert advice.confidence == "low"
    # Stored with the facts, and read back.
    assert type(made.facts).from_json(made.facts.to_json(), "here") == made.facts


def test_a_limit_that_was_met_before_or_after_is_not_of_the_part():
    columns = {"t_ns": [0, S, 2 * S, 3 * S], "cpu_ns": [0, S, 2 * S, 3 * S], "mem_bytes": [MIB] * 4}
    parts = (Held(POD, "memory", MIB, 0, S, 1), Held(POD, "memory", MIB, 2 * S, 3 * S, 4))
    made = readings(columns, held=parts, cpus=9)
    assert usage_of(made, start_ns=S, end_ns=2 * S).memory.lower_bound is None
    assert usage_of(made, start_ns=2 * S).memory.lower_bound.endswith("limit of 1 MiB 4 times")
    assert usage_of(made).memory.lower_bound.endswith("limit of 1 MiB 5 times")


def test_a_shared_cpu_limit_that_was_met_in_less_than_a_hundredth_of_the_time_changes_little():
    columns = {"t_ns": [0, 50 * S, 100 * S], "cpu_ns": [0, 5 * S, 10 * S], "mem_bytes": [MIB] * 3}
    for periods, told in ((9, False), (10, True)):
        use = usage_of(readings(columns, held=(Held(POD, "cpu", 1.5, 0, 100 * S, periods),)))
        assert (use.cpu.lower_bound is not None) == told


def test_its_own_limits_are_named_beside_those_above():
    columns = {
        "t_ns": [0, S],
        "cpu_ns": [0, S // 2],
        "cpu_periods": [0, 10],
        "cpu_throttled_periods": [0, 5],
        "mem_bytes": [MIB, MIB],
        "mem_max_events": [0, 3],
    }
    limits = (Limit("/box", 64 * MIB, 0.5), Limit(POD, 32 * MIB, 0.25, above=True))
    held = (Held(POD, "cpu", 0.25, 0, S, 1), Held(POD, "memory", 32 * MIB, 0, S, 1))
    use = usage_of(readings(columns, limits=limits, held=held))
    assert use.cpu.lower_bound == (
        "a CPU limit throttled it in 50.0% of the periods (0.5 cores, the limit of /box); "
        "the CPU limit of /kubepods/pod7 (0.25 cores), which it shares, throttled it in 1 periods"
    )
    assert use.memory.lower_bound == (
        "memory in use, page cache included, reached its limit 3 times (64 MiB, the limit of /box); "
        "memory of /kubepods/pod7, of which it is a part, reached its limit of 32 MiB 1 times"
    )


def test_memory_that_came_to_memory_high_is_a_lower_bound():
    columns = {"t_ns": [0, S], "mem_bytes": [MIB, 64 * MIB]}
    limited = readings(columns, limits=(Limit("/box", None, mem_high_bytes=64 * MIB),))
    assert usage_of(limited).memory.lower_bound.endswith("reached memory.high of /box")
    free = readings(columns, limits=(Limit("/box", None, mem_high_bytes=65 * MIB),))
    assert usage_of(free).memory.lower_bound is None


def test_files_in_memory_may_be_a_containers_memory_too():
    """A process wrote 500 MiB into /dev/shm: a container with its resident 15 MiB would be killed."""
    columns = {"t_ns": [0, S, 2 * S], "mem_bytes": [15 * MIB] * 3}
    grown = usage_of(readings({**columns, "tmpfs_bytes": [40 * MIB, 540 * MIB, 40 * MIB]}))
    assert grown.memory.lower_bound.startswith("files in memory (tmpfs, as /dev/shm) grew by 500 MiB meanwhile")
    mapped = {**columns, "tmpfs_bytes": [40 * MIB, 540 * MIB, 40 * MIB], "mem_shmem_bytes": [0, 500 * MIB, 0]}
    assert usage_of(readings(mapped)).memory.lower_bound is None
    for little in ([40 * MIB, 55 * MIB, 40 * MIB], [540 * MIB, 40 * MIB, 40 * MIB], [None, 540 * MIB, None]):
        assert usage_of(readings({**columns, "tmpfs_bytes": little})).memory.lower_bound is None


def test_cpu_of_a_busy_machine_is_a_lower_bound():
    columns = {"t_ns": [0, S, 2 * S], "cpu_ns": [0, S // 2, S]}
    waited = usage_of(readings({**columns, "cpu_some_ns": [0, S // 2, S]}))
    assert waited.cpu.lower_bound.startswith("it waited for a CPU for 50% of the time")
    assert usage_of(readings({**columns, "cpu_some_ns": [0, 0, S // 10]})).cpu.lower_bound is None


def test_a_process_tree_that_waited_for_a_cpu_may_need_more():
    """Two threads that had half of what they wanted: 1 s of CPU time, and as much in line for it."""
    columns = {"t_ns": [0, S, 2 * S], "cpu_ns": [0, S // 2, S]}
    waited = usage_of(readings({**columns, "cpu_waited_ns": [0, S // 2, S]}))
    assert waited.cpu.lower_bound.startswith("its threads waited for a CPU for 50% of the time")
    assert usage_of(readings({**columns, "cpu_waited_ns": [0, 0, S // 10]})).cpu.lower_bound is None
    assert usage_of(readings({**columns, "cpu_waited_ns": [0, None, None]})).cpu.lower_bound is None
    # Of a command that does next to nothing, a wait of a fraction of that is nothing either.
    idle = {"t_ns": [0, S, 2 * S], "cpu_ns": [0, S // 100, S // 50], "cpu_waited_ns": [0, S // 100, S // 50]}
    assert usage_of(readings(idle)).cpu.lower_bound is None


def test_columns_that_were_read_at_some_readings_only():
    columns = {"t_ns": [0, S, 2 * S], "cpu_ns": [0, None, 2 * S], "cpu_periods": [None, None, None]}
    use = usage_of(readings(columns))
    assert use.cpu.mean_cores == pytest.approx(1.0)
    assert use.throttling is None


def test_a_process_tree_never_used_more_than_there_is():
    # One core of two, and the second after 1.5 s brings what a child used of 150 ms that nobody had seen.
    times = [1000 * S + step * 20 * MS for step in range(101)]
    cpu = [step * 20 * MS + (150 * MS if step > 75 else 0) for step in range(101)]
    made = readings({"t_ns": times, "cpu_ns": cpu}, begun_ns=times[0], ended_ns=times[-1], kind="process")
    use = usage_of(made)
    peak = use.cpu.window(0.1)
    assert peak.peak_cores == pytest.approx(2.0)
    # It is put back just before it was told: 150 ms of one core take as long as the other one is free.
    assert 1.3 < peak.peak_at_s < 1.52
    assert use.cpu.total_s == pytest.approx(2.15)
    assert max(windowed_cores(made, 0.1)) <= 2.0 * (1 + 1e-9)
    assert windowed_cores(made, 0.1)[:13] == pytest.approx([1.0] * 13)
    # A group's counter is the kernel's own.
    group = readings({"t_ns": times, "cpu_ns": cpu}, begun_ns=times[0], ended_ns=times[-1])
    assert usage_of(group).cpu.window(0.1).peak_cores == pytest.approx(2.5)


def test_what_the_kernel_adds_at_the_very_end_is_no_peak():
    made = workload(lambda _: 1.0, 2.0, kind="process", cpus=2)
    late = made.with_facts(totals={"cpu_ns": 2300 * MS}, ended_ns=int(made.frame["t_ns"][-1]) + MS)
    use = usage_of(late)
    assert use.cpu.total_s == pytest.approx(2.3)
    assert use.cpu.window(0.1).peak_cores == pytest.approx(2.0)


steps = st.lists(st.tuples(st.integers(1, 10**9), st.integers(0, 10**9)), min_size=2, max_size=40)


@settings(deadline=None)
@given(steps, st.integers(0, 2**62), st.sampled_from([0.001, 0.1, 1.0]), st.integers(1, 256))
def test_a_trees_cpus_hold_all_windows_but_those_of_its_first_interval(made, begin, window_s, cpus):
    times, cpu = [begin, begin + 40 * S], [0, 0]
    for gap, grown in made:
        times.append(times[-1] + gap)
        cpu.append(cpu[-1] + grown)
    box = readings({"t_ns": times, "cpu_ns": cpu}, begun_ns=times[0], ended_ns=times[-1], kind="process", cpus=cpus)
    use = usage_of(box, windows_s=[window_s])
    assert use.cpu.total_s == pytest.approx(cpu[-1] / 1e9)
    assert all(window.peak_cores <= cpus * (1 + 1e-3) for window in use.cpu.windows)


@settings(deadline=None)
@given(steps, st.integers(0, 2**62), st.sampled_from([0.001, 0.1, 1.0, 60.0]))
def test_no_window_holds_more_than_all_and_the_mean_lies_below_the_peak(made, begin, window_s):
    times, cpu = [begin], [0]
    for gap, grown in made:
        times.append(times[-1] + gap)
        cpu.append(cpu[-1] + grown)
    box = readings({"t_ns": times, "cpu_ns": cpu}, begun_ns=times[0], ended_ns=times[-1])
    use = usage_of(box, windows_s=[window_s])
    assert use.cpu.total_s == pytest.approx(cpu[-1] / 1e9)
    for window in use.cpu.windows:
        assert window.peak_cores * window.over_s <= use.cpu.total_s * (1 + 1e-6) + 1e-12
        assert window.peak_cores >= max(windowed_cores(box, window_s)) * (1 - 1e-6)
        if window.over_s == window_s:
            # Some window must hold its share.
            assert window.peak_cores >= use.cpu.mean_cores / 2 * (1 - 1e-6)
    assert span_of(box).duration_s == pytest.approx(use.duration_s)


@pytest.mark.parametrize(
    "memory, grows",
    [
        (lambda t: round((100 + 20 * t) * MIB), 20.0),
        # Freed every half second, and more is held each time.
        (lambda t: round((100 + 20 * t + 30 * (t % 0.5)) * MIB), 20.0),
        (lambda _: 300 * MIB, None),
        (lambda t: round((100 + 20 * min(t, 2.0)) * MIB), None),
        (lambda t: round((100 + 60 * (t % 1.0)) * MIB), None),
        (lambda t: round((300 - 20 * t) * MIB), None),
        # A sixteenth of what it holds, in all: no request is another for it.
        (lambda t: round((1000 + 2 * t) * MIB), None),
        # It was higher before.
        (lambda t: round((600 if t < 1 else 100 + 20 * t) * MIB), None),
    ],
)
def test_memory_that_still_grew_when_sampling_ended_is_a_doubt(memory, grows):
    went_on = workload(lambda _: 0.1, 8.0, memory=memory, ended_ns=None)
    rate = usage_of(went_on).memory.growing_bytes_per_s
    assert (rate is None) if grows is None else (rate == pytest.approx(grows * MIB, rel=0.1))
    made = recommend([Execution.of(went_on)] * 3)
    assert any("memory still grew" in doubt for doubt in made.doubts) is (grows is not None)
    assert (made.confidence == "low") is (grows is not None)
    # What ended by itself has used what it needs.
    assert usage_of(workload(lambda _: 0.1, 8.0, memory=memory)).memory.growing_bytes_per_s is None


@pytest.mark.parametrize("cache, grows", [(lambda t: 200 * t, None), (lambda _: 0, 30.0)])
def test_files_that_are_read_are_no_memory_that_grows(cache, grows):
    """A container that reads a data set fills the page cache, which it may lose at any time."""
    times = [k * 20 * MS for k in range(400)]
    held = [(200 + (0 if grows is None else 30 * t / S)) for t in times]
    columns = {
        "t_ns": times,
        "mem_bytes": [round((each + cache(t / S)) * MIB) for each, t in zip(held, times, strict=True)],
        "mem_inactive_file_bytes": [round(cache(t / S) * MIB) for t in times],
        "mem_active_file_bytes": [0] * 400,
        "cpu_ns": [0] * 400,
    }
    found = usage_of(readings(columns, kind="cgroup", begun_ns=0)).memory.growing_bytes_per_s
    assert (found is None) if grows is None else (found == pytest.approx(grows * MIB, rel=0.05))


def test_what_the_kernel_saw_between_readings_is_added_to_divided_memory():
    """A spike of one process that no reading met: by the kernel's mark it had 1,000 MiB."""
    made = shared([500] * 20, [490] * 20, one=1000)
    assert usage_of(made).memory.proportional_unseen_bytes == 500 * MIB
    assert recommend([Execution.of(made)]).mem_bytes == 1152 * MIB


def shared(resident, proportional, one):
    times = [k * 20 * MS for k in range(len(resident))]
    columns = {
        "t_ns": times,
        "mem_bytes": [each * MIB for each in resident],
        "mem_pss_bytes": [None if each is None else each * MIB for each in proportional],
        "mem_peak_bytes": [one * MIB] * len(resident),
        "cpu_ns": [0] * len(resident),
    }
    return readings(columns, kind="process", begun_ns=0, ended_ns=times[-1])


def test_a_tree_is_asked_for_by_pages_that_are_divided_where_they_were():
    """Five processes share 200 MiB: 1,010 by the sum, 210 by parts, and 10 were resident more than at any look."""
    made = shared([10, 210, 1000, 1010, 1010] * 4, [3, 205, 210, None, None] * 4, one=210)
    usage = usage_of(made)
    assert usage.memory.proportional_peak_bytes == 210 * MIB
    assert usage.memory.proportional_unseen_bytes == 10 * MIB
    found = recommend([Execution.of(made)])
    assert found.mem_bytes == 320 * MIB
    assert "shared pages divided (PSS) 220.0 MiB" in " ".join(found.reasons)
    assert not any("--pss" in doubt for doubt in found.doubts)


@pytest.mark.parametrize("one, doubted", [(210, True), (900, False)])
def test_a_sum_over_processes_that_may_share_is_a_doubt(one, doubted):
    found = recommend([Execution.of(shared([10, 210, 1000, 1010] * 5, [None] * 20, one=one))])
    assert any("count in each of them: --pss divides them" in doubt for doubt in found.doubts) is doubted
