"""The capacity of each GPU count: the highest load that keeps the SLO, in requests in flight or requests per second.

A rate comes from open-loop levels where there are any that bracket it, else from the throughput of a closed loop at the
number of users up to which the SLO is kept. Throughput is made non-decreasing in the concurrency first, which pools
what is noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from gpusize.analysis.failed_requests import misses_by_failures, told_requests
from gpusize.analysis.throughput import rates_of, requests_each
from gpusize.estimate.arrivals_at_random import ArrivalsAtRandom
from gpusize.estimate.isotonic import decreasing
from gpusize.estimate.question import gpus_text
from gpusize.estimate.slo_limit import SloLimit, load_of, slo_limit

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData
    from gpusize.analysis.slo import Slo

__all__ = ["Capacity", "Carried", "Found", "capacities"]

LEAST_SE: Final = 0.005
"""Relative standard error below which no capacity is believed, however little its levels scatter."""
UNKNOWN_SE: Final = 0.05
"""The same where nothing shows how much levels scatter: one level per count, of another tool."""
FALL: Final = 0.1
"""Levels after the peak of throughput that are lower by more than this are left out: the target is overrun."""
WIDE: Final = 0.15
"""A gap between two levels that is worth a level between them, as a share of the capacity in it."""
BATCHES: Final = 16
LEAST_REQUESTS: Final = 160


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one number of GPUs carries.

    Attributes:
        gpus: their number.
        load: requests in flight, or requests per second.
        se: its standard error.
        users: the fewest requests in flight at which that is; None for open loops.
        how: ``users``, ``closed`` (a rate from a closed loop) or ``open``.
        gap: the loads of the two levels around it, where they lie far apart.
        at_random: of a rate from a closed loop, what it is for requests that come at random, where that was asked for.
    """

    gpus: int
    load: float
    se: float
    users: float | None
    how: str
    gap: tuple[float, float] | None = None
    at_random: ArrivalsAtRandom | None = None

    def needed(self, wanted: float) -> float:
        """What a closed loop has to answer for ``wanted`` to be carried; inf where no number of GPUs does."""
        return wanted if self.at_random is None else self.at_random.closed_rate(wanted)


class Carried(NamedTuple):
    """A load that so many GPUs were seen to carry; ``at_random``: that follows from their closed loops instead."""

    gpus: int
    load: float
    at_random: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """Capacities by count, ascending, and what is known of the counts without one.

    Attributes:
        capacities: of the counts whose levels show one.
        kept: what counts carry whose largest level keeps the SLO still: their capacity is not below that.
        missing: why counts have none.
        next_levels: concurrencies that would show it.
    """

    capacities: tuple[Capacity, ...]
    kept: tuple[Carried, ...]
    missing: tuple[str, ...]
    next_levels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Curve:
    """Throughput of a closed loop: non-decreasing rates over the concurrency, and how much levels scatter about it.

    ``all`` goes on where the target is overrun.
    """

    users: tuple[float, ...]
    rates: tuple[float, ...]
    all: tuple[tuple[float, float], ...]
    squares: float
    freedom: int
    own: tuple[float, ...]

    def own_at(self, users: float) -> float:
        """Relative standard error of the level nearest to so many users, by itself."""
        return self.own[min(range(len(self.users)), key=lambda k: abs(self.users[k] - users))]

    def at(self, users: float) -> float:
        """The rate at so many users, straight between levels."""
        import numpy as np

        return float(np.interp(users, [0.0, *self.users], [0.0, *self.rates]))


