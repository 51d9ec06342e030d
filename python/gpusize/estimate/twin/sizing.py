"""From visits of one replica to a count with its interval: fit, choose a model, simulate, search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, Final

from gpusize.estimate.isotonic import t_quantile
from gpusize.estimate.question import RISK
from gpusize.estimate.twin.attainment_curve import Curve
from gpusize.estimate.twin.calibration import Candidate
from gpusize.estimate.twin.candidates import batching, flow
from gpusize.estimate.twin.conformal import bound_error, wider
from gpusize.estimate.twin.contention import Contention, contention
from gpusize.estimate.twin.excerpt import excerpt
from gpusize.estimate.twin.fewest_replicas import MOST_REPLICAS, ROUGHLY, Counter, mean_field
from gpusize.estimate.twin.kept_at_all import unsure
from gpusize.estimate.twin.load import ClusterLoad
from gpusize.estimate.twin.model_choice import choose
from gpusize.estimate.twin.performance import Performance, performance
from gpusize.estimate.twin.routed_mixture import curve_bracket, curve_capacity, curve_gap
from gpusize.estimate.twin.simulate import Batching, Replica
from gpusize.estimate.twin.sizing_result import Sized, by_chance, flat, missed, never, unfit
from gpusize.estimate.twin.visit_data import Objective, Observed, tightest

__all__ = ["Model", "Sized", "Sizer", "lean", "size"]

UNFIT: Final = 0.5
"""No model that is further off may answer."""
MOST_HALF: Final = 1.5
"""The logarithm of a factor of 4.5."""
MOST_BIAS: Final = 0.5
MOST_ERRORS: Final = 2
"""Standard errors by which the loss between replicas may be smaller before none is said to be enough."""
HALF: Final = 1.96
"""Standard errors in half an interval of 95 %."""


def size(
    visits: Sequence[Observed], objectives: Sequence[Objective], asked: ClusterLoad, *, model: str | None = None
) -> Sized:
    """Answer from closed-loop visits of one replica."""
    return Sizer(visits, objectives).size(asked, model=model)


def lean(half: float, risk: float) -> float:
    """The logarithm of the factor by which a load is taken for larger, so that the count has the least expected cost.

    A replica too few costs ``risk`` times as much as one too many. The need is lognormal about the best guess, and the
    count that costs least is the one that suffices with a probability of risk / (1 + risk): the newsvendor's quantile
    (Arrow, Harris and Marschak, Econometrica 19, 1951).

    Args:
        half: upper half of the 95 % interval of the need's logarithm; may be infinite.
        risk: above 0.
    """
    return NormalDist().inv_cdf(risk / (1 + risk)) * min(half, MOST_BIAS) / HALF


@dataclass(frozen=True)
class Model:
    """A fitted replica with what it is to keep and how far it may be off.

    Attributes:
        fit: the replica, and its errors.
        targets: the share that each objective asks for.
        loss: what replicas cost each other.
        risk: how many times as much a replica too few costs as one too many.
    """

    fit: Candidate
    targets: tuple[float, ...]
    loss: Contention
    risk: float = RISK

    def error(self, replicas: int) -> float:
        """Standard error of the logarithm of what bounds so many replicas keep: as slow, or as fast, they may be."""
        return _wide(self.fit, self.loss, replicas)

    def halves(self, counter: Counter, replicas: int) -> tuple[float, float, float]:
        """How far the count leans, and the halves of its 95 % interval below and above: logarithms.

        Halves are infinite where a side is open.
        """
        wide = self.error(replicas)
        _, less, more = _halves(self.fit, counter, replicas, wide)
        return lean(more, self.risk), less, more


class Sizer:
    """Visits of one replica (and of more), fitted once per kind of question and asked as often as wanted.

    Args:
        visits: closed loops without pauses.
        objectives: what is to be kept.

    Attributes:
        curves: what was measured, one per objective.
    """

    def __init__(self, visits: Sequence[Observed], objectives: Sequence[Objective]) -> None:
        base = min(each.gpus for each in visits)
        self._base = base
        alone = [each for each in visits if each.gpus == base]
        self.curves = [Curve(each, number, alone) for number, each in enumerate(objectives)]
        self._objectives = objectives
        self._visits = [excerpt(each) for each in alone]
        self._others = [excerpt(each) for each in visits if each.gpus > base]
        self._capacities = [curve_capacity(curve) for curve in self.curves]
        self._fits: dict[tuple[bool, str | None], Candidate | None] = {}
        self._losses: dict[tuple[str, str], Contention] = {}

    def size(self, asked: ClusterLoad, *, model: str | None = None, risk: float = RISK) -> Sized:
        """The fewest replicas for a load; ``model`` for one that is to answer whatever the others say; see ``lean``."""
        known = [each for each in self._capacities if each is not None]
        if not known and len({each.users for each in self._visits}) < 2:
            return Sized(reason="one load alone does not show how times grow with it", details={"refusal": "data"})
        if not known:
            return flat(self._visits, asked)
        capacity = min(known)
        if capacity < 1:
            return missed(self.curves[self._capacities.index(capacity)])
        if (few := self._unsure()) is not None:
            return few
        chosen = self._chosen(asked, model)
        if chosen is None:
            return Sized(reason=self._untold)
        if chosen.distance > UNFIT:
            return unfit(chosen)
        curve = self.curves[self._capacities.index(capacity)]
        gap = curve_gap(curve, capacity) if chosen.name == "measured" else (0.0, 0.0)
        loss, loop = self._loss(chosen, asked.router), ClusterLoad.of_visit(self._visits[0])
        found = _counted(chosen, asked, self._objectives, capacity, loss, risk, gap, loop)
        return replace(found, between=curve_bracket(curve))

    def performance(self, asked: ClusterLoad, replicas: float) -> Performance | None:
        """How so many replicas fare; of a part of one in proportion. None where no replica could be fitted."""
        known = [each for each in self._capacities if each is not None]
        chosen = self._chosen(asked, None) if known and min(known) >= 1 else None
        if chosen is None or chosen.distance > UNFIT or replicas <= 0:
            return None
        loss = self._loss(chosen, asked.router)
        return performance(chosen.replica, asked, [each.target for each in self._objectives], loss, replicas)

    def model(self, asked: ClusterLoad, *, lengths: bool = False, risk: float = RISK) -> Model | Sized:
        """What a load is simulated with, whatever its size; a refusal where nothing could be fitted.

        With ``lengths`` requests are to be of other lengths than the measured ones, which only batching and static
        batches can follow: they are taken where they may answer at all, though another may come nearer.
        """
        known = [each for each in self._capacities if each is not None]
        if not known:
            return flat(self._visits, asked.of(math.inf))
        capacity = min(known)
        if capacity < 1:
            return missed(self.curves[self._capacities.index(capacity)])
        if (few := self._unsure()) is not None:
            return few
        chosen = self._chosen(asked, None)
        if lengths and (chosen is None or chosen.name != "static"):
            priced = self._chosen(asked, "batching")
            chosen = priced if priced is not None and priced.distance <= UNFIT else chosen
        if chosen is None:
            return Sized(reason=self._untold)
        if chosen.distance > UNFIT:
            return unfit(chosen)
        targets = tuple(each.target for each in self._objectives)
        return Model(chosen, targets, self._loss(chosen, asked.router), risk)

    @property
    def _untold(self) -> str:
        """Why no model could be fitted."""
        if any(curve.objective.of_calls for curve in self.curves):
            return "the calls inside requests cannot be simulated: they overlap, or are too few; ask for runtime"
        if self._visits[0].think_s > 0:
            return (
                "of users who pause it answers SLOs on the runtime, each by itself; measure without --think for others"
            )
        return "the records do not tell enough to fit a model"

    def _unsure(self) -> Sized | None:
        """A refusal where light loads do not show that they keep an objective which heavier ones miss."""
        for curve, at in zip(self.curves, self._capacities, strict=True):
            few = None if at is None else unsure(curve, at)
            if few is not None:
                return by_chance(curve, few)
        return None

    def _chosen(self, asked: ClusterLoad, model: str | None) -> Candidate | None:
        if (asked.even, model) not in self._fits:
            top = float(max(each.users for each in self._visits))
            places = [max(1.0, top if each is None else each) for each in self._capacities]
            self._fits[asked.even, model] = choose(self._visits, self.curves, places, even=asked.even, model=model)
        return self._fits[asked.even, model]

    def _loss(self, chosen: Candidate, router: str) -> Contention:
        if not self._others:
            return Contention()
        if (chosen.name, router) not in self._losses:
            own = isinstance(chosen.replica, Batching) and chosen.replica.service.apart is not None
            known = own or chosen.name in ("static", "tasks")
            timed = chosen.replica if known else self._timed() or chosen.replica
            self._losses[chosen.name, router] = contention([*self._visits, *self._others], self._base, timed, router)
        return self._losses[chosen.name, router]

    def _timed(self) -> Replica | None:
        """What visits of more replicas are held against: a model of times, whichever may answer."""
        joint = len(self.curves[0].objective.parts) > 1
        return (
            batching(self._visits, self.curves, joint=joint, prompts_alone=True)
            or batching(self._visits, self.curves, joint=joint)
            or flow(self._visits, self.curves)
        )


def _counted(
    chosen: Candidate,
    asked: ClusterLoad,
    objectives: Sequence[Objective],
    capacity: float,
    loss: Contention,
    risk: float,
    gap: tuple[float, float],
    loop: ClusterLoad,
) -> Sized:
    shares = [each.target for each in objectives]
    users, capacity = capacity, _in_flight(chosen, loop, capacity)
    guess = mean_field(asked, capacity, chosen.replica.residence_s(capacity))
    first, counter = None, Counter(chosen.replica, asked, shares, loss)
    weaker = 0
    for weaker in range(MOST_ERRORS + 1):
        # Near the most that replicas can do together the loss decides whether there is a number at all.
        counter = Counter(chosen.replica, asked, shares, loss.weaker(weaker))
        first = counter.fewest(guess)
        if first is not None:
            break
    if first is None:
        return never(chosen, loss)
    wide = _wide(chosen, loss, first)
    found = _interval(chosen, counter, first, wide, risk, gap)
    if found is None:
        return never(chosen, loss)
    if weaker:
        found = replace(found, high=None, raw_high=None)
    details = {
        "edge": users,
        "error": chosen.error,
        "freedom": chosen.freedom,
        "misfit": chosen.misfit,
        "felt": chosen.felt,
        "situation": asked.situation,
        "distance": chosen.distance,
        "calibration": math.exp(chosen.corrections[0]),
        "levels": chosen.levels,
        "sigma": loss.sigma,
        "kappa": loss.kappa,
        "slowness": loss.counts,
        "runs": counter.runs,
        "mechanics": chosen.replica.service.to_json() if isinstance(chosen.replica, Batching) else None,
        **found.details,
    }
    if asked.rate is not None and found.raw:
        # From a load beside it: the search goes only so far.
        alone = Counter(chosen.replica, asked.of(asked.load / found.raw), shares, counter.loss).carried(1, 0.0)
        details["carried_alone"] = alone
    if found.replicas is not None and not counter.overrun(asked.load, found.replicas):
        details["in_flight_each"] = counter.run(asked.load, found.replicas).in_flight / found.replicas
    around = _neighbours(counter, found, objectives)
    return replace(found, capacity=capacity, model=chosen.name, details=details, neighbours=around)


def _in_flight(chosen: Candidate, loop: ClusterLoad, users: float) -> float:
    """Requests in flight on one replica with so many users, who may pause."""
    return users if loop.think_s <= 0 else chosen.replica.run(loop.of(users), 1).in_flight


def _neighbours(counter: Counter, found: Sized, objectives: Sequence[Objective]) -> tuple[dict[str, Any], ...]:
    """What the replicas, one less and one more are expected to keep, each of what it is nearest to missing.

    Not of a mean, which is no share of requests: nothing where one of them is nearest to that.
    """
    if found.replicas is None:
        return ()
    load, asked = counter.asked.load, [each.target for each in objectives]
    most = max(_most(counter.asked), found.replicas)
    each = []
    for replicas in range(max(1, found.replicas - 1), min(found.replicas + 1, most) + 1):
        over = counter.overrun(load, replicas)
        kept = (0.0,) * len(asked) if over else counter.run(load, replicas).shares(1.0)
        worst = tightest(kept, asked)
        if objectives[worst].share is None:
            return ()
        of = {"slo": objectives[worst].text, "of": objectives[worst].judged}
        each.append({"replicas": replicas, "attainment": kept[worst], "asked": asked[worst], **of})
    return tuple(each)


def _most(asked: ClusterLoad) -> int:
    """More replicas change nothing: where each request goes to an idle one, one for each user."""
    alone = asked.users is not None and asked.router in ("least_loaded", "shared")
    return math.ceil(asked.users) if alone and asked.users is not None else MOST_REPLICAS


def _interval(
    chosen: Candidate, counter: Counter, first: int, wide: float, risk: float, gap: tuple[float, float]
) -> Sized | None:
    """The count and its interval: bounds stretched by their errors, and what the suite shows to come on top.

    Nobody knows the shape of a curve without a mechanism within a gap between its levels: batches make steps there. So
    the capacity may be anywhere in it, which has a standard error of 1 / sqrt(12) of it.

    Args:
        gap: how far below the capacity and above it the next levels are, in log c.
    """
    raw = counter.raw(first)
    sides, less, more = _halves(chosen, counter, first, wide)
    unseen = HALF * sum(gap) / math.sqrt(12)
    less, more = (min(math.hypot(a, unseen), a + b) for a, b in ((less, gap[1]), (more, gap[0])))
    bias = lean(more, risk)
    # So many times the load take about so many times the replicas.
    best = counter.fewest(raw * math.exp(bias), -bias, near=True)
    if best is None:
        return None
    best = _useful(counter, best)
    low, high = 1, None
    if math.isfinite(less):
        low = min(best, counter.fewest(raw * math.exp(-less), less, near=True, close=ROUGHLY) or best)
    if math.isfinite(more):
        most = counter.fewest(raw * math.exp(more), -more, near=True, close=ROUGHLY)
        high = None if most is None else max(best, _useful(counter, most))
    raw_high = None if high is None else raw * math.exp(more)
    raw_high = min(raw_high, high) if raw_high is not None and high == _most(counter.asked) else raw_high
    # What fewer replicas would miss first; of what is overrun nothing tells.
    fewer = best - 1 if best > 1 and not counter.overrun(counter.asked.load, best - 1) else best
    binding = counter.binding(fewer)
    halves = [each if math.isfinite(each) else None for each in sides]
    carries = [_carries(counter, replicas, bias) for replicas in range(max(1, best - 1), best + 1)]
    details = {"halves": halves, "carries": [each for each in carries if each is not None]}
    return Sized(best, raw, low, high, raw * math.exp(-less), raw_high, None, binding, details=details)


def _useful(counter: Counter, replicas: int) -> int:
    """So many, or one for each user, where that keeps the SLOs: it does not where replicas slow each other down."""
    users = _most(counter.asked)
    return users if replicas > users and counter.margin(counter.asked.load, users) >= 0 else replicas


def _carries(counter: Counter, replicas: int, bias: float) -> dict[str, float] | None:
    """The largest load for which so many replicas are the answer, or more than enough."""
    load = counter.carried(replicas, 0.0)
    if load is None:
        return None
    # As many users as replicas are alone, which is as good as it gets.
    lossless = counter.loss.kappa <= 0 and counter.loss.sigma <= 0
    alone = replicas if _most(counter.asked) < MOST_REPLICAS and lossless else 0
    return {"replicas": replicas, "load": max(load * math.exp(-bias), alone)}


def _halves(chosen: Candidate, counter: Counter, replicas: int, wide: float) -> tuple[list[float], float, float]:
    """Halves of the interval of the logarithm of the count, by the bounds' errors; and with what the suite shows."""
    sides = counter.sides(replicas, t_quantile(chosen.freedom) * wide)
    less, more = (_open(wider(each, chosen.name, counter.asked.situation)) for each in sides)
    return sides, less, more


def _open(half: float) -> float:
    """Half an interval, infinite where it is so wide that it says nothing: nor can such loads be simulated."""
    return half if half <= MOST_HALF else math.inf


def _wide(chosen: Candidate, loss: Contention, replicas: int) -> float:
    return bound_error(chosen.error, chosen.misfit, chosen.felt, loss.error(replicas))
