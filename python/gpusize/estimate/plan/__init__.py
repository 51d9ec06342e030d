"""What if: GPUs against users, rates, bounds and time, with failed replicas and costs, from what was measured once."""

from __future__ import annotations

from gpusize.estimate.plan.growth import Step, parse_growth
from gpusize.estimate.plan.price import Cost, Price, parse_price
from gpusize.estimate.plan.ranges import Bound, parse_bounds, parse_rates, parse_users
from gpusize.estimate.plan.types import Failed, Row, Scenario, WhatIf

__all__ = [
    "Bound",
    "Cost",
    "Failed",
    "Price",
    "Row",
    "Scenario",
    "Step",
    "WhatIf",
    "parse_bounds",
    "parse_growth",
    "parse_price",
    "parse_rates",
    "parse_users",
]
