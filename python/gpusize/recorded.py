"""What the recorder keeps of one request, and the thread that writes it."""

from __future__ import annotations

import asyncio
import ssl
import threading
from typing import TYPE_CHECKING, Any, Final, Self

from gpusize.durable import storing
from gpusize.errors import UsageError
from gpusize.frames import OUTCOMES, RECORDS_VERSION, SCHEMA_KEY, record_dtypes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

__all__ = ["PartWriter", "RecordedRequest", "outcome_of"]

PART_ROWS: Final = 1 << 18
PART_S: Final = 5.0
MAX_ERROR_CHARS: Final = 500

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
_ZEROS: Final = (
    "stream", "attempt", "target", "model", "host", "conn", "events", "reasoning_events", "bytes_in", "bytes_out",
)  # fmt: skip


def outcome_of(error: BaseException) -> str:
    """The outcome that an exception stands for; one that says nothing about the transport is an ``api_error``."""
    if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | SystemExit | GeneratorExit):
        return "cancelled"
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, ssl.SSLError):
        return "tls_error"
    if isinstance(error, ConnectionError):
        return "connect_error"
    return "api_error"


class RecordedRequest:
    """One request; a context manager made by ``RecordedLevel.request``.

    An exception inside the block is the request's outcome, and goes on to the caller.
    """

    def __init__(
        self, row: int, due_ns: int | None, clock: Callable[[], int], done: Callable[[RecordedRequest], None]
    ) -> None:
        self._clock = clock
        self._done = done
        now_ns = clock()
        self.values: dict[str, Any] = dict.fromkeys(_ZEROS, 0)
        self.values.update(row=row, due_ns=now_ns if due_ns is None else due_ns, fired_ns=now_ns)
        self.outcome = "ok"
        self.message = ""

    def __enter__(self) -> Self:
        self.values["sent_ns"] = self._clock()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: TracebackType | None) -> None:
        self.values["end_ns"] = self._clock()
        if error is not None and self.outcome == "ok":
            self.fail(outcome_of(error), f"{type(error).__name__}: {error}")
        self._done(self)

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
        self.values["last_token_ns"] = now_ns
        self.values["events"] += 1

    def report(self, **facts: int) -> None:
        """Set what the server told.

        Known are ``tokens_in``, ``tokens_out``, ``tokens_cached``, ``tokens_reasoning``, ``status``,
        ``bytes_in``, ``bytes_out``, ``session``, ``turn``.

        Raises:
            UsageError: a name that is not one of these.
        """
        for name, value in facts.items():
            if name not in _REPORTED:
                raise UsageError(f"{name!r} cannot be reported", None, f"known are {', '.join(sorted(_REPORTED))}")
            self.values[name] = value

    def fail(self, outcome: str, message: str = "") -> None:
        """Say how the request failed, when it does so without an exception.

        Raises:
            UsageError: ``outcome`` is none of the names in docs/reference/records.md.
        """
        if outcome not in OUTCOMES:
            raise UsageError(f"{outcome!r} is no outcome", None, f"known are {', '.join(OUTCOMES)}")
        self.outcome = outcome
        self.message = message[:MAX_ERROR_CHARS]


class PartWriter:
    """A thread that closes a part every 2^18 rows or 5 s, so that no caller waits for the disk.

    Attributes:
        parts: the parts written so far, relative to the level's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.parts: list[str] = []
        self._folder = folder
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

    def _run(self) -> None:
        ended = False
        while not ended:
            self._wake.wait(PART_S)
            self._wake.clear()
            ended = self._ended
            with self._lock:
                rows, self._rows = self._rows, []
            try:
                if rows:
                    self._write(rows)
            except Exception as error:  # noqa: BLE001 - `close` raises it on the thread that leaves the level
                self._error = error
                return

    def _write(self, rows: list[dict[str, Any]]) -> None:
        import polars as pl

        name = f"records/part-{len(self.parts):05d}.parquet"
        file = self._folder / name
        schema = record_dtypes()
        frame = pl.DataFrame({column: [row.get(column) for row in rows] for column in schema}, schema=schema)
        with storing(file):
            frame.write_parquet(file, compression="lz4", metadata={SCHEMA_KEY: str(RECORDS_VERSION)})
        self.parts.append(name)
