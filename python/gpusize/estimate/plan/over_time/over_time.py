"""GPUs over time: how many replicas a trace needs from minute to minute, what they cost, and who is served in time.

    1  fit           a replica, as the twin method fits it
    2  capacities    the largest rate that 1, 2, ... replicas carry within the SLOs
    3  schedules     from the rates of the trace's windows: static for the largest, planned, reactive
    4  judgement     the whole trace, simulated request by request on replicas that come and go

docs/reference/over-time.md has the rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import UsageError
from gpusize.estimate.plan.autoscale.elasticity import elasticity
from gpusize.estimate.plan.over_time.doubt import AS_FITTED, Doubt, no_more_than_seen
from gpusize.estimate.plan.over_time.policies import (
    POLICIES,
    ScalingRules,
    Schedule,
    bounded,
    planned,
    reactive,
    recent,
    windows,
)
from gpusize.estimate.plan.over_time.types import Course, OverTime
from gpusize.estimate.plan.over_time.words import bounds, too_much, unlike
from gpusize.estimate.question import gpus_text
from gpusize.estimate.twin.method import LINEAR_ASSUMED, MODELS, Fitted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.analysis.level import LevelData
    from gpusize.analysis.slo import Slo
    from gpusize.estimate.plan.autoscale.autoscaler import Autoscaler
    from gpusize.estimate.plan.over_time.capacity import Capacities
    from gpusize.estimate.plan.over_time.demand import Demand
    from gpusize.estimate.plan.over_time.simulate import Decided, Served
    from gpusize.estimate.question import Question
    from gpusize.estimate.twin.fewest_replicas import Counter
    from gpusize.estimate.twin.simulate import Replica
    from gpusize.estimate.twin.sizing import Model

__all__ = ["LENGTHS", "NO_LENGTHS", "Need", "Planner", "Progress", "over_time", "planner"]

Progress = Callable[[str], None]

LENGTHS: Final = ("trace", "run")
NO_LENGTHS: Final = (
    "the trace's lengths were asked for, but not every request of it has tokens: "
    "requests are as long as the measured ones"
)
MOST_LENGTHS: Final = 200_000
"""So many of a trace's lengths are drawn from where a rate is simulated."""
SCALED: Final = (
    "autoscalers: the HPA decides by the rules of Kubernetes 1.37, KEDA by those of 2.20, from metrics that are "
    "scraped; a removed replica finishes what it has"
)
FRONTED: Final = (
    "without replicas: a gateway in front holds requests until one is ready and hands over all of them at once, or "
    "refuses them"
)
OFF: Final = 0.05
"""A model that is further off is warned of."""
NS_PER_S: Final = 1e9


def over_time(
    levels: Iterable[LevelData],
    question: Question,
    demand: Demand,
    rules: ScalingRules | None = None,
    *,
    policies: Sequence[str] = POLICIES,
    autoscalers: Sequence[Autoscaler] = (),
    lengths: str | None = None,
    allow: Collection[str] = (),
    seed: int = 1,
    progress: Progress | None = None,
) -> OverTime:
    """Replicas over time for the requests of a trace, against as many as its largest window needs all the time.

    Args:
        levels: of one or several runs, as ``estimate`` takes them for the twin method.
        question: the SLOs (upper bounds on percentiles of requests' times; all must be met), the router, how requests
            come within a window, and GPUs; at any rate: the trace's stands for it.
        demand: the requests.
        rules: how replicas come and go.
        policies: of ``planned`` (arrivals are known) and ``reactive`` (only what has come is seen).
        autoscalers: policies of autoscalers that are simulated with their signals; of ``rules`` only the start delay
            holds for them.
        lengths: ``trace`` for the tokens that the trace has, with a warning where it has none; ``run`` for those that
            were measured; None for the trace's where it has them.
        allow: what may differ between runs: ``targets``, ``models``, ``dataset``.
        seed: key of the draws of the simulated trace.
        progress: told in words what is done next.

    Returns:
        Schedules with what became of the requests; or a ``reason`` where there is none.

    Raises:
        UsageError: SLOs that cannot be judged over time, an unknown policy, runs that cannot be compared, replicas
            of another number of GPUs than was measured.
    """
    for each in policies:
        _check_word("policy", POLICIES, each)
    found = planner(levels, question, demand, rules, lengths=lengths, allow=allow, seed=seed, progress=progress)
    return found if isinstance(found, OverTime) else found.answer(policies, autoscalers)


