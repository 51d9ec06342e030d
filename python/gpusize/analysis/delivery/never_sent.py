"""Why requests that were due and not shed were never sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusize.analysis.stop_cause import WHOLE

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData

__all__ = ["unsent_text"]


def unsent_text(level: LevelData, unsent: int) -> str:
    """Why so many requests of a single visit were never sent, with their numbers; empty for none.

    Those that an end found waiting are ``cancelled``; others have their failure to connect. Of a sampled level, where
    not every request has a row, as many as were cancelled count as the former.
    """
    import polars as pl

    if unsent <= 0:
        return ""
    never = pl.col("sent_ns").is_null() & (pl.col("outcome") == "cancelled")
    if level.sampled > 1:
        cut = int((level.meta.get("outcomes") or {}).get("cancelled", 0))
    else:
        cut = int(level.requests().select(never.sum()).collect(engine="streaming").item())
    cut = min(cut, unsent)
    texts = [f"{cut:,} were never sent: {_end(level)} while they waited"] if cut else []
    if unsent > cut:
        texts.append(f"{unsent - cut:,} were never sent: no connection could be opened; see the errors of the level")
    return "; ".join(texts)


def _end(level: LevelData) -> str:
    """What ended the level."""
    reason = level.meta.get("stop_reason")
    if level.state == "interrupted":
        return "too many failed, so the level was ended"
    if reason in ("stopped", "cancelled"):
        return "the user ended the run"
    return "the level was ended" if reason in (None, *WHOLE) else "a rule ended the level"
