"""What is to be thought of a level that has ended: its state, its intervals, its alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpusize.frames import scan
from gpusize.second_parts import scan_seconds
from gpusize.textio import shown
from gpusize.windows import intervals

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gpusize.engine import LevelOutcome

__all__ = ["judge_level"]

MESSAGE_CHARS: Final = 160
SHOWN_ERRORS: Final = 3

_STOPS: Final = {
    "slo": "ended before its time: an SLO had been violated for as long as was allowed",
    "saturation": "ended before its time: the target was saturated",
}
"""What ended a level that is whole as far as it goes, in words."""


def judge_level(
    setting: Mapping[str, Any],
    outcome: LevelOutcome,
    folder: Path,
    *,
    max_error_share: float | None,
    warmup_s: float | None = None,
    cancelled: bool = False,
) -> dict[str, Any]:
    """The contents of ``level.json`` for a level that has just ended.

    Args:
        setting: the level's setting.
        outcome: what the engine says.
        folder: the level's folder, its parts closed.
        max_error_share: share of failed requests from which the level is void; None to allow any.
        warmup_s: warm-up that was asked for, in seconds; None for the rule of ``gpusize.windows``.
        cancelled: whether the user ended the level before it was done.

    Returns:
        ``setting``, ``state``, ``stop_reason``, ``intervals``, ``alerts`` and the outcome's fields.
    """
    state = _state(outcome, max_error_share, cancelled=cancelled)
    facts: dict[str, Any] = {key: value for key, value in outcome.items() if key not in ("visit", "histograms")}
    meta = {"setting": dict(setting), "state": state, **facts}
    records = scan(folder / part for part in outcome["parts"])
    cut = intervals(meta, records, warmup_s, seconds=scan_seconds(folder))
    return {**meta, "intervals": cut.intervals, "alerts": [*_alerts(outcome, state), *cut.alerts]}


def _ended(outcome: LevelOutcome) -> int:
    """Requests that ended in any way but were not shed: of a sampled level more than have a row."""
    return sum(count for name, count in outcome["outcomes"].items() if name != "shed")


def _failed(outcome: LevelOutcome) -> int:
    """Those that failed; what was shed was never sent, and is counted and shown as that."""
    return sum(count for name, count in outcome["outcomes"].items() if name not in ("ok", "cancelled", "shed"))


def _state(outcome: LevelOutcome, max_error_share: float | None, *, cancelled: bool) -> str:
    if outcome["write_error"] is not None:
        return "partial"
    void = max_error_share is not None and _failed(outcome) > max_error_share * _ended(outcome)
    if void or outcome["stop_reason"] in ("errors", "failed"):
        return "interrupted"
    return "cancelled" if cancelled else "done"


def _alerts(outcome: LevelOutcome, state: str) -> list[str]:
    alerts = []
    failed = _failed(outcome)
    if outcome["write_error"] is not None:
        alerts.append(f"records were lost: {shown(outcome['write_error'], MESSAGE_CHARS)}")
    if state == "interrupted":
        alerts.append(f"interrupted: {failed} of {_ended(outcome)} requests failed{_reasons(outcome)}")
    elif failed:
        alerts.append(f"{failed} of {_ended(outcome)} requests failed{_reasons(outcome)}")
    if outcome["stop_reason"] in _STOPS:
        alerts.append(_STOPS[outcome["stop_reason"]])
    if state == "cancelled":
        alerts.append("cancelled by the user before it was done")
    return alerts


def _reasons(outcome: LevelOutcome) -> str:
    """The most frequent errors, in words; text from a server is bounded and made harmless."""
    errors = sorted(outcome["errors"], key=lambda error: -error["count"])[:SHOWN_ERRORS]
    texts = []
    for error in errors:
        status = f" {error['status']}" if error["status"] else ""
        message = f": {shown(error['message'], MESSAGE_CHARS)}" if error["message"] else ""
        texts.append(f"{error['count']} x {error['outcome']}{status}{message}")
    return f" ({'; '.join(texts)})" if texts else ""
