"""Stamps and outcomes for workflows in Python: the engine's clock, columns and files, without the engine.

    with gpusize.Recorder("runs", target="summarise", gpus=8) as recorder:
        for users in (1, 2, 4, 8):
            with recorder.level(concurrency=users) as level:
                ...                                     # threads or tasks, each doing
                with level.request(row=3) as request:
                    with gpusize.call("llm", name="chat"):
                        ask(question)
    result = gpusize.open_run(recorder.path)

Everything here may be used from any thread.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from gpusize.base.errors import UsageError
from gpusize.engine.clock_log import ClockLog
from gpusize.engine.session import monotonic_ns
from gpusize.records.calls import write_spans
from gpusize.records.run_json import run_facts
from gpusize.records.schema import OUTCOMES
from gpusize.records.store import RunStore
from gpusize.targets.workflow.record import ErrorLog, PartWriter, RecordedRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

__all__ = ["RecordedLevel", "Recorder"]


class RecordedLevel:
    """One level visit; a context manager made by ``Recorder.level``. Leaving it commits the level."""

    def __init__(self, store: RunStore, setting: Mapping[str, Any], step: int, clock: Callable[[], int]) -> None:
        self.visit = store.next_visit()
        self._store = store
        self._noted = {"setting": dict(setting), "step": step}
        self._clock = clock
        self._lock = threading.Lock()
        self._writer: PartWriter | None = None
        self._start_ns = 0
        self._outcomes: Counter[str] = Counter()
        self._errors = ErrorLog()
        self._spans: list[dict[str, Any]] = []
        self._service_ns = 0

    def request(self, row: int = 0, *, due_ns: int | None = None) -> RecordedRequest:
        """A request to be recorded.

        Args:
            row: the dataset row that it sends.
            due_ns: when it was due, on the engine's clock (``gpusize.monotonic_ns``); None for now.
        """
        return RecordedRequest(row, due_ns, self._clock, self._add)

    def _add(self, request: RecordedRequest) -> None:
        with self._lock:
            if self._writer is None:
                raise UsageError("the request ended outside its level", f"visit {self.visit}", "wait for all of them")
            error_id = None
            if request.outcome != "ok":
                error_id = self._errors.note(request.outcome, request.values.get("status"), request.message)
            key = {"visit": self.visit, "seq": self._outcomes.total()}
            self._spans += [{**call, **key} for call in request.calls.rows(request.outcome)]
            row = {
                **request.values,
                **key,
                "worker": threading.get_ident() & 0xFFFF,
                "outcome": OUTCOMES.index(request.outcome),
                "error_id": error_id,
            }
            self._outcomes[request.outcome] += 1
            self._service_ns += row["end_ns"] - row["sent_ns"]
            self._writer.add(row)

    def __enter__(self) -> Self:
        self._writer = PartWriter(self._store.open_level(self.visit, self._noted))
        self._start_ns = self._clock()
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        end_ns = self._clock()
        with self._lock:
            writer, self._writer = self._writer, None
        if writer is None:
            return
        writer.close()
        span_parts = write_spans(self._store.open_path(self.visit), self._spans)
        state = "done"
        if kind is not None:
            state = "interrupted" if issubclass(kind, Exception) else "cancelled"
        self._store.commit_level(self.visit, self._level(state, end_ns, writer.parts, span_parts), {})

    def _level(self, state: str, end_ns: int, parts: list[str], span_parts: list[str]) -> dict[str, Any]:
        rows = self._outcomes.total()
        return {
            **self._noted,
            "state": state,
            "stop_reason": {"done": "count", "interrupted": "failed", "cancelled": "cancelled"}[state],
            "intervals": [
                {"name": "steady", "start_ns": self._start_ns, "end_ns": end_ns + 1, "method": "the whole level"}
            ],
            "alerts": [] if state == "done" else ["the workflow raised an exception before the level was done"],
            "start_ns": self._start_ns,
            "close_ns": end_ns,
            "end_ns": end_ns,
            "due": rows,
            "sent": rows,
            "outcomes": dict(self._outcomes),
            "rows": rows,
            "connects": 0,
            "reconnects": 0,
            "asked_again": 0,
            "addresses": [],
            "cpu_ns": None,
            "workers": 1,
            "residence_ns": self._service_ns // rows if rows else None,
            "parts": parts,
            "write_error": None,
            "errors": self._errors.errors(),
            "spans": len(self._spans),
            "span_parts": span_parts,
        }


class Recorder:
    """A run whose requests are made by Python code; a context manager that holds the run folder.

    Args:
        out: the folder of runs.
        target: a name for what is measured.
        gpus: how many GPUs stand behind it.
        model: the model's name, if there is one.
        labels: what tells this run from others.
        clock: nanoseconds; the engine's clock by default.
        clocks: takes the clock pairs; the engine's by default.

    Raises:
        StoreError: the folder cannot be made or written.
    """

    def __init__(
        self,
        out: str | Path = "runs",
        *,
        target: str = "python",
        gpus: int | None = None,
        model: str = "",
        labels: Mapping[str, str] | None = None,
        clock: Callable[[], int] = monotonic_ns,
        clocks: ClockLog | None = None,
    ) -> None:
        described = {
            "url": target,
            "api": "python",
            "model": model,
            "gpus": gpus,
            "tls_verified": None,
            "simulated": None,
        }
        facts = run_facts(
            command=[],
            options={},
            targets=[described],
            models=[model],
            dataset={"source": "python", "rows": None, "sha256": None},
            labels=labels or {},
            seed=0,
            levels=[],
        )
        self._clock = clock
        self._clocks = ClockLog() if clocks is None else clocks
        self._clocks.take()
        self._store = RunStore.create(Path(out), facts)
        self._steps = 0

    @property
    def path(self) -> Path:
        """The run folder."""
        return self._store.path

    def level(self, concurrency: int, **setting: Any) -> RecordedLevel:
        """The next level: enter it, do the work, leave it; one at a time.

        Args:
            concurrency: how many requests the workflow keeps in flight.
            setting: more facts about the setting, kept in ``level.json``.

        Raises:
            UsageError: a concurrency below 1.
        """
        if concurrency < 1:
            raise UsageError(f"a concurrency must be 1 or more, not {concurrency}", "concurrency", "give 1 or more")
        step, self._steps = self._steps, self._steps + 1
        return RecordedLevel(self._store, {"kind": "closed", "concurrency": concurrency, **setting}, step, self._clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.closing(self._store):
            self._clocks.take()
            self._clocks.write(self.path / "clocks.parquet")
