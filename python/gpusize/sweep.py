"""Drives the engine through the levels of a run and commits each when it ends."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from gpusize.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from gpusize.clocks import ClockLog
    from gpusize.engine import AnyEngine, AnyLevel, LevelOutcome, Progress
    from gpusize.interrupt import StopSwitch
    from gpusize.store import RunStore

__all__ = ["ProgressEvent", "Step", "Sweep"]

POLL_S: Final = 0.1
"""Time between two looks at a running level: ten per second is what a display can show."""


@dataclass(frozen=True, slots=True)
class Step:
    """One planned level.

    Attributes:
        index: its position in ``run.json``'s ``levels``.
        setting: as ``level.json`` names it.
        plan: the engine's LevelPlan, without ``visit``, ``dir`` and ``keep_bytes``.
    """

    index: int
    setting: Mapping[str, Any]
    plan: Mapping[str, Any]

    @property
    def follows_at_once(self) -> bool:
        """Whether the level takes the running load over from the one before, without a pause between them."""
        closed = self.plan["load"].get("closed")
        return closed is None or closed["start"] == "staggered"


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """What a progress callback is told.

    Attributes:
        kind: ``running`` about ten times a second, ``level`` when a level has been committed.
        position: which level of those still to do, from 1.
        total: how many levels there are to do.
        setting: the level's setting.
        progress: the engine's view of the level.
        level: the contents of ``level.json``; None with ``running``.
    """

    kind: Literal["running", "level"]
    position: int
    total: int
    setting: Mapping[str, Any]
    progress: Progress
    level: Mapping[str, Any] | None = None


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
            and whether the user cancelled it.
        progress: told how the run goes; runs on the thread that drives the sweep.
        boundary: told before the first level and after each one, when what is measured beside takes a reading.
    """

    engine: AnyEngine
    store: RunStore
    clocks: ClockLog
    switch: StopSwitch
    drain_ns: int
    describe: Callable[[Step, LevelOutcome, Path, bool], dict[str, Any]]
    progress: Callable[[ProgressEvent], None] | None = None
    boundary: Callable[[], None] | None = None
    _asked: int = field(default=0, init=False)
    _total: int = field(default=0, init=False)

    def run(self, steps: Sequence[Step]) -> None:
        """Measure every step; returns early, with everything committed, when the user asked for an end.

        Raises:
            StoreError: the disk did not take what was measured; the levels before are committed.
        """
        waiting = deque(enumerate(steps, start=1))
        queued: deque[_Queued] = deque()
        self._total = len(steps)
        self._tell_boundary()
        try:
            while (waiting and not self.switch.asked) or queued:
                self._fill(waiting, queued)
                self._follow(queued)
                self._tell_boundary()
                ended = queued.popleft()
                # The next level is running by now: this one is committed beside it.
                self._fill(waiting, queued)
                self._commit(ended)
        except BaseException:
            # Nobody will look at these any more; what they have written stays in their open folders.
            for each in reversed(queued):
                each.level.stop(0)
            raise

    def _fill(self, waiting: deque[tuple[int, Step]], queued: deque[_Queued]) -> None:
        while waiting and not self.switch.asked and len(queued) < (2 if waiting[0][1].follows_at_once else 1):
            position, step = waiting.popleft()
            queued.append(_Queued(position, step, self._queue(step)))

    def _queue(self, step: Step) -> AnyLevel:
        visit = self.store.next_visit()
        folder = self.store.open_level(visit, {"setting": dict(step.setting), "step": step.index})
        plan = {**step.plan, "visit": visit, "dir": str(folder / "records"), "keep_bytes": 0}
        return self.engine.queue(plan)

    def _follow(self, queued: Sequence[_Queued]) -> None:
        """Wait for the first of the levels, telling of its progress; a wish to stop is passed on to all of them."""
        first = queued[0]
        while not first.level.wait(POLL_S):
            self._pass_stop_on(queued)
            self.clocks.tick()
            if self.progress is not None:
                self.progress(self._event("running", first, None))
        self._pass_stop_on(queued)

    def _tell_boundary(self) -> None:
        if self.boundary is not None:
            self.boundary()

    def _event(
        self, kind: Literal["running", "level"], queued: _Queued, level: Mapping[str, Any] | None
    ) -> ProgressEvent:
        progress = queued.level.poll()
        return ProgressEvent(kind, queued.position, self._total, queued.step.setting, progress, level)

    def _pass_stop_on(self, queued: Sequence[_Queued]) -> None:
        asked = min(self.switch.asked, 2)
        if asked == self._asked:
            return
        self._asked = asked
        # The last in line first, so that none of them starts when the one before it stops.
        for each in reversed(queued):
            each.level.stop(self.drain_ns if asked == 1 else 0)

    def _commit(self, ended: _Queued) -> None:
        visit, step = ended.level.visit, ended.step
        outcome = ended.level.outcome()
        cancelled = self.switch.asked > 0 and outcome["stop_reason"] in ("stopped", "cancelled")
        if cancelled and outcome["rows"] == 0 and self.store.discard_if_empty(visit):
            return
        level = {"step": step.index, **self.describe(step, outcome, self.store.open_path(visit), cancelled)}
        lost = outcome["write_error"]
        try:
            self.store.commit_level(visit, level, outcome["histograms"])
            self.clocks.write(self.store.path / "clocks.parquet")
        except StoreError as error:
            raise self._stopped(error.what, error.where) from error
        if lost is not None:
            raise self._stopped(f"the records could not be written: {lost}", None)
        if self.progress is not None:
            self.progress(self._event("level", ended, level))

    def _stopped(self, what: str, where: str | None) -> StoreError:
        todo = f"the levels before are kept; make room and go on with --resume {self.store.path}"
        return StoreError(what, where or str(self.store.path), todo)
