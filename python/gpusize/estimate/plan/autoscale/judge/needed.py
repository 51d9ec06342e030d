"""Replicas that the offered load needs at each moment, by what was measured on replicas like these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpusize.base.errors import UsageError
from gpusize.estimate.question import Question, gpus_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from gpusize.analysis.level import LevelData
    from gpusize.estimate.plan.over_time.over_time import Progress

__all__ = ["Needed", "needed_replicas"]


@dataclass(frozen=True, eq=False)
class Needed:
    """Replicas that are needed.

    Attributes:
        edges_s: of the windows whose rates were looked at; shape (n + 1,).
        replicas: that each window needs, none where nothing comes; shape (n,).
        carried: requests per second that 1, 2, ... replicas carry within the SLOs, leaning to the safe side.
        assumptions: what must hold for them to hold.
        warnings: what weakens them.
    """

    edges_s: NDArray[np.float64]
    replicas: NDArray[np.int64]
    carried: NDArray[np.float64] | None = None
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def at_rate(self, rate_per_s: float) -> int | None:
        """The fewest replicas for a rate; None where nobody knows."""
        import numpy as np

        if self.carried is None or rate_per_s > self.carried[-1]:
            return None
        return int(np.searchsorted(self.carried, rate_per_s, "left")) + 1

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "edges_s": self.edges_s.tolist(),
            "replicas": self.replicas.tolist(),
            "assumptions": list(self.assumptions),
            "warnings": list(self.warnings),
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Needed:
        """What ``to_json`` gave, without the rates."""
        import numpy as np

        return cls(np.array(told["edges_s"], float), np.array(told["replicas"], np.int64))


def needed_replicas(
    measured: Iterable[LevelData],
    question: Question,
    due_s: NDArray[np.float64],
    duration_s: float,
    window_s: float,
    *,
    allow: Collection[str] = (),
    progress: Progress | None = None,
) -> Needed | str:
    """Fit a replica to what was measured, and say how many of them each window of a load needs.

    Args:
        measured: levels of runs on a known number of replicas, as ``over_time`` takes them.
        question: the SLOs and the GPUs of a replica.
        due_s: when requests were due, seconds after the start, ascending.
        duration_s: until when.
        window_s: length of the windows.
        allow: what may differ between the runs that were measured.
        progress: told in words what is done next.

    Returns:
        Them, or the reason why there are none.

    Raises:
        UsageError: SLOs that cannot be sized for, runs that cannot be compared, replicas of other sizes.
    """
    from dataclasses import replace

    import numpy as np

    from gpusize.estimate.plan.over_time.demand import Demand
    from gpusize.estimate.plan.over_time.over_time import planner
    from gpusize.estimate.plan.over_time.policies import ScalingRules
    from gpusize.estimate.plan.over_time.types import OverTime

    due_ns = np.rint(due_s * 1e9).astype(np.int64)
    demand = Demand("the run", due_ns[due_ns >= 0], duration_s)
    gpus = question.gpus_per_replica
    rules = ScalingRules(window_s=window_s)
    made = planner(measured, replace(question, gpus_per_replica=1), demand, rules, allow=allow, progress=progress)
    if isinstance(made, OverTime):
        return made.reason or "nothing is known of it"
    if made.replica_gpus != gpus:
        what = f"{gpus_text(made.replica_gpus)} were measured as one replica, and the replicas here have {gpus}"
        raise UsageError(what, "needed", "give runs on one replica like these, or the right --gpus-per-replica")
    found = made.needed()
    if isinstance(found, OverTime):
        return found.reason or "nothing is known of it"
    return Needed(found.edges_ns / 1e9, found.replicas, found.carried, found.assumptions, found.warnings)
