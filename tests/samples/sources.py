"""Sources of samples that say what a test wants, and a clock that a test moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpusize.observe.metrics.prometheus_text import SeriesKey
from gpusize.observe.metrics.reading import Reading, SourceFailed

S = 1_000_000_000


class Clock:
    """Time stands still unless someone moves it."""

    def __init__(self, now_ns: int = 0) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns


class Scripted:
    """Gives one answer after another, then the last one again; an exception among them is raised."""

    def __init__(
        self,
        clock: Callable[[], int],
        *answers: Mapping[SeriesKey, float] | Exception,
        name: str = "http://scripted/metrics",
        before: Callable[[], None] = lambda: None,
        opens: Exception | None = None,
    ) -> None:
        self.name = name
        self.asked = 0
        self.closed = False
        self.said: list[str] = []
        self._clock = clock
        self._answers = list(answers)
        self._before = before
        self._opens = opens

    def open(self) -> None:
        if self._opens is not None:
            raise self._opens

    def read(self) -> Reading:
        self._before()
        answer = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        if isinstance(answer, Exception):
            raise answer
        return Reading(self._clock(), 2_000_000, answer)

    def notes(self) -> list[str]:
        return self.said

    def close(self) -> None:
        self.closed = True


def failed(reason: str, *, final: bool = False) -> SourceFailed:
    return SourceFailed(reason, final=final)
