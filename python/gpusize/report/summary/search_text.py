"""A search in words: why a level was chosen, where the capacity is known to be, and what was found."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.units import format_duration
from gpusize.report.text import clean, count, finite, plain_number

if TYPE_CHECKING:
    from rich.console import Console

    from gpusize.estimate.search.result import Found

__all__ = ["chosen_text", "found_text", "print_search", "search_rows"]

_WHY: Final = {
    "grow": "growing",
    "edge": "at the capacity",
    "below": "below the capacity",
    "above": "above the capacity",
    "again": "once more",
    "repeat": "once more, as the generator was the limit",
    "check": "once more, to see whether the target still answers",
}
_MOST_DIGITS: Final = 4
WHOLE: Final = 0.9
"""Share of a budget from which it is said to be spent."""
HARDLY: Final = 0.9
"""Intervals that stay so wide have hardly changed."""
_MOST_LOADS: Final = 12
"""Loads that are named one by one."""

_STYLES: Final = {"capacity": "bold", "left out": "yellow", "doubt": "yellow"}


def chosen_text(search: Mapping[str, Any] | None) -> str:
    """Why a level was chosen: ``at the capacity, which is between 12 and 14``; empty in a sweep."""
    if not isinstance(search, Mapping):
        return ""
    why = _WHY.get(str(search.get("why")), "")
    low, high = finite(search.get("low")) or 0.0, finite(search.get("high"))
    least = f"{math.floor(low)}"
    if high is not None:
        return f"{why}, capacity between {least} and {math.ceil(high)}"
    return f"{why}, capacity above {least}" if low >= 1 else why


def found_text(found: Found) -> str:
    """The capacity in one sentence."""
    slo = f" within {clean(found.slo)}" if found.slo else " within the SLOs"
    if found.capacity is None:
        least = f"at least {_users(found.low)} users" if found.low >= 1 else "no load is known to be"
        return f"{least}{slo}; {_not_known(found)}"
    if found.capacity < 1:
        return f"none: a single user is not served{slo}"
    if found.wall is not None and found.high == found.wall:
        return f"{_users(found.capacity)} users; under {found.wall} the target fails"
    high = "open above" if found.high is None else f"to {_users(found.high)}"
    return f"{_users(found.capacity)} users{slo} (95 %: {_users(found.low)} {high})"


def _not_known(found: Found) -> str:
    """Why a search has no capacity."""
    if found.reason == "silent":
        return "no request has data for it"
    if found.reason == "failed":
        return "whether it carries more is not known, as the target failed"
    return "no measured load surely misses one" if found.loads else "no load was measured to its end"


def ended_text(found: Found) -> str:
    """Why the search ended."""
    terms, precision = found.terms, found.precision
    asked = f"{100 * terms.share:g} %"
    known = "" if precision is None else f"; the capacity is known to within {_percent(precision)}"
    return {
        "precision": f"the precision of {asked} is reached{known}",
        "count": f"the number of GPUs for {_users(found.users or 0)} users is known{known}; without --users it goes on",
        "budget": f"{_spent(found)}, short of the precision of {asked}{known}",
        "limit": f"no SLO was missed up to {found.most_users} users; --most-users allows more",
        "single": "a single user already misses an SLO: there is no smaller load to try",
        "failed": "the target failed: it no longer answered under a load that it had carried before",
        "silent": f"no request has data for {clean(found.slo or '')}: no load can be said to keep it",
        "ended": f"it was cut short{known}",
    }[found.reason]


def _spent(found: Found) -> str:
    """That the budget is spent, or why the search ended before all of it was."""
    budget = found.terms.time_s if found.terms.time_s is not None else found.terms.requests
    used = found.length_s if found.terms.time_s is not None else found.requests
    if budget is None or used >= WHOLE * budget:
        return "the budget is spent"
    asked, gone = f"{found.terms.budget}", format_duration(round(used)) if found.terms.time_s else count(round(used))
    if found.terms.money is not None:
        gone = found.terms.cost_text(used)
    why = "its measurements were planned once the growth had shown the capacity, and the rest has no room for more"
    if found.capacity is None:
        why = "half of it is kept for measurements at the capacity, and no load up to then showed one"
    return f"{gone} of the budget of {asked} were used: {why}"


def again_text(found: Found) -> str:
    """What as much again would buy; empty where that is not known."""
    again, precision = found.again, found.precision
    if again is None:
        return ""
    price = found.terms.cost_text(again.length_s)
    cost = f"{count(again.requests)} requests, about {format_duration(max(1, round(again.length_s)))}"
    cost += f", {price}" if price else ""
    known = f"to within about {_percent(again.precision)}"
    if precision is not None and again.precision > HARDLY * precision:
        return f"as much again ({cost}) would hardly narrow it"
    return f"as much again ({cost}) would show it {known}: {_users(again.low)} to {_users(again.high)} users"


def limited_text(found: Found, run: str = "RUN") -> str:
    """Which loads the generator was the limit of, what follows from that, and what to do; empty without any."""
    if not found.limited:
        return ""
    named = ", ".join(map(str, found.limited[:_MOST_LOADS])) + (", …" if len(found.limited) > _MOST_LOADS else "")
    users = "user" if found.limited == (1,) else "users"
    measured, them = ("it was", "it") if len(found.limited) == 1 else ("they were", "them")
    return (
        f"{len(found.limited)} of {found.loads} loads ({named} {users}): the load generator was the limit whenever "
        f"{measured} measured, so an estimate leaves {them} out. Give the generator idle cores (end other processes "
        f"here, --pin) or more --workers, then measure {them} again with gpusize run --resume {run}"
    )


def search_rows(found: Found, run: str = "RUN") -> list[tuple[str, str]]:
    """Label and text of each line that is shown; ``run`` is the folder, as a command would name it."""
    limited = limited_text(found, run)
    levels = f"{found.levels} level{'' if found.levels == 1 else 's'}"
    users = f"{found.most_users} user{'' if found.most_users == 1 else 's'}"
    price = found.terms.cost_text(found.length_s)
    cost = f"{count(found.requests)} requests in {levels}, up to {users}{f', {price}' if price else ''}"
    return [
        ("capacity", found_text(found)),
        ("ended", ended_text(found)),
        ("cost", cost),
        *([("more", again_text(found))] if found.again is not None else []),
        *([("left out", clean(limited, 600))] if limited else []),
        *(("doubt", clean(text, 400)) for text in found.remarks),
    ]


def print_search(found: Found, console: Console, run: str = "RUN") -> None:
    """Print what was found, a line each; ``run`` is the folder, as a command would name it."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for label, text in search_rows(found, run):
        table.add_row(label, Text(text, style=_STYLES.get(label, "")))
    console.print(Text("Search for the capacity", style="bold"))
    console.print(table)


def _users(value: float) -> str:
    return plain_number(round(value, 1 if value < 100 else 0), _MOST_DIGITS)


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"
