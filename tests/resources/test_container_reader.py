"""A reader on a group that a test makes, with a parent of its own, as the pipeline's runner has it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from gpusize.base.errors import EnvironmentLacks, UsageError
from gpusize.containers.recommend import Execution, recommend
from gpusize.engine.session import monotonic_ns
from gpusize.observe.usage.sampler import ContainerReader, Sampling, Source
from gpusize.observe.usage.usage import usage_of
from tests.resources.live_groups import Group, child, go, heard, made, share, until
from tests.resources.made import MIB

pytestmark = pytest.mark.alone("CPU time of real processes is measured")

BURN = "end = time.process_time() + 0.1\nwhile time.process_time() < end: pass\nsay('done')\nwait()\n"
SPIKE = "held = bytearray(200 << 20)\ndel held\nsay('done')\nwait()\n"


@pytest.fixture
def group() -> Iterator[Group]:
    group = made()
    if group is None:
        pytest.skip("making cgroups is not permitted here (root is needed)")
    try:
        yield group
    finally:
        group.remove()


def test_what_ran_before_the_first_reading_is_counted_from_the_parent(group: Group):
    inner = group.below("stage")
    share(group)
    inner.make()
    with child(BURN, inner) as process:
        go(process)
        assert heard(process) == "done"
        reader = ContainerReader("stage", 5_000_000)
        reader.start(process.pid, group.path)
        readings = reader.stop()
        assert reader.stop().facts.ended_ns == readings.facts.ended_ns
    use = usage_of(readings)
    assert use.cpu.total_s >= 0.09
    # It takes so much time to use so much, with as many CPUs as there are.
    assert use.duration_s * os.cpu_count() >= use.cpu.total_s * 0.99
    assert "it ran before the first reading: sums begin there" not in use.notes


def test_what_is_gone_before_the_watch_begins_is_told_by_its_parent(group: Group):
    inner = group.below("stage")
    share(group)
    inner.make()
    with child(BURN, inner) as process:
        go(process)
        assert heard(process) == "done"
    inner.remove()
    for pid in (process.pid, None):
        reader = ContainerReader("stage")
        reader.start(pid, group.path)
        use = usage_of(reader.stop())
        assert use.cpu.total_s >= 0.09
        assert use.cpu.mean_cores <= os.cpu_count() * 1.01
        assert use.memory.peak_bytes > 0
        assert recommend([Execution.of(reader.stop())]).cpu_cores >= 0.1


def test_a_spike_that_is_over_is_in_the_kernels_peak_and_in_the_request(group: Group):
    inner = group.below("stage")
    share(group)
    inner.make()
    with child(SPIKE, inner) as process:
        go(process)
        assert heard(process) == "done"
        reader = ContainerReader("stage")
        reader.start(process.pid, group.path)
        readings = reader.stop()
    use = usage_of(readings)
    assert use.memory.peak_from == "kernel"
    assert use.memory.peak_bytes >= 200 * MIB
    assert use.memory.sampled_max_bytes < 100 * MIB
    assert recommend([Execution.of(readings)]).mem_bytes >= 300 * MIB


def test_limits_of_the_group_above_make_lower_bounds(group: Group):
    inner, beside = group.below("stage"), group.below("neighbour")
    group.limit_memory(64 * MIB)
    # So little that it is met also where others leave it a small part of a core.
    group.limit_cpu(0.05)
    share(group)
    inner.make()
    beside.make()
    with child(BURN, inner) as process, child("held = b'1' * (200 << 20)", beside) as greedy:
        sampling = Sampling([Source(name="stage", pid=process.pid)], 0.005)
        before = usage_of(sampling.look()["stage"])
        go(process)
        assert heard(process) == "done"
        # It is killed at the limit that it shares with what is sampled.
        go(greedy)
        assert greedy.wait() == -9
        readings = sampling.stop()["stage"]
    assert before.memory.lower_bound is None
    use, advice = usage_of(readings), recommend([Execution.of(readings)])
    # Nothing of its own was met: its counters say nothing.
    assert not use.memory.limit_events
    assert use.throttling is None or use.throttling.throttled_periods == 0
    memory = f"memory of {group.path}, of which it is a part, reached its limit of 64 MiB"
    cpu = f"the CPU limit of {group.path} (0.05 cores), which it shares, throttled it in"
    assert use.memory.lower_bound.startswith(memory)
    assert use.cpu.lower_bound.startswith(cpu)
    assert [each for each in advice.doubts if memory in each] != []
    assert [each for each in advice.doubts if cpu in each] != []


def test_limits_of_the_group_that_a_process_is_in_make_lower_bounds(group: Group):
    group.limit_cpu(0.05)
    share(group)
    inner = group.below("stage")
    inner.make()
    with child(BURN, inner) as process:
        sampling = Sampling([Source(name="stage", kind="process", pid=process.pid)], 0.005)
        go(process)
        assert heard(process) == "done"
        readings = sampling.stop()["stage"]
    assert readings.facts.cpu_limit().cpu_cores == 0.05
    cpu = f"the CPU limit of {group.path} (0.05 cores), which it shares, throttled it in"
    assert usage_of(readings).cpu.lower_bound.startswith(cpu)


def test_figures_go_on_after_a_restart(group: Group):
    inner = group.below("stage")
    share(group)
    inner.make()
    with child(BURN, inner) as first:
        sampling = Sampling([Source(name="stage", pid=first.pid)], 0.005)
        go(first)
        assert heard(first) == "done"
        go(first)
        first.wait()
    until(sampling.ended)
    inner.remove()
    until(lambda: sampling.facts()["sources"]["stage"]["gone"])
    inner.make()
    until(lambda: sampling.facts()["sources"]["stage"]["restarts"] == 1)
    with child(BURN.replace("0.1", "0.3"), inner) as second:
        assert not sampling.ended()
        # Read just before it: what is counted from there on is not told by a reading of long before.
        sampling.mark("begun")
        begun_ns = monotonic_ns()
        go(second)
        assert heard(second) == "done"
        sampling.mark("level")
        readings = sampling.stop()["stage"]
    assert readings.facts.ended_ns is None
    whole, level = usage_of(readings), usage_of(readings, start_ns=begun_ns)
    assert whole.restarts == 1
    # 0.1 s before and 0.3 s after, each short by what a tick may hide and by what came before the first reading.
    assert whole.cpu.total_s >= 0.38
    assert level.cpu.total_s >= 0.28
    assert level.cpu.window(0.1) is not None


def test_a_watch_that_was_never_started_has_nothing_to_say():
    reader = ContainerReader("stage", 1_000_000)
    assert len(reader.look()) == len(reader.stop()) == 0
    with pytest.raises(UsageError):
        reader.start(None, None)
    with pytest.raises(EnvironmentLacks):
        reader.start(2**22 + 1, None)
    with pytest.raises(UsageError, match="interval"):
        ContainerReader("stage", 1)


def test_several_sources_share_one_clock_and_one_thread(group: Group):
    with child(BURN, group) as process:
        sources = [
            Source(name="tree", kind="process", pid=process.pid),
            Source(name="group", path=group.path),
            Source(name="host", kind="host"),
        ]
        sampling = Sampling(sources, 0.005)
        go(process)
        assert heard(process) == "done"
        until(lambda: sampling.facts()["ticks"] > 0)
        sampling.mark("done")
        seen = sampling.look()
        final = sampling.stop()
    assert set(seen) == set(final) == {"tree", "group", "host"}
    for name, readings in final.items():
        assert len(readings) >= len(seen[name]) > 2
        # 0.1 s of CPU time by the process's own clock, less what a tick of the kernel may hide.
        assert usage_of(readings).cpu.total_s >= 0.09
    assert sampling.facts()["marks"][0]["name"] == "done"
    assert not usage_of(final["host"]).memory.lower_bound


def test_many_looks_leave_few_pieces():
    sampling = Sampling([Source(name="host", kind="host")], 0.001)
    seen = 0
    while seen < 200:
        made = sampling.look()["host"]
        assert len(made) >= seen
        assert made.frame.n_chunks() <= 65
        seen = len(made)
    sampling.stop()


def test_readings_that_a_level_needs_no_more_are_let_go():
    sampling = Sampling([Source(name="host", kind="host")], 0.001)
    while len(sampling.look()["host"]) < 20:
        pass
    # The last reading has everything that is told.
    times = sampling.stop()["host"].frame["t_ns"]
    taken = sampling.take(int(times[-1]))["host"].frame["t_ns"]
    # All of it is handed over once; after that what counters need for a value at that time.
    assert taken.equals(times)
    assert sampling.look()["host"].frame["t_ns"].to_list() == [times[-1]]
