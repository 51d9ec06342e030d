"""The scaling method: the capacity of each measured GPU count, a law of scaling through them, and the count by it.

    capacity X(n)      highest load with n GPUs that keeps the SLO (``capacities``)
    law                linear, Amdahl's or the USL, by the counts that were measured (``gpusize.estimate.laws.counts``)
    GPUs               smallest n with X(n) >= what is wanted; in whole hosts, hosts = wanted / X(host), rounded up

Of requests that come at random a target carries less than in its closed loops (``arrivals_at_random``): laws are of the
loops, and what is wanted of them is that of the smallest target that carries the rate.

With one count it assumes linear scaling, and says so. With two, Amdahl's count is a lower bound. It looks at closed and
open loops, and at imported levels that have throughput and percentiles only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from gpusize.analysis.throughput import is_brief, process_of
from gpusize.estimate.capacities import Capacity, Carried, capacities
from gpusize.estimate.laws import LAWS, Count, Point, count_for, fit
from gpusize.estimate.question import FUZZ, IN_FLIGHT, SCALING, Estimate, Question, binding, gpus_text
from gpusize.estimate.slo_limit import slo_limit
from gpusize.estimate.users_in_flight import UsersInFlight
from gpusize.estimate.ways_to_scale import Option, options, unit_of, whole_hosts

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData
    from gpusize.analysis.slo import Slo
    from gpusize.estimate.arrivals_at_random import ArrivalsAtRandom

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
QUEUE: Final = "queue"
"""How a capacity of requests that come at random was found from closed loops."""
NO_NUMBER: Final = "by the closed loops no number of GPUs carries so many requests/s that come at random"
ARRIVALS: Final = "requests come as in the open loop that was measured"
BY_SESSION: Final = (
    "requests come as the turns of conversations that begin at a rate, as in the open loop that was measured; the "
    "rate asked for counts the requests"
)
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
        apart = question.router == "random"
        found = capacities(levels, slo, rate=question.rate is not None, at_random=at_random, apart=apart)
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
            of_evenly = replace(question, process="constant")
            kept, evenly = (_kept_at_rates(levels, slo, asked) for asked in (question, of_evenly))
            return _carried_still(refused, kept, evenly, wanted, question)
        if any(c.how == "open" for c in whole):
            # Those at rates are of requests that come at random: so have the others to be, for one law.
            whole = [_as_open(c) for c in whole]
        points = [Point(c.gpus // per, c.load, c.se) for c in whole]
        top = whole[-1]
        users = UsersInFlight.of([lv for lv in levels if lv.gpus == top.gpus], question)
        pauses = question.rate is None and bool(users.rates)
        if pauses:
            wanted = users.most(top.load)
        count = _count(points, top, wanted)
        proportional = count is not None and count.law.sigma == count.law.kappa == 0 and not question.host_gpus
        kept = [each for each in found.kept if each.gpus % per == 0 and each.load > 0]
        # Beside closed loops; where rates alone were measured they are among the others.
        kept += _kept_at_rates(levels, slo, question) if top.at_random is not None else []
        answered = (
            replace(base, reason=NO_NUMBER)
            if count is None
            else _answered(base, question, whole, points, count, wanted, kept)
        )
        if pauses and count is not None:
            fewest, most = (
                _answered(base, question, whole, points, count_for(points, load), load, kept)
                for load in (users.mean(top.load), users.surely(top.load))
            )
            texts = tuple(users.assumed or text if text == IN_FLIGHT else text for text in answered.assumptions)
            answered = replace(answered, assumptions=texts, gpus_low=fewest.gpus_low, gpus_high=most.gpus_high)
        if any(level.by_session and not level.concurrency for level in levels):
            texts = tuple(BY_SESSION if text == ARRIVALS else text for text in answered.assumptions)
            answered = replace(answered, assumptions=texts)
        return _no_more(answered, [each for each in kept if proportional or each.load >= wanted], wanted, per)


def _count(points: Sequence[Point], top: Capacity, wanted: float) -> Count | None:
    """The law's count; None where no number carries as much at random.

    Laws are of closed loops, and of requests that come at random more than comes of them is wanted. As these may come
    as evenly as in the loops, fewer are surely not enough only where the loops say so.
    """
    needed = top.needed(wanted)
    if math.isinf(needed):
        return None
    count = count_for(points, needed)
    if top.at_random is None or count.low is None:
        return count
    return replace(count, low=count_for(points, wanted).low)


def _as_open(c: Capacity) -> Capacity:
    """A rate from a closed loop as one of requests that come at random; as it is where that is not asked for."""
    if c.at_random is None or not (most := c.at_random.most()) > 0:
        return c
    return replace(c, load=most, se=c.se * most / c.load, how=QUEUE, at_random=None)


def _answered(
    base: Estimate,
    question: Question,
    found: Sequence[Capacity],
    points: Sequence[Point],
    count: Count,
    wanted: float,
    kept: Sequence[Carried],
) -> Estimate:
    per, largest = question.gpus_per_replica, found[-1]
    choices = options(found, count, wanted, question)
    chosen = whole_hosts(question, found, count, wanted) if question.host_gpus else choices[0]
    users = largest.load if question.rate is None else largest.users
    details = _details(found, points, count, wanted, question) | {"options": [each.to_json() for each in choices]}
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
        details=details,
    )
    if largest.at_random is not None:
        base = _at_random(base, question, count, chosen, largest.at_random, kept)
    if chosen.gpus is None:
        hosts = [f"; {each.name}: {each.text}" for each in choices if each.gpus is not None][-1:]
        return replace(base, reason=chosen.text + "".join(hosts), outside_tested_range=True)
    return replace(
        base,
        gpus=chosen.gpus,
        gpus_raw=chosen.gpus * chosen.needed / (chosen.capacity or chosen.needed),
        outside_tested_range=not question.host_gpus and count.beyond,
    )


def _at_random(
    base: Estimate, question: Question, count: Count, chosen: Option, queue: ArrivalsAtRandom, kept: Sequence[Carried]
) -> Estimate:
    """The answer with what is carried of requests that come at random: by the queue, and at least as was seen."""
    host, step = question.host_gpus, question.gpus_per_replica
    if host is not None and chosen.gpus is not None and chosen.gpus > host:
        step = host

    def seen(gpus: int) -> float:
        return max((each.load for each in kept if not each.at_random and each.gpus <= gpus), default=0.0)

    def carried(gpus: int) -> float:
        by_hosts = step == host and chosen.gpus is not None and chosen.capacity is not None
        closed = (chosen.capacity or 0.0) * gpus / (chosen.gpus or 1) if by_hosts else count.law.at(gpus / step)
        return max(queue.most(closed / queue.capacity), seen(gpus))

    counts = [] if chosen.gpus is None else [n for n in (chosen.gpus, chosen.gpus - step) if n > 0]
    most = max(queue.most(), seen(base.tested_gpus))
    found = {
        "carries": [{"gpus": n, "load": carried(n)} for n in counts],
        "at_random": {"carried": most, "closed": queue.capacity},
    }
    return replace(base, capacity_rate=most, details=base.details | found)


def _gap_text(c: Capacity) -> str:
    low, high = c.gap or (c.load, c.load)
    where = f"{low:.4g} and {high:.4g} requests/s" if c.how == "open" else f"concurrency {low:g} and {high:g}"
    return f"{gpus_text(c.gpus)}: nothing was measured between {where}, where the capacity lies"


def _no_more(answered: Estimate, kept: Sequence[Carried], wanted: float, per: int) -> Estimate:
    """The answer, unless fewer GPUs carry what is wanted: those are enough, whatever a law says.

    Of counts that carry less than is wanted, so many times as many.
    """
    times = [max(1, math.ceil(wanted / each.load - FUZZ)) for each in kept]
    # Of as many the one that was measured, not the one in proportion, nor one by its closed loops.
    found = [(n * each.gpus, n, each.at_random, each) for n, each in zip(times, kept, strict=True)]
    if not found:
        return answered
    least, n, _, best = min(found)
    if answered.gpus is not None and answered.gpus <= least:
        return answered
    if n > 1:
        return _in_proportion(answered, least, best, wanted, per)
    fewer = "" if least == 1 else "; fewer may be, as their own capacity is not known"
    if best.at_random:
        text = f"{gpus_text(least)} {'is' if least == 1 else 'are'} enough by the closed loops{fewer}"
    else:
        text = f"{gpus_text(least)} {'was' if least == 1 else 'were'} measured to be enough{fewer}"
    return replace(
        answered,
        gpus=least,
        gpus_raw=least * wanted / best.load,
        gpus_high=least,
        # What the law says of fewer was just overruled.
        gpus_low=None if answered.gpus_low is None or answered.gpus_low >= least else answered.gpus_low,
        reason=None,
        outside_tested_range=False,
        warnings=(text, *answered.warnings),
        details=answered.details | _in_multiples(best, least, per),
    )


def _in_multiples(best: Carried, gpus: int, per: int) -> dict[str, Any]:
    """What so many carry, and a replica less, by as many times ``best`` as they hold: the law was just overruled."""
    return {
        "carries": [{"gpus": n, "load": best.load * (n // best.gpus)} for n in (gpus, gpus - per) if n >= best.gpus]
    }


def _kept_at_rates(levels: Sequence[LevelData], slo: Slo | None, question: Question) -> list[Carried]:
    """The largest rate of counts that kept up with all rates; users who wait for answers come more evenly."""
    per = question.gpus_per_replica
    kept = []
    for gpus in sorted({level.gpus for level in levels if level.gpus % per == 0}):
        rates = [
            level for level in levels if level.gpus == gpus and not level.concurrency and _as_asked(level, question)
        ]
        # Requests that were due for less time than they took were never all in flight.
        limit = slo_limit([level for level in rates if level.imported or not is_brief(level)], slo)
        if limit.kind == "above" and limit.at > 0:
            kept.append(Carried(gpus, limit.at))
    return kept


def _as_asked(level: LevelData, question: Question) -> bool:
    """Whether requests came no more evenly than those that are asked for."""
    return question.process == "constant" or process_of(level) == "poisson"


def _carried_still(
    refused: Estimate, kept: Sequence[Carried], evenly: Sequence[Carried], wanted: float, question: Question
) -> Estimate:
    """What follows where every measured rate is kept up with: as many as carry the load, or how many at most.

    Where rates came more evenly than is asked for, or nobody says how, that is of such requests alone.
    """
    if question.rate is None or question.host_gpus:
        return refused
    enough = [each for each in kept if each.load >= wanted]
    found = _no_more(refused, enough, wanted, question.gpus_per_replica)
    if found.answered or not (kept or evenly):
        return found
    most, best = min((math.ceil(wanted / each.load - FUZZ) * each.gpus, each) for each in kept or evenly)
    which = "So at most" if kept else "Of requests that come evenly (--process constant) at most"
    text = (
        f"{which} {gpus_text(most)} {'is' if most == 1 else 'are'} needed, if capacity grows in proportion from "
        f"{best.load:g} requests/s on {gpus_text(best.gpus)}"
    )
    return replace(refused, gpus_high=most if kept else None, reason=f"{refused.reason}. {text}")


def _in_proportion(answered: Estimate, least: int, best: Carried, wanted: float, per: int) -> Estimate:
    """The answer with as many as follow in proportion from what ``best`` carries: still extrapolated."""
    gpus, load = best.gpus, best.load
    seen = f"{load:g}, the largest load of {gpus_text(gpus)}, was carried still"
    if best.at_random:
        carry = "carries" if gpus == 1 else "carry"
        seen = f"by the closed loops {gpus_text(gpus)} {carry} {load:.4g} requests/s that come at random"
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
        details=answered.details | {"options": ways} | _in_multiples(best, least, per),
    )


def _assumptions(found: Sequence[Capacity], counts: int, question: Question) -> tuple[str, ...]:
    law = {1: LINEAR_ASSUMED, 2: BOUND}.get(counts, FITTED)
    how = {QUEUE if c.at_random is not None else c.how for c in found}
    texts = [HOSTS] if question.host_gpus else [law]
    if question.rate is None:
        texts.append(IN_FLIGHT)
    if "closed" in how:
        texts.append(CLOSED)
    if QUEUE in how:
        texts.append(AT_RANDOM)
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
    per, law, needed = question.gpus_per_replica, count.law, found[-1].needed(wanted)
    counts = len({p.count for p in points})
    # Parameters that do not pay are 0 in the law; their intervals say what they may be all the same.
    own = count.fit if counts > 2 else fit(points, law.name)
    smallest = found[0].load / found[0].gpus
    laws = {name: fit(points, name).law for name in LAWS[:counts]}
    return {
        "unit": unit_of(question, found[-1]),
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
        "gpus_by_law": {name: None if (n := each.smallest(needed)) is None else n * per for name, each in laws.items()},
    }
