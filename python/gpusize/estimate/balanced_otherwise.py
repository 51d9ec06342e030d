"""Whether the generator chose among the measured replicas by another rule than the router of the question does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData

__all__ = ["balanced_otherwise"]

_ROUTER: Final = {"round_robin": "round_robin", "least_outstanding": "least_loaded"}
"""The router that each rule of ``--balance`` is."""
_WORDS: Final = {
    "least_loaded": "sends each request to the replica with the fewest",
    "round_robin": "sends them in turn",
    "random": "sends them at random",
    "shared": "has one queue for all replicas",
}


def balanced_otherwise(levels: Iterable[LevelData], router: str) -> tuple[str, ...]:
    """What is to be said of levels with several replicas that got their requests otherwise; empty where none did.

    Args:
        levels: of any runs.
        router: of the question.
    """
    rules = sorted({level.balance for level in levels if level.balance and level.setting.get("process") != "plan"})
    other = [rule for rule in rules if _ROUTER.get(rule, router) != router]
    if not other:
        return ()
    rule = other[0]
    how = "in turn" if rule == "round_robin" else "by the fewest in flight"
    as_asked = next((name for name, own in _ROUTER.items() if own == router), None)
    again = "" if as_asked is None else f"measure with --balance {as_asked}, or "
    text = (
        f"the measured replicas got their requests {how} (--balance {rule}), and the answer is for a router that "
        f"{_WORDS.get(router, router)}: {again}ask with --router {_ROUTER[rule]}"
    )
    return (text,)
