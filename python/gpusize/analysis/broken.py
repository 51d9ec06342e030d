"""Why levels broke: under their load, or because the target had failed.

Failures are evidence about a load only where they come with it. A level that broke is held against what came after it:

    failed   at the lowest load that had held before most requests failed as well, or more than chance makes of what had
             failed there: the target itself had failed
    passing  as many or more held at another time, and it did not come again
    alike    a lower load held afterwards, but about as many requests failed there as chance makes of as large a share
    load     a lower load held afterwards; or nobody looked, and the failures are such as load brings (``brought``)
    unknown  nobody looked, and the failures came at once: refused connections, errors faster than answers

Only ``load`` says how much a target carries. Sweeps and searches look (``check_load``), so the last rule is for what
was measured without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from gpusize.analysis.delivery.intended import is_ramp
from gpusize.analysis.exact_test import chance_of_as_many

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpusize.analysis.level import LevelData

__all__ = [
    "MOST",
    "Cause",
    "Look",
    "alike",
    "broke",
    "brought",
    "causes",
    "check_load",
    "failed_of",
    "failed_text",
    "has_failed",
    "load_of",
    "look_of",
]

Cause = Literal["load", "failed", "passing", "alike", "unknown"]

STOPS: Final = ("errors", "saturation")
"""Stop reasons of a level that the target could not take, whoever ended it."""
MOST: Final = 0.5
"""Share of failed requests from which a level broke, however many were allowed."""
FEW: Final = 0.01
FEWEST: Final = 3
"""So many failures, as a share and as a number, a level may have at its end before the target is said to have died."""
SMALL: Final = 0.1
"""The largest share of failures that is taken for the target's own where it is the same at every load."""
CHANCE: Final = 0.05
"""Failures that are as many by so small a chance, or a smaller one, were more than at lower loads."""
NO_FAILURE: Final = ("ok", "cancelled")
SLOW_OUTCOMES: Final = ("timeout", "shed")
BUSY: Final = (429, 504, 529)
"""Statuses by which a server or a gateway says that it was asked for too much, or had no answer in time. 503 is none of
them: gateways say it where nobody is behind them."""
SLOW: Final = 3.0
"""A failure that took so many times the median answer came late, as under load; others came at once."""


class Look(NamedTuple):
    """One visit of a level.

    Attributes:
        load: requests in flight, or per second.
        broke: whether the target failed under it.
        brought: whether its failures are such as load brings.
        fading: whether it was answered up to a moment and not after it, be it for a single request: the target may
            have died by then.
        failed: requests that failed.
        ended: requests that ended; 0 where nobody counted.
    """

    load: float
    broke: bool
    brought: bool = False
    fading: bool = False
    failed: int = 0
    ended: int = 0


def causes(looks: Sequence[Look]) -> list[Cause | None]:
    """Why each of the visits broke, in the order in which they were measured; None for those that held.

    A target that has failed has failed until it holds again. Above a load that broke it none needs a look of its own.
    """
    found: list[Cause | None] = []
    for number, each in enumerate(looks):
        gone = bool(found) and found[-1] == "failed"
        found.append("failed" if each.broke and gone else _cause(looks, number) if each.broke else None)
    for number in range(1, len(looks)):
        if found[number] == "failed" and found[number - 1] is None and looks[number - 1].fading:
            found[number - 1] = "failed"
    wall = min((look.load for look, cause in zip(looks, found, strict=True) if cause == "load"), default=float("inf"))
    beyond = [cause == "unknown" and look.load >= wall for look, cause in zip(looks, found, strict=True)]
    return ["load" if each else cause for each, cause in zip(beyond, found, strict=True)]


def _cause(looks: Sequence[Look], number: int) -> Cause:
    mine = looks[number]
    after, later = _told(looks, number), looks[number + 1 :]
    # A load that had held is not answered any more, or more of it fails than did by chance.
    if after is not None and after.broke and (after.fading or _more(after, _held(looks, after.load))):
        return "failed"
    lowest = min(each.load for each in looks)
    if mine.fading and all(each.broke for each in later) and any(each.load <= lowest for each in later):
        # It was answered up to a moment, and then never again, not even at the lowest load that was tried.
        return "failed"
    once = sum(each.broke and each.load == mine.load for each in looks) == 1
    if once and any(each.load >= mine.load for each in looks if not each.broke):
        return "passing"
    if mine.brought:
        return "load"
    if after is None:
        return "unknown"
    lower = [*_held(looks, mine.load), *([after] if after.broke else [])]
    return "load" if _more(mine, lower) else "alike"


def _held(looks: Sequence[Look], load: float) -> list[Look]:
    return [each for each in looks if not each.broke and each.load <= load]


def _more(mine: Look, lower: Sequence[Look]) -> bool:
    """Whether more requests failed than their share at lower loads makes by chance (Fisher's exact test).

    So they did where most of them failed, and where nobody counted. A level of few requests is stopped for one or two
    that fail: a bad row of the dataset does that at any load.
    """
    failed, ended = sum(each.failed for each in lower), sum(each.ended for each in lower)
    if not (mine.ended and ended) or mine.failed >= MOST * mine.ended:
        return True
    return chance_of_as_many(mine.failed, mine.ended, mine.failed + failed, mine.ended + ended) <= CHANCE


