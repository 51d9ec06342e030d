"""What the sampler's facts mean for the figures."""

from __future__ import annotations

from typing import Any

import pytest

from gpusize.base.errors import UsageError
from gpusize.observe.usage.sampler import Source, check_interval, facts_of
from gpusize.observe.usage.source_facts import Held, Limit

LIMITS = {
    "ancestors": [
        {"controller": "memory", "group": "/docker/a", "memory_bytes": 512, "cpu_cores": None, "pids": None},
        {"controller": "cpu", "group": "/docker/a", "memory_bytes": None, "cpu_cores": 1.5, "pids": None},
    ]
}


def told(**source: Any) -> dict[str, Any]:
    usual = {"kind": "cgroup", "gone": False, "gone_ns": None, "exited_ns": None, "emptied_ns": None, "restarts": 0}
    return {
        "interval_ns": 20_000_000,
        "missed_ticks": 3,
        "late_max_ns": 1_000,
        "own_cpu_ns": 77,
        "kernel_tick_ns": 4_000_000,
        "cpus": 2,
        "mem_error_bytes": 524_288,
        "sources": {"box": {**usual, **source}},
    }


def test_of_a_container_that_goes_on():
    facts = facts_of(
        told(limits=LIMITS, last={"cpu_ns": 9, "mem_bytes": 5}, missing={"io_reads": "why"}), "box", 1, None
    )
    assert (facts.begun_ns, facts.ended_ns, facts.kind) == (1, None, "cgroup")
    assert (facts.tick_ns, facts.cpus, facts.mem_error_bytes, facts.missed, facts.own_cpu_ns) == (
        *(4_000_000, 2, 524_288, 3),
        77,
    )
    assert facts.limits == (Limit("/docker/a", 512), Limit("/docker/a", None, 1.5))
    # What is in use is no total.
    assert (facts.totals, facts.totals_from) == ({"cpu_ns": 9}, "last")
    assert facts.lacks == {"io_reads": "why"}
    assert facts.raw["source"]["last"] == {"cpu_ns": 9, "mem_bytes": 5}


def test_limits_above_and_what_they_did():
    above = {"controller": "unified", "group": "/pod", "above": True, "memory_high_bytes": 5, "cpu_cores": 2.0}
    held = {"group": "/pod", "above": True, "kind": "cpu", "limit": 2.0, "from_ns": 3, "until_ns": 4, "times": 6}
    facts = facts_of(told(limits={"ancestors": [above]}, held=[held]), "box", None, None)
    assert facts.limits == (Limit("/pod", None, 2.0, mem_high_bytes=5, above=True),)
    assert facts.held == (Held("/pod", "cpu", 2.0, 3, 4, 6),)
    assert facts.high_limit() == facts.limits[0]


def test_the_end_is_when_the_processes_were_gone_and_totals_are_the_parents():
    parent = {"path": "/run/a", "why": None, "last": {"cpu_ns": 12, "mem_peak_bytes": 34, "oom_events": None}}
    facts = facts_of(
        told(gone=True, gone_ns=900, exited_ns=700, emptied_ns=710, last={"cpu_ns": 9}, parent=parent), "box", 1, (1, 2)
    )
    assert (facts.ended_ns, facts.clock) == (700, (1, 2))
    assert (facts.totals, facts.totals_from) == ({"cpu_ns": 12, "mem_peak_bytes": 34}, "parent")
    # A process of a group that lives on may end.
    assert facts_of(told(exited_ns=700, last={}), "box", None, None).ended_ns is None


def test_what_a_monitor_in_the_parent_used_is_taken_off():
    monitors = {"conmon": {"cpu_ns": 3, "mem_peak_bytes": 30}, "conmon-2": {"cpu_ns": 2, "mem_peak_bytes": None}}
    last = {"cpu_ns": 12, "mem_peak_bytes": 34, "io_reads": 1}
    parent = {"path": "/run/a", "why": None, "last": last, "monitors": monitors}
    source = told(gone=True, gone_ns=900, last={"cpu_ns": 6, "mem_peak_bytes": 20}, parent=parent, pid=5)
    assert facts_of(source, "box", 1, None).totals == {"cpu_ns": 7, "mem_peak_bytes": 20, "io_reads": 1}
    # Of one that had ended before, what was read is the parent's own.
    source = told(gone=True, gone_ns=900, last=last, parent=parent, pid=None)
    assert facts_of(source, "box", 1, None).totals == {"cpu_ns": 7, "mem_peak_bytes": 4, "io_reads": 1}


def test_cpus_are_those_that_it_may_run_on():
    limits = {**LIMITS, "cpuset_cpus": {"value": 1.0, "group": "/docker/a"}}
    assert facts_of(told(limits=limits), "box", None, None).cpus == 1


def test_notes():
    lost = {"path": "/run/a", "why": "no such group"}
    source = told(parent=lost, restarts=2, last={"cpu_ns": 1})
    source["late_max_ns"] = 45_000_000
    assert facts_of(source, "box", None, None).notes == (
        "the parent group /run/a could not be read: no such group",
        "a reading came 45 ms late",
        "it was restarted 2 times",
    )


def test_memory_of_a_process_has_no_error_of_charging():
    assert facts_of(told(kind="process", exited_ns=5), "box", None, None).mem_error_bytes == 0


def test_what_is_asked_of_the_extension():
    assert Source(name="a", pid=5, parent="/x").plan() == {
        "name": "a",
        "kind": "cgroup",
        "pid": 5,
        "parent": "/x",
        "pss": False,
    }
    assert check_interval(0.001) == 0.001
    for wrong in (0.0009, 3601.0, -1.0, float("nan")):
        with pytest.raises(UsageError, match="interval"):
            check_interval(wrong)
