"""The findings of a judged run in sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from gpusize.report.text import clean, count, duration, percent, plain_number

if TYPE_CHECKING:
    from gpusize.estimate.plan.autoscale.judge.findings import Finding

__all__ = ["finding_text"]

Facts = Mapping[str, Any]


def finding_text(finding: Finding) -> str:
    """What a finding says."""
    return _TEXTS[finding.code](finding.facts)


def _span(facts: Facts) -> str:
    return f"from {duration(facts['from_s'])} to {duration(facts['until_s'])}"


def _meanwhile(facts: Facts) -> str:
    low, high = facts["desired_low"], facts["desired_high"]
    if low is None:
        return ""
    if low == high:
        return f"; {count(low)} replicas were asked for all the while"
    return f"; {count(low)} to {count(high)} replicas were asked for meanwhile"


def _scaler_errors(facts: Facts) -> str:
    n = facts["errors"]
    return (
        f"KEDA could not read the trigger {clean(facts['scaler'], 100)} {count(n)} time{'' if n == 1 else 's'}, "
        f"{_span(facts)}: it falls back to a fixed number of replicas without a word{_meanwhile(facts)}"
    )


def _frozen_metric(facts: Facts) -> str:
    return (
        f"the trigger {clean(facts['scaler'], 100)} stayed at {plain_number(facts['value'])} {_span(facts)}, while the "
        f"requests at work changed: a fallback, or a stale metric{_meanwhile(facts)}"
    )


def _hpa_blind(facts: Facts) -> str:
    return (
        f"the HPA {clean(facts['hpa'], 100)} could not read its metrics for {duration(facts['held_s'])}, {_span(facts)}"
    )


def _held_at_bound(facts: Facts) -> str:
    return (
        f"the HPA {clean(facts['hpa'], 100)} was held by its bounds or policies for {duration(facts['held_s'])} in "
        f"which more replicas were needed, {_span(facts)}"
    )


def _closed_loop(facts: Facts) -> str:
    text = f"the load is a closed loop: up to {count(facts['users'])} requests are in flight whatever the replicas"
    if facts["levels"] < facts["of"]:
        text = f"{count(facts['levels'])} of {count(facts['of'])} stages are closed loops, {text.partition(': ')[2]}"
    ready = facts.get("ready_low"), facts.get("ready_high")
    flying = facts.get("in_flight_low"), facts.get("in_flight_high")
    if None not in (*ready, *flying) and ready[0] != ready[1]:
        text += f" ({_range(*flying)} were there with {_range(*ready)} replicas)"
    return (
        f"{text}. A signal of requests or tokens in flight cannot see capacity then, and grows to the most replicas; "
        "judge autoscalers at a rate"
    )


def _range(low: Any, high: Any) -> str:
    return count(low) if count(low) == count(high) else f"{count(low)} to {count(high)}"


def _gap(facts: Facts) -> str:
    n, names = facts["spans"], facts["names"]
    who = f"{' and '.join(names)} are" if len(names) > 1 else f"{names[0]} is"
    return (
        f"{who} not known for {duration(facts['unknown_s'])} ({percent(facts['share'])} of the run), in "
        f"{count(n)} gap{'' if n == 1 else 's'}, the longest from {duration(facts['longest_from_s'])} to "
        f"{duration(facts['longest_until_s'])}: its figures are of the rest"
    )


def _no_series(facts: Facts) -> str:
    return f"there is no series {facts['name']}: what follows from it is left out"


def _clock_unknown(_facts: Facts) -> str:
    return "nobody measured how far the monitoring server's clock is from ours: times between the two may be off"


def _clock_coarse(facts: Facts) -> str:
    return (
        f"the monitoring server's clock is known to {duration(facts['uncertainty_s'])} only: times after a step of the "
        "load are off by as much"
    )


def _not_done(facts: Facts) -> str:
    return f"{count(facts['levels'])} of {count(facts['of'])} stages were not measured to their end"


_TEXTS: Final[Mapping[str, Callable[[Facts], str]]] = MappingProxyType(
    {
        "scaler_errors": _scaler_errors,
        "frozen_metric": _frozen_metric,
        "hpa_blind": _hpa_blind,
        "held_at_bound": _held_at_bound,
        "closed_loop": _closed_loop,
        "gap": _gap,
        "no_series": _no_series,
        "clock_unknown": _clock_unknown,
        "clock_coarse": _clock_coarse,
        "not_done": _not_done,
    }
)
