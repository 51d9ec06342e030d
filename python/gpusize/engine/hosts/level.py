"""A level on many hosts: one start, counts and seconds merged while it runs, records that come home at its end."""

from __future__ import annotations

import shutil
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from gpusize.base.errors import EnvironmentLacks, GpusizeError, StoreError, UsageError
from gpusize.base.text import shown
from gpusize.engine.hosts.host import as_error
from gpusize.engine.hosts.merge import (
    Cells,
    empty_outcome,
    error_numbers,
    merged_outcome,
    merged_progress,
    merged_second,
    recent_of,
    too_many,
)
from gpusize.engine.hosts.part import HostPart, Missing
from gpusize.engine.hosts.protocol import Broken

if TYPE_CHECKING:
    from gpusize.engine.hosts.engine import HostsEngine
    from gpusize.engine.hosts.host import Host
    from gpusize.engine.hosts.protocol import Frame
    from gpusize.engine.session import LevelOutcome, Progress, Second

__all__ = ["HostsLevel"]

SENDING: Final = ("queued", "held", "running")
KEPT_SECONDS: Final = 600
ERRORS_DRAIN_NS: Final = 1_000_000_000
"""What requests in flight have when too many have failed, as in the engine."""
LEAD_NS: Final = 100_000_000
"""From when all hosts are ready to the start: the word has to reach them."""
TOLD_AHEAD_NS: Final = 2_000_000_000
"""A level that follows without a pause is told so long before it begins: late, as the clocks are known better then."""
FAR_NS: Final = 10**18
"""An end that is moved before the level begins."""
READY_WITHIN_NS: Final = 30_000_000_000
"""A host that is not ready so long after the first one is left behind."""
CLOCK_FLOOR_NS: Final = 5_000_000.0
CLOCK_SHARE: Final = 0.01
CLOCK_MOST_NS: Final = 50_000_000.0
"""What a level allows its clocks: 1 % of its length, since so much of it hosts that begin apart send without each
other; at most 1/20 of a second, as counts of all hosts are added up by the second; never less than 5 ms, which a link
between cities already takes."""


