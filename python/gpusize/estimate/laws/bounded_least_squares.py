"""Least squares with a few non-negative unknowns and perhaps one equation between them, solved exactly.

For a handful of points and at most three unknowns plain floats are several times faster than arrays.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from operator import mul
from typing import Final

__all__ = ["Equation", "least_squares"]

Equation = tuple[Sequence[float], float]
"""Coefficients and value: coefficients . unknowns = value."""

SINGULAR: Final = 1e-11
"""Pivot of a matrix with diagonal 1 below which it has no single solution."""
ROUNDING: Final = 1e-12


def least_squares(
    rows: Sequence[Sequence[float]], aim: Sequence[float], equation: Equation | None = None
) -> list[float] | None:
    """Minimise sum (rows . x - aim)^2 over x >= 0, where the equation holds; None where nothing fulfils it.

    The unconstrained minimum is the answer where it has no negative part; else the best of those with some unknowns
    held at 0. Of sets of unknowns that do equally well, the one with the fewest and then the first.
    """
    size = len(rows[0])
    columns = list(zip(*rows, strict=True))
    gram = [[0.0] * size for _ in columns]
    for i, column in enumerate(columns):
        for j in range(i, size):
            gram[i][j] = gram[j][i] = sum(map(mul, column, columns[j]))
    right = [sum(map(mul, column, aim)) for column in columns]
    whole = _on(range(size), gram, right, equation)
    if whole is not None and min(whole) >= 0:
        return whole
    best, least = None, math.inf
    for count in range(1, size + 1):
        for chosen in itertools.combinations(range(size), count):
            found = _on(chosen, gram, right, equation)
            if found is None or min(found) < -ROUNDING * max(map(abs, found)):
                continue
            x = [max(0.0, each) for each in found]
            loss = sum([(sum(map(mul, r, x)) - z) ** 2 for r, z in zip(rows, aim, strict=True)])
            if loss < least * (1 - ROUNDING) and any(x):
                best, least = x, loss
    return best


def _on(
    chosen: Sequence[int], gram: Sequence[Sequence[float]], right: Sequence[float], equation: Equation | None
) -> list[float] | None:
    """The minimum with only the chosen unknowns, perhaps by a Lagrange multiplier; None without a single solution."""
    largest = max(gram[i][i] for i in chosen) or 1.0
    # An unknown that no point tells of may still be fixed by the equation.
    scale = [1 / math.sqrt(gram[i][i] or largest) for i in chosen]
    matrix = [
        [gram[i][j] * a * b for j, b in zip(chosen, scale, strict=True)] for i, a in zip(chosen, scale, strict=True)
    ]
    values = [right[i] * a for i, a in zip(chosen, scale, strict=True)]
    if equation is not None:
        row = [equation[0][i] * a for i, a in zip(chosen, scale, strict=True)]
        norm = math.sqrt(sum(each * each for each in row))
        if norm > 0:
            for line, each in zip(matrix, row, strict=True):
                line.append(each / norm)
            matrix.append([*(each / norm for each in row), 0.0])
            values.append(equation[1] / norm)
        elif equation[1] != 0:
            return None
    solved = _solved(matrix, values)
    if solved is None:
        return None
    full = [0.0] * len(right)
    for i, a, each in zip(chosen, scale, solved, strict=False):
        full[i] = each * a
    return full


def _solved(matrix: list[list[float]], right: list[float]) -> list[float] | None:
    """Gaussian elimination with partial pivoting, in place; None where a pivot vanishes."""
    n = len(right)
    for k in range(n):
        sizes = [abs(row[k]) for row in matrix[k:]]
        largest = max(sizes)
        if largest < SINGULAR:
            return None
        pivot = k + sizes.index(largest)
        matrix[k], matrix[pivot] = matrix[pivot], matrix[k]
        right[k], right[pivot] = right[pivot], right[k]
        top = matrix[k]
        for i in range(k + 1, n):
            row = matrix[i]
            factor = row[k] / top[k]
            if factor:
                for j in range(k, n):
                    row[j] -= factor * top[j]
                right[i] -= factor * right[k]
    for k in reversed(range(n)):
        row = matrix[k]
        right[k] = (right[k] - sum(map(mul, row[k + 1 :], right[k + 1 :]))) / row[k]
    return right
