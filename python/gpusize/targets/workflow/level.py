"""One level of a workflow run: the same questions and answers as a level of the engine, asked of Python code."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from gpusize.base.errors import TargetError, UsageError
from gpusize.base.text import said
from gpusize.targets.workflow.closed_loop import closed_loop, sleep_until
from gpusize.targets.workflow.in_flight import InFlight
from gpusize.targets.workflow.level_counts import Tally, written
from gpusize.targets.workflow.open_loop import open_loop
from gpusize.targets.workflow.record import PartWriter
from gpusize.targets.workflow.schedule import RowOrder, Thinks, arrivals
from gpusize.targets.workflow.self_load import Busy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gpusize.base.clock import Clock
    from gpusize.engine.session import LevelOutcome, Progress, Second
    from gpusize.targets.workflow.invoke import Work
    from gpusize.targets.workflow.record import RecordedRequest
    from gpusize.targets.workflow.schedule import Arrival, Conversations, Due

__all__ = ["WorkflowLevel"]

DEAF_NS: Final = 10_000_000_000
"""How long the event loop may be kept from hearing that an end was asked for."""

STOP_REASONS: Final = ("stopped", "slo", "saturation", "errors")
"""What a caller may call the end that it asks for."""

_GRAVE: Final = ("errors", "failed")
VOID_DRAIN_NS: Final = 1_000_000_000
"""What requests in flight have when failures have closed their level."""


class WorkflowLevel:
    """One queued, running or finished visit of a level.

    ``poll``, ``stop``, ``wait`` and ``outcome`` are for any thread, the rest is for the event loop.

    Args:
        plan: a LevelPlan, with ``dir``.
        work: what a request does.
        conversations: of the dataset's rows, as the load's unit says.
        loop: the engine's event loop; everything else here happens on it.
        clock: the time of that loop.
        arrays: due times and the like of streams by plan; see docs/reference/engine.md.

    Raises:
        UsageError: an invalid plan, or arrays that do not fit it.
    """

    def __init__(
        self,
        plan: Mapping[str, Any],
        work: Work,
        conversations: Conversations,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        arrays: Mapping[str, bytes],
    ) -> None:
        self.clock = clock
        self.conversations = conversations
        self.thinks = Thinks(plan, conversations)
        self._arrivals: Iterator[Arrival] | None = None
        if "open" in plan["load"]:
            self._arrivals = arrivals(plan, conversations, arrays)
        self.visit = int(plan["visit"])
        self.plan = plan
        self.closed = asyncio.Event()
        self.ended = asyncio.Event()
        self.freed: asyncio.Queue[int] = asyncio.Queue()
        self.start_ns = 0
        self.residence_hint_ns = 0
        self._work = work
        self._loop = loop
        self._folder = Path(plan["dir"]).parent
        self._writer = PartWriter(self._folder)
        sample = int(plan.get("sample") or 1)
        self.tally = Tally(self.visit, self._writer, plan["stop"], proxied=work.proxied, sample=sample)
        self._writer.tables = self.tally.tables
        self._order = RowOrder(len(self.conversations), str(plan.get("order") or "file"), int(plan["seed"]))
        self._next = 0
        self._reason = ""
        self._state = "queued"
        self._close_ns = 0
        self._end_ns = 0
        self._in_flight = InFlight(work, loop)
        self._busy = Busy(clock)
        self._timers: list[asyncio.TimerHandle] = []
        self._done = threading.Event()
        self._problem: str | None = None
        self._asked_ns = 0
        self._asked_for = ""
        self.waiting = 0
        self._outcome: dict[str, Any] = {}

    # -------------------------------------------------------------------------------------- for whoever drives it

    def poll(self) -> Progress:
        """The level as it stands."""
        now_ns = self._end_ns or self.clock.now_ns()
        return cast(
            "Progress",
            {
                "state": self._state,
                "elapsed_ns": now_ns - self.start_ns if self.start_ns else 0,
                **self.tally.progress(now_ns, self.waiting),
                "cpu_share": self._outcome["generator"]["cpu_share"] if self._outcome else self._busy.share(),
                "connects": 0,
                "connections": 0,
                "close_after_ns": self.plan["stop"].get("duration_ns"),
                "schedule_ns": max((self._close_ns or now_ns) - self.start_ns, 0) if self.start_ns else 0,
            },
        )

    def stop(self, drain_ns: int, reason: str = "stopped") -> None:
        """Begin nothing new; requests in flight have ``drain_ns`` and are then cancelled and recorded.

        Raises:
            UsageError: ``reason`` is none of ``stopped``, ``slo``, ``saturation`` and ``errors``.
        """
        if reason not in STOP_REASONS:
            raise UsageError(f"no reason to stop: {reason}", "reason", f"give one of {', '.join(STOP_REASONS)}")
        self._asked_ns = self._asked_ns or self.clock.now_ns()
        with contextlib.suppress(RuntimeError):  # the loop has gone, and every level with it
            self._loop.call_soon_threadsafe(self._stop, drain_ns, reason)

    def seconds(self, after: int) -> list[Second]:
        """As ``EngineLevel.seconds``; without CPU time, of which each second's share is not known."""
        return self.tally.seconds(after, None if self._state == "done" else self.clock.now_ns())

    def wait(self, timeout_s: float) -> bool:
        """Wait until every request has its record and every part is on disk. False when the time ran out.

        Raises:
            TargetError: an end was asked for, and the workflow does not let the event loop hear of it.
        """
        ended = self._done.wait(timeout_s)
        if not ended and self._asked_ns and not self.closed.is_set() and self.clock.now_ns() - self._asked_ns > DEAF_NS:
            what = "an asynchronous function blocks the event loop, so that it cannot be stopped"
            raise TargetError(what, "workflow", "await what takes time, or make it a plain function")
        return ended

    def outcome(self) -> LevelOutcome:
        """What happened; only after ``wait`` has returned True."""
        return cast("LevelOutcome", self._outcome)

    # --------------------------------------------------------------------------------------------- on the event loop

    async def run(self, before: WorkflowLevel | None, start_ns: int | None = None) -> None:
        """Send until a stop rule says enough, and put down what happened.

        Args:
            before: the level whose slots this one takes over, when it runs staggered.
            start_ns: when it begins; None: now.
        """
        self.start_ns = start_ns or self.clock.now_ns()
        self.tally.begin(self.start_ns)
        self._state = "running"
        self._busy.start()
        # An open loop goes through all that is due before its end, however late.
        if self.over_ns is not None and self._arrivals is None and not self.closed.is_set():
            left_s = (self.over_ns - self.clock.now_ns()) / 1e9
            self._timers.append(self._loop.call_later(left_s, self.close, "duration"))
        try:
            load = self.plan["load"]
            if self._arrivals is None:
                await closed_loop(self, load["closed"], before)
            else:
                await open_loop(self, load["open"], self._arrivals)
        except Exception as error:  # noqa: BLE001 - told with the level, which has to end
            self._problem = said(error)
            self.close("failed")
        self._end_ns = self.clock.now_ns()
        for timer in self._timers:
            timer.cancel()
        await self._finish()

    def close(self, reason: str) -> None:
        """Nothing new from now on; of several reasons the gravest stands."""
        if reason in _GRAVE and self._reason not in _GRAVE:
            self._reason = reason
            self._timers.append(self._loop.call_later(VOID_DRAIN_NS / 1e9, self._cancel))
        if reason != "count":
            self.ended.set()
        if self.closed.is_set():
            return
        self._reason = self._reason or reason
        self._close_ns = (reason == "duration" and self.over_ns) or self.clock.now_ns()
        self._state = "draining"
        self.closed.set()

    @property
    def over_ns(self) -> int | None:
        """When its time is over; None without a duration."""
        duration_ns = self.plan["stop"].get("duration_ns")
        return None if duration_ns is None else self.start_ns + int(duration_ns)

    @property
    def hands_over_ns(self) -> int | None:
        """When the level after it begins if that is waiting already: at its end to the nanosecond; None: at once."""
        return self.over_ns if self._reason == "duration" else None

    async def used_up(self, arrived: int) -> None:
        """Nothing more will arrive in an open loop: it closes by its count, or when its time is over."""
        if self.over_ns is None or arrived == self.plan["stop"].get("count"):
            self.close("count")
        elif await sleep_until(self, self.over_ns):
            self.close("duration")

    def take(self, due_ns: int) -> int | None:
        """The number of the next request or conversation of a closed loop, None when there is none any more."""
        if self.closed.is_set():
            return None
        stop = self.plan["stop"]
        if stop.get("duration_ns") is not None and due_ns - self.start_ns >= stop["duration_ns"]:
            self.close("duration")
            return None
        seq, self._next = self._next, self._next + 1
        if stop.get("count") is not None and self._next >= stop["count"]:
            self.close("count")
        return seq

    def row_of(self, number: int) -> int:
        """The row of a request, or the first one of a conversation; asked for in the order of the numbers."""
        return self.conversations.first(self._order.row(number))

    async def send(self, due: Due) -> tuple[int, bool]:
        """One request from its beginning to its record; when it ended, in nanoseconds, and whether it went well."""
        request = self._request(due, self._ended)
        if due.fired_ns is not None:
            request.values["fired_ns"] = due.fired_ns
        self.tally.sent(due.due_ns, self.clock.now_ns())
        await self._in_flight.run(request)
        if self.tally.too_many:
            self.close("errors")
        if self._writer.failed:
            self.close("failed")
        return int(request.values["end_ns"]), request.outcome == "ok"

    def _request(self, due: Due, done: Callable[[RecordedRequest], None]) -> RecordedRequest:
        request = self._work.request(due.row, due.due_ns, self.visit, due.seq, done, due.stream)
        if due.session is not None:
            request.report(session=due.session, turn=due.turn or 0)
        return request

    def _ended(self, request: RecordedRequest) -> None:
        # There is no connection to wait for: whatever held the work up until it began was the generator.
        if request.values["sent_ns"] is not None:
            request.values["fired_ns"] = request.values["sent_ns"]
        self.tally.add(request)

    def unsent(self, due: Due) -> dict[str, Any]:
        """The record of a request that never went."""
        return {**self._request(due, self.tally.add).values, "fired_ns": None}

    @property
    def cut(self) -> bool:
        """Whether what is in flight has been cancelled."""
        return self._in_flight.cut

    def _stop(self, drain_ns: int, reason: str) -> None:
        # Errors that somebody else found do not void what is in flight: a stop brings its own time.
        self._asked_for = self._asked_for or reason
        self.close("stopped")
        if self._done.is_set():
            return
        if drain_ns <= 0:
            self._cancel()
        else:
            self._timers.append(self._loop.call_later(drain_ns / 1e9, self._cancel))

    def _cancel(self) -> None:
        if self._in_flight and self._reason == "stopped":
            self._reason = "cancelled"
        self._in_flight.cancel()

    async def _finish(self) -> None:
        found = self._busy.stop()
        cpu_ns = self._busy.cpu_ns
        write_error, span_parts = await self._loop.run_in_executor(
            None, written, self._writer, self._folder, self.tally.spans
        )
        write_error = write_error or self._problem
        if write_error is not None:
            self._reason = "failed"
        generator = {"kind": "python", "runs": self._work.description, **found, "left_running": self._in_flight.left}
        self._outcome = {
            "visit": self.visit,
            "stop_reason": self._told_reason(),
            "start_ns": self.start_ns,
            "close_ns": max(self._close_ns, self.start_ns),
            "end_ns": self._end_ns,
            **self.tally.outcome(),
            "connects": 0,
            "reconnects": 0,
            "asked_again": 0,
            "addresses": [],
            "cpu_ns": cpu_ns,
            "workers": 1,
            "residence_ns": self.tally.residence_ns,
            "parts": self._writer.parts,
            "write_error": write_error,
            "spans": len(self.tally.spans) if span_parts else 0,
            "span_parts": span_parts,
            "second_parts": self._writer.table_parts.get("seconds", []),
            "histogram_parts": self._writer.table_parts.get("histograms", []),
            "generator": generator,
        }
        # They are on disk; the engine keeps its levels to the end of the run.
        self.tally.spans.clear()
        self._state = "done"
        self._done.set()

    def _told_reason(self) -> str:
        """What a caller has called the end that it asked for, where that is what ended the level."""
        called = self._asked_for not in ("", "stopped") and self._reason in ("stopped", "cancelled")
        return self._asked_for if called else self._reason
