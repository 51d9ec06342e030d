"""What weakens a judgement, or explains it: triggers that fell back, loads that cannot see capacity, gaps, clocks.

Facts alone: the sentences are written where they are shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gpusize.estimate.plan.autoscale.judge.series import (
    CONDITIONS,
    TRIGGER_ACTIVE,
    TRIGGER_ERRORS,
    TRIGGER_VALUE,
    PulledSeries,
    step_of,
)
from gpusize.estimate.plan.autoscale.judge.track import LATE, Track

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.analysis.level import LevelData

__all__ = ["Finding", "blind_conditions", "closed_loop", "failed_scalers", "frozen_metrics", "gaps"]

FROZEN_S: Final = 300.0
"""A metric that stays at one value for so long, while the load moves, is looked at."""
FROZEN_READINGS: Final = 10
MOVED: Final = 0.2
"""By this share of the most the requests at work have to move meanwhile."""
NAME_CHARS: Final = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that the reader should know.

    Attributes:
        code: what kind of finding it is.
        facts: its figures, plain JSON types.
        warns: whether it weakens what was measured; else it explains it.
    """

    code: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    warns: bool = True

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {"code": self.code, "warns": self.warns, **self.facts}


def failed_scalers(series: PulledSeries, desired: Track | None) -> Iterator[Finding]:
    """Scalers of KEDA whose counter of errors rose: it falls back to a fixed number without a word."""
    for labels, at, values in _each(series, TRIGGER_ERRORS):
        rises = _rises(at, values)
        inside = (at > 0) & (at <= series.end_s) & (rises > 0)
        if not inside.any():
            continue
        first, last = float(at[inside][0]), float(at[inside][-1])
        facts = {"scaler": labels, "errors": float(rises[inside].sum()), "from_s": first, "until_s": last}
        yield Finding("scaler_errors", {**facts, **_held(desired, first, last)})


def _rises(at: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """By how much a counter rose until each reading; one that fell began anew. One that appears late began at 0."""
    import numpy as np

    if not values.size:
        return values
    rises = np.diff(values, prepend=values[0])
    rises = np.where(rises < 0, values, rises)
    # KEDA's counters are not there before the first error.
    if at[0] > LATE * step_of(at):
        rises[0] = values[0]
    return rises


def frozen_metrics(series: PulledSeries, desired: Track | None, running: Track | None) -> Iterator[Finding]:
    """Metrics of active triggers that stayed at one value while the requests at work moved: a fallback, or stale."""
    import numpy as np

    if running is None:
        return
    active = {labels: (at, values) for labels, at, values in _each(series, TRIGGER_ACTIVE)}
    for labels, at, values in _each(series, TRIGGER_VALUE):
        first, last = _longest(values)
        if last - first + 1 < FROZEN_READINGS or at[last] - at[first] < FROZEN_S or values[first] == 0:
            continue
        from_s, until_s = max(0.0, float(at[first])), min(series.end_s, float(at[last]))
        part = running.part(from_s, until_s) if until_s > from_s else None
        known = np.array([]) if part is None else part.values[~np.isnan(part.values)]
        if not known.size or np.ptp(known) < MOVED * known.max():
            continue
        if not _was_active(active, labels, from_s, until_s):
            continue
        facts = {"scaler": labels, "value": float(values[first]), "from_s": from_s, "until_s": until_s}
        yield Finding("frozen_metric", {**facts, **_held(desired, from_s, until_s)})


def _was_active(
    active: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]], labels: str, from_s: float, until_s: float
) -> bool:
    """Whether a trigger was active in a stretch; where its own series does not say, it is taken for that."""
    if labels not in active:
        return True
    at, values = active[labels]
    inside = values[(at >= from_s) & (at <= until_s)]
    return not inside.size or bool((inside > 0).any())


def _longest(values: NDArray[np.float64]) -> tuple[int, int]:
    """The first and last place of the longest run of one value."""
    import numpy as np

    edges = np.flatnonzero(np.append(True, np.diff(values) != 0))
    lengths = np.diff(np.append(edges, values.size))
    k = int(np.argmax(lengths))
    return int(edges[k]), int(edges[k] + lengths[k] - 1)


def _held(desired: Track | None, from_s: float, until_s: float) -> dict[str, Any]:
    """What was asked for meanwhile: from how few to how many."""
    import numpy as np

    if desired is None:
        return {"desired_low": None, "desired_high": None}
    part = desired.part(from_s, max(until_s, from_s + 1e-9)).values
    known = part[~np.isnan(part)]
    return (
        {"desired_low": _number(known.min()), "desired_high": _number(known.max())} if known.size else _held(None, 0, 0)
    )


