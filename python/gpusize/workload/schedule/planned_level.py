"""One level of a run as it is planned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from gpusize.workload.schedule.arrival_arrays import Explicit

__all__ = ["Level"]


class Level(NamedTuple):
    """One level.

    Attributes:
        setting: as ``level.json`` names it.
        plan: the engine's LevelPlan, without ``visit``, ``dir`` and ``keep_bytes``.
        explicit: arrivals that are handed over beside the plan; None where the plan says when they come.
    """

    setting: dict[str, Any]
    plan: dict[str, Any]
    explicit: Explicit | None = None

    def arrays(self) -> dict[str, bytes]:
        """The keyword arguments that go with the plan to ``Session.level``."""
        return {} if self.explicit is None else self.explicit.arrays()
