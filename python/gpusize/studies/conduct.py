"""Goes through the combinations of a study: sets up, measures, and always tears down."""

from __future__ import annotations

import contextlib
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from gpusize.base.errors import GpusizeError, MeasuredNo
from gpusize.base.interrupt import StopSwitch
from gpusize.records.store import is_run_folder, read_run
from gpusize.studies.combination import Plan, plan_of
from gpusize.studies.spec import Combination, Study
from gpusize.studies.state import StudyState
from gpusize.studies.surroundings import Surroundings

if TYPE_CHECKING:
    from gpusize.measure.sweep import ProgressEvent
    from gpusize.result import Result

__all__ = ["Interrupts", "Measure", "StudyResult", "begun_run", "measure", "measured_none", "run_study", "unfinished"]

Progress = Callable[["ProgressEvent"], None]

INTERRUPTED: Final = 130


class Measure(Protocol):
    """Measures one combination; ``measure`` does it, tests have others."""

    def __call__(
        self,
        options: Mapping[str, Any],
        *,
        command: Sequence[str],
        resume: Path | None,
        stop: StopSwitch,
    ) -> Result:
        """Send the load that the options describe."""
        ...


@dataclass(frozen=True)
class StudyResult:
    """How a study went.

    Args:
        path: its folder; the run folders lie in it.
        entries: as in ``study.json``, for the combinations of the study, in their order.
        cancelled: whether the user ended it.
    """

    path: Path
    entries: Mapping[str, Mapping[str, Any]]
    cancelled: bool = False

    @property
    def failed(self) -> list[str]:
        """Names of combinations that failed, or were not torn down in order."""
        return [
            name
            for name, entry in self.entries.items()
            if entry.get("state") == "failed" or entry.get("teardown_error")
        ]

    @property
    def exit_code(self) -> int:
        """0 when every combination has been measured, 1 when one failed, 130 when the user ended it."""
        if self.cancelled:
            return INTERRUPTED
        return MeasuredNo.exit_code if self.failed else 0

    def run_of(self, name: str) -> Path | None:
        """The run folder of a combination, if it has one."""
        run = self.entries[name].get("run")
        return self.path / run if isinstance(run, str) and is_run_folder(self.path / run) else None


def measure(
    options: Mapping[str, Any],
    *,
    command: Sequence[str],
    resume: Path | None,
    stop: StopSwitch,
    progress: Progress | None = None,
) -> Result:
    """One run in this process, as ``gpusize run`` does it; raises as that does."""
    from gpusize.measure.execute import execute
    from gpusize.options.assemble import spec_from_options

    with spec_from_options(options, command=command, resume=resume) as spec:
        return execute(spec, progress=progress, stop=stop)


def run_study(
    study: Study,
    *,
    resume: bool = False,
    command: Sequence[str] = (),
    say: Callable[[str], None] | None = None,
    measure: Measure = measure,
    interrupts: Interrupts | None = None,
) -> StudyResult:
    """Measure every combination.

    A combination that fails does not keep the others from being measured. Teardown always runs once setup has begun:
    after a failure, an exception, Ctrl-C, and a second Ctrl-C. Ctrl-C ends the study after the teardown.

    Args:
        study: what to do.
        resume: go on with the study in ``study.out``: what is done is skipped, a run that was cut short goes on.
        command: the command line, for the runs' ``run.json``.
        say: told what begins and what went wrong, in one line each.
        measure: measures one combination; for progress, and for tests.
        interrupts: those of the program, which has begun to count them; None: the study's own.

    Raises:
        UsageError: something in the study is invalid; nothing has been started then.
        StoreError: ``study.json`` cannot be written.
    """
    plans = [plan_of(study, each) for each in study.combinations]
    state = StudyState.open(study, resume=resume)
    tell = say or (lambda _: None)
    with Interrupts() if interrupts is None else contextlib.nullcontext(interrupts) as signals:
        conductor = _Conductor(study, state, signals, tell, command, measure)
        for number, plan in enumerate(plans, start=1):
            if state.is_done(plan.combination):
                tell(f"{plan.combination.name}: done before")
                continue
            if signals.asked:
                break
            tell(f"{plan.combination.name}: {number} of {len(plans)}")
            conductor.do(plan)
        cancelled = signals.asked > 0
    entries = {each.name: state.entries[each.name] for each in study.combinations}
    return StudyResult(study.out, entries, cancelled)


def measured_none(result: Result) -> bool:
    """Whether a combination has levels and none was measured to its end: there is nothing to compare with others."""
    return bool(result.levels) and all(level.state != "done" for level in result.levels)


