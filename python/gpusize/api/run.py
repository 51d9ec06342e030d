"""``gpusize.run`` and ``gpusize.arun``: a run from typed arguments."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.analysis.slo import as_slos
from gpusize.base.interrupt import StopSwitch
from gpusize.base.typed import MAPPING, NUMBER, PATH, SEQUENCE, Kind, check_kinds, or_none
from gpusize.estimate.search.terms import Adaptive, cannot_search
from gpusize.measure.execute import execute
from gpusize.measure.mix import told_priorities
from gpusize.measure.spec import RunSpec
from gpusize.result import Result
from gpusize.targets.kserve.prepare import is_kserve, prepare_kserve
from gpusize.targets.server import Target
from gpusize.targets.simulated.cluster import SimulatedCluster
from gpusize.targets.workflow.target import WorkflowTarget
from gpusize.workload.dataset import Dataset
from gpusize.workload.load import Load

if TYPE_CHECKING:
    from gpusize.analysis.slo import Slo
    from gpusize.measure.sweep import ProgressEvent
    from gpusize.observe.observer import Observer

__all__ = ["AnyTarget", "arun", "run"]

_KINDS: Final[dict[str, Kind]] = {
    "target": ((Target, WorkflowTarget, SimulatedCluster, Callable, str), "an address, a target or a function"),
    "dataset": ((Dataset, *PATH[0]), "a dataset or a path"),
    "load": or_none(((Load,), "a gpusize.Load")),
    "users": or_none(NUMBER),
    "out": PATH,
    "labels": or_none(MAPPING),
    "resume": or_none(PATH),
    "observers": SEQUENCE,
    "shapes": SEQUENCE,
    "adaptive": or_none(((Adaptive, bool), "True, False or a gpusize.Adaptive")),
}

AnyTarget = Target | WorkflowTarget | SimulatedCluster | Callable[[Any], Any] | str
"""What a load can be sent to: a server, a workflow or a command, a function, or an address."""


def run(  # noqa: PLR0913 -- typed keyword arguments, each with a default
    target: AnyTarget,
    dataset: Dataset | str | Path,
    load: Load | None = None,
    *,
    slos: Sequence[Slo | str] | Slo | str | None = None,
    users: float | None = None,
    out: str | Path = "runs",
    labels: Mapping[str, str] | None = None,
    append: bool = False,
    resume: str | Path | None = None,
    progress: Callable[[ProgressEvent], None] | None = None,
    stop: StopSwitch | None = None,
    observers: Sequence[Observer] = (),
    shapes: Sequence[str] = (),
    batch: int = 1,
    adaptive: Adaptive | bool | None = None,
) -> Result:
    """Send the load, keep every record, and hand back what was measured.

    Ctrl-C ends the run in order: requests in flight have ``load.drain_s``, a second Ctrl-C cancels them at once. What
    was measured is kept either way and is in the result, whose ``cancelled`` is then true.

    Args:
        target: where to send; a text is an address, a simulated cluster is one that runs, a function is called once
            per request.
        dataset: what to send; a text or path is a file. For a KServe API also an input as ``--input`` takes it.
        load: how hard; by default a search for the highest load within the SLOs, or without any the sweep 1, 2, 4, 8,
            16, 32.
        slos: what the levels are judged by, such as ``"p95 runtime <= 10s"``.
        users: requests in flight that the estimate sizes for.
        out: the folder in which the run folder is made.
        labels: what tells this run from others.
        append: the result includes the earlier runs in ``out``; they must have the same target, model and dataset.
        resume: a run folder whose missing levels are measured now, with the same target, dataset and load.
        progress: told how the run goes, about ten times a second.
        stop: ``stop.ask()`` from any thread does what Ctrl-C does.
        observers: what else is measured meanwhile, such as `gpusize.observe.metrics.server_metrics` makes.
        shapes: for a KServe API, ``NAME:3,224,224`` for inputs whose dimensions vary.
        batch: for a KServe API, inferences in one request.
        adaptive: True, or its precision and budget, for a search; the load then says all but the levels. False for
            none. None: a search where SLOs and no load are given, and requests tell what the SLOs are about.

    Raises:
        UsageError: arguments that cannot be meant, or runs that do not belong together.
        TargetError: the target cannot be reached, or refuses the first request; nothing is written then.
        StoreError: the run folder cannot be written. Levels committed before that are kept.
    """
    check_kinds(locals(), _KINDS)
    cluster = target if isinstance(target, SimulatedCluster) else None
    what, rows, api = _as_target(target), dataset, None
    planned = load or Load()
    if isinstance(what, Target) and is_kserve(what.api) and not isinstance(rows, Dataset):
        told = told_priorities(planned)
        ready = prepare_kserve(what, [str(rows)], shapes=shapes, batch=batch, seed=planned.seed, priorities=told)
        what, rows, api = ready.target, ready.dataset, ready.api
    proxy = [what.proxy] if isinstance(what, WorkflowTarget) and what.proxy is not None else []
    chosen = rows if isinstance(rows, Dataset) else Dataset.read(rows)
    spec = RunSpec(
        target=what.speaking(chosen.api) if isinstance(what, Target) else what,
        dataset=chosen,
        load=planned,
        slos=as_slos(slos),
        users=users,
        out=Path(out),
        labels=dict(labels or {}),
        append=append,
        resume=None if resume is None else Path(resume),
        cluster=cluster,
        api=api,
        observers=[*observers, *proxy],
        adaptive=adaptive if isinstance(adaptive, Adaptive) else _terms(load, slos, what, asked=adaptive),
    )
    return execute(spec, progress=progress, stop=stop)


def _terms(
    load: Load | None,
    slos: Sequence[Slo | str] | Slo | str | None,
    target: Target | WorkflowTarget,
    *,
    asked: bool | None,
) -> Adaptive | None:
    """The search that is asked for, or that SLOs without a load call for."""
    if asked is None:
        apis = [str(each.get("api") or "") for each in target.public()]
        asked = load is None and cannot_search(as_slos(slos), apis) is None
    return Adaptive() if asked else None


def _as_target(target: AnyTarget) -> Target | WorkflowTarget:
    if isinstance(target, SimulatedCluster):
        return target.target()
    if callable(target):
        return WorkflowTarget(target)
    return Target(target) if isinstance(target, str) else target


async def arun(  # noqa: PLR0913 -- as run
    target: AnyTarget,
    dataset: Dataset | str | Path,
    load: Load | None = None,
    *,
    slos: Sequence[Slo | str] | Slo | str | None = None,
    users: float | None = None,
    out: str | Path = "runs",
    labels: Mapping[str, str] | None = None,
    append: bool = False,
    resume: str | Path | None = None,
    progress: Callable[[ProgressEvent], None] | None = None,
    stop: StopSwitch | None = None,
    observers: Sequence[Observer] = (),
    shapes: Sequence[str] = (),
    batch: int = 1,
    adaptive: Adaptive | bool | None = None,
) -> Result:
    """``run`` for asynchronous code: it works on a thread of its own, on which ``progress`` is called as well.

    Cancelling the task ends the run in order, as Ctrl-C does; everything measured is on disk before the cancellation
    goes on.
    """
    switch = stop or StopSwitch()
    work = asyncio.ensure_future(
        asyncio.to_thread(
            run,
            target,
            dataset,
            load,
            slos=slos,
            users=users,
            out=out,
            labels=labels,
            append=append,
            resume=resume,
            progress=progress,
            stop=switch,
            observers=observers,
            shapes=shapes,
            batch=batch,
            adaptive=adaptive,
        )
    )
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        switch.ask()
        with contextlib.suppress(Exception):
            await work
        raise
