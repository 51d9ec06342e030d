"""The extension's sampler against this machine's kernel: cgroups made here, processes that do known things."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gpusize import _core
from gpusize.base.errors import EnvironmentLacks, UsageError
from tests.proc import held, is_back_at
from tests.resources.live_groups import Group, child, go, heard, made, share, until

pytestmark = pytest.mark.alone("CPU time and schedules of readings are measured")

MIB = 2**20
BURN = "end = time.process_time() + {s}\nwhile time.process_time() < end: pass\n"


@pytest.fixture
def group() -> Iterator[Group]:
    group = made()
    if group is None:
        pytest.skip("making cgroups is not permitted here (root is needed)")
    try:
        yield group
    finally:
        group.remove()


def sampler(*sources: dict[str, Any], **options: Any) -> _core.ResourceSampler:
    return _core.ResourceSampler(json.dumps({"sources": list(sources), **options}))


def stopped(sampler: _core.ResourceSampler) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(sampler.stop())
    return facts


def rows(sampler: _core.ResourceSampler) -> dict[str, pl.DataFrame]:
    return {name: pl.DataFrame(batches) for name, batches in sampler.drain()}


def test_a_group_tells_what_its_process_used(group: Group) -> None:
    work = f"before = time.process_time_ns()\nx = bytearray(os.urandom(1)) * (64 * {MIB})\n" + BURN.format(s=0.6)
    with child(
        work + "say(time.process_time_ns() - before)\nwait()\ndel x\nsay(time.process_time_ns() - before)\nwait()",
        group,
    ) as process:
        samples = sampler({"name": "it", "kind": "cgroup", "pid": process.pid})
        go(process)
        used_ns = int(heard(process))
        # It is held until it was read.
        least = 64 * MIB - json.loads(samples.facts())["mem_error_bytes"]
        until(lambda: (json.loads(samples.facts())["sources"]["it"]["last"]["mem_anon_bytes"] or 0) >= least)
        go(process)
        # Giving it back takes its time too, as long as the machine likes.
        most_ns = int(heard(process))
        facts = stopped(samples)
    it = facts["sources"]["it"]
    # A counter moves with the tick, on each CPU that the process was on.
    slack_ns = 0.02 * used_ns + 2 * facts["cpus"] * facts["kernel_tick_ns"]
    assert used_ns - slack_ns <= it["last"]["cpu_ns"] - it["first"]["cpu_ns"] <= most_ns + slack_ns
    frame = rows(samples)["it"]
    assert frame["mem_bytes"].max() >= 64 * MIB
    assert it["last"]["mem_peak_bytes"] >= frame["mem_bytes"].max() - facts["mem_error_bytes"]
    assert frame["t_ns"].is_sorted()
    assert frame["cpu_ns"].is_sorted()
    # 0.6 s at least, by steps of 20 ms; those that the machine had no time for are counted.
    assert frame.height == it["readings"] > 25 - facts["missed_ticks"]
    assert it["last"]["pids"] == 1
    assert facts["own_cpu_ns"] > 0


def test_the_end_of_a_group_is_caught(group: Group) -> None:
    parent, inner = group, group.below("stage")
    share(parent)
    inner.make()
    with child(BURN.format(s=0.2) + "say(time.process_time_ns())", inner) as process:
        samples = sampler({"name": "it", "kind": "cgroup", "pid": process.pid, "parent": parent.path})
        go(process)
        used_ns = int(heard(process))
        process.wait()
        # The hierarchy of v2 tells that it became empty; on v1 alone only the process's end shows.
        ends = ["exited_ns", "emptied_ns"] if "unified" in inner.dirs else ["exited_ns"]
        until(lambda: all(json.loads(samples.facts())["sources"]["it"][end] for end in ends))
        inner.remove()
        until(lambda: json.loads(samples.facts())["sources"]["it"]["gone"])
    it = stopped(samples)["sources"]["it"]
    assert max(it[end] for end in ends) <= it["gone_ns"]
    in_parent_ns = it["parent"]["last"]["cpu_ns"] - it["parent"]["first"]["cpu_ns"]
    assert in_parent_ns > 0.18e9
    assert used_ns > in_parent_ns - 50e6
    assert it["last"]["cpu_ns"] == pytest.approx(it["parent"]["last"]["cpu_ns"], abs=30e6)
    assert it["parent"]["last"]["mem_peak_bytes"] >= it["last"]["mem_peak_bytes"]


def test_a_group_that_is_made_anew_breaks_the_series(group: Group) -> None:
    inner = group.below("stage")
    share(group)
    inner.make()
    samples = sampler({"name": "it", "kind": "cgroup", "path": inner.path}, slow_ns=20_000_000, medium_ns=20_000_000)
    with child(BURN.format(s=0.1) + "say('done')\nwait()", inner) as process:
        go(process)
        assert heard(process) == "done"
        # Of what is gone nothing is known but what was read.
        until(lambda: json.loads(samples.facts())["sources"]["it"]["last"]["cpu_ns"] > 50e6)
    inner.remove()
    until(lambda: json.loads(samples.facts())["sources"]["it"]["gone"])
    inner.make()
    until(lambda: json.loads(samples.facts())["sources"]["it"]["restarts"] == 1)
    it = stopped(samples)["sources"]["it"]
    frame = rows(samples)["it"]
    assert not it["gone"]
    assert frame["epoch"].unique().sort().to_list() == [0, 1]
    ends = frame.group_by("epoch", maintain_order=True).agg(pl.col("cpu_ns").max())
    assert ends["cpu_ns"][0] > 50e6
    assert ends["cpu_ns"][1] < ends["cpu_ns"][0]


def test_processes_killed_for_memory_are_counted(group: Group) -> None:
    group.limit_memory(64 * MIB)
    with child(f"x = bytearray(os.urandom(1)) * (256 * {MIB})\nsay('survived')", group) as process:
        samples = sampler({"name": "it", "kind": "cgroup", "path": group.path})
        go(process)
        assert heard(process) == ""
        assert process.wait() == -9
        facts = stopped(samples)
    it = facts["sources"]["it"]
    assert it["last"]["oom_kill_events"] == 1
    assert it["last"]["mem_max_events"] > 0
    assert it["limits"]["memory_bytes"] == {"value": 64 * MIB, "group": group.path}
    assert 60 * MIB < it["last"]["mem_peak_bytes"] <= 64 * MIB


def test_a_tree_counts_each_process_once(tmp_path: Path) -> None:
    # A child that is waited for, a grandchild whose parent ends first, and a child that nobody waits for. Each ends
    # when there is a file for it: after it was seen, and the grandchild after all of its time was.
    burn, leave = tmp_path / "burn.py", tmp_path / "leave.py"
    hold = "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
    burn.write_text(f"import os, sys, time\n{BURN.format(s=0.15)}{hold}")
    leave.write_text(f"import os, subprocess, sys, time\nsubprocess.Popen(sys.argv[2:])\n{hold}")
    child_ends, parent_ends, orphan_ends, third_ends = (tmp_path / str(number) for number in range(4))
    code = f"""
