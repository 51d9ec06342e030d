"""What GPUs cost: a price per GPU-hour, and what follows from it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from gpusize.base.errors import UsageError

__all__ = ["HOURS_PER_MONTH", "Cost", "Price", "cost", "parse_price"]

HOURS_PER_MONTH: Final = 730.0
"""365 days of 24 hours over 12 months: what cloud price lists count with."""
PER: Final = 1e6
_NUMBER: Final = r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+"
_NAME: Final = r"[^\W\d_]{1,8}|[$€£¥]"
_PRICE: Final = re.compile(rf"(?P<before>{_NAME})?\s*(?P<number>{_NUMBER})\s*(?P<after>{_NAME})?")


@dataclass(frozen=True, slots=True)
class Price:
    """A price per GPU-hour.

    Attributes:
        amount: how much.
        currency: of what, as it was written; empty where nobody said.
    """

    amount: float
    currency: str = ""

    @property
    def per_month(self) -> float:
        """Of one GPU for a month of 730 hours."""
        return self.amount * HOURS_PER_MONTH


@dataclass(frozen=True, slots=True)
class Cost:
    """What a number of GPUs costs, in the price's currency.

    Attributes:
        per_hour: all GPUs for an hour.
        per_month: for 730 hours.
        per_million_requests: at the rate that they serve, hour after hour; None where no rate is known.
        per_million_tokens: likewise, of output; None where the answers' tokens are not known.
    """

    per_hour: float
    per_month: float
    per_million_requests: float | None = None
    per_million_tokens: float | None = None


def parse_price(text: str) -> Price:
    """A price from ``2.5``, ``2.5 EUR`` or ``$2.5``.

    Raises:
        UsageError: no price.
    """
    match = _PRICE.fullmatch(text.strip())
    if match is None or (match["before"] and match["after"]):
        raise UsageError(f'"{text}" is not a price', "gpu_hour_price", "write it as 2.5 or '2.5 EUR'")
    amount = float(match["number"])
    if not 0 < amount < math.inf:
        raise UsageError("a price must be above 0", "gpu_hour_price", "leave it out, or give the price of an hour")
    return Price(amount, match["before"] or match["after"] or "")


def cost(price: Price, gpus: int, per_s: float | None, tokens: float | None) -> Cost:
    """What so many GPUs cost.

    Args:
        price: of one GPU for an hour.
        gpus: how many there are.
        per_s: requests per second that they serve; None where nobody knows.
        tokens: output tokens of a request, mean; None where nobody knows.
    """
    per_hour = gpus * price.amount
    requests = None if not per_s else per_hour / (3600 * per_s) * PER
    return Cost(
        per_hour=per_hour,
        per_month=gpus * price.per_month,
        per_million_requests=requests,
        per_million_tokens=None if requests is None or not tokens else requests / tokens,
    )
