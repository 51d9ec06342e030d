"""Made-up rows of ``Level.seconds``."""

from __future__ import annotations

from typing import Any

MS = 1_000_000


def second(
    number: int,
    *,
    ok: int = 0,
    ms: float = 100.0,
    slow: int = 0,
    slow_ms: float = 5000.0,
    in_flight: int = 8,
    waiting: int = 0,
    due: int | None = None,
    metric: str = "ttft",
    **failed: int,
) -> dict[str, Any]:
    """One second in which ``ok`` requests ended after ``ms`` and ``slow`` more after ``slow_ms``."""
    ended = ok + slow + sum(failed.values())
    buckets = [(ms, ok), (slow_ms, slow)]
    times = [[round(value * MS), round(value * MS), count] for value, count in buckets if count]
    outcomes = {"ok": ok + slow, **failed}
    return {
        "second": number,
        "due": ended if due is None else due,
        "sent": ended,
        "done": ended,
        "outcomes": {name: count for name, count in outcomes.items() if count},
        "in_flight": in_flight,
        "waiting": waiting,
        "cpu_ns": 10 * MS,
        "times": {metric: times, "runtime": times, "lateness": [[0, MS // 10, ended]]},
    }
