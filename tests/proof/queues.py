"""Requests whose true share within a bound is known in closed form, and which say much of their neighbours."""

from __future__ import annotations

import math
from itertools import accumulate
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from gpusize.analysis.proof.judge import Part

__all__ = ["ar1", "mm1", "part"]


def mm1(load: float, share: float, n: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """M/M/1 with mean service 1 in its steady state: (within, runtimes).

    Runtimes are exponential with mean 1 / (1 - load), so the bound below which ``share`` of them lie is exact.
    """
    rng = np.random.default_rng([seed, 1])
    gaps, service = rng.exponential(1 / load, n), rng.exponential(1.0, n)
    # Lindley: waits are the walk above its running minimum; the first is drawn from the steady state.
    first = 0.0 if rng.random() >= load else float(rng.exponential(1 / (1 - load)))
    waits = np.empty(n)
    waits[0] = first
    walk = np.concatenate([[0.0], np.cumsum(service[:-1] - gaps[1:])]) + first
    waits = walk - np.minimum(np.minimum.accumulate(walk), 0.0)
    runtimes = waits + service
    bound = -math.log(1 - share) / (1 - load)
    return (runtimes <= bound).astype(float), runtimes


def ar1(phi: float, share: float, n: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Normal values of which each is ``phi`` times the one before plus noise: (within, values)."""
    rng = np.random.default_rng([seed, 2])
    noise = rng.normal(0, math.sqrt(1 - phi * phi), n)
    noise[0] = rng.normal()
    values = np.array(list(accumulate(noise, lambda before, now: phi * before + now)))
    return (values <= NormalDist().inv_cdf(share)).astype(float), values


def part(within: NDArray[np.float64], runtimes: NDArray[np.float64]) -> Part:
    """One SLO."""
    return Part(np.atleast_2d(within), runtimes)
