"""Whether a level can be believed: was the load delivered, was the generator fast enough, is anything steady in it?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gpusize.analysis.carried_over import carried_over
from gpusize.analysis.delivery.delivery import Delivery, delivery_of
from gpusize.analysis.generator import generator_cpu, generator_limits, longer_by
from gpusize.analysis.remarks import remarks
from gpusize.analysis.server_times import disagreement
from gpusize.analysis.steadiness import drift_of, growth_of, steadiness_of
from gpusize.analysis.tokens import token_counts
from gpusize.analysis.windows import Little, little_of

if TYPE_CHECKING:
    from gpusize.analysis.detect import Drift, Growth, Steadiness
    from gpusize.analysis.level import LevelData

__all__ = ["FINDINGS", "Checks", "check", "unbelieved"]

SHED_SHARE: Final = 0.01
"""Share of requests that were shed from which the target is saturated, whatever else is seen."""
FINDINGS: Final = frozenset(("saturated", "carried-over", "drift", "tokens", "server-times"))
"""Flags that say something of the target or of its answers; the load itself is not in doubt."""
_UNBELIEVED: Final = frozenset(("little", "generator-limited", "carried-over"))


class Checks(NamedTuple):
    """Findings about one level.

    Attributes:
        little: Little's law.
        cpu: CPU of the generator as a share of its workers' cores; None when unknown.
        pacer_late_p99_s: 99th percentile of fired - due, seconds.
        flags: states other than ``done``, ``little``, ``generator-limited``, ``connection-limited``,
            ``not-delivered``, ``write-error``, and the ``FINDINGS``.
        alerts: one text per finding.
        remarks: what else a reader of the figures should know; no doubt about the load.
        delivery: whether the load was delivered.
        saturated: whether an open loop offers more than is answered; None for a closed loop and where not judged.
        drift: whether runtimes drift over the window; None for an import.
        steady: whether the window is steady from its start; None for an import.
    """

    little: Little
    cpu: float | None
    pacer_late_p99_s: float | None
    flags: list[str]
    alerts: list[str]
    remarks: list[str]
    delivery: Delivery
    saturated: bool | None = None
    drift: Drift | None = None
    steady: Steadiness | None = None


def check(level: LevelData) -> Checks:
    """Judge one visit of a level; the same is not judged twice."""
    return level.kept.once("checks", lambda: _check(level))


def _check(level: LevelData) -> Checks:
    delivery = delivery_of(level)
    flags, alerts = _state_flags(level), []
    # What an import itself found to be wrong stands in its alerts already.
    flags += level.meta.get("flags") or []
    if level.imported:
        little = Little("not checkable", None, None, "imported: there are no records")
        return Checks(little, None, None, flags, [], [], delivery)
    little = little_of(level)
    if little.status == "flagged":
        flags.append("little")
        alerts.append(f"Little's law: {little.reason}")
    limits = generator_limits(level)
    if limits:
        flags.append("generator-limited")
        alerts += limits
    waited = longer_by(level, "no_connection")
    if waited is not None:
        flags.append("connection-limited")
        if not any(each.name.startswith("lateness") and each.status == "failed" for each in delivery.checks):
            alerts.append(f"requests waited for a free connection, and {waited}")
    if delivery.delivered is False:
        flags.append("not-delivered")
        reasons = [each.text for each in delivery.checks if each.status == "failed" and each.name != "little"]
        alerts += [f"not delivered: {'; '.join(reasons)}"] if reasons else []
    if level.meta.get("write_error"):
        flags.append("write-error")
        alerts.append(f"records were lost: {level.meta['write_error']}")
    late_s = level.late_quantile("pacer_late", 0.99)
    found = Checks(little, generator_cpu(level), late_s, flags, alerts, remarks(level), delivery)
    return _with_findings(found, level)


def _with_findings(checks: Checks, level: LevelData) -> Checks:
    """Adds what is to be said of the target and of its answers."""
    growth, drift, steady = growth_of(level), drift_of(level), steadiness_of(level)
    saturated = _saturated(level, growth)
    flags, alerts, notes = [*checks.flags], [*checks.alerts], [*checks.remarks]
    if saturated:
        flags.append("saturated")
        why = growth.text if growth.status == "growing" else _shed_text(level)
        alerts.append(f"saturated: {why}; times then depend on how long the level ran")
    carried = carried_over(level)
    if carried:
        flags.append("carried-over")
        # Stages are one load, which does not wait.
        todo = "" if "stage" in level.setting else "; --wait-between 1m lets each level wait for the one before"
        alerts.append(f"carried over: {carried}{todo}")
    if drift.status == "drifts":
        flags.append("drift")
        # A backlog that grows makes runtimes rise, and one that goes makes them fall: one text says it.
        alerts += [] if saturated or carried else [f"runtime drifts: {drift.text}; percentiles mix several states"]
    elif steady.status == "not steady" and not saturated:
        notes.append(f"perhaps not steady: {steady.text}{_longer(steady)}")
    for each in token_counts(level):
        if each.events_flagged:
            flags.append("tokens")
            alerts.append(f"counts of tokens differ: {each}")
    wrong = disagreement(level)
    if wrong is not None:
        flags.append("server-times")
        alerts.append(f"the server's times are not those of the requests: {wrong}")
    return checks._replace(flags=flags, alerts=alerts, remarks=notes, saturated=saturated, drift=drift, steady=steady)


def _longer(steady: Steadiness) -> str:
    if steady.begins_s is None:
        return ""
    # A tenth of a second more than was found: the option is written by people.
    return f"; --warmup {steady.begins_s + 0.1:.1f}s would leave that out"


def _saturated(level: LevelData, growth: Growth) -> bool | None:
    if level.setting.get("kind") != "open":
        return None
    outcomes = level.outcomes()
    if outcomes.get("shed", 0) > SHED_SHARE * sum(outcomes.values()):
        return True
    return None if growth.status == "not judged" else growth.status == "growing"


def _shed_text(level: LevelData) -> str:
    outcomes = level.outcomes()
    return f"{outcomes.get('shed', 0):,} of {sum(outcomes.values()):,} requests were shed"


def unbelieved(level: LevelData) -> bool:
    """Whether one visit's flags say that it tells nothing of the target: the same as ``check``, without the rest."""
    # What an import found by the other tool's figures.
    if not _UNBELIEVED.isdisjoint(level.meta.get("flags") or ()):
        return True
    if level.imported:
        return False
    if generator_limits(level) or carried_over(level):
        return True
    return little_of(level).status == "flagged"


def _state_flags(level: LevelData) -> list[str]:
    return [] if level.state == "done" else [level.state]
