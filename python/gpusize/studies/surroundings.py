"""The steps around a run: set up, keep a server running, wait until it is ready, tear down."""

from __future__ import annotations

from typing import Final

from gpusize.base.clock import MACHINE, Clock
from gpusize.base.errors import GpusizeError, MeasuredNo
from gpusize.base.process_group import Started, TookTooLong, log_tail, run_command, start, stop
from gpusize.base.text import shown
from gpusize.base.urls import is_ok
from gpusize.studies.combination import Plan
from gpusize.studies.spec import Study

__all__ = ["Surroundings"]

_POLL_S: Final = 0.5


class Surroundings:
    """What stands around the run of one combination.

    Args:
        study: for its timeouts.
        plan: the combination.
        clock: what the time until the server is ready is of.
    """

    def __init__(self, study: Study, plan: Plan, *, clock: Clock = MACHINE) -> None:
        self._timeouts_s = study.timeouts_s
        self._plan = plan
        self._clock = clock
        self._serving: Started | None = None

    def set_up(self) -> None:
        """Run the setup commands, start the server and wait until it is ready.

        Raises:
            MeasuredNo: a command failed or took too long, the server ended, or it did not become ready.
            EnvironmentLacks: a program is missing.
        """
        plan = self._plan
        for words in plan.setup:
            self._must("setup", words)
        if plan.serve is not None:
            self._serving = start(plan.serve, plan.work / "serve.log")
        if plan.ready is not None:
            self._wait_ready(plan.ready)
        self.check()

    def check(self) -> None:
        """Look whether the server that was started still runs.

        Raises:
            MeasuredNo: it has ended.
        """
        status = None if self._serving is None else self._serving.process.poll()
        if status is not None:
            raise MeasuredNo(f"the server ended with status {status}", None, self._last_words("serve"))

    def tear_down(self) -> str | None:
        """Run all teardown commands, whatever becomes of each, and end the server; what went wrong, or None."""
        wrong: list[str] = []
        for words in self._plan.teardown:
            try:
                self._must("teardown", words)
            except GpusizeError as problem:
                wrong.append(str(problem))
        if self._serving is not None:
            stop(self._serving)
            self._serving = None
        return "; ".join(wrong) or None

    def _must(self, step: str, words: list[str]) -> None:
        log = self._plan.work / f"{step}.log"
        code = run_command(words, log, self._timeouts_s[step], step=step)
        if code:
            what = f"{step} ended with status {code}: {shown(' '.join(words), 120)}"
            raise MeasuredNo(what, None, self._last_words(step))

    def _last_words(self, step: str) -> str:
        log = self._plan.work / f"{step}.log"
        tail = log_tail(log)
        return f"its last output: {tail}" if tail else f"see {log}"

    def _wait_ready(self, ready: str | list[str]) -> None:
        timeout_s = self._timeouts_s["ready"]
        until_s = self._clock.now_s() + timeout_s
        while not (is_ok(ready) if isinstance(ready, str) else self._succeeds(ready, until_s)):
            self.check()
            if self._clock.now_s() >= until_s:
                what = ready if isinstance(ready, str) else " ".join(ready)
                last = self._last_words("setup" if self._serving is None else "serve")
                raise MeasuredNo(f"it was not ready within {timeout_s:g} s", shown(what, 200), last)
            self._clock.sleep(_POLL_S)

    def _succeeds(self, words: list[str], until_s: float) -> bool:
        log = self._plan.work / "ready.log"
        left_s = max(until_s - self._clock.now_s(), 0.0)
        try:
            return run_command(words, log, left_s, step="ready", check=self.check) == 0
        except TookTooLong:
            return False
