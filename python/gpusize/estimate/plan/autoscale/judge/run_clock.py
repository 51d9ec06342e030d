"""The clock of a run's records, and the time of day."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpusize.base.errors import StoreError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["RunClock"]


@dataclass(frozen=True, eq=False)
class RunClock:
    """Pairs of the records' clock and the wall clock of the machine that sent the load.

    Attributes:
        zero_ns: the run's start on the records' clock.
        mono_ns: ascending; shape (n,), at least one.
        wall_ns: Unix ns at the same moments; shape (n,).
        uncertainty_s: of a pair, the largest.
    """

    zero_ns: int
    mono_ns: NDArray[np.int64]
    wall_ns: NDArray[np.int64]
    uncertainty_s: float

    @classmethod
    def of(cls, run: Path, zero_ns: int) -> RunClock:
        """The clock of a run folder.

        Raises:
            StoreError: the run does not say what time of day its records are of.
        """
        import numpy as np

        from gpusize.engine.clock_log import ClockLog

        file = run / "clocks.parquet"
        pairs = np.array(ClockLog.resumed(file).pairs, np.int64).reshape(-1, 3)
        if not len(pairs):
            what = "the run does not say at what time of day it was: series cannot be laid beside it"
            raise StoreError(what, str(file), "measure it anew, or restore clocks.parquet from a copy")
        order = np.argsort(pairs[:, 0], kind="stable")
        mono, wall, width = pairs[order].T
        return cls(zero_ns, mono, wall, float(width.max()) / 1e9)

    def wall_at(self, at_s: float) -> int:
        """The time of day, in Unix ns, so many seconds after the run's start."""
        import numpy as np

        mono = self.zero_ns + round(at_s * 1e9) - int(self.mono_ns[0])
        ahead = (self.wall_ns - self.wall_ns[0]) - (self.mono_ns - self.mono_ns[0])
        correction = np.interp(mono, (self.mono_ns - self.mono_ns[0]).astype(float), ahead)
        return int(self.wall_ns[0]) + mono + round(float(correction))

    def at_s(self, wall_ns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Times of day as seconds after the run's start; between two pairs along a straight line."""
        import numpy as np

        # Unix ns do not fit into a float: all is taken from the first pair on.
        ahead = (self.wall_ns - self.wall_ns[0]) - (self.mono_ns - self.mono_ns[0])
        since = (wall_ns - self.wall_ns[0]).astype(float)
        correction = np.interp(since, np.maximum.accumulate(self.wall_ns - self.wall_ns[0]).astype(float), ahead)
        found: NDArray[np.float64] = (since - correction + float(self.mono_ns[0] - self.zero_ns)) / 1e9
        return found
