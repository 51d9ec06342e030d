"""The sentences of an estimate, the same on the terminal, in the page and in plain text."""

from __future__ import annotations

import math

from gpusize.report.source import EstimateView, Truth
from gpusize.report.text import number, plain_number

__all__ = ["answer", "capacity_text", "how_text", "interval_text", "method_text", "next_text", "remark", "truth_text"]

_METHODS = {
    "slope": "straight line through the levels",
    "crossing": "where attainment crosses what the SLO needs, between two measured levels",
}


def _gpus(n: float) -> str:
    return f"{plain_number(n, 6)} GPU{'' if n == 1 else 's'}"


def _users(n: float, digits: int = 3) -> str:
    return f"{plain_number(n, digits)} user{'' if n == 1 else 's'}"


def answer(estimate: EstimateView) -> str:
    """The answer in one sentence; without one, that there is none, and why."""
    target = " for " + _users(estimate.users, 9) if estimate.users is not None else ""
    slo = f" at {estimate.slo}" if estimate.slo else ""
    if estimate.gpus is not None:
        return f"{_gpus(estimate.gpus)}{target}{slo}"
    # With several SLOs the reason begins with the one that it is about.
    why = f": {estimate.reason.removeprefix(f'{estimate.slo}: ')}" if estimate.reason else ""
    return f"No GPU count{target}{slo}{why}"


def capacity_text(estimate: EstimateView) -> str:
    """How much the tested GPUs carry, and whether that was measured or extrapolated."""
    if estimate.capacity is None:
        return ""
    on = "" if estimate.tested_gpus is None else f" on the {_gpus(estimate.tested_gpus)} tested"
    where = "outside the tested range: an extrapolation" if estimate.outside_tested_range else "inside the tested range"
    return f"{_users(estimate.capacity)}{on} ({where})"


def interval_text(estimate: EstimateView) -> str:
    """Between which numbers of GPUs the answer lies, by the method's own uncertainty."""
    low, high = estimate.gpus_low, estimate.gpus_high
    if low is None and high is None:
        return ""
    if low is None or high is None:
        return f"at most {_gpus(high)}" if high is not None else f"at least {_gpus(low or 0)}"
    return f"{low} to {_gpus(high)}" if low != high else _gpus(low)


def method_text(estimate: EstimateView) -> str:
    """The method's name, what it does, and the numbers of its fit."""
    return ": ".join(part for part in (estimate.method, how_text(estimate)) if part)


def how_text(estimate: EstimateView) -> str:
    """What the method does, and the numbers of its fit."""
    text = _METHODS.get(estimate.method, "")
    fit = estimate.fit
    if fit is None:
        return text
    parts = [f"{number(fit.intercept)} s + {number(fit.slope)} s × concurrency"]
    if not math.isnan(fit.r_squared):
        parts.append(f"R² {fit.r_squared:.3f}")
    if fit.outliers:
        parts.append(f"removed as outliers: {', '.join(plain_number(each, 6) for each in fit.outliers)}")
    return "; ".join(part for part in (text, ", ".join(parts)) if part)


def remark(estimate: EstimateView) -> str:
    """The one thing to know about an estimate in a row of its own."""
    if not estimate.answered:
        return estimate.reason
    return "outside the tested range" if estimate.outside_tested_range else ""


def next_text(estimate: EstimateView) -> str:
    """The levels that would strengthen the answer most."""
    return f"{', '.join(plain_number(each, 6) for each in estimate.next_levels)} users" if estimate.next_levels else ""


def truth_text(estimate: EstimateView, truth: Truth | None) -> str:
    """What the simulated cluster really needs, and how far off the estimate is."""
    if truth is None:
        return ""
    how = truth.note or "by the simulated cluster's own model"
    if truth.gpus is None:
        return f"no number of GPUs is enough, {how}"
    text = f"{_gpus(truth.gpus)}, {how}"
    if truth.capacity_concurrency is not None:
        text += f" ({_users(truth.capacity_concurrency)} on the GPUs tested)"
    if estimate.gpus is not None:
        off = estimate.gpus - truth.gpus
        text += f"; the estimate is {abs(off)} too {'many' if off > 0 else 'few'}" if off else "; the estimate agrees"
    return text
