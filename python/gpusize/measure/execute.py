"""Runs a sweep: probe, measure level by level, keep everything, hand back a result."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from gpusize.analysis.addresses import addresses_of
from gpusize.analysis.generator import LATE_FLOOR_S
from gpusize.analysis.read_levels import read_levels
from gpusize.analysis.sources import sources_of
from gpusize.base.errors import StoreError
from gpusize.base.interrupt import StopSwitch, on_interrupt
from gpusize.base.secrets import without_secrets
from gpusize.base.units import format_duration, seconds_to_ns
from gpusize.engine.clock_log import ClockLog
from gpusize.engine.hosts.gather import gathered
from gpusize.engine.limits import allow_connections, allow_ports, source_notes
from gpusize.engine.session import Engine
from gpusize.engine.workers import peak_rate
from gpusize.estimate.search.terms import REQUESTS, ROUNDS
from gpusize.measure.alive import Alive
from gpusize.measure.encode import prepare
from gpusize.measure.level_json import judge_level
from gpusize.measure.locate import located
from gpusize.measure.probe import probe
from gpusize.measure.recovery import finished_steps, recover
from gpusize.measure.so_far import SoFar
from gpusize.measure.spec import earlier_runs, must_agree
from gpusize.measure.sweep import Step, Sweep
from gpusize.records.dataset_rows import keep_rows
from gpusize.records.run_json import nature_of
from gpusize.records.store import RunStore
from gpusize.result import Result
from gpusize.targets.server import Target
from gpusize.targets.simulated.cluster import ClusterLateness
from gpusize.targets.workflow.llm_proxy import LlmProxy
from gpusize.targets.workflow.target import WorkflowTarget
from gpusize.workload.schedule.export import cost_note, keep_plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpusize.analysis.stop_cause import StopCause
    from gpusize.engine.session import AnyEngine, LevelOutcome
    from gpusize.estimate.search import Adaptive
    from gpusize.measure.monitor import RunMonitor
    from gpusize.measure.proving import Proving
    from gpusize.measure.spec import RunSpec
    from gpusize.measure.sweep import ProgressEvent

__all__ = ["execute", "run_info"]


DEFAULT_BUDGET: Final = f"at most {REQUESTS:,} requests or {ROUNDS:g} per user at the capacity"
TOO_SHORT: Final = "too short "

CLUSTER_LATE_SHARE: Final = 0.03
"""Lateness of the simulated cluster, as a share of the service time, that its model is followed within."""


def execute(
    spec: RunSpec,
    *,
    progress: Callable[[ProgressEvent], None] | None = None,
    stop: StopSwitch | None = None,
    note: Callable[[str], None] | None = None,
    engine: Callable[..., AnyEngine] = Engine,
    proving: Proving | None = None,
) -> Result:
    """Do what a specification says; as ``run``, which explains arguments and errors.

    Args:
        spec: the run.
        progress: told how the run goes.
        stop: asks for an end.
        note: told what the user should know, when it is known; but for the notes of ``spec``, which were known before.
        engine: makes the engine; for tests.
        proving: ends the run when its levels have shown enough; it takes the place of the look whether the target has
            failed, which it sees by itself.

    Raises:
        EnvironmentLacks: hosts that were to send did not come.
    """
    switch = stop or StopSwitch()
    if spec.hosts is None:
        allow_connections(spec.most_connections)
        return _execute(spec, progress, switch, note, engine, proving=proving)
    with gathered(spec.hosts, note or (lambda _: None)) as head:
        head.can_send(peak_rate(each.setting for each in spec.levels))
        return _execute(spec, progress, switch, note, head.engine, head.facts(), proving)


def _execute(
    spec: RunSpec,
    progress: Callable[[ProgressEvent], None] | None,
    switch: StopSwitch,
    note: Callable[[str], None] | None,
    engine: Callable[..., AnyEngine],
    hosts: Sequence[Mapping[str, Any]] = (),
    proving: Proving | None = None,
) -> Result:
    """Do it, with what makes the engine, and the facts of the hosts that send where this machine does not."""
    spec, found = located(spec, engine)
    notes = [text for text in (*found, *_early_notes(spec)) if text not in spec.notes]
    facts = {**spec.facts(), "hosts": list(hosts)} if hosts else spec.facts()
    steps = spec.steps()
    earlier = earlier_runs(spec, facts) if spec.append else []
    with contextlib.ExitStack() as stack:
        session: AnyEngine = stack.enter_context(_open_engine(spec, engine))
        # Before a folder appears, and while Ctrl-C still raises: a target that does not answer must not hold the user.
        probe(session, spec.target)
        if switch.asked:
            raise KeyboardInterrupt
        for observer in spec.observers:
            stack.callback(observer.stop)
            observer.start()
        if note is not None:
            for text in notes:
                note(text)
        told = _tell_notes(spec, note, [*spec.notes, *notes])
        watched = _Notes(note)
        monitor = stack.enter_context(_open_monitor(spec, len(steps), watched)) if spec.monitor else None
        with on_interrupt(switch), _open_store(spec, facts) as store:
            keep_rows(store.path, spec.dataset.ids, spec.dataset.rows, spec.dataset.lengths())
            if spec.resume is None:
                keep_plan(store.path, spec.levels, len(spec.dataset), spec.dataset)
            clocks = ClockLog.resumed(store.path / "clocks.parquet")
            clocks.take()
            alive = Alive.of(steps, read_levels(store.path))
            looking = None if spec.adaptive is not None else alive.after
            after = looking if proving is None else proving.after(store.path)
            sweep = Sweep(
                session,
                store,
                clocks,
                switch,
                seconds_to_ns(spec.load.drain_s),
                _describer(spec),
                progress,
                _boundary(spec),
                monitor,
                after,
                None if progress is None else SoFar(spec.slos, _nature(spec)),
                spec.load.wait_between_s,
                open_end=proving is not None,
            )
            done = finished_steps(store.path)
            over = proving is not None and spec.resume is not None and proving.is_over(store.path)
            waiting = [] if over else [step for step in steps if step.index not in done]
            sweep.run(waiting, _following(spec, store.path))
            clocks.take()
            clocks.write(store.path / "clocks.parquet")
            late = _keep_told(store)
    result = Result([store.path, *earlier], slos=spec.slos, users=spec.users)
    result.cancelled = switch.asked > 0
    if note is not None:
        for text in late:
            note(text)
    result.notes = _tell_notes(spec, note, [*told, *watched.texts, *late])
    if sweep.stopped is not None and proving is None:
        # A search has no planned levels.
        missing = len({step.index for step in steps} - {level.meta.get("step") for level in read_levels(store.path)})
        left = f"; {missing} of {len(steps)} levels {'was' if missing == 1 else 'were'} not run" if missing else ""
        who = "the run was ended" if alive.failed else "the run was ended by a rule"
        result.notes.append(f"{who}: {sweep.stopped.text}{left}")
        if note is not None:
            note(result.notes[-1])
    return result


def _keep_told(store: RunStore) -> list[str]:
    """Into ``run.json`` which addresses were used, and what became of the sources of samples.

    A disk that is full by now costs that and no more.
    """
    metas = [level.meta for level in read_levels(store.path)]
    found = {"addresses": addresses_of(metas), "sources": sources_of(metas)}
    try:
        if any(found.values()):
            store.add({name: value for name, value in found.items() if value})
    except StoreError as problem:
        return [f"run.json does not say which addresses were used and what sources lost, the levels do: {problem}"]
    return []


def _nature(spec: RunSpec) -> str | None:
    natures = {nature_of(target) for target in spec.target.public()}
    return natures.pop() if len(natures) == 1 else None


def _following(spec: RunSpec, path: Path) -> Callable[[], Step | None] | None:
    if spec.adaptive is None:
        return None
    from gpusize.measure.search_steps import Searching

    return Searching(spec, spec.adaptive, path)


def _early_notes(spec: RunSpec) -> list[str]:
    """What the user should know of the load before it begins.

    Raises:
        EnvironmentLacks: there are not as many ports as connections.
    """
    found = [*spec.load.notes(spec.dataset), cost_note(spec.levels, spec.load.sample_records)]
    if spec.adaptive is not None:
        found.append(_search_note(spec, spec.adaptive))
    if isinstance(spec.target, Target) and spec.hosts is None:
        places = [(each.host, each.port) for each in spec.target.addresses]
        found += source_notes(places, spec.load.source_addresses)
        found.append(allow_ports(spec.most_connections, places, spec.load.source_addresses))
    found += _missing_notes(spec)
    return [text for text in found if text is not None]


def _missing_notes(spec: RunSpec) -> list[str]:
    """What an estimate will lack, said before minutes of load are sent for it."""
    none = "no number of GPUs will be given"
    if spec.users is None:
        return []
    if not spec.slos:
        return [f"{none}: there is no SLO to size {spec.users:g} users for; add one, as --slo 'p95 runtime <= 10s'"]
    if not any(target.get("gpus") for target in spec.target.public()):
        return [f"{none}: GPU count unknown; pass --gpus N here or to gpusize estimate"]
    return []


def _search_note(spec: RunSpec, terms: Adaptive) -> str:
    """What a search is going to cost: nobody has named its levels."""
    slos = " and ".join(map(str, spec.slos))
    most = f"at most {terms.budget} {'of levels' if terms.time_s else 'requests'}" if terms.budget else DEFAULT_BUDGET
    if terms.money is not None and terms.time_s is not None:
        most = f"at most {terms.budget}, {format_duration(round(terms.time_s))} of levels on {terms.gpus} GPUs"
    return (
        f"searching for the highest load within {slos}, to {100 * terms.share:g} %: {most} (--budget); "
        "--no-adaptive sweeps instead"
    )


def run_info(spec: RunSpec) -> dict[str, str]:
    """Labels of ``gpusize_run_info``; one of the user's that is called as one of ours gets ``label_`` before it."""
    target = spec.target
    told: dict[str, str] = {}
    if isinstance(target, Target):
        place = target.addresses[0]
        told = {"api": str(target.api), "target": f"{place.host}:{place.port}", "model": target.asked_for or ""}
    own = {f"label_{name}" if name in told else name: value for name, value in spec.labels.items()}
    return {**own, **told}


