"""What levels of open loops have in common: their process, their setting and how many requests they send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpusize.workload.schedule.from_engine import count_arrivals

if TYPE_CHECKING:
    from gpusize.workload.load.load import Load

__all__ = ["expected_of", "open_setting", "process_of"]

MOST_COUNTED: Final = 50_000_000
"""Arrivals with random gaps up to which a load is counted one by one: some seconds of work."""


def process_of(load: Load, *choices: tuple[str | None, float | None]) -> tuple[str, float | None]:
    """Process and shape: the first choice that names one, else the load's; no shape but for gamma."""
    process = next((name for name, _ in choices if name is not None), load.process)
    shapes = [shape for name, shape in choices if shape is not None and name in (None, "gamma")]
    return process, (shapes[0] if shapes else load.burstiness or 1.0) if process == "gamma" else None


def open_setting(load: Load, rate: float, process: str, shape: float | None = None, **rest: Any) -> dict[str, Any]:
    """The setting of a level of an open loop; ``rest`` stands behind what all have."""
    setting: dict[str, Any] = {"kind": "open", "rate": rate, "process": process}
    setting |= {} if shape is None else {"shape": shape}
    between = {name: rest.pop(name) for name in ("from_rate", "to_rate", "bursts", "streams") if name in rest}
    setting |= {name: value for name, value in between.items() if value is not None}
    setting |= {"overload": load.overload, "queue": load.queue, "connections": load.connections}
    if load.sessions:
        setting |= {"unit": "session", "think_s": load.think_s}
        setting |= {} if load.think is None else {"think": str(load.think)}
    return {**setting, "passes": None, "count": None, "duration_s": None, **rest}


def expected_of(plan: dict[str, Any], rows: int, process: str, *, mean: float, of_all: float) -> dict[str, int]:
    """How many requests a level sends: ``expected``, exactly, or ``expected_about`` where counting would take too long.

    Args:
        plan: its LevelPlan.
        rows: of the dataset.
        process: its arrivals; those with equal gaps need no counting.
        mean: requests of the level, by its rate.
        of_all: those of all levels together.
    """
    if process != "constant" and of_all > MOST_COUNTED:
        return {"expected_about": round(mean)}
    return {"expected": count_arrivals(plan, rows)}
