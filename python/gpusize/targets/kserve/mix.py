"""Several models in one run: which request goes to which model, in what shares."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

from gpusize.base.errors import UsageError
from gpusize.base.text import shown

__all__ = ["interleave", "parse_models"]

_MOST_CYCLE: Final = 1_000_000


def parse_models(text: str) -> dict[str, int]:
    """Models and their weights from ``m`` or ``a=3,b=1``.

    Raises:
        UsageError: a weight that is no whole number of 1 or more, or a model named twice.
    """
    if "=" not in text and "," not in text:
        return {text: 1}
    weights: dict[str, int] = {}
    for each in text.split(","):
        name, equals, share = (part.strip() for part in each.rpartition("="))
        if not equals:
            name, share = share, "1"
        if not name or not re.fullmatch(r"[0-9]{1,9}", share) or int(share) < 1:
            raise UsageError(f'"{shown(each)}" is not a model with its weight', "model", "write it as a=3,b=1")
        if name in weights:
            raise UsageError(f'"{shown(name)}" is named twice', "model", "name each model once")
        weights[name] = int(share)
    return weights


def interleave(weights: Sequence[int], lengths: Sequence[int]) -> list[tuple[int, int]]:
    """One cycle of requests: (model, row of that model) by smooth weighted round robin.

    In every stretch each model has its share as evenly as whole requests allow, and after the cycle every row of a
    model has been sent equally often: the cycle is the shortest run of whole rounds for which that holds.

    Args:
        weights: requests of each model per round.
        lengths: rows of each model.

    Raises:
        UsageError: the cycle has more than a million requests.
    """
    total = sum(weights)
    rounds = math.lcm(*(length // math.gcd(weight, length) for weight, length in zip(weights, lengths, strict=True)))
    if rounds * total > _MOST_CYCLE:
        raise UsageError(
            f"one cycle of this mix has {rounds * total} requests", "model", "choose rows or weights that divide better"
        )
    credit = [0] * len(weights)
    sent = [0] * len(weights)
    cycle = []
    for _ in range(rounds * total):
        credit = [have + weight for have, weight in zip(credit, weights, strict=True)]
        model = max(range(len(weights)), key=lambda number: (credit[number], -number))
        credit[model] -= total
        cycle.append((model, sent[model] % lengths[model]))
        sent[model] += 1
    return cycle
