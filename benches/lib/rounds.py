"""Turns of several clients in rounds: each stands in every round once, at a place that moves from round to round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from benches.lib.context import Context, say
from benches.lib.procs import BenchFailed

__all__ = ["present", "rotate", "tell_missing"]

T = TypeVar("T")
P = TypeVar("P")


def rotate(rounds: int, turns: Mapping[str, Callable[[], T]], tell: Callable[[T], str]) -> dict[str, list[T]]:
    """So many turns of each, by name.

    Round r begins with the r-th of them, so that nobody always follows the same neighbour's load.

    Args:
        rounds: turns of each.
        turns: what takes a turn, by name.
        tell: a word about a turn, shown while it goes on.
    """
    found: dict[str, list[T]] = {name: [] for name in turns}
    names = list(turns)
    for number in range(rounds):
        first = number % len(names)
        for name in [*names[first:], *names[:first]]:
            found[name].append(turns[name]())
        told = ", ".join(f"{name} {tell(found[name][-1])}" for name in names)
        say(f"round {number + 1}/{rounds}: {told}")
    return found


def present(peers: Mapping[str, P], program: Callable[[P], object]) -> tuple[dict[str, P], dict[str, str]]:
    """The peers whose program is here, and of the others why it is not."""
    there: dict[str, P] = {}
    missing: dict[str, str] = {}
    for name, peer in peers.items():
        try:
            program(peer)
        except BenchFailed as error:
            missing[name] = str(error)
        else:
            there[name] = peer
    return there, missing


def tell_missing(ctx: Context, missing: Mapping[str, str]) -> None:
    """A word about those that are not here, into the record."""
    if missing:
        ctx.report.text("Left out: " + "; ".join(f"{name} ({why})" for name, why in missing.items()) + ".\n")
