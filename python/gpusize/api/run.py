"""``gpusize.run`` and ``gpusize.arun``: a run from typed arguments."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.api.progress import telling
from gpusize.api.run_options import RunArguments, RunOptions, checked_options
from gpusize.base.errors import UsageError
from gpusize.base.interrupt import StopSwitch
from gpusize.base.typed import MAPPING, NUMBER, PATH, SEQUENCE, Kind, check_kinds, or_none
from gpusize.estimate.search.terms import Adaptive
from gpusize.measure.execute import execute
from gpusize.options.assemble import read_options, spec_from_options
from gpusize.options.inputs import dataset_from_options
from gpusize.options.run_spec import RunInputs, reached, run_spec
from gpusize.targets.apis.kserve import is_kserve
from gpusize.targets.server import Target
from gpusize.targets.simulated.cluster import SimulatedCluster
from gpusize.targets.workflow.target import WorkflowTarget
from gpusize.workload.dataset import Dataset
from gpusize.workload.load import Load

if TYPE_CHECKING:
    from typing import Unpack

    from gpusize.analysis.slo import Slo
    from gpusize.measure.spec import RunSpec
    from gpusize.measure.sweep import ProgressEvent
    from gpusize.observe.observer import Observer
    from gpusize.result import Result

__all__ = ["AnyTarget", "arun", "run"]

_KINDS: Final[dict[str, Kind]] = {
    "target": or_none(
        ((Target, WorkflowTarget, SimulatedCluster, Callable, str), "an address, a target or a function")
    ),
    "dataset": or_none(((Dataset, Sequence, *PATH[0]), "a dataset or a path")),
    "load": or_none(((Load,), "a gpusize.Load")),
    "users": or_none(NUMBER),
    "out": PATH,
    "labels": or_none(MAPPING),
    "resume": or_none(PATH),
    "observers": SEQUENCE,
    "shapes": SEQUENCE,
    "adaptive": or_none(((Adaptive, bool), "True, False or a gpusize.Adaptive")),
}

_UNSAID: Final[dict[str, Any]] = {"out": "runs", "append": False, "shape": [], "batch": 1}
"""What arguments are when the caller says nothing of them, where that is not None."""

AnyTarget = Target | WorkflowTarget | SimulatedCluster | Callable[[Any], Any] | str
"""What a load can be sent to: a server, a workflow or a command, a function, or an address."""

AnyRows = Dataset | str | Path | Sequence[str]
"""What can be sent: a dataset, a file, or for a KServe API one input or several as ``--input`` takes them."""


def run(  # noqa: PLR0913 -- typed keyword arguments, each with a default
    target: AnyTarget | None = None,
    dataset: AnyRows | None = None,
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
    **options: Unpack[RunOptions],
) -> Result:
    """Send the load, keep every record, and hand back what was measured.

    A run from Python is the run that the command makes of the same values: it is prepared in the same way, and the
    same is measured beside it. Ctrl-C ends the run in order: requests in flight have ``load.drain_s``, a second Ctrl-C
    cancels them at once. What was measured is kept either way and is in the result, whose ``cancelled`` is then true.

    Args:
        target: where to send; a text is an address, a simulated cluster is one that runs, a function is called once
            per request. None only with ``resume``: what the run folder names.
        dataset: what to send; a text or path is a file. For a KServe API also inputs as ``--input`` takes them. None
            where the load's streams bring their own, or where the method sends no body.
        load: how hard. Where it names no levels and no end of them, the SLOs call for a search for the highest load
            within them; without any it is the sweep 1, 2, 4, 8, 16, 32.
        slos: what the levels are judged by, such as ``"p95 runtime <= 10s"``.
        users: requests in flight that the estimate sizes for.
        out: the folder in which the run folder is made.
        labels: what tells this run from others.
        append: the result includes the earlier runs in ``out``; they must have the same target, model and dataset.
        resume: a run folder whose missing levels are measured now, with the same target, dataset and load; without a
            target with those that it names, and with its options where none are given here.
        progress: told how the run goes, about ten times a second. None: in a notebook it is shown below the cell.
        stop: ``stop.ask()`` from any thread does what Ctrl-C does.
        observers: what else is measured meanwhile. Server metrics that `gpusize.observe.metrics.server_metrics` made
            take the place of the usual ones.
        shapes: for a KServe API, ``NAME:3,224,224`` for inputs whose dimensions vary.
        batch: for a KServe API, inferences in one request.
        adaptive: True, or its precision and budget, for a search; the load then says all but the levels. False for
            none. None: a search where SLOs and no levels are given, and requests tell what the SLOs are about.
        options: what ends the run, what is measured beside it and more: see `gpusize.api.run_options.RunOptions`.

    Raises:
        UsageError: invalid arguments, or runs that do not belong together.
        TargetError: the target cannot be reached, or refuses the first request; nothing is written then.
        StoreError: the run folder cannot be written. Levels committed before that are kept.
    """
    check_kinds(locals(), _KINDS)
    folder = None if resume is None else Path(resume)
    given = {
        **checked_options(options),
        **(adaptive.options() if isinstance(adaptive, Adaptive) else {"adaptive": adaptive}),
        "slo": slos,
        "users": users,
        "out": str(out),
        "label": labels,
        "append": append,
        "shape": list(shapes),
        "batch": batch,
    }
    with contextlib.ExitStack() as stack:
        if target is None:
            spec = stack.enter_context(_resumed(folder, given, dataset, load, observers))
        else:
            inputs = _inputs(target, dataset, load or Load(), given, stack)
            spec = stack.enter_context(run_spec(inputs, given, observers=observers, resume=folder))
        told = stack.enter_context(telling(progress, [level.setting for level in spec.levels]))
        return execute(spec, progress=told.progress, stop=stop, note=told.note)


def _resumed(
    folder: Path | None,
    given: Mapping[str, Any],
    dataset: AnyRows | None,
    load: Load | None,
    observers: Sequence[Observer],
) -> contextlib.AbstractContextManager[RunSpec]:
    if folder is None:
        raise UsageError("there is no target", "target", "give an address, a target or a function")
    if dataset is not None or load is not None:
        raise UsageError("a dataset or a load is given without a target", "target", "give the target too, or neither")
    mine = {name: value for name, value in given.items() if value != _UNSAID.get(name)}
    options, _ = read_options(None, mine, folder)
    return spec_from_options(options, observers=observers, resume=folder)


def _inputs(
    target: AnyTarget, rows: AnyRows | None, load: Load, options: Mapping[str, Any], stack: contextlib.ExitStack
) -> RunInputs:
    if isinstance(target, str):
        found, ways, names = reached({"url": target}, stack)
        return RunInputs(found, load, *_rows(found, rows), ways=ways, names=names)
    cluster = target if isinstance(target, SimulatedCluster) else None
    what = _as_target(target, options)
    return RunInputs(what, load, *_rows(what, rows), cluster=cluster)


def _as_target(target: AnyTarget, options: Mapping[str, Any]) -> Target | WorkflowTarget:
    if isinstance(target, SimulatedCluster):
        return target.target()
    if isinstance(target, Target):
        return target
    proxy = options.get("llm_proxy")
    if not isinstance(target, WorkflowTarget):
        return WorkflowTarget(target, llm_proxy=proxy)
    if proxy is not None and target.llm_proxy not in (None, proxy):
        raise UsageError("the workflow has another LLM proxy already", "llm_proxy", "give it once")
    return target if proxy is None or target.llm_proxy == proxy else replace(target, llm_proxy=proxy)


def _rows(target: Target | WorkflowTarget, rows: AnyRows | None) -> tuple[Dataset | None, Sequence[str]]:
    """The dataset, or for a KServe API the inputs that its requests are made from."""
    if rows is None or isinstance(rows, Dataset):
        return rows, ()
    if isinstance(target, Target) and is_kserve(target.api):
        return None, [str(rows)] if isinstance(rows, str | Path) else [str(each) for each in rows]
    check_kinds({"dataset": rows}, {"dataset": ((Dataset, *PATH[0]), "a dataset or a path")})
    about: dict[str, Any] = {"dataset": str(rows)}
    if isinstance(target, Target):
        about |= {"body_template": target.body_template, "method": target.method}
    else:
        about |= {"command": target.command}
    return dataset_from_options(about), ()


async def arun(
    target: AnyTarget | None = None,
    dataset: AnyRows | None = None,
    load: Load | None = None,
    *,
    stop: StopSwitch | None = None,
    **more: Unpack[RunArguments],
) -> Result:
    """``run`` for asynchronous code: it works on a thread of its own, on which ``progress`` is called as well.

    Cancelling the task ends the run in order, as Ctrl-C does; everything measured is on disk before the cancellation
    goes on.

    Args:
        target: as `run`.
        dataset: as `run`.
        load: as `run`.
        stop: as `run`.
        more: every other argument of `run`.
    """
    switch = stop or StopSwitch()
    work = asyncio.ensure_future(asyncio.to_thread(run, target, dataset, load, stop=switch, **more))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        switch.ask()
        with contextlib.suppress(Exception):
            await work
        raise
