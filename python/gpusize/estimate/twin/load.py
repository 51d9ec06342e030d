"""The load on a cluster of replicas."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from gpusize.estimate.question import Question
    from gpusize.estimate.twin.visit_data import Observed

__all__ = ["ClusterLoad", "Situation"]

Situation = Literal["even", "varying", "in turn"]


@dataclass(frozen=True, slots=True)
class ClusterLoad:
    """The load on the whole cluster.

    Attributes:
        users: users of a closed loop; None for an open one.
        rate: requests per second of an open loop; None for a closed one.
        process: ``poisson`` or ``constant``.
        think_s: mean pause.
        think: ``none``, ``constant`` or ``exponential``.
        slowness: of the replicas, in whose time it is; see ``quickened``.
        router: ``least_loaded``, ``round_robin``, ``random`` or ``shared``, as in ``Question``.
    """

    users: float | None = None
    rate: float | None = None
    process: str = "poisson"
    think_s: float = 0.0
    think: str = "none"
    router: str = "least_loaded"
    slowness: float = 1.0

    @classmethod
    def asked_by(cls, question: Question) -> ClusterLoad:
        """The load that a question is about; token rates and reserves are not part of it."""
        think = {"none": "none", "fixed": "constant", "exponential": "exponential"}[question.think]
        users = question.users if question.rate is None else None
        return cls(users, question.rate, question.process, question.think_s, think, question.router)

    @classmethod
    def of_visit(cls, visit: Observed, router: str = "least_loaded") -> ClusterLoad:
        """The load that a visit was of: its users and their pauses."""
        return cls(visit.users, think_s=visit.think_s, think=visit.think, router=router)

    @property
    def even(self) -> bool:
        """Whether replicas keep within one request of each other, all the time."""
        return self.users is not None and self.think == "none" and self.router == "least_loaded"

    @property
    def situation(self) -> Situation:
        """What the load of a replica does: it is ``even``, or replicas get requests ``in turn``, or it is ``varying``.

        Requests in turn go to a full replica as to an empty one, so the error of a cost adds up there.
        """
        if self.even:
            return "even"
        return "in turn" if self.router == "round_robin" else "varying"

    @property
    def load(self) -> float:
        """Users, or requests per second."""
        return self.users if self.users is not None else (self.rate or 0.0)

    def of(self, load: float) -> ClusterLoad:
        """The same at another load."""
        return replace(self, users=load) if self.users is not None else replace(self, rate=load)

    def quickened(self, factor: float) -> ClusterLoad:
        """The same in a time that runs so many times as fast: what replicas see that are slower by it."""
        rate = None if self.rate is None else self.rate * factor
        return replace(self, rate=rate, think_s=self.think_s / factor, slowness=self.slowness * factor)