class HostsLevel:
    """A level of many hosts, with the methods of `gpusize.engine.session.EngineLevel`.

    Args:
        engine: whose it is.
        number: its number at the agents.
        plan: the LevelPlan.
        arrays: arrivals beside it.
        before: the level before; None for the first.
    """

    def __init__(
        self,
        engine: HostsEngine,
        number: int,
        plan: Mapping[str, Any],
        arrays: Mapping[str, bytes],
        before: HostsLevel | None,
    ) -> None:
        self.visit = int(plan["visit"])
        self.number, self.start_ns = number, cast("int | None", None)
        self._engine, self._plan, self._arrays, self._before = engine, plan, dict(arrays), before
        self._folder = None if plan.get("dir") is None else Path(plan["dir"]).parent
        # Beside the level's folder, not in it: a run that dies leaves nothing in there that is no part.
        name = None if self._folder is None else self._folder.name.removeprefix(".").removesuffix(".open")
        self._home = None if self._folder is None else self._folder.with_name(f".{name}.home")
        self._parts: list[HostPart] = []
        self._whole = 0
        self._shipped = False
        self._finishing = self._finished = False
        self._problem: GpusizeError | None = None
        self._stopped: tuple[int, str] | None = None
        self._outcome: LevelOutcome | None = None
        self._merged: deque[Second] = deque(maxlen=KEPT_SECONDS)
        self._next = 0
        self._unadded: list[Second] = []
        self._so_far, self._last = Cells(), Cells()
        self._first_ready_ns = 0
        self._heard = False
        self._changed = engine.changed

    # What the sweep calls.

    def poll(self) -> Progress:
        """The level as it stands, over all hosts."""
        with self._changed:
            self._add_seconds()
            seen = [each for part in self._parts if (each := part.seen()) is not None]
            found = merged_progress(seen, self._so_far, self._last) if seen else _nothing(self._plan)
            if self._finished:
                found["state"] = "done"
            elif self.start_ns is None and self._stopped is None:
                found["state"] = "queued"
            return found

    def stop(self, drain_ns: int, reason: str = "stopped") -> None:
        """As `gpusize.engine.session.EngineLevel.stop`, on every host."""
        with self._changed:
            if self._finished:
                return
            self._stopped = (drain_ns, reason)
            parts = [part for part in self._parts if part.outcome is None]
            self._changed.notify_all()
        for part in parts:
            part.host.tell("stop", level=self.number, drain_ns=drain_ns, reason=reason)

    def seconds(self, after: int) -> list[Second]:
        """The seconds of the level from number ``after`` on that are complete on every host that is there."""
        with self._changed:
            return [second for second in self._merged if second["second"] >= after]

    def wait(self, timeout_s: float) -> bool:
        """Wait until every host's part has come home. False when the time ran out.

        Raises:
            GpusizeError: a host refused the plan, or what it measured cannot be kept.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._finished or self._problem is not None, timeout_s)
            if self._problem is not None and not self._finished:
                raise self._problem
            return self._finished

    def outcome(self) -> LevelOutcome:
        """What happened on all hosts; ``hosts`` has what each did, and ``hosts_alerts`` what is to be said of it."""
        if self._outcome is None:
            raise UsageError("the level has not ended", "outcome", "wait for it")
        return self._outcome

    # What the engine's thread calls, with the lock held.

    @property
    def finished(self) -> bool:
        """Whether nothing more is to come of it."""
        return self._finished

    @property
    def sends(self) -> bool:
        """Whether it is still to begin, or asks for new requests on some host."""
        if self._finished or self._finishing:
            return False
        if not self._shipped or any(part.open and part.progress is None for part in self._parts):
            return True
        return any(part.open and cast("Any", part.progress)["state"] in SENDING for part in self._parts)

    def ends_at_ns(self) -> int | None:
        """When it closes, on the head's clock; None where that is not known beforehand."""
        if self.start_ns is None or self._stopped is not None or not self._by_time:
            return None
        return self.start_ns + int(self._plan["stop"]["duration_ns"])

    def move_end(self, ends: Sequence[tuple[Host, int]]) -> None:
        """Let it close when the next one begins on each host: by now more is known of the clocks."""
        for host, at_ns in ends:
            host.tell("close_at", level=self.number, at_ns=at_ns)

    @property
    def _by_time(self) -> bool:
        """Whether its time ends it, and nothing else that is planned."""
        return self._plan["stop"].get("duration_ns") is not None and self._plan["stop"].get("count") is None

    def step(self) -> None:
        """Do what is to be done now."""
        if self._finished or self._finishing or self._problem is not None:
            return
        if not self._shipped:
            self._maybe_ship()
            return
        now_ns = self._engine.now_ns()
        for part in self._parts:
            if part.open and part.host.lost is not None:
                part.missing = Missing(f"was lost: {part.host.lost}", part.host.lost_ns)
                self._heard = True
        if self.start_ns is None and self._stopped is None:
            self._maybe_start(now_ns)
        if self._heard:
            self._heard = False
            self._merge_seconds()
            self._judge()
        if not any(part.open for part in self._parts):
            self._finishing = True
            # Rewriting millions of rows takes seconds, in which other levels start and stop.
            threading.Thread(target=self._finish, name="gpusize-merge", daemon=True).start()

    def hear(self, host: Host, frame: Frame) -> None:
        """Take what a host says of it."""
        part = next((each for each in self._parts if each.host is host), None)
        if part is None:
            return
        try:
            part.hear(frame)
        except Broken:
            raise
        except OSError as error:
            part.missing = Missing(f"its records are lost: {error}", self._engine.now_ns())
        self._heard = True

    def _maybe_ship(self) -> None:
        if self._stopped is not None:
            self._outcome = empty_outcome(self.visit, "stopped")
            self._finished = True
            return
        before = self._before
        if before is None or not before.sends:
            self._ship(None)
            return
        at_ns, lead_ns = before.ends_at_ns(), self._lead_ns()
        if at_ns is None or not self._follows_at_once:
            return
        left_ns = at_ns - self._engine.now_ns()
        if lead_ns < left_ns <= lead_ns + TOLD_AHEAD_NS:
            self._ship(at_ns)
            before.move_end([(part.host, part.asked_ns) for part in self._parts])

    @property
    def _follows_at_once(self) -> bool:
        closed = self._plan["load"].get("closed")
        return closed is None or closed.get("start") == "staggered"

    def _ship(self, start_ns: int | None) -> None:
        """Hand every host its part; it starts at that time, or is held until all are ready."""
        shares = self._engine.shares()
        self._shipped, self._before = True, None
        if not shares:
            self._problem = EnvironmentLacks("no host is left", "hosts", "see why they were lost, and join them again")
            return
        self._whole = sum(workers for _, workers in shares)
        if self._home is not None:
            # Of a run that died, and now goes on.
            shutil.rmtree(self._home, ignore_errors=True)
        first = 0
        for host, workers in shares:
            folder = None if self._home is None else self._home / str(host.number)
            self._parts.append(HostPart(host, first, workers, folder))
            first += workers
        stop = {**self._plan["stop"], "max_error_share": None}
        for part in self._parts:
            place = {"first": part.first, "stride": self._whole, "host": part.host.number}
            plan = {**self._plan, "stop": stop, "partition": place, "dir": None, **self._timing(part, start_ns)}
            names = list(self._arrays)
            strings = [self._arrays[name] for name in names]
            fields = {"session": self._engine.session, "level": self.number, "plan": plan, "arrays": names}
            fields["one_in"] = self._engine.one_in
            part.host.ask("queue", strings, self._refused(part, late=start_ns is not None), **fields)
        self.start_ns = start_ns

    def _timing(self, part: HostPart, start_ns: int | None) -> dict[str, Any]:
        if start_ns is None:
            # It has an end by the clock when it has a start.
            far = {"close_at_ns": part.host.clock.to_host(self._engine.now_ns()) + FAR_NS} if self._by_time else {}
            return {"held": True, **far}
        timing = {"start_ns": part.asked(start_ns)}
        return {**timing, **self._end(part, start_ns)}

    def _end(self, part: HostPart, start_ns: int) -> dict[str, int]:
        """When its time is over on a host's clock."""
        if not self._by_time:
            return {}
        return {"close_at_ns": part.host.clock.to_host(start_ns + int(self._plan["stop"]["duration_ns"]))}

    def _refused(self, part: HostPart, *, late: bool) -> Any:
        """Takes a host's answer: a plan that is wrong is wrong everywhere, a start that came late is that host's."""

        def answered(fields: Mapping[str, Any]) -> None:
            error = fields.get("error")
            if error is None:
                return
            with self._changed:
                if late:
                    what = shown(str(error.get("what")), 120)
                    part.missing = Missing(f"came late to the start: {what}", self.start_ns or 0)
                else:
                    self._problem = as_error(error, part.host.name)
                self._changed.notify_all()

        return answered

    def _lead_ns(self) -> int:
        """How far ahead a start must be for every host to hear of it in time."""
        now_ns = self._engine.now_ns()
        read = [found for host, _ in self._engine.shares() if (found := host.clock.at(now_ns)) is not None]
        slowest = max((found.round_trip_ns + found.uncertainty_ns for found in read), default=0)
        return LEAD_NS + round(3 * slowest)

    def _maybe_start(self, now_ns: int) -> None:
        there = [part for part in self._parts if part.open]
        ready = [part for part in there if part.ready]
        if ready and not self._first_ready_ns:
            self._first_ready_ns = now_ns
        if ready and len(ready) < len(there) and now_ns - self._first_ready_ns > READY_WITHIN_NS:
            for part in there:
                if not part.ready:
                    part.missing = Missing("was not ready to start", now_ns)
                    part.host.tell("stop", level=self.number, drain_ns=0, reason="stopped")
            there = ready
        if not there or len(ready) < len(there):
            return
        self.start_ns = now_ns + self._lead_ns()
        for part in there:
            at_ns = part.asked(self.start_ns)
            then = self._refused(part, late=True)
            part.host.ask("start", (), then, level=self.number, at_ns=at_ns, **self._end(part, self.start_ns))

    def _merge_seconds(self) -> None:
        """Merge the seconds that every host which is there has told."""
        while True:
            told = [part.seconds[self._next] for part in self._parts if self._next in part.seconds]
            waits = [part for part in self._parts if part.open and part.last < self._next]
            if waits or not told:
                return
            second = merged_second(told)
            for part in self._parts:
                part.seconds.pop(self._next, None)
            self._merged.append(second)
            self._unadded.append(second)
            self._next += 1

    def _add_seconds(self) -> None:
        """Add up the seconds that have come since somebody has looked: who does not look need not pay for it."""
        for second in self._unadded:
            self._so_far.add(second["times"])
        if self._unadded:
            self._last = Cells()
            self._last.add(self._unadded[-1]["times"])
            self._unadded.clear()

    def _judge(self) -> None:
        if self._stopped is not None or self._plan["stop"].get("max_error_share") is None:
            return
        seen = [each for part in self._parts if (each := part.seen()) is not None]
        if not seen:
            return
        if too_many(merged_progress(seen, Cells(), Cells()), self._plan["stop"]):
            self._stopped = (ERRORS_DRAIN_NS, "errors")
            for part in self._parts:
                part.host.tell("stop", level=self.number, drain_ns=ERRORS_DRAIN_NS, reason="errors")

    # What the level's own last thread does.

    def _finish(self) -> None:
        try:
            outcome = self._come_home()
        except (GpusizeError, OSError) as error:
            with self._changed:
                self._problem = error if isinstance(error, GpusizeError) else StoreError(str(error), str(self._folder))
                self._changed.notify_all()
            return
        with self._changed:
            self._merge_seconds()
            self._outcome, self._finished = outcome, True
            self._arrays.clear()
            self._changed.notify_all()

    def _come_home(self) -> LevelOutcome:
        came = [part for part in self._parts if part.outcome is not None and not part.late]
        outcomes = [cast("LevelOutcome", part.outcome) for part in came]
        for part, each in zip(came, outcomes, strict=True):
            if each["write_error"] is not None and part.missing is None:
                at_ns = each["close_ns"] + part.shift_ns(self.start_ns)
                part.missing = Missing(f"could not keep its records: {shown(each['write_error'], 120)}", at_ns)
        _, numbers = error_numbers([each["errors"] for each in outcomes])
        shifts = [part.shift_ns(self.start_ns) for part in came]
        moved = outcomes
        if self._folder is not None:
            moved = [
                part.come_home(self._folder, shift_ns, new)
                for part, shift_ns, new in zip(came, shifts, numbers, strict=True)
            ]
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)
        if moved:
            outcome = merged_outcome(self.visit, moved, shifts)
        else:
            why = "; ".join(f"{part.host.name} {part.missing.why}" for part in self._parts if part.missing is not None)
            outcome = empty_outcome(self.visit, "failed", f"no host is left: {why}")
        found = cast("dict[str, Any]", outcome)
        found["hosts"] = [part.facts(self.start_ns, self._whole) for part in self._parts]
        found["hosts_alerts"] = [*self._missing_alerts(), *self._clock_alerts(found)]
        return outcome

    def _missing_alerts(self) -> list[str]:
        alerts = []
        for part in self._parts:
            if part.missing is None:
                continue
            what = f"host {part.host.number} ({part.host.name}) {part.missing.why}"
            share = f"{part.workers / self._whole:.3g}"
            kept = "" if part.outcome is not None else ", and what it had measured of it"
            alerts.append(
                f"{what}: {float(share):.0%} of the load that was asked for is missing from "
                f"{part.missing_s(self.start_ns):.1f} s after the start on{kept}"
            )
        return alerts

    def _clock_alerts(self, outcome: Mapping[str, Any]) -> list[str]:
        length_ns = outcome["close_ns"] - outcome["start_ns"]
        allowed_ns = min(CLOCK_MOST_NS, max(CLOCK_FLOOR_NS, CLOCK_SHARE * length_ns))
        worst = max(outcome["hosts"], key=_known_within_ns)
        if _known_within_ns(worst) <= allowed_ns or self.start_ns is None:
            return []
        known, allowed = (f"{ns / 1e6:.3g} ms" for ns in (_known_within_ns(worst), allowed_ns))
        text = (
            f"the clock of host {worst['host']} ({worst['name']}) is known to within {known}, this level "
            f"allows {allowed}: hosts may have begun so far apart; each request's own times are right"
        )
        return [text]


def _known_within_ns(host: Mapping[str, Any]) -> float:
    """The worst that is known of a host's clock: when it was told its start, or by the end."""
    return max(float(host.get(name, 0.0)) for name in ("uncertainty_ns", "start_uncertainty_ns"))


def _nothing(plan: Mapping[str, Any]) -> Progress:
    """The progress of a level of which no host has told yet."""
    none: dict[str, Any] = dict.fromkeys(
        ("elapsed_ns", "due", "sent", "done", "ok", "in_flight", "waiting", "shed", "connects", "connections"), 0
    )
    return cast(
        "Progress",
        {
            **none,
            "state": "queued",
            "failed": {},
            **dict.fromkeys(("p50_ns", "p95_ns", "lateness_p99_ns")),
            "recent": recent_of(Cells()),
            **dict.fromkeys(("rate", "offered_rate", "sent_rate", "cpu_share"), 0.0),
            "close_after_ns": plan["stop"].get("duration_ns"),
            "schedule_ns": 0,
        },
    )
