"""The sentences of an estimate, the same on the terminal, in the page and in plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpusize.estimate.calculator_line import Fit
from gpusize.estimate.question import Estimate
from gpusize.estimate.truth import Truth
from gpusize.report.text import clean, number, plain_number

if TYPE_CHECKING:
    from gpusize.estimate.plan import WhatIf

__all__ = [
    "answer",
    "capacity_text",
    "counts_text",
    "how_sure",
    "how_text",
    "interval_text",
    "line_of",
    "line_text",
    "method_text",
    "neighbours_text",
    "next_text",
    "remark",
    "slos_of",
    "truth_text",
    "ways_to_scale",
]

METHODS: Final = {
    "slope": "straight line through the levels",
    "crossing": "where attainment crosses what the SLO needs, between two measured levels",
    "twin": "replicas fitted to what was measured, simulated until the fewest meet every SLO",
    "telemetry": "replicas fitted to scraped series of production, simulated until the fewest meet every SLO",
    "scaling": "a law of scaling through the capacities of the measured GPU counts",
}
_LAWS = {"linear": "linear", "amdahl": "Amdahl's law", "usl": "Universal Scalability Law"}


def _gpus(n: float) -> str:
    return f"{plain_number(n, 6)} GPU{'' if n == 1 else 's'}"


def _users(n: float, digits: int = 3) -> str:
    return f"{plain_number(n, digits)} user{'' if n == 1 else 's'}"


def _rate(n: float, digits: int = 4) -> str:
    return f"{plain_number(n, digits)} request{'' if n == 1 else 's'}/s"


def answer(estimate: Estimate) -> str:
    """The answer in one sentence; without one, that there is none, and why."""
    asked = _rate(estimate.rate, 9) if estimate.rate is not None else None
    asked = f"{_users(estimate.users, 9)}{_pausing(estimate)}" if estimate.users is not None else asked
    tokens = estimate.details.get("token_rate")
    asked = asked if tokens is None else f"{plain_number(tokens, 6)} output tokens/s ({_rate(estimate.rate or 0)})"
    target = "" if asked is None else f" for {asked}"
    if estimate.gpus is not None:
        every = " and ".join(slos_of(estimate))
        return f"{_gpus(estimate.gpus)}{target}{f' at {every}' if every else ''}"
    slo = f" at {estimate.slo}" if estimate.slo else ""
    # With several SLOs the reason begins with the one that it is about.
    why = f": {estimate.reason.removeprefix(f'{estimate.slo}: ')}" if estimate.reason else ""
    return f"No GPU count{target}{slo}{why}"


def slos_of(estimate: Estimate) -> list[str]:
    """Every SLO that a count keeps by itself; those that the same requests must keep are one."""
    several = [each.slo for each in estimate.per_slo] or estimate.details.get("slos") or [estimate.slo]
    return list(dict.fromkeys(each for each in several if each))


def decides_text(estimate: Estimate) -> str:
    """Of several SLOs the one that fewer GPUs would miss first."""
    return estimate.slo or "" if estimate.answered and len(slos_of(estimate)) > 1 else ""


def _pausing(estimate: Estimate) -> str:
    """How users pause, who are then more than the requests in flight; nothing where they do not."""
    if estimate.think == "none" or not estimate.think_s:
        return ""
    return f" who pause {plain_number(estimate.think_s)} s{' on average' if estimate.think == 'exponential' else ''}"


def _in_flight(n: float, digits: int = 3) -> str:
    return f"{plain_number(n, digits)} request{'' if n == 1 else 's'} in flight"


def capacity_text(estimate: Estimate) -> str:
    """How much the tested GPUs carry, and whether that was measured or extrapolated.

    In requests in flight: users who pause are more than those.
    """
    if estimate.capacity_concurrency is None and estimate.capacity_rate is None:
        return ""
    on = f" on the {_gpus(estimate.tested_gpus)} tested" if estimate.tested_gpus else ""
    random = estimate.details.get("at_random")
    if estimate.capacity_rate is not None and random is not None:
        most = "" if estimate.capacity_concurrency is None else f" with {_in_flight(estimate.capacity_concurrency)}"
        closed = f"{_rate(random['closed'])} in the closed loop{most}"
        return f"{_rate(estimate.capacity_rate)} that come at random{on}; {closed}"
    if estimate.capacity_rate is not None:
        at = "" if estimate.capacity_concurrency is None else f", with {_in_flight(estimate.capacity_concurrency)}"
        return f"{_rate(estimate.capacity_rate)}{on}{at}"
    if estimate.details.get("law") and estimate.capacity_concurrency is not None:
        return f"{_in_flight(estimate.capacity_concurrency)}{on}"
    where = "outside the tested range: an extrapolation" if estimate.outside_tested_range else "inside the tested range"
    return f"{_in_flight(estimate.capacity_concurrency or 0)}{on} ({where})"


def interval_text(estimate: Estimate) -> str:
    """Between which numbers of GPUs the answer lies, by the method's own uncertainty."""
    low, high = estimate.gpus_low, estimate.gpus_high
    if low is None and high is None:
        return ""
    if low is None or high is None:
        return f"at most {_gpus(high)}" if high is not None else f"at least {_gpus(low or 0)}"
    return f"{low} to {_gpus(high)}" if low != high else _gpus(low)


