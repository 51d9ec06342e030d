"""The arrivals that a level's setting asks for, as far as it says: process, rate over time, and operational time.

In operational time, the integral of the rate, arrivals at any changing rate are arrivals at one request per unit: what
a Poisson process, or one with gamma gaps, must look like there does not depend on ramps and bursts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

__all__ = ["IntendedStream", "Phase", "intended_streams", "is_ramp", "ramp_text", "rate_at", "rate_corners", "think_s"]

RENEWAL: Final = ("constant", "poisson", "gamma")
"""Processes whose gaps are independent in operational time."""
_ENDLESS_S: Final = 1e12
"""Length of a phase without end: longer than anything that is measured."""
_MOST_CORNERS: Final = 2000
"""Changes of a rate that a line over time can show: more of them are a surface."""


class Phase(NamedTuple):
    """A straight line of the rate: length in s, requests/s at its start and at its end."""

    length_s: float
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class IntendedStream:
    """The arrivals that a level intends for one stream.

    Attributes:
        stream: its number in the records.
        name: what it is called; empty when it is the only one.
        process: ``constant``, ``poisson``, ``gamma``, ``trace``, ``plan`` or ``mixed``.
        shape: of gamma gaps; the coefficient of variation is 1 / sqrt(shape).
        phases: the rate over time; empty where it is not known.
        repeat: whether the phases begin again.
        start_s: when the stream begins, after the level's start.
    """

    stream: int
    name: str
    process: str
    shape: float
    phases: tuple[Phase, ...]
    repeat: bool = False
    start_s: float = 0.0

    @property
    def renewal(self) -> bool:
        """Whether rate and process are known well enough to be held against."""
        return self.process in RENEWAL and any(p.start > 0 or p.end > 0 for p in self.phases)

    def rate(self, times_s: ArrayLike) -> NDArray[np.float64]:
        """Requests per second at times after the level's start; shape of ``times_s``."""
        import numpy as np

        starts, _, _ = self._knots()
        _, local = self._turns(times_s)
        k = np.clip(np.searchsorted(starts, local, "right") - 1, 0, len(self.phases) - 1)
        low, high, length = (np.array(column) for column in self._columns())
        into = np.clip(local - starts[k], 0, length[k])
        found: NDArray[np.float64] = low[k] + (high[k] - low[k]) * into / length[k]
        return found

    def changes_s(self, length_s: float, most: int) -> list[float]:
        """When a phase begins or the last one ends, in seconds after the level's start; the first ``most`` of them."""
        found: list[float] = []
        at_s, turn = self.start_s, 0
        while turn == 0 or self.repeat:
            for phase in self.phases:
                if at_s >= length_s or len(found) >= most:
                    return found
                found.append(at_s)
                at_s += phase.length_s
            turn += 1
        return [*found, at_s]

    def operational(self, times_s: ArrayLike) -> NDArray[np.float64]:
        """Requests expected from the stream's start until each time; beyond the last phase its last rate goes on."""
        import numpy as np

        if len(self.phases) == 1 and self.phases[0].start == self.phases[0].end:
            held: NDArray[np.float64] = self.phases[0].start * np.maximum(np.asarray(times_s) - self.start_s, 0.0)
            return held
        starts, totals, period = self._knots()
        turns, local = self._turns(times_s)
        k = np.clip(np.searchsorted(starts, local, "right") - 1, 0, len(self.phases) - 1)
        low, high, length = (np.array(column) for column in self._columns())
        into = np.clip(local - starts[k], 0, None)
        inside = np.minimum(into, length[k])
        part = low[k] * inside + (high[k] - low[k]) * inside**2 / (2 * length[k])
        beyond = (into - inside) * np.maximum(high[k], low[k])
        found: NDArray[np.float64] = turns * period + totals[k] + part + beyond
        return found

    def _columns(self) -> tuple[list[float], list[float], list[float]]:
        return [p.start for p in self.phases], [p.end for p in self.phases], [p.length_s for p in self.phases]

    def _knots(self) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """Where each phase starts, how many requests come before it, and in all phases together."""
        import numpy as np

        lengths = np.array([p.length_s for p in self.phases])
        parts = np.array([p.length_s * (p.start + p.end) / 2 for p in self.phases])
        return np.cumsum(lengths) - lengths, np.cumsum(parts) - parts, float(parts.sum())

    def _turns(self, times_s: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        import numpy as np

        after = np.maximum(np.asarray(times_s, dtype=float) - self.start_s, 0.0)
        if not self.repeat:
            return np.zeros_like(after), after
        period_s = sum(p.length_s for p in self.phases)
        turns = np.floor(after / period_s)
        return turns, after - turns * period_s


def intended_streams(setting: Mapping[str, Any]) -> list[IntendedStream]:
    """What an open level's setting asks for, one entry per stream; empty for a closed loop."""
    if setting.get("kind") != "open":
        return []
    streams = setting.get("streams") or []
    if not streams:
        return [_stream(setting, 0, "", setting)]
    return [
        _stream(each, int(each.get("id", k)), str(each.get("name") or f"stream {k}"), setting)
        for k, each in enumerate(streams)
    ]


def _stream(fields: Mapping[str, Any], stream: int, name: str, level: Mapping[str, Any]) -> IntendedStream:
    process = str(fields.get("process") or level.get("process") or "")
    shape = float(fields.get("shape") or level.get("shape") or 1.0)
    phases, repeat = _phases(fields, level.get("duration_s"))
    return IntendedStream(stream, name, process, shape, tuple(phases), repeat, float(fields.get("start_s") or 0.0))


def rate_at(setting: Mapping[str, Any], times_s: ArrayLike) -> NDArray[np.float64] | None:
    """What an open level asks for at times after its start, all streams together, in requests/s.

    Args:
        setting: of the level.
        times_s: seconds.

    Returns:
        As many values, the mean of the level where its course is not known; None for a closed loop.
    """
    import numpy as np

    if setting.get("kind") != "open" or setting.get("rate") is None:
        return None
    total = np.zeros(np.shape(times_s))
    for fields, each in zip(setting.get("streams") or [setting], intended_streams(setting), strict=True):
        if not each.phases and fields.get("rate") is None:
            return np.full(np.shape(times_s), float(setting["rate"]))
        total += each.rate(times_s) if each.phases else float(fields["rate"])
    return total


def rate_corners(setting: Mapping[str, Any], length_s: float) -> list[tuple[float, float]]:
    """The course of what an open level asks for, all streams together: (seconds, requests/s), joined by straight lines.

    A rate that changes at once has two corners at that time. Of more changes than a line can show it is the mean.
    """
    import numpy as np

    mean = float(setting.get("rate") or 0.0)
    changes = {
        at for each in intended_streams(setting) for at in each.changes_s(length_s, _MOST_CORNERS) if 0 < at < length_s
    }
    if len(changes) >= _MOST_CORNERS or length_s <= 0:
        return [(0.0, mean), (length_s, mean)]
    edges = np.array(sorted({0.0, *changes, length_s}))
    starts, lengths = edges[:-1], np.diff(edges)
    # Within a stretch the rate is a straight line: two points of it, away from the changes, give its ends.
    first, second = (rate_at(setting, starts + part * lengths) for part in (0.25, 0.75))
    if first is None or second is None:
        return []
    half = (second - first) / 2
    pairs = zip(starts, first - half, edges[1:], second + half, strict=True)
    return [(float(x), float(y)) for one in pairs for x, y in (one[:2], one[2:])]


def _phases(fields: Mapping[str, Any], duration_s: float | None) -> tuple[list[Phase], bool]:
    """The rate over time: by its phases where they are named, else by the words of the setting."""
    if fields.get("phases"):
        return [_phase(each) for each in fields["phases"]], bool(fields.get("repeat"))
    rate = float(fields.get("rate") or 0.0)
    if fields.get("from_rate") is not None or fields.get("to_rate") is not None:
        length_s = fields.get("duration_s") or duration_s
        ends = [float(fields.get(key, rate)) for key in ("from_rate", "to_rate")]
        return ([Phase(float(length_s), *ends)] if length_s else []), False
    if fields.get("bursts"):
        return _bursts(rate, fields["bursts"], duration_s), True
    return ([Phase(_ENDLESS_S, rate, rate)] if rate > 0 else []), False


def _phase(fields: Mapping[str, Any]) -> Phase:
    length = fields.get("duration_s")
    if length is None and fields.get("duration_ns") is not None:
        length = fields["duration_ns"] / 1e9
    return Phase(_ENDLESS_S if length is None else float(length), float(fields["from"]), float(fields["to"]))


def _bursts(mean: float, bursts: Mapping[str, Any], duration_s: float | None) -> list[Phase]:
    """A burst at the end of each period; the rate between bursts follows from the mean over the level."""
    length_s, every_s, high = (float(bursts[key]) for key in ("length_s", "every_s", "rate"))
    whole, rest_s = divmod(float(duration_s or every_s), every_s)
    in_bursts_s = whole * length_s + max(0.0, rest_s - (every_s - length_s))
    between_s = whole * every_s + rest_s - in_bursts_s
    low = max(0.0, (mean * (in_bursts_s + between_s) - high * in_bursts_s) / between_s) if between_s > 0 else 0.0
    return [Phase(every_s - length_s, low, low), Phase(length_s, high, high)]


def _ramp(setting: Mapping[str, Any]) -> tuple[float, float] | None:
    pairs: Sequence[tuple[Any, Any]] = (
        (setting.get("from_rate"), setting.get("to_rate")),
        (setting.get("from"), setting.get("concurrency")),
    )
    known = [(low, high) for low, high in pairs if low is not None and high is not None and low != high]
    return known[0] if known else None


def is_ramp(setting: Mapping[str, Any]) -> bool:
    """Whether the load changes along a straight line while the level runs, so that nothing in it can be steady."""
    return _ramp(setting) is not None


def ramp_text(setting: Mapping[str, Any]) -> str | None:
    """From what to what a ramp goes: ``1 to 50/s``, ``8 to 64``; None for a load that is held."""
    ends = _ramp(setting)
    return None if ends is None else f"{ends[0]:g} to {ends[1]:g}{'/s' if setting.get('kind') == 'open' else ''}"


def think_s(setting: Mapping[str, Any]) -> tuple[float, float] | None:
    """Mean and standard deviation of a closed loop's pauses, seconds; None where the rows of the dataset say them."""
    if not setting.get("think"):
        return float(setting.get("think_s") or 0.0), 0.0
    from gpusize.workload.load import parse_think

    think = parse_think(str(setting["think"]))
    return None if think.mean_s is None else (think.mean_s, think.deviation_s)
