"""A whole test: watches opened, workloads submitted, moments stamped until all are that far.

The watches are in a process of their own: a submission at a high rate would delay the stamps.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpusize.base.errors import GpusizeError
from gpusize.base.interrupt import StopSwitch, on_interrupt
from gpusize.cluster.access.api import connect
from gpusize.cluster.folder import read_facts
from gpusize.cluster.submit.submit import CONNECTIONS, Submitted, submit
from gpusize.cluster.submit.submit import KEY as SUBMIT
from gpusize.cluster.watch.apart import WatchingApart
from gpusize.cluster.watch.sampled import write_sampled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpusize.cluster.submit.options import SubmitOptions
    from gpusize.cluster.watch.progress import Until

__all__ = ["Conducted", "conduct"]

_LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Conducted:
    """What a test has left in its folder.

    Attributes:
        submitted: the submission.
        reached: whether all workloads were as far as was to be waited for.
        why: why not, in words; empty where they were.
    """

    submitted: Submitted
    reached: bool
    why: str


def conduct(
    options: SubmitOptions,
    folder: Path,
    *,
    until: Until = "ready",
    wait_s: float = 600.0,
    kubeconfig: str | None = None,
    context: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Conducted:
    """Submit workloads, and stamp their moments until all are that far.

    Ctrl-C ends the submission in order, then the watches; what was seen is written down.

    Args:
        options: what is submitted, how, and how fast.
        folder: of the test; one with an unfinished submission of the same options is gone on with.
        until: how far the workloads are to be: ``ready`` or ``completed``.
        wait_s: how long they have for it after the last was submitted, in seconds.
        kubeconfig: path of one; as `gpusize.cluster.access.sign_in.find_access` finds one by default.
        context: one of its contexts; the current one by default.
        progress: told in words how far it is.

    Raises:
        UsageError, ConfigError, TargetError, StoreError, EnvironmentLacks: as `submit_workloads`; nothing was created.
    """
    switch = StopSwitch()
    with on_interrupt(switch):
        return asyncio.run(_conduct(options, folder, until, wait_s, kubeconfig, context, progress, switch))


async def _conduct(
    options: SubmitOptions,
    folder: Path,
    until: Until,
    wait_s: float,
    kubeconfig: str | None,
    context: str | None,
    progress: Callable[[str], None] | None,
    switch: StopSwitch,
) -> Conducted:
    watching: WatchingApart | None = None

    def tell(text: str) -> None:
        if progress is not None:
            seen = watching.told if watching is not None else {}
            pods = f"; {seen['pods']:,} pods, {seen['ready']:,} ready, {seen['ended']:,} ended" if seen else ""
            progress(f"{text}{pods}")

    async with contextlib.AsyncExitStack() as running:

        async def open_watches() -> None:
            nonlocal watching
            said = read_facts(folder)[SUBMIT]
            kinds = [(str(each["api_version"]), str(each["kind"])) for each in said["kinds"]]
            watching = await running.enter_async_context(
                WatchingApart(
                    folder,
                    kinds,
                    said["run"],
                    namespace=said["namespace"],
                    kubeconfig=kubeconfig,
                    context=context,
                    until=until,
                )
            )
            await watching.ready()

        async with connect(kubeconfig, context, connections=options.at_once + CONNECTIONS) as api:
            submitted = await submit(api, options, folder, switch=switch, progress=tell, opened=open_watches)
        why = ""
        if watching is not None:
            why = await _wait(watching, until, wait_s, switch, tell)
            tell("the last list")
            try:
                await watching.finish()
            except GpusizeError as problem:
                why = f"the watches ended early: {problem}"
    await asyncio.to_thread(write_sampled, folder, options.project)
    return Conducted(submitted, not why and not submitted.interrupted, why)


async def _wait(
    watching: WatchingApart, until: Until, wait_s: float, switch: StopSwitch, tell: Callable[[str], None]
) -> str:
    """Wait for the watches to see all workloads that far; why they did not, in words."""
    reached = asyncio.create_task(watching.reached())
    end_s = time.monotonic() + wait_s
    try:
        while not reached.done():
            if switch.asked:
                return f"interrupted before all workloads were {until}"
            if time.monotonic() >= end_s:
                return f"not all workloads were {until} {wait_s:g} s after the last was submitted"
            await asyncio.wait({reached}, timeout=_LOOK_S)
            tell(f"waiting until all are {until}")
        problem = reached.exception()
        return f"the watches ended early: {problem}" if problem is not None else ""
    finally:
        reached.cancel()
