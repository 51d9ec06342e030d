"""A number over time as readings tell it: each holds until the next one, and what nobody read stays unknown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

__all__ = ["Change", "Total", "Track", "added"]

LATE: Final = 1.5
"""A reading that comes after so many steps leaves a gap before it: the one before it holds for one step."""


class Total(NamedTuple):
    """The integral of a track over the time in which it is known, and how long that is."""

    value: float
    known_s: float

    @property
    def mean(self) -> float | None:
        """The mean over that time; None where nothing is known."""
        return self.value / self.known_s if self.known_s > 0 else None


class Change(NamedTuple):
    """A reading that differs from the one before: when it and the one before were taken, and both values."""

    at_s: float
    before_s: float
    before: float
    after: float


@dataclass(frozen=True, eq=False)
class Track:
    """Values that hold from one time to the next.

    Attributes:
        at_s: from when each value holds, ascending; the first is where the track begins; shape (n,), at least one.
        values: NaN where nothing is known; shape (n,).
        end_s: where the track ends.
    """

    at_s: NDArray[np.float64]
    values: NDArray[np.float64]
    end_s: float

    @classmethod
    def of_readings(
        cls,
        at_s: NDArray[np.float64],
        values: NDArray[np.float64],
        step_s: float,
        end_s: float,
        *,
        begin_s: float = 0.0,
    ) -> Track:
        """The track of readings that were due every ``step_s``.

        Args:
            at_s: when they were taken, ascending; shape (n,).
            values: NaN counts as no reading; shape (n,).
            step_s: from one reading to the next.
            end_s: where the track ends.
            begin_s: where it begins; a reading before that holds as any other.
        """
        import numpy as np

        known = ~np.isnan(values)
        at, values = at_s[known], values[known]
        if not at.size:
            return cls(np.array([begin_s]), np.array([np.nan]), end_s)
        late = np.append(np.diff(at) > LATE * step_s, True)
        times = np.concatenate([at, at[late] + step_s])
        held = np.concatenate([values, np.full(int(late.sum()), np.nan)])
        order = np.argsort(times, kind="stable")
        whole = cls(np.append(-np.inf, times[order]), np.append(np.nan, held[order]), np.inf)
        return whole.part(begin_s, end_s)

    def part(self, begin_s: float, end_s: float) -> Track:
        """The track between two times; unknown where it does not reach."""
        import numpy as np

        inside = (self.at_s > begin_s) & (self.at_s < end_s)
        at = np.append(begin_s, self.at_s[inside])
        values = np.append(self.at([begin_s]), self.values[inside])
        if self.end_s < end_s:
            keep = at < self.end_s
            at, values = np.append(at[keep], max(self.end_s, begin_s)), np.append(values[keep], np.nan)
        return Track(at, values, end_s)

    def at(self, times_s: ArrayLike) -> NDArray[np.float64]:
        """The values at times; NaN where they are unknown."""
        import numpy as np

        times = np.asarray(times_s, float)
        place = np.searchsorted(self.at_s, times, "right") - 1
        found: NDArray[np.float64] = np.where((place >= 0) & (times < self.end_s), self.values[place], np.nan)
        return found

    @property
    def lengths_s(self) -> NDArray[np.float64]:
        """For how long each value holds; shape (n,)."""
        import numpy as np

        return np.diff(np.append(self.at_s, self.end_s))

    def total(self) -> Total:
        """The integral over the known time."""
        import numpy as np

        known = ~np.isnan(self.values)
        lengths = self.lengths_s[known]
        return Total(float((self.values[known] * lengths).sum()), float(lengths.sum()))

    def unknown(self) -> list[tuple[float, float]]:
        """The stretches in which nothing is known: (from, to) in seconds."""
        import numpy as np

        found: list[tuple[float, float]] = []
        for at, length in zip(
            self.at_s[np.isnan(self.values)].tolist(), self.lengths_s[np.isnan(self.values)].tolist(), strict=True
        ):
            if length <= 0:
                continue
            if found and found[-1][1] == at:
                found[-1] = (found[-1][0], at + length)
            else:
                found.append((at, at + length))
        return found

    def changes(self) -> list[Change]:
        """Readings that differ from the ones before them, those beyond a gap as well."""
        import numpy as np

        known = ~np.isnan(self.values)
        at, values = self.at_s[known], self.values[known]
        where = np.flatnonzero(np.diff(values) != 0)
        return [Change(float(at[k + 1]), float(at[k]), float(values[k]), float(values[k + 1])) for k in where.tolist()]

    def turns(self) -> int:
        """How often it began to fall after it had risen, or the other way round."""
        import numpy as np

        steps = np.sign([each.after - each.before for each in self.changes()])
        return int((np.diff(steps) != 0).sum())

    def known(self) -> Track:
        """The track with the unknown time cut out, so that it is shorter by that; at least one value.

        Raises:
            ValueError: nothing is known.
        """
        import numpy as np

        there = ~np.isnan(self.values)
        if not there.any():
            raise ValueError("nothing is known")
        lengths = self.lengths_s[there]
        ends = np.cumsum(lengths)
        return Track(ends - lengths, self.values[there], float(ends[-1]))


def added(tracks: Sequence[Track]) -> Track:
    """The sum of tracks of one length; unknown where one of them is."""
    import numpy as np

    first = tracks[0]
    if len(tracks) == 1:
        return first
    at = np.unique(np.concatenate([each.at_s for each in tracks]))
    return Track(at, np.sum([each.at(at) for each in tracks], axis=0), first.end_s)