class _Notes:
    """Passes notes on, and keeps them for the result: a program has nobody to tell meanwhile."""

    def __init__(self, note: Callable[[str], None] | None) -> None:
        self.texts: list[str] = []
        self._note = note

    def __call__(self, text: str) -> None:
        self.texts.append(text)
        if self._note is not None:
            self._note(text)


def _open_monitor(spec: RunSpec, levels: int, note: Callable[[str], None]) -> RunMonitor:
    return spec.monitor.open(run_info(spec), levels=levels, workers=spec.workers, note=note)


def _tell_notes(spec: RunSpec, note: Callable[[str], None] | None, told: list[str]) -> list[str]:
    """Tell what observers have noted since the last time; all that has been told."""
    new = [text for observer in spec.observers for text in observer.notes if text not in told]
    if note is not None:
        for text in new:
            note(text)
    return [*told, *dict.fromkeys(new)]


def _open_engine(spec: RunSpec, engine: Callable[..., AnyEngine]) -> AnyEngine:
    if isinstance(spec.target, WorkflowTarget):
        return spec.target.open(spec.dataset)
    target = spec.target
    # A server that passes the header on has the calls that it makes tied to the request that caused them.
    trace = any(isinstance(observer, LlmProxy) for observer in spec.observers)
    ready = prepare(target, spec.dataset, spec.api, load=spec.load, trace=trace)
    for url, endpoint in zip(target.replicas, ready.spec["replicas"], strict=True):
        alone = {**ready.spec, **endpoint, "replicas": []}
        with engine(alone, ready.segments, ready.rows[:1], workers=1) as one:
            probe(one, replace(target, url=url, replicas=()))
    return engine(ready.spec, ready.segments, ready.rows, workers=spec.workers, mix=ready.mix)


