"""A thread that reads one source at due times that do not drift, and whenever it is asked to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from gpusize.base.text import shown
from gpusize.engine.session import monotonic_ns
from gpusize.observe.metrics.buffer import ReadingBuffer
from gpusize.observe.metrics.reading import Reading, SampleSource, SourceFailed

__all__ = ["DURATION_SERIES", "MOST_CPU", "UP_SERIES", "Sampler", "next_due"]

MOST_CPU: Final = 0.25
"""Of a core, for reading one source: pages may be of any size, and the generator needs the rest."""

DURATION_SERIES: Final = "scrape_duration_seconds"
"""Added to each reading: time from question to answer, twice the uncertainty of its time."""

UP_SERIES: Final = "up"
"""Added to each reading: 1, or 0 for one that failed, which then has nothing else. Both have Prometheus' names."""


@dataclass
class Sampler:
    """Reads one source at ``interval_s`` and keeps what it says.

    Args:
        source: what to read.
        interval_s: time from one due time to the next. A due time that passes while a reading goes on is missed, and
            counted; readings asked for by ``read_now`` come besides.
        clock: the engine's clock.

    Attributes:
        readings: readings had.
        failures: readings that failed.
        missed: due times that passed without a reading.
        last_failure: why the last one failed.
    """

    source: SampleSource
    interval_s: float = 1.0
    clock: Callable[[], int] = monotonic_ns
    readings: int = 0
    failures: int = 0
    missed: int = 0
    last_failure: str | None = None
    cpu_s: float = 0.0
    buffer: ReadingBuffer = field(init=False)
    _wake: threading.Condition = field(default_factory=threading.Condition)
    _asked: int = 0
    _served: int = 0
    _stopping: bool = False
    _ended: bool = False
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        self.buffer = ReadingBuffer(self.source.name)

    def start(self) -> None:
        """Take a first reading, then go on reading on a thread."""
        self._read()
        self._thread = threading.Thread(target=self._run, name=f"samples {self.source.name}", daemon=True)
        self._thread.start()

    def ask(self) -> int:
        """Have a reading taken that begins after this call; returns the number to wait for."""
        with self._wake:
            self._asked += 1
            self._wake.notify_all()
            return self._asked

    def wait(self, number: int, timeout_s: float) -> bool:
        """Wait until the reading asked for was tried. False when the time ran out or the thread has ended."""
        with self._wake:
            self._wake.wait_for(lambda: self._served >= number or self._ended, timeout_s)
            return self._served >= number

    def ask_to_stop(self) -> None:
        """Have the thread end after the reading that goes on."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the thread and close the source; safe to call twice."""
        self.ask_to_stop()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(timeout_s)
        self.source.close()

    def facts(self) -> dict[str, Any]:
        """How the sampling went, for ``level.json``; counts since the start of the run."""
        return {
            "source": self.source.name,
            "interval_s": self.interval_s,
            "readings": self.readings,
            "failures": self.failures,
            "missed": self.missed,
            "last_failure": self.last_failure,
            "cpu_s": round(self.cpu_s, 6),
        }

    def _run(self) -> None:
        interval_ns = max(1, round(self.interval_s * 1e9))
        due_ns = self.clock() + interval_ns
        try:
            while (asked := self._next(due_ns)) is not None:
                before_s = self.cpu_s
                final = self._read()
                self._serve(asked)
                if final:
                    return
                due_ns, missed = next_due(due_ns, self.clock(), round((self.cpu_s - before_s) * 1e9), interval_ns)
                self.missed += missed
        finally:
            with self._wake:
                self._ended = True
                self._wake.notify_all()

    def _next(self, due_ns: int) -> int | None:
        """Sleep until the due time or until asked; the number of the request served by a reading now, None to end."""
        with self._wake:
            self._wake.wait_for(
                lambda: self._stopping or self._asked > self._served, max(0.0, (due_ns - self.clock()) / 1e9)
            )
            return None if self._stopping else self._asked

    def _serve(self, number: int) -> None:
        with self._wake:
            self._served = number
            self._wake.notify_all()

    def _read(self) -> bool:
        """Take one reading; True when the source has said that there will be no other."""
        asked_ns, cpu_s = self.clock(), time.thread_time()
        try:
            reading = self.source.read()
            up = {(UP_SERIES, ""): 1.0, (DURATION_SERIES, ""): reading.width_ns / 1e9}
            self.buffer.add(Reading(reading.t_ns, reading.width_ns, {**reading.values, **up}))
            self.readings += 1
        except Exception as problem:  # noqa: BLE001 -- whatever a source does, the measurement goes on
            self.failures += 1
            self.last_failure = str(problem) if isinstance(problem, SourceFailed) else _said(problem)
            self.buffer.add(Reading((asked_ns + self.clock()) // 2, 0, {(UP_SERIES, ""): 0.0}))
            return isinstance(problem, SourceFailed) and problem.final
        finally:
            self.cpu_s += time.thread_time() - cpu_s
        return False


def next_due(due_ns: int, now_ns: int, cpu_ns: int, interval_ns: int) -> tuple[int, int]:
    """When the next reading is due after one has ended, on the grid of the interval, and how many were left out.

    Reading takes `MOST_CPU` of a core at most: after one that cost much time, so much longer a pause follows.

    Args:
        due_ns: when the one that has ended was due, or the next one where it was asked for between two.
        now_ns: when it ended.
        cpu_ns: CPU time that it took.
        interval_ns: time between two due times.
    """
    free_ns = now_ns if cpu_ns <= MOST_CPU * interval_ns else now_ns + round(cpu_ns / MOST_CPU)
    late = (free_ns - due_ns) // interval_ns
    return (due_ns, 0) if late < 0 else (due_ns + (late + 1) * interval_ns, late)


def _said(problem: Exception) -> str:
    return f"{type(problem).__name__}: {shown(str(problem), 200)}"