def planner(
    levels: Iterable[LevelData],
    question: Question,
    demand: Demand,
    rules: ScalingRules | None = None,
    *,
    lengths: str | None = None,
    allow: Collection[str] = (),
    seed: int = 1,
    progress: Progress | None = None,
) -> Planner | OverTime:
    """A replica fitted to what was measured, ready to serve the trace; or an answer with the reason why there is none.

    Arguments and errors are those of ``over_time``.
    """
    from gpusize.estimate.methods import comparable

    rules, slos = rules or ScalingRules(), tuple(question.slos)
    _check(slos)
    _check_word("lengths", (*LENGTHS, None), lengths)
    found = comparable(levels, question, allow=allow)
    edges, rates = windows(demand.due_ns, round(demand.duration_s * NS_PER_S), rules.window_s)
    base = OverTime(demand.source, demand.due_ns.size, demand.duration_s, rules, slos, edges, rates)
    base = replace(base, together=question.together and len(slos) > 1, warnings=(*found.warnings, *demand.notes))
    if lengths == "trace" and demand.tokens is None:
        base = replace(base, warnings=(NO_LENGTHS, *base.warnings))
    if found.reason is not None:
        return replace(base, reason=found.reason)
    say = progress or _nothing
    say("fitting a replica")
    fitted = Fitted(found.levels, question)
    follows = lengths != "run" and demand.tokens is not None
    model = fitted.model(question, lengths=follows)
    if question.gpus_per_replica not in (1, fitted.replica_gpus):
        what = f"{gpus_text(fitted.replica_gpus)} were measured as one replica, not {question.gpus_per_replica}"
        raise UsageError(what, "gpus_per_replica", "leave it out: replicas over time are like the measured one")
    base = replace(base, replica_gpus=fitted.replica_gpus, warnings=(*fitted.warnings, *base.warnings))
    if isinstance(model, str):
        model = f"{model}; {found.left}" if found.left else model
        # At a rate beyond any, it says where to measure instead of that one replica is enough.
        follow = fitted.answer(replace(question, rate=1e12)).next_levels
        return replace(base, reason=model, next_levels=follow)
    return Planner(base, model, demand, question, lengths, seed, say)


@dataclass(frozen=True, eq=False)
class Need:
    """The replicas that a trace needs.

    Attributes:
        edges_ns: of the windows, shape (n + 1,).
        replicas: that each window needs, shape (n,).
        carried: requests per second that 1, 2, ... replicas carry, leaning to the safe side.
        assumptions: what must hold for them to hold.
        warnings: what weakens them.
    """

    edges_ns: NDArray[np.int64]
    replicas: NDArray[np.int64]
    carried: NDArray[np.float64]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Sized:
    """What replicas carry, by what factor rates are taken for larger, and the largest window's own replicas."""

    base: OverTime
    carried: Capacities
    caution: float
    at_peak: Counter
    replicas: int
    less: float
    more: float

    def needed(self) -> NDArray[np.int64]:
        """The replicas that each window needs: none where nothing comes."""
        rates = self.base.rates
        return self.carried.needed(self.caution * rates) * (rates > 0)


