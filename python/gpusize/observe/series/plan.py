"""Which questions pull what is missing: names that miss the same time in one, time in chunks that the server gives."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpusize.observe.series.definition import Definition
from gpusize.observe.series.folder import SeriesFolder
from gpusize.observe.series.intervals import Interval, cut, without
from gpusize.observe.series.presets import OWN

__all__ = [
    "FIRST_MS",
    "MOST_POINTS",
    "SAMPLES",
    "Question",
    "asked_as",
    "chunks",
    "first_chunk",
    "questions",
    "split",
]

MOST_POINTS: Final = 10_000
"""Of one series in one answer of ``query_range``: servers give 11,000."""
SAMPLES: Final = 200_000
"""In one answer, by what the one before had."""
FIRST_MS: Final = 600_000
"""The first chunk, which tells how many samples there are."""
LEAST_MS, MOST_MS = 60_000, 7 * 86_400_000


@dataclass(frozen=True, slots=True)
class Question:
    """One question to the server.

    Attributes:
        wanted: what it is about, by ``preset/name``.
        interval: in ms since 1970, open on the left.
        match: label matchers for the presets' series.
        step_ms: between the times at which an expression is evaluated; of a selector 0.
    """

    wanted: tuple[tuple[str, Definition], ...]
    interval: Interval
    match: str | None
    step_ms: int

    @property
    def length_ms(self) -> int:
        """How much time it covers."""
        return self.interval[1] - self.interval[0]

    def asked(self) -> dict[str, str]:
        """How each is asked for, by ``preset/name``."""
        return {key: asked_as(key, each, self.match, self.step_ms) for key, each in self.wanted}

    def request(self) -> tuple[str, dict[str, str]] | None:
        """Path and parameters; None where no step falls into the interval."""
        low, high = self.interval
        if not self.step_ms:
            # An instant query of a range: as they were stored. Open on the left since Prometheus 3, closed before;
            # what lies on the border is the chunk's before, and left out of the answer.
            selector = _selector([each for _, each in self.wanted], _match_of(self.wanted[0], self.match))
            return "/api/v1/query", {"query": f"{selector}[{high - low}ms]", "time": _seconds(high)}
        first = (low // self.step_ms + 1) * self.step_ms
        last = high // self.step_ms * self.step_ms
        if last < first:
            return None
        [(_, each)] = self.wanted
        parameters = {"query": each.promql or "", "start": _seconds(first), "end": _seconds(last)}
        return "/api/v1/query_range", {**parameters, "step": _seconds(self.step_ms)}


def asked_as(key: str, each: Definition, match: str | None, step_ms: int) -> str:
    """How one series is asked for, in words that change when the question does."""
    if each.promql is not None:
        return f"{each.promql} every {step_ms / 1e3:g} s"
    return _selector([each], _match_of((key, each), match))


def questions(
    wanted: Mapping[str, Definition], interval: Interval, folder: SeriesFolder, *, match: str | None, step_ms: int
) -> list[Question]:
    """What is missing of an interval, each for all the time that is: to be cut before it is asked.

    Raises:
        UsageError: the folder has a series that was asked for otherwise.
    """
    groups: dict[tuple[object, ...], list[tuple[str, Definition]]] = {}
    for key, each in wanted.items():
        asked = asked_as(key, each, match, step_ms)
        missing = tuple(without([interval], folder.covered(key, asked)))
        preset = key.partition("/")[0]
        # Series of the user's own go alone: each has matchers of its own, and may be refused alone.
        group = (missing, key if preset == OWN else preset)
        groups.setdefault(group, []).append((key, each))
    return [
        Question(tuple(members), piece, match, 0 if members[0][1].promql is None else step_ms)
        for (missing, _), members in groups.items()
        for piece in missing  # type: ignore[attr-defined]
    ]


def first_chunk(whole: Question) -> tuple[Question, Interval | None]:
    """The last minutes of it, which tell how many samples there are, and the time before them."""
    low, high = whole.interval
    border = max(low, high - _most_ms(whole, FIRST_MS))
    return replace(whole, interval=(border, high)), (low, border) if border > low else None


def chunks(whole: Question, rest: Interval, samples: int) -> Iterator[Question]:
    """The rest of it in pieces that give some `SAMPLES` each, if the others are as those before.

    Args:
        whole: one question.
        rest: the time that is still to be asked for.
        samples: that its last `FIRST_MS` gave.
    """
    length = MOST_MS if not samples else max(LEAST_MS, FIRST_MS * SAMPLES // samples)
    for piece in cut(rest, _most_ms(whole, min(length, MOST_MS))):
        yield replace(whole, interval=piece)


def _most_ms(whole: Question, length: int) -> int:
    return min(length, whole.step_ms * MOST_POINTS) if whole.step_ms else length


def split(question: Question) -> Sequence[Question]:
    """Two questions for half the time each, else for half the names; none where neither can be halved."""
    low, high = question.interval
    middle = (low + high) // 2
    if high - low >= 2 * max(1_000, question.step_ms):
        return replace(question, interval=(low, middle)), replace(question, interval=(middle, high))
    half = len(question.wanted) // 2
    if half:
        return replace(question, wanted=question.wanted[:half]), replace(question, wanted=question.wanted[half:])
    return ()


def _selector(wanted: Iterable[Definition], match: str | None) -> str:
    names = [said.metric for each in wanted for said in each.said()]
    more = f",{match}" if match else ""
    if len(names) == 1:
        return f'{{__name__="{names[0]}"{more}}}'
    return f'{{__name__=~"{"|".join(map(re.escape, names))}"{more}}}'


def _match_of(one: tuple[str, Definition], match: str | None) -> str | None:
    """The matchers that hold for it: the user's own series bring theirs."""
    key, each = one
    return each.match if key.startswith(f"{OWN}/") else match


def _seconds(ms: int) -> str:
    return f"{ms // 1000}.{ms % 1000:03d}"
