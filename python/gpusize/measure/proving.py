"""Ends a run as soon as its levels, all of one load, have shown whether the SLOs are kept, or the budget is spent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpusize.analysis.read_levels import read_levels
from gpusize.analysis.stop_cause import Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from gpusize.analysis.level import LevelData
    from gpusize.analysis.proof.from_levels import Evidence, Levels
    from gpusize.measure.sweep import Step

__all__ = ["Proving"]

GROWN: Final = 1.5
"""The interval is told each time that there are so many times as many requests."""


class Proving:
    """Looks at the levels of a run after each; for `gpusize.measure.execute.execute`.

    Args:
        levels: judges them.
        most_requests: that may be sent; None for as many as the planned levels have.
        tell: is told the interval now and then.
        began: is told the run's folder, before its first level.
    """

    def __init__(
        self,
        levels: Levels,
        most_requests: int | None = None,
        tell: Callable[[str], None] | None = None,
        began: Callable[[Path], None] | None = None,
    ) -> None:
        self._levels = levels
        self._most_requests = most_requests
        self._tell = tell
        self._began = began
        self._told = 0

    def judge(self, levels: Sequence[LevelData]) -> Evidence:
        """What the levels so far have to say."""
        return self._levels.judge(levels)

    def look(self, path: Path) -> Stop | None:
        """Judge the levels of a run folder; the reason to end as soon as there is one."""
        found = self.judge(read_levels(path))
        if found.ends:
            return Stop("slo", 0, f"{found.judged.verdict}: {found.judged.why}")
        if self._most_requests is not None and found.requests >= self._most_requests:
            return Stop("slo", 0, f"undecided: the budget of {self._most_requests:,} requests is spent")
        if self._tell is not None and found.requests >= GROWN * self._told and found.requests:
            self._told = found.requests
            self._tell(f"{found.judged.requests:,} requests count: {found.judged.why}")
        return None

    def is_over(self, path: Path) -> bool:
        """Whether a run folder needs no further level: it is judged, or can no more be."""
        return self.judge(read_levels(path)).over

    def after(self, path: Path) -> Callable[[Step, Mapping[str, Any]], Stop | None]:
        """What a sweep asks after each level of the run in a folder."""
        if self._began is not None:
            self._began(path)
        return lambda _step, _level: self.look(path)
