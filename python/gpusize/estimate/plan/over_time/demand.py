"""What is to be served over time: requests of a recorded trace, or drawn from a profile of rates."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import DatasetError, UsageError
from gpusize.base.text import read_bytes, shown
from gpusize.workload.dataset.arrivals import time_of
from gpusize.workload.dataset.formats import contained
from gpusize.workload.load.trace import DATASET, ArrivalTrace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["RATE_COLUMN", "Demand", "demand", "drawn"]

RATE_COLUMN: Final = "rate_per_s"
"""A file with it is a profile: from each row's time on, requests come at that rate."""

NS_PER_S: Final = 1e9
_PEEK: Final = 4096
_MOST: Final = 50_000_000
_DRAWS: Final = 0x50524F46  # keeps these draws apart from others under the same seed
_ALONE_S: Final = 1.0
"""Time that a single request stands for."""


@dataclass(frozen=True, eq=False)
class Demand:
    """Requests in order of time.

    Attributes:
        source: where they come from.
        due_ns: nanoseconds after the start, ascending; shape (n,).
        duration_s: until when they come.
        tokens: of prompts and of answers, shape (2, n); None where nobody said.
        notes: what the user should know.
    """

    source: str
    due_ns: NDArray[np.int64]
    duration_s: float
    tokens: NDArray[np.uint32] | None = field(default=None)
    notes: tuple[str, ...] = ()

    @property
    def rate_per_s(self) -> float:
        """The mean rate."""
        return self.due_ns.size / self.duration_s


def demand(source: str | Path, *, seed: int = 1, **shape: Any) -> Demand:
    """The requests of a trace or of a profile.

    Args:
        source: a file as ``gpusize run --arrivals`` takes it, or a table of times and `RATE_COLUMN`.
        seed: key of the draws: the requests of a profile, and those that a scale keeps or adds.
        shape: fields of ``ArrivalTrace``: ``fmt``, ``speed``, ``rate_scale``, ``from_s``, ``until_s``.

    Raises:
        DatasetError: the file cannot be read, or has something that is no time, rate or arrival.
        UsageError: nothing is left of it, or too much comes of it.
    """
    import numpy as np

    if str(source) == DATASET:
        raise UsageError("there is no dataset to take arrival times from", "arrivals", "name a file of arrivals")
    if _is_profile(Path(source)):
        return _of_profile(Path(source), seed, shape)
    trace = ArrivalTrace(str(source), **shape)
    found = trace.requests(seed)
    if len(found) > _MOST:
        raise UsageError(f"{len(found):,} requests are too many to simulate", "arrivals", "take a part of the trace")
    last_s = float(found.due_ns[-1]) / NS_PER_S
    # Requests at n times leave n - 1 gaps; the last one has one too.
    duration_s = last_s * len(found) / (len(found) - 1) if last_s > 0 else _ALONE_S
    if trace.until_s is not None:
        duration_s = max(last_s, min(duration_s, (trace.until_s - trace.from_s) / trace.speed))
    tokens = None
    if trace.tokens is not None and found.rows is not None:
        tokens = np.array([np.asarray(each, np.uint32)[found.rows] for each in trace.tokens])
    return Demand(str(source), found.due_ns, duration_s, tokens, trace.notes)


def drawn(edges_s: Sequence[float], rates: Sequence[float], seed: int) -> NDArray[np.int64]:
    """Due times in ns of a Poisson process whose rate is constant between edges.

    Unit-rate arrivals, mapped through the inverse of the expected number until a time (Cinlar 1975, 4.7).

    Args:
        edges_s: where rates begin, and the end; ascending; length n + 1.
        rates: requests per second; length n.
        seed: key of the draws.
    """
    import numpy as np

    edges = np.asarray(edges_s, float)
    expected = np.concatenate([[0.0], np.cumsum(np.diff(edges) * np.asarray(rates, float))])
    count = int(expected[-1] + 8 * np.sqrt(expected[-1]) + 32)
    bits = np.random.Philox(key=[seed, _DRAWS << 32]).random_raw(count)
    gaps = -np.log1p(-((bits >> np.uint64(11)) * 2.0**-53))
    moments = np.cumsum(gaps)
    moments = moments[moments < expected[-1]]
    found: NDArray[np.int64] = np.rint(np.interp(moments, expected, edges) * NS_PER_S).astype(np.int64)
    return found


def _is_profile(path: Path) -> bool:
    """Whether the first line of a text names `RATE_COLUMN`."""
    try:
        with path.open("rb") as file:
            return RATE_COLUMN.encode() in file.read(_PEEK).split(b"\n", 1)[0]
    except OSError:
        return False  # the reader of traces says what is wrong with it


def _of_profile(path: Path, seed: int, shape: Mapping[str, Any]) -> Demand:
    import numpy as np

    source = str(path)
    parsed, _ = contained(read_bytes(path, error=DatasetError), source, shape.get("fmt"))
    places = [
        f"{source}:{parsed.lines[number]}" if number < len(parsed.lines) else f"{source}, row {number}"
        for number in range(len(parsed.rows))
    ]
    times = [float(time_of(row, where)) for row, where in zip(parsed.rows, places, strict=True)]
    rates = [_rate(row, where) for row, where in zip(parsed.rows, places, strict=True)]
    if len(times) < 2:
        raise DatasetError("a profile with a single rate has no end", source, "give a last row that says when it ends")
    for before, after, where in zip(times, times[1:], places[1:], strict=False):
        if after <= before:
            raise DatasetError("this time is not later than the one before", where, "put the rows in order of time")
    # The last rate holds as long as the one before it.
    edges = np.array([*times, 2 * times[-1] - times[-2]]) - times[0]
    from_s, until_s = float(shape.get("from_s") or 0.0), shape.get("until_s")
    end = edges[-1] if until_s is None else min(float(until_s), edges[-1])
    if not from_s < end:
        raise UsageError("nothing is left of the profile", source, f"it lasts {edges[-1]:g} s; take a part of that")
    speed, scale = float(shape.get("speed") or 1.0), float(shape.get("rate_scale") or 1.0)
    cut = (np.clip(edges, from_s, end) - from_s) / speed
    held = np.array(rates) * scale * speed
    expected = float((np.diff(cut) * held).sum())
    if expected > _MOST:
        raise UsageError(f"{expected:,.0f} requests are too many to simulate", source, "take a part of the profile")
    wide = np.append(np.diff(cut) > 0, True)
    due_ns = drawn(cut[wide], held[wide[:-1]], seed)
    if not due_ns.size:
        raise UsageError("no request comes at these rates", source, "take a longer part of it, or a higher rate")
    note = f"{source}: a profile of rates; requests are drawn from it as a Poisson process, seed {seed}"
    return Demand(source, due_ns, float(cut[-1]), None, (note,))


def _rate(row: Mapping[str, Any], where: str) -> float:
    try:
        value = float(row[RATE_COLUMN])
    except (KeyError, TypeError, ValueError):
        raise DatasetError(f'"{RATE_COLUMN}" is {shown(row.get(RATE_COLUMN))}', where, "write requests/s") from None
    if not 0 <= value < 1e9:
        raise DatasetError(f'"{RATE_COLUMN}" is {value:g}', where, "write requests per second, 0 or more")
    return value
