"""Scenarios whose answers can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benches.estimates.question import Visible
from benches.estimates.scenario import Scenario
from benches.estimates.worlds import ForeignWorld
from gpusize.analysis.slo import Slo

LENGTHS = {"apart": {"prompt": {"fixed": {"value": 10}}, "output": {"fixed": {"value": 5}}}}


def turns(users: int, bound: str, **changes: Any) -> Scenario:
    """GPUs that serve one request a second, one after the other: with k users on a GPU a request takes k seconds."""
    sharing = {"rates": [1.0], "max_active": 1, "work": {"fixed": {"value": 1.0}}}
    world = ForeignWorld({"mechanics": {"sharing": sharing}, "lengths": LENGTHS})
    visible = Visible((Slo.parse(bound),), users=users)
    found = Scenario("0/0", "sharing", (), world, visible, "answer", 2, 3.0, 1.0, 4000)
    return replace(found, **changes)
