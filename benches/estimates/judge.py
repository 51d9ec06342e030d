"""Runs estimators on scenarios and holds their answers against the truth."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from benches.estimates.families import FAMILIES, MECHANISMS
from benches.estimates.foreign import worlds_program
from benches.estimates.methods import METHODS
from benches.estimates.oracle import oracle
from benches.estimates.probe import Probe
from benches.estimates.scenario import Scenario
from benches.estimates.truth import NoTruth, Truth, truth
from benches.lib.context import say
from gpusize.base.on_ray.tasks import tasks_on_ray
from gpusize.estimate.methods import Estimate

__all__ = ["ORACLE", "Outcome", "Task", "judge", "run_all"]

ORACLE = "oracle"

_REASONS: Mapping[str, Sequence[str]] = {
    "single": ("single request", "alone", "smallest load", "idle"),
    "flat": ("never near", "flat", "keeps the slo", "keep the slo", "beyond what was measured"),
    "never": ("no number", "slow each other", "never reach", "peak"),
}
"""What a reason must speak of, where an estimate does not say it in ``details["refusal"]``."""


@dataclass(frozen=True)
class Task:
    """One scenario for a worker.

    Attributes:
        seed: of the draw.
        number: of the scenario.
        methods: who answers.
        requests: the least budget; None: as the scenario has it.
        family: that the scenario is of.
    """

    seed: int
    number: int
    methods: tuple[str, ...]
    requests: int | None = None
    family: str = MECHANISMS


@dataclass(frozen=True)
class Outcome:
    """How one estimator did on one scenario; counts are replicas.

    Attributes:
        scenario: its name.
        method: who answered.
        kind: the mechanism.
        traits: what else is special about the scenario, its load and its question.
        expects: ``answer``, or why there is none.
        n: the truth.
        right: what counts as right.
        raw: the unrounded truth.
        raw_error: its own relative standard error.
        answer: what was answered.
        answer_raw: unrounded.
        low: fewer are not enough.
        high: more are not needed.
        raw_low: interval of the unrounded count.
        raw_high: the same.
        reason: why there is no answer.
        right_reason: whether that is the right one.
        spent: requests.
        budget: requests that might have been.
        cpu_s: seconds that the estimator took in this process.
        crash: the traceback, where it raised.
    """

    scenario: str
    method: str
    kind: str
    traits: tuple[str, ...]
    expects: str
    n: int | None
    right: tuple[int, ...]
    raw: float | None
    raw_error: float | None
    answer: float | None
    answer_raw: float | None
    low: float | None
    high: float | None
    raw_low: float | None
    raw_high: float | None
    reason: str | None
    right_reason: bool
    spent: int
    budget: int
    cpu_s: float
    crash: str | None = None

    @property
    def exact(self) -> bool:
        """Whether the answer is the truth or tied with it."""
        return self.answer in self.right

    @property
    def off(self) -> float | None:
        """Replicas from the nearest right number, signed; None without an answer."""
        if self.answer is None or not self.right:
            return None
        answer = self.answer
        return min((answer - each for each in self.right), key=abs)


def run_all(tasks: Sequence[Task], jobs: int, ray: str | None = None) -> Iterator[list[Outcome]]:
    """The outcomes of each task, in order; from processes of this machine, or of a Ray cluster at that address."""
    worlds_program()
    if ray is not None:
        with tasks_on_ray(ray, "gpusize.estimate.methods", say) as cluster:
            yield from cluster.map(judge, tasks)
        return
    if jobs <= 1:
        yield from map(judge, tasks)
        return
    # One core each: Polars must not start a thread per core in every worker.
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        yield from pool.map(judge, tasks, chunksize=2)


def judge(task: Task) -> list[Outcome]:
    """All methods on one scenario; nothing where it has no truth."""
    [scenario] = FAMILIES[task.family].draw(task.seed, 1, first=task.number)
    try:
        known = truth(scenario)
    except NoTruth:
        return []
    budget = max(scenario.budget, task.requests or 0)
    return [_outcome(scenario, known, method, budget) for method in task.methods]


def _outcome(scenario: Scenario, known: Truth, method: str, budget: int) -> Outcome:
    seed, number = map(int, scenario.name.split("/"))
    probe = Probe(scenario, 10_000 * seed + number, budget)
    start_s = time.process_time()
    crash = None
    try:
        if method == ORACLE:
            found = oracle(probe, scenario.visible, known)
        else:
            found = METHODS[method](probe, scenario.visible, budget)
    except Exception:  # noqa: BLE001 - one estimator's fault must not end the others' judgement
        crash = traceback.format_exc(limit=-3)
        found = Estimate(method, 0, scenario.visible.load, reason="crashed")
    each = scenario.visible.gpus_per_replica
    raw_low, raw_high = _raw_interval(found)
    return Outcome(
        scenario=scenario.name,
        method=method,
        kind=scenario.kind,
        traits=_traits(scenario),
        expects=scenario.expects,
        n=known.n,
        right=known.right,
        raw=known.gpus_raw,
        raw_error=known.raw_error,
        answer=_per(found.gpus, each),
        answer_raw=_per(found.gpus_raw, each) if found.gpus is not None else None,
        low=_per(found.gpus_low, each),
        high=_per(found.gpus_high, each),
        raw_low=_per(raw_low, each),
        raw_high=_per(raw_high, each),
        reason=found.reason,
        right_reason=known.n is None if method == ORACLE else _right_reason(scenario, found),
        spent=probe.spent,
        budget=budget,
        cpu_s=time.process_time() - start_s,
        crash=crash,
    )


def _raw_interval(found: Estimate) -> tuple[Any, Any]:
    """The interval of the unrounded count, where the estimate has one."""
    low, high = (getattr(found, name, None) for name in ("gpus_raw_low", "gpus_raw_high"))
    interval = found.details.get("raw_interval")
    return (low, high) if interval is None else tuple(interval)


def _per(value: float | None, each: int) -> float | None:
    return None if value is None else value / each


def _traits(scenario: Scenario) -> tuple[str, ...]:
    visible = scenario.visible
    loop = "open loop" if visible.users is None else "closed loop"
    think = () if visible.think == "none" else (f"think {visible.think}",)
    return (*scenario.traits, loop, visible.router.replace("_", " "), *think)


def _right_reason(scenario: Scenario, found: Estimate) -> bool:
    if found.gpus is not None or scenario.expects == "answer":
        return False
    said = found.details.get("refusal")
    if said is not None:
        return bool(said == scenario.expects)
    return any(words in (found.reason or "").lower() for words in _REASONS[scenario.expects])
