"""Runs a sweep: probe, measure level by level, keep everything, hand back a result."""

from __future__ import annotations

import asyncio
import contextlib
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from gpusize.apis import encode_rows
from gpusize.checks import LATE_FLOOR_S
from gpusize.clocks import ClockLog
from gpusize.dataset import Dataset
from gpusize.engine import Engine
from gpusize.errors import UsageError
from gpusize.headers import without_secrets
from gpusize.interrupt import StopSwitch, on_interrupt
from gpusize.limits import allow_connections
from gpusize.load import Load
from gpusize.probe import probe
from gpusize.provenance import run_facts
from gpusize.recovery import finished_steps, recover
from gpusize.result import Result, as_slos
from gpusize.row_ids import keep_ids
from gpusize.simulate import LatenessWatch, SimulatedCluster
from gpusize.store import RunStore, find_runs, read_run
from gpusize.sweep import Step, Sweep
from gpusize.target import Target
from gpusize.units import seconds_to_ns
from gpusize.verdict import judge_level

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpusize.engine import LevelOutcome
    from gpusize.slo import Slo
    from gpusize.sweep import ProgressEvent

__all__ = ["RunRequest", "arun", "run"]


CLUSTER_LATE_SHARE: Final = 0.03
"""Lateness of the simulated cluster, as a share of the service time, that its model is followed within."""


@dataclass(frozen=True)
class RunRequest:
    """Everything that a run is made of; ``gpusize.run`` makes one from its arguments.

    Attributes:
        target: where to send.
        dataset: what to send.
        load: how hard.
        slos: what the levels are judged by.
        users: what to size for.
        out: the folder of runs.
        labels: what tells this run from others.
        append: whether the result includes the earlier runs in ``out``.
        resume: a run folder to go on with, instead of a new run.
        cluster: the simulated cluster behind the target, if it is one.
        command: the command line, without secrets.
        options: further options for ``run.json``, as ``--config`` takes them.
    """

    target: Target
    dataset: Dataset
    load: Load
    slos: tuple[Slo, ...] = ()
    users: float | None = None
    out: Path = Path("runs")
    labels: Mapping[str, str] = field(default_factory=dict)
    append: bool = False
    resume: Path | None = None
    cluster: SimulatedCluster | None = None
    command: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.users is not None and not (math.isfinite(self.users) and self.users > 0):
            raise UsageError(f"{self.users:g} users cannot be meant", "users", "give more than 0")
        if self.append and self.resume is not None:
            raise UsageError("append and resume are both given", "resume", "a resumed run goes on in its own folder")

    def facts(self) -> dict[str, Any]:
        """The contents of ``run.json``."""
        target = self.target.options()
        if self.cluster is not None:
            # The port is another one each time, and without an address the next run starts a cluster of its own.
            target.pop("url")
        asked: dict[str, Any] = {
            "slo": [str(slo) for slo in self.slos],
            "users": self.users,
            "label": dict(self.labels),
        }
        given = {name: value for name, value in asked.items() if value}
        return run_facts(
            command=self.command,
            options={**target, **self.dataset.options(), **self.load.options(), **given, **self.options},
            targets=[{**self.target.public(), "simulated": None if self.cluster is None else self.cluster.config}],
            models=[self.target.model or ""],
            dataset=self.dataset.public(),
            labels=self.labels,
            seed=self.load.seed,
            levels=self.load.settings(len(self.dataset)),
        )

    def steps(self) -> list[Step]:
        """The planned levels, in order."""
        rows = len(self.dataset)
        pairs = zip(self.load.settings(rows), self.load.plans(rows), strict=True)
        return [Step(index, setting, plan) for index, (setting, plan) in enumerate(pairs)]


def run(
    target: Target | SimulatedCluster | str,
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
) -> Result:
    """Send the load, keep every record, and hand back what was measured.

    Ctrl-C ends the run in order: requests in flight have ``load.drain_s``, a second Ctrl-C cancels them at once. What
    was measured is kept either way and is in the result, whose ``cancelled`` is then true.

    Args:
        target: where to send; a text is an address, a simulated cluster is one that runs.
        dataset: what to send; a text or path is a file.
        load: how hard; by default the sweep 1, 2, 4, 8, 16, 32.
        slos: what the levels are judged by, such as ``"p95 runtime <= 10s"``.
        users: requests in flight that the estimate sizes for.
        out: the folder in which the run folder is made.
        labels: what tells this run from others.
        append: the result includes the earlier runs in ``out``; they must have the same target, model and dataset.
        resume: a run folder whose missing levels are measured now, with the same target, dataset and load.
        progress: told how the run goes, about ten times a second.
        stop: ``stop.ask()`` from any thread does what Ctrl-C does.

    Raises:
        UsageError: arguments that cannot be meant, or runs that do not belong together.
        TargetError: the target cannot be reached, or refuses the first request; nothing is written then.
        StoreError: the run folder cannot be written. Levels committed before that are kept.
    """
    cluster = target if isinstance(target, SimulatedCluster) else None
    request = RunRequest(
        target=_as_target(target),
        dataset=dataset if isinstance(dataset, Dataset) else Dataset.read(dataset),
        load=load or Load(),
        slos=as_slos(slos),
        users=users,
        out=Path(out),
        labels=dict(labels or {}),
        append=append,
        resume=None if resume is None else Path(resume),
        cluster=cluster,
    )
    return execute(request, progress=progress, stop=stop)


