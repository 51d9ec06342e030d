"""Whether a level can be believed: was the load delivered, was the generator fast enough, is anything steady in it?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gpusize.delivery import Delivery, verdict
from gpusize.level_series import drift_of, growth_of, steadiness_of
from gpusize.metrics import NS_PER_S
from gpusize.remarks import remarks
from gpusize.tokens import token_counts
from gpusize.windows import Little, littles_law

if TYPE_CHECKING:
    from gpusize.detect import Drift, Growth, Steadiness
    from gpusize.levels import LevelData

__all__ = ["CPU_LIMIT", "FINDINGS", "LATE_FLOOR_S", "LATE_SHARE", "Checks", "check", "unbelieved"]

CPU_LIMIT: Final = 0.8
"""Share of its cores from which the generator itself queues; a thread at 80 % already makes work wait for itself."""
CPU_LEAST_S: Final = 0.05
"""A level that is over sooner says nothing of the generator's CPU: its set-up and last part are most of it."""
LATE_FLOOR_S: Final = 1e-3
"""Lateness below this is the noise of timers and of the scheduler."""
LATE_SHARE: Final = 0.01
"""Lateness below this share of the median runtime cannot move a percentile that anyone reads."""
SHED_SHARE: Final = 0.01
"""Share of requests that were shed from which the target is saturated, whatever else is seen."""
FINDINGS: Final = frozenset(("saturated", "drift", "tokens"))
"""Flags that say something of the target or of its answers; the load itself is not in doubt."""


class Checks(NamedTuple):
    """Findings about one level.

    Attributes:
        little: Little's law.
        cpu: CPU of the generator as a share of its workers' cores; None when unknown.
        pacer_late_p99_s: 99th percentile of fired - due, seconds.
        late_budget_s: what of it is tolerated.
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
    late_budget_s: float
    flags: list[str]
    alerts: list[str]
    remarks: list[str]
    delivery: Delivery
    saturated: bool | None = None
    drift: Drift | None = None
    steady: Steadiness | None = None


def check(level: LevelData) -> Checks:
    """Judge one visit of a level."""
    delivery = verdict(level)
    flags, alerts = _state_flags(level), []
    if level.imported:
        little = Little("not checkable", None, None, "imported: there are no records")
        # What the import itself found to be wrong stands in its alerts already.
        flags += level.meta.get("flags") or []
        return Checks(little, None, None, LATE_FLOOR_S, flags, [], [], delivery)
    little = littles_law(level.meta, level.records, level.window(), sampled=level.sampled)
    if little.status == "flagged":
        flags.append("little")
        alerts.append(f"Little's law: {little.reason}")
    cpu, budget_s = generator_cpu(level), late_budget_s(level)
    late_s = level.late_quantile("pacer_late", 0.99)
    limits = _generator_limits(cpu, late_s, budget_s)
    if limits:
        flags.append("generator-limited")
        alerts += limits
    waited_s = level.late_quantile("no_connection", 0.99)
    if waited_s is not None and waited_s > budget_s:
        flags.append("connection-limited")
        if not any(each.name.startswith("lateness") and each.status == "failed" for each in delivery.checks):
            alerts.append(
                f"requests waited for a free connection: p99 {waited_s:.3g} s, {budget_s:.3g} s are tolerated"
            )
    if delivery.delivered is False:
        flags.append("not-delivered")
        reasons = [each.text for each in delivery.checks if each.status == "failed" and each.name != "little"]
        alerts += [f"not delivered: {'; '.join(reasons)}"] if reasons else []
    if level.meta.get("write_error"):
        flags.append("write-error")
        alerts.append(f"records were lost: {level.meta['write_error']}")
    found = Checks(little, cpu, late_s, budget_s, flags, alerts, remarks(level), delivery)
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
    if drift.status == "drifts":
        flags.append("drift")
        # A backlog that grows makes runtimes rise: one text says it.
        alerts += [] if saturated else [f"runtime drifts: {drift.text}; percentiles are of no one state"]
    elif steady.status == "not steady" and not saturated:
        notes.append(f"perhaps not steady: {steady.text}{_longer(steady)}")
    for each in token_counts(level):
        if each.events_flagged:
            flags.append("tokens")
            alerts.append(f"counts of tokens differ: {each}")
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
    """Whether one visit is flagged ``little`` or ``generator-limited``: the same as ``check``, without the rest."""
    if level.imported:
        return False
    late_s = level.late_quantile("pacer_late", 0.99)
    if _generator_limits(generator_cpu(level), late_s, late_budget_s(level)):
        return True
    return littles_law(level.meta, level.records, level.window(), sampled=level.sampled).status == "flagged"


def _generator_limits(cpu: float | None, late_s: float | None, budget_s: float) -> list[str]:
    """In which ways the generator was the limit, each with what to do."""
    texts = []
    if cpu is not None and cpu > CPU_LIMIT:
        what = "give it more --workers, or a machine with more cores"
        texts.append(f"generator-limited: it used {cpu:.0%} of its cores, more than {CPU_LIMIT:.0%}: {what}")
    if late_s is not None and late_s > budget_s:
        what = "give it idle cores (--pin), more --workers, or ask for less"
        late = f"p99 {late_s:.3g} s where {budget_s:.3g} s are tolerated"
        texts.append(f"generator-limited: it fired late, {late}: {what}")
    return texts


def late_budget_s(level: LevelData) -> float:
    """How late the generator may be, at p99: 1 ms, and 1 % of the median runtime where that is more."""
    return max(LATE_FLOOR_S, LATE_SHARE * (level.quantile("runtime", 0.5) or 0.0))


def generator_cpu(level: LevelData) -> float | None:
    """CPU time of the generator over elapsed time and workers; None for a very short level and where nobody says."""
    cpu_ns, start, end = (level.meta.get(key) for key in ("cpu_ns", "start_ns", "end_ns"))
    workers = level.meta.get("workers") or 1
    if cpu_ns is None or start is None or end is None or end - start < CPU_LEAST_S * NS_PER_S:
        return None
    return float((cpu_ns / NS_PER_S) / ((end - start) / NS_PER_S * workers))


def _state_flags(level: LevelData) -> list[str]:
    return [] if level.state == "done" else [level.state]
