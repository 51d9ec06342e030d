"""Load from many machines: ``python -m benches.distribute [--only start,cost,home,plan] [--record]``.

Agents are processes on this machine. Where it matters they have monotonic clocks of their own (time namespaces, 200 ms
ahead and 200 ms behind) and reach the head over links that delay every byte.

- ``start``: how far from the common start each host begins, by the clocks' known offsets, on loopback and over links of
  1 and 20 ms; likewise where one stage goes over into the next. Beside it what the head itself says of it.
- ``cost``: CPU time per request of two hosts over that of one, agents and head: at the same rate in all (the bar), and
  at the same rate of each host, which is what hosts are added for.
- ``home``: ten million records of four hosts, from the level's end until they lie in the run folder.
- ``plan``: 10^6 requests/s over 50 hosts: the schedule of each, what drawing it costs, and whether the parts add up.

Tables go to standard output, and with ``--record`` to benches/RESULTS.md. The exit code is 1 when a bar is short.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl

from benches.lib.bars import Bar, exit_code
from benches.lib.context import say
from benches.lib.host import ROOT, CpuTimes, facts, load_average
from benches.lib.procs import BenchFailed, run_measured
from benches.lib.results import Report
from benches.lib.rounds import rotate
from benches.lib.stats import Interval, paired, plain
from benches.lib.turns import Turn
from benches.programs.measured_host import LEVEL
from gpusize.doctor.null import NullServer
from gpusize.engine.hosts.head import Head, HostsOptions
from gpusize.engine.hosts.merge import Cells, merged_second
from gpusize.engine.session import AnyEngine, Engine, LevelOutcome, core
from gpusize.measure.encode import prepare
from gpusize.targets.server import Target
from gpusize.workload.dataset import Dataset
from gpusize.workload.load import Load
from tests.engine.hosts.clocks_apart import in_time_of_its_own, slow_link
from tests.engine.hosts.hosting import LOOPBACK, Agents, agents

SECTIONS = ("start", "cost", "home", "plan")
OFFSETS_NS = (200_000_000, -200_000_000, 0)
DELAYS_MS = (0.0, 1.0, 20.0)
NEAR_MS, FAR_MS = 2.0, 5.0
MOST_OVERHEAD, COST_RATE, COST_S = 1.05, 8_000.0, 3.0
HOME_ROWS, HOME_HOSTS, HOME_PARTS, HOME_S, HOME_MIB = 10_000_000, 4, 8, 20.0, 1024.0
PLAN_RATE, PLAN_HOSTS, PLAN_S = 1_000_000.0, 50, 5.0
METRICS = ("runtime", "service", "ttft", "ttft_sent", "itl", "lateness", "pacer_late", "no_connection")
RESAMPLES = 2_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sections, print."""
    options = _options(arguments)
    report, host, before = Report(), facts(), CpuTimes.now()
    with tempfile.TemporaryDirectory() as name:
        for section in options.only:
            folder = Path(name) / section
            folder.mkdir()
            globals()[f"_{section}"](report, folder, options)
    host["load average at end"] = f"{load_average():.2f}"
    host["steal over the whole run"] = f"{100 * CpuTimes.now().steal_share(before):.2f} %"
    if options.record:
        report.append_to(ROOT / "benches" / "RESULTS.md", host, options.command)
    return exit_code(report.bars)


# How far apart hosts begin.


@dataclass(frozen=True)
class _Begun:
    """How far from the common start one host began one level: truly, by what the head says, and to within what."""

    level: int
    true_ns: int
    told_ns: int
    uncertainty_ns: int


