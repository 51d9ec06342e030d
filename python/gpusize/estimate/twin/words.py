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

__all__ = ["around", "details", "loop", "refused", "warnings", "with_served"]

SHORT: Final = 300
"""Fewer steady requests near the capacity are warned of."""


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
    follow = {"flat": wider, "data": wider, "single": (1, 2)}.get(str(base.details.get("refusal")), ())
    return replace(base, next_levels=follow)


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
    capacity = found.capacity
    near = sorted({max(1, math.floor(capacity)), max(1, math.ceil(capacity))})
    return tuple(n for n in near if sum(int(v.steady.sum()) for v in visits if v.users == n) < SHORT)


def warnings(found: Sized, visits: Sequence[Observed], question: Question) -> list[str]:
    """What weakens a number."""
    texts = []
    misfit = float(found.details.get("distance") or 0.0)
    if misfit > 0.05:
        texts.append(
            f"the model's times differ from the measured ones by {misfit:.0%} near the capacity, beyond chance; "
            "the interval is wider for it"
        )
    if found.capacity:
        near = sum(int(v.steady.sum()) for v in visits if 0.8 <= v.users / found.capacity <= 1.25)
        if near < SHORT:
            few = "no steady request was" if near == 0 else f"only {near} steady requests were"
            texts.append(f"{few} measured within a quarter of the capacity")
    if question.think != "none" and question.think_s == 0:
        texts.append("a pause of 0 s is none")
    return texts


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