import subprocess
run = [sys.executable, "-I", "-S"]
subprocess.run([*run, "{burn}", "{child_ends}"])
subprocess.run([*run, "{leave}", "{parent_ends}", *run, "{burn}", "{orphan_ends}"])
subprocess.run([*run, "{burn}", "{third_ends}"])
say("done")
wait()
"""

    def tree_now() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(samples.facts())["sources"]["tree"]
        return found

    with child(code) as process:
        samples = sampler({"name": "tree", "kind": "process", "pid": process.pid, "pss": True})
        before_ns = tree_now()["first"]["cpu_ns"]
        go(process)
        for seen, ends in ((2, child_ends), (4, parent_ends), (5, third_ends)):
            until(lambda seen=seen: tree_now()["processes_seen"] >= seen)  # type: ignore[misc]
            ends.touch()
        assert heard(process) == "done"
        until(lambda: tree_now()["last"]["cpu_ns"] - before_ns > 0.45e9)
        orphan_ends.touch()
        until(lambda: tree_now()["processes"] == 1)
        go(process)
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
        until(lambda: tree_now()["gone"])
    tree = stopped(samples)["sources"]["tree"]
    # Waited for: the child's and the third's. The orphan's 150 ms are in nobody's account but the sampler's.
    waited_ns = (used.ru_utime + used.ru_stime) * 1e9
    counted_ns = tree["last"]["cpu_ns"]
    assert counted_ns - before_ns > 0.45e9
    assert counted_ns <= waited_ns + 0.15e9 + 0.2e9
    assert counted_ns >= waited_ns - 60e6
    frame = rows(samples)["tree"]
    assert frame["cpu_ns"].is_sorted()
    assert frame["pids"].max() >= 2
    assert tree["processes_seen"] == 5
    assert tree["last"]["mem_pss_bytes"] <= frame["mem_bytes"].max()


def test_how_long_a_trees_threads_waited_for_a_cpu() -> None:
    """Two processes that burn a CPU each and share one: whenever one runs, the other waits."""
    shared = "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nother = os.fork()\n"
    ends = "if not other: time.sleep(60)\nsay('done')\nwait()\nos.kill(other, 9)\n"
    with child(shared + BURN.format(s=0.4) + ends) as process:
        samples = sampler({"name": "it", "kind": "process", "pid": process.pid})
        go(process)
        assert heard(process) == "done"

        def told() -> dict[str, Any]:
            last: dict[str, Any] = json.loads(samples.facts())["sources"]["it"]["last"]
            return last

        # Both have burnt theirs, and nobody has ended.
        until(lambda: (told()["cpu_ns"] or 0) >= 0.8e9 and (told()["cpu_waited_ns"] or 0) >= 0.3e9)
        go(process)
        stopped(samples)
    assert rows(samples)["it"]["cpu_waited_ns"].drop_nulls().is_sorted()


def test_files_that_a_process_writes_into_memory_are_seen() -> None:
    """Those that nobody maps are in no process's figures, and all the same in a container's memory."""
    write = f"file = open('/dev/shm/gpusize-' + str(os.getpid()), 'wb')\nfile.write(bytes(32 * {MIB}))\nfile.flush()\n"
    with child(write + "os.unlink(file.name)\nsay('done')\nwait()\nfile.close()\n") as process:
        samples = sampler({"name": "it", "kind": "process", "pid": process.pid})

        def last() -> dict[str, Any]:
            told: dict[str, Any] = json.loads(samples.facts())["sources"]["it"]["last"]
            return told

        until(lambda: last()["tmpfs_bytes"] is not None)
        before = last()["tmpfs_bytes"]
        go(process)
        assert heard(process) == "done"
        until(lambda: last()["tmpfs_bytes"] >= before + 24 * MIB)
        assert last()["mem_shmem_bytes"] < MIB
        go(process)
        stopped(samples)


def test_a_processs_memory_has_its_kernels_peak() -> None:
    with child(f"x = bytearray(os.urandom(1)) * (64 * {MIB})\ndel x\nsay('done')\nwait()") as process:
        samples = sampler({"name": "it", "kind": "process", "pid": process.pid}, interval_ns=1_000_000_000)
        go(process)
        assert heard(process) == "done"
        it = stopped(samples)["sources"]["it"]
    assert it["last"]["mem_peak_bytes"] >= 64 * MIB > it["last"]["mem_bytes"]


def test_the_host_is_a_source() -> None:
    samples = sampler({"name": "host", "kind": "host"}, interval_ns=1_000_000)
    until(lambda: json.loads(samples.facts())["ticks"] >= 20)
    mark = json.loads(samples.mark("half"))
    facts = stopped(samples)
    frame = rows(samples)["host"]
    assert facts["marks"] == [mark] == [{"name": "half", "t_ns": mark["t_ns"], "peak_reset": []}]
    assert facts["started_ns"] < mark["t_ns"] < facts["stopped_ns"]
    # The first, the mark's and the last reading besides.
    assert frame.height == facts["ticks"] + 3
    assert frame["cpu_ns"].null_count() == 0
    assert 0 < frame["mem_bytes"].drop_nulls()[0] < facts["sources"]["host"]["limits"]["memory_bytes"]["value"]
    assert frame["t_ns"].min() >= facts["started_ns"]


def test_what_cannot_be_sampled_is_said() -> None:
    with pytest.raises(UsageError, match="does not fit"):
        _core.ResourceSampler("{")
    with pytest.raises(UsageError, match="nothing to sample"):
        sampler()
    with pytest.raises(EnvironmentLacks, match="no process"):
        sampler({"name": "it", "kind": "process", "pid": 2**22 + 7})
    with pytest.raises(EnvironmentLacks, match="no process"):
        sampler({"name": "it", "kind": "cgroup", "pid": 2**22 + 7})
    with pytest.raises(EnvironmentLacks, match="no mount shows the group /gpusize-nowhere"):
        sampler({"name": "it", "kind": "cgroup", "path": "/gpusize-nowhere"})


def test_a_process_that_has_ended_leaves_its_totals_in_the_parent(group: Group) -> None:
    with child(BURN.format(s=0.1), group) as process:
        go(process)
        process.wait()
    it = stopped(sampler({"name": "it", "kind": "cgroup", "pid": process.pid, "parent": group.path}))["sources"]["it"]
    assert it["gone"]
    assert it["readings"] == 0
    assert it["parent"]["last"]["cpu_ns"] > 80e6


def test_samplers_leave_neither_descriptors_nor_threads(group: Group) -> None:
    sources = (
        {"name": "group", "kind": "cgroup", "path": group.path, "parent": group.path},
        {"name": "tree", "kind": "process", "pid": os.getpid()},
        {"name": "host", "kind": "host"},
    )

    sampler(*sources).stop()
    before = held()
    for turn in range(200):
        samples = sampler(*sources)
        if turn % 2:
            samples.stop()
        del samples
    # One that stays ends the test by its time limit.
    until(lambda: is_back_at(before))


def test_readings_at_a_millisecond_keep_their_schedule() -> None:
    samples = sampler({"name": "it", "kind": "process", "pid": os.getpid()}, interval_ns=1_000_000)
    until(lambda: json.loads(samples.facts())["ticks"] >= 200)
    facts = stopped(samples)
    # A tick was kept or is counted as missed; none came before its time. The first reading and the last are extra.
    elapsed = (facts["stopped_ns"] - facts["started_ns"]) / 1_000_000
    assert 200 <= facts["ticks"] + facts["missed_ticks"] <= elapsed
    assert 0 <= facts["late_mean_ns"] <= facts["late_max_ns"]
    times = rows(samples)["it"]["t_ns"]
    assert len(times) == facts["ticks"] + 2
    assert times.diff().drop_nulls().min() > 0


def test_shared_memory_is_divided_at_its_highest() -> None:
    """64 MiB that a child comes to share: proportional memory is read as they are touched, and not 5 s later."""
    code = (
        f"import mmap\nm = mmap.mmap(-1, 64 * {MIB})\ntouched = [m[at] for at in range(0, len(m), 4096)]\n"
        "here, there = os.pipe()\nother = os.fork()\ntouched = [m[at] for at in range(0, len(m), 4096)]\n"
        "if not other:\n    os.write(there, b'.')\n    time.sleep(60)\n"
        "os.read(here, 1)\nsay('done')\nwait()\nos.kill(other, 9)\nos.waitpid(other, 0)\n"
    )
    frames: list[pl.DataFrame] = []

    def highest() -> tuple[int, int]:
        """The most that was resident, and the most at looks that divided it."""
        frames.extend(found for name, found in rows(samples).items() if name == "it" and found.height)
        if not frames:
            return 0, 0
        frame = pl.concat(frames)
        most, divided = frame["mem_bytes"].max(), frame.drop_nulls("mem_pss_bytes")["mem_bytes"].max()
        assert isinstance(most, int)
        return most, divided if isinstance(divided, int) else 0

    def looked() -> bool:
        most, divided = highest()
        return most > 128 * MIB and divided > 0.93 * most

    with child(code) as process:
        samples = sampler({"name": "it", "kind": "process", "pid": process.pid, "pss": True})
        go(process)
        assert heard(process) == "done"
        # After a look there is none for a while, as a look takes time.
        until(looked)
        go(process)
    stopped(samples)
    most = pl.concat(frames)["mem_pss_bytes"].max()
    assert isinstance(most, int)
    # The sum counts them twice.
    assert 64 * MIB < most < 100 * MIB


def test_pages_that_are_copied_on_writing_are_divided_no_more() -> None:
    """A child writes to the 48 MiB that it shares: no more is resident than before, and twice as much is needed."""
    code = (
        f"x = bytearray(os.urandom(1)) * (48 * {MIB})\nhere, there = os.pipe()\nback, forth = os.pipe()\n"
        "other = os.fork()\nat = range(0, len(x), 4096)\n"
        "if not other:\n    sum(x[each] for each in at)\n    os.write(there, b'.')\n    os.read(back, 1)\n"
        "    for each in at: x[each] = 1\n    os.write(there, b'.')\n    time.sleep(60)\n"
        "os.read(here, 1)\nsay('read')\nwait()\nos.write(forth, b'.')\nos.read(here, 1)\nsay('written')\nwait()\n"
        "os.kill(other, 9)\nos.waitpid(other, 0)\n"
    )

    def divided() -> int:
        return json.loads(samples.facts())["sources"]["it"]["last"]["mem_pss_bytes"] or 0

    with child(code) as process:
        samples = sampler({"name": "it", "kind": "process", "pid": process.pid, "pss": True})
        go(process)
        assert heard(process) == "read"
        until(lambda: 48 * MIB < divided() < 80 * MIB)
        go(process)
        assert heard(process) == "written"
        until(lambda: divided() > 96 * MIB)
        go(process)
    stopped(samples)
