"""The twin method: a replica fitted to what was measured, simulated in any number until the smallest meets every SLO.

    1  visits        closed loops without pauses, of one replica; further counts tell what replicas cost each other
    2  replica       continuous batching with fitted costs, a flow-equivalent server, or the measured curve itself
    3  calibration   what a model gets wrong at the capacity; one that repeats nothing is not taken
    4  count         the fewest simulated replicas, behind the question's router and loop, that keep all SLOs

docs/reference/twin.md has the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from gpusize.estimate.one_pause import of_one_pause
from gpusize.estimate.question import Estimate, Question, whole_gpus
from gpusize.estimate.twin.load import ClusterLoad
from gpusize.estimate.twin.words import around, details, loop, near_capacity, refused, warnings, with_served

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData
    from gpusize.estimate.twin.attainment_curve import Curve
    from gpusize.estimate.twin.performance import Performance
    from gpusize.estimate.twin.sizing import Model, Sized
    from gpusize.estimate.twin.visit_data import Observed

__all__ = ["Fitted", "Twin"]

LINEAR_ASSUMED: Final = (
    "replicas do not slow each other down; only one count was measured, so measure two or more together to check"
)
SAME: Final = "all replicas are like the measured one, and requests like the measured ones"
OWN_QUEUES: Final = (
    "each replica is taken to have a queue of its own: instances of one Triton server share one, and then it takes "
    "another number; ask with --router shared"
)
WHOLE: Final = (
    "the calls inside requests are not simulated, as they overlap, some levels do not have them all, or an SLO is on "
    "something else than the time of requests or calls: a request is taken to stay on one replica, which asks for more"
)
UNTOLD: Final = (
    "the calls inside requests cannot be simulated: some levels do not have them all, or another clock than the "
    "generator's timed them; ask for runtime or service"
)
LEVELS: Final = 2
"""Fewer loads tell nothing of how times grow."""
MODELS: Final = {
    "batching": "each replica serves with continuous batching at the costs that were fitted",
    "static": "each replica serves batches that run to the end of their longest answer, at the costs that were fitted",
    "flow": "each replica serves at the rate that was measured with as many requests active",
    "tasks": "each replica serves calls at the rate that was measured with as many of them, and a router sees calls",
    "pauses": "each replica serves at the rate that was measured while as many requests were on it",
    "measured": "the router keeps replicas within one request of each other, so nothing is simulated",
    "": "",
}


class Twin:
    """The method ``twin``."""

    name = "twin"
    needs_counts: Literal["one", "all"] = "all"

    def answer(self, levels: Sequence[LevelData], question: Question) -> Estimate:
        """Answer for all SLOs together. See ``Method``."""
        return Fitted(levels, question).answer(question)


class Fitted:
    """Levels that a replica is fitted to once, to be asked again and again: users, rates, pauses, routers, reserves.

    Args:
        levels: of one or several numbers of GPUs.
        question: whose SLOs the replica is fitted for.
    """

    def __init__(self, levels: Sequence[LevelData], question: Question) -> None:
        from gpusize.estimate.twin.sizing import Sizer
        from gpusize.estimate.twin.sizing_result import failing
        from gpusize.estimate.twin.visit_data import Objective, observe, silent

        self._tested = min(lv.gpus for lv in levels)
        self._usable, warnings = _usable(levels, question)
        self._warnings = tuple(warnings)
        self._slos = (tuple(question.slos), question.together)
        self._reason = _cannot(levels, self._usable, question)
        self._visits: list[Observed] = []
        if self._reason is None:
            self._objectives = Objective.asked_by(question, _nature(self._usable))
            self._visits = [visit for level in self._usable for visit in observe(level, self._objectives)]
            self._warnings += _not_reached(self._visits)
            untold = silent(self._visits, self._objectives)
            no_data = None if untold is None else f"no request has data for {untold.text}"
            self._reason = self._calls_untold() or no_data
        self._refusal = "data"
        if self._reason is None:
            self._sizer = Sizer(self._visits, self._objectives)
            self._reason, self._refusal = failing(self._sizer.curves), "failures"

    def _calls_untold(self) -> str | None:
        """Why calls that an objective is about are not simulated: not all visits tell them."""
        asked = any(each.of_calls for each in self._objectives) and any(each.knows_calls for each in self._usable)
        return UNTOLD if asked and any(each.calls is None for each in self._visits) else None

    @property
    def replica_gpus(self) -> int:
        """GPUs of what was measured as one replica."""
        return min((visit.gpus for visit in self._visits), default=self._tested)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is said of the levels that are left out, or that count for fewer users than were asked for."""
        return self._warnings

    def model(self, question: Question, *, lengths: bool = False) -> Model | str:
        """What a question's load is simulated with; the reason where nothing could be fitted.

        With ``lengths`` one that requests of other lengths can be put to, where there is one.
        """
        from gpusize.estimate.twin.sizing import Sized

        if self._reason is not None:
            return self._reason
        found = self._sizer.model(ClusterLoad.asked_by(question), lengths=lengths, risk=question.risk)
        return found.reason or "" if isinstance(found, Sized) else found

    def answer(self, question: Question) -> Estimate:
        """The fewest GPUs for a load.

        Raises:
            ValueError: the question has other SLOs than those that were fitted for.
        """
        if (tuple(question.slos), question.together) != self._slos:
            raise ValueError("fitted for other SLOs")
        base = Estimate(
            Twin.name,
            self._tested,
            question.users or None,
            " and ".join(str(slo) for slo in question.slos) or None,
            rate=question.rate,
            warnings=self._warnings,
        )
        if self._reason is not None:
            follow = _next(self._usable) if self._refusal == "data" else ()
            return replace(base, reason=self._reason, next_levels=follow, details={"refusal": self._refusal})
        least, per = min(visit.gpus for visit in self._visits), question.gpus_per_replica
        if least % per:
            return replace(base, reason=f"{least} GPUs were measured, which is not a whole number of replicas of {per}")
        sized = self._sizer.size(ClusterLoad.asked_by(question), risk=question.risk)
        found = _answered(base, sized, self._visits, self._sizer.curves, question)
        calls = any(level.knows_calls for level in self._usable)
        if calls and (found.gpus or 0) > least and found.details.get("model") != "tasks":
            found = replace(found, warnings=(*found.warnings, WHOLE))
        if question.router == "least_loaded" and (found.gpus or 0) > least and _of_tensors(self._usable):
            found = replace(found, warnings=(*found.warnings, OWN_QUEUES))
        return with_served(found, [visit for visit in self._visits if visit.gpus == least])

    def performance(self, question: Question, gpus: int) -> Performance | None:
        """How so many GPUs fare under a question's load, parts of what was tested in proportion.

        None where nothing could be fitted. The SLOs are those that were fitted for.
        """
        if self._reason is not None:
            return None
        least = min(visit.gpus for visit in self._visits)
        return self._sizer.performance(ClusterLoad.asked_by(question), gpus / least)


