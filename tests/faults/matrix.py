"""What a fault is: what the server does to some requests, what must come out of it, and what the user is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.servers.scripted import Request, Send, Step, answer

if TYPE_CHECKING:
    import polars as pl

__all__ = ["GOOD", "Counts", "Fault", "outcomes_by_seq", "script_of"]

GOOD = answer(b"good")


@dataclass(frozen=True)
class Fault:
    """One row of the matrix.

    ``does`` names it in the table of docs/reference/faults.md; ``steps`` are what the server does to every third
    request; ``outcome`` is what that request's row says; ``says`` is part of the message in ``level.json``; ``again``
    allows the row to have been asked again; ``target`` changes the target.
    """

    does: str
    steps: Sequence[Step] | Callable[[Request], Sequence[Step]]
    outcome: str
    says: str = ""
    again: bool = False
    good: bytes = GOOD
    target: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.does

    @property
    def waits(self) -> bool:
        """Whether it is one of time: it lasts for several timeouts, and does nothing meanwhile."""
        return self.outcome == "timeout"


@dataclass
class Counts:
    """What the server did: how often each request came in whole, and which it answered as it should."""

    counted: Counter[tuple[int, int]] = field(default_factory=Counter)
    answered: set[tuple[int, int]] = field(default_factory=set)


def script_of(
    fault: Fault, number: Callable[[Request], tuple[int, int]], counts: Counts
) -> Callable[[Request], Sequence[Step]]:
    """The server's side: every third request gets the fault, the others a good answer; ``counts`` notes both."""

    def script(request: Request) -> Sequence[Step]:
        name = number(request)
        counts.counted[name] += 1
        if name[1] % 3 == 1:
            steps = fault.steps(request) if callable(fault.steps) else fault.steps
            if fault.outcome == "ok":
                counts.answered.add(name)
            return steps
        counts.answered.add(name)
        return [Send(fault.good)]

    return script


def outcomes_by_seq(rows: pl.DataFrame) -> dict[int, str]:
    """The outcome of each request of a level."""
    return dict(zip(rows["seq"].to_list(), [str(how) for how in rows["outcome"].to_list()], strict=True))