def _start(report: Report, folder: Path, options: argparse.Namespace) -> None:
    rows, found = [], {}
    for delay_ms in DELAYS_MS:
        first, boundary = _begun(folder / f"{delay_ms:g}", delay_ms, options.levels)
        found[delay_ms] = (first, boundary)
        for what, begun in (("common start", first), ("from stage to stage", boundary)):
            errors = np.abs([each.true_ns for each in begun]) / 1e6
            wrong = np.array([abs(each.true_ns - each.told_ns) for each in begun])
            within = np.mean(wrong <= [each.uncertainty_ns for each in begun])
            stated = np.median([each.uncertainty_ns for each in begun]) / 1e6
            percentiles = [f"{np.quantile(errors, q):.3f}" for q in (0.5, 0.9, 0.99)]
            rows.append([f"{delay_ms:g} ms", what, len(begun), *percentiles, f"{stated:.3f}", f"{100 * within:.1f} %"])
    header = ["link, one way", "moment", "n", "p50 ms", "p90 ms", "p99 ms", "stated ±, ms", "± holds"]
    note = (
        "By the offsets that the hosts' clocks were given: 200 ms ahead, 200 ms behind, none. Stated is what the head "
        "says of its own knowledge of their clocks; it holds where the start error that it tells is as near the truth."
    )
    report.table("How far from the common moment each of three hosts begins", header, rows, note)
    near, far = found[0.0], [found[delay] for delay in DELAYS_MS if delay]
    for at, name in ((0, "start"), (1, "boundary")):
        report.bar(Bar(f"hosts_{name}_error_p99_ms_loopback", _p99_ms(near[at]), NEAR_MS, "ms"))
        both = [each for begun in far for each in begun[at]]
        report.bar(Bar(f"hosts_{name}_error_p99_ms_links", _p99_ms(both), FAR_MS, "ms"))


def _p99_ms(begun: Sequence[_Begun]) -> Interval:
    """The 99th percentile of the error; the interval by drawing whole levels again: their hosts share a moment."""
    levels = sorted({each.level for each in begun})
    by_level = [np.abs([each.true_ns for each in begun if each.level == level]) / 1e6 for level in levels]
    rng = np.random.default_rng(1)
    drawn = [
        np.quantile(np.concatenate([by_level[k] for k in rng.integers(0, len(levels), len(levels))]), 0.99)
        for _ in range(RESAMPLES)
    ]
    lo, hi = np.quantile(drawn, [0.025, 0.975])
    return Interval(float(np.quantile(np.concatenate(by_level), 0.99)), float(lo), float(hi))


def _begun(folder: Path, delay_ms: float, levels: int) -> tuple[list[_Begun], list[_Begun]]:
    """Pairs of levels, the second of which follows at once: how far off each host began the first, and the second."""
    folder.mkdir()
    firsts: list[_Begun] = []
    seconds: list[_Begun] = []
    with ExitStack() as stack:
        server = stack.enter_context(NullServer())
        head = stack.enter_context(Head(HostsOptions(len(OFFSETS_NS), LOOPBACK)))
        place = head.address if not delay_ms else stack.enter_context(slow_link(head.address, delay_ms / 1e3))
        started = stack.enter_context(agents(folder))
        for offset_ns in OFFSETS_NS:
            _agent(started, place, offset_ns)
        head.gather()
        offsets = [_offset(host.facts["pid"], started) for host in head.hosts]
        with _engine(head.engine, server.url) as engine:
            for number in range(levels):
                load = Load(rates=[300.0, 600.0], process="constant", duration_s=0.3, connections=4)
                a, b = _run_levels(engine, load, folder / f"{number:04d}")
                firsts += _errors(number, a, offsets)
                seconds += _errors(number, b, offsets)
                if (number + 1) % 10 == 0:
                    say(f"{delay_ms:g} ms: {number + 1} of {levels} pairs of levels")
    return firsts, seconds


def _errors(number: int, outcome: LevelOutcome, offsets: Sequence[int]) -> list[_Begun]:
    found = []
    for each in cast("Any", outcome)["hosts"]:
        if "missing" in each or each["start_error_ns"] is None:
            raise BenchFailed(f"a host did not begin: {each}")
        own_ns = outcome["start_ns"] - each["shift_ns"]
        true_ns = own_ns - offsets[each["host"]] - outcome["start_ns"]
        found.append(_Begun(number, true_ns, each["start_error_ns"], each["uncertainty_ns"]))
    return found


