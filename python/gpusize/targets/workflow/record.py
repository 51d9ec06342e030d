"""What is kept of one request in Python, and the thread that writes it."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Self

from gpusize.base.errors import UsageError
from gpusize.base.files import storing
from gpusize.base.text import said, well_formed
from gpusize.records.schema import OUTCOMES, SCHEMA_KEY, SERVER_TIMES, record_dtypes, version_of
from gpusize.targets.workflow.mark_calls import Call, RequestCalls, outcome_of, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

    import polars as pl

__all__ = ["ErrorLog", "PartWriter", "RecordedRequest", "outcome_of"]

PART_ROWS: Final = 1 << 18
PART_S: Final = 5.0
PARTS_OF_AGE: Final = 120
OLDEST_PART_S: Final = 60.0
"""A day must not leave tens of thousands of files: a part may become this share of its level's age, but no older."""
MAX_ERROR_CHARS: Final = 500
MAX_ERRORS: Final = 1000
"""Distinct failures of a level that are kept; messages beyond them are not."""

_REPORTED: Final = frozenset(
    (
        "tokens_in",
        "tokens_out",
        "tokens_cached",
        "tokens_reasoning",
        "bytes_in",
        "bytes_out",
        "status",
        "session",
        "turn",
    )
)
_BITS: Final = {"bytes_in": 64, "bytes_out": 64, "session": 64, "status": 16, "turn": 16}
"""Widths of the columns of what is reported; of the others 32."""
_ZEROS: Final = (
    "stream",
    "attempt",
    "target",
    "model",
    "host",
    "conn",
    "events",
    "reasoning_events",
    "bytes_in",
    "bytes_out",
)


class ErrorLog:
    """The distinct failures of a level, numbered in the order of their first appearance. Not for several threads."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, int | None, str], int] = {}
        self._counts: Counter[int] = Counter()

    def note(self, outcome: str, status: int | None, message: str) -> int:
        """Count a failure; returns its number."""
        key = (outcome, status, message)
        if key not in self._ids and len(self._ids) >= MAX_ERRORS:
            key = (outcome, None, "one more of many different messages, which are not kept")
        number = self._ids.setdefault(key, len(self._ids))
        self._counts[number] += 1
        return number

    def errors(self) -> list[dict[str, Any]]:
        """As ``level.json`` names them."""
        return [
            {"id": number, "outcome": outcome, "status": status, "message": message, "count": self._counts[number]}
            for (outcome, status, message), number in self._ids.items()
        ]


class RecordedRequest:
    """One request; a context manager made by ``RecordedLevel.request``.

    An exception inside the block is the request's outcome, and goes on to the caller. Calls that are marked inside it
    with ``gpusize.call`` are kept with it.

    Attributes:
        calls: the calls inside the request.
    """

    def __init__(
        self,
        row: int,
        due_ns: int | None,
        clock: Callable[[], int],
        done: Callable[[RecordedRequest], None],
        llm_base_url: str | None = None,
    ) -> None:
        self._clock = clock
        self._done = done
        self._ended = False
        self._lock = threading.Lock()
        self._gaps_ns: list[int] = []
        self.calls = RequestCalls(clock, llm_base_url)
        self._serving = serving(self.calls)
        now_ns = clock()
        self.values: dict[str, Any] = dict.fromkeys(_ZEROS, 0)
        self.values.update(row=row, due_ns=now_ns if due_ns is None else due_ns, fired_ns=now_ns)
        self.outcome = "ok"
        self.message = ""

    def __enter__(self) -> Self:
        self._serving.__enter__()
        self.begin()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: TracebackType | None) -> None:
        self._serving.__exit__()
        self.end(error)

    def begin(self) -> None:
        """The request is sent, now."""
        self.values["sent_ns"] = self._clock()

    def end(self, error: BaseException | None = None) -> None:
        """The request is over, now; a second end changes nothing."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
            self.values["end_ns"] = self._clock()
            if error is not None and self.outcome == "ok":
                self._fail(outcome_of(error), said(error))
            self.values.update(_digest(self._gaps_ns))
        self._done(self)

    def call(self, kind: str = "llm", *, name: str = "") -> Call:
        """As ``gpusize.call``, for threads that do not inherit the context."""
        return Call(kind, name, self.calls)

    def first_byte(self) -> None:
        """The first byte of the answer is here; later calls change nothing."""
        self.values.setdefault("first_byte_ns", self._clock())

    def first_token(self) -> None:
        """The first piece of content is here: the same as the first ``token``; later calls change nothing."""
        if "first_token_ns" not in self.values:
            self.token()

    def token(self) -> None:
        """A piece of content is here."""
        now_ns = self._clock()
        self.values.setdefault("first_byte_ns", now_ns)
        self.values.setdefault("first_token_ns", now_ns)
        self.values.setdefault("first_output_ns", now_ns)
        if "last_token_ns" in self.values:
            self._gaps_ns.append(now_ns - self.values["last_token_ns"])
        self.values["last_token_ns"] = now_ns
        self.values["events"] += 1

    def report(self, **facts: int) -> None:
        """Set what the server told.

        Known are ``tokens_in``, ``tokens_out``, ``tokens_cached``, ``tokens_reasoning``, ``status``,
        ``bytes_in``, ``bytes_out``, ``session``, ``turn``.

        Raises:
            UsageError: a name that is not one of these, or no whole number that its column holds.
        """
        for name, value in facts.items():
            if name not in _REPORTED:
                raise UsageError(f"{name!r} cannot be reported", None, f"known are {', '.join(sorted(_REPORTED))}")
            if not _is_count(value, _BITS.get(name, 32)):
                raise UsageError(
                    f"this {type(value).__name__} is not a count", name, "give a whole number of 0 or more"
                )
            self.values[name] = value

    def fail(self, outcome: str, message: str = "") -> None:
        """Say how the request failed, when it does so without an exception.

        Raises:
            UsageError: ``outcome`` is none of the names in docs/reference/records.md.
        """
        if outcome not in OUTCOMES:
            raise UsageError(f"{outcome!r} is not an outcome", None, f"known are {', '.join(OUTCOMES)}")
        with self._lock:
            if not self._ended:
                self._fail(outcome, message)

    def _fail(self, outcome: str, message: str) -> None:
        self.outcome = outcome
        self.message = well_formed(message)[:MAX_ERROR_CHARS]

    @property
    def gaps_ns(self) -> list[int]:
        """Gaps between pieces of content."""
        return self._gaps_ns


