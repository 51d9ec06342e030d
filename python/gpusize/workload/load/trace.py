"""Arrivals that were recorded somewhere, replayed: faster or slower, and denser or thinner."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import DatasetError, UsageError
from gpusize.base.given_numbers import as_number, as_seconds
from gpusize.base.numeric import within
from gpusize.base.units import format_duration
from gpusize.workload.dataset.arrivals import ArrivalTimes, arrivals_of_rows, read_arrivals
from gpusize.workload.schedule.arrival_arrays import Explicit

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from gpusize.workload.dataset import Dataset

__all__ = ["DATASET", "ArrivalTrace"]

DATASET: Final = "dataset"
"""The source that stands for the ``arrival_s`` of the dataset's own rows."""

_MOST: Final = 200_000_000
_COPY: Final = 0x47505553  # keeps these draws apart from others under the same seed


@dataclass(frozen=True)
class ArrivalTrace:
    """Recorded arrivals.

    Args:
        source: a file as `gpusize.workload.dataset` reads it, or ``dataset``: the times of the rows that are sent.
        fmt: the file's format, where suffix and contents do not tell.
        speed: how many times faster the time goes.
        rate_scale: how many times as many requests, over the same time.
        from_s: seconds of the trace that are left out at its beginning.
        until_s: second of the trace at which it ends.

    Raises:
        UsageError: invalid values.
        DatasetError: the file cannot be read, or holds no times.
    """

    source: str
    fmt: str | None = None
    speed: float = 1.0
    rate_scale: float = 1.0
    from_s: float = 0.0
    until_s: float | None = None
    _times: ArrivalTimes | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        for name in ("speed", "rate_scale"):
            object.__setattr__(self, name, as_number(getattr(self, name), name))
            within(name, getattr(self, name))
        object.__setattr__(self, "source", str(self.source))
        object.__setattr__(self, "from_s", as_seconds(self.from_s, "arrivals_from", positive=False))
        if self.until_s is not None:
            object.__setattr__(self, "until_s", as_seconds(self.until_s, "arrivals_until", positive=True))
            if self.until_s <= self.from_s:
                raise UsageError("the part of the trace ends before it begins", "arrivals_until", "give a later end")
        if self.source != DATASET:
            try:
                times = read_arrivals(self.source, self.fmt)
            except DatasetError as problem:
                # It is read as a dataset is; its format has an option of its own.
                todo = None if problem.todo is None else problem.todo.replace("--dataset-format", "--arrivals-format")
                raise DatasetError(problem.what, problem.where, todo) from None
            object.__setattr__(self, "_times", times)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know about the file."""
        return () if self._times is None else self._times.notes

    def times(self, dataset: Dataset | None, *, same: bool = False) -> ArrivalTimes:
        """The times; with their rows when the trace is the dataset: by name, by contents, or as the caller knows.

        Raises:
            UsageError: the dataset's times are wanted, and there is none, or a row has none.
        """
        if self._times is None:
            if dataset is None:
                raise UsageError("the arrivals are those of the dataset, and there is none", "arrivals", "name a file")
            return arrivals_of_rows(dataset)
        if dataset is not None and (same or dataset.sha256 == self._times.sha256):
            own = arrivals_of_rows(dataset)
            if list(own.times_s) == list(self._times.times_s):
                return own
        return self._times

    def schedule(self, seed: int, dataset: Dataset | None = None, *, same: bool = False) -> Explicit:
        """The arrivals as they shall come.

        Cut first, then scaled in rate, then in time. A ``rate_scale`` below 1 keeps each arrival with that
        probability. Above 1 every arrival has copies, of which each lies at a random place between it and the next
        one at another time, so that the shape over time stays and copies do not come at once; the rest behind the comma
        is one more copy of some. A copy sends the same row.

        Args:
            seed: key of the draws.
            dataset: what is sent.
            same: whether that is known to be the trace.

        Raises:
            UsageError: nothing is left of the trace, or too much comes of it.
        """
        import numpy as np

        given = self.times(dataset, same=same)
        rows = None if given.rows is None else np.asarray(given.rows, np.uint32)
        return self._arranged(given, rows, seed)

    def requests(self, seed: int) -> Explicit:
        """As ``schedule``, with the place of each request in the file as its row: whose tokens are its own.

        Raises:
            UsageError: as ``schedule``; or the times are a dataset's.
        """
        import numpy as np

        given = self.times(None)
        return self._arranged(given, np.arange(len(given.times_s), dtype=np.uint32), seed)

    @property
    def tokens(self) -> tuple[Sequence[int], Sequence[int]] | None:
        """Tokens of prompts and of answers by the place in the file; None where it does not have them for all."""
        return None if self._times is None else self._times.tokens

    def _arranged(self, given: ArrivalTimes, rows: NDArray[np.uint32] | None, seed: int) -> Explicit:
        import numpy as np

        times = np.asarray(given.times_s, np.float64)
        kept = (times >= self.from_s) & (times < (np.inf if self.until_s is None else self.until_s))
        rows = None if rows is None else rows[kept]
        times = times[kept] - self.from_s
        if len(times) * self.rate_scale > _MOST:
            raise UsageError("the trace becomes too many arrivals", "rate_scale", f"at most {_MOST:,}")
        if self.rate_scale > 1 and len(times) and times[0] == times[-1]:
            todo = "leave it out, or take a part of the trace that has several times"
            raise UsageError("all arrivals are at one time: their copies would come at once", "rate_scale", todo)
        if self.rate_scale != 1:
            times, rows = _scaled(times, rows, self.rate_scale, seed)
        if not len(times):
            raise UsageError("nothing is left of the trace", self.source, "take a longer part of it, or a higher rate")
        return Explicit(np.rint(times / self.speed * 1e9).astype(np.int64), rows)

    def options(self) -> dict[str, Any]:
        """The options that make it again, as ``--config`` takes them."""
        path = self.source if self.source == DATASET else str(Path(self.source).absolute())
        found: dict[str, Any] = {}
        usual = {"speed": (self.speed, 1.0), "rate_scale": (self.rate_scale, 1.0)}
        found |= {name: value for name, (value, default) in usual.items() if value != default}
        if self.from_s:
            found["arrivals_from"] = format_duration(self.from_s)
        if self.until_s is not None:
            found["arrivals_until"] = format_duration(self.until_s)
        return {"arrivals": path, **found, **({"arrivals_format": self.fmt} if self.fmt else {})}


def _scaled(
    times: NDArray[np.float64], rows: NDArray[np.uint32] | None, factor: float, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.uint32] | None]:
    import numpy as np

    whole, rest = divmod(factor, 1.0)
    count = len(times)
    # Several arrivals at one time share the gap to the next time: a gap of 0 would keep their copies there.
    moments, of = np.unique(times, return_inverse=True)
    mean = (times[-1] - times[0]) / max(len(moments) - 1, 1) if count else 0.0
    gaps = np.diff(moments, append=moments[-1:] + mean)[of]
    made, chosen = [], []
    for copy in range(int(whole) + 1):
        places, dice = _uniform(seed, 2 * copy, count), _uniform(seed, 2 * copy + 1, count)
        kept = np.ones(count, bool) if copy < whole else dice < rest
        made.append((times + (places * gaps if copy else 0.0))[kept])
        chosen.append(np.flatnonzero(kept))
    merged, origin = np.concatenate(made), np.concatenate(chosen)
    order = np.argsort(merged, kind="stable")
    return merged[order], None if rows is None else rows[origin[order]]


def _uniform(seed: int, purpose: int, count: int) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1) from the raw bits of Philox, which no version of numpy may change."""
    import numpy as np

    bits = np.random.Philox(key=[seed, (_COPY << 32) + purpose]).random_raw(count)
    return np.asarray((bits >> np.uint64(11)) * 2.0**-53, np.float64)
