"""Goes through the combinations of a study on the nodes of a Ray cluster, one at a time on each.

A combination is set up, measured and torn down on its node by what does so here. Two at the same time on one node would
disturb each other, so that each takes all of its node: Ray places nothing beside it. Two that send to one server which
is not on their node would too: they go one after the other. What a node has kept comes home into the study's folder.
"""

from __future__ import annotations

import contextlib
import pickle
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from gpusize.base.errors import UsageError
from gpusize.base.files import storing
from gpusize.base.on_ray import about
from gpusize.base.on_ray.connection import by_value, connected, ray_address
from gpusize.base.on_ray.tasks import ray_nodes
from gpusize.base.text import shown
from gpusize.base.urls import parse_url
from gpusize.options.inputs import addresses_of
from gpusize.studies import on_ray_node
from gpusize.studies.combination import Plan, plan_of
from gpusize.studies.conduct import Interrupts, StudyResult, begun_run
from gpusize.studies.state import StudyState
from gpusize.studies.task import Task, archived, unpack

if TYPE_CHECKING:
    from types import ModuleType

    from gpusize.studies.spec import Combination, Study

__all__ = ["next_of", "run_study_on_ray", "servers_of"]

NEEDS: Final = "gpusize.studies.one_combination"
TRIES: Final = 2
"""A combination whose node is lost is measured once more; whether it is to blame nobody knows."""
STARTS: Final = 5
"""A node on which our actor is lost so often is left alone."""
CALLS: Final = 4
"""Calls of an actor at a time: one measures, others stop it."""
PIECE: Final = 16 << 20
STEP_S: Final = 0.2
SAY_AFTER_S: Final = 10.0


def run_study_on_ray(
    study: Study,
    address: str,
    *,
    resume: bool = False,
    command: Sequence[str] = (),
    say: Callable[[str], None] | None = None,
) -> StudyResult:
    """As `gpusize.studies.conduct.run_study`, with as many combinations at a time as a Ray cluster has nodes.

    Args:
        study: what to do. Its commands, paths and variables are looked for on each node, in the folder of this name.
        address: of the Ray cluster, or ``auto``.
        resume: as there.
        command: as there.
        say: as there.

    Raises:
        UsageError: something in the study is invalid, or it is none for a cluster; nothing has been started then.
        StoreError: ``study.json`` cannot be written.
        EnvironmentLacks: there is no Ray, no such cluster, no CPU in it, or another gpusize on it.
    """
    plans = {each.name: plan_of(study, each) for each in study.combinations}
    for plan in plans.values():
        if plan.run.get("hosts") is not None:
            todo = "leave --ray out: its runs then go one after the other, each from its hosts"
            raise UsageError("the runs of this study have hosts of their own", study.document.where("run"), todo)
    tell = say or (lambda _: None)
    with Interrupts() as interrupts, contextlib.ExitStack() as stack:
        with interrupts.raising():
            ray = stack.enter_context(connected(ray_address(address)))
            nodes = ray_nodes(ray, NEEDS)
        state = StudyState.open(study, resume=resume)
        for each in study.combinations:
            if state.is_done(each):
                tell(f"{each.name}: done before")
        with _Cluster(ray, nodes, tell) as cluster:
            _Conductor(study, state, plans, cluster, interrupts, tell, tuple(command)).go()
        cancelled = interrupts.asked > 0
    entries = {each.name: state.entries[each.name] for each in study.combinations}
    return StudyResult(study.out, entries, cancelled)


def servers_of(plan: Plan) -> frozenset[str]:
    """The machines, not that of the load, which a combination sends to: no two send to one of them at a time."""
    found = set()
    for options in (plan.warmup or {}, plan.run):
        for name in ("url", "llm_proxy"):
            for each in addresses_of(options[name]) if options.get(name) else ():
                address = parse_url(each if "://" in each else f"http://{each}")
                if not address.is_loopback:
                    found.add(address.host)
    return frozenset(found)


def next_of(waiting: Sequence[Plan], running: Sequence[Plan]) -> Plan | None:
    """The first of those that wait whose servers none of those that run sends to; None where there is none."""
    busy = frozenset[str]().union(*(servers_of(each) for each in running))
    return next((each for each in waiting if not servers_of(each) & busy), None)


