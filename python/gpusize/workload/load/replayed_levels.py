"""A stored plan as levels: its arrivals, with the bounds of the load that sends it now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusize.base.errors import UsageError
from gpusize.workload.load import engine_plan
from gpusize.workload.load.open_levels import open_setting
from gpusize.workload.schedule.planned_level import Level

if TYPE_CHECKING:
    from gpusize.workload.load.load import Load
    from gpusize.workload.schedule.stored_plan import Plan, PlanPart

__all__ = ["replayed_levels"]


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
    return [_level(load, number, part) for number, part in enumerate(stored.parts)]


def _level(load: Load, number: int, part: PlanPart) -> Level:
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
