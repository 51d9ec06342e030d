"""What the live view and the plain lines say of a running level, as short pieces of text."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpusize.report.text import clean, count, duration, finite, number, plain_number, time_unit

__all__ = [
    "Pace",
    "Schedule",
    "facts",
    "failed",
    "level_time",
    "recent_facts",
    "run_facts",
    "setting_text",
    "share",
]

_NS: Final = 1e9


def setting_text(setting: Mapping[str, Any]) -> str:
    """A level's setting in a few words: ``8 users``, ``20/s poisson``, ``1..50/s poisson``."""
    if setting.get("kind") == "open":
        return clean(_open_text(setting), 60)
    users = finite(setting.get("concurrency"))
    low = finite(setting.get("from"))
    shown = plain_number(users, 9) if low is None else f"{plain_number(low, 9)}..{plain_number(users, 9)}"
    noun = "session" if setting.get("unit") == "session" else "user"
    return f"{shown} {noun}{'' if users == 1 and low is None else 's'}"


def _open_text(setting: Mapping[str, Any]) -> str:
    low, high = finite(setting.get("from_rate")), finite(setting.get("to_rate"))
    ramp = low is not None and high is not None
    rate = f"{plain_number(low, 6)}..{plain_number(high, 6)}" if ramp else plain_number(setting.get("rate"), 6)
    text = f"{rate}/s {setting.get('process') or ''}".strip()
    bursts = setting.get("bursts")
    if isinstance(bursts, Mapping):
        text += f", bursts of {plain_number(bursts.get('rate'), 6)}/s"
    streams = setting.get("streams")
    if isinstance(streams, Sequence) and len(streams) > 1:
        text += f", {len(streams)} streams"
    return text


def _elapsed_s(progress: Mapping[str, Any]) -> float:
    """Seconds since the level began."""
    return (finite(progress.get("schedule_ns")) or finite(progress.get("elapsed_ns")) or 0.0) / _NS