def capacities(
    levels: Sequence[LevelData], slo: Slo | None, *, rate: bool, at_random: bool = False, apart: bool = False
) -> Found:
    """The capacity of each count that has one.

    Args:
        levels: pooled, of any number of counts; closed and open loops.
        slo: what must be kept; None for throughput alone, of a rate only.
        rate: whether requests per second are wanted, instead of requests in flight.
        at_random: whether these come at random, so that what closed loops kept is less for them.
        apart: whether a router picks at random, so that no target helps another out.
    """
    groups: dict[int, list[LevelData]] = {}
    for level in levels:
        groups.setdefault(level.gpus, []).append(level)
    curves = {gpus: _curve([lv for lv in group if lv.concurrency]) for gpus, group in groups.items()} if rate else {}
    scatter = _scatter([curve for curve in curves.values() if curve is not None])
    found: list[Capacity] = []
    missing: list[str] = []
    follow: set[int] = set()
    kept: list[Carried] = []
    for gpus in sorted(groups):
        closed = [lv for lv in groups[gpus] if lv.concurrency]
        opened = [lv for lv in groups[gpus] if not lv.concurrency]
        one = (
            _of_rate(gpus, opened, closed, slo, curves.get(gpus), scatter, at_random=at_random, apart=apart)
            if rate
            else _of_users(gpus, closed, slo)
        )
        if isinstance(one, Capacity):
            found.append(one)
        else:
            missing.append(f"{gpus_text(gpus)}: {one.why}")
            follow |= set(one.next_levels)
            if one.kept is not None:
                kept.append(Carried(gpus, one.kept, one.at_random))
    return Found(tuple(found), tuple(kept), tuple(missing), tuple(sorted(follow)))


@dataclass(frozen=True, slots=True)
class _Unknown:
    """Why a count has no capacity, the concurrencies to measure, and what it carries at least, as in `Carried`."""

    why: str
    next_levels: tuple[int, ...] = ()
    kept: float | None = None
    at_random: bool = False


def _of_users(gpus: int, closed: Sequence[LevelData], slo: Slo | None) -> Capacity | _Unknown:
    at = slo_limit(closed, slo)
    if at.kind == "found":
        return Capacity(gpus, at.at, max(at.se, LEAST_SE * at.at), at.at, "users", _gap(at))
    return _without(at, closed, slo, at.at)


def _of_rate(
    gpus: int,
    opened: Sequence[LevelData],
    closed: Sequence[LevelData],
    slo: Slo | None,
    curve: _Curve | None,
    scatter: float,
    *,
    at_random: bool,
    apart: bool,
) -> Capacity | _Unknown:
    at = slo_limit(opened, slo)
    if at.kind == "found":
        return Capacity(gpus, at.at, max(at.se, LEAST_SE * at.at), None, "open", _gap(at))
    if not closed:
        return _without_rate(at, opened, slo)
    if curve is None:
        return _Unknown("no level tells how much was answered")
    bound = (
        SloLimit("above", max(float(lv.concurrency or 0) for lv in closed)) if slo is None else slo_limit(closed, slo)
    )

    def queue(load: float, edge: float | None = None) -> ArrivalsAtRandom | None:
        if slo is None or not at_random:
            return None
        return ArrivalsAtRandom.of(curve.all, closed, slo, load, edge, apart=apart)

    if bound.kind == "above" and _levelled_off(closed):
        load = curve.rates[-1]
        se = load * max(curve.own_at(curve.users[-1]), scatter, LEAST_SE)
        first = next(u for u, rate in zip(curve.users, curve.rates, strict=True) if rate >= load - se)
        return Capacity(gpus, load, se, first, "closed", at_random=queue(load))
    if bound.kind == "above":
        top = round(bound.at)
        why = f"throughput still rises at concurrency {top}, its largest level"
        asked = queue(curve.rates[-1])
        carried = curve.rates[-1] if asked is None else asked.most()
        return _Unknown(why, (2 * top, 4 * top), carried, at_random=asked is not None)
    if bound.kind != "found":
        return _without(bound, closed, slo, None)
    load = curve.at(bound.at)
    around = (curve.at(bound.right) - curve.at(bound.left)) / (bound.right - bound.left)
    se = math.hypot(around * bound.se, load * max(curve.own_at(bound.at), scatter, LEAST_SE))
    return Capacity(gpus, load, se, bound.at, "closed", at_random=queue(load, bound.at))


