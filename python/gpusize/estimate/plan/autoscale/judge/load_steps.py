"""When the load of a run changes, by what its levels ask for: stages, streams that begin later, ramps and bursts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpusize.analysis.delivery.intended import rate_corners
from gpusize.analysis.metrics import NS_PER_S

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData

__all__ = ["LoadStep", "load_steps"]

STEP: Final = 0.05
"""A change of the load by a smaller share of the larger one is none."""
PAUSE_S: Final = 1.0
"""Without load for so long between two levels, it went to zero."""
_SAME_S: Final = 1e-6


@dataclass(frozen=True, slots=True)
class LoadStep:
    """One change of the load.

    Attributes:
        at_s: when it begins, after the run's start.
        until_s: when the next one begins, or the run ends.
        before: requests/s, or requests in flight, that were asked for before.
        after: the same when it has ended; of a ramp, where that goes to.
        unit: ``requests/s`` or ``users``.
        ramp_s: how long it takes; 0 where it comes at once.
    """

    at_s: float
    until_s: float
    before: float
    after: float
    unit: str
    ramp_s: float = 0.0

    @property
    def up(self) -> bool:
        """Whether the load grows."""
        return self.after > self.before


@dataclass(frozen=True, slots=True)
class _Line:
    """A stretch of the load: straight from one value to another."""

    from_s: float
    until_s: float
    start: float
    end: float
    unit: str


def load_steps(levels: Sequence[LevelData], zero_ns: int, end_s: float) -> tuple[LoadStep, ...]:
    """The changes of the load, in order; the first is its beginning.

    Args:
        levels: of one run.
        zero_ns: the run's start on the records' clock.
        end_s: where the run ends.
    """
    found: list[LoadStep] = []
    value, unit = 0.0, ""

    def changed(at_s: float, after: float, line: _Line, ramp_s: float) -> None:
        last = found[-1] if found else None
        touches = last is not None and abs(last.at_s + last.ramp_s - at_s) < _SAME_S and last.unit == line.unit
        if last is not None and touches and last.up == (after > value):
            found[-1] = replace(last, after=after, ramp_s=at_s + ramp_s - last.at_s)
        else:
            found.append(LoadStep(at_s, end_s, value, after, line.unit, ramp_s))

    for line in _lines(levels, zero_ns):
        if line.unit != unit and line.unit:
            value = 0.0 if not unit or value == 0 else value
            unit = line.unit
        if _differ(value, line.start):
            changed(line.from_s, line.start, replace(line, unit=unit), 0.0)
            value = line.start
        if _differ(line.start, line.end):
            changed(line.from_s, line.end, replace(line, unit=unit), line.until_s - line.from_s)
        value = line.end
    nexts = [*(each.at_s for each in found[1:]), end_s]
    return tuple(replace(each, until_s=until) for each, until in zip(found, nexts, strict=True))


def _lines(levels: Sequence[LevelData], zero_ns: int) -> Iterator[_Line]:
    before_s = None
    for level in sorted(levels, key=lambda each: int(each.meta["start_ns"])):
        start_s = (int(level.meta["start_ns"]) - zero_ns) / NS_PER_S
        close_s = (int(level.meta.get("close_ns") or level.meta["end_ns"]) - zero_ns) / NS_PER_S
        if before_s is not None and start_s - before_s > PAUSE_S:
            yield _Line(before_s, start_s, 0.0, 0.0, "")
        before_s = close_s
        length_s = max(close_s - start_s, 1e-9)
        if level.setting.get("kind") == "open":
            corners, unit = rate_corners(level.setting, length_s), "requests/s"
        else:
            high = float(level.concurrency or 0)
            first = level.setting.get("from")
            corners, unit = [(0.0, high if first is None else float(first)), (length_s, high)], "users"
        for (x0, y0), (x1, y1) in itertools.pairwise(corners):
            if x1 - x0 > _SAME_S:
                yield _Line(start_s + x0, start_s + x1, y0, y1, unit)


def _differ(before: float, after: float) -> bool:
    return abs(after - before) > STEP * max(before, after)
