"""What a source of samples gives, and what it may say instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from gpusize.observe.metrics.prometheus_text import SeriesKey

__all__ = ["Reading", "SampleSource", "SourceFailed"]


class SourceFailed(Exception):
    """A reading could not be had; the text says why, without a secret. The next one is tried all the same.

    Args:
        reason: one clause.
        final: it never can be had, so that asking again is of no use.
    """

    def __init__(self, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


@dataclass(frozen=True, slots=True)
class Reading:
    """All values of one source at one time.

    Attributes:
        t_ns: the middle between question and answer, on the engine's clock.
        width_ns: time from question to answer: the values were true at some instant in it.
        values: by series.
    """

    t_ns: int
    width_ns: int
    values: Mapping[SeriesKey, float]


class SampleSource(Protocol):
    """Something that can be read again and again; it is opened, read and closed on one thread at a time.

    Attributes:
        name: as the column ``source`` has it: an address without secrets, or ``nvml``.
    """

    name: str

    def open(self) -> None:
        """Get ready.

        Raises:
            SourceFailed: it cannot be had.
        """

    def read(self) -> Reading:
        """Read everything now.

        Raises:
            SourceFailed: not this time.
        """

    def notes(self) -> list[str]:
        """What the user should know about this source, as of now."""

    def close(self) -> None:
        """Let go; safe to call twice."""
