"""The text form of stages and think times: one line, read from left to right, with the column in every error."""

from __future__ import annotations

import re
from typing import Final

from gpusize.base.errors import UsageError
from gpusize.base.units import parse_duration_s
from gpusize.workload.load.stages import PROCESSES, Bursts, Stage
from gpusize.workload.load.think import Think

__all__ = ["parse_stages", "parse_think"]

_WORD: Final = re.compile(
    r"\s*(?:(?P<to>\.\.)|(?P<number>\d+(?:\.\d+)?|\.\d+)|(?P<word>[^\W\d]+)|(?P<mark>[/@,()])|(?P<end>$))"
)
_DURATION: Final = re.compile(r"(?:(?:\d+(?:\.\d+)?|\.\d+)\s?[a-zA-Zµμ]+)+|\d+(?:\.\d+)?")
_PER: Final = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_STAGE: Final = "write a stage as 2/s@10m, 1/s..50/s@5m or 8@1m"
_THINK: Final = "write 2s, exp(2s), uniform(1s,3s), lognormal(2s,0.5) or recorded"
_MOST_STAGES: Final = 10_000


def parse_stages(text: str) -> tuple[Stage, ...]:
    """The stages that a text describes, such as ``0.5/s@10m, 1/s..50/s gamma(0.5)@5m`` or ``8@1m, 8..64@5m``.

        stages  = stage { "," stage } [ "," ]
        stage   = ( rate [ ".." rate ] { bursts | process } | count [ ".." count ] ) "@" duration
        bursts  = "burst" rate "for" duration "every" duration
        process = "constant" | "poisson" | "gamma" [ "(" number ")" ]
        rate    = number "/" ( "s" | "m" | "min" | "h" )

    Raises:
        UsageError: the text does not follow the grammar, or a value is invalid; it points at the column.
    """
    return _Parser(text, "stages").stages()


def parse_think(text: str) -> Think:
    """The think time that a text describes: a duration, a distribution of durations, or ``recorded``.

    Raises:
        UsageError: neither of them; it points at the column.
    """
    return _Parser(text, "think").think()