def neighbours_text(estimate: Estimate) -> str:
    """What one replica less and one more are expected to keep; nothing where the count is no longer the middle one."""
    each = estimate.details.get("neighbours") or []
    counted = estimate.details.get("gpus_without_reserve", estimate.gpus)
    if counted is None or counted not in [one["gpus"] for one in each]:
        return ""
    said = {(one["asked"], one.get("slo")) for one in each}
    parts = [f"{_gpus(one['gpus'])}: {_percent(one['attainment'])}" for one in each]
    if len(said) > 1:
        # Not all keep the same one least.
        text = ", ".join(f"{part} within {one['slo']}" for part, one in zip(parts, each, strict=True))
    else:
        which = each[0]["slo"] if decides_text(estimate) else "the SLO"
        what = each[0].get("of", "requests")
        text = f"{', '.join(parts)} of the {what} within {which}, {_percent(each[0]['asked'])} asked for"
    fewer = [one["gpus"] for one in each if one["gpus"] < counted and one["attainment"] >= one["asked"]]
    return f"{text}; {_gpus(fewer[0])} may do, the count leans to the safe side" if fewer else text


def _percent(share: float) -> str:
    """As many digits as tell it from all and from nothing."""
    return f"{plain_number(100 * share, 3 if 0.01 <= share <= 0.99 else 4)} %"


def how_sure(estimate: Estimate) -> str:
    """How sure the answer is, to stand behind its sentence."""
    text = interval_text(estimate)
    if not text:
        return "; the method gives no interval"
    if estimate.gpus == estimate.gpus_low == estimate.gpus_high:
        return ", no more and no fewer by the method's uncertainty"
    return f", {text} by the method's uncertainty"


def method_text(estimate: Estimate) -> str:
    """The method's name, what it does, and the numbers of its fit."""
    return ": ".join(part for part in (estimate.method, how_text(estimate)) if part)


def how_text(estimate: Estimate) -> str:
    """What the method does, and the numbers of its fit."""
    text = METHODS.get(estimate.method, "")
    fit = line_of(estimate, "fit")
    if fit is None:
        return "; ".join(part for part in (text, _law_text(estimate)) if part)
    parts = [line_text(fit)]
    if fit.outliers_removed:
        parts.append(f"removed as outliers: {', '.join(plain_number(each, 6) for each in fit.outliers_removed)}")
    return "; ".join(part for part in (text, ", ".join(parts)) if part)


def line_of(estimate: Estimate, name: str) -> Fit | None:
    """The straight line in an estimate's details: ``fit`` or ``rejected_fit``."""
    fields = estimate.details.get(name)
    return Fit(**fields) if fields else None


def line_text(fit: Fit) -> str:
    """A straight line as a formula, with its R2."""
    return f"{number(fit.intercept)} s + {number(fit.slope)} s × concurrency, R² {fit.r_squared:.3f}"


def _law_text(estimate: Estimate) -> str:
    law = estimate.details.get("law")
    if not isinstance(law, dict):
        return ""
    parts = [
        f"{sign} {number(law.get(name))} ({number(ends[0], 2)} to {number(ends[1], 2)})"
        for sign, name in (("\u03c3", "sigma"), ("\u03ba", "kappa"))
        if (ends := law.get(f"{name}_95")) and (ends[1] or 0) > 0
    ]
    return ", ".join([_LAWS.get(str(law.get("name")), ""), *parts])


def counts_text(estimate: Estimate) -> str:
    """What each measured number of GPUs carries, and how much that is per GPU against the smallest number.

    Of a replica that is simulated: how much longer requests take on several than on one.
    """
    unit = str(estimate.details.get("unit") or "")
    carried = [
        f"{_gpus(each['gpus'])}: {number(each['capacity'], 4)} ± {number(each['standard_error'], 2)} {unit} "
        f"({each['efficiency']:.0%})"
        for each in estimate.details.get("counts") or ()
    ]
    least = estimate.tested_gpus
    slower = [
        f"{_gpus(replicas * least)}: requests take {number(slowness, 3)} ± {number(error, 2)} times as long as on "
        f"{_gpus(least)}"
        for replicas, slowness, error in estimate.details.get("slowness") or ()
    ]
    return "; ".join(carried + slower)


def ways_to_scale(estimate: Estimate) -> list[str]:
    """The ways to the wanted load, where the method knows several."""
    return [clean(f"{each['name']}: {each['text']}") for each in estimate.details.get("options") or ()]


def remark(estimate: Estimate) -> str:
    """The one thing to know about an estimate in a row of its own."""
    if not estimate.answered:
        return estimate.reason or ""
    return "outside the tested range" if estimate.outside_tested_range else ""


def next_text(estimate: Estimate | WhatIf) -> str:
    """The levels and the numbers of GPUs that would strengthen the answer most."""
    levels = ", ".join(map(str, estimate.next_levels))
    counts = ", ".join(map(str, estimate.next_counts))
    pause = estimate.measured_pause
    who = f"users at --think '{pause}'" if pause else "in flight"
    return "; ".join([*([f"{levels} {who}"] if levels else []), *([f"{counts} GPUs"] if counts else [])])


def truth_text(estimate: Estimate, truth: Truth | None) -> str:
    """What the simulated cluster really needs, and how far off the estimate is."""
    if truth is None:
        return ""
    how = truth.note or "by the simulated cluster's own model"
    if truth.gpus is None:
        return f"no number of GPUs is enough, {how}"
    text = f"{_gpus(truth.gpus)}, {how}"
    if truth.capacity_concurrency is not None:
        text += f" ({_in_flight(truth.capacity_concurrency)} on the GPUs tested)"
    if estimate.gpus is not None:
        # Headroom and spares are wanted, not needed.
        off = int(estimate.details.get("gpus_without_reserve") or estimate.gpus) - truth.gpus
        text += f"; the estimate is {abs(off)} too {'many' if off > 0 else 'few'}" if off else "; the estimate agrees"
    return text
