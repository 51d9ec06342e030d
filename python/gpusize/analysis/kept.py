"""What is kept of a level while it is looked at: the columns that figures need, read once, and figures worked out once.

The rows of a level lie in its files; a report asks for dozens of figures of them. The first one reads the columns, the
others find them. All levels together keep at most ``MOST_BYTES``: the one that was used longest ago goes first, and is
read again when it is asked for.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    import polars as pl

__all__ = ["COLUMNS", "LARGEST", "MOST_BYTES", "Kept", "held"]

T = TypeVar("T")

_held: OrderedDict[weakref.ref[Kept], int] = OrderedDict()
"""Who keeps rows, and how many bytes of them; the one that was used last at the end."""

COLUMNS: Final = (
    *("visit", "stream", "seq", "attempt", "row", "turn", "target", "model", "worker", "conn"),
    *("due_ns", "fired_ns", "sent_ns", "first_token_ns", "last_token_ns", "end_ns"),
    *("events", "tokens_in", "tokens_cached", "tokens_out", "status", "outcome"),
)
"""What the figures of every report are made from; what else an SLO names is read when it is asked for."""

MOST_BYTES: Final = 1 << 29
"""So much is kept of all levels together: five million rows."""

LARGEST: Final = 1 << 21
"""A level with more rows is never kept, but read from its files in batches for each figure."""


class Kept:
    """What is kept of one visit; a level that is made from another one begins anew."""

    __slots__ = ("__weakref__", "_figures", "_frame")

    def __init__(self) -> None:
        self._frame: pl.DataFrame | None = None
        self._figures: dict[Hashable, Any] = {}

    def rows(self, files: pl.LazyFrame, more: Sequence[str] = ()) -> pl.LazyFrame:
        """The columns ``COLUMNS`` and ``more`` of the files, in memory; read if they are not there yet."""
        frame = self._frame
        if frame is None:
            frame = files.select(list(dict.fromkeys((*COLUMNS, *more)))).collect(engine="streaming")
        elif missing := [name for name in more if name not in frame.columns]:
            frame = frame.hstack(files.select(missing).collect(engine="streaming"))
        self._keep(frame)
        return frame.lazy()

    def once(self, name: Hashable, make: Callable[[], T]) -> T:
        """A figure by its name; worked out the first time. It must not be changed by who gets it."""
        if name not in self._figures:
            self._figures[name] = make()
        found: T = self._figures[name]
        return found

    def drop(self) -> None:
        """Let go of the rows; figures stay."""
        self._frame = None

    def _keep(self, frame: pl.DataFrame) -> None:
        """Mark the rows as used, and let go of others where all of them together are too many."""
        if self._frame is not frame:
            self._frame = frame
            _held[weakref.ref(self, lambda gone: _held.pop(gone, None))] = int(frame.estimated_size())
        _held.move_to_end(weakref.ref(self))
        while len(_held) > 1 and sum(_held.values()) > MOST_BYTES:
            oldest, _ = _held.popitem(last=False)
            if (other := oldest()) is not None:
                other.drop()


def held() -> dict[int, int]:
    """Bytes of rows that are kept, by who keeps them."""
    return {id(owner): size for each, size in _held.items() if (owner := each()) is not None}
