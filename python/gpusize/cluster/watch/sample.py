"""Sampling as a command does it: once, or for a time, or until the workloads are that far."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import GpusizeError, UsageError
from gpusize.base.interrupt import StopSwitch, on_interrupt
from gpusize.cluster.access.api import connect
from gpusize.cluster.folder import read_facts, scan_table
from gpusize.cluster.tables import ATTEMPTS
from gpusize.cluster.watch.kinds import OWN_KINDS
from gpusize.cluster.watch.sampled import write_sampled
from gpusize.cluster.watch.watching import Watching

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpusize.cluster.access.api import KubeApi
    from gpusize.cluster.watch.progress import Until

__all__ = ["SampleOptions", "Sampled", "sample_cluster", "submitted"]

_LOOK_S: Final = 0.1
_EXPECT_S: Final = 2.0
_RUN_AI: Final = ("training", "distributed", "interactive")


@dataclass(frozen=True, slots=True)
class SampleOptions:
    """What is sampled, and for how long.

    Attributes:
        workload_type: what is submitted, where the folder does not say.
        project: of Run:ai; its namespace is ``runai-PROJECT``.
        namespace: where to look; what the folder, the project or the context say by default.
        follow: whether to watch; else the server is asked once for what it still knows.
        for_s: how long to watch; as long as nobody ends it by default.
        until: how far the workloads are to be.
        canary: whether to write a Lease for clock and lag.
    """

    workload_type: str = "training"
    project: str = "project-0"
    namespace: str | None = None
    follow: bool = False
    for_s: float | None = None
    until: Until | None = None
    canary: bool = True


@dataclass(frozen=True, slots=True)
class Sampled:
    """What a sampling found.

    Attributes:
        facts: what ``cluster.json`` says of it, under ``sample``.
        complete: workloads in ``sampled.json``.
        workloads: those that were seen.
        pods: those that were seen.
        interrupted: whether it was ended before it had what it was to wait for.
    """

    facts: dict[str, Any]
    complete: int
    workloads: int
    pods: int
    interrupted: bool


@dataclass(frozen=True, slots=True)
class _Where:
    kinds: tuple[tuple[str, str], ...]
    run: str | None
    namespace: str


def sample_cluster(
    options: SampleOptions,
    folder: Path,
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Sampled:
    """Stamp the moments of workloads into a folder, and write ``sampled.json``.

    Args:
        options: what, and for how long.
        folder: of the test; what a submission or a sampling wrote there is taken into account and added to.
        kubeconfig: path of one; as `gpusize.cluster.access.sign_in.find_access` finds one by default.
        context: one of its contexts; the current one by default.
        progress: told in words how far it is.

    Raises:
        UsageError: a type of workloads that is not known, or a kind that the cluster does not have.
        ConfigError: an invalid kubeconfig.
        TargetError: the server does not answer, or refuses.
        StoreError: the folder cannot be read or written.
        EnvironmentLacks: lightkube is not installed.
    """
    switch = StopSwitch()
    with on_interrupt(switch):
        watching, interrupted, facts = asyncio.run(_sample(options, folder, kubeconfig, context, switch, progress))
    complete, seen = write_sampled(folder, options.project)
    return Sampled(facts, complete, seen, watching.progress.pods, interrupted)


async def _sample(
    options: SampleOptions,
    folder: Path,
    kubeconfig: str | None,
    context: str | None,
    switch: StopSwitch,
    progress: Callable[[str], None] | None,
) -> tuple[Watching, bool, dict[str, Any]]:
    async with connect(kubeconfig, context) as api:
        where = _where(options, folder, api)
        if not options.follow:
            listed = Watching(api, folder, where.kinds, where.run, namespace=where.namespace, canary=False)
            await listed.list_once()
            return listed, False, listed.told()
        async with Watching(
            api, folder, where.kinds, where.run, namespace=where.namespace, canary=options.canary
        ) as watching:
            await watching.ready()
            interrupted = await _follow(watching, options, folder, switch, progress)
            return watching, interrupted, await watching.finish()


def _where(options: SampleOptions, folder: Path, api: KubeApi) -> _Where:
    """What the folder says was submitted; what the options say where nothing was."""
    try:
        submitted = read_facts(folder).get("submit") or {}
    except GpusizeError:
        submitted = {}
    if submitted.get("kinds"):
        kinds = tuple((str(each["api_version"]), str(each["kind"])) for each in submitted["kinds"])
        return _Where(kinds, submitted.get("run"), options.namespace or submitted["namespace"])
    kinds = OWN_KINDS.get(options.workload_type, ())
    if not kinds:
        what = f"the folder does not say what was submitted, and {options.workload_type} is not a known type"
        raise UsageError(what, "--workload-type", f"use one of: {', '.join(OWN_KINDS)}")
    usual = f"runai-{options.project}" if options.workload_type in _RUN_AI else api.namespace
    return _Where(kinds, None, options.namespace or usual)


async def _follow(
    watching: Watching,
    options: SampleOptions,
    folder: Path,
    switch: StopSwitch,
    progress: Callable[[str], None] | None,
) -> bool:
    """Wait for the end; whether it was one that nobody had asked for."""
    loop = asyncio.get_running_loop()
    end_s = None if options.for_s is None else loop.time() + options.for_s
    looked_s, still, expected = 0.0, False, frozenset[str]()
    while not switch.asked:
        await asyncio.sleep(_LOOK_S)
        watching.check()
        now = loop.time()
        if end_s is not None and now >= end_s:
            return options.until is not None
        if now - looked_s >= _EXPECT_S:
            looked_s = now
            if options.until is not None:
                still, expected = await asyncio.to_thread(submitted, folder)
            if progress is not None:
                progress(_line(watching))
        if options.until is not None and not still and watching.done(options.until, expected):
            return False
    return options.until is not None or options.for_s is not None


def submitted(folder: Path) -> tuple[bool, frozenset[str]]:
    """Whether a submission into this folder goes on, and the workloads that it has created so far."""
    import polars as pl

    try:
        submit = read_facts(folder).get("submit") or {}
    except GpusizeError:
        submit = {}
    rows = scan_table(folder, ATTEMPTS).filter(pl.col("uid").is_not_null()).select("workload").unique().collect()
    return submit.get("state") == "running", frozenset(rows["workload"].to_list())


def _line(watching: Watching) -> str:
    told = watching.progress
    lines = sum(feed.lines for feed in watching.feeds)
    gaps = sum(each.relisted for feed in watching.feeds for each in feed.lost)
    missed = f", {gaps} gaps" if gaps else ""
    return f"{told.pods:,} pods: {told.count('ready'):,} ready, {told.count('ended'):,} ended; {lines:,} lines{missed}"