def unfinished(result: Result) -> str | None:
    """Which levels of a combination were not measured to their end, at no visit; None where all were."""
    from gpusize.estimate.level_quality import together

    levels = {(level.concurrency, level.rate): level for level in result.levels}
    done = {(level.concurrency, level.rate) for level in result.levels if level.state == "done"}
    left = [level for load, level in levels.items() if load not in done]
    if not left:
        return None
    states = dict.fromkeys(level.state for level in left)
    each = "; ".join(f"{together([one for one in left if one.state == state])} {state}" for state in states)
    were = "was not measured to its end" if len(left) == 1 else "were not measured to their end"
    return f"{len(left)} of {len(levels)} levels {were}: {each}"


def begun_run(out: Path, plan: Plan) -> Path | None:
    """The run folder of a combination in the study's, from this or an earlier try; the newest of several."""
    found = [path for path in sorted(out.iterdir()) if is_run_folder(path)]
    mine = [path for path in found if read_run(path).get("labels") == plan.labels]
    return mine[-1] if mine else None


@dataclass(frozen=True)
class _Conductor:
    study: Study
    state: StudyState
    interrupts: Interrupts
    tell: Callable[[str], None]
    command: Sequence[str]
    measure: Measure

    def do(self, plan: Plan) -> None:
        """One combination, from setup to teardown."""
        combination, around = plan.combination, Surroundings(self.study, plan)
        begun = self._begun(plan)
        self.state.begin(combination)
        facts: dict[str, Any] = {"state": "failed", "error": "an unexpected error, see the message above"}
        try:
            with self.interrupts.raising():
                around.set_up()
                self._warm_up(plan)
                facts = self._run(plan, begun, around)
        except KeyboardInterrupt:
            facts = {"state": "interrupted"}
        except GpusizeError as problem:
            facts = {"state": "failed", "error": str(problem)}
        finally:
            wrong = self._tear_down(plan, around)
            run = self._begun(plan)
            facts |= {"run": run.name} if run else {}
            facts |= {"teardown_error": wrong} if wrong else {}
            self.state.change(combination, **facts, ended_s=time.time())
        self._report(combination, facts)

    def _report(self, combination: Combination, facts: Mapping[str, Any]) -> None:
        for key in ("error", "teardown_error"):
            if facts.get(key):
                self.tell(f"{combination.name}: {facts[key]}")

    def _warm_up(self, plan: Plan) -> None:
        if plan.warmup is None:
            return
        folder = Path(plan.warmup["out"])
        try:
            result, late = self._timed("warmup", plan.warmup, None)
            if late or result.cancelled:
                self._cut_short("warmup", late=late)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _run(self, plan: Plan, begun: Path | None, around: Surroundings) -> dict[str, Any]:
        result, late = self._timed("run", plan.run, begun)
        if late or result.cancelled:
            self._cut_short("run", late=late)
        around.check()
        try:
            result.report(plots=bool(plan.run.get("plots", True)))
        except GpusizeError as problem:
            self.tell(f"{plan.combination.name}: there is no report: {problem}")
        if measured_none(result):
            return {"state": "failed", "error": unfinished(result)}
        return {"state": "done"}

    def _cut_short(self, step: str, *, late: bool) -> None:
        if late:
            raise MeasuredNo(f"the {step} took longer than {self.study.timeouts_s[step]:g} s", None, None)
        # The run has put in order what it had; a new signal is not to be waited for.
        self.interrupts.asked = max(self.interrupts.asked, 1)
        raise KeyboardInterrupt

    def _timed(self, step: str, options: Mapping[str, Any], begun: Path | None) -> tuple[Result, bool]:
        """The result, and whether the step's time was over before it."""
        switch, late = StopSwitch(), threading.Event()

        def end() -> None:
            late.set()
            switch.ask()

        limit_s = self.study.timeouts_s[step]
        timer = threading.Timer(min(limit_s, threading.TIMEOUT_MAX), end)
        timer.daemon = True
        timer.start()
        try:
            result = self.measure(options, command=self.command, resume=begun, stop=switch)
        finally:
            timer.cancel()
        return result, late.is_set()

    def _tear_down(self, plan: Plan, around: Surroundings) -> str | None:
        if plan.teardown:
            self.tell(f"{plan.combination.name}: teardown")
        return around.tear_down()

    def _begun(self, plan: Plan) -> Path | None:
        return begun_run(self.study.out, plan)


class Interrupts:
    """Inside the block SIGINT and SIGTERM are counted; they raise only where `raising` says that they may.

    Python delivers signals to the main thread only; in any other the block changes nothing.
    """

    def __init__(self) -> None:
        self.asked = 0
        self._may_raise = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._on) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            # A handler that C code had set reads as None and cannot be set again from here.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # type: ignore[arg-type]

    def _on(self, _signal: int, _frame: FrameType | None) -> None:
        self.asked += 1
        if self._may_raise:
            # Once: what follows is the way out, which a second Ctrl-C must not cut short.
            self._may_raise = False
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """Inside, the first signal raises ``KeyboardInterrupt``; also one that came before."""
        self._may_raise = True
        try:
            if self.asked:
                raise KeyboardInterrupt
            yield
        finally:
            self._may_raise = False
