"""Ways to come to the wanted load: more GPUs in the host that was measured, or more hosts like it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
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
    """

    name: str
    gpus: int | None
    low: int | None
    high: int | None
    next: tuple[int, ...]
    text: str
    capacity: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain fields."""
        return asdict(self)


def options(found: Sequence[Capacity], count: Count, wanted: float, question: Question) -> list[Option]:
    """Every way, first that in one host; of copies of what was measured those of the largest and the cheapest count."""
    ways = [in_host(count, wanted, question)]
    copies = [_copies(c.gpus, c.load, c.se, wanted) for c in found]
    cheapest = min(copies, key=lambda each: each.gpus or 0)
    kept = [cheapest, copies[-1]] if len(copies) > 1 else []
    if question.host_gpus:
        kept.append(whole_hosts(question, found, count, wanted))
    for way in kept:
        if all(way.name != other.name for other in ways):
            ways.append(way)
    return ways


def in_host(count: Count, wanted: float, question: Question) -> Option:
    """More GPUs in the host that was measured: the law's count."""
    per, unit = question.gpus_per_replica, unit_of(question)
    low, high = _times(count.low, per), _times(count.high, per)
    follow = tuple(n * per for n in count.next)
    name = "more GPUs in that host"
    if count.n is None:
        limit, peak = count.law.limit, count.law.peak
        at = f" with {gpus_text(max(1, round(peak)) * per)}" if math.isfinite(peak) else " however many there are"
        text = f"perhaps never: {_NAMES[count.law.name]} they carry at most {limit:.4g} {unit}{at}"
        if low is not None:
            text += f"; at least {gpus_text(low)} by the upper end of its interval"
        return Option(name, None, low, None, follow, text)
    loss = ", as the loss is within the noise" if count.law.name == AMDAHL and count.law.sigma == 0 else ""
    text = f"{gpus_text(count.n * per)} {_NAMES[count.law.name]}{loss} ({_interval(low, high)})"
    text += _perhaps(count, wanted, question)
    return Option(name, count.n * per, low, high, follow, text, count.law.at(count.n))


def _perhaps(count: Count, wanted: float, question: Question) -> str:
    """What speaks for it that there is no such number."""
    if count.high is not None:
        return ""
    points = count.fit.points
    counts = len({p.count for p in points})
    if counts != 2:
        return "; by the lower end of the USL's interval no number is enough" if counts > 2 else ""
    least = worst(points)
    n = least.smallest(wanted)
    per, unit = question.gpus_per_replica, unit_of(question)
    if n is None:
        peak = gpus_text(max(1, round(least.peak)) * per)
        return f"; by the USL perhaps never, as it may peak at {least.limit:.4g} {unit} with {peak}"
    return f"; by the USL up to {gpus_text(n * per)}"


def whole_hosts(question: Question, found: Sequence[Capacity], count: Count, wanted: float) -> Option:
    """Whole hosts of so many GPUs as the question says, by their measured capacity, else by the law's."""
    gpus, per = question.host_gpus or found[-1].gpus, question.gpus_per_replica
    known = next((c for c in found if c.gpus == gpus), None)
    if known is not None:
        load, se = known.load, known.se
    else:
        low, high = count.fit.capacity(gpus // per)
        load = count.law.at(gpus // per)
        se = max(high - load, load - low) / 1.96
    if wanted <= load and count.n is not None and count.n * per < gpus:
        inside = in_host(count, wanted, question)
        high_gpus = gpus if inside.high is None else min(gpus, inside.high)
        return Option(
            f"one host of {gpus} GPUs", inside.gpus, inside.low, high_gpus, inside.next, inside.text, inside.capacity
        )
    way = _copies(gpus, load, se, wanted)
    if known is not None:
        return way
    text = (
        f"{way.text}; hosts of {gpus} were not measured: {load:.4g} {unit_of(question)} each {_NAMES[count.law.name]}"
    )
    return Option(way.name, way.gpus, way.low, way.high, (gpus,), text, way.capacity)


def _copies(gpus: int, load: float, se: float, wanted: float) -> Option:
    """Copies of a host whose capacity is known."""
    hosts, low, high = hosts_for(load, se, wanted)
    total = hosts * gpus
    sides = _interval(low * gpus, _times(high, gpus))
    text = f"{hosts} x {gpus} = {gpus_text(total)} ({sides})"
    follow = (2 * gpus,) if hosts > 1 else ()
    if follow:
        text += "; measure two such hosts together"
    return Option(
        f"whole hosts of {gpus_text(gpus)}", total, low * gpus, _times(high, gpus), follow, text, hosts * load
    )


def unit_of(question: Question) -> str:
    """Of what is carried: users who pause are not all in flight."""
    if question.rate is not None:
        return "requests/s"
    return "users" if question.think == "none" else "in flight"


def _times(n: int | None, per: int) -> int | None:
    return None if n is None else n * per


def _interval(low: int | None, high: int | None) -> str:
    if low is None:
        return "any number" if high is None else f"at most {high}"
    if high is None:
        return f"at least {low}"
    return f"{low} to {high}" if low != high else f"surely {low}"