def _is_count(value: object, bits: int) -> bool:
    """Whether a workflow's word for a count is one that a column of so many bits holds."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << bits


def _digest(gaps_ns: list[int]) -> dict[str, int]:
    """The ITL columns of one request, percentiles by nearest rank; empty without a gap."""
    if not gaps_ns:
        return {}
    ordered = sorted(gaps_ns)
    p50, p99 = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.99))
    return {
        "itl_min_ns": ordered[0],
        "itl_mean_ns": round(sum(ordered) / len(ordered)),
        "itl_p50_ns": p50,
        "itl_p99_ns": p99,
        "itl_max_ns": ordered[-1],
    }


class PartWriter:
    """A thread that closes a part every 2^18 rows or 5 s, so that no caller waits for the disk.

    Args:
        folder: the level's folder.

    Attributes:
        parts: the parts of the records written so far, relative to the level's folder.
        tables: gives further tables by the names of their folders, with what there is of them since it was last asked;
            it is asked on the thread.
        table_parts: their parts, likewise.
    """

    def __init__(self, folder: Path) -> None:
        self.parts: list[str] = []
        self.table_parts: dict[str, list[str]] = {}
        self._folder = folder
        self.tables: Callable[[], Mapping[str, pl.DataFrame]] = dict
        self._began_s = time.monotonic()
        self._rows: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ended = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="gpusize-parts", daemon=True)
        self._thread.start()

    def add(self, row: dict[str, Any]) -> None:
        """Take one row, by the names of docs/reference/records.md; what is missing is null."""
        with self._lock:
            self._rows.append(row)
            full = len(self._rows) >= PART_ROWS
        if full:
            self._wake.set()

    def close(self) -> None:
        """Write what is left; raises what went wrong on the thread."""
        self._ended = True
        self._wake.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    @property
    def failed(self) -> bool:
        """Whether rows can no longer be written."""
        return self._error is not None

    def _run(self) -> None:
        ended = False
        while not ended:
            self._wake.wait(part_age_s(time.monotonic() - self._began_s))
            self._wake.clear()
            ended = self._ended
            with self._lock:
                rows, self._rows = self._rows, []
            try:
                if rows:
                    self._write(rows)
                for name, frame in self.tables().items():
                    self._write_table(name, frame)
            except Exception as error:  # noqa: BLE001 - `close` raises it on the thread that leaves the level
                self._error = error
                return

    def _write(self, rows: list[dict[str, Any]]) -> None:
        import polars as pl

        name = f"records/part-{len(self.parts):05d}.parquet"
        file = self._folder / name
        schema = {name: kind for name, kind in record_dtypes().items() if name not in SERVER_TIMES}
        frame = pl.DataFrame({column: [row.get(column) for row in rows] for column in schema}, schema=schema)
        with storing(file):
            frame.write_parquet(file, compression="lz4", metadata={SCHEMA_KEY: version_of(frame.columns)})
        self.parts.append(name)

    def _write_table(self, table: str, frame: pl.DataFrame) -> None:
        parts = self.table_parts.setdefault(table, [])
        name = f"{table}/part-{len(parts):05d}.parquet"
        file = self._folder / name
        with storing(file):
            file.parent.mkdir(exist_ok=True)
            frame.write_parquet(file, compression="lz4", metadata={SCHEMA_KEY: version_of(frame.columns)})
        parts.append(name)


def part_age_s(level_s: float) -> float:
    """How old a part may become in a level that began so many seconds ago."""
    return min(max(level_s / PARTS_OF_AGE, PART_S), OLDEST_PART_S)
