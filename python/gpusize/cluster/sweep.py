"""How much a scheduler can take: tests at growing rates, for each number of fake nodes and each size of gang.

Each test has its own fake nodes, its own run and its own folder; its workloads are deleted before the next one begins.
The *knee* of a row of tests is the highest rate that kept the thresholds, below the lowest that did not.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.child_process import Child
from gpusize.base.errors import TargetError, UsageError
from gpusize.base.files import write_frame
from gpusize.base.interrupt import StopSwitch, on_interrupt
from gpusize.cluster.access.api import connect
from gpusize.cluster.conduct import Conducted, conduct
from gpusize.cluster.fake.group import check_alone
from gpusize.cluster.opened import open_test, write_tables
from gpusize.cluster.phases.thresholds import judge
from gpusize.cluster.submit.clean import clean_run
from gpusize.cluster.submit.options import SubmitOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import polars as pl

    from gpusize.cluster.phases.thresholds import Threshold

__all__ = ["Knee", "SweepOptions", "Swept", "knees", "sweep"]

TABLE: Final = "sweep.parquet"
_GROUP: Final = "gpusize-sweep"
_REMOVAL_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """What is swept.

    Attributes:
        submit: what is submitted; its rate, its number of workloads and its workers are those of each test.
        nodes: numbers of fake nodes.
        gpus: of each node.
        rates: workloads per second.
        workers: sizes of gangs; None where the template has no workers.
        for_s: how long each test submits, in seconds.
        within_s: how long the workloads have to be scheduled after the last was submitted.
        start_after: delay of the pods on the nodes, as `Delays.parse` reads it.
        run_for: how long they run; None: until they are deleted.
        every: go on beyond the knee.
    """

    submit: SubmitOptions
    nodes: Sequence[int]
    rates: Sequence[float]
    workers: Sequence[int] | None = None
    gpus: int = 8
    for_s: float = 30.0
    within_s: float = 30.0
    start_after: str = "0s"
    run_for: str | None = None
    every: bool = False


@dataclass(frozen=True, slots=True)
class Knee:
    """Where a row of tests stops keeping its thresholds.

    Attributes:
        nodes: fake nodes.
        workers: size of the gangs; None where there are none.
        keeps: the highest rate that kept all thresholds, below the lowest that did not; None where none did.
        breaks: the lowest rate that did not keep them; None where all did.
    """

    nodes: int
    workers: int | None
    keeps: float | None
    breaks: float | None


@dataclass(frozen=True, eq=False)
class Swept:
    """What a sweep has found.

    Attributes:
        path: the folder; each test has a folder in it.
        tests: one row each: ``nodes``, ``workers``, ``rate``, ``workloads``, ``scheduled`` (how many were), ``p50_s``
            and ``p99_s`` of the time until scheduled with those that were not, ``pods_per_s``, ``full`` (whether no
            GPUs were left for one more pod at some time: then it is those that limit, and not the scheduler),
            ``kept``, ``folder``.
        knees: one for each number of nodes and each size of gang.
        interrupted: whether Ctrl-C ended it.
    """

    path: Path
    tests: pl.DataFrame
    knees: list[Knee] = field(default_factory=list)
    interrupted: bool = False


def sweep(
    options: SweepOptions,
    folder: Path,
    wanted: Sequence[Threshold],
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    shared: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Swept:
    """Test a cluster's scheduler at growing rates.

    Args:
        options: what is swept.
        folder: of the tests.
        wanted: thresholds that a test has to keep.
        kubeconfig: path of one; as `gpusize.cluster.access.sign_in.find_access` finds one by default.
        context: one of its contexts; the current one by default.
        shared: use a cluster that others use too.
        progress: told in words how far it is.

    Raises:
        UsageError: nothing to sweep, or a cluster that others use.
        ConfigError, TargetError, StoreError, EnvironmentLacks: as `gpusize.cluster.conduct.conduct`.
    """
    import polars as pl

    if not (options.nodes and options.rates and wanted):
        raise UsageError("there is nothing to sweep", "cluster sweep", "give nodes, rates and a threshold")
    rows: list[dict[str, Any]] = []
    gangs: list[int | None] = [None] if options.workers is None else list(options.workers)
    switch = StopSwitch()
    # Also between the tests, while nodes come and go: what was measured is told, and nothing is left behind.
    with on_interrupt(switch):
        if not shared:
            asyncio.run(_check(kubeconfig, context))
        for nodes, workers in itertools.product(sorted(options.nodes), gangs):
            for rate in sorted(options.rates):
                name = _name(nodes, workers, rate)
                done = _test(
                    options, (nodes, workers, rate), folder / name, kubeconfig, context, _about(progress, name)
                )
                if switch.asked or done.submitted.interrupted or done.why.startswith("interrupted"):
                    return Swept(folder, pl.DataFrame(rows, infer_schema_length=None), knees(rows), interrupted=True)
                row = _row(options, nodes, folder / name, wanted)
                rows.append({"nodes": nodes, "workers": workers, "rate": rate, **row})
                write_frame(folder / TABLE, pl.DataFrame(rows, infer_schema_length=None))
                if not (row["kept"] or options.every):
                    break
    return Swept(folder, pl.DataFrame(rows, infer_schema_length=None), knees(rows))


def _test(
    options: SweepOptions,
    at: tuple[int, int | None, float],
    folder: Path,
    kubeconfig: str | None,
    context: str | None,
    say: Callable[[str], None],
) -> Conducted:
    """One test, at a number of nodes, a size of gang and a rate; its nodes and workloads are gone when it returns."""
    nodes, workers, rate = at
    with _fakes(options, nodes, kubeconfig, context):
        done = conduct(
            _at(options, workers, rate),
            folder,
            wait_s=options.within_s,
            kubeconfig=kubeconfig,
            context=context,
            progress=say,
        )
        say("deleting")
        if done.submitted.facts["counts"]["created"]:
            clean_run(folder, kubeconfig=kubeconfig, context=context, timeout_s=_REMOVAL_S, force=True)
    return done


def knees(rows: Sequence[dict[str, Any]]) -> list[Knee]:
    """The knee of each number of nodes and each size of gang.

    Args:
        rows: tests, as `Swept.tests` has them.
    """
    found = []
    for nodes, workers in dict.fromkeys((row["nodes"], row["workers"]) for row in rows):
        tests = [row for row in rows if (row["nodes"], row["workers"]) == (nodes, workers)]
        breaks = min((row["rate"] for row in tests if not row["kept"]), default=None)
        below = [row["rate"] for row in tests if row["kept"] and (breaks is None or row["rate"] < breaks)]
        found.append(Knee(nodes, workers, max(below, default=None), breaks))
    return found


async def _check(kubeconfig: str | None, context: str | None) -> None:
    async with connect(kubeconfig, context) as api:
        await check_alone(api)


def _name(nodes: int, workers: int | None, rate: float) -> str:
    gang = "" if workers is None else f"-workers{workers}"
    return f"nodes{nodes}{gang}-rate{rate:g}"


def _about(progress: Callable[[str], None] | None, name: str) -> Callable[[str], None]:
    def say(text: str) -> None:
        if progress is not None:
            progress(f"{name}: {text}")

    return say


def _at(options: SweepOptions, workers: int | None, rate: float) -> SubmitOptions:
    count = max(1, math.ceil(rate * options.for_s))
    gang = options.submit.num_workers if workers is None else workers
    return replace(options.submit, num_workloads=count, rate=rate, stages=None, delay_s=0.0, num_workers=gang)


def _row(options: SweepOptions, nodes: int, folder: Path, wanted: Sequence[Threshold]) -> dict[str, Any]:
    timed = open_test(folder)
    write_tables(folder, timed)
    figures = {row["phase"]: row for row in timed.summary(also=["scheduled"]).to_dicts()}.get("scheduled", {})
    rate, occupied = timed.pods_per_s(), timed.occupancy()
    asked_gpus = float(options.submit.num_gpus)
    return {
        "workloads": timed.workloads.height,
        "scheduled": figures.get("done", 0),
        "p50_s": figures.get("p50_s"),
        "p99_s": figures.get("p99_s"),
        "pods_per_s": None if rate is None or math.isnan(rate.rate) else rate.rate,
        "full": occupied is not None and float(occupied.gpus.max(initial=0.0)) + asked_gpus > nodes * options.gpus,
        "kept": all(each.met for each in judge(timed, wanted)),
        "folder": folder.name,
    }


@contextlib.contextmanager
def _fakes(options: SweepOptions, nodes: int, kubeconfig: str | None, context: str | None) -> Iterator[None]:
    """Fake nodes in a process of their own while the block runs."""
    asked = {
        "kubeconfig": kubeconfig,
        "context": context,
        "nodes": {"count": nodes, "gpus": options.gpus, "group": _GROUP},
        "delays": {"start": options.start_after, "run": options.run_for},
    }
    child = Child(["gpusize.cluster.fake", json.dumps(asked)])
    try:
        said = child.read()
        if said is None or "error" in said:
            what, where, todo = (said or {}).get("error") or [child.last_words(), "fake nodes", None]
            raise TargetError(what, where, todo)
        yield
    finally:
        child.end(_REMOVAL_S)
        child.close()
