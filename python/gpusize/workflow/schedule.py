"""Which row a request sends and when an open loop's requests are due: functions of the seed alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

__all__ = ["RowOrder", "arrivals"]

NS_PER_S: Final = 1_000_000_000


class RowOrder:
    """The row of each request.

    Args:
        rows: how many there are.
        order: ``file``, or ``shuffled``: a new permutation for each round.
        seed: key of the permutations.
    """

    def __init__(self, rows: int, order: str, seed: int) -> None:
        self._rows = rows
        self._shuffled = order == "shuffled"
        self._seed = seed
        self._round = -1
        self._permutation: list[int] = []

    def row(self, seq: int) -> int:
        """The row that request ``seq`` sends; asked for in the order of ``seq``."""
        round_, place = divmod(seq, self._rows)
        if not self._shuffled:
            return place
        if round_ != self._round:
            self._round = round_
            self._permutation = list(range(self._rows))
            random.Random(f"{self._seed}/rows/{round_}").shuffle(self._permutation)
        return self._permutation[place]


def arrivals(rate: float, process: str, seed: int) -> Iterator[int]:
    """Nanoseconds after the level's start at which requests are due, without end.

    Constant gaps put request k at k / rate. Poisson: gaps are exponential with mean 1 / rate, each rounded to whole
    nanoseconds before they are summed.
    """
    if process == "constant":
        k = 0
        while True:
            yield round(k * NS_PER_S / rate)
            k += 1
    draws = random.Random(f"{seed}/arrivals")
    at_ns = 0
    while True:
        at_ns += round(draws.expovariate(rate) * NS_PER_S)
        yield at_ns