def alike(looks: Sequence[Look]) -> float:
    """The share of requests that failed at every load alike, also at the lowest; 0 where there is none.

    A small one, of visits that all broke, and of several loads, or of one request at a time.
    """
    # A level that may have no failure ends with its first one, so that nothing is answered after it.
    fading = any(each.fading and each.failed > 1 for each in looks)
    if not looks or fading or not all(each.broke and each.ended and not each.brought for each in looks):
        return 0.0
    low = min(looks, key=lambda each: each.load)
    failed, ended = sum(each.failed for each in looks), sum(each.ended for each in looks)
    several = low.load <= 1 or any(each.load > low.load for each in looks)
    small = failed <= SMALL * ended and not any(_more(each, [low]) for each in looks if each is not low)
    return failed / ended if several and small else 0.0


def _told(looks: Sequence[Look], number: int) -> Look | None:
    """The first later visit that tells why one broke: a lower load that holds, or the lowest of those that had held.

    That one between them breaks, which had held once, may be chance: near the capacity either happens.
    """
    mine = looks[number]
    lowest = min((each.load for each in looks[:number] if not each.broke), default=0.0)
    lower = (each for each in looks[number + 1 :] if each.load < mine.load)
    return next((each for each in lower if not each.broke or each.load <= lowest), None)


def has_failed(looks: Sequence[Look]) -> bool:
    """Whether the target had failed by the end of these visits, and has not held since."""
    return "failed" in causes(looks)[since_held(looks) :]


def check_load(looks: Sequence[Look]) -> float | None:
    """The load at which to look whether the target still answers, after it broke.

    The largest that held, below all that broke since; if that has broken since, too, the lowest that held. None where
    nothing broke since it last held, where it is known to have failed, where nothing lower had held, and above a load
    that was seen to break it before.
    """
    since = since_held(looks)
    known = [each.load for each, cause in zip(looks[:since], causes(looks[:since]), strict=True) if cause == "load"]
    broken, held = [each.load for each in looks[since:]], [each.load for each in looks[:since] if not each.broke]
    if not broken or not held or has_failed(looks) or min(broken) >= min(known, default=float("inf")):
        return None
    if min(broken) <= max(held):
        return min(held) if min(held) < max(broken) else None
    return max(held)


def since_held(looks: Sequence[Look]) -> int:
    """The number of the first visit after the last one that held; 0 where none did."""
    return max((number + 1 for number, each in enumerate(looks) if not each.broke), default=0)


def failed_text(first: str, failures: str, again: str, failures_again: str) -> str:
    """That a target has failed, in words.

    Args:
        first: the load under which it broke first.
        failures: what failed there.
        again: the load that had held before and broke then.
        failures_again: what failed there.
    """
    return f"the target failed: at {first} {failures}, and at {again}, which had held before, {failures_again}"


def look_of(level: LevelData) -> Look | None:
    """A level as a look; None where it says nothing of this: no one load, another tool's figures, ended by the user."""
    load = load_of(level.setting)
    if load is None or level.imported or level.state not in ("done", "interrupted"):
        return None
    fades = fading(level)
    fell = broke(level.state, level.meta) or (fades and _many(level))
    return Look(load, fell, fell and brought(level), fades, *failed_of(level.meta.get("outcomes") or {}))


def load_of(setting: Mapping[str, Any]) -> float | None:
    """Requests in flight, or per second, of a level whose load does not change; None of any other."""
    if is_ramp(setting):
        return None
    value = setting.get("concurrency") or setting.get("rate")
    return None if not value else float(value)


def broke(state: str, meta: Mapping[str, Any]) -> bool:
    """Whether a level was stopped for failures or overload, or at least half of its requests failed."""
    if state == "interrupted":
        return True
    failed, ended = failed_of(meta.get("outcomes") or {})
    return state == "done" and (meta.get("stop_reason") in STOPS or (ended > 0 and failed >= MOST * ended))


def failed_of(outcomes: Mapping[str, Any]) -> tuple[int, int]:
    """(failed, ended) requests; what was shed was never asked of the target."""
    counted = {name: int(n) for name, n in outcomes.items() if name not in ("cancelled", "shed")}
    ended = sum(counted.values())
    return ended - counted.get("ok", 0), ended


def _many(level: LevelData) -> bool:
    """Whether so many requests failed that, where they are the last ones, the target died in the level."""
    failed, ended = failed_of(level.meta.get("outcomes") or {})
    return failed >= FEWEST and failed > FEW * ended


def fading(level: LevelData) -> bool:
    """Whether a level was answered up to a moment, and nothing that was due after it."""
    failed, ended = failed_of(level.meta.get("outcomes") or {})
    return bool(failed) and failed != ended and level.kept.once("fading", lambda: _fades(level))


def _fades(level: LevelData) -> bool:
    import polars as pl

    outcome = pl.col("outcome").cast(pl.String)
    rows = level.requests().filter(~outcome.is_in(("cancelled", "shed")))
    first = pl.col("due_ns").filter(outcome != "ok").min()
    return bool(rows.select((outcome.filter(pl.col("due_ns") >= first) != "ok").all()).collect().item())


def brought(level: LevelData) -> bool:
    """Whether most of a level's failures are such as load brings: timeouts, refusals of a limiter, late errors.

    So is a level that was stopped without any failure: for a queue that grew. One request at a time piles nothing up: a
    target that answers it up to a moment, and then none, has not met its load.
    """
    import polars as pl

    if level.concurrency == 1 and fading(level):
        return False
    took = pl.col("end_ns") - pl.col("sent_ns")
    outcome = pl.col("outcome").cast(pl.String)
    usual = level.requests().filter(outcome == "ok").select(took.median()).collect().item()
    late = took >= SLOW * usual if usual else pl.lit(value=False)
    told = outcome.is_in(SLOW_OUTCOMES) | pl.col("status").is_in(BUSY) | late
    found = (
        level.requests().filter(~outcome.is_in(NO_FAILURE)).select(told.fill_null(value=False).mean()).collect().item()
    )
    return found is None or float(found) >= MOST
