"""Pull series from a Prometheus server into a folder: what is there already is not asked for again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Any, Final

from gpusize.base.clock import MACHINE, Clock
from gpusize.base.errors import TargetError, UsageError
from gpusize.observe.series.answer import samples_of
from gpusize.observe.series.ask import Asker, NotAllowed, Refused, TooMuch, Unreachable
from gpusize.observe.series.definition import Definition
from gpusize.observe.series.folder import Part, SeriesFolder
from gpusize.observe.series.intervals import Interval
from gpusize.observe.series.plan import SAMPLES, Question, chunks, first_chunk, questions, split
from gpusize.observe.series.server_clock import ServerClock, read_clock

__all__ = ["MOST_PARALLEL", "SETTLED_S", "Failed", "Pulled", "Wanted", "clock_of", "pull_into"]

SETTLED_S: Final = 15.0
"""A sample has the time at which its scrape began, and is stored when that ends: what is younger may still come."""
MOST_PARALLEL: Final = 16


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for.

    Attributes:
        definitions: by ``preset/name``.
        interval: in ms since 1970 by the server's clock, open on the left.
        match: label matchers for the presets' series.
        step_ms: between the times at which expressions are evaluated.
        parallel: most questions at a time.
    """

    definitions: Mapping[str, Definition]
    interval: Interval
    match: str | None = None
    step_ms: int = 15_000
    parallel: int = 4


@dataclass(frozen=True, slots=True)
class Failed:
    """What could not be pulled: which series, when, and why."""

    keys: tuple[str, ...]
    interval: Interval
    why: str


@dataclass(slots=True)
class Pulled:
    """How a pull went.

    Attributes:
        until_ms: how far the server had it all.
        failed: what could not be had.
        requests: that were sent.
        asked: how many of them asked for series.
        fatal: why it ended early, where it did.
        interrupted: whether Ctrl-C ended it.
    """

    until_ms: int
    failed: list[Failed] = field(default_factory=list)
    requests: int = 0
    asked: int = 0
    fatal: str | None = None
    interrupted: bool = False


def clock_of(asker: Asker, wall_ns: Callable[[], int] = time.time_ns) -> ServerClock:
    """The server's clock; so whether it answers at all.

    Args:
        asker: asks the server.
        wall_ns: our clock, in ns since 1970.

    Raises:
        TargetError: it does not answer, refuses us, or is no Prometheus.
    """
    try:
        return read_clock(asker, wall_ns)
    except (Unreachable, NotAllowed, Refused, TooMuch) as problem:
        raise TargetError(str(problem), asker.name, "nothing was pulled") from None


def pull_into(
    folder: SeriesFolder,
    asker: Asker,
    wanted: Wanted,
    server: ServerClock,
    *,
    wait_for_end: bool = False,
    clock: Clock = MACHINE,
    wall_ns: Callable[[], int] = time.time_ns,
    progress: Callable[[str], None] | None = None,
) -> Pulled:
    """Ask for what the folder has not, and keep it.

    Args:
        folder: held for writing.
        asker: asks the server.
        wanted: what.
        server: its clock.
        wait_for_end: wait until the server has all of the interval; else it is cut where the server is.
        clock: of waits.
        wall_ns: our clock, in ns since 1970.
        progress: told in words how far it is.

    Raises:
        UsageError: the interval has not begun by the server's clock; the folder has a series asked for otherwise.
        StoreError: the folder cannot be written.
    """
    low, high = wanted.interval
    until = _until_ms(server, wall_ns)
    say = progress or (lambda _: None)
    if wait_for_end and until < high:
        say(f"waiting {(high - until) / 1e3:.0f} s for the end of the range")
        clock.sleep((high - until) / 1e3)
        until = _until_ms(server, wall_ns)
    if min(until, high) <= low:
        raise UsageError("it has not begun yet by the server's clock", "range", "give another one")
    until = min(until, high)
    asked = questions(wanted.definitions, (low, until), folder, match=wanted.match, step_ms=wanted.step_ms)
    work = _Work(folder, asker, say)
    interrupted = False
    try:
        work.run(asked, wanted.parallel)
    except KeyboardInterrupt:
        asker.stop()
        interrupted = True
    return Pulled(until, work.failed, asker.requests, work.asked, work.fatal, interrupted)