def _boundary(spec: RunSpec) -> Callable[[], None]:
    def boundary() -> None:
        for observer in spec.observers:
            observer.boundary()

    return boundary


def _describer(spec: RunSpec) -> Callable[[Step, LevelOutcome, Path, StopCause], dict[str, Any]]:
    lateness = None if spec.cluster is None else ClusterLateness(spec.cluster)
    secrets = spec.target.secret_words()

    def describe(step: Step, outcome: LevelOutcome, folder: Path, cause: StopCause) -> dict[str, Any]:
        level = judge_level(
            step.setting,
            _without_secrets(outcome, secrets),
            folder,
            max_error_share=spec.load.error_share,
            warmup_s=spec.load.warmup_s,
            cause=cause,
        )
        if step.search is not None and {"grow", "check"} & {step.search["why"], step.search.get("of")}:
            # It was made short on purpose: it only finds the way.
            level["alerts"] = [text for text in level["alerts"] if not text.startswith(TOO_SHORT)]
        for observer in spec.observers:
            facts = observer.level(folder, outcome["start_ns"], outcome["end_ns"])
            level["alerts"] += facts.pop("alerts", [])
            level |= facts
        if lateness is not None:
            late_s = lateness.p99_s()
            level["cluster_lateness_p99_s"] = late_s if math.isfinite(late_s) else None
            if late_s > max(LATE_FLOOR_S, CLUSTER_LATE_SHARE * (outcome["residence_ns"] or 0) / 1e9):
                what = "the level shows this machine, not the cluster's model"
                level["alerts"].append(f"the simulated cluster was late, p99 {late_s:.2g} s: {what}")
        return level

    return describe


def _without_secrets(outcome: LevelOutcome, secrets: Sequence[str]) -> LevelOutcome:
    errors = [{**error, "message": without_secrets(error["message"], secrets)} for error in outcome["errors"]]
    return cast("LevelOutcome", {**outcome, "errors": errors})


def _open_store(spec: RunSpec, facts: Mapping[str, Any]) -> RunStore:
    if spec.resume is None:
        return RunStore.create(spec.out, facts)
    store = RunStore.reopen(spec.resume)
    try:
        must_agree(store.run, facts, store.path)
        recover(store)
    except BaseException:
        store.close()
        raise
    return store
