"""What the live view and the plain lines say of a running level, as short pieces of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpusize.report.text import clean, count, duration, finite, number, percent, plain_number, time_unit

__all__ = [
    "Schedule",
    "draining",
    "facts",
    "failed",
    "hosts_line",
    "level_time",
    "numbered",
    "recent_facts",
    "run_facts",
    "setting_text",
    "share",
    "so_far_facts",
]

_NS: Final = 1e9


def numbered(index: int, total: int) -> str:
    """``level 3/8``; ``level 3`` where nobody knows yet how many there will be."""
    return f"level {index + 1}/{total}" if total else f"level {index + 1}"


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
    at_once = (
        setting.get("expected") if setting.get("process") in ("trace", "plan") and not setting.get("rate") else None
    )
    what = " sessions" if setting.get("unit") == "session" else ""
    text = f"{at_once:,} at once" if at_once else f"{rate}{what}/s {setting.get('process') or ''}".strip()
    bursts = setting.get("bursts")
    if isinstance(bursts, Mapping):
        text += f", bursts of {plain_number(bursts.get('rate'), 6)}/s"
    streams = setting.get("streams")
    if isinstance(streams, Sequence) and len(streams) > 1:
        text += f", {len(streams)} streams"
    return text


def _elapsed_s(progress: Mapping[str, Any]) -> float:
    return (finite(progress.get("schedule_ns")) or finite(progress.get("elapsed_ns")) or 0.0) / _NS


def _wanted(setting: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """(requests, seconds) that the level is to take, None where it does not say."""
    wanted = finite(setting.get("count"))
    if wanted is None and (passes := finite(setting.get("passes"))):
        concurrency = finite(setting.get("concurrency"))
        wanted = None if concurrency is None else passes * concurrency
    return wanted, finite(setting.get("duration_s"))


def _ended(progress: Mapping[str, Any]) -> float:
    """Requests that are over with; ``done`` is without those that were shed, as ``Pace`` counts."""
    return (finite(progress.get("done")) or 0.0) + (finite(progress.get("shed")) or 0.0)


def share(setting: Mapping[str, Any], progress: Mapping[str, Any]) -> float | None:
    """How much of the level is done, in [0, 1]; None when its length is not known. It ends at whichever comes first."""
    requests, seconds = _wanted(setting)
    parts = []
    if requests:
        parts.append(_ended(progress) / requests)
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
    """How far a run is in its levels, where all of them say how long they take, or all how many requests.

    Args:
        settings: all levels of the run, in order.
    """

    def __init__(self, settings: Sequence[Mapping[str, Any]] = ()) -> None:
        wanted = [_wanted(setting) for setting in settings] if len(settings) > 1 else []
        lengths = [seconds for _, seconds in wanted if seconds]
        counts = [requests for requests, _ in wanted if requests]
        self._lengths = lengths if len(lengths) == len(wanted) else []
        self._counts = counts if len(counts) == len(wanted) else []

    def at(self, step: int, progress: Mapping[str, Any]) -> tuple[float, str] | None:
        """Share done in [0, 1], and in words, with the time left where that is known; None where nothing is.

        Args:
            step: place of the running level among all of the run, from 0.
            progress: of that level.
        """
        if step < len(self._lengths):
            total = sum(self._lengths)
            past = sum(self._lengths[:step]) + min(_elapsed_s(progress), self._lengths[step])
            return past / total, f"{duration(round(past))} of {duration(total)}, {duration(round(total - past))} left"
        if step < len(self._counts):
            total = sum(self._counts)
            past = sum(self._counts[:step]) + min(_ended(progress), self._counts[step])
            return past / total, f"{count(past)} of {count(total)} requests"
        return None


def draining(before: Sequence[tuple[int, Mapping[str, Any]]]) -> str:
    """Of levels before the running one what is still to come: ``level 3 drains, 12 in flight``; empty without any.

    Args:
        before: their numbers from 1, with their progress.
    """
    open_ = [(number, finite(progress.get("in_flight")) or 0.0) for number, progress in before]
    left = [(number, in_flight) for number, in_flight in open_ if in_flight]
    if not left:
        return ""
    who = f"level {left[0][0]} drains" if len(left) == 1 else f"levels {left[0][0]} to {left[-1][0]} drain"
    return f"{who}, {count(sum(in_flight for _, in_flight in left))} in flight"


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


def so_far_facts(progress: Mapping[str, Any], *, times: bool = True) -> list[str]:
    """Of a level so far: TTFT, ITL, output tokens per second, and each SLO's share; what is not known is left out.

    Args:
        progress: with ``so_far``, as `gpusize.measure.so_far.SoFar.look`.
        times: whether TTFT and ITL are wanted.
    """
    found = progress.get("so_far")
    if not isinstance(found, Mapping):
        return []
    said = []
    for name, label in (("ttft", "TTFT"), ("itl", "ITL")) if times else ():
        shown = _percentiles(found, (("p50", f"{name}_p50_ns"), ("p95", f"{name}_p95_ns")))
        said += [f"{label} {each}" for each in shown]
    if (rate := finite(found.get("tokens_per_s"))) is not None:
        said.append(f"{number(rate)} tokens/s")
    judged = found.get("judged") or {}
    for k, (within, n) in enumerate(judged.values()):
        said.append(f"SLO{f' {k + 1}' if len(judged) > 1 else ''} {percent(within / n)} of {count(n)}")
    return said


MOST_NAME: Final = 80
"""Of a host: names have up to 63 characters, and at their end what tells them apart."""


def hosts_line(hosts: Sequence[Mapping[str, Any]]) -> str:
    """How late each host of a level sent, at p99; of one that did not send to the end that."""
    said = []
    for host in hosts:
        name, late_ns = clean(str(host.get("name") or host.get("host")), MOST_NAME), finite(host.get("lateness_p99_ns"))
        gone = "lost" if host.get("missing") else "-"
        said.append(f"{name} {gone if late_ns is None else duration(late_ns / _NS)}")
    return f"hosts: {', '.join(said)} late (p99)"


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