class Planner:
    """One trace on one fitted replica, as ``planner`` makes it."""

    def __init__(
        self,
        base: OverTime,
        model: Model,
        demand: Demand,
        question: Question,
        lengths: str | None,
        seed: int,
        say: Progress,
    ) -> None:
        from gpusize.estimate.plan.over_time.simulate import with_lengths
        from gpusize.estimate.twin.fewest_replicas import Counter
        from gpusize.estimate.twin.load import ClusterLoad
        from gpusize.estimate.twin.simulate import Batching

        self._model, self._router, self._seed, self._say = model, question.router, seed, say
        self._replica = measured = model.fit.replica
        self._demand = demand if lengths != "run" else replace(demand, tokens=None)
        assumptions, warnings = [], []
        tokens = self._demand.tokens
        if tokens is not None and isinstance(measured, Batching):
            thinned = tokens[:, :: -(-tokens.shape[1] // MOST_LENGTHS)]
            self._replica = with_lengths(measured, thinned)
            assumptions.append("requests are as long as the trace says, at the costs that were fitted to the run's")
            warnings += unlike(measured, tokens)
        else:
            ignored = ", whatever the trace says of them" if demand.tokens is not None else ""
            assumptions.append(f"requests are as long as the measured ones{ignored}")
            if tokens is not None:
                warnings.append("the trace's lengths are not looked at: no model of them repeats what was measured")
        self._counter = Counter(
            self._replica, ClusterLoad(None, 1.0, question.process, router=question.router), model.targets, model.loss
        )
        if model.fit.distance > OFF:
            warnings.append(
                f"the model's times differ from the measured ones by {model.fit.distance:.0%} near the capacity, "
                "beyond chance"
            )
        text = MODELS[model.fit.name]
        several = bool(model.loss.counts)
        self._base = replace(
            base,
            model=model.fit.name,
            assumptions=(
                "all replicas are like the measured one",
                text,
                *(() if several else (LINEAR_ASSUMED,)),
                *assumptions,
            ),
            warnings=(*base.warnings, *warnings),
        )

    def __getstate__(self) -> dict[str, Any]:
        """For another process, where nobody is told anything."""
        return {**self.__dict__, "_say": _nothing}

    @property
    def demand(self) -> Demand:
        """The requests."""
        return self._demand

    @property
    def replica_gpus(self) -> int:
        """GPUs of a replica: those that were measured as one."""
        return self._base.replica_gpus

    def needed(self) -> Need | OverTime:
        """The replicas that each window needs; or an answer with the ``reason`` why nobody knows."""
        found = self._sized(float(self._base.rates.max()))
        if isinstance(found, OverTime):
            return found
        base = found.base
        return Need(
            base.edges_ns,
            found.needed(),
            found.carried.carried / found.caution,
            tuple(base.assumptions),
            tuple(base.warnings),
        )

    def _sized(self, most: float) -> _Sized | OverTime:
        """What replicas carry, up to so many requests per second and as much more as caution asks for."""
        from gpusize.estimate.plan.over_time.capacity import capacities

        self._say(f"looking for what replicas carry, up to {most:.3g} requests/s")
        carried = capacities(self._counter, most)
        base = replace(self._base, capacities=carried)
        if carried.most < most:
            return replace(base, reason=too_much(carried, most, self._model.loss.most))
        at_peak = replace(self._counter, asked=self._counter.asked.of(float(base.rates.max())))
        replicas = int(carried.needed(base.rates).max())
        lean, less, more = self._model.halves(at_peak, replicas)
        # As the twin's counts do, these lean to the safe side: rates are taken for a little larger.
        caution = math.exp(lean)
        if carried.most < caution * most:
            carried = capacities(self._counter, caution * most)
        return _Sized(base, carried, caution, at_peak, replicas, less, more)

    def answer(self, policies: Sequence[str] = (), autoscalers: Sequence[Autoscaler] = ()) -> OverTime:
        """The courses: static, of the policies and of the autoscalers; or a ``reason`` where there is none."""
        rules = self._base.rules
        times, seen = recent(self._demand.due_ns, self._base.edges_ns, rules)
        most = max(float(self._base.rates.max()), float(seen.max()) if "reactive" in policies else 0.0)
        sized = self._sized(most)
        if isinstance(sized, OverTime):
            return sized
        base, carried, caution = sized.base, sized.carried, sized.caution
        schedules = {"static": Schedule.constant(int(bounded(carried.needed(caution * base.rates), rules).max()))}
        if "planned" in policies:
            schedules["planned"] = planned(base.edges_ns, bounded(carried.needed(caution * base.rates), rules), rules)
        if "reactive" in policies:
            schedules["reactive"] = reactive(times, bounded(carried.needed(caution * seen), rules), rules)
        needed = sized.needed()
        self._needed = base.edges_ns[:-1] / NS_PER_S, needed
        courses = tuple(self._course(name, schedule) for name, schedule in schedules.items())
        courses += tuple(self.scaled(each) for each in autoscalers)
        at_peak, replicas, less, more = sized.at_peak, sized.replicas, sized.less, sized.more
        low = (at_peak.fewest(replicas, less) or replicas) if math.isfinite(less) else 1
        high = at_peak.fewest(replicas, -more) if math.isfinite(more) else None
        gpus = base.replica_gpus
        return replace(
            base,
            courses=courses,
            peak_low=min(low, replicas) * gpus,
            peak_high=None if high is None else max(high, replicas) * gpus,
            assumptions=(*base.assumptions, *self._assumed(courses)),
            warnings=(*base.warnings, *bounds(carried, base.rates, rules)),
        )

    def _course(self, policy: str, schedule: Schedule) -> Course:
        from gpusize.estimate.plan.over_time.simulate import serve

        self._say(f"simulating {self._demand.due_ns.size:,} requests: {policy}")
        slowness = self._model.loss.slowness(schedule.peak)
        served = serve(self._replica, self._demand, schedule, router=self._router, slowness=slowness, seed=self._seed)
        return self._told(policy, schedule, served)

    @property
    def replica(self) -> Replica:
        """A replica as it was fitted."""
        return self._replica

    @property
    def targets(self) -> tuple[float, ...]:
        """The share that each objective asks for."""
        return self._model.targets

    def error(self, replicas: int) -> float:
        """Standard error of the logarithm of how slow so many replicas are."""
        return self._model.error(replicas)

    def scaled(
        self, autoscaler: Autoscaler, demand: Demand | None = None, *, quiet: bool = False, doubt: Doubt = AS_FITTED
    ) -> Course:
        """The course of an autoscaler, which begins with what the first window needs; ``answer`` comes first.

        Args:
            autoscaler: the policy.
            demand: other requests than the trace's, as of another such day.
            quiet: tell nobody.
            doubt: how replicas differ from the fitted one.
        """
        from gpusize.estimate.plan.over_time.simulate import serve_scaled

        demand = self._demand if demand is None else demand
        if not quiet:
            self._say(f"simulating {demand.due_ns.size:,} requests: {autoscaler.name}")
        slowness, seed = self._model.loss.slowness, self._seed if doubt.seed is None else doubt.seed
        replica = (no_more_than_seen(self._replica) if doubt.limited else None) or self._replica
        first = autoscaler.bounded(int(self._needed[1][0]))
        peak = max(1, first)
        while True:
            served, schedule, decided = serve_scaled(
                replica,
                demand,
                autoscaler,
                first,
                start_delay_s=self._base.rules.start_delay_s,
                router=self._router,
                slowness=doubt.slower * slowness(peak),
                seed=seed,
            )
            # How slow they are depends on how many there are at most, which shows only then.
            if slowness(schedule.peak) <= slowness(peak):
                return self._told(autoscaler.name, schedule, served, decided)
            peak = schedule.peak

    def _told(self, policy: str, schedule: Schedule, served: Served, decided: Decided | None = None) -> Course:
        base = self._base
        ready_ns, ready = schedule.ready()
        followed = elasticity(self._needed, (ready_ns / NS_PER_S, ready), base.duration_s)
        gpus, targets = base.replica_gpus, self._model.targets
        return Course(policy, schedule, served, base.duration_s, gpus, targets, followed, decided)

    def _assumed(self, courses: Sequence[Course]) -> list[str]:
        texts = {
            "planned": "planned: the arrivals are known in advance",
            "reactive": "reactive: scales on the rate of the last window alone; queued requests are not a signal",
        }
        found = [texts[course.policy] for course in courses if course.policy in texts]
        if any(course.decided is not None for course in courses):
            found.append(SCALED)
        if any(course.decided.held or course.decided.refused for course in courses if course.decided is not None):
            found.append(FRONTED)
        found.append("the first replicas are running already; later ones cost from when they are requested")
        slowest = max(self._model.loss.slowness(course.schedule.peak) for course in courses)
        if slowest > 1:
            found.append(
                f"replicas slow each other down by up to {slowest - 1:.1%}: each course is "
                "simulated at the speed of its largest replica count, all the time"
            )
        return found


def _nothing(_text: str) -> None:
    return


def _check(slos: Sequence[Slo]) -> None:
    if not slos:
        raise UsageError("there is no SLO to size for", "slo", "give one, as in --slo 'p95 runtime <= 10s'")
    for slo in slos:
        if slo.kind != "percentile" or slo.bound_s is None or slo.op not in ("<=", "<"):
            todo = "give an upper bound on a percentile of a time, as in: p95 runtime <= 10s"
            raise UsageError(f'"{slo}" cannot be judged over time', "slo", todo)


def _check_word(name: str, known: Sequence[str | None], value: str | None) -> None:
    if value not in known:
        raise UsageError(f"there is no {name} {value!r}", name, f"take one of {', '.join(filter(None, known))}")
