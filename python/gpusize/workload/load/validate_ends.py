"""When a load ends: which ends are invalid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusize.base.errors import UsageError
from gpusize.base.units import format_duration
from gpusize.workload.load.numbers import as_seconds, as_whole

if TYPE_CHECKING:
    from gpusize.workload.load.load import Load

__all__ = ["check_ends"]


def check_ends(load: Load) -> None:
    """Refuse ends that are invalid, that contradict each other, and a load that never ends.

    Raises:
        UsageError: such an end.
    """
    for name, low in (("passes", 0), ("count", 1)):
        if getattr(load, name) is not None:
            object.__setattr__(load, name, as_whole(getattr(load, name), name, low, 2**53))
    for name, positive in (("duration_s", True), ("warmup_s", False), ("drain_s", False)):
        value = getattr(load, name)
        if value is not None:
            object.__setattr__(load, name, as_seconds(value, name, positive=positive))
    _check_together(load)
    _check_streams(load)
    if load.duration_s is not None and load.warmup_s is not None and load.warmup_s >= load.duration_s:
        raise UsageError("the warm-up is as long as the level", "load", "make the duration longer than the warm-up")


def _check_together(load: Load) -> None:
    timed = load.count is not None or load.duration_s is not None
    if load.passes is not None and timed:
        todo = "give one of them: passes say how many requests"
        raise UsageError("passes are given beside a count or a duration", "load", todo)
    if load.kind == "open" and load.passes is not None:
        raise UsageError("passes belong to concurrencies, not to rates", "load", "give a duration or a count")
    if load.rates and not timed:
        raise UsageError("the open loop would never end", "load", "give a duration, such as 60s, or a count")
    if load.stages and (timed or load.passes is not None):
        raise UsageError("stages have their own lengths", "load", "leave out duration, count and passes")
    if load.plan is not None and timed and not load.streams:
        raise UsageError("a plan has its own end", "load", "leave out duration and count")


def _check_streams(load: Load) -> None:
    if load.streams and load.count is not None:
        raise UsageError("a count belongs to each stream", "load", "give it there, or a duration here")
    endless = next((each for each in load.streams if each.rate is not None and each.duration_s is None), None)
    if endless is not None and load.duration_s is None and load.plan is None:
        raise UsageError(f"{endless.label} would never end", "load", "give it a duration, or one for the run")
    if load.streams and load.duration_s is not None and all(each.start_s >= load.duration_s for each in load.streams):
        what = f"no stream begins before the end of the run, which lasts {format_duration(load.duration_s)}"
        raise UsageError(what, "streams", "let one start earlier, or make the duration longer")