def _of_tensors(levels: Sequence[LevelData]) -> bool:
    return any(level.nature == "inference" for level in levels)


def _usable(levels: Sequence[LevelData], question: Question) -> tuple[list[LevelData], list[str]]:
    """Closed loops that were measured to their end, of users with one pause, and what is said about the others."""
    from gpusize.analysis.delivery.intended import think_s

    kept: list[LevelData] = []
    left: dict[str, int] = {}
    for level in levels:
        if not level.concurrency:
            why = "at a rate: the twin is fitted to closed loops"
        elif level.imported:
            why = "imported: another tool's figures say nothing of single requests"
        elif level.sampled > 1:
            why = "sampled: a part of the requests has no row"
        elif level.state != "done":
            why = "not measured to their end"
        elif think_s(level.setting) is None:
            why = "with pauses that the rows of the dataset say"
        else:
            kept.append(level)
            continue
        left[why] = left.get(why, 0) + 1
    same, others = of_one_pause(kept, question)
    return same, [*(f"{n} level{'' if n == 1 else 's'} left out, {why}" for why, n in left.items()), *others]


def _not_reached(visits: Sequence[Observed]) -> tuple[str, ...]:
    least: dict[int, int] = {}
    for visit in visits:
        if visit.asked is not None and visit.users < visit.asked:
            least[visit.asked] = min(visit.users, least.get(visit.asked, visit.users))
    return tuple(
        f"concurrency {asked} was not reached: it counts as {users}, the mean number in flight"
        for asked, users in sorted(least.items())
    )