def _gap(at: SloLimit) -> tuple[float, float] | None:
    """The levels around a capacity, where measuring between them would make it surer."""
    return (at.left, at.right) if at.right - at.left > max(1.0, WIDE * at.at) else None


def _without(at: SloLimit, levels: Sequence[LevelData], slo: Slo | None, kept: float | None) -> _Unknown:
    if at.kind == "above":
        top = round(at.at)
        more = (math.ceil(1.5 * top), 2 * top, 4 * top)
        return _Unknown(f"concurrency {top}, its largest level, still meets the SLO", more, kept)
    if at.kind == "below" and _fail(levels, slo):
        return _Unknown(f"more requests failed than {slo} allows at every level")
    if at.kind == "below" and at.by_chance:
        low = round(at.at)
        why = f"concurrency {low}, its smallest level, misses the SLO by no more than chance allows"
        return _Unknown(f"{why}; measure it for longer", (low,))
    if at.kind == "below" and at.at <= 1:
        return _Unknown("a single request in flight already misses the SLO")
    if at.kind == "below":
        low = round(at.at)
        fewer = tuple(sorted({1, max(1, low // 4), max(1, low // 2)}))
        return _Unknown(f"concurrency {low}, its smallest level, misses the SLO", fewer)
    return _Unknown(_no_data(levels, slo) if levels else "it has no closed-loop level")


def _no_data(levels: Sequence[LevelData], slo: Slo | None) -> str:
    if slo is not None and slo.kind == "percentile":
        stated = [lv for lv in levels if told_requests(lv)[1] and lv.quantile(slo.metric, slo.share) is not None]
        if stated:
            return "requests failed, and the figures state no percentile that is high enough to tell"
    return "no level has data for the SLO"


def _fail(levels: Sequence[LevelData], slo: Slo | None) -> bool:
    """Whether each level that was measured to its end misses the SLO through failures alone."""
    done = [level for level in levels if level.state == "done"]
    return slo is not None and bool(done) and all(misses_by_failures(level, slo) for level in done)


def _without_rate(at: SloLimit, levels: Sequence[LevelData], slo: Slo | None) -> _Unknown:
    if at.kind == "above":
        more = f"measure {_arrivals(levels, 1.5 * at.at, 2 * at.at)}"
        return _Unknown(f"{at.at:g} requests/s, its largest level, is still kept up with; {more}", kept=at.at)
    if at.kind == "below" and _fail(levels, slo):
        return _Unknown(f"more requests failed than {slo} allows at every level")
    if at.kind == "below" and at.by_chance:
        why = f"{at.at:g} requests/s, its smallest level, misses the SLO by no more than chance allows"
        return _Unknown(f"{why}; measure {_arrivals(levels, at.at)} for longer")
    if at.kind == "below":
        fewer = f"measure {_arrivals(levels, at.at / 4, at.at / 2)}"
        much = f"{at.at:g} requests/s, its smallest level, is already too much"
        answered = _perhaps_not_sent(at.at, levels)
        if answered is not None:
            much += f", or was not sent, as {answered:.4g} requests/s were answered"
            fewer += ", or numbers in flight"
        return _Unknown(f"{much}; {fewer}")
    return _Unknown(_no_data(levels, slo))


def _perhaps_not_sent(rate: float, levels: Sequence[LevelData]) -> float | None:
    """What was answered per second of a rate whose figures do not say how much of it was sent; None where they do."""
    told = [lv for lv in levels if lv.imported and load_of(lv) == rate and "not-delivered" in lv.meta.get("flags", ())]
    return rates_of(told[0]).achieved if told else None


def _arrivals(levels: Sequence[LevelData], *rates: float) -> str:
    """Rates in requests/s as they are asked of a run: in the conversations that it begins where levels did so."""
    by_session = [level for level in levels if level.by_session and level.state == "done"]
    if not by_session:
        return " and ".join(f"{rate:g}" for rate in rates)
    # Of an overrun target later turns never came: the lightest load says best how many a conversation has.
    each = requests_each(min(by_session, key=lambda level: level.rate or 0.0))
    return f"{' and '.join(f'{rate / each:.3g}' for rate in rates)} conversations/s"


def _curve(closed: Sequence[LevelData]) -> _Curve | None:
    rates: dict[float, tuple[float, LevelData]] = {}
    for level in sorted(closed, key=lambda lv: lv.concurrency or 0):
        rate, load = rates_of(level).achieved, load_of(level)
        if level.state == "done" and rate is not None and rate > 0 and load is not None:
            rates.setdefault(load, (rate, level))
    if not rates:
        return None
    users, raw = list(rates), [rate for rate, _ in rates.values()]
    peak = max(range(len(raw)), key=raw.__getitem__)
    # From the first level on that is far below the peak, more users bring less.
    last = next((k for k in range(peak + 1, len(raw)) if raw[k] < (1 - FALL) * raw[peak]), len(raw))
    beyond = tuple(zip(users[last:], raw[last:], strict=True))
    users, raw = users[:last], raw[:last]
    rising = [-value for value in decreasing([-value for value in raw], [1.0] * len(raw))]
    squares = sum((value / smooth - 1) ** 2 for value, smooth in zip(raw, rising, strict=True))
    freedom = len(raw) - len(set(rising))
    own = [_own_se(rates[load][1]) for load in users]
    every = (*zip(users, rising, strict=True), *beyond)
    return _Curve(tuple(users), tuple(rising), every, squares, freedom, tuple(own))


def _scatter(curves: Sequence[_Curve]) -> float:
    """Relative standard deviation of levels about their curve, over all counts; a guess where nothing shows it."""
    freedom = sum(curve.freedom for curve in curves)
    if freedom:
        return math.sqrt(sum(curve.squares for curve in curves) / freedom)
    return 0.0 if curves and all(min(curve.own) > 0 for curve in curves) else UNKNOWN_SE


def _own_se(level: LevelData) -> float:
    """Relative standard error of a level's throughput, by batches of equal time; 0 for imports, which do not tell."""
    if level.imported:
        return 0.0
    import polars as pl

    total, squares = 0, 0.0
    for visit in level.visits():
        start, end = visit.window()
        width = max(1, (end - start) // BATCHES)
        batch = ((pl.col("due_ns") - start) // width).clip(0, BATCHES - 1)
        counted = visit.ok().select(batch.alias("batch")).group_by("batch").len().collect(engine="streaming")
        sizes = counted["len"].to_list()
        mean = sum(sizes) / BATCHES
        squares += sum((size - mean) ** 2 for size in sizes) + (BATCHES - len(sizes)) * mean**2
        total += sum(sizes)
    if total < LEAST_REQUESTS * len(level.visits()):
        return 1 / math.sqrt(max(1, total))
    # The variance of a sum of batches is the sum of theirs.
    return math.sqrt(squares * BATCHES / (BATCHES - 1)) / total


def _levelled_off(closed: Sequence[LevelData]) -> bool:
    """Whether throughput no longer rises with the users; a single level does not show it."""
    from gpusize.analysis.detect import plateau

    done = sorted((lv for lv in closed if lv.state == "done"), key=lambda lv: lv.concurrency or 0)
    users = [float(lv.concurrency or 0) for lv in done]
    rates = [math.nan if (rate := rates_of(lv).achieved) is None else rate for lv in done]
    # By Little's law the mean runtime is users over rate: no percentile is needed.
    times = [u / r if r and r > 0 else math.nan for u, r in zip(users, rates, strict=True)]
    return len(done) > 1 and any(plateau(users, rates, times))
