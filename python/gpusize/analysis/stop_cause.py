"""How a level was ended by somebody: by the user or by a rule, while it sent or while its last answers were awaited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from gpusize.analysis.metrics import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from gpusize.engine.session import LevelOutcome

__all__ = ["WHOLE", "Stop", "StopCause", "first_cut", "stop_cause_of"]

WHOLE: Final = ("count", "duration")
"""Stop reasons of a level that sent for as long as it was asked to."""


class Stop(NamedTuple):
    """Why a run is to end.

    Attributes:
        reason: ``slo``, ``errors`` or ``saturation``, as in ``Level.stop``.
        second: the second that decided, on the axis of the rows.
        text: the rule and the numbers, for people.
    """

    reason: str
    second: int
    text: str


class StopCause(NamedTuple):
    """Who ended a level.

    Attributes:
        by: None when it ended by itself.
        reason: the stop reason in ``level.json`` that says so: ``stopped`` or ``cancelled``, or that of the rule.
        text: the rule with its numbers; empty when it was none.
        draining: whether the level had sent all that it was asked to by then, and only its last requests were cut off.
    """

    by: Literal["user", "rule"] | None = None
    reason: str = ""
    text: str = ""
    draining: bool = False


def stop_cause_of(outcome: LevelOutcome, *, user: bool, rule: Stop | None, sending: bool) -> StopCause:
    """Who ended a level, from what the engine says and what was asked of it.

    Args:
        outcome: the level, over.
        user: whether the user has asked for an end.
        rule: the rule that has ended the run, if one has.
        sending: whether the level had not closed yet when it was asked to end.
    """
    reason = outcome["stop_reason"]
    cut = reason in WHOLE and outcome["outcomes"].get("cancelled", 0) > 0
    # The engine ends a level for errors by itself, too: one that it had closed by then was not ended by the rule.
    if rule is not None and (cut or (reason == rule.reason and (sending or reason != "errors"))):
        return StopCause("rule", rule.reason, rule.text, cut)
    if user and (cut or reason in ("stopped", "cancelled")):
        return StopCause("user", "cancelled" if cut else reason, "", cut)
    return StopCause()


def first_cut(meta: Mapping[str, Any], records: pl.LazyFrame, start_ns: int) -> int | None:
    """When the first request of an open loop was due that still waited for a connection when the level was ended.

    Of what was due later only the luckier requests have been sent. Of a sampled level the whole second of the last
    request that has a row and was due earlier: those between the two have none.

    Args:
        meta: ``level.json``.
        records: the records of the level visit.
        start_ns: when the level began.
    """
    import polars as pl

    asked = meta.get("state") != "interrupted" and (meta.get("outcomes") or {}).get("cancelled")
    if meta["setting"].get("kind") != "open" or not asked:
        return None
    due = pl.col("due_ns")
    never = pl.col("sent_ns").is_null() & (pl.col("outcome") == "cancelled")
    first = records.select(due.filter(never).min()).collect(engine="streaming").item()
    if first is None or int(meta.get("sampled") or 1) == 1:
        return None if first is None else int(first)
    before = records.select(due.filter(due < first).max()).collect(engine="streaming").item()
    second = round(NS_PER_S)
    return start_ns + (int(first if before is None else before) - start_ns) // second * second
