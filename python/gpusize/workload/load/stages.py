"""One stage of a schedule: a rate or a concurrency, held or changed along a straight line, for some time."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal, get_args

from gpusize.base.errors import UsageError
from gpusize.base.given_numbers import MAX_CONCURRENCY, as_number, as_rate, as_seconds, as_whole
from gpusize.base.numeric import within
from gpusize.base.units import format_duration, seconds_to_ns

__all__ = ["PROCESSES", "Bursts", "Process", "Stage", "format_rate", "plain_number", "rate_phases"]

Process = Literal["constant", "poisson", "gamma"]
"""Arrivals at a rate: equal gaps, exponential ones as of many independent users, or gamma distributed ones."""

PROCESSES: Final = get_args(Process)
_FORM: Final = "write bursts as in 10/s burst 100/s for 1s every 10s@5m"


@dataclass(frozen=True)
class Bursts:
    """Periodic bursts: every ``every_s`` the rate is ``rate`` for the last ``length_s`` of the period.

    Args:
        rate: requests per second within a burst.
        length_s: length of a burst.
        every_s: length of a period.

    Raises:
        UsageError: invalid values, such as a burst as long as its period.
    """

    rate: float
    length_s: float
    every_s: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", as_rate(self.rate, "bursts", positive=False))
        for name in ("length_s", "every_s"):
            object.__setattr__(self, name, as_seconds(getattr(self, name), "bursts", positive=True))
        if self.length_s >= self.every_s:
            raise UsageError("a burst is as long as its period", "bursts", _FORM)

    def __str__(self) -> str:
        length, every = format_duration(self.length_s), format_duration(self.every_s)
        return f"burst {format_rate(self.rate)} for {length} every {every}"


@dataclass(frozen=True)
class Stage:
    """One stage.

    Args:
        start: requests per second, or requests in flight, at its beginning.
        end: the same at its end; None: as at its beginning.
        duration_s: its length.
        kind: ``open`` for a rate, ``closed`` for a concurrency.
        process: arrivals of a rate; None: those of the load.
        shape: burstiness of gamma arrivals; None: that of the load.
        bursts: of a rate that is held.

    Raises:
        UsageError: invalid values.
    """

    start: float
    end: float | None = None
    duration_s: float = 0.0
    kind: Literal["open", "closed"] = "open"
    process: str | None = None
    shape: float | None = None
    bursts: Bursts | None = None

    def __post_init__(self) -> None:
        end = self.last
        if self.kind == "closed":
            if self.process is not None or self.shape is not None or self.bursts is not None:
                raise UsageError("a concurrency has no arrival process", "stages", "leave it out")
            pair = [float(as_whole(_as_count(value), "concurrency", 1, MAX_CONCURRENCY)) for value in (self.start, end)]
        else:
            pair = [as_rate(value, "stages", positive=False) for value in (self.start, end)]
        object.__setattr__(self, "start", pair[0])
        object.__setattr__(self, "end", pair[1])
        object.__setattr__(self, "duration_s", as_seconds(self.duration_s, "duration", positive=True))
        if self.process is not None and self.process not in PROCESSES:
            raise UsageError(f'"{self.process}" is not an arrival process', "stages", f"use {' or '.join(PROCESSES)}")
        if self.shape is not None:
            within("burstiness", as_number(self.shape, "burstiness"), "stages")
        if self.shape is not None and self.process != "gamma":
            raise UsageError("a burstiness belongs to gamma arrivals", "stages", "write gamma(0.5)")
        if self.bursts is not None and self.is_ramp:
            raise UsageError("a ramp cannot have bursts", "stages", "leave out one of them")

    @property
    def last(self) -> float:
        """The rate or the concurrency at its end."""
        return self.start if self.end is None else self.end

    @property
    def is_ramp(self) -> bool:
        """Whether it ends otherwise than it begins."""
        return self.start != self.last

    @property
    def duration_ns(self) -> int:
        """Its length in nanoseconds."""
        return seconds_to_ns(self.duration_s)

    def __str__(self) -> str:
        """The text form; reading it gives the same stage."""
        show = format_rate if self.kind == "open" else "{:.0f}".format
        words = [show(self.start) + (f"..{show(self.last)}" if self.is_ramp else "")]
        words += [] if self.bursts is None else [str(self.bursts)]
        if self.process is not None:
            words.append(self.process if self.shape is None else f"{self.process}({plain_number(self.shape)})")
        return f"{' '.join(words)}@{format_duration(self.duration_s)}"


def _as_count(value: Any) -> Any:
    """Whole numbers that came through arithmetic are floats."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def plain_number(number: float) -> str:
    """The shortest decimal that is read back as the same number, without an exponent."""
    text = f"{Decimal(repr(float(number))):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_rate(rate: float) -> str:
    """A rate as the grammar reads it back."""
    return f"{plain_number(rate)}/s"


def rate_phases(stage: Stage, *, endless: bool = False) -> tuple[list[dict[str, Any]], bool]:
    """The engine's phases of a stage of rate, and whether they repeat.

    Args:
        stage: the stage.
        endless: whether a rate that is held has no end of its own; the level's stop ends it.
    """
    if stage.bursts is None:
        duration_ns = None if endless and not stage.is_ramp and stage.start else stage.duration_ns
        return [{"duration_ns": duration_ns, "from": stage.start, "to": stage.last}], False
    bursts = stage.bursts
    length_ns, every_ns = seconds_to_ns(bursts.length_s), seconds_to_ns(bursts.every_s)
    return [
        {"duration_ns": every_ns - length_ns, "from": stage.start, "to": stage.start},
        {"duration_ns": length_ns, "from": bursts.rate, "to": bursts.rate},
    ], True
