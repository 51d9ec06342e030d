"""What an answer says beside its number: assumptions, warnings, what to measure next, figures for tables and plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gpusize.estimate.question import Estimate, Question
    from gpusize.estimate.twin.attainment_curve import Curve
    from gpusize.estimate.twin.sizing_result import Sized
    from gpusize.estimate.twin.visit_data import Observed

__all__ = ["around", "details", "fallen", "loop", "near_capacity", "refused", "warnings", "with_served"]

SHORT: Final = 300
"""Fewer steady requests near the capacity are warned of."""
FELL: Final = 0.05
"""Times that fall by more than this while the users grow are told of, if that is so many standard errors."""
SURELY: Final = 4.0
LEAST: Final = 60
"""Requests of a level without which it is not held against others."""


def with_served(found: Estimate, visits: Sequence[Observed]) -> Estimate:
    """The answer with what the server's own figures say of it."""
    from gpusize.estimate.twin.server_findings import server_findings

    said = server_findings(visits, str(found.details.get("model") or ""))
    return replace(
        found,
        assumptions=(*found.assumptions, *said.assumptions) if found.answered else found.assumptions,
        warnings=(*found.warnings, *said.warnings),
        details={**found.details, **said.details},
    )


def refused(base: Estimate, visits: Sequence[Observed]) -> Estimate:
    """An estimate without a number, with the loads that are worth measuring."""
    loads = sorted({visit.users for visit in visits})
    wider = (2 * loads[-1], 4 * loads[-1])
    each = math.ceil(base.details.get("in_flight_each") or 0.0)
    there = (math.ceil(each / 2), each)
    follow = {"flat": wider, "data": wider, "single": (1, 2), "chance": (1,), "reach": there}
    return replace(base, next_levels=follow.get(str(base.details.get("refusal")), ()))


def loop(question: Question) -> str:
    """The question's load as an assumption."""
    shared = question.router == "shared"
    router = "one queue for all replicas" if shared else f"behind a router: {question.router.replace('_', ' ')}"
    if question.rate is not None:
        return f"requests come as a {question.process} process, whatever is in flight, {router}"
    think = "" if question.think == "none" else f", each pausing {question.think_s:g} s ({question.think}) in between"
    return f"users ask again after each answer{think}, {router}"


def around(found: Sized, visits: Sequence[Observed]) -> tuple[int, ...]:
    """The loads next to the capacity, where they were not measured long enough."""
    if found.capacity is None:
        return ()
    capacity = _users_at(found, visits)
    near = sorted({max(1, math.floor(capacity)), max(1, math.ceil(capacity))})
    return tuple(n for n in near if sum(int(v.steady.sum()) for v in visits if v.users == n) < SHORT)


def fallen(curve: Curve) -> str | None:
    """Two loads of which the heavier has the shorter times, beyond chance; None where times grow with the load.

    They do on a target that stays the same, but for one that gains by more requests at once, as a batch that waits to
    be filled. On one that throttles, warms up or is shared with others they need not, and no interval covers that.
    """
    part = curve.objective.parts[0]
    if len(curve.objective.parts) > 1 or part.bound_s is None or part.op not in ("<=", "<"):
        return None
    levels = [level for level in curve.levels if level.settled and level.logs.size >= LEAST]
    tails = [(level.users, found) for level in levels if (found := curve.tail(level, 0.5)) is not None]
    pairs = [
        ((here[0] - there[0]) / math.hypot(here[1], there[1]), here[0], there[0], users, more)
        for place, (users, here) in enumerate(tails)
        for more, there in tails[place + 1 :]
        if here[0] - there[0] > FELL
    ]
    sure, before, after, users, more = max(pairs, default=(0.0, 0.0, 0.0, 0, 0))
    if sure <= SURELY:
        return None
    what = f"the {'mean' if part.kind == 'mean' else 'median'} of {part.metric}"
    times = f"{math.exp(before):.3g} s with {users} users and {math.exp(after):.3g} s with {more}"
    return (
        f"{what} was {times}: the target is not the same all the time, or it gains by more requests at once; the "
        "interval does not cover the first, so measure both again"
    )


def warnings(found: Sized, visits: Sequence[Observed], question: Question, curves: Sequence[Curve]) -> list[str]:
    """What weakens a number."""
    texts = [text for curve in curves if (text := fallen(curve)) is not None][:1]
    misfit = float(found.details.get("distance") or 0.0)
    if misfit > 0.05:
        texts.append(
            f"the model's times differ from the measured ones by {misfit:.0%} near the capacity, beyond chance; "
            "the interval is wider for it"
        )
    if found.capacity:
        near = near_capacity(found, visits)
        if near < SHORT:
            few = "no steady request was" if near == 0 else f"only {near} steady requests were"
            texts.append(f"{few} measured within a quarter of the capacity")
    if question.think != "none" and question.think_s == 0:
        texts.append("a pause of 0 s is none")
    return texts


def near_capacity(found: Sized, visits: Sequence[Observed]) -> int:
    """Steady requests that were measured within a quarter of the capacity."""
    at = _users_at(found, visits) or math.inf
    return sum(int(v.steady.sum()) for v in visits if 0.8 <= v.users / at <= 1.25)


def _users_at(found: Sized, visits: Sequence[Observed]) -> float:
    """Users at the capacity, who are not all in flight where they pause."""
    pausing = any(each.think_s > 0 for each in visits)
    return float((found.details.get("edge") if pausing else found.capacity) or 0.0)


def details(found: Sized, curves: Sequence[Curve]) -> dict[str, Any]:
    """What tables and plots need: the measured curves, one per objective, the model, and what it gets wrong."""
    points = []
    for curve in curves:
        rows = []
        for level in curve.levels:
            share = curve.own(level)
            rows.append(
                {
                    "concurrency": level.users,
                    "attainment": share.value,
                    "standard_error": share.error,
                    "n": int(level.logs.size),
                }
            )
        points.append({"share": curve.objective.share, "points": rows})
    kept = {name: value for name, value in found.details.items() if name != "runs"}
    return {**kept, "model": found.model or None, "curves": points}
