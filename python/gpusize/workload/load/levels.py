"""From a load to its levels: the settings that are written down, and the plans that the engine gets."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gpusize.base.errors import UsageError
from gpusize.base.units import seconds_to_ns
from gpusize.workload.load import engine_plan
from gpusize.workload.load.open_levels import expected_of, open_setting, process_of
from gpusize.workload.load.stages import rate_phases
from gpusize.workload.schedule.from_engine import count_arrivals
from gpusize.workload.schedule.planned_level import Level
from gpusize.workload.schedule.rate_profile import RateProfile

if TYPE_CHECKING:
    from gpusize.workload.dataset import Dataset
    from gpusize.workload.load.load import Load
    from gpusize.workload.load.stages import Stage
    from gpusize.workload.load.trace import ArrivalTrace
    from gpusize.workload.schedule.stored_plan import Plan, PlanPart

__all__ = ["Level", "build_levels", "searched_level"]


def build_levels(load: Load, rows: int | Dataset) -> list[Level]:
    """The levels of a load, in order.

    Raises:
        UsageError: there are no rows, or a plan that does not fit them.
    """
    count = rows if isinstance(rows, int) else len(rows)
    dataset = None if isinstance(rows, int) else rows
    if count < 1:
        raise UsageError("there is nothing to send", "load", "give a dataset with at least one row")
    if load.stored is not None:
        return replayed_levels(load, load.stored, count)
    if load.streams:
        from gpusize.workload.load.superposition import stream_levels

        return stream_levels(load, count, dataset)
    if load.trace is not None:
        return [_trace_level(load, load.trace, count, dataset)]
    if load.stages:
        return _stage_levels(load, count)
    closed = [_closed_level(load, index, each, count) for index, each in enumerate(load.concurrencies)]
    return closed or [_rate_level(load, index, each, count) for index, each in enumerate(load.rates)]


def _closed_setting(load: Load, concurrency: int, start: int | None, **rest: Any) -> dict[str, Any]:
    setting: dict[str, Any] = {"kind": "closed", "concurrency": concurrency}
    setting |= {} if start is None else {"from": start}
    setting |= {"think_s": load.think_s}
    setting |= {} if load.think is None else {"think": str(load.think)}
    setting |= {"unit": "session"} if load.sessions else {}
    return {**setting, **rest}


def _closed_level(load: Load, index: int, concurrency: int, rows: int) -> Level:
    count = load.requests(concurrency, rows)
    passes = (count or 0) // concurrency if load.by_passes else None
    setting = _closed_setting(load, concurrency, None, passes=passes, count=load.count, duration_s=load.duration_s)
    duration_ns = None if load.duration_s is None else seconds_to_ns(load.duration_s)
    return Level(
        setting, engine_plan.level_plan(load, index, engine_plan.closed(load, concurrency), count, duration_ns)
    )


def searched_level(load: Load, index: int, users: int, count: int, most_s: float | None) -> Level:
    """A level of a closed loop whose users and length a search has chosen; its draws are those of its number.

    Args:
        load: all that the search leaves alone, such as pauses and allowed errors.
        index: number of the level in its run.
        users: requests in flight.
        count: requests of the level.
        most_s: seconds after which it ends in any case; None for no such bound.
    """
    one = load.changed(concurrencies=(users,), count=count, duration_s=most_s)
    return _closed_level(one, index, users, 1)


def _rate_level(load: Load, index: int, rate: float, rows: int) -> Level:
    process, shape = process_of(load)
    profile = RateProfile([{"duration_ns": None, "from": rate, "to": rate}])
    one = engine_plan.stream(0, engine_plan.rate_arrivals(profile, process, shape))
    duration_ns = None if load.duration_s is None else seconds_to_ns(load.duration_s)
    plan = engine_plan.level_plan(load, index, engine_plan.open_loop(load, [one]), load.count, duration_ns)
    stop: dict[str, Any] = {"count": load.count, "duration_s": load.duration_s}
    if load.duration_s is None:
        stop["expected"] = load.count
    else:
        means = [min(each * load.duration_s, load.count or math.inf) for each in load.rates]
        stop |= expected_of(plan, rows, process, mean=means[index], of_all=sum(means))
    return Level(open_setting(load, rate, process, shape, **stop), plan)


def _stage_levels(load: Load, rows: int) -> list[Level]:
    found, at_ns = [], 0
    of_all = sum(_requests(stage) for stage in load.steps if stage.kind == "open")
    for index, stage in enumerate(load.steps):
        level = (_open_stage if stage.kind == "open" else _closed_stage)(load, index, stage)
        level.setting.update(stage=index, at_s=at_ns / 1e9)
        if stage.kind == "open":
            mean, process = level.setting["rate"] * stage.duration_s, level.setting["process"]
            level.setting.update(expected_of(level.plan, rows, process, mean=mean, of_all=of_all))
        found.append(level)
        at_ns += stage.duration_ns
    return found


def _requests(stage: Stage) -> float:
    """Requests of a stage by its rate."""
    return float(RateProfile(*rate_phases(stage, endless=True)).total(stage.duration_ns))


def _closed_stage(load: Load, index: int, stage: Stage) -> Level:
    end = int(stage.last)
    start = int(stage.start) if stage.is_ramp else None
    what = engine_plan.closed(load, end, start, stage.duration_ns if stage.is_ramp else 0)
    setting = _closed_setting(load, end, start, passes=None, count=None, duration_s=stage.duration_s)
    return Level(setting, engine_plan.level_plan(load, index, what, None, stage.duration_ns))


def _open_stage(load: Load, index: int, stage: Stage) -> Level:
    process, shape = process_of(load, (stage.process, stage.shape))
    profile = RateProfile(*rate_phases(stage, endless=True))
    one = engine_plan.stream(0, engine_plan.rate_arrivals(profile, process, shape))
    rate = float(profile.total(stage.duration_ns) / stage.duration_ns * 10**9)
    setting = open_setting(
        load,
        rate,
        process,
        shape,
        from_rate=stage.start if stage.is_ramp else None,
        to_rate=stage.last if stage.is_ramp else None,
        bursts=None if stage.bursts is None else asdict(stage.bursts),
        duration_s=stage.duration_s,
    )
    return Level(
        setting, engine_plan.level_plan(load, index, engine_plan.open_loop(load, [one]), None, stage.duration_ns)
    )


def _trace_level(load: Load, trace: ArrivalTrace, rows: int, dataset: Dataset | None) -> Level:
    explicit = trace.schedule(load.seed, dataset)
    duration_ns = None if load.duration_s is None else seconds_to_ns(load.duration_s)
    explicit = explicit.between(0, duration_ns).first(load.count)
    if not len(explicit):
        raise UsageError("no request arrives in that time", trace.source, "make the duration longer")
    count = len(explicit)
    # Arrivals at one instant have no rate: 0 stands for that, as for a pause.
    span_s = load.duration_s or int(explicit.due_ns[-1]) / 1e9
    one = engine_plan.stream(0, "plan")
    plan = engine_plan.level_plan(
        load, 0, engine_plan.open_loop(load, [one]), None if duration_ns else count, duration_ns
    )
    stop = {"count": None if duration_ns else count, "duration_s": load.duration_s}
    setting = open_setting(
        load, count / span_s if span_s else 0.0, "trace", **stop, expected=count_arrivals(plan, rows, explicit)
    )
    return Level(setting, plan, explicit)


def replayed_levels(load: Load, stored: Plan, rows: int) -> list[Level]:
    """The levels of a stored plan, with the load's own bounds (connections, queue, overload, errors).

    Raises:
        UsageError: the plan names rows that the dataset does not have.
    """
    if stored.highest_row >= rows:
        what = f"the plan sends row {stored.highest_row}, and the dataset has {rows} rows"
        several = any(len(part.streams) > 1 for part in stored.parts) and not load.streams
        more = ", and with --load the streams: they say which rows are whose" if several else ""
        raise UsageError(what, stored.source, f"give the dataset that it was made for{more}")
    return [_replayed(load, number, part) for number, part in enumerate(stored.parts)]


def _replayed(load: Load, number: int, part: PlanPart) -> Level:
    streams = [{**engine_plan.stream(each, "plan"), "priority": priority} for each, priority in part.streams]
    what = engine_plan.open_loop(load, streams or [engine_plan.stream(0, "plan")])
    stored = part.plan.get("load", {}).get("open", {})
    what["open"] |= {name: stored[name] for name in ("unit", "think") if name in stored}
    stop = part.plan.get("stop", {"count": len(part.explicit), "duration_ns": None})
    plan = engine_plan.level_plan(load, number, what, stop["count"], stop["duration_ns"])
    plan |= {name: part.plan[name] for name in ("seed", "order") if name in part.plan}
    last_s = int(part.explicit.due_ns[-1]) / 1e9 if len(part.explicit) else 0.0
    usual = {"rate": len(part.explicit) / last_s if last_s else 0.0, "count": stop["count"]}
    if len(part.streams) > 1 and "streams" not in part.setting:
        usual["streams"] = [{"id": each, "name": f"stream {each}", "process": "plan"} for each, _ in part.streams]
    kept = {**usual, **part.setting}
    for name in ("kind", "process", "shape", "overload", "queue", "connections", "passes", "expected"):
        kept.pop(name, None)
    setting = open_setting(load, kept.pop("rate"), "plan", **kept, expected=len(part.explicit))
    return Level(setting, plan, part.explicit)
