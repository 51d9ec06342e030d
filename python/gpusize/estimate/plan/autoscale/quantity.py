"""Quantities as Kubernetes writes them: ``500m``, ``2``, ``1.5k``, ``10Gi``, ``1e3``."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from typing import Final

__all__ = ["milli"]

_QUANTITY: Final = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i)?)")
_SUFFIXES: Final = {
    **{name: Decimal(10) ** power for name, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)},
    **{f"{name}i": Decimal(1024) ** power for power, name in enumerate("KMGTPE", 1)},
}
_MOST: Final = 2**63 - 1


def milli(text: str | float) -> int | None:
    """A quantity in thousandths, rounded up as Kubernetes does; None where the text is none.

    Source: ``k8s.io/apimachinery/pkg/api/resource``, ``Quantity.MilliValue``.
    """
    found = _QUANTITY.fullmatch(str(text).strip())
    if found is None:
        return None
    number, exponent, suffix = found.groups()
    value = Decimal(number + (exponent or "")) * _SUFFIXES.get(suffix, Decimal(1))
    thousandths = int((value * 1000).to_integral_value(ROUND_CEILING))
    return thousandths if abs(thousandths) <= _MOST else None
