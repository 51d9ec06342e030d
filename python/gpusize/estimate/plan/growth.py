"""Growth of a load as people write it: ``1.5``, ``50%``, ``30%/year``, ``30%/year for 5``, ``2x/year``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from gpusize.base.errors import UsageError

__all__ = ["NOW", "Step", "parse_growth"]

PERIODS: Final = 3
"""Of a growth per period, where nobody says for how many."""
MOST_PERIODS: Final = 60
_GROWTH: Final = re.compile(
    r"(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(?P<unit>%|x)?"
    r"(?:\s*/\s*(?P<period>year|quarter|month|week)(?:\s+for\s+(?P<count>[0-9]{1,3})(?:\s*(?P=period)s?)?)?)?"
)
_EXAMPLE: Final = "write it as 1.5, 50%, 30%/year or '30%/year for 5'"


@dataclass(frozen=True, slots=True)
class Step:
    """The load at one time.

    Attributes:
        name: ``now``, ``after 2 years`` or ``x 1.5``.
        factor: the load over that of now.
    """

    name: str
    factor: float


NOW: Final = Step("now", 1.0)


def parse_growth(text: str) -> tuple[Step, ...]:
    """The steps that a growth stands for, now first; a growth per period is compounded.

    A number alone, or with ``x``, multiplies the load; per cent are added to it.

    Raises:
        UsageError: no growth, or a load that does not change.
    """
    match = _GROWTH.fullmatch(text.strip())
    if match is None:
        raise UsageError(f'"{text}" is not a growth', "growth", _EXAMPLE)
    number = float(match["number"])
    factor = 1 + number / 100 if match["unit"] == "%" else number
    if not (0 < factor < math.inf and factor != 1):
        raise UsageError(f'with a growth of "{text}" the load does not change', "growth", _EXAMPLE)
    period = match["period"]
    if period is None:
        return NOW, Step(f"x {factor:.4g}", factor)
    count = int(match["count"] or PERIODS)
    if not 1 <= count <= MOST_PERIODS:
        raise UsageError(f"{count} {period}s are out of range", "growth", f"give 1 to {MOST_PERIODS}")
    if factor**count > 1e9 or factor**count < 1e-9:
        raise UsageError(f'"{text}" is not a valid growth', "growth", _EXAMPLE)
    after = [Step(f"after {k} {period}{'' if k == 1 else 's'}", factor**k) for k in range(1, count + 1)]
    return NOW, *after