class _Parser:
    """Recursive descent over one text; keeps the column for the error."""

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        self.at = 0
        self.kind = ""
        self.word = ""
        self.column = 0
        self.next()

    def fail(self, what: str, todo: str, column: int | None = None) -> UsageError:
        at = self.column if column is None else column
        start = self.text.rfind("\n", 0, at) + 1
        line = self.text[start:].split("\n", 1)[0]
        pointer = f"{todo}\n  {line}\n  {' ' * (at - start)}^"
        lines = f"line {self.text.count(chr(10), 0, at) + 1}, " if "\n" in self.text.rstrip() else ""
        return UsageError(what, f"{self.name}, {lines}column {at - start + 1}", pointer)

    def next(self) -> str:
        """Step to the next token; returns the one that was current."""
        before = self.word
        found = _WORD.match(self.text, self.at)
        if found is None:
            self.column = len(self.text) - len(self.text[self.at :].lstrip())
            raise self.fail(f"unexpected {self.text[self.column]!r}", self._form)
        self.kind = found.lastgroup or "end"
        self.word = found[self.kind]
        self.column = found.start(self.kind)
        self.at = found.end()
        return before

    @property
    def _form(self) -> str:
        return _STAGE if self.name == "stages" else _THINK

    def take(self, wanted: str, what: str, todo: str) -> None:
        """Step over a token that has to be there."""
        if self.word != wanted:
            raise self.fail(what, todo)
        self.next()

    def stages(self) -> tuple[Stage, ...]:
        found: list[Stage] = []
        while self.kind != "end" or not found:
            if len(found) == _MOST_STAGES:
                raise self.fail(f"more than {_MOST_STAGES} stages", "take fewer")
            start = self.column
            stage = self._stage()
            if found and found[0].kind != stage.kind:
                todo = "write all of them as rates (8/s@1m) or all as concurrencies (8@1m)"
                raise self.fail("rates and concurrencies are mixed", todo, start)
            found.append(stage)
            if self.kind != "end":
                self.take(",", f"{self.word!r} is not expected here", "put a comma between stages")
        return tuple(found)

    def _stage(self) -> Stage:
        if self.kind != "number":
            raise self.fail("a stage is missing" if self.kind == "end" else f"{self.word!r} is not a rate", _STAGE)
        column = self.column
        value = self._value()
        to = None
        if self.kind == "to":
            self.next()
            to_column = self.column
            if self.kind != "number":
                raise self.fail("the end of the ramp is missing", "write it as in 1/s..50/s@5m")
            to = self._value()
            if to[1] != value[1]:
                raise self.fail("a ramp goes from a rate to a count", "write both with /s, or none", to_column)
        process, shape, bursts = self._clauses(is_rate=value[1], ramp=to is not None)
        self.take("@", "the duration is missing", _STAGE)
        duration_column = self.column
        duration_s = self._duration()
        end = value if to is None else to
        try:
            if value[1]:
                return Stage(value[0], end[0], duration_s, process=process, shape=shape, bursts=bursts)
            return Stage(value[0], end[0], duration_s, kind="closed")
        except UsageError as problem:
            at = duration_column if problem.where == "duration" else column
            raise self.fail(problem.what, problem.todo or _STAGE, at) from None

    def _value(self) -> tuple[float, bool]:
        """A rate per second and True, or a count and False."""
        column, digits = self.column, self.next()
        if self.word != "/":
            if not digits.isdecimal():
                raise self.fail(f"{digits} is not a count of requests", "write a rate as 0.5/s, a count as 8", column)
            return float(digits), False
        self.next()
        per = _PER.get(self.word)
        if per is None:
            raise self.fail(f"{self.word!r} is not a unit of time", "write the rate as 20/s, 300/m or 90/h")
        self.next()
        return float(digits) / per, True

    def _clauses(self, *, is_rate: bool, ramp: bool) -> tuple[str | None, float | None, Bursts | None]:
        process: str | None = None
        shape: float | None = None
        bursts: Bursts | None = None
        while self.kind == "word":
            if not is_rate:
                raise self.fail(f"{self.word!r} belongs to a rate", "a stage of concurrency is 8@1m or 8..64@5m")
            if self.word == "burst" and bursts is None:
                if ramp:
                    raise self.fail("a ramp cannot have bursts", "leave out one of them")
                bursts = self._bursts()
            elif self.word in PROCESSES and process is None:
                process = self.next()
                shape = self._shape() if process == "gamma" else None
            elif self.word in PROCESSES or self.word == "burst":
                raise self.fail(f"{self.word!r} is given twice", "give it once")
            else:
                known = ", ".join(PROCESSES)
                raise self.fail(f"{self.word!r} is not an arrival process", f"write one of {known}, or bursts")
        return process, shape, bursts

    def _bursts(self) -> Bursts:
        form = "write bursts as in 10/s burst 100/s for 1s every 10s@5m"
        column = self.column
        self.next()
        if self.kind != "number":
            raise self.fail("the rate of the bursts is missing", form)
        rate_column = self.column
        rate, is_rate = self._value()
        if not is_rate:
            raise self.fail("bursts have a rate", form, rate_column)
        self.take("for", "the length of a burst is missing", form)
        length_s = self._duration()
        self.take("every", "the period of the bursts is missing", form)
        every_s = self._duration()
        try:
            return Bursts(rate, length_s, every_s)
        except UsageError as problem:
            raise self.fail(problem.what, problem.todo or form, column) from None

    def _shape(self) -> float | None:
        form = "write it as gamma(0.5): the burstiness, 1 is Poisson, below 1 is burstier"
        if self.word != "(":
            return None
        self.next()
        if self.kind != "number" or float(self.word) <= 0:
            raise self.fail(f"{self.word!r} is not a burstiness", form)
        shape = float(self.next())
        self.take(")", "a bracket is not closed", form)
        return shape

    def _duration(self) -> float:
        found = _DURATION.match(self.text, self.column) if self.kind == "number" else None
        if found is None:
            raise self.fail("a duration is missing", "write it as 500ms, 10s, 2m or 1h30m")
        try:
            seconds = parse_duration_s(found[0])
        except UsageError as problem:
            raise self.fail(problem.what, problem.todo or "") from None
        self.at = found.end()
        self.next()
        return seconds

    def think(self) -> Think:
        if self.kind == "number":
            made = Think("fixed", self._duration())
        elif self.word == "recorded":
            self.next()
            made = Think("recorded")
        else:
            made = self._distribution()
        if self.kind != "end":
            raise self.fail(f"{self.word!r} is not expected here", _THINK)
        return made

    def _distribution(self) -> Think:
        column, name = self.column, self.word
        if name not in ("exp", "uniform", "lognormal"):
            raise self.fail(f"{name!r} is not a think time" if name else "a think time is missing", _THINK)
        self.next()
        self.take("(", "a bracket is missing", _THINK)
        first = self._duration()
        second: float | None = None
        if name != "exp":
            self.take(",", "a second value is missing", _THINK)
            if name == "uniform":
                second = self._duration()
            elif self.kind == "number":
                second = float(self.next())
            else:
                raise self.fail("the spread is missing", "write it as lognormal(2s,0.5)")
        self.take(")", "a bracket is not closed", _THINK)
        kind = {"exp": "exponential"}.get(name, name)
        try:
            return Think(kind, first, second)
        except UsageError as problem:
            raise self.fail(problem.what, problem.todo or _THINK, column) from None
