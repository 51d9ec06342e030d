"""A submission from beginning to end: looked at before, sent, written down, and gone on with where it was cut off."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

from gpusize.base.errors import UsageError
from gpusize.base.files import lock_folder, storing
from gpusize.base.interrupt import StopSwitch, on_interrupt
from gpusize.base.text import shown
from gpusize.cluster.access.api import KubeApi, connect
from gpusize.cluster.clock import CLIENT, ClientClock
from gpusize.cluster.folder import FACTS, make_folder, read_facts, update_facts
from gpusize.cluster.submit.attempts import Outcomes, read_outcomes
from gpusize.cluster.submit.journal import Journal
from gpusize.cluster.submit.names import new_run, workload_name
from gpusize.cluster.submit.options import SubmitOptions
from gpusize.cluster.submit.pace import closed_rounds, open_loop
from gpusize.cluster.submit.preflight import Known, look_before
from gpusize.cluster.submit.schedule import due_times
from gpusize.cluster.submit.send import Sender, Sending
from gpusize.cluster.submit.tally import Tally
from gpusize.cluster.submit.template import Template, read_template
from gpusize.cluster.submit.workloads import Maker, Workload
from gpusize.cluster.tables import ATTEMPTS

__all__ = ["CONNECTIONS", "KEY", "Submitted", "submit", "submit_workloads"]

KEY: Final = "submit"
"""Of what a submission says in ``cluster.json``."""

DRAIN_S: Final = 5.0
"""How long answers are waited for that are still to come when a stop is asked for."""

_PREPARED_BYTES: Final = 64 << 20
CONNECTIONS: Final = 8
"""Connections that a submission needs beside one for each request under way."""

T = TypeVar("T")
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Submitted:
    """What a submission has left in its folder.

    Attributes:
        path: the folder.
        facts: what ``cluster.json`` says of it, under ``submit``.
        notes: what the user should know.
        interrupted: whether it was stopped before all was sent.
        gave_up: why it stopped by itself; None where it did not.
    """

    path: Path
    facts: dict[str, Any]
    notes: tuple[str, ...]
    interrupted: bool
    gave_up: str | None

    @property
    def complete(self) -> bool:
        """Whether every workload was created."""
        counts = self.facts["counts"]
        return bool(counts["created"] == counts["workloads"])


def submit_workloads(
    options: SubmitOptions,
    out: str | Path,
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    progress: Progress | None = None,
) -> Submitted:
    """Submit workloads to a cluster, and write down every attempt.

    A folder that has a submission with the same options is gone on with: what was answered is not sent again, and what
    was sent without an answer is looked up. Ctrl-C ends it in order.

    Args:
        options: what is submitted, how, and how fast.
        out: the folder of the test; what is there is added to.
        kubeconfig: path of one; as `gpusize.cluster.access.sign_in.find_access` finds one by default.
        context: one of its contexts; the current one by default.
        progress: told in words how far it is.

    Returns:
        What was done, also after Ctrl-C; every workload that was tried has its rows in the folder.

    Raises:
        UsageError: invalid options, a kind or a namespace that the cluster does not have, or a folder with a
            submission of other options.
        ConfigError: an invalid template or kubeconfig.
        TargetError: the server does not answer, or would refuse the workloads; nothing was created.
        StoreError: the folder cannot be read or written.
        EnvironmentLacks: lightkube is not installed.
        KeyboardInterrupt: Ctrl-C before anything was sent.
    """
    switch = StopSwitch()

    async def run() -> Submitted:
        async with connect(kubeconfig, context, connections=options.at_once + CONNECTIONS) as api:
            return await submit(api, options, Path(out), switch=switch, progress=progress)

    with on_interrupt(switch):
        return asyncio.run(run())


async def submit(
    api: KubeApi,
    options: SubmitOptions,
    out: Path,
    *,
    switch: StopSwitch | None = None,
    progress: Progress | None = None,
    clock: ClientClock = CLIENT,
    opened: Callable[[], Awaitable[None]] | None = None,
) -> Submitted:
    """As `submit_workloads`, on a server that is connected to already and in a loop that runs already.

    Args:
        api: the server. It needs as many connections as requests may be under way.
        options: what is submitted, how, and how fast.
        out: the folder of the test.
        switch: asked to stop: once in order, twice at once.
        progress: told in words how far it is.
        clock: of due times and stamps.
        opened: awaited when the folder says what will be submitted, and nothing has been sent: to open watches.

    Raises:
        UsageError, ConfigError, TargetError, StoreError, KeyboardInterrupt: as `submit_workloads`.
    """
    template = read_template(options.workload_type, pvc=options.pvc, overrides=options.overrides)
    options.check_template(template)
    namespace = options.namespace_of(template, api.namespace)
    due_ns = due_times(options).to_list() if options.open else None
    total = len(due_ns) if due_ns is not None else options.num_workloads or 0
    wanted = _wanted(api, options, template, namespace)
    before = _earlier_facts(out, wanted)
    run = str(before["run"]) if before else new_run()
    maker = Maker(template, run, options.prefix, namespace, options.values())
    size, pods = len(maker.make(0).objects), maker.make(0).pods
    earlier = read_outcomes(out, size)
    first = next((index for index in range(total) if not earlier.is_over(index, options.retries)), 0)
    known = await _unless_stopped(look_before(api, template, namespace, run, maker.make(first)), switch)
    async with _holding(out):
        earlier = read_outcomes(out, size)
        left = [index for index in range(total) if not earlier.is_over(index, options.retries)]
        started_ns = clock.now_ns()
        facts = {**_facts(api, options, template, wanted, run, known, size), "total": total, "pods": pods}
        facts["started_ns"] = before.get("started_ns", started_ns)
        update_facts(out, **{KEY: {**facts, "state": "running", "sessions": before.get("sessions", [])}})
        if opened is not None:
            await opened()
            started_ns = clock.now_ns()
        work = _Work(options, maker, left, due_ns, known, run, namespace)
        journal = Journal(out, options.project, namespace)
        for index in range(total):
            if earlier.is_created(index):
                journal.submitted(index, workload_name(options.prefix, run, index), earlier.first_sent_ns[index])
        tally, sender = await _send_all(api, work, journal, earlier, switch or StopSwitch(), progress, clock)
        session = {"started_ns": started_ns, "ended_ns": clock.now_ns(), **tally.facts()}
        after = read_outcomes(out, size)
        counts = after.counts(total)
        interrupted = bool((switch and switch.asked) and any(not after.is_over(each, options.retries) for each in left))
        state = "interrupted" if interrupted else "gave up" if sender.gave_up else "done"
        facts |= {"state": state, "counts": counts, "ended_ns": session["ended_ns"]}
        facts["sessions"] = [*before.get("sessions", []), session]
        update_facts(out, **{KEY: facts})
    notes = [*known.notes, *(f"the client was the limit: {each}" for each in tally.limits())]
    if before and not left:
        notes.append("all of it was submitted before; give another -o DIR for a new run")
    return Submitted(out, facts, tuple(notes), interrupted, sender.gave_up)


async def _unless_stopped(work: Coroutine[Any, Any, T], switch: StopSwitch | None) -> T:
    """What the work gives, unless a stop is asked for before: then there is nothing to put in order."""
    task = asyncio.create_task(work)
    while not task.done():
        await asyncio.wait([task], timeout=0.05)
        if switch is not None and switch.asked and not task.done():
            task.cancel()
            await asyncio.wait([task])
            raise KeyboardInterrupt
    return task.result()


@dataclass(frozen=True, slots=True)
class _Work:
    """What is left to send, and when."""

    options: SubmitOptions
    maker: Maker
    left: Sequence[int]
    due_ns: Sequence[int] | None
    known: Known
    run: str
    namespace: str


async def _send_all(
    api: KubeApi,
    work: _Work,
    journal: Journal,
    earlier: Outcomes,
    switch: StopSwitch,
    progress: Progress | None,
    clock: ClientClock,
) -> tuple[Tally, Sender]:
    """Send what is left; the counts, and who sent."""
    options, stop = work.options, asyncio.Event()
    sending = Sending(
        run=work.run,
        namespace=work.namespace,
        resources=work.known.resources,
        retries=options.retries,
        at_once=options.at_once,
        seed=options.seed,
        now_ns=clock.now_ns,
    )
    ready = _prepared(work.maker, work.left)
    tally = Tally()
    sender = Sender(api, sending, journal, tally, earlier, stop)
    writing = asyncio.create_task(journal.keep_writing())
    # A full disk ends it: what nobody could read later is not worth sending.
    writing.add_done_callback(lambda _: stop.set())
    beside = [
        writing,
        asyncio.create_task(_heed(switch, stop, sender)),
        asyncio.create_task(_tell(progress, tally, len(work.left))),
    ]
    try:
        if work.due_ns is None:
            await closed_rounds(sender, ready, options.num_processes, options.delay_s, stop, clock.now_ns)
        elif work.left:
            begin_ns = clock.now_ns() - work.due_ns[work.left[0]]
            due = (begin_ns + work.due_ns[index] for index in work.left)
            await open_loop(sender, zip(due, ready, strict=True), stop, clock.now_ns)
    finally:
        tally.end()
        for each in beside:
            each.cancel()
        found = await asyncio.gather(*beside, return_exceptions=True)
        journal.write()
    for problem in found:
        if isinstance(problem, Exception):
            raise problem
    return tally, sender


def _prepared(maker: Maker, left: Sequence[int]) -> Iterator[Workload]:
    """The workloads, rendered before the first is sent as far as memory allows."""
    ready: list[Workload] = []
    held = 0
    for index in left:
        if held > _PREPARED_BYTES:
            break
        ready.append(maker.make(index))
        held += sum(len(each.body) for each in ready[-1].objects)
    return chain(ready, (maker.make(index) for index in left[len(ready) :]))


async def _heed(switch: StopSwitch, stop: asyncio.Event, sender: Sender) -> None:
    """Stop when that is asked for, and wait no more for answers after `DRAIN_S`, or when it is asked for twice."""
    while not switch.asked:  # noqa: ASYNC110 -- a signal sets it, which knows no loop
        await asyncio.sleep(0.05)
    stop.set()
    end = asyncio.get_running_loop().time() + DRAIN_S
    while switch.asked < 2 and asyncio.get_running_loop().time() < end:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    sender.cut()


async def _tell(progress: Progress | None, tally: Tally, left: int) -> None:
    while progress is not None:
        await asyncio.sleep(0.5)
        failed = f", {tally.failed:,} failed" if tally.failed else ""
        put_off = f", {tally.throttled:,} put off (429)" if tally.throttled else ""
        rate = tally.created / max(tally.elapsed_s, 1e-9)
        progress(f"{tally.created:,} of {left:,} created, {rate:.0f}/s{failed}{put_off}")


@contextlib.asynccontextmanager
async def _holding(out: Path) -> AsyncIterator[None]:
    """The folder made, and its attempts held, so that one submission at a time writes them."""
    place = out / ATTEMPTS
    make_folder(place)
    with storing(place):
        held = lock_folder(place)
    try:
        yield
    finally:
        os.close(held)


def _wanted(api: KubeApi, options: SubmitOptions, template: Template, namespace: str) -> dict[str, Any]:
    """What must be the same for a submission to be gone on with."""
    facts = options.facts()
    del facts["workload_type"], facts["namespace"], facts["retries"], facts["max_in_flight"]
    return {
        **facts,
        "workload_type": options.workload_type,
        "template_sha256": template.sha256,
        "namespace": namespace,
        "server": api.server,
    }


def _earlier_facts(out: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """What a submission before this one said of itself; empty where there was none.

    Raises:
        UsageError: it had other options.
        StoreError: the folder cannot be read.
    """
    before = read_facts(out).get(KEY) if (out / FACTS).exists() else None
    if before is None:
        return {}
    asked = before.get("asked") or {}
    differ = [name for name in wanted if asked.get(name) != wanted[name]]
    if differ:
        name = differ[0]
        what = f"it has a submission whose {name} is {shown(asked.get(name))}, not {shown(wanted[name])}"
        more = f" ({', '.join(differ[1:])} differ too)" if differ[1:] else ""
        raise UsageError(what + more, str(out), "give the same options to go on with it, or another -o DIR")
    return dict(before)


def _facts(
    api: KubeApi,
    options: SubmitOptions,
    template: Template,
    wanted: dict[str, Any],
    run: str,
    known: Known,
    size: int,
) -> dict[str, Any]:
    from gpusize import __version__

    kinds = [
        {"api_version": each.api_version, "kind": each.kind, "plural": each.plural} for each in known.resources.values()
    ]
    return {
        "gpusize": __version__,
        "run": run,
        "workload_type": options.workload_type,
        "template_sha256": template.sha256,
        "kinds": kinds,
        "objects": size,
        "namespace": wanted["namespace"],
        "project": options.project,
        "options": options.facts(),
        "asked": wanted,
        "server": {"url": api.server, "version": known.version, "context": api.context},
    }
