"""What is to be thought of a level that has ended: its state, its intervals, its alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpusize.analysis.failures import failed_in, failures_text, judged_in
from gpusize.analysis.stop_cause import StopCause
from gpusize.analysis.windows import intervals
from gpusize.base.text import shown
from gpusize.records.per_second import scan_seconds
from gpusize.records.schema import scan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import polars as pl

    from gpusize.engine.session import LevelOutcome

__all__ = ["judge_level"]

MESSAGE_CHARS: Final = 160
RULE_CHARS: Final = 400

_NOBODY: Final = StopCause()


def judge_level(
    setting: Mapping[str, Any],
    outcome: LevelOutcome,
    folder: Path,
    *,
    max_error_share: float | None,
    warmup_s: float | None = None,
    cause: StopCause = _NOBODY,
) -> dict[str, Any]:
    """The contents of ``level.json`` for a level that has just ended.

    Args:
        setting: the level's setting.
        outcome: what the engine says.
        folder: the level's folder, its parts closed.
        max_error_share: share of failed requests from which the level is void; None to allow any.
        warmup_s: warm-up that was asked for, in seconds; None for the rule of ``gpusize.analysis.windows``.
        cause: who ended the level, if somebody did.

    Returns:
        ``setting``, ``state``, ``stop_reason``, ``intervals``, ``alerts`` and the outcome's fields.
    """
    state = _state(outcome, max_error_share, cause)
    facts: dict[str, Any] = {
        key: value for key, value in outcome.items() if key not in ("visit", "histograms", "hosts_alerts")
    }
    meta = {"setting": dict(setting), "state": state, **facts}
    records = scan(folder / part for part in outcome["parts"])
    cut = intervals(meta, records, warmup_s, seconds=scan_seconds(folder))
    counts = cause.draining and _touches(records, cut.intervals)
    if counts:
        meta["stop_reason"] = cause.reason
    elif cause.draining and state == "cancelled":
        # All that counts had been measured by then.
        meta["state"] = state = "done"
    alerts = [*_alerts(outcome, state), *_ended_by(outcome, cause, counts=counts), *cut.alerts]
    return {**meta, "intervals": cut.intervals, "alerts": [*outcome.get("hosts_alerts", ()), *alerts]}


def _touches(records: pl.LazyFrame, found: Sequence[Mapping[str, Any]]) -> bool:
    """Whether requests that were cut off were due in the steady window, or had not even been sent."""
    import polars as pl

    due = pl.col("due_ns")
    steady = [(due >= each["start_ns"]) & (due < each["end_ns"]) for each in found if each["name"] == "steady"]
    missed = (pl.col("outcome") == "cancelled") & (pl.col("sent_ns").is_null() | pl.any_horizontal(*steady))
    return bool(records.select(missed.any()).collect(engine="streaming").item())


def _state(outcome: LevelOutcome, max_error_share: float | None, cause: StopCause) -> str:
    if outcome["write_error"] is not None:
        return "partial"
    void = max_error_share is not None and failed_in(outcome) > max_error_share * judged_in(outcome)
    if void or outcome["stop_reason"] == "failed" or (outcome["stop_reason"] == "errors" and cause.by is None):
        return "interrupted"
    # A rule keeps what was measured; where nothing was, the level is as good as never begun.
    nothing = not judged_in(outcome) and not outcome["outcomes"].get("shed")
    return "cancelled" if cause.by == "user" or (cause.by == "rule" and nothing) else "done"


def _alerts(outcome: LevelOutcome, state: str) -> list[str]:
    alerts = []
    failed = failed_in(outcome)
    if outcome["write_error"] is not None:
        alerts.append(f"records were lost: {shown(outcome['write_error'], MESSAGE_CHARS)}")
    if state == "interrupted":
        alerts.append(f"interrupted: {failures_text(outcome)}")
    elif failed:
        alerts.append(failures_text(outcome))
    return alerts


def _ended_by(outcome: LevelOutcome, cause: StopCause, *, counts: bool) -> list[str]:
    """Who ended the level and, where it had sent all by then, what that cut off."""
    if cause.by is None:
        return []
    text = shown(cause.text, RULE_CHARS)
    if not cause.draining:
        return [f"ended early: {text}" if cause.by == "rule" else "cancelled by the user before it was done"]
    n, who = outcome["outcomes"].get("cancelled", 0), f"a rule ({text})" if cause.by == "rule" else "the user"
    where = "" if counts else ", none of which counts: all were sent, and due after the steady window"
    return [f"cut off while it drained: {who} ended {n:,} of its {outcome['due']:,} requests{where}"]