def _agent(started: Agents, place: tuple[str, int], offset_ns: int) -> None:
    started.start(place, 1, command=in_time_of_its_own(offset_ns))


def _offset(pid: int, started: Agents) -> int:
    """The clock that an agent was given, by its process id."""
    places = [each.pid for each in started.processes]
    return OFFSETS_NS[places.index(pid)]


@contextmanager
def _engine(make: Any, url: str, workers: int = 1) -> Iterator[AnyEngine]:
    target = Target(url, api="generic", method="GET", content_type="text/plain", stream=False)
    ready = prepare(target, Dataset.from_prompt("-"))
    with make(ready.spec, ready.segments, ready.rows, workers=workers) as engine:
        yield engine


def _run_levels(engine: AnyEngine, load: Load, folder: Path) -> list[LevelOutcome]:
    queued = []
    for visit, level in enumerate(load.levels(1)):
        records = folder / f"{visit:04d}" / "records"
        records.mkdir(parents=True)
        queued.append(engine.queue({**level.plan, "visit": visit, "dir": str(records), "keep_bytes": 0}))
    found = []
    for each in queued:
        while not each.wait(1.0):
            pass
        found.append(each.outcome())
    return found


# What two hosts cost over one.


def _cost(report: Report, folder: Path, options: argparse.Namespace) -> None:
    ways = {"one": (1, COST_RATE), "two, together": (2, COST_RATE), "two, each": (2, 2 * COST_RATE)}
    with NullServer() as server:
        turns = rotate(
            options.pairs,
            {name: partial(_per_request, folder, server.url, *way) for name, way in ways.items()},
            lambda turn: f"{turn.cpu_us:.1f} us, {turn.sleeps_each:.2f} sleeps",
        )
    cpu = {name: [turn.cpu_us for turn in found] for name, found in turns.items()}
    sleeps = {name: [turn.sleeps_each for turn in found] for name, found in turns.items()}
    rows = [
        [name, f"{ways[name][1]:,.0f}", _median(us), plain(min(us)), plain(max(us)), _median(sleeps[name])]
        for name, us in cpu.items()
    ]
    one, together, each = (cpu[name] for name in ways)
    more = paired(sleeps["two, together"], sleeps["one"])
    note = (
        f"{len(one)} turns of {COST_S:g} s each, in alternating order. Two hosts at this rate each, over one at this "
        f"rate: {paired(each, one)}. A thread sleeps when it has done all that there was. Two hosts together "
        f"sleep {more} times as often as one for the same requests."
    )
    title = f"CPU time per request, of agents and head together, at {COST_RATE:,.0f}/s in all or of each host"
    report.table(title, ["hosts", "requests/s in all", "median us", "least", "most", "sleeps/request"], rows, note)
    report.bar(Bar("hosts_cpu_per_request_two_over_one", paired(together, one), MOST_OVERHEAD))


def _median(values: Sequence[float]) -> str:
    return plain(float(np.median(values)))


def _per_request(folder: Path, url: str, count: int, rate: float) -> Turn:
    """CPU time of all agents and of this process, and how often they slept, from the level's start to its end."""
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(dir=folder))
        started = stack.enter_context(agents(Path(name)))
        head = stack.enter_context(Head(HostsOptions(count, LOOPBACK)))
        pids = [os.getpid(), *(each.pid for each in started.start(head.address, count))]
        head.gather()
        engine = stack.enter_context(_engine(head.engine, url))
        load = Load(rates=[rate], process="constant", duration_s=COST_S, connections=32)
        before, slept, begun_s = sum(map(_cpu_s, pids)), sum(map(_sleeps, pids)), time.monotonic()
        (outcome,) = _run_levels(engine, load, Path(name) / "run")
        cpu_s, sleeps = sum(map(_cpu_s, pids)) - before, sum(map(_sleeps, pids)) - slept
        wall_s = time.monotonic() - begun_s
    if outcome["outcomes"].get("ok", 0) != outcome["due"] or not outcome["due"]:
        raise BenchFailed(f"not all requests were answered: {outcome['outcomes']}")
    return Turn(outcome["due"], cpu_s, wall_s, 0.0, sleeps=sleeps)


