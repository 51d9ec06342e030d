"""What objects say becomes rows of ``stamps``: each occurrence once, with its workload, written part by part."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpusize._core import WatchBook
from gpusize.cluster.clock import CLIENT
from gpusize.cluster.folder import append_frame, scan_table
from gpusize.cluster.tables import STAMPS, stamps_schema
from gpusize.cluster.watch.belonging import Belonging
from gpusize.cluster.watch.times import SECOND_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    import polars as pl

    from gpusize._core import ObjectList, RecordBatches

__all__ = ["StampBook", "Told"]

_HOLD_S: Final = 5.0
"""How long a row waits for the object that says which workload it belongs to, and an Event for that it is about."""
_LOADED: Final = 65_536


class Told(NamedTuple):
    """What some lines of a watch told.

    Attributes:
        taken: how many.
        version: of the last of them.
        initial: whether the next one is still one of those that a watch list begins with.
        ended: what the line after them was, where it was none to go on from: an error's code, reason and message, or
            what is wrong with it.
    """

    taken: int
    version: str | None
    initial: bool
    ended: tuple[int, str, str] | str | None


class StampBook:
    """What has been stamped, and what is still to be written.

    Args:
        folder: of the test; what its ``stamps`` hold is not stamped again.
        own: kinds that are submitted (`Belonging`).
        heard: told each new moment: kind, uid, name, moment.
    """

    def __init__(
        self, folder: Path, own: Collection[str] = (), heard: Callable[[str, str, str, str], None] | None = None
    ) -> None:
        self.belonging = Belonging(own)
        self._folder = folder
        self._heard = heard
        self._book = WatchBook(news=heard is not None)
        self._held: list[tuple[float, pl.DataFrame]] = []
        self._writing = asyncio.Lock()
        self._load()

    def take_lines(self, kind: str, lines: bytes, received_ns: int, *, initial: bool, late: bool) -> Told:
        """Stamp what the lines of a watch say, until one that ends it.

        Args:
            kind: what is watched.
            lines: whole ones.
            received_ns: when they were read, by our clock.
            initial: whether they are those that a watch list begins with.
            late: whether they come later than they might have.
        """
        told = Told(*self._book.lines(kind, lines, received_ns, initial=initial, late=late))
        self._hear()
        return told

    def objects(self, kind: str) -> int:
        """How many objects of a kind there are, as far as told."""
        return self._book.objects(kind)

    def differs(self, listing: ObjectList) -> bool:
        """Whether a list has anything that was not told, or lacks anything that was."""
        return self._book.differs(listing)

    def compare(self, listing: ObjectList, at_ns: int) -> tuple[list[str], int, list[str]]:
        """Stamp what a list has and nobody had told; what it lacks is gone.

        Args:
            listing: what is there.
            at_ns: when it was, by our clock.

        Returns:
            Names of objects that nobody had told, how many have another version, names of those that are gone.
        """
        found = self._book.compare(listing, at_ns)
        self._hear()
        return found

    async def flush(self, *, last: bool = False) -> None:
        """Write what is ready, in another thread; what waits for its workload comes later.

        Args:
            last: write that, too.

        Raises:
            StoreError: it cannot be written.
        """
        async with self._writing:
            self._book.forget_events(CLIENT.now_ns() - round(_HOLD_S * SECOND_NS))
            if len(self._book) or self._held:
                rows = self._book.rows()
                await asyncio.to_thread(self._write, rows, last=last)

    def frame(self) -> pl.DataFrame:
        """What `flush` would write with ``last``, as a frame; it is not written any more."""
        return self._ready(self._book.rows(), last=True)

    def _hear(self) -> None:
        for kind, uid, namespace, name, labels, owner, workload, claims in self._book.met():
            self.belonging.see(kind, uid, namespace, name, labels, owner, workload)
            for claim in claims:
                self.belonging.uses_claim(uid, namespace or "", claim)
        if self._heard is not None:
            for news in self._book.news():
                self._heard(*news)

    def _write(self, rows: RecordBatches, *, last: bool) -> None:
        ready = self._ready(rows, last=last)
        if not ready.is_empty():
            append_frame(self._folder, STAMPS, ready)

    def _ready(self, rows: RecordBatches, *, last: bool) -> pl.DataFrame:
        """Rows that can be written: those whose workload is known, and those that have waited for it."""
        import polars as pl

        now = time.monotonic()
        waiting, self._held = [*self._held, (now, pl.DataFrame(rows))], []
        ready = []
        for since, frame in waiting:
            named = self._named(frame)
            if not last and now - since < _HOLD_S:
                known = pl.col("workload").is_not_null()
                unknown = named.filter(~known).drop("workload")
                if not unknown.is_empty():
                    self._held.append((since, unknown))
                    named = named.filter(known)
            ready.append(named)
        return pl.concat(ready)

    def _named(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows with their workload, null where it is not known, or not yet."""
        import polars as pl

        uids = frame["uid"].unique()
        names: dict[str, Any] = {"uid": uids, "workload": [self.belonging.workload(uid) for uid in uids]}
        known = pl.DataFrame(names, schema_overrides={"workload": pl.String})
        return frame.join(known, on="uid", how="left", maintain_order="left").select(*stamps_schema())

    def _load(self) -> None:
        """What an earlier command has stamped."""
        rows = scan_table(self._folder, STAMPS).select("uid", "moment", "part", "source", "at_ns").collect()
        for part in rows.iter_slices(_LOADED):
            self._book.remember(part.rows())
