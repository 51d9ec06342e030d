"""What several hosts tell of one level, as one: counts and cells add up, boundaries are the outermost.

Every function takes plain values and touches neither network nor clock.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from gpusize.engine.session import LevelOutcome, ProbeRecord, Progress, Recent, Second

__all__ = [
    "NOT_FAILED",
    "Cells",
    "empty_outcome",
    "error_numbers",
    "merged_outcome",
    "merged_probe",
    "merged_progress",
    "merged_second",
    "recent_of",
    "too_many",
]

NOT_FAILED: Final = frozenset(("ok", "cancelled", "shed"))
_REASONS: Final = ("count", "duration", "slo", "saturation", "errors", "stopped", "failed", "cancelled")
"""Why a level ended, from the lightest to the gravest, as the engine has it for its workers."""
_STATES: Final = ("done", "draining", "running")
_WAITS: Final = frozenset(("queued", "held", "done"))
_SUMS: Final = ("due", "sent", "done", "ok", "in_flight", "waiting", "shed", "connects", "connections")
_RATES: Final = ("rate", "offered_rate", "sent_rate", "cpu_share")
_OUTCOME_SUMS: Final = ("due", "sent", "asked_again", "rows", "connects", "reconnects", "cpu_ns", "workers", "spans")
_LISTS: Final = ("parts", "span_parts", "second_parts", "histogram_parts")


class Cells:
    """Counts of times by metric and bucket; adding them up loses nothing, as all hosts have the same buckets."""

    def __init__(self) -> None:
        self._counts: defaultdict[str, Counter[tuple[int, int]]] = defaultdict(Counter)
        self._known: dict[tuple[str, float], int | None] = {}

    def add(self, times: Mapping[str, Iterable[Sequence[int]]]) -> None:
        """Add buckets ``[low_ns, high_ns, count]`` by metric."""
        self._known.clear()
        for name, buckets in times.items():
            counts = self._counts[name]
            for low_ns, high_ns, count in buckets:
                counts[low_ns, high_ns] += count

    def times(self) -> dict[str, list[list[int]]]:
        """All of them in the form in which they came, buckets in order."""
        return {
            name: [[*bucket, count] for bucket, count in sorted(counts.items())]
            for name, counts in sorted(self._counts.items())
        }

    def percentile_ns(self, name: str, prob: float) -> int | None:
        """By nearest rank, the middle of its bucket, as the engine has it; None for none."""
        # A level is looked at ten times for each second that is added.
        if (name, prob) not in self._known:
            self._known[name, prob] = self._percentile_ns(name, prob)
        return self._known[name, prob]

    def _percentile_ns(self, name: str, prob: float) -> int | None:
        counts = self._counts.get(name)
        if not counts:
            return None
        left = max(1, math.ceil(prob * counts.total()))
        for (low_ns, high_ns), count in sorted(counts.items()):
            left -= count
            if left <= 0:
                return low_ns + (high_ns - low_ns + 1) // 2
        return None


def recent_of(cells: Cells) -> Recent:
    """The percentiles that a `Progress` tells of the last full second."""
    return {
        "p50_ns": cells.percentile_ns("runtime", 0.5),
        "p95_ns": cells.percentile_ns("runtime", 0.95),
        "p99_ns": cells.percentile_ns("runtime", 0.99),
        "ttft_p50_ns": cells.percentile_ns("ttft", 0.5),
        "ttft_p99_ns": cells.percentile_ns("ttft", 0.99),
        "lateness_p99_ns": cells.percentile_ns("lateness", 0.99),
        "pacer_late_p99_ns": cells.percentile_ns("pacer_late", 0.99),
    }


def merged_progress(parts: Sequence[Progress], so_far: Cells, last: Cells) -> Progress:
    """A level as it stands on all hosts.

    Args:
        parts: each host's; at least one.
        so_far: times of all complete seconds of all hosts.
        last: those of the last one that is complete everywhere.
    """
    states = {part["state"] for part in parts}
    sending = states - _WAITS or ({"running"} if "done" in states and len(states) > 1 else states)
    state = max(sending, key=lambda each: _STATES.index(each) if each in _STATES else 0)
    close_after = [part["close_after_ns"] for part in parts if part["close_after_ns"] is not None]
    failed: Counter[str] = Counter()
    for part in parts:
        failed.update(part["failed"])
    found: dict[str, Any] = {name: sum(cast("Any", part)[name] for part in parts) for name in (*_SUMS, *_RATES)}
    return cast(
        "Progress",
        {
            **found,
            "state": state,
            "elapsed_ns": max(part["elapsed_ns"] for part in parts),
            "failed": dict(failed),
            "p50_ns": so_far.percentile_ns("runtime", 0.5),
            "p95_ns": so_far.percentile_ns("runtime", 0.95),
            "lateness_p99_ns": so_far.percentile_ns("lateness", 0.99),
            "recent": recent_of(last),
            "close_after_ns": max(close_after, default=None),
            "schedule_ns": max(part["schedule_ns"] for part in parts),
        },
    )


def merged_second(parts: Sequence[Second]) -> Second:
    """One second of a level on all hosts; at least one part, all of the same number."""
    outcomes: Counter[str] = Counter()
    cells = Cells()
    for part in parts:
        outcomes.update(part["outcomes"])
        cells.add(part["times"])
    sums = {
        name: sum(cast("Any", part)[name] for part in parts)
        for name in ("due", "sent", "done", "in_flight", "waiting", "cpu_ns")
    }
    return cast("Second", {"second": parts[0]["second"], **sums, "outcomes": dict(outcomes), "times": cells.times()})


def too_many(progress: Progress, stop: Mapping[str, Any]) -> bool:
    """Whether so many requests of all hosts failed that the plan's ``stop`` ends the level, as the engine counts.

    Args:
        progress: merged.
        stop: of the LevelPlan.
    """
    share = stop.get("max_error_share")
    if share is None:
        return False
    failed = sum(count for name, count in progress["failed"].items() if name not in NOT_FAILED)
    finished = progress["ok"] + failed
    return failed >= max(1, stop.get("min_errors") or 1) and failed > share * finished


def error_numbers(hosts: Sequence[Sequence[Mapping[str, Any]]]) -> tuple[list[dict[str, Any]], list[dict[int, int]]]:
    """The distinct failures of all hosts, numbered anew, and for each host its numbers' new ones.

    Failures are one where outcome, status and message are the same.
    """
    known: dict[tuple[Any, ...], dict[str, Any]] = {}
    renumbered = []
    for errors in hosts:
        new = {}
        for error in errors:
            key = (error["outcome"], error["status"], error["message"])
            entry = known.setdefault(key, {**error, "id": len(known), "count": 0})
            entry["count"] += error["count"]
            new[int(error["id"])] = int(entry["id"])
        renumbered.append(new)
    return list(known.values()), renumbered


def merged_outcome(visit: int, outcomes: Sequence[LevelOutcome], shifts_ns: Sequence[int]) -> LevelOutcome:
    """A level that has ended on all hosts.

    Args:
        visit: its number.
        outcomes: each host's, its parts under the names that they have at home; at least one.
        shifts_ns: what is added to each host's times.
    """
    began = [(each, shift) for each, shift in zip(outcomes, shifts_ns, strict=True) if each["start_ns"]]
    named, ok = Counter[str](), sum(each["outcomes"].get("ok", 0) for each in outcomes)
    cells = Cells()
    for each in outcomes:
        named.update(each["outcomes"])
        cells.add(each["histograms"])
    used: dict[tuple[int, str], int] = {}
    for each in outcomes:
        for use in each["addresses"]:
            place = (use["target"], use["address"])
            used[place] = used.get(place, 0) + use["connections"]
    residence = sum(each.get("residence_sum_ns", 0) for each in outcomes)
    took_part = [each.get("members", each["workers"]) for each in outcomes]
    stalled = sum(each.get("stalled_ns", 0) * members for each, members in zip(outcomes, took_part, strict=True))
    found: dict[str, Any] = {name: sum(cast("Any", each)[name] for each in outcomes) for name in _OUTCOME_SUMS}
    found |= {name: [part for each in outcomes for part in cast("Any", each)[name]] for name in _LISTS}
    lost = [each["write_error"] for each in outcomes if each["write_error"] is not None]
    reasons = [each["stop_reason"] for each in outcomes if each["write_error"] is None]
    return cast(
        "LevelOutcome",
        {
            **found,
            "visit": visit,
            "stop_reason": max(reasons or ["failed"], key=_REASONS.index),
            "start_ns": min((each["start_ns"] + shift for each, shift in began), default=0),
            "close_ns": max((each["close_ns"] + shift for each, shift in began), default=0),
            "end_ns": max((each["end_ns"] + shift for each, shift in began), default=0),
            "outcomes": dict(named),
            "sampled": max(each["sampled"] for each in outcomes),
            "addresses": [
                {"target": target, "address": address, "connections": count}
                for (target, address), count in sorted(used.items())
            ],
            "members": sum(took_part),
            "stalled_ns": stalled // max(1, sum(took_part)),
            "longest_stall_ns": max(each.get("longest_stall_ns", 0) for each in outcomes),
            "residence_ns": residence // ok if ok else None,
            "residence_sum_ns": residence,
            "write_error": lost[0] if len(lost) == len(outcomes) else None,
            "errors": error_numbers([each["errors"] for each in outcomes])[0],
            "histograms": cells.times(),
        },
    )


def empty_outcome(visit: int, stop_reason: str, problem: str | None = None) -> LevelOutcome:
    """A level that no host has begun.

    Args:
        visit: its number.
        stop_reason: why it ended.
        problem: what was wrong; None where it was only stopped.
    """
    found: dict[str, Any] = dict.fromkeys(_OUTCOME_SUMS, 0) | {name: [] for name in _LISTS}
    return cast(
        "LevelOutcome",
        {
            **found,
            "visit": visit,
            "stop_reason": stop_reason,
            **dict.fromkeys(("start_ns", "close_ns", "end_ns"), 0),
            "outcomes": {},
            "sampled": 1,
            "addresses": [],
            "residence_ns": None,
            "write_error": problem,
            "errors": [],
            "histograms": {},
        },
    )


def merged_probe(named: Sequence[tuple[str, ProbeRecord]]) -> ProbeRecord:
    """The first request of every host: the first that failed, with the host's name, else the first."""
    bad = next(((name, record) for name, record in named if record["outcome"] != "ok"), None)
    if bad is None:
        return named[0][1]
    name, record = bad
    said = f"from host {name}" + (f": {record['message']}" if record["message"] else "")
    return {**record, "message": said}