def blind_conditions(series: PulledSeries, needed: Track | None, ready: Track | None) -> Iterator[Finding]:
    """When the HPA said that it could not read its metrics, and when it was at a bound while more was needed."""
    for condition, statuses, code in (
        ("ScalingActive", ("false", "unknown"), "hpa_blind"),
        ("ScalingLimited", ("true",), "held_at_bound"),
    ):
        for labels, at, values in _each(series, CONDITIONS, parsed=True):
            told = json.loads(labels)
            if told.get("condition") != condition or str(told.get("status", "")).lower() not in statuses:
                continue
            step_s = step_of(at)
            inside = (values > 0) & (at >= 0) & (at < series.end_s)
            if code == "held_at_bound":
                if needed is None or ready is None:
                    continue
                inside &= needed.at(at) > ready.at(at)
            if inside.any():
                facts = {"from_s": float(at[inside][0]), "until_s": float(at[inside][-1]) + step_s}
                yield Finding(code, {"hpa": _who(told), "held_s": float(inside.sum() * step_s), **facts})


def closed_loop(
    levels: Sequence[LevelData], end_s: float, in_flight: Sequence[Track], ready: Track | None
) -> Iterator[Finding]:
    """A load that keeps as many requests in flight whatever the replicas: no signal of them can see capacity."""
    import numpy as np

    users = [level.concurrency for level in levels if level.setting.get("kind") != "open"]
    if not users:
        return
    facts: dict[str, Any] = {"levels": len(users), "of": len(levels), "users": max(each or 0 for each in users)}
    if in_flight:
        at = np.unique(np.concatenate([each.at_s for each in in_flight]))
        # Its beginning and its end are not held yet, or no more.
        at = at[(at > 0.1 * end_s) & (at < 0.9 * end_s)]
        total = np.nansum([each.at(at) for each in in_flight], axis=0)
        if total.size:
            facts |= {"in_flight_low": float(total.min()), "in_flight_high": float(total.max())}
    if ready is not None and not np.isnan(ready.values).all():
        facts |= {"ready_low": _number(np.nanmin(ready.values)), "ready_high": _number(np.nanmax(ready.values))}
    yield Finding("closed_loop", facts)


def gaps(tracks: Mapping[str, Track | None], end_s: float) -> Iterator[Finding]:
    """Series that are missing, and stretches in which nobody read the others; series with equal stretches together."""
    found: dict[tuple[tuple[float, float], ...], list[str]] = {}
    for name, track in tracks.items():
        if track is None:
            yield Finding("no_series", {"name": name})
        elif spans := track.unknown():
            found.setdefault(tuple(spans), []).append(name)
    for same, names in found.items():
        unknown_s = sum(until - since for since, until in same)
        since, until = max(same, key=lambda each: each[1] - each[0])
        facts = {"names": names, "unknown_s": unknown_s, "share": unknown_s / end_s, "spans": len(same)}
        yield Finding("gap", {**facts, "longest_from_s": since, "longest_until_s": until})


def _each(
    series: PulledSeries, name: str, *, parsed: bool = False
) -> Iterator[tuple[str, NDArray[np.float64], NDArray[np.float64]]]:
    """By label set its times and values; the label set in words, or as JSON."""
    import polars as pl

    rows = series.rows(name).with_columns(pl.col("labels").cast(pl.String))
    frame = rows.unique(["labels", "t_ns"], keep="last").sort("labels", "t_ns")
    for (labels,), group in frame.group_by("labels", maintain_order=True):
        text = str(labels or "{}")
        named = text if parsed else _who(json.loads(text))
        yield named, series.at_s(group["t_ns"].to_numpy()), group["value"].to_numpy().astype(float)


def _who(labels: Mapping[str, Any]) -> str:
    """A label set in words: what tells one scaler, or HPA, from another."""
    known = ("scaledObject", "scaledobject", "horizontalpodautoscaler", "hpa", "scaler", "metric", "triggerIndex")
    chosen = [str(labels[name]) for name in known if labels.get(name)]
    return ", ".join(chosen or [f"{key}={value}" for key, value in labels.items()])[:NAME_CHARS]


def _number(value: Any) -> float:
    return float(value)
