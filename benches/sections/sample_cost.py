"""What sampling costs: the sampler's thread beside a bare loop that reads the same files, and beside psutil."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from benches.lib.bars import Bar
from benches.lib.context import Context
from benches.lib.peers import peer_program
from benches.lib.procs import BenchFailed, run_measured
from benches.lib.rounds import rotate
from benches.lib.stats import Interval, bootstrap_median, paired
from tests.resources.live_groups import Group, made

__all__ = ["cost", "group_with_process"]

MS = 1_000_000
NEVER = 3_600_000 * MS
SHARE_AT_100_HZ = 0.005
FILES = 6
READ_US = 2.0
SOURCES = 21
"""Groups read at each tick, for the slope of one of them."""


@contextmanager
def group_with_process() -> Iterator[tuple[Group, int]]:
    """A new group with a sleeping process in it."""
    group = made()
    if group is None:
        raise BenchFailed("no cgroup can be made here: run it as root")
    with subprocess.Popen(["sleep", "86400"]) as process:
        try:
            group.take(process.pid)
            yield group, process.pid
        finally:
            process.kill()
            group.remove()


def _sampled(ctx: Context, groups: Sequence[Group], plan: Mapping[str, int]) -> dict[str, float]:
    """CPU time of the sampler's thread, per tick and as a share of a core."""
    from gpusize import _core

    plans = [{"name": str(number), "kind": "cgroup", "path": group.path} for number, group in enumerate(groups)]
    sampler = _core.ResourceSampler(json.dumps({**plan, "sources": plans}))
    time.sleep(ctx.size(2000, 200) / 1000)
    facts: dict[str, Any] = json.loads(sampler.stop())
    elapsed_ns = facts["stopped_ns"] - facts["started_ns"]
    return {"us": facts["own_cpu_ns"] / facts["ticks"] / 1000, "share": facts["own_cpu_ns"] / elapsed_ns}


def _files(group: Group, tiers: tuple[str, ...]) -> list[str]:
    """The files that the sampler reads in these tiers."""
    from gpusize import _core

    sampler = _core.ResourceSampler(json.dumps({"sources": [{"name": "it", "kind": "cgroup", "path": group.path}]}))
    signals = json.loads(sampler.stop())["sources"]["it"]["signals"]
    return sorted({signal["file"] for signal in signals.values() if signal["tier"] in tiers})


def _loop(ctx: Context, files: list[str], interval_us: int, *, keep: bool) -> dict[str, float]:
    ticks = ctx.size(2_000_000, 200_000) // interval_us
    command = [ctx.tools.read_loop, "--interval-us", str(interval_us), "--ticks", str(ticks)]
    command += ["--keep", str(int(keep)), "--files", ",".join(files)]
    told = json.loads(run_measured(command).stdout)["cpu_ns_per_tick"] / 1000
    return {"us": told, "share": told / interval_us}


def _psutil(ctx: Context, pid: int) -> dict[str, float]:
    python = peer_program("psutil")
    command = [python, "-m", "benches.programs.psutil_reading", str(pid), str(ctx.size(2000, 200)), "0.001"]
    told = json.loads(run_measured(command).stdout)["cpu_ns_per_tick"] / 1000
    return {"us": told, "share": told / 1000}


def cost(ctx: Context) -> None:
    """At 100 Hz with six files at each tick; then one file's reading, by the slope over groups."""
    with group_with_process() as (group, pid):
        with group_with_process() as (other, _):
            _at_100_hz(ctx, [group, other])
        _one_reading(ctx, group, pid)


