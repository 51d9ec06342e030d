"""Everything that a run is made of, and what must be equal for two runs to have measured the same thing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import UsageError
from gpusize.base.numeric import within
from gpusize.engine.limits import allowed_connections
from gpusize.engine.workers import chosen_workers, is_local, peak_rate
from gpusize.estimate.search.terms import Adaptive, cannot_search
from gpusize.measure.encode import model_names
from gpusize.measure.mix import dealt, streamed, streamed_rows
from gpusize.measure.monitor.options import MonitorOptions
from gpusize.measure.sweep import Step
from gpusize.records.run_json import nature_of, run_facts, what_differs
from gpusize.records.store import find_runs, read_run
from gpusize.targets.apis.kserve import is_kserve
from gpusize.targets.server import Target
from gpusize.targets.simulated.cluster import SimulatedCluster
from gpusize.targets.workflow.target import WorkflowTarget
from gpusize.workload.dataset import Dataset
from gpusize.workload.load import Load

if TYPE_CHECKING:
    from gpusize.analysis.slo import Slo
    from gpusize.engine.hosts.head import HostsOptions
    from gpusize.observe.observer import Observer
    from gpusize.targets.apis import Api
    from gpusize.workload.load.levels import Level

__all__ = ["RunSpec", "earlier_runs", "must_agree"]

MOST_CORES: Final = 1024
"""Of a host that is not asked."""


@dataclass(frozen=True)
class RunSpec:
    """Everything that a run is made of; `gpusize.options.run_spec.run_spec` makes it, whoever asks.

    Attributes:
        target: where to send.
        dataset: what to send; where the target names several models, its rows are dealt out to them.
        load: how hard.
        slos: what the levels are judged by.
        users: what to size for.
        out: the folder of runs.
        labels: what tells this run from others.
        append: whether the result includes the earlier runs in ``out``.
        resume: a run folder to go on with, instead of a new run.
        cluster: the simulated cluster behind the target, if it is one.
        observers: what else is measured while the load runs.
        api: what encodes the rows, where it had to be made beforehand.
        names: the addresses as the user named them, where others are sent to.
        command: the command line, without secrets.
        options: further options for ``run.json``, as ``--config`` takes them.
        monitor: what looks at the run while it goes on: rules that end it, its own metrics.
        adaptive: what a search for the capacity is asked for; None for the levels of the load.
        notes: what the user should know before the run.
        hosts: what a head asks of the hosts that send; None where this machine alone does.
    """

    target: Target | WorkflowTarget
    dataset: Dataset
    load: Load
    slos: tuple[Slo, ...] = ()
    users: float | None = None
    out: Path = Path("runs")
    labels: Mapping[str, str] = field(default_factory=dict)
    append: bool = False
    resume: Path | None = None
    cluster: SimulatedCluster | None = None
    observers: Sequence[Observer] = ()
    api: Api | None = None
    names: Sequence[str] = ()
    command: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    monitor: MonitorOptions = field(default_factory=MonitorOptions)
    adaptive: Adaptive | None = None
    notes: Sequence[str] = ()
    hosts: HostsOptions | None = None

    def __post_init__(self) -> None:
        if self.users is not None:
            within("users", self.users)
        if self.append and self.resume is not None:
            raise UsageError("append and resume are both given", "resume", "a resumed run goes on in its own folder")
        if self.adaptive is not None:
            self._check_search()
        if self.load.kind == "closed" and any(rule.kind == "saturation" for rule in self.monitor.rules):
            todo = "leave the rule out; the summary says from which concurrency on the throughput no longer grows"
            raise UsageError(
                "saturation shows only at a rate: with a fixed number of users no queue grows", "stop rules", todo
            )
        target = self.target
        if any(each.rows for each in self.load.streams):
            # Put together already: this is a copy of a specification.
            return
        if self.load.streams:
            if isinstance(target, Target):
                target, dataset, load = streamed(target, self.dataset, self.load)
            else:
                dataset, load = streamed_rows(self.dataset, self.load)
            for name, value in (("target", target), ("dataset", dataset), ("load", load)):
                object.__setattr__(self, name, value)
            return
        # A KServe API was asked about each model: its rows are dealt out already.
        if isinstance(target, Target) and len(target.models) > 1 and not is_kserve(target.api):
            object.__setattr__(self, "dataset", dealt(self.dataset, target.models))

    def _check_search(self) -> None:
        """Refuse a search beside what says the levels, or for what requests do not tell."""
        load = self.load
        todo = "leave it out: the search chooses the levels and how long they are, --budget bounds them all"
        ends = next((name for name in ("passes", "count", "duration_s") if getattr(load, name) is not None), None)
        if load.kind != "closed" or load.names_way or ends:
            raise UsageError("a search and a load of its own levels are both given", ends or "load", todo)
        if load.sample_records > 1:
            todo = "leave --sample-records out: a search sends as few requests as it can"
            raise UsageError("a search needs every record", "sample_records", todo)
        if self.hosts is not None and self.hosts.one_in > 1:
            todo = "leave --records remote out: a search sends as few requests as it can"
            raise UsageError("a search needs every record", "records", todo)
        problem = cannot_search(self.slos)
        if problem is not None:
            raise problem

    @property
    def natures(self) -> list[str | None]:
        """What a request to each target is; None for a workflow."""
        return [nature_of(each) for each in self.target.public()]

    @property
    def most_connections(self) -> int:
        """Connections that may be open at once; of a search as many as it may, and the system lets it, ask for."""
        if self.adaptive is None:
            return self.load.most_connections
        return allowed_connections(self.adaptive.most_users)

    def facts(self) -> dict[str, Any]:
        """The contents of ``run.json``."""
        target = self.target.options()
        if self.cluster is not None:
            # The port is another one each time, and without an address the next run starts a cluster of its own.
            target.pop("url")
        simulated = None if self.cluster is None else self.cluster.config
        if self.names:
            target["url"] = list(self.names)
        asked: dict[str, Any] = {
            "slo": [str(slo) for slo in self.slos],
            "users": self.users,
            "label": dict(self.labels),
        }
        given = {name: value for name, value in asked.items() if value}
        load = self.load.options()
        if self.adaptive is not None:
            load = {
                **{name: value for name, value in load.items() if name != "concurrencies"},
                **self.adaptive.options(),
            }
        facts = run_facts(
            command=self.command,
            options={**target, **self.dataset.options(), **load, **given, **self.options},
            targets=[
                {**replica, "simulated": simulated, **({"url": name} if name else {})}
                for replica, name in zip_longest(self.target.public(), self.names)
            ],
            models=model_names(self.target, self.dataset),
            dataset=self.dataset.public(),
            labels=self.labels,
            seed=self.load.seed,
            levels=[each.setting for each in self.levels],
        )
        return facts if self.adaptive is None else {**facts, "adaptive": self.adaptive.facts()}

    @property
    def levels(self) -> list[Level]:
        """The planned levels, in order; a search plans none beforehand."""
        return [] if self.adaptive is not None else self.load.levels(self.dataset)

    @property
    def workers(self) -> int:
        """Threads that send: those asked for, or as many as the load needs; of many hosts those of each."""
        if self.load.workers is not None:
            return self.load.workers
        if self.hosts is not None:
            # Each host has at most the cores that it has; the target is none of them.
            rate, count = peak_rate(each.setting for each in self.levels), self.hosts.count
            in_flight = math.ceil(self.most_connections / count)
            return chosen_workers(None if rate is None else rate / count, in_flight, local=False, cores=MOST_CORES)
        hosts = [] if isinstance(self.target, WorkflowTarget) else [url.host for url in self.target.addresses]
        rate = peak_rate(each.setting for each in self.levels)
        return chosen_workers(rate, self.most_connections, local=any(map(is_local, hosts)))

    def steps(self) -> list[Step]:
        """The planned levels as steps of a sweep."""
        return [Step(index, each.setting, each.plan, each.arrays()) for index, each in enumerate(self.levels)]


def _planned(run: Mapping[str, Any]) -> dict[str, Any]:
    return {"sweep": run.get("levels"), "search": run.get("adaptive"), "seed": run.get("seed")}


def must_agree(known: Mapping[str, Any], facts: Mapping[str, Any], where: Path) -> None:
    """A resumed run goes on with what it began with.

    Raises:
        UsageError: something else is asked for now.
    """
    mine, theirs = _planned(facts), _planned(known)
    found = what_differs(facts, known) or next((name for name in mine if mine[name] != theirs[name]), None)
    if found is not None:
        todo = "resume with the same, or start anew"
        raise UsageError(f"the {found} differs from that of the run to be resumed", str(where), todo)


def earlier_runs(spec: RunSpec, facts: Mapping[str, Any]) -> list[Path]:
    """The runs in ``out`` that the result is to include.

    Raises:
        UsageError: one of them measured something else.
    """
    found = find_runs(spec.out) if any(spec.out.glob("*/run.json")) else []
    for path in found:
        differs = what_differs(facts, read_run(path))
        if differs is not None:
            raise UsageError(
                f"an earlier run has another {differs}, so it cannot be appended to", str(path), "choose another --out"
            )
    return found
