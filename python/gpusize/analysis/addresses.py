"""The addresses that stand behind a target's host names, and how many of them had connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["addresses_of", "addresses_text"]


def addresses_of(levels: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each address that a run's host names stood for.

    Args:
        levels: the contents of ``level.json`` of the run, by visit.

    Returns:
        In the order in which they appear: ``target`` (number of the host), ``address`` and ``connections``: the most
        that a level had, 0 for one that was never connected to.
    """
    most: dict[tuple[int, str], int] = {}
    for level in levels:
        for told in level.get("addresses") or ():
            key = (int(told["target"]), str(told["address"]))
            most[key] = max(most.get(key, 0), int(told["connections"]))
    return [{"target": target, "address": address, "connections": n} for (target, address), n in most.items()]


def addresses_text(found: Iterable[Mapping[str, Any]]) -> str | None:
    """How many of them were used, in words; None where each host stands for a single one."""
    told = list(found)
    if len(told) == len({each.get("target") for each in told}):
        return None
    used = sum(bool(each.get("connections")) for each in told)
    return f"{used} of {len(told)} addresses used"
