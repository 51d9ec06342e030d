"""What a load will be, before it is run: its levels, how many requests, and the rate over time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.units import format_duration
from gpusize.workload.schedule.export import total_expected
from gpusize.workload.schedule.from_engine import arrivals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from gpusize.workload.schedule.planned_level import Level

__all__ = ["MOST_DRAWN", "MOST_MARKED", "LevelOutline", "Outline", "outline"]

MOST_DRAWN: Final = 20_000_000
"""Arrivals up to which every one is worked out, for the peak and the counts over time."""

MOST_MARKED: Final = 300
"""Requests up to which the moment of each one is told."""

_NS: Final = 1_000_000_000


@dataclass(frozen=True)
class LevelOutline:
    """One level.

    Args:
        number: from 0.
        at_s: its start after the start of the first, None where that depends on the answers.
        duration_s: its length, None likewise.
        load: such as ``1/s..50/s`` or ``8 in flight``.
        process: how requests arrive.
        requests: exactly so many, None where it depends on the answers.
        note: what can be said instead.
    """

    number: int
    at_s: float | None
    duration_s: float | None
    load: str
    process: str
    requests: int | None
    note: str = ""


@dataclass(frozen=True)
class Outline:
    """A load over time.

    Args:
        levels: in order.
        total_s: length of all levels, None where it depends on the answers.
        requests: of all levels, None likewise.
        peak: most requests within any one second, None where not every arrival was worked out.
        edges_s: ends of the intervals of time that ``planned`` and ``drawn`` are given for, one more than those.
        planned: per stream the rate that was asked for, or the requests in flight, in each interval.
        drawn: per stream the arrivals per second in each interval, where they were worked out.
        marked_s: per stream each arrival, in seconds after the start, of a load of few requests.
        unit: ``/s`` or ``in flight``.
        about: requests of all levels by their rates, where they are too many to be counted.
    """

    levels: list[LevelOutline]
    total_s: float | None
    requests: int | None
    peak: int | None
    edges_s: list[float] = field(default_factory=list)
    planned: dict[str, list[float]] = field(default_factory=dict)
    drawn: dict[str, list[float]] = field(default_factory=dict)
    marked_s: dict[str, list[float]] = field(default_factory=dict)
    unit: str = "/s"
    about: int | None = None

    def document(self) -> dict[str, Any]:
        """The same as plain values, for ``--json``."""
        return {
            "levels": [
                {"level": each.number, **{name: value for name, value in vars(each).items() if name != "number"}}
                for each in self.levels
            ],
            "total_s": self.total_s,
            "requests": self.requests,
            "requests_about": self.about,
            "peak_per_s": self.peak,
            "unit": self.unit,
            "edges_s": self.edges_s,
            "planned": self.planned,
            "drawn": self.drawn,
        }


def outline(levels: Sequence[Level], rows: int, intervals: int = 80) -> Outline:
    """Work out what a load will be.

    Args:
        levels: as ``Load.levels`` gives them.
        rows: rows of the dataset.
        intervals: how finely the rate over time is told.
    """
    is_open = all("open" in level.plan["load"] for level in levels)
    total = total_expected(levels) if is_open else None
    due = _all_arrivals(levels, rows) if total is not None and total <= MOST_DRAWN else None
    lengths = [_length_ns(level, None if due is None else due[number]) for number, level in enumerate(levels)]
    starts: list[int | None] = [0]
    for length in lengths:
        before = starts[-1]
        starts.append(None if length is None or before is None else before + length)
    described = [
        _describe(number, level, start, length)
        for number, (level, start, length) in enumerate(zip(levels, starts, lengths, strict=False))
    ]
    total_ns = starts[-1]
    found = Outline(
        described,
        None if total_ns is None else total_ns / _NS,
        total if is_open else _closed_requests(described),
        None if due is None or total_ns is None else _peak(due, [start or 0 for start in starts]),
        unit="/s" if is_open else "in flight",
        about=_about(levels) if is_open and total is None else None,
    )
    return found if not total_ns else _over_time(found, levels, [start or 0 for start in starts], due, intervals)


def _about(levels: Sequence[Level]) -> int:
    return sum(int(level.setting.get("expected_about") or level.setting.get("expected") or 0) for level in levels)


def _closed_requests(levels: Sequence[LevelOutline]) -> int | None:
    counts = [level.requests for level in levels]
    return None if None in counts else sum(count for count in counts if count is not None)


def _all_arrivals(levels: Sequence[Level], rows: int) -> list[tuple[NDArray[np.int64], NDArray[np.uint16]]]:
    found = []
    for level in levels:
        frame = arrivals(level.plan, rows, level.explicit)
        found.append((frame["due_ns"].to_numpy(), frame["stream"].to_numpy()))
    return found


def _length_ns(level: Level, due: tuple[NDArray[np.int64], NDArray[np.uint16]] | None) -> int | None:
    duration_ns = level.plan["stop"]["duration_ns"]
    if duration_ns is not None:
        return int(duration_ns)
    return None if due is None else int(due[0][-1]) if len(due[0]) else 0


def _describe(number: int, level: Level, start_ns: int | None, length_ns: int | None) -> LevelOutline:
    setting, stop = level.setting, level.plan["stop"]
    at_s = None if start_ns is None else start_ns / _NS
    duration_s = None if length_ns is None else length_ns / _NS
    if setting["kind"] == "open":
        process = str(setting["process"])
        if "shape" in setting:
            process = f"gamma({setting['shape']:g})"
        if "bursts" in setting:
            bursts = setting["bursts"]
            length, every = format_duration(bursts["length_s"]), format_duration(bursts["every_s"])
            process += f", {bursts['rate']:g}/s for {length} every {every}"
        low, high = setting.get("from_rate"), setting.get("to_rate")
        load = _rate_text(setting) if low is None else f"{low:.6g}/s..{high:.6g}/s"
        unit = "sessions begin" if setting.get("unit") == "session" else ""
        about = setting.get("expected_about")
        if about is not None:
            unit = f"about {about:,}{f' {unit}' if unit else ''}, by the rate: too many to count"
        return LevelOutline(number, at_s, duration_s, load, process, setting.get("expected"), unit)
    low = setting.get("from")
    load = f"{setting['concurrency']}" if low is None else f"{low}..{setting['concurrency']}"
    what = "users" if setting.get("unit") == "session" else "in flight"
    think = setting.get("think") or (format_duration(setting["think_s"]) if setting["think_s"] else "")
    note = "" if stop["count"] is not None and duration_s is None else "as fast as answers come"
    count = stop["count"] if duration_s is None else None
    return LevelOutline(
        number, at_s, duration_s, f"{load} {what}", f"think {think}" if think else "closed", count, note
    )


def _rate_text(setting: Mapping[str, Any]) -> str:
    """A rate that is held; what arrives at one instant has none."""
    if setting["process"] in ("trace", "plan") and not setting["rate"] and setting.get("expected"):
        return f"{setting['expected']:,} at once"
    return f"{setting['rate']:.6g}/s"


def _peak(due: Sequence[tuple[NDArray[np.int64], NDArray[np.uint16]]], starts: Sequence[int]) -> int:
    import numpy as np

    times = np.concatenate([each + start for (each, _), start in zip(due, starts, strict=False)])
    if not len(times):
        return 0
    return int((np.searchsorted(times, times + _NS, "left") - np.arange(len(times))).max())


def _over_time(
    found: Outline,
    levels: Sequence[Level],
    starts: Sequence[int],
    due: Sequence[tuple[NDArray[np.int64], NDArray[np.uint16]]] | None,
    intervals: int,
) -> Outline:
    import numpy as np

    edges = np.rint(np.linspace(0, starts[-1], intervals + 1))
    seconds = np.diff(edges) / _NS
    names = _stream_names(levels)
    ids = sorted(names)
    drawn: dict[str, list[float]] = {}
    marked: dict[str, list[float]] = {}
    for number in ids if due is not None else ():
        times = np.concatenate([t[s == number] + start for (t, s), start in zip(due or (), starts, strict=False)])
        drawn[names[number]] = (np.histogram(times, edges)[0] / seconds).tolist()
        if (found.requests or 0) <= MOST_MARKED:
            marked[names[number]] = (times / _NS).tolist()
    planned = {names[number]: np.zeros(intervals) for number in ids}
    known = dict.fromkeys(planned, True)
    for level, start, end in zip(levels, starts, starts[1:], strict=False):
        inside = np.clip(edges, start, end) - start
        for number, totals in _totals(level, inside).items():
            name = names[number]
            if totals is None:
                known[name] = False
            else:
                planned[name] += np.diff(totals) / seconds
    lists = {name: drawn[name] if not known[name] and drawn else planned[name].tolist() for name in planned}
    values = {**vars(found), "edges_s": (edges / _NS).tolist(), "planned": lists, "drawn": drawn, "marked_s": marked}
    return Outline(**values)


def _stream_names(levels: Sequence[Level]) -> dict[int, str]:
    """What each stream is called; nothing where there is only one."""
    ids = {each["id"] for level in levels for each in level.plan["load"].get("open", {}).get("streams", ())}
    named = {each["id"]: str(each["name"]) for level in levels for each in level.setting.get("streams", ())}
    if len(ids) <= 1 and not named:
        return dict.fromkeys(ids or [0], "")
    return {number: named.get(number, f"stream {number}") for number in {*ids, *named}}


def _totals(level: Level, inside: NDArray[np.float64]) -> dict[int, NDArray[np.float64] | None]:
    """Per stream the integral of its rate (or of the slots) up to each moment of the level; None: only drawn."""
    import numpy as np

    from gpusize.workload.schedule.rate_profile import RateProfile

    load = level.plan["load"]
    if "closed" in load:
        closed = load["closed"]
        start = closed["concurrency"] if closed.get("from") is None else closed["from"]
        length = float(level.plan["stop"]["duration_ns"] or 0)
        slope = (closed["concurrency"] - start) / length if length else 0.0
        return {0: (start + slope * inside / 2) * inside / _NS}
    found: dict[int, NDArray[np.float64] | None] = {}
    for stream in load["open"]["streams"]:
        arrivals_ = stream["arrivals"]
        if arrivals_ == "plan" or stream["count"] is not None:
            found[stream["id"]] = None
            continue
        profile = RateProfile(arrivals_["rate"]["phases"], arrivals_["rate"]["repeat"])
        found[stream["id"]] = np.array([float(profile.total(round(moment))) for moment in inside])
    return found
