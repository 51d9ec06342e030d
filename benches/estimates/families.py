"""The families of scenarios: where they come from, what is judged on which seeds, and what must be shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from benches.estimates import engine_scenarios, scenarios
from benches.estimates.scenario import Scenario

__all__ = ["ENGINES", "FAMILIES", "MECHANISMS", "Family"]

MECHANISMS: Final = "mechanisms"
ENGINES: Final = "engines"


class Draw(Protocol):
    """Makes scenarios of a seed."""

    def __call__(self, seed: int, count: int, *, first: int = 0) -> list[Scenario]:
        """``count`` of them from number ``first`` on."""
        ...


@dataclass(frozen=True)
class Family:
    """One family.

    Attributes:
        draw: its scenarios.
        seeds: of the figures in RESULTS.md; nothing is developed on them.
        count: scenarios of each.
        parts: groups of scenarios for which the table of methods is printed as well.
    """

    draw: Draw
    seeds: tuple[int, ...]
    count: int
    parts: Sequence[str]


FAMILIES: Mapping[str, Family] = {
    MECHANISMS: Family(
        scenarios.draw,
        (101, 102, 103, 104),
        300,
        ("own mechanism", "foreign mechanisms", "foreign, no model of the twin's"),
    ),
    ENGINES: Family(
        engine_scenarios.draw,
        (201, 202, 203, 204),
        100,
        ("p99", "TTFT", "chunked", "prompts first", "disaggregated"),
    ),
}
"""By name; the first is the default."""
