"""How many requests of a level failed, and of what, from what its engine or its ``level.json`` says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpusize.base.text import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["failed_in", "failures_text", "judged_in"]

MESSAGE_CHARS: Final = 160
BRIEF_CHARS: Final = 60
SHOWN_ERRORS: Final = 3

_NO_FAILURE: Final = ("ok", "cancelled", "shed")


def judged_in(outcome: Mapping[str, Any]) -> int:
    """Requests that ended well or badly: of a sampled level more than have a row."""
    return int((outcome.get("outcomes") or {}).get("ok", 0)) + failed_in(outcome)


def failed_in(outcome: Mapping[str, Any]) -> int:
    """Those that failed; what was shed is counted and shown as that, and what was cancelled counts nowhere."""
    outcomes = outcome.get("outcomes") or {}
    return sum(int(count) for name, count in outcomes.items() if name not in _NO_FAILURE)


def failures_text(meta: Mapping[str, Any], *, brief: bool = False) -> str:
    """How many requests of a level failed, and of what: ``3 of 40 requests failed (3 x timeout)``.

    Args:
        meta: an engine's outcome, or ``level.json``.
        brief: name the most frequent error only, in few words.
    """
    reasons = _reasons(meta, 1, BRIEF_CHARS) if brief else _reasons(meta)
    return f"{failed_in(meta)} of {judged_in(meta)} requests failed{reasons}"


def _reasons(outcome: Mapping[str, Any], most: int = SHOWN_ERRORS, chars: int = MESSAGE_CHARS) -> str:
    """The most frequent errors, in words; text from a server is bounded and made harmless."""
    failures = [error for error in outcome.get("errors") or [] if error["outcome"] not in _NO_FAILURE]
    errors = sorted(failures, key=lambda error: -error["count"])[:most]
    texts = []
    for error in errors:
        status = f" {error['status']}" if error["status"] else ""
        message = f": {shown(error['message'], chars)}" if error["message"] else ""
        texts.append(f"{error['count']} x {error['outcome']}{status}{message}")
    return f" ({'; '.join(texts)})" if texts else ""