def _until_ms(server: ServerClock, wall_ns: Callable[[], int]) -> int:
    return int((wall_ns() + server.offset_ns - server.uncertainty_ns) // 1_000_000 - SETTLED_S * 1e3)


_Job = tuple[Question, tuple[Question, Interval] | None]
"""A question, and what is asked when its answer has told how many samples there are: of which, for which time."""


class _Work:
    """Questions under way, and what comes of them. Answers are kept by the thread that runs it, one after the other."""

    def __init__(self, folder: SeriesFolder, asker: Asker, progress: Callable[[str], None]) -> None:
        self._folder = folder
        self._asker = asker
        self._progress = progress
        self._reading = threading.Lock()
        self.failed: list[Failed] = []
        self.fatal: str | None = None
        self.asked = 0
        self._hopeless: dict[str, str] = {}
        self._done_ms = self._all_ms = 0

    def run(self, whole: Sequence[Question], parallel: int) -> None:
        """Ask them all."""
        self._all_ms = sum(each.length_ms for each in whole)
        todo: list[_Job] = []
        for each in whole:
            first, rest = first_chunk(each)
            todo.append((first, None if rest is None else (each, rest)))
        todo.reverse()
        if parallel == 1:
            while (job := self._next(todo)) is not None:
                todo += reversed(self._after(*job, self._answer(job[0])))
            return
        pool = _Pool(parallel, self._answer)
        running: dict[int, _Job] = {}
        number = 0
        try:
            while todo or running:
                while len(running) < parallel and (job := self._next(todo)) is not None:
                    running[number] = job
                    pool.ask(number, job[0])
                    number += 1
                if running:
                    done, outcome = pool.answer()
                    todo += reversed(self._after(*running.pop(done), outcome))
        finally:
            pool.end()

    def _next(self, todo: list[_Job]) -> _Job | None:
        """The next question, without series of which the server does not give the least; None after the last one."""
        while todo:
            question, then = todo.pop()
            lost = tuple(each for each in question.wanted if each[0] in self._hopeless)
            if not lost:
                return question, then
            self._fail(replace(question, wanted=lost), self._hopeless[lost[0][0]])
            left = tuple(each for each in question.wanted if each[0] not in self._hopeless)
            if left:
                return replace(question, wanted=left), then
            if then is not None:
                self._fail(replace(then[0], interval=then[1]), self._hopeless[lost[0][0]])
        return None

    def _answer(self, question: Question) -> Any:
        """Samples and warnings, or what went wrong. Runs in any thread."""
        request = question.request()
        if request is None:
            return None
        if self.fatal is not None:
            return Unreachable(self.fatal)
        try:
            answer = self._asker.ask(*request)
            with self._reading:
                return samples_of(answer.data, [each for _, each in question.wanted], question.interval[0]), answer
        except (Unreachable, NotAllowed, Refused, TooMuch) as problem:
            return problem

    def _after(self, question: Question, then: tuple[Question, Interval] | None, outcome: Any) -> list[_Job]:
        """Keep what came; what is to be asked next."""
        self.asked += outcome is not None
        more: list[_Job] = []
        samples = 0
        if outcome is None:
            self._done_ms += question.length_ms
        elif isinstance(outcome, TooMuch):
            halves = split(question)
            if halves:
                more = [(half, None) for half in halves]
                samples = 4 * SAMPLES
            else:
                self._fail(question, str(outcome))
                self._hopeless |= dict.fromkeys((key for key, _ in question.wanted), str(outcome))
        elif isinstance(outcome, Exception):
            self._fail(question, str(outcome))
            if not isinstance(outcome, Refused):
                self.fatal = self.fatal or str(outcome)
                self._asker.stop()
        else:
            found, answer = outcome
            part = Part(question.asked(), question.interval, self._asker.name, found.dropped, answer.warnings)
            self._folder.add(found.frame, part)
            samples = found.frame.height
            self._done_ms += question.length_ms
            share = min(100, 100 * self._done_ms // max(1, self._all_ms))
            self._progress(f"pulled {share} % in {self.asked} request{'' if self.asked == 1 else 's'}")
        if then is not None:
            whole, rest = then
            if self.fatal is not None or isinstance(outcome, Refused):
                self._fail(replace(whole, interval=rest), str(outcome))
            else:
                more += [(each, None) for each in chunks(whole, rest, samples)]
        return more

    def _fail(self, question: Question, why: str) -> None:
        self._done_ms += question.length_ms
        keys = tuple(key for key, _ in question.wanted)
        self.failed.append(Failed(keys, question.interval, why))


class _Pool:
    """Threads that ask. Nobody waits for one that is stuck: they end with the process."""

    def __init__(self, threads: int, ask: Callable[[Question], Any]) -> None:
        self._todo: SimpleQueue[tuple[int, Question] | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self._ask = ask
        self._threads = threads
        for _ in range(threads):
            threading.Thread(target=self._work, name="gpusize-pull", daemon=True).start()

    def ask(self, number: int, question: Question) -> None:
        """Have a question asked; its answer comes with the number."""
        self._todo.put((number, question))

    def answer(self) -> tuple[int, Any]:
        """The next answer, whichever question it is to."""
        number, outcome = self._done.get()
        if isinstance(outcome, _Broken):
            raise outcome.error
        return number, outcome

    def end(self) -> None:
        """Let the threads end that have nothing to do."""
        for _ in range(self._threads):
            self._todo.put(None)

    def _work(self) -> None:
        while (work := self._todo.get()) is not None:
            number, question = work
            try:
                self._done.put((number, self._ask(question)))
            except Exception as error:  # noqa: BLE001 -- it is raised where answers are taken
                self._done.put((number, _Broken(error)))


@dataclass(frozen=True, slots=True)
class _Broken:
    """What broke in a thread."""

    error: Exception
