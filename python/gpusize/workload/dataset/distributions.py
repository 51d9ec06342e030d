"""Distributions of lengths as people write them: ``512``, ``normal(512,64)``, ``lognormal(128,0.5)`` and so on."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Final

from gpusize.base.errors import DatasetError, UsageError
from gpusize.base.text import read_text, shown

__all__ = ["Lengths", "parse_lengths"]

_CALL: Final = re.compile(r"([a-z]+)\(([^()]*)\)")
_MOST: Final = 100_000_000
_FORMS: Final = (
    "write 512, normal(mean,sd), normal(mean,sd,low,high), lognormal(median,sigma), uniform(low,high) "
    "or empirical(FILE)"
)


@dataclass(frozen=True)
class Lengths:
    """A distribution of whole numbers from 1.

    Args:
        text: as it was written.
        of: the length for a uniform number in (0, 1).
        key: what else decides about the draws, such as the contents of a file.
    """

    text: str
    of: Callable[[float], float]
    key: str = ""

    def draw(self, source: random.Random) -> int:
        """One length: rounded, at least 1."""
        # 0 would be minus infinity in a normal distribution.
        value = self.of(min(max(source.random(), 1e-12), 1 - 1e-12))
        return min(max(round(value), 1), _MOST)


def parse_lengths(text: str, where: str) -> Lengths:
    """The distribution that a text describes.

    - ``512`` or ``fixed(512)``: always so many.
    - ``normal(mean,sd)``; ``normal(mean,sd,low,high)`` with what is beyond the bounds at them.
    - ``lognormal(median,sigma)``: the logarithm is normal around ln(median) with standard deviation sigma; its mean
      is median * exp(sigma**2 / 2).
    - ``uniform(low,high)``: whole numbers, both ends included.
    - ``empirical(FILE)``: one of the lengths in a file, one on a line; ``#`` begins a comment.

    Args:
        text: the distribution.
        where: what the text is, for error texts.

    Raises:
        UsageError: not such a distribution, or invalid parameters.
        DatasetError: the file cannot be read, or holds no lengths.
    """
    plain = text.strip()
    match = _CALL.fullmatch(plain)
    if match and match[1] == "empirical":
        return _empirical(plain, match[2].strip())
    kind, given = (match[1], match[2].split(",")) if match else ("fixed", [plain])
    try:
        numbers = [float(item) for item in given]
    except ValueError:
        raise UsageError(f'"{shown(plain)}" is not a distribution of lengths', where, _FORMS) from None
    expected = {"fixed": (1,), "normal": (2, 4), "lognormal": (2,), "uniform": (2,)}.get(kind)
    if expected is None or len(numbers) not in expected or not all(math.isfinite(number) for number in numbers):
        raise UsageError(f'"{shown(plain)}" is not a distribution of lengths', where, _FORMS)
    first, second = numbers[0], numbers[min(len(numbers), 2) - 1]
    if not 1 <= first <= _MOST or second < 0 or (kind == "uniform" and not first <= second <= _MOST):
        raise UsageError(f'"{shown(plain)}" is out of range', where, "lengths are 1 or more, low before high")
    inverse = _inverse(kind, first, second)
    if len(numbers) < 4:
        return Lengths(plain, inverse)
    low, high = numbers[2:]
    if not 1 <= low <= high <= _MOST:
        raise UsageError(f'"{shown(plain)}" is out of range', where, "lengths are 1 or more, low before high")
    return Lengths(plain, lambda u: min(max(inverse(u), low), high))


def _inverse(kind: str, first: float, second: float) -> Callable[[float], float]:
    """The inverse of the distribution function, so that the draws depend on Python's generator alone."""
    if kind == "fixed" or (second == 0 and kind != "uniform"):
        return lambda _: first
    normal = NormalDist()
    if kind == "normal":
        return lambda u: first + second * normal.inv_cdf(u)
    if kind == "lognormal":
        return lambda u: math.exp(min(math.log(first) + second * normal.inv_cdf(u), math.log(_MOST)))
    low, count = math.ceil(first), math.floor(second) - math.ceil(first) + 1
    return lambda u: low + math.floor(u * count)


def _empirical(text: str, path: str) -> Lengths:
    values: list[int] = []
    for number, line in enumerate(read_text(Path(path), error=DatasetError).splitlines(), start=1):
        item = line.partition("#")[0].strip()
        if not item:
            continue
        if not item.isascii() or not item.isdecimal() or not 1 <= int(item[:12]) <= _MOST:
            raise DatasetError(f'"{shown(item)}" is not a length', f"{path}:{number}", "write one whole number a line")
        values.append(int(item))
    if not values:
        raise DatasetError("there are no lengths in the file", path, "write one whole number a line")
    known = values
    return Lengths(text, lambda u: known[int(u * len(known))], ",".join(map(str, values)))
