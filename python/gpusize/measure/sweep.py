"""Drives the engine through the levels of a run, planned beforehand or while it runs, and commits each at its end."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from gpusize.analysis.stop_cause import StopCause, stop_cause_of
from gpusize.base.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from gpusize.analysis.stop_cause import Stop
    from gpusize.base.interrupt import StopSwitch
    from gpusize.engine.clock_log import ClockLog
    from gpusize.engine.session import AnyEngine, AnyLevel, LevelOutcome, Progress
    from gpusize.measure.monitor import RunMonitor
    from gpusize.measure.so_far import SoFar
    from gpusize.records.store import RunStore

__all__ = ["AHEAD", "ProgressEvent", "Step", "Sweep"]

POLL_S: Final = 0.1
"""Time between two looks at a running level: ten per second is what a display can show."""

AHEAD: Final = 3
"""Levels that follow without a pause and are with the engine: the running one, the next, and one if that is short."""

_SENDING: Final = ("queued", "running")


@dataclass(frozen=True, slots=True)
class Step:
    """One planned level.

    Attributes:
        index: its position in ``run.json``'s ``levels``.
        setting: as ``level.json`` names it.
        plan: the engine's LevelPlan, without ``visit``, ``dir`` and ``keep_bytes``.
        arrays: arrivals that are handed over beside the plan; see docs/reference/engine.md.
        search: why a search chose this level, as ``level.json`` keeps it; None in a sweep.
        checks: the visit that broke, where the step is measured again to see whether the target still answers.
    """

    index: int
    setting: Mapping[str, Any]
    plan: Mapping[str, Any]
    arrays: Mapping[str, bytes] = field(default_factory=dict)
    search: Mapping[str, Any] | None = None
    checks: int | None = None

    @property
    def follows_at_once(self) -> bool:
        """Whether the level takes the running load over from the one before, without a pause between them."""
        closed = self.plan["load"].get("closed")
        return closed is None or closed["start"] == "staggered"


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """What a progress callback is told.

    Attributes:
        kind: ``running`` about ten times a second, of the newest level that has begun; ``level`` when a level has been
            committed, while the next ones may be running.
        position: which level of those still to do, from 1.
        total: how many levels there are to do; 0 where a search or a proof decides while it runs.
        setting: the level's setting.
        progress: the engine's view of the level.
        level: the contents of ``level.json``; None with ``running``.
        step: the level's place among all of the run, also those that were done before it was resumed, from 0.
        before: with ``running``, the levels before it that are not committed yet: their last answers are to come.
        search: why a search chose this level, as in ``level.json``; None in a sweep, but for a level that is measured
            again to see whether the target still answers.
        so_far: what the level has shown so far, such as percentiles and the share of each SLO; None where nobody asked.
    """

    kind: Literal["running", "level"]
    position: int
    total: int
    setting: Mapping[str, Any]
    progress: Progress
    level: Mapping[str, Any] | None = None
    step: int = 0
    before: tuple[ProgressEvent, ...] = ()
    search: Mapping[str, Any] | None = None
    so_far: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Queued:
    position: int
    step: Step
    level: AnyLevel


@dataclass
class Sweep:
    """The levels of one run, in order, on one engine.

    Attributes:
        drain_ns: what requests in flight have when the user asks for an end.
        describe: makes the contents of ``level.json`` from a step, what happened, the folder of the still open level
            and who ended it.
        progress: told how the run goes; runs on the thread that drives the sweep, ten times a second at most.
        boundary: told before the first level and after each one, when what is measured beside takes a reading.
        monitor: looks at the running levels and says when to end the run.
        after: told of each committed level; what it says is measured next, or ends the run.
        so_far: works out what those are told who watch.
        wait_s: how long a level waits at most until all requests of the one before are answered.
        now_s: a clock for that, in seconds.
        open_end: whether the steps are the most that there may be, so that no total is told.
    """

    engine: AnyEngine
    store: RunStore
    clocks: ClockLog
    switch: StopSwitch
    drain_ns: int
    describe: Callable[[Step, LevelOutcome, Path, StopCause], dict[str, Any]]
    progress: Callable[[ProgressEvent], None] | None = None
    boundary: Callable[[], None] | None = None
    monitor: RunMonitor | None = None
    after: Callable[[Step, Mapping[str, Any]], Step | Stop | None] | None = None
    so_far: SoFar | None = None
    wait_s: float = 0.0
    now_s: Callable[[], float] = time.monotonic
    open_end: bool = False
    stopped: Stop | None = field(default=None, init=False)
    _asked: int = field(default=0, init=False)
    _sending: set[int] = field(default_factory=set, init=False)
    _total: int = field(default=0, init=False)
    _followed: int = field(default=0, init=False)
    _closed: tuple[int, float] | None = field(default=None, init=False)
    """The visit that was last seen to send nothing any more, and when."""

    def run(self, steps: Sequence[Step], follow: Callable[[], Step | None] | None = None) -> None:
        """Measure every step; returns early, with everything committed, when the user asked for an end.

        Args:
            steps: what is known beforehand.
            follow: asked for a further step when all before it are committed, until it has none.

        Raises:
            StoreError: the disk did not take what was measured; the levels before are committed.
        """
        waiting = deque(enumerate(steps, start=1))
        self._followed = len(steps)
        queued: deque[_Queued] = deque()
        self._total = len(steps) if follow is None and not self.open_end else 0
        self._tell_boundary()
        try:
            while self._more(waiting, queued, follow):
                self._fill(waiting, queued)
                self._follow(waiting, queued)
                self._tell_boundary()
                ended = queued.popleft()
                # The next level is running by now: this one is committed beside it.
                self._fill(waiting, queued)
                self._go_on(ended, self._commit(ended), waiting, queued)
        except BaseException:
            # Nobody will look at these any more; what they have written stays in their open folders.
            for each in reversed(queued):
                each.level.stop(0)
            raise

    def _more(
        self, waiting: deque[tuple[int, Step]], queued: deque[_Queued], follow: Callable[[], Step | None] | None
    ) -> bool:
        """Whether there is a level to wait for, or to begin; where none is left, one may follow."""
        if queued:
            return True
        if not waiting and not self._ends and follow is not None and (step := follow()) is not None:
            self._followed += 1
            waiting.append((self._followed, step))
        return bool(waiting) and not self._ends

    def _go_on(
        self, ended: _Queued, level: Mapping[str, Any] | None, waiting: deque[tuple[int, Step]], queued: deque[_Queued]
    ) -> None:
        """Do what a committed level calls for."""
        if self.after is None or level is None or self._ends:
            return
        found = self.after(ended.step, level)
        if isinstance(found, Step):
            # Levels that are with the engine already come before it.
            waiting.appendleft((ended.position, found))
        else:
            self._obey(found, queued)

    @property
    def _ends(self) -> bool:
        """Whether no further level is to begin: the user or a rule asked for the end."""
        return bool(self.switch.asked) or self.stopped is not None

    def _fill(self, waiting: deque[tuple[int, Step]], queued: deque[_Queued]) -> None:
        """Hand levels to the engine ahead of time: one that follows at once has to be there when the one before closes.

        Only levels that still send count: answers may take longer than the next levels last.
        """
        while waiting and not self._ends:
            follows = waiting[0][1].follows_at_once
            ahead = sum(each.level.poll()["state"] in _SENDING for each in queued) if follows else len(queued)
            if ahead >= (AHEAD if follows else 1) or self._waits(queued):
                return
            position, step = waiting.popleft()
            queued.append(_Queued(position, step, self._queue(step)))

    def _waits(self, queued: Sequence[_Queued]) -> bool:
        """Whether the next level has to wait: the one before still sends, or has had less than its time for answers."""
        if not self.wait_s or not queued:
            return False
        last = queued[-1].level
        if last.poll()["state"] in _SENDING:
            return True
        if self._closed is None or self._closed[0] != last.visit:
            self._closed = last.visit, self.now_s()
        return self.now_s() - self._closed[1] < self.wait_s

    def _queue(self, step: Step) -> AnyLevel:
        visit = self.store.next_visit()
        noted = {"setting": dict(step.setting), "step": step.index}
        folder = self.store.open_level(visit, noted if step.search is None else {**noted, "search": dict(step.search)})
        plan = {**step.plan, "visit": visit, "dir": str(folder / "records"), "keep_bytes": 0}
        return self.engine.queue(plan, **step.arrays)

    def _follow(self, waiting: deque[tuple[int, Step]], queued: deque[_Queued]) -> None:
        """Wait for the first of the levels, telling of its progress; a wish to stop is passed on to all of them."""
        first = queued[0]
        while not first.level.wait(POLL_S):
            self._pass_stop_on(queued)
            self._fill(waiting, queued)
            self.clocks.tick()
            seen = [(each, each.level.poll()) for each in queued]
            self._tell_running(seen)
            self._look(seen, queued)
        self._pass_stop_on(queued)

    def _tell_running(self, seen: Sequence[tuple[_Queued, Progress]]) -> None:
        """Tell of the newest level that has begun: one before it may drain for as long as its answers take."""
        if self.progress is None:
            return
        begun = [each for each in seen if each[1]["state"] != "queued"] or seen[:1]
        *before, newest = [
            self._event("running", each, progress, so_far=self._so_far(each)) for each, progress in begun
        ]
        self.progress(replace(newest, before=tuple(before)))

    def _look(self, seen: Sequence[tuple[_Queued, Progress]], queued: Sequence[_Queued]) -> None:
        if self.monitor is None:
            return
        for each, progress in seen:
            self._obey(self.monitor.look(each.level, each.position, each.step.setting, progress), queued)

    def _obey(self, stop: Stop | None, queued: Sequence[_Queued]) -> None:
        """A rule of the monitor has come true: end what runs, and begin nothing more."""
        if stop is None or self._ends:
            return
        self.stopped = stop
        self._note_sending(queued)
        for each in reversed(queued):
            each.level.stop(self.drain_ns, stop.reason)

    def _note_sending(self, queued: Sequence[_Queued]) -> None:
        """Note which levels an end cuts short: of those that have closed it only cuts off the last requests."""
        self._sending = {each.level.visit for each in queued if each.level.poll()["state"] in _SENDING}

    def _tell_boundary(self) -> None:
        if self.boundary is not None:
            self.boundary()

    def _event(
        self,
        kind: Literal["running", "level"],
        queued: _Queued,
        progress: Progress,
        level: Mapping[str, Any] | None = None,
        so_far: Mapping[str, Any] | None = None,
    ) -> ProgressEvent:
        step = queued.step
        place = (kind, queued.position, self._total)
        why = step.search if step.checks is None else {"why": "check"}
        return ProgressEvent(*place, step.setting, progress, level, step.index, search=why, so_far=so_far)

    def _so_far(self, queued: _Queued, *, last: bool = False) -> Mapping[str, Any] | None:
        if self.so_far is None or self.progress is None:
            return None
        folder, sampled = self.store.open_path(queued.level.visit), int(queued.step.plan.get("sample") or 1)
        return self.so_far.look(queued.level, folder, sampled=sampled, last=last)

    def _pass_stop_on(self, queued: Sequence[_Queued]) -> None:
        asked = min(self.switch.asked, 2)
        if asked == self._asked:
            return
        if self._asked == 0 and self.stopped is None:
            self._note_sending(queued)
        self._asked = asked
        # The last in line first, so that none of them starts when the one before it stops.
        for each in reversed(queued):
            each.level.stop(self.drain_ns if asked == 1 else 0)

    def _commit(self, ended: _Queued) -> dict[str, Any] | None:
        """Commit a level that has ended, and return its ``level.json``; None for one that the end left without any."""
        visit, step = ended.level.visit, ended.step
        outcome = ended.level.outcome()
        if self.monitor is not None:
            self.monitor.ended(ended.level, outcome)
        sending = visit in self._sending
        cause = stop_cause_of(outcome, user=self.switch.asked > 0, rule=self.stopped, sending=sending)
        if self._ends and outcome["due"] == 0 and self.store.discard_if_empty(visit):
            return None
        why: dict[str, Any] = {} if step.search is None else {"search": dict(step.search)}
        why |= {} if step.checks is None else {"checks": step.checks}
        found = self.describe(step, outcome, self.store.open_path(visit), cause)
        level: dict[str, Any] = {"visit": visit, "step": step.index, **why, **found}
        lost = outcome["write_error"]
        so_far = self._so_far(ended, last=True)
        try:
            self.store.commit_level(visit, level, outcome["histograms"])
            self.clocks.write(self.store.path / "clocks.parquet")
        except StoreError as error:
            raise self._stopped(error.what, error.where) from error
        if lost is not None and outcome.get("hosts"):
            todo = f"the levels before are kept; join hosts again and go on with --resume {self.store.path}"
            raise StoreError(lost, str(self.store.path), todo)
        if lost is not None:
            raise self._stopped(f"the records could not be written: {lost}", None)
        if self.progress is not None:
            self.progress(self._event("level", ended, ended.level.poll(), level, so_far))
        return level

    def _stopped(self, what: str, where: str | None) -> StoreError:
        todo = f"the levels before are kept; make room and go on with --resume {self.store.path}"
        return StoreError(what, where or str(self.store.path), todo)
