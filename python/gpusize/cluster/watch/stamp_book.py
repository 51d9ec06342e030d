"""Words become rows of ``stamps``: each occurrence once, with its workload, written part by part."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from gpusize.cluster.folder import append_frame, scan_table
from gpusize.cluster.tables import CLIENT_CLOCK, SERVER_CLOCK, STAMPS, stamps_schema
from gpusize.cluster.watch.belonging import Belonging
from gpusize.cluster.watch.stamps import claim_words, event_words, pod_words, run_ai_name, workload_words
from gpusize.cluster.watch.times import SECOND_NS, event_name_ns, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    import polars as pl

    from gpusize.cluster.watch.objects import Event, Meta
    from gpusize.cluster.watch.stamps import Word

__all__ = ["StampBook"]

_HOLD_S: Final = 5.0
"""How long a row waits for the object that says which workload it belongs to."""

_WORDS: Final[dict[str, Callable[[Any], list[Word]]]] = {"Pod": pod_words, "PersistentVolumeClaim": claim_words}
Row = tuple[Any, ...]


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
        self._seen: set[int] = set()
        self._watched: set[int] = set()
        self._fresh: list[Row] = []
        self._held: list[tuple[float, Row]] = []
        self._events: dict[str, list[tuple[float, Event, int, bool]]] = {}
        self._known: dict[str, tuple[str, str | None, str]] = {}
        self._writing = asyncio.Lock()
        self._load()

    def take(self, kind: str, item: Any, received_ns: int, *, reported: bool) -> None:
        """Stamp what an object says.

        Args:
            kind: its own.
            item: one of `gpusize.cluster.watch.objects`.
            received_ns: when it came, by our clock.
            reported: whether it came as it happened, and not in a list.
        """
        if kind == "Event":
            self._take_event(item, received_ns, reported=reported)
            return
        meta = item.metadata
        uid = meta.uid
        if uid not in self._known:
            self._meet(kind, item)
        words = _WORDS.get(kind, workload_words)(item)
        seen = self._seen
        for word in words:
            key = hash((uid, word[0], word[1], word[2], word[3]))
            if key not in seen:
                seen.add(key)
                self._stamp(kind, meta.namespace, meta.name, uid, word, received_ns, reported=reported)

    def gone(self, kind: str, meta: Meta, received_ns: int, *, reported: bool) -> None:
        """Stamp that an object is no longer there.

        Args:
            kind: its own.
            meta: its metadata, as far as known.
            received_ns: when that became known, by our clock.
            reported: whether a watch said so, and not a list that lacks it.
        """
        word: Word = ("deleted", None, "", None, None, None, None, True, 0)
        key = hash((meta.uid, "deleted", None, "", None))
        if key not in self._seen:
            self._seen.add(key)
            self._stamp(kind, meta.namespace, meta.name, meta.uid, word, received_ns, reported=reported)

    async def flush(self, *, last: bool = False) -> None:
        """Write what is ready, in another thread; what waits for its workload comes later.

        Args:
            last: write that, too.

        Raises:
            StoreError: it cannot be written.
        """
        async with self._writing:
            rows, workloads = self._ready(last=last)
            if rows:
                await asyncio.to_thread(lambda: append_frame(self._folder, STAMPS, _frame(rows, workloads)))

    def frame(self) -> pl.DataFrame:
        """What `flush` would write with ``last``, as a frame; it is not written any more."""
        return _frame(*self._ready(last=True))

    @property
    def waiting(self) -> int:
        """How many rows are not written yet."""
        return len(self._fresh) + len(self._held)

    def _meet(self, kind: str, item: Any) -> None:
        meta = item.metadata
        self._known[meta.uid] = (kind, meta.namespace, meta.name)
        name = run_ai_name(item) if kind.endswith("Workload") and kind != "Workload" else None
        self.belonging.see(kind, meta, name)
        if kind == "Pod":
            for volume in (item.spec.volumes if item.spec is not None else None) or ():
                if volume.persistentVolumeClaim is not None:
                    self.belonging.uses_claim(meta.uid, meta.namespace or "", volume.persistentVolumeClaim.claimName)
        for _, event, received_ns, reported in self._events.pop(meta.uid, ()):
            self._take_event(event, received_ns, reported=reported)

    def _take_event(self, event: Event, received_ns: int, *, reported: bool) -> None:
        about = event.regarding
        if about is None or not about.uid:
            return
        known = self._known.get(about.uid)
        if known is None:
            # The watch of its object may be behind that of Events.
            if event_words(event):
                self._events.setdefault(about.uid, []).append((time.monotonic(), event, received_ns, reported))
            return
        kind, namespace, name = known
        for word in event_words(event):
            key = hash((about.uid, word[0], word[1], word[2], word[3]))
            if key not in self._seen:
                self._seen.add(key)
                self._stamp(kind, namespace, name, about.uid, word, received_ns, reported=reported)

    def _stamp(
        self, kind: str, namespace: str | None, name: str, uid: str, word: Word, received_ns: int, *, reported: bool
    ) -> None:
        moment, part, token, source, text, reason, message, shows, before_s = word
        if source is not None:
            found = parse_time(text) if text is not None else _named(token)
            if found is not None:
                at_ns = found[0] - before_s * SECOND_NS
                again = hash((uid, moment, part, source, at_ns))
                if again not in self._watched:
                    self._watched.add(again)
                    self._fresh.append(
                        (kind, namespace, name, uid, part, moment, at_ns, found[1], source, SERVER_CLOCK, received_ns,
                         reason, message, reported)
                    )  # fmt: skip
        if shows:
            arrival = hash((uid, moment, part))
            # What an earlier command saw as it happened is no news in a list.
            if reported or arrival not in self._watched:
                self._watched.add(arrival)
                self._fresh.append(
                    (kind, namespace, name, uid, part, moment, received_ns, 1, "watch", CLIENT_CLOCK, received_ns,
                     reason, message, reported)
                )  # fmt: skip
        if self._heard is not None:
            self._heard(kind, uid, name, moment)

    def _ready(self, *, last: bool) -> tuple[list[Row], list[str | None]]:
        """Rows that can be written, and the workload of each."""
        now = time.monotonic()
        rows: list[Row] = []
        workloads: list[str | None] = []
        held, self._held = self._held, []
        fresh, self._fresh = self._fresh, []
        known: dict[str, str | None] = {uid: self.belonging.workload(uid) for uid in {row[3] for row in fresh}}
        if not held and None not in known.values():  # as a rule
            rows, workloads = fresh, [known[row[3]] for row in fresh]
        else:
            for since, row in (*held, *((now, row) for row in fresh)):
                workload = self.belonging.workload(row[3])
                if workload is None and not last and now - since < _HOLD_S:
                    self._held.append((since, row))
                else:
                    rows.append(row)
                    workloads.append(workload)
        for uid in [uid for uid, waiting in self._events.items() if now - waiting[0][0] > _HOLD_S]:
            del self._events[uid]  # of an object that nobody watches
        return rows, workloads

    def _load(self) -> None:
        """What an earlier command has stamped."""
        columns = ("uid", "moment", "part", "source", "at_ns")
        rows = scan_table(self._folder, STAMPS).select(columns).collect()
        for uid, moment, part, source, at_ns in rows.iter_rows():
            if source == "watch":
                self._watched.add(hash((uid, moment, part)))
                if moment == "deleted":
                    self._seen.add(hash((uid, "deleted", None, "", None)))
            else:
                self._watched.add(hash((uid, moment, part, source, at_ns)))


def _named(name: str) -> tuple[int, int] | None:
    """The time in an Event's name, exact to the nanosecond by its sender's clock."""
    found = event_name_ns(name)
    return None if found is None else (found, 1)


def _frame(rows: Sequence[Row], workloads: list[str | None]) -> pl.DataFrame:
    import polars as pl

    schema = stamps_schema()
    _, *others = schema
    columns = {name: [row[place] for row in rows] for place, name in enumerate(others)}
    return pl.DataFrame({"workload": workloads, **columns}, schema=schema)