def _cpu_s(pid: int) -> float:
    """CPU time of a process with all its threads so far, also of those that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _sleeps(pid: int) -> int:
    """How often the threads that a process has now have slept."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):
            found = re.search(r"^voluntary_ctxt_switches:\s*(\d+)", (task / "status").read_text("ascii"), re.MULTILINE)
            total += int(found[1]) if found else 0
    return total


# Ten million records come home.


def _home(report: Report, folder: Path, options: argparse.Namespace) -> None:
    sources, told_rows = _measured(folder, options.rows)
    command = [sys.executable, "-m", "benches.programs.merging_head", str(folder / "home"), *map(str, sources)]
    turns = []
    for number in range(3):
        place = folder / f"home-{number}"
        command[3] = str(place)
        done = json.loads(run_measured(command).stdout)
        frame = pl.scan_parquet(done.pop("parts"), glob=False)
        counted = frame.group_by("host").agg(pl.len(), pl.col("seq").sum()).sort("host").collect()
        if counted["len"].to_list() != [told_rows] * len(sources) or done["rows"] != told_rows * len(sources):
            raise BenchFailed(f"rows are missing: {counted}")
        turns.append(done)
        say(f"turn {number + 1}: {done['seconds']:.1f} s, {done['rss_mib']:.0f} MiB")
    rows = [[f"{each['rows']:,}", f"{each['seconds']:.2f}", f"{each['rss_mib']:.0f}"] for each in turns]
    size = sum(part.stat().st_size for source in sources for part in source.glob("part-*.parquet"))
    note = (
        f"{len(sources)} hosts with {HOME_PARTS} parts each, {size / 2**20:.0f} MiB in all; each counted again after."
    )
    report.table("Records on their way home, and in place as those of one machine", ["rows", "s", "MiB"], rows, note)
    for name, key, bound in (("s", "seconds", HOME_S), ("mib", "rss_mib", HOME_MIB)):
        values = [each[key] for each in turns]
        measured = Interval(float(np.median(values)), min(values), max(values))
        report.bar(Bar(f"hosts_records_home_{name}", measured, bound))


