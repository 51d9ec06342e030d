"""Fisher's exact test: whether one part of some requests has more of a kind than chance gives it."""

from __future__ import annotations

import math

__all__ = ["chance_of_as_many"]


def chance_of_as_many(found: int, drawn: int, of_kind: int, total: int) -> float:
    """The chance that so many or more of ``of_kind`` in ``total`` are among ``drawn`` of these.

    The upper tail of the hypergeometric distribution (Fisher 1922).
    """

    def ways(n: int, k: int) -> float:
        return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)

    whole, chance = ways(total, of_kind), 0.0
    for k in range(max(found, drawn + of_kind - total), min(drawn, of_kind) + 1):
        more = math.exp(ways(drawn, k) + ways(total - drawn, of_kind - k) - whole)
        chance += more
        # Beyond the most likely number each is less likely than the one before.
        if k * total > drawn * of_kind and more <= 1e-9 * chance:
            break
    return chance
