"""The load on a cluster of replicas, and the one on a single replica that resembles what it would get of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Asked", "Sent", "alike"]

MANY: Final = 4
"""From so many replicas on, arrivals that are dealt in turn are even; with fewer, the source's own gaps still show."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The load on the whole cluster.

    Attributes:
        users: users of a closed loop; None for an open one.
        rate: requests per second of an open loop; None for a closed one.
        process: ``poisson`` or ``constant``.
        think_s: mean pause.
        think: ``none``, ``constant`` or ``exponential``.
        router: ``least_loaded``, ``round_robin`` or ``random``.
    """

    users: float | None = None
    rate: float | None = None
    process: str = "poisson"
    think_s: float = 0.0
    think: str = "none"
    router: str = "least_loaded"

    @property
    def even(self) -> bool:
        """Whether replicas keep within one request of each other, all the time."""
        return self.users is not None and self.think == "none" and self.router == "least_loaded"

    @property
    def load(self) -> float:
        """Users, or requests per second."""
        return self.users if self.users is not None else (self.rate or 0.0)

    def of(self, load: float) -> Asked:
        """The same at another load."""
        return replace(self, users=load) if self.users is not None else replace(self, rate=load)

    def quickened(self, factor: float) -> Asked:
        """The same in a time that runs so many times as fast: what replicas see that are slower by it."""
        rate = None if self.rate is None else self.rate * factor
        return replace(self, rate=rate, think_s=self.think_s / factor)


@dataclass(frozen=True, slots=True, eq=False)
class Sent:
    """One visit of one replica, to be repeated by a model.

    Attributes:
        loop: its load.
        requests: that count.
        warmup: requests before them; None for as many as a long run has.
        due_s: when all were due, in an open loop; None where they are to be drawn.
        prompt_tokens: of all, where they are known.
        output_tokens: likewise.
    """

    loop: Asked
    requests: int
    warmup: int | None = None
    due_s: NDArray[np.float64] | None = None
    prompt_tokens: NDArray[np.uint32] | None = None
    output_tokens: NDArray[np.uint32] | None = None

    def heavier(self, step: float) -> Sent:
        """The same at exp(step) times the load; users are no longer whole."""
        due_s = None if self.due_s is None else self.due_s * math.exp(-step)
        return replace(self, loop=self.loop.of(self.loop.load * math.exp(step)), due_s=due_s)

    def due_ns(self, seed: int) -> NDArray[np.int64] | None:
        """Due times of an open loop, shape (warmup + requests,); None for a closed one, whose answers decide."""
        import numpy as np

        if self.loop.users is not None:
            return None
        due_s = self.due_s
        if due_s is None:
            gaps = np.ones((self.warmup or 0) + self.requests)
            if self.loop.process == "poisson":
                gaps = np.random.default_rng(seed).exponential(size=gaps.size)
            due_s = np.cumsum(gaps) / (self.loop.rate or 1.0)
        found: NDArray[np.int64] = np.round(1e9 * (due_s - due_s[0])).astype(np.int64)
        return found


def alike(asked: Asked, replicas: int, rate: float) -> Asked | None:
    """A load on one replica that varies as that on one of several does.

    A router that deals in turn, or looks for the least loaded, evens arrivals out; one that draws makes them memoryless
    (a thinned process: Daley and Vere-Jones, An Introduction to the Theory of Point Processes, 2003, section 11.3).

    Args:
        asked: the load on all.
        replicas: so many.
        rate: requests per second of one of them.

    Returns:
        None where a closed loop without pauses is it.
    """
    if asked.even:
        return None
    if replicas == 1 and (asked.users is None or asked.think != "none"):
        return asked
    if replicas == 1:
        return None
    dealt = asked.router != "random"
    steady = asked.users is None and asked.process == "constant"
    even = dealt and (steady or replicas >= MANY)
    return Asked(rate=rate, process="constant" if even else "poisson", router=asked.router)