@dataclass(eq=False)
class _Node:
    """A node of the cluster.

    Attributes:
        name: its address.
        facts: as Ray tells of it.
        actor: ours there; None while there is none.
        plan: what it measures; None while it is free.
        call: Ray's reference to what it is at.
        starts: how often an actor was asked for.
    """

    name: str
    facts: Mapping[str, Any]
    actor: Any = None
    plan: Plan | None = None
    call: Any = None
    starts: int = 0


class _Cluster:
    """An actor of ours on every node that has its CPUs free; none is left when the block is over.

    Args:
        ray: the package.
        nodes: as `ray_nodes` gives them.
        tell: told which nodes are waited for.
    """

    def __init__(self, ray: ModuleType, nodes: Sequence[Mapping[str, Any]], tell: Callable[[str], None]) -> None:
        self.ray, self._tell = ray, tell
        self.nodes = [_Node(str(each["NodeManagerAddress"]), each) for each in nodes]
        self._began_s, self._said = time.monotonic(), False

    def __enter__(self) -> Self:
        for node in self.nodes:
            self._start(node)
        return self

    def __exit__(self, *_: object) -> None:
        # Programs of theirs that still run see that they are gone, and tear down.
        for node in self.nodes:
            if node.actor is not None:
                self.ray.kill(node.actor, no_restart=True)

    def _start(self, node: _Node) -> None:
        """Ask for an actor there: it comes when no other work of Ray's is on the node."""
        ray, resources = self.ray, node.facts["Resources"]
        on_node = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node.facts["NodeID"], soft=False)
        all_of_it = {"num_cpus": resources["CPU"], "num_gpus": resources.get("GPU", 0)}
        with by_value(ray, on_ray_node, about):
            made = ray.remote(max_restarts=0, max_task_retries=0, max_concurrency=CALLS, **all_of_it)
            node.starts += 1
            node.actor = made(on_ray_node.GpusizeStudy).options(scheduling_strategy=on_node).remote()
        node.plan, node.call = None, node.actor.about.remote()

    def ended(self) -> list[_Node]:
        """Nodes that have done what they were asked, of those that were; waits a moment for some."""
        calls = {node.call: node for node in self.nodes if node.call is not None}
        if not calls:
            return []
        ready, _ = self.ray.wait(list(calls), num_returns=1, timeout=STEP_S)
        return [calls[each] for each in ready]

    def answer(self, node: _Node) -> Any:
        """What it was asked; None, and the node is given up, where it is lost."""
        call, node.call = node.call, None
        try:
            return self.ray.get(call)
        except self.ray.exceptions.RayError as error:
            self.give_up(node, str(error))
            return None

    def give_up(self, node: _Node, why: str) -> None:
        """The node is lost, or our actor there; another one is asked for, which comes where the node is there."""
        line = next((line for line in why.splitlines() if line.strip()), "nobody knows why")
        self._tell(f"{node.name} was lost: {shown(line, 200)}")
        alive = {each["NodeID"] for each in self.ray.nodes() if each["Alive"]}
        if node.facts["NodeID"] in alive and node.starts < STARTS:
            self._start(node)
        else:
            self.nodes.remove(node)

    def say_busy(self) -> None:
        """Name, once, nodes on which other work runs."""
        late = [node.name for node in self.nodes if node.call is not None and node.plan is None]
        if late and not self._said and time.monotonic() - self._began_s > SAY_AFTER_S:
            self._said = True
            self._tell(f"other work is on {', '.join(late)}: a combination takes all CPUs of its node, and waits")


