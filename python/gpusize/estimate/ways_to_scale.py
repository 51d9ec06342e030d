"""Ways to come to the wanted load: more GPUs in the host that was measured, or more hosts like it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from gpusize.estimate.capacities import Capacity
from gpusize.estimate.laws import AMDAHL, LINEAR, Count, hosts_for
from gpusize.estimate.laws.counts import worst
from gpusize.estimate.question import Question, gpus_text

__all__ = ["Option", "in_host", "options", "unit_of", "whole_hosts"]

_NAMES = {LINEAR: "in proportion", AMDAHL: "by Amdahl's law", "usl": "by the USL"}


@dataclass(frozen=True, slots=True)
class Option:
    """One way.

    Attributes:
        name: ``more GPUs in that host``, or ``whole hosts of 4 GPUs``.
        gpus: GPUs in all; None where there is no number.
        low: fewer are not enough; None where no number can be.
        high: more are not needed; None where the end is open.
        next: numbers of GPUs that are worth measuring.
        text: all of it in words.
        capacity: load that ``gpus`` carry.
        needed: load that they have to carry: of requests that come at random more than comes.
    """

    name: str
    gpus: int | None
    low: int | None
    high: int | None
    next: tuple[int, ...]
    text: str
    capacity: float | None = None
    needed: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain fields."""
        return asdict(self)


def options(found: Sequence[Capacity], count: Count, wanted: float, question: Question) -> list[Option]:
    """Every way, first that in one host; of copies of what was measured those of the largest and the cheapest count."""
    ways = [in_host(count, found[-1], wanted, question)]
    copies = [_copies(c.gpus, c.load, c.se, wanted, c.needed(wanted)) for c in found]
    cheapest = min(copies, key=lambda each: each.gpus or 0)
    kept = [cheapest, copies[-1]] if len(copies) > 1 else []
    if question.host_gpus:
        kept.append(whole_hosts(question, found, count, wanted))
    for way in kept:
        if all(way.name != other.name for other in ways):
            ways.append(way)
    return ways


def in_host(count: Count, largest: Capacity, wanted: float, question: Question) -> Option:
    """More GPUs in the host that was measured, ``largest`` of them: the law's count."""
    per, unit, needed = question.gpus_per_replica, unit_of(question, largest), largest.needed(wanted)
    low, high = _times(count.low, per), _times(count.high, per)
    follow = tuple(n * per for n in count.next)
    name = "more GPUs in that host"
    if count.n is None:
        limit, peak = count.law.limit, count.law.peak
        at = f" with {gpus_text(max(1, round(peak)) * per)}" if math.isfinite(peak) else " however many there are"
        text = f"perhaps never: {_NAMES[count.law.name]} they carry at most {limit:.4g} {unit}{at}"
        if low is not None:
            text += f"; at least {gpus_text(low)} by the upper end of its interval"
        return Option(name, None, low, None, follow, text, needed=needed)
    loss = ", as the loss is within the noise" if count.law.name == AMDAHL and count.law.sigma == 0 else ""
    text = f"{gpus_text(count.n * per)} {_NAMES[count.law.name]}{loss} ({_interval(low, high)})"
    text += _perhaps(count, needed, per, unit)
    return Option(name, count.n * per, low, high, follow, text, count.law.at(count.n), needed)


def _perhaps(count: Count, needed: float, per: int, unit: str) -> str:
    """What speaks for it that there is no such number."""
    if count.high is not None:
        return ""
    points = count.fit.points
    counts = len({p.count for p in points})
    if counts != 2:
        return "; by the lower end of the USL's interval no number is enough" if counts > 2 else ""
    least = worst(points)
    n = least.smallest(needed)
    if n is None:
        peak = gpus_text(max(1, round(least.peak)) * per)
        return f"; by the USL perhaps never, as it may peak at {least.limit:.4g} {unit} with {peak}"
    return f"; by the USL up to {gpus_text(n * per)}"


def whole_hosts(question: Question, found: Sequence[Capacity], count: Count, wanted: float) -> Option:
    """Whole hosts of so many GPUs as the question says, by their measured capacity, else by the law's."""
    gpus, per = question.host_gpus or found[-1].gpus, question.gpus_per_replica
    known = next((c for c in found if c.gpus == gpus), None)
    if known is not None:
        load, se, needed = known.load, known.se, known.needed(wanted)
    else:
        low, high = count.fit.capacity(gpus // per)
        load = count.law.at(gpus // per)
        se = max(high - load, load - low) / 1.96
        needed = found[-1].needed(wanted)
    if needed <= load and count.n is not None and count.n * per < gpus:
        inside = in_host(count, found[-1], wanted, question)
        high_gpus = gpus if inside.high is None else min(gpus, inside.high)
        return replace(inside, name=f"one host of {gpus} GPUs", high=high_gpus)
    way = _copies(gpus, load, se, wanted, needed)
    if known is not None:
        return way
    of = f"{load:.4g} {unit_of(question, found[-1])} each {_NAMES[count.law.name]}"
    return replace(way, next=(gpus,), text=f"{way.text}; hosts of {gpus} were not measured: {of}")


def _copies(gpus: int, load: float, se: float, wanted: float, needed: float) -> Option:
    """Copies of a host whose capacity is known; fewer are surely not enough only where ``wanted`` says so."""
    hosts, _, high = hosts_for(load, se, needed)
    low = hosts_for(load, se, wanted)[1]
    total = hosts * gpus
    sides = _interval(low * gpus, _times(high, gpus))
    text = f"{hosts} x {gpus} = {gpus_text(total)} ({sides})"
    follow = (2 * gpus,) if hosts > 1 else ()
    if follow:
        text += "; measure two such hosts together"
    name = f"whole hosts of {gpus_text(gpus)}"
    return Option(name, total, low * gpus, _times(high, gpus), follow, text, hosts * load, needed)


def unit_of(question: Question, capacity: Capacity) -> str:
    """Of a capacity: users who pause are not all in flight, and closed loops are not what comes at random."""
    if question.rate is not None:
        return "requests/s" if capacity.at_random is None else "requests/s in the closed loop"
    return "users" if question.think == "none" else "in flight"


def _times(n: int | None, per: int) -> int | None:
    return None if n is None else n * per


def _interval(low: int | None, high: int | None) -> str:
    if low is None:
        return "any number" if high is None else f"at most {high}"
    if high is None:
        return f"at least {low}"
    return f"{low} to {high}" if low != high else f"surely {low}"
