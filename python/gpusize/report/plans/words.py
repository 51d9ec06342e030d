"""The words of a plan, the same on the terminal and in its picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpusize.estimate.question import gpus_text
from gpusize.report.text import clean, plain_number

if TYPE_CHECKING:
    from gpusize.estimate.plan import Row, WhatIf

__all__ = ["bound_text", "finding", "interval_text", "load_text", "slo_text", "unit_text"]

_UNITS = {"users": "users", "rate": "requests/s", "token_rate": "output tokens/s"}


def unit_text(plan: WhatIf) -> str:
    """What the loads are counted in."""
    return _UNITS[plan.kind]


def load_text(plan: WhatIf, row: Row) -> str:
    """The load of a row with its unit: ``250 users``."""
    unit = unit_text(plan)
    return f"{plain_number(row.load, 6)} {unit.removesuffix('s') if unit == 'users' and row.load == 1 else unit}"


def bound_text(row: Row) -> str:
    """The bound of a row as it is varied: ``2 s``, ``500 ms`` or ``0.5 x``; empty where it is the SLOs' own."""
    if row.bound_s is not None:
        small = row.bound_s < 1
        return f"{plain_number(row.bound_s * (1000 if small else 1), 6)} {'ms' if small else 's'}"
    return "" if row.bound_factor is None else f"{plain_number(row.bound_factor, 6)} x"


def slo_text(plan: WhatIf) -> str:
    """``at`` the SLOs; where their bound is varied those of the first row, with a mark for it."""
    rows = plan.rows
    if not rows[0].slos:
        return "without an SLO: at their full throughput, where times are as long as the queue"
    text = " and ".join(rows[0].slos)
    if all(row.slos == rows[0].slos for row in rows):
        return clean(f"at {text}")
    if len(rows[0].slos) == 1:
        return clean(f"at {rows[0].slos[0].rsplit(' ', 1)[0]} the bound")
    return f"at {len(rows[0].slos)} SLOs with multiples of their bounds"


def interval_text(row: Row) -> str:
    """Between which numbers of GPUs the answer lies: ``4 to 5``; empty where the method does not say."""
    low, high = row.gpus_low, row.gpus_high
    if low is None and high is None:
        return ""
    if low is None or high is None:
        return f"at most {high:,}" if high is not None else f"at least {low:,}"
    return f"{low:,} to {high:,}" if low != high else f"{low:,}"


def finding(plan: WhatIf) -> str:
    """What a plan comes to, in one line: its ends along the axis, or of all its lines."""
    known = [row for row in plan.rows if row.gpus is not None]
    if not known:
        return "No row of the plan has an answer"
    first, last = known[0], known[-1]
    counts = sorted(row.gpus or 0 for row in known)
    span = gpus_text(counts[0]) if counts[0] == counts[-1] else f"{counts[0]:,} to {gpus_text(counts[-1])}"
    steps, bounds = _several([row.step for row in plan.rows]), _several([row.bound for row in plan.rows])
    loads = plan.several_loads
    if loads + steps + bounds > 1:
        names = ["bounds"] * bounds + ["times"] * steps
        largest = max(known, key=lambda row: row.load)
        ends = f"{plain_number(min(row.load for row in known), 6)} to {load_text(plan, largest)}"
        return f"{span} for {ends} at several {' and '.join(names)}"
    if first is last:
        return f"{gpus_text(first.gpus or 0)} for {load_text(plan, first)}{_beside(first, bounds=bounds)}"
    if bounds:
        ends = f"{gpus_text(first.gpus or 0)} at {bound_text(first)}, {last.gpus:,} at {bound_text(last)}"
        return f"{load_text(plan, first)}: {ends}"
    if steps:
        return f"{gpus_text(first.gpus or 0)} {first.step}, {last.gpus:,} {last.step}"
    return f"{gpus_text(first.gpus or 0)} for {load_text(plan, first)}, {last.gpus:,} for {load_text(plan, last)}"


def _beside(row: Row, *, bounds: bool) -> str:
    return f" at {bound_text(row)}" if bounds else ""


def _several(values: Sequence[object]) -> bool:
    return len(set(values)) > 1