def _cannot(levels: Sequence[LevelData], usable: Sequence[LevelData], question: Question) -> str | None:
    if not question.slos:
        return "it sizes for SLOs; for a rate without any take the scaling method"
    if not usable:
        if levels and all(level.imported for level in levels):
            return "imported levels have another tool's figures and no requests to fit a replica to"
        return "there is no closed loop that was measured to its end and can be believed"
    if question.together and any(slo.of_request(_nature(usable)).of_calls for slo in question.slos):
        return "no request keeps an SLO on the calls inside it and others at once; ask for each by itself"
    least = min(level.gpus for level in usable)
    loads = {level.concurrency for level in usable if level.gpus == least}
    # One request in flight that misses already needs no second load.
    if len(loads) < LEVELS and loads != {1}:
        return "one load alone does not show how times grow with it"
    return None


def _nature(usable: Sequence[LevelData]) -> str | None:
    """What each request is, where none has calls of its own."""
    natures = {level.nature for level in usable}
    return natures.pop() if len(natures) == 1 and not any(level.knows_calls for level in usable) else None


def _next(usable: Sequence[LevelData]) -> tuple[int, ...]:
    """Two loads worth measuring beside what there is."""
    at = sorted({level.concurrency or 1 for level in usable})
    if not at:
        return (1, 8)
    if len(at) == 1:
        return tuple(sorted({max(1, at[0] // 2), 2 * at[0]}))
    return (2 * at[-1], 4 * at[-1])


def _answered(
    base: Estimate, found: Sized, visits: Sequence[Observed], curves: Sequence[Curve], question: Question
) -> Estimate:
    from gpusize.estimate.twin.sizing_result import consistent, within_reach

    tested = min(visit.gpus for visit in visits)
    several = any(visit.gpus > tested for visit in visits)
    if ClusterLoad.asked_by(question).even and not several and found.model != "tasks":
        found = consistent(found, question.users)
    most = max(visit.in_flight * tested / visit.gpus for visit in visits)
    found = within_reach(found, math.ceil(most))
    told = details(found, curves)
    if visits[0].think_s > 0:
        told |= {"measured_pause": visits[0].pause_text, "users_at_edge": told.get("edge")}
    if found.replicas is None or found.raw is None:
        return refused(replace(base, reason=found.reason, details=told), visits)
    per = question.gpus_per_replica
    low, high = found.raw_low, found.raw_high
    whole = tested == per

    def gpus(count: int | None, raw: float | None) -> int | None:
        # Of a tested target that is several replicas, parts can be had as well.
        if count is None or raw is None:
            return None
        return count * tested if whole else whole_gpus(raw * tested, per)

    model = "pauses" if visits[0].think_s > 0 else found.model
    doubts = [*base.warnings, *warnings(found, visits, question, curves)]
    if not whole:
        doubts.append(f"{tested} GPUs were measured as one; parts of them are taken in proportion")
    return replace(
        base,
        slo=str(question.slos[found.binding]) if len(curves) == len(question.slos) else base.slo,
        gpus=gpus(found.replicas, found.raw),
        gpus_raw=found.raw * tested,
        gpus_low=gpus(found.low, low),
        gpus_high=gpus(found.high, high),
        capacity_concurrency=found.capacity,
        capacity_rate=None if question.rate is None else found.details.get("carried_alone", question.rate / found.raw),
        outside_tested_range=found.capacity is not None and found.capacity > max(v.in_flight for v in visits),
        assumptions=tuple(
            text for text in (SAME, MODELS[model], "" if several else LINEAR_ASSUMED, loop(question)) if text
        ),
        warnings=tuple(doubts),
        next_levels=around(found, visits),
        next_counts=() if several else (2 * tested, 4 * tested),
        details=told
        | {"carries": [{**one, "gpus": one["replicas"] * tested} for one in told.get("carries") or () if whole]}
        | ({"slos": [str(slo) for slo in question.slos]} if len(curves) > 1 else {})
        # What the model says of shares where nothing was measured nobody has seen.
        | (_neighbours(found, gpus) if near_capacity(found, visits) else {})
        | {
            "raw_interval": [
                None if low is None else low * tested,
                None if high is None else high * tested,
            ]
        },
    )


def _neighbours(found: Sized, gpus: Callable[[int | None, float | None], int | None]) -> dict[str, Any]:
    """What one replica less and one more would keep, in GPUs; nothing where those are parts of what was tested."""
    each: list[dict[str, Any]] = [{**one, "gpus": gpus(one["replicas"], one["replicas"])} for one in found.neighbours]
    return {"neighbours": each} if len({one["gpus"] for one in each}) == len(each) > 1 else {}