def _at_100_hz(ctx: Context, groups: Sequence[Group]) -> None:
    """Two groups with three fast files each are six at each tick; one group with all its medium ones is some eight."""
    files = [file for group in groups for file in _files(group, ("fast",))]
    if len(files) != FILES:
        raise BenchFailed(f"a bar is for {FILES} files at each tick, and these are {len(files)}: {files}")
    medium = _files(groups[0], ("fast", "medium"))
    fast_only = {"interval_ns": 10 * MS, "medium_ns": NEVER, "slow_ns": NEVER}
    turns = {
        "gpusize": lambda: _sampled(ctx, groups, fast_only),
        "bare loop": lambda: _loop(ctx, files, 10_000, keep=True),
        "bare loop, no files": lambda: _loop(ctx, [], 10_000, keep=True),
        "open, read, close": lambda: _loop(ctx, files, 10_000, keep=False),
        "gpusize, one group at its usual rates": lambda: _sampled(ctx, groups[:1], {"interval_ns": 10 * MS}),
        f"gpusize, one group with {len(medium)} files at each": lambda: _sampled(
            ctx, groups[:1], {**fast_only, "medium_ns": 10 * MS}
        ),
    }
    found = rotate(ctx.pairs, turns, lambda turn: f"{turn['us']:.1f}")
    bare = [turn["us"] for turn in found["bare loop"]]
    rows = [
        [
            name,
            bootstrap_median([turn["us"] for turn in taken]),
            bootstrap_median([100 * turn["share"] for turn in taken]),
            paired([turn["us"] for turn in taken], bare),
        ]
        for name, taken in found.items()
    ]
    ctx.report.table(
        f"100 readings a second, {FILES} files at each",
        ["", "CPU us/tick", "% of a core", "over the bare loop, paired"],
        rows,
        "The bare loop sleeps until an absolute time and reads the same files, kept open: what this machine takes for "
        "that without parsing, keeping or watching anything; without files, for waking up alone.",
    )
    share = bootstrap_median([turn["share"] for turn in found["gpusize"]])
    ctx.report.bar(Bar("sample_core_share_at_100_hz", share, SHARE_AT_100_HZ))
    ctx.report.bar(Bar("sample_cost_over_bare_loop", paired([t["us"] for t in found["gpusize"]], bare), 1.25))


def _one_reading(ctx: Context, group: Group, pid: int) -> None:
    files = _files(group, ("fast",))
    plan = {"interval_ns": MS, "medium_ns": NEVER, "slow_ns": NEVER}
    turns = {
        "one group": lambda: _sampled(ctx, [group], plan),
        "many groups": lambda: _sampled(ctx, [group] * SOURCES, plan),
        "kept, one set": lambda: _loop(ctx, files, 1000, keep=True),
        "kept, many sets": lambda: _loop(ctx, files * SOURCES, 1000, keep=True),
        "opened, one set": lambda: _loop(ctx, files, 1000, keep=False),
        "opened, many sets": lambda: _loop(ctx, files * SOURCES, 1000, keep=False),
    }
    missing = ""
    try:
        _psutil(ctx, pid)
        turns["psutil"] = lambda: _psutil(ctx, pid)
    except BenchFailed as error:
        missing = f"psutil is left out: {error}."
    found = rotate(ctx.pairs, turns, lambda turn: f"{turn['us']:.1f}")

    def slope(few: str, many: str) -> Interval:
        per_file = 1 / ((SOURCES - 1) * len(files))
        pairs = zip(found[few], found[many], strict=True)
        return bootstrap_median([(b["us"] - a["us"]) * per_file for a, b in pairs])

    ours = slope("one group", "many groups")
    rows: list[list[object]] = [
        ["gpusize: a file read, parsed and kept", ours],
        ["pread of a kept file", slope("kept, one set", "kept, many sets")],
        ["open, read, close", slope("opened, one set", "opened, many sets")],
    ]
    if "psutil" in found:
        rows.append(
            ["psutil: CPU, memory and threads of a process", bootstrap_median([t["us"] for t in found["psutil"]])]
        )
    title = f"one small file, by the slope from 1 to {SOURCES} groups of {len(files)} files at 1,000/s"
    ctx.report.table(title, ["", "CPU us"], rows, f"psutil's is a whole reading with its wait. {missing}".strip())
    ctx.report.bar(Bar("sample_read_us", ours, READ_US, "us"))