@dataclass
class _Conductor:
    study: Study
    state: StudyState
    plans: Mapping[str, Plan]
    cluster: _Cluster
    interrupts: Interrupts
    tell: Callable[[str], None]
    command: tuple[str, ...]
    tries: dict[str, int] = field(default_factory=dict)
    asked: int = 0

    def go(self) -> None:
        """Measure what is not done yet."""
        waiting = [self.plans[each.name] for each in self.study.combinations if not self.state.is_done(each)]
        while True:
            self._pass_on()
            running = [node for node in self.cluster.nodes if node.plan is not None]
            if not running and (self.interrupts.asked or not waiting):
                return
            if not self.cluster.nodes:
                for plan in waiting:
                    self._fail(plan, "no node of the Ray cluster is left")
                return
            if not self.interrupts.asked:
                self._begin(waiting)
            for node in self.cluster.ended():
                measured = node.plan
                found = self.cluster.answer(node)
                node.plan = None
                if measured is not None and (found is None or not self._take(node, measured, found)):
                    self._lost(node, measured, waiting)
            self.cluster.say_busy()

    def _pass_on(self) -> None:
        """Every Ctrl-C goes on to all that measure."""
        asked = self.interrupts.asked
        for _ in range(asked - self.asked):
            for node in self.cluster.nodes:
                if node.plan is not None:
                    node.actor.stop.remote()
        self.asked = asked

    def _begin(self, waiting: list[Plan]) -> None:
        for node in self.cluster.nodes:
            running = [each.plan for each in self.cluster.nodes if each.plan is not None]
            plan = next_of(waiting, running) if node.call is None else None
            if plan is None:
                continue
            waiting.remove(plan)
            name = plan.combination.name
            number = list(self.plans).index(name) + 1
            self.tell(f"{name}: {number} of {len(self.plans)}, on {node.name}")
            begun = begun_run(self.study.out, plan)
            self.state.begin(plan.combination)
            self.tries[name] = self.tries.get(name, 0) + 1
            study = replace(self.study, combinations=(plan.combination,))
            kept = [begun.name, f"work/{name}"] if begun is not None else []
            task = Task(study, str(Path.cwd()), self.command, archived(self.study.out, kept))
            node.plan, node.call = plan, node.actor.measure.remote(pickle.dumps(task))

    def _take(self, node: _Node, plan: Plan, found: Mapping[str, Any]) -> bool:
        """Bring home what a node has kept of a combination; whether it was still there."""
        combination = plan.combination
        if "died" in found:
            self._fail(plan, f"on {node.name}: {found['died']}")
            return True
        try:
            with _unpacked(self._pieces(node, int(found["size"])), self.study.out) as folder:
                self._settle(folder, combination)
        except self.cluster.ray.exceptions.RayError as error:
            self.cluster.give_up(node, str(error))
            return False
        # It has the next one when it has cleaned up.
        node.call = node.actor.dismiss.remote()
        here, there = str(self.study.out.absolute()), str(found["study"])
        facts = {
            name: value.replace(there, here) if isinstance(value, str) else value
            for name, value in found["entry"].items()
        }
        self.state.change(combination, **{"ended_s": time.time(), **facts, "node": node.name})
        quiet = (f"{combination.name}: 1 of 1", f"{combination.name}: teardown")
        for note in found["notes"]:
            if note not in quiet:
                self.tell(note.replace(there, here))
        return True

    def _pieces(self, node: _Node, size: int) -> Iterator[bytes]:
        for at in range(0, size, PIECE):
            yield self.cluster.ray.get(node.actor.read.remote(at, PIECE))

    def _settle(self, folder: Path, combination: Combination) -> None:
        """Put what came home into its place, in which an earlier try may be."""
        work = folder / "work" / combination.name
        moves = [(each, self.study.out / each.name) for each in folder.iterdir() if each.name != "work"]
        if work.exists():
            moves.append((work, self.study.out / "work" / combination.name))
        for source, goal in moves:
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(goal, ignore_errors=True)
            source.rename(goal)

    def _lost(self, node: _Node, plan: Plan, waiting: list[Plan]) -> None:
        name = plan.combination.name
        if self.interrupts.asked or self.tries[name] >= TRIES:
            self._fail(plan, f"{node.name} was lost while it was measured there")
            return
        self.tell(f"{name}: it is measured again")
        waiting.insert(0, plan)

    def _fail(self, plan: Plan, why: str) -> None:
        if self.state.entries[plan.combination.name].get("state") != "running":
            self.state.begin(plan.combination)
        self.state.change(plan.combination, state="failed", error=why, ended_s=time.time())
        self.tell(f"{plan.combination.name}: {why}")


@contextlib.contextmanager
def _unpacked(pieces: Iterator[bytes], out: Path) -> Iterator[Path]:
    """A tar in pieces as a folder, on the disk of the study's."""
    with tempfile.TemporaryDirectory(prefix=".home-", dir=out) as name:
        packed, folder = Path(name) / "kept.tar", Path(name) / "kept"
        with packed.open("wb") as sink:
            for piece in pieces:
                sink.write(piece)
        with storing(out):
            unpack(packed, folder)
        yield folder