def _wanted(setting: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """(requests, seconds) that the level is to take, None where it does not say."""
    wanted = finite(setting.get("count"))
    if wanted is None and (passes := finite(setting.get("passes"))):
        concurrency = finite(setting.get("concurrency"))
        wanted = None if concurrency is None else passes * concurrency
    return wanted, finite(setting.get("duration_s"))


def share(setting: Mapping[str, Any], progress: Mapping[str, Any]) -> float | None:
    """How much of the level is done, in [0, 1]; None when its length is not known. It ends at whichever comes first."""
    requests, seconds = _wanted(setting)
    parts = []
    if requests:
        parts.append((finite(progress.get("done")) or 0.0) / requests)
    if seconds:
        parts.append((finite(progress.get("elapsed_ns")) or 0.0) / _NS / seconds)
    return min(1.0, max(parts)) if parts else None


def level_time(setting: Mapping[str, Any], progress: Mapping[str, Any]) -> str:
    """Elapsed, and what the level is to take: its duration, or what the pace so far makes of a number of requests."""
    elapsed = (finite(progress.get("elapsed_ns")) or 0.0) / _NS
    done, (requests, seconds) = share(setting, progress), _wanted(setting)
    shown = f"{elapsed:.1f} s" if elapsed < 60 else duration(elapsed)
    if seconds and not requests:
        return f"{shown} of {duration(seconds)}"
    expected = elapsed / done if done and done > 0.02 else seconds
    return f"{shown} / about {duration(expected)}" if expected and expected < 1e7 else shown


class Schedule:
    """How far a run is in its levels, where all of them say how long they take.

    Args:
        settings: the levels to do, in order.
    """

    def __init__(self, settings: Sequence[Mapping[str, Any]] = ()) -> None:
        lengths = [finite(setting.get("duration_s")) for setting in settings]
        known = [length for length in lengths if length]
        self._lengths = known if len(known) == len(lengths) and len(known) > 1 else []

    def at(self, index: int, progress: Mapping[str, Any]) -> tuple[float, str] | None:
        """Share done in [0, 1], and in words with the time left; None where it is not known."""
        if index >= len(self._lengths):
            return None
        total = sum(self._lengths)
        past = sum(self._lengths[:index]) + min(_elapsed_s(progress), self._lengths[index])
        return past / total, f"{duration(round(past))} of {duration(total)}, {duration(round(total - past))} left"


class Pace:
    """Requests of a level that were answered ok per second: in the last second, and while its load went on.

    What was shed has ended, too, but is no answer: it leaves the count of what is done. The first answers of a level
    come late by as long as they take, and what drains after its end is no throughput: with them a level of a few
    seconds would look slower than it was.
    """

    def __init__(self) -> None:
        self._lately: deque[tuple[float, float]] = deque()
        self._first: tuple[float, float] | None = None
        self._last: tuple[float, float] = (0.0, 0.0)

    def seen(self, progress: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take the counts of one moment, and give them back with ``done`` and ``rate`` in this sense."""
        elapsed, done = finite(progress.get("elapsed_ns")), finite(progress.get("done"))
        if elapsed is None or done is None:
            return progress
        done -= finite(progress.get("shed")) or 0.0
        ok = finite(progress.get("ok"))
        self._add((elapsed / _NS, done if ok is None else ok), running=progress.get("state") == "running")
        (start_s, before), (end_s, now) = self._lately[0], self._lately[-1]
        known = ok is not None and end_s > start_s
        return {**progress, "done": done, "rate": (now - before) / (end_s - start_s) if known else progress.get("rate")}

    def _add(self, point: tuple[float, float], *, running: bool) -> None:
        self._lately.append(point)
        while len(self._lately) > 1 and self._lately[1][0] <= point[0] - 1:
            self._lately.popleft()
        if running and point[1]:
            self._last = point
            self._first = self._first or point

    def rate(self) -> float | None:
        """Per second of the load; None before it was watched for a second."""
        if self._first is None or (span_s := self._last[0] - self._first[0]) < 1:
            return None
        return (self._last[1] - self._first[1]) / span_s


def facts(progress: Mapping[str, Any]) -> list[str]:
    """Rate, percentiles and counts in one line; what is not known yet is left out."""
    said = [f"{count(progress.get('done'))} done"]
    if (rate := finite(progress.get("rate"))) is not None:
        offered = finite(progress.get("offered_rate"))
        said.append(f"{number(rate)}/s" if offered is None else f"{number(rate)}/s of {number(offered)}/s")
    said += _percentiles(progress, (("p50", "p50_ns"), ("p95", "p95_ns")))
    if (in_flight := finite(progress.get("in_flight"))) is not None and progress.get("state") != "done":
        said.append(f"{in_flight - (finite(progress.get('waiting')) or 0):g} in flight")
    said += [f"{count(n)} {name}" for name in ("waiting", "shed") if (n := finite(progress.get(name)))]
    if progress.get("state") == "draining":
        said.append("draining")
    return said


def recent_facts(progress: Mapping[str, Any]) -> list[str]:
    """Percentiles over the last second: response time, and time to first token."""
    recent = progress.get("recent")
    if not isinstance(recent, Mapping):
        return []
    said = _percentiles(recent, (("p50", "p50_ns"), ("p95", "p95_ns"), ("p99", "p99_ns")))
    first = _percentiles(recent, (("p50", "ttft_p50_ns"), ("p99", "ttft_p99_ns")))
    return said + [f"TTFT {each}" for each in first]


def run_facts(progress: Mapping[str, Any]) -> list[str]:
    """The generator's own state: lateness, CPU, connections."""
    said = []
    recent = progress.get("recent")
    source = recent if isinstance(recent, Mapping) else progress
    for name, key in (("late", "lateness_p99_ns"), ("own part", "pacer_late_p99_ns")):
        value = finite(source.get(key))
        if value is not None:
            said.append(f"p99 {name} {duration(value / _NS)}")
    cpu = finite(progress.get("cpu_share"))
    if cpu is not None:
        said.append(f"CPU {cpu:.0%} of a core")
    connections = finite(progress.get("connections"))
    if connections is not None:
        said.append(f"{count(connections)} connection{'' if connections == 1 else 's'}")
    return said


def _percentiles(source: Mapping[str, Any], keys: Sequence[tuple[str, str]]) -> list[str]:
    """One piece for all, with one unit: ``p50 0.80 p95 1.20 s``; none where nothing ended."""
    values = [(name, (finite(source.get(key)) or 0.0) / _NS) for name, key in keys]
    if not any(value > 0 for _, value in values):
        return []
    unit = time_unit([value for _, value in values])
    return [f"{' '.join(f'{name} {unit.show(value)}' for name, value in values if value > 0)} {unit.name}"]


def failed(progress: Mapping[str, Any]) -> str:
    """Failures by kind; empty without any. What was shed is counted beside them."""
    kinds = progress.get("failed")
    if not isinstance(kinds, Mapping):
        return ""
    apart = "shed" if finite(progress.get("shed")) else ""
    named = [f"{count(n)} {clean(name, 40)}" for name, n in kinds.items() if finite(n) and name != apart]
    return f"failed: {', '.join(named)}" if named else ""