def _measured(folder: Path, rows: int) -> tuple[list[Path], int]:
    """What each of the hosts has measured: a real level's rows, as many times as it takes."""
    with NullServer() as server, _engine(Engine, server.url) as engine:
        load = Load(rates=[10_000.0], process="poisson", duration_s=2.0, connections=32)
        (level,) = load.levels(1)
        records = folder / "one" / "records"
        records.mkdir(parents=True)
        queued = engine.queue({**level.plan, "visit": 0, "dir": str(records), "keep_bytes": 0})
        while not queued.wait(1.0):
            pass
        outcome, progress = queued.outcome(), queued.poll()
    parts = sorted(records.glob("part-*.parquet"))
    stated = pl.read_parquet_metadata(parts[0])
    frame = pl.concat([pl.read_parquet(part, glob=False) for part in parts])
    a_part = rows // HOME_HOSTS // HOME_PARTS
    kept = {key: value for key, value in stated.items() if key != "ARROW:schema"}
    sources = []
    for host in range(HOME_HOSTS):
        source = folder / f"host-{host}"
        source.mkdir()
        for number in range(HOME_PARTS):
            times = -(-a_part // frame.height)
            first = (host * HOME_PARTS + number) * a_part
            made = pl.concat([frame] * times).head(a_part)
            seq = pl.int_range(first, first + a_part, dtype=pl.UInt64)
            made.with_columns(seq=seq).write_parquet(source / f"part-{number:05d}.parquet", metadata=kept)
        names = [f"records/part-{number:05d}.parquet" for number in range(HOME_PARTS)]
        lists: dict[str, list[str]] = {"span_parts": [], "second_parts": [], "histogram_parts": []}
        told = {**outcome, "rows": a_part * HOME_PARTS, "parts": names, **lists}
        (source / LEVEL).write_text(json.dumps({"outcome": told, "progress": progress}), "utf-8")
        sources.append(source)
    return sources, a_part * HOME_PARTS


# A plan of a million requests a second.


def _plan(report: Report, folder: Path, options: argparse.Namespace) -> None:
    del folder, options
    load = Load(rates=[PLAN_RATE], process="poisson", duration_s=PLAN_S)
    (level,) = load.levels(1)
    text = json.dumps({**level.plan, "visit": 0})
    counts, sums, costs = [], [], []
    for host in range(PLAN_HOSTS):
        begun_s = time.process_time()
        batches = core().schedule(text, 1, worker=host, workers=PLAN_HOSTS)
        frame = pl.DataFrame(batches)
        costs.append((time.process_time() - begun_s) / PLAN_S)
        counts.append(frame.height)
        sums.append(int(frame["seq"].sum()))
        if not (frame["seq"] % PLAN_HOSTS == host).all():
            raise BenchFailed(f"host {host} has another host's requests")
    whole = core().schedule_count(text, 1)
    if sum(counts) != whole or sum(sums) != whole * (whole - 1) // 2:
        raise BenchFailed(f"the parts have {sum(counts):,} requests, the whole {whole:,}")
    merge_ms = _merge_ms(PLAN_HOSTS)
    of_each = f"{min(counts):,} to {max(counts):,}"
    cells = [f"{PLAN_HOSTS}", f"{whole:,}", of_each, f"{100 * float(np.median(costs)):.2f} %", f"{merge_ms:.1f}"]
    header = ["hosts", "requests", "of each host", "of a core, while it sends", "ms of the head to merge a second"]
    note = (
        "Each host walks the whole schedule and keeps its part, which is the price of no broker; the numbers of all "
        "parts are 0 to n - 1, each once. A second of a host: eight metrics of 200 buckets."
    )
    report.table(f"{PLAN_RATE:,.0f} requests/s for {PLAN_S:g} s, drawn by each host for itself", header, [cells], note)


def _merge_ms(hosts: int) -> float:
    """CPU time of merging one second of so many hosts."""
    draw = np.random.default_rng(1)
    counts = dict.fromkeys(("due", "sent", "done", "in_flight", "waiting", "cpu_ns"), 1)
    lows = range(1_000_000, 1_000_000 + 200 * 8_000, 8_000)
    told: list[Any] = []
    for _ in range(hosts):
        times = {name: [[low, low + 7_999, int(draw.integers(1, 1000))] for low in lows] for name in METRICS}
        told.append({"second": 0, **counts, "outcomes": {"ok": 1}, "times": times})
    begun_s = time.process_time()
    Cells().add(merged_second(told)["times"])
    return 1e3 * (time.process_time() - begun_s)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benches.distribute", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(SECTIONS), metavar=",".join(SECTIONS))
    parser.add_argument("--pairs", type=int, default=15, help="of cost")
    parser.add_argument("--levels", type=int, default=100, help="of start: pairs of levels, for each link")
    parser.add_argument("--rows", type=int, default=HOME_ROWS, help="of home")
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    parser.add_argument("--record", action="store_true", help="append to benches/RESULTS.md")
    options = parser.parse_args(arguments)
    if options.quick:
        options.pairs, options.levels, options.rows = 2, 5, 200_000
    if options.record and (options.quick or options.pairs < 15):
        parser.error("a result for the record takes at least 15 pairs")
    given = sys.argv[1:] if arguments is None else arguments
    options.command = " ".join(["python -m benches.distribute", *given])
    return options


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchFailed as failed:
        sys.exit(f"benches.distribute: {failed}")