def _as_target(target: Target | SimulatedCluster | str) -> Target:
    if isinstance(target, SimulatedCluster):
        return target.target()
    return Target(target) if isinstance(target, str) else target


async def arun(
    target: Target | SimulatedCluster | str,
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
        )
    )
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        switch.ask()
        with contextlib.suppress(Exception):
            await work
        raise


def execute(
    request: RunRequest,
    *,
    progress: Callable[[ProgressEvent], None] | None = None,
    stop: StopSwitch | None = None,
    engine: Callable[..., Engine] = Engine,
) -> Result:
    """Do what a request asks; as ``run``, which explains arguments and errors.

    Args:
        request: the run.
        progress: told how the run goes.
        stop: asks for an end.
        engine: makes the engine; for tests.
    """
    switch = stop or StopSwitch()
    allow_connections(request.load.most_connections)
    facts = request.facts()
    steps = request.steps()
    earlier = _earlier(request, facts) if request.append else []
    api = request.target.make_api()
    rows = encode_rows(api, request.dataset)
    spec = request.target.to_spec(api)
    with engine(spec, api.segments(), rows, workers=request.load.workers) as session:
        # Before a folder appears, and while Ctrl-C still raises: a target that does not answer must not hold the user.
        probe(session, request.target)
        if switch.asked:
            raise KeyboardInterrupt
        with on_interrupt(switch), _open_store(request, facts) as store:
            keep_ids(store.path, request.dataset.ids)
            clocks = ClockLog.resumed(store.path / "clocks.parquet")
            clocks.take()
            sweep = Sweep(session, store, clocks, switch, _drain_ns(request), _describer(request), progress)
            done = finished_steps(store.path)
            sweep.run([step for step in steps if step.index not in done])
            clocks.take()
            clocks.write(store.path / "clocks.parquet")
    result = Result([store.path, *earlier], slos=request.slos, users=request.users)
    result.cancelled = switch.asked > 0
    return result


def _drain_ns(request: RunRequest) -> int:
    return seconds_to_ns(request.load.drain_s)


def _describer(request: RunRequest) -> Callable[[Step, LevelOutcome, Path, bool], dict[str, Any]]:
    watch = None if request.cluster is None else LatenessWatch(request.cluster)
    secrets = request.target.secret_words()

    def describe(step: Step, outcome: LevelOutcome, folder: Path, cancelled: bool) -> dict[str, Any]:  # noqa: FBT001
        level = judge_level(
            step.setting,
            _without_secrets(outcome, secrets),
            folder,
            max_error_share=request.load.error_share,
            warmup_s=request.load.warmup_s,
            cancelled=cancelled,
        )
        if watch is not None:
            late_s = watch.p99_s()
            level["cluster_lateness_p99_s"] = late_s if math.isfinite(late_s) else None
            if late_s > max(LATE_FLOOR_S, CLUSTER_LATE_SHARE * (outcome["residence_ns"] or 0) / 1e9):
                what = "the level shows this machine, not the cluster's model"
                level["alerts"].append(f"the simulated cluster was late, p99 {late_s:.2g} s: {what}")
        return level

    return describe


def _without_secrets(outcome: LevelOutcome, secrets: Sequence[str]) -> LevelOutcome:
    errors = [{**error, "message": without_secrets(error["message"], secrets)} for error in outcome["errors"]]
    return cast("LevelOutcome", {**outcome, "errors": errors})


def _open_store(request: RunRequest, facts: Mapping[str, Any]) -> RunStore:
    if request.resume is None:
        return RunStore.create(request.out, facts)
    store = RunStore.reopen(request.resume)
    try:
        _must_agree(store.run, facts, store.path)
        recover(store)
    except BaseException:
        store.close()
        raise
    return store


def _identity(run: Mapping[str, Any]) -> dict[str, Any]:
    """What must be equal for two runs to have measured the same thing."""
    targets = [
        {"url": target.get("url") if target.get("simulated") is None else None, "api": target.get("api")}
        for target in run.get("targets") or []
    ]
    simulated = [target.get("simulated") for target in run.get("targets") or []]
    dataset = (run.get("dataset") or {}).get("sha256")
    return {"target": targets, "simulated cluster": simulated, "model": run.get("models"), "dataset": dataset}


def _must_agree(known: Mapping[str, Any], facts: Mapping[str, Any], where: Path) -> None:
    """A resumed run goes on with what it began with."""
    mine, theirs = _identity(facts), _identity(known)
    for name, value in {**mine, "sweep": facts["levels"], "seed": facts["seed"]}.items():
        before = {**theirs, "sweep": known.get("levels"), "seed": known.get("seed")}[name]
        if value != before:
            raise UsageError(
                f"the {name} differs from that of the run to be resumed",
                str(where),
                "resume with the same, or start anew",
            )


def _earlier(request: RunRequest, facts: Mapping[str, Any]) -> list[Path]:
    """The runs in ``out`` that the result is to include.

    Raises:
        UsageError: one of them measured something else.
    """
    found = find_runs(request.out) if any(request.out.glob("*/run.json")) else []
    mine = _identity(facts)
    for path in found:
        theirs = _identity(read_run(path))
        differs = next((name for name in mine if mine[name] != theirs[name]), None)
        if differs is not None:
            raise UsageError(
                f"an earlier run has another {differs}, so it cannot be appended to", str(path), "choose another --out"
            )
    return found
