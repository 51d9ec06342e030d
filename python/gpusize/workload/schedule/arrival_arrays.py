"""Schedules that are handed over arrival by arrival: traces, replays, and streams of which one is a trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Explicit"]


@dataclass(frozen=True)
class Explicit:
    """One entry per arrival, in order of time.

    Args:
        due_ns: nanoseconds after the level's start, ascending.
        rows: rows of the dataset; None: they follow the plan's order.
        targets: numbers of replicas; None: the balance rule decides.
        streams: numbers of streams; None: all are of the first.
    """

    due_ns: NDArray[np.int64]
    rows: NDArray[np.uint32] | None = None
    targets: NDArray[np.uint16] | None = None
    streams: NDArray[np.uint16] | None = None

    def __len__(self) -> int:
        return len(self.due_ns)

    def arrays(self) -> dict[str, bytes]:
        """The keyword arguments of ``Session.level`` and ``_core.schedule`` (docs/reference/engine.md)."""
        found: dict[str, Any] = {"due": self.due_ns.astype("<i8")}
        kinds = {"rows": (self.rows, "<u4"), "targets": (self.targets, "<u2"), "streams": (self.streams, "<u2")}
        found |= {name: values.astype(kind) for name, (values, kind) in kinds.items() if values is not None}
        return {name: values.tobytes() for name, values in found.items()}

    def between(self, start_ns: int, end_ns: int | None) -> Explicit:
        """The arrivals of a part of the time, counted from its beginning."""
        import numpy as np

        low = int(np.searchsorted(self.due_ns, start_ns, "left"))
        high = len(self) if end_ns is None else int(np.searchsorted(self.due_ns, end_ns, "left"))
        cut = self._slice(slice(low, high))
        return Explicit(cut.due_ns - start_ns, cut.rows, cut.targets, cut.streams)

    def first(self, count: int | None) -> Explicit:
        """The first arrivals; None: all of them."""
        return self if count is None or count >= len(self) else self._slice(slice(count))

    def _slice(self, kept: slice) -> Explicit:
        return Explicit(
            self.due_ns[kept],
            None if self.rows is None else self.rows[kept],
            None if self.targets is None else self.targets[kept],
            None if self.streams is None else self.streams[kept],
        )
