"""The scaling method: the capacity of each measured GPU count, a law of scaling through them, and the count by it.

    capacity X(n)      highest load with n GPUs that keeps the SLO (``capacities``)
    law                linear, Amdahl's or the USL, by the counts that were measured (``gpusize.estimate.laws.counts``)
    GPUs               smallest n with X(n) >= what is wanted; in whole hosts, hosts = wanted / X(host), rounded up

With one count it assumes linear scaling, and says so. With two, Amdahl's count is a lower bound. It looks at closed and
open loops, and at imported levels that have throughput and percentiles only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from gpusize.analysis.throughput import is_brief
from gpusize.estimate.capacities import Capacity, capacities
from gpusize.estimate.laws import LAWS, Count, Point, count_for, fit
from gpusize.estimate.question import FUZZ, IN_FLIGHT, SCALING, Estimate, Question, binding, gpus_text
from gpusize.estimate.slo_limit import slo_limit
from gpusize.estimate.users_in_flight import PAUSING, UsersInFlight
from gpusize.estimate.ways_to_scale import in_host, options, unit_of, whole_hosts

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData
    from gpusize.analysis.slo import Slo
    from gpusize.estimate.arrivals_at_random import ArrivalsAtRandom
    from gpusize.estimate.laws import Law

__all__ = ["EXTRAPOLATED", "Scaling"]

EXTRAPOLATED: Final = "extrapolated: "

LINEAR_ASSUMED: Final = (
    "capacity grows in proportion to the number of GPUs; only one count was measured, so this is not checked"
)
BOUND: Final = "no more is lost than Amdahl's law says from two counts: the count is a lower bound, its upper end open"
FITTED: Final = "capacity follows the simplest law that agrees with the measured counts; the interval is the USL's"
HOSTS: Final = "hosts share nothing: capacity grows in proportion to their number"
CLOSED: Final = (
    "requests come as in the closed loop that was measured; less evenly they wait longer at the same rate, so leave "
    "headroom or measure at rates"
)
AT_RANDOM: Final = (
    "requests come at random, to a queue that is served as fast as the closed loops were, and keep the SLO as these "
    "did; measure at rates to be sure"
)
NO_NUMBER: Final = "by the closed loops no number of GPUs carries so many requests/s that come at random"
ARRIVALS: Final = "requests come as in the open loop that was measured"
NO_SLO: Final = "no SLO: at the full throughput of the GPUs times are as long as the queue"
FAR: Final = 2.0
"""An answer beyond this many times the largest measured count is far from anything that was seen."""


class Scaling:
    """The method ``scaling``."""

    name = SCALING
    needs_counts: Literal["one", "all"] = "all"

    def answer(self, levels: Sequence[LevelData], question: Question) -> Estimate:
        """Answer for all SLOs. See ``Method``."""
        return binding([self._one(levels, question, slo) for slo in question.slos or (None,)])

    def _one(self, levels: Sequence[LevelData], question: Question, slo: Slo | None) -> Estimate:
        wanted = question.users if question.rate is None else question.rate
        base = Estimate(
            self.name,
            max(lv.gpus for lv in levels),
            question.users or None,
            None if slo is None else str(slo),
            rate=question.rate,
        )
        at_random = question.rate is not None and question.process == "poisson"
        found = capacities(levels, slo, rate=question.rate is not None, at_random=at_random)
        per = question.gpus_per_replica
        whole = [c for c in found.capacities if c.gpus % per == 0]
        split = [gpus_text(c.gpus) for c in found.capacities if c.gpus % per]
        warnings = [f"left out, for lack of a capacity: {each}" for each in found.missing if whole]
        if split:
            warnings.append(f"left out, as no whole number of replicas of {per}: {', '.join(split)}")
        gaps = [c for c in whole if c.gap is not None]
        warnings += [_gap_text(c) for c in gaps]
        between = {round((c.gap[0] + c.gap[1]) / 2) for c in gaps if c.gap is not None and c.how != "open"}
        follow = tuple(sorted({*found.next_levels, *between}))
        base = replace(base, warnings=tuple(warnings), next_levels=follow)
        if not whole:
            why = "; ".join(found.missing) or f"nothing was measured with a multiple of {gpus_text(per)}"
            refused = replace(base, reason=f"no count has a capacity: {why}")
            return _carried_still(refused, _kept_at_rates(levels, slo, per), wanted, question)
        points = [Point(c.gpus // per, c.load, c.se) for c in whole]
        top = whole[-1]
        users = UsersInFlight.of([lv for lv in levels if lv.gpus == top.gpus], question)
        pauses = question.rate is None and bool(users.rates)
        if pauses:
            wanted = users.most(top.load)
        # What the laws are of: of requests that come at random more than comes of them.
        needed = wanted if top.at_random is None else top.at_random.closed_rate(wanted)
        if math.isinf(needed):
            return replace(base, reason=NO_NUMBER)
        count = count_for(points, needed)
        if top.at_random is not None and count.low is not None:
            # They may come as evenly as in the closed loops: fewer are surely not enough only where these say so.
            count = replace(count, low=count_for(points, wanted).low)
        answered = _answered(base, question, whole, points, count, needed)
        if top.at_random is not None:
            answered = _at_random(answered, count.law, per, top.at_random, wanted / needed)
        if pauses:
            fewest, most = (
                _answered(base, question, whole, points, count_for(points, load), load)
                for load in (users.mean(top.load), users.surely(top.load))
            )
            texts = tuple(PAUSING if text == IN_FLIGHT else text for text in answered.assumptions)
            answered = replace(answered, assumptions=texts, gpus_low=fewest.gpus_low, gpus_high=most.gpus_high)
        proportional = count.law.sigma == count.law.kappa == 0 and not question.host_gpus
        kept = [
            (gpus, load)
            for gpus, load in found.kept
            if gpus % per == 0 and load > 0 and (proportional or load >= wanted)
        ]
        carried = _no_more(answered, kept, wanted, at_random=at_random)
        if not at_random:
            return carried
        rates = [(gpus, load) for gpus, load in _kept_at_rates(levels, slo, per) if proportional or load >= wanted]
        return _no_more(carried, rates, wanted)


def _at_random(answered: Estimate, law: Law, per: int, queue: ArrivalsAtRandom, busy: float) -> Estimate:
    """The answer with what is carried of requests that come at random."""
    counts = [n for n in (answered.gpus, (answered.gpus or 0) - per) if n]
    most = queue.most()
    found = {
        "carries": [{"gpus": n, "load": queue.most(law.at(n / per) / queue.capacity)} for n in counts],
        "at_random": {"carried": most, "closed": queue.capacity, "busy": busy},
    }
    texts = tuple(AT_RANDOM if text == CLOSED else text for text in answered.assumptions)
    return replace(answered, capacity_rate=most, assumptions=texts, details=answered.details | found)


def _answered(
    base: Estimate,
    question: Question,
    found: Sequence[Capacity],
    points: Sequence[Point],
    count: Count,
    wanted: float,
) -> Estimate:
    per, largest = question.gpus_per_replica, found[-1]
    choices = options(found, count, wanted, question)
    chosen = whole_hosts(question, found, count, wanted) if question.host_gpus else in_host(count, wanted, question)
    users = largest.load if question.rate is None else largest.users
    base = replace(
        base,
        tested_gpus=largest.gpus,
        capacity_concurrency=users,
        capacity_rate=None if question.rate is None else largest.load,
        assumptions=_assumptions(found, len({p.count for p in points}), question),
        warnings=(*base.warnings, *_warnings(count, points, per, question)),
        next_counts=chosen.next,
        gpus_low=chosen.low,
        gpus_high=chosen.high,
        details=_details(found, points, count, wanted, question) | {"options": [each.to_json() for each in choices]},
    )
    if chosen.gpus is None:
        hosts = [f"; {each.name}: {each.text}" for each in choices if each.gpus is not None][-1:]
        return replace(base, reason=chosen.text + "".join(hosts), outside_tested_range=True)
    capacity = chosen.capacity or wanted
    return replace(
        base,
        gpus=chosen.gpus,
        gpus_raw=chosen.gpus * wanted / capacity,
        outside_tested_range=not question.host_gpus and count.beyond,
    )


def _gap_text(c: Capacity) -> str:
    low, high = c.gap or (c.load, c.load)
    where = f"{low:.4g} and {high:.4g} requests/s" if c.how == "open" else f"concurrency {low:g} and {high:g}"
    return f"{gpus_text(c.gpus)}: nothing was measured between {where}, where the capacity lies"


def _no_more(
    answered: Estimate, kept: Sequence[tuple[int, float]], wanted: float, *, at_random: bool = False
) -> Estimate:
    """The answer, unless fewer GPUs were seen to carry what is wanted: those are enough, whatever a law says.

    ``kept`` has numbers of GPUs and the load that each was seen to carry; of less than is wanted, so many times it.
    ``at_random``: that was not seen but follows from their closed loops.
    """
    times = {gpus: max(1, math.ceil(wanted / load - FUZZ)) for gpus, load in kept}
    # Of as many the one that was measured, not the one in proportion.
    least, _, gpus, load = min(((times[n] * n, times[n], n, load) for n, load in kept), default=(None, 0, 0, 0.0))
    if least is None or (answered.gpus is not None and answered.gpus <= least):
        return answered
    if times[gpus] > 1:
        return _in_proportion(answered, least, gpus, load, wanted, at_random=at_random)
    fewer = "" if least == 1 else "; fewer may be, as their own capacity is not known"
    how = ("was", "were") if not at_random else ("is", "are")
    seen = "measured to be enough" if not at_random else "enough by the closed loops"
    text = f"{gpus_text(least)} {how[least > 1]} {seen}{fewer}"
    return replace(
        answered,
        gpus=least,
        gpus_raw=least * wanted / load,
        gpus_high=least,
        # What the law says of fewer was just overruled.
        gpus_low=None if answered.gpus_low is None or answered.gpus_low >= least else answered.gpus_low,
        reason=None,
        outside_tested_range=False,
        warnings=(text, *answered.warnings),
    )


def _kept_at_rates(levels: Sequence[LevelData], slo: Slo | None, per: int) -> list[tuple[int, float]]:
    """(GPUs, the largest rate) of counts that kept up with all rates; users who wait for answers come more evenly."""
    kept = []
    for gpus in sorted({level.gpus for level in levels if level.gpus % per == 0}):
        rates = [level for level in levels if level.gpus == gpus and not level.concurrency]
        # Requests that were due for less time than they took were never all in flight.
        limit = slo_limit([level for level in rates if level.imported or not is_brief(level)], slo)
        if limit.kind == "above" and limit.at > 0:
            kept.append((gpus, limit.at))
    return kept


def _carried_still(refused: Estimate, kept: Sequence[tuple[int, float]], wanted: float, question: Question) -> Estimate:
    """What follows where every measured rate is kept up with: as many as carry the load, or how many at most."""
    if question.rate is None or question.host_gpus:
        return refused
    found = _no_more(refused, [(gpus, load) for gpus, load in kept if load >= wanted], wanted)
    if found.answered or not kept:
        return found
    times = {gpus: math.ceil(wanted / load - FUZZ) for gpus, load in kept}
    most, gpus, load = min((times[gpus] * gpus, gpus, load) for gpus, load in kept)
    text = (
        f"So at most {gpus_text(most)} are needed, if capacity grows in proportion from {load:g} requests/s on "
        f"{gpus_text(gpus)}"
    )
    return replace(refused, gpus_high=most, reason=f"{refused.reason}. {text}")


def _in_proportion(
    answered: Estimate, least: int, gpus: int, load: float, wanted: float, *, at_random: bool = False
) -> Estimate:
    """The answer with as many as follow in proportion from what ``gpus`` were seen to carry: still extrapolated."""
    seen = f"{load:g}, the largest load of {gpus_text(gpus)}, was carried still"
    if at_random:
        seen = f"by the closed loops {gpus_text(gpus)} carry {load:.4g} requests/s that come at random"
    texts = [f"{seen}: in proportion {gpus_text(least)} are enough; fewer may be, as their own capacity is not known"]
    if least > FAR * gpus:
        texts.append(f"{EXTRAPOLATED}{least / gpus:.3g} times the largest count that was measured")
    texts += [text for text in answered.warnings if not text.startswith(EXTRAPOLATED)]
    ways = [each for each in answered.details.get("options") or () if each["gpus"] and each["gpus"] <= least]
    return replace(
        answered,
        gpus=least,
        gpus_raw=wanted * gpus / load,
        gpus_low=None if answered.gpus_low is None or answered.gpus_low > least else answered.gpus_low,
        gpus_high=None if answered.gpus_high is None else max(answered.gpus_high, least),
        reason=None,
        warnings=tuple(texts),
        details={**answered.details, "options": ways},
    )


def _assumptions(found: Sequence[Capacity], counts: int, question: Question) -> tuple[str, ...]:
    law = {1: LINEAR_ASSUMED, 2: BOUND}.get(counts, FITTED)
    how = {c.how for c in found}
    texts = [HOSTS] if question.host_gpus else [law]
    if question.rate is None:
        texts.append(IN_FLIGHT)
    if "closed" in how:
        texts.append(CLOSED)
    if "open" in how:
        texts.append(ARRIVALS)
    if question.rate is not None and not question.slos:
        texts.append(NO_SLO)
    return tuple(texts)


def _warnings(count: Count, points: Sequence[Point], per: int, question: Question) -> list[str]:
    texts = []
    law, counts = count.law, sorted({p.count for p in points})
    if count.fit.widened > 1.5:
        texts.append(
            f"the capacities scatter about the curve {count.fit.widened:.2g} times as much as their standard errors say"
        )
    if len(counts) > 1 and count.fit.law.sigma == 0 and count.fit.law.kappa == 0:
        ends = [next(p.capacity / p.count for p in points if p.count == n) for n in (counts[0], counts[-1])]
        if ends[1] > 1.05 * ends[0]:
            texts.append(
                f"{counts[-1] * per} GPUs carry more each than {counts[0] * per}, which none of the laws has; "
                "the line through them is a compromise"
            )
    if not question.host_gpus and count.n is not None and count.n > FAR * counts[-1]:
        texts.append(f"{EXTRAPOLATED}{count.n / counts[-1]:.3g} times the largest count that was measured")
    if law.kappa > 0 and law.peak < 2 * counts[-1]:
        texts.append(f"the curve's peak is at {law.peak * per:.3g} GPUs: more of them carry less, so add hosts instead")
    return texts


def _details(
    found: Sequence[Capacity], points: Sequence[Point], count: Count, wanted: float, question: Question
) -> dict[str, Any]:
    per, law = question.gpus_per_replica, count.law
    counts = len({p.count for p in points})
    # Parameters that do not pay are 0 in the law; their intervals say what they may be all the same.
    own = count.fit if counts > 2 else fit(points, law.name)
    smallest = found[0].load / found[0].gpus
    laws = {name: fit(points, name).law for name in LAWS[:counts]}
    return {
        "unit": unit_of(question),
        "counts": [
            {
                "gpus": c.gpus,
                "capacity": c.load,
                "standard_error": c.se,
                "users": c.users,
                "from": c.how,
                "efficiency": c.load / (c.gpus * smallest),
            }
            for c in found
        ],
        "law": {
            "name": law.name,
            "one": law.one,
            "sigma": law.sigma,
            "kappa": law.kappa,
            "one_95": own.one,
            "sigma_95": own.sigma,
            "kappa_95": own.kappa,
            "peak_gpus": law.peak * per,
            "peak_capacity": law.limit,
            "gpus_per_unit": per,
        },
        "gpus_by_law": {name: None if (n := each.smallest(wanted)) is None else n * per for name, each in laws.items()},
    }
