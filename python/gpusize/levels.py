"""Levels as the analysis sees them: setting, state, steady window and records; and how they are read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.errors import StoreError
from gpusize.frames import check_schema, empty, scan
from gpusize.metrics import metric

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from gpusize.slo import Slo

__all__ = ["LevelData", "read_levels"]

_LLM_API: Final = "openai"
_ITEM_FIELDS: Final = {"runtime": "workflow_runtime", "service": "workflow_runtime", "llm_latency": "llm_latency"}


@dataclass(frozen=True, slots=True, eq=False)
class LevelData:
    """One visit of a level, or several equal ones pooled.

    Attributes:
        visit: number of the (first) visit.
        setting: as in docs/reference/run-folder.md.
        state: ``done``, ``interrupted``, ``cancelled`` or ``partial``.
        intervals: warm-up, steady and drain; without any, all records are steady.
        gpus: GPUs behind the target; 0 when nobody said.
        run: id of the (first) run.
        meta: the level's ``level.json``.
        labels: the run's labels.
        source: what must be equal for levels to be compared: ``targets``, ``models``, ``dataset`` (any JSON).
        records: one row per attempt; without rows for an imported level.
        histograms: metric, low_ns, high_ns, count; None when there are none.
        percentiles: for imported levels, seconds by name, as ``runtime_p95_s``.
        items: for imported levels, the other tool's figures per dataset item, in seconds.
        parts: the visits that were pooled; empty for a single visit.
    """

    visit: int
    setting: Mapping[str, Any]
    state: str
    intervals: Sequence[Mapping[str, Any]]
    gpus: int
    run: str
    meta: Mapping[str, Any]
    labels: Mapping[str, str] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)
    records: pl.LazyFrame = field(default_factory=empty)
    histograms: pl.LazyFrame | None = None
    percentiles: Mapping[str, float] = field(default_factory=dict)
    items: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    parts: tuple[LevelData, ...] = ()

    @property
    def concurrency(self) -> int | None:
        """Requests kept in flight; None for an open loop."""
        value = self.setting.get("concurrency")
        return None if value is None else int(value)

    @property
    def rate(self) -> float | None:
        """Requests per second that were asked for; None for a closed loop."""
        value = self.setting.get("rate")
        return None if value is None else float(value)

    @property
    def imported(self) -> bool:
        """Whether the level has another tool's figures instead of records."""
        return bool(self.meta.get("imported"))

    @property
    def llm(self) -> bool:
        """Whether a request is the call of a language model, so that its service time is the LLM latency."""
        targets = self.source.get("targets") or []
        return bool(targets) and all(str(t.get("api") or "").startswith(_LLM_API) for t in targets)

    def _known(self, name: str) -> str | None:
        """The metric of the records that says ``name``; None for an imported level, and where there is none."""
        if self.imported:
            return None
        if name == "llm_latency":
            return "service" if self.llm else None
        return name if metric(name).build is not None else None

    def visits(self) -> tuple[LevelData, ...]:
        """The single visits: the pooled ones, or this one."""
        return self.parts or (self,)

    def window(self) -> tuple[int, int]:
        """(start_ns, end_ns) around the steady intervals of one visit.

        Without intervals, from the level's start to its end.
        """
        steady = [i for i in self.intervals if i["name"] == "steady"]
        if steady:
            return min(int(i["start_ns"]) for i in steady), max(int(i["end_ns"]) for i in steady)
        return int(self.meta.get("start_ns") or 0), int(self.meta.get("end_ns") or 0)

    def window_s(self) -> float:
        """Length of the steady intervals in seconds, summed over pooled visits."""
        return sum((v.window()[1] - v.window()[0]) / 1e9 for v in self.visits())

    def steady(self) -> pl.LazyFrame:
        """The records due in a steady interval."""
        import polars as pl

        if self.parts:
            return pl.concat([part.steady() for part in self.parts])
        windows = [(i["start_ns"], i["end_ns"]) for i in self.intervals if i["name"] == "steady"]
        if not windows:
            return self.records
        due = pl.col("due_ns")
        return self.records.filter(pl.any_horizontal(*((due >= low) & (due < high) for low, high in windows)))

    def ok(self) -> pl.LazyFrame:
        """The steady records that ended ok."""
        import polars as pl

        return self.steady().filter(pl.col("outcome") == "ok")

    def quantile(self, name: str, prob: float) -> float | None:
        """Exact quantile of a metric over steady requests that ended ok, in the metric's unit.

        For an imported level the stored percentile, else the quantile of the stored items. None where nothing is known.
        """
        if not self.imported:
            known = self._known(name)
            return None if known is None else metric(known).quantiles(self.ok(), [prob])[0]
        stored = self.percentiles.get(f"{'runtime' if name == 'service' else name}_p{round(prob * 100, 6):g}_s")
        if stored is not None:
            return stored if math.isfinite(stored) and stored > 0 else None
        import numpy as np

        values = self.values(name)
        return float(np.quantile(values, prob)) if values.size else None

    def mean(self, name: str) -> float | None:
        """Mean of a metric over steady requests that ended ok, in the metric's unit."""
        values = self.values(name)
        return float(values.mean()) if values.size else None

    def values(self, name: str) -> NDArray[np.float64]:
        """A metric of the steady requests that ended ok, or of an imported level's items; its unit, shape (n,)."""
        import numpy as np

        known = self._known(name)
        return np.array(self.item_values(name)) if known is None else metric(known).values(self.ok())

    def item_values(self, name: str) -> list[float]:
        """An imported level's figures per item, seconds; zeros are that tool's missing values and left out."""
        key = _ITEM_FIELDS.get(name)
        if key is None:
            return []
        return [v for item in self.items.values() if (v := item.get(key)) is not None and math.isfinite(v) and v > 0]

    def attainment(self, slo: Slo) -> tuple[float, int]:
        """Share of steady requests within the SLO and the number judged; (nan, 0) when nothing is known."""
        if not self.imported:
            judged = self._judged(slo)
            return (math.nan, 0) if judged is None else judged.attainment(self.steady())
        values = self.item_values(slo.metric) if slo.kind != "share" else []
        if not values:
            return math.nan, 0
        return sum(slo.within(value) for value in values) / len(values), len(values)

    def met(self, slo: Slo) -> bool | None:
        """Whether the level keeps the SLO; None when it says nothing about it."""
        share, n = self.attainment(slo)
        if n == 0:
            return None
        if slo.kind != "mean":
            return slo.met_by(share)
        judged = self._judged(slo)
        if judged is not None:
            return judged.met(self.steady())
        mean = self.mean(slo.metric)
        return mean is not None and slo.within(mean)

    def _judged(self, slo: Slo) -> Slo | None:
        """The SLO in terms of the records; None where they cannot hold its metric."""
        known = slo.metric if slo.kind == "share" and not self.imported else self._known(slo.metric)
        return None if known is None else replace(slo, metric=known)


def read_levels(run_dir: Path, *, warmup_s: float | None = None) -> list[LevelData]:
    """The committed levels of a run folder, in the order of their visits.

    Args:
        run_dir: a run folder.
        warmup_s: judge the levels again with this warm-up instead of the stored intervals.

    Raises:
        StoreError: it is no run folder, is damaged, or is of a newer version.
    """
    run = _read_json(run_dir / "run.json")
    check_schema(run.get("schema", 1), str(run_dir / "run.json"))
    folders = sorted(p for p in (run_dir / "levels").glob("[0-9]*") if p.is_dir())
    return [_read_level(folder, run_dir, run, warmup_s) for folder in folders]


def _read_level(folder: Path, run_dir: Path, run: Mapping[str, Any], warmup_s: float | None) -> LevelData:
    import polars as pl

    meta = _read_json(folder / "level.json")
    check_schema(meta.get("schema", 1), str(folder / "level.json"))
    records = scan(sorted((folder / "records").glob("part-*.parquet")))
    histograms = folder / "histograms.parquet"
    try:
        level = LevelData(
            visit=int(meta["visit"]),
            setting=meta["setting"],
            state=str(meta["state"]),
            intervals=meta.get("intervals") or [],
            gpus=sum(int(target.get("gpus") or 0) for target in run.get("targets") or []),
            run=str(run.get("run", run_dir.name)),
            meta=meta,
            labels=run.get("labels") or {},
            source=_source(run),
            records=records,
            histograms=pl.scan_parquet(histograms) if histograms.is_file() else None,
            percentiles=meta.get("percentiles") or {},
            items=meta.get("items") or {},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(
            f"a field is missing or wrong ({error})", str(folder / "level.json"), "is it damaged?"
        ) from None
    if level.imported or (level.intervals and warmup_s is None):
        return level
    from gpusize.windows import intervals

    return replace(level, intervals=intervals(meta, records, warmup_s).intervals)


def _source(run: Mapping[str, Any]) -> dict[str, Any]:
    """What identifies the system and the work: addresses and APIs, models, digest of the dataset."""
    targets = [
        {"url": t.get("url"), "api": t.get("api"), "simulated": t.get("simulated")} for t in run.get("targets") or []
    ]
    # The simulated cluster listens on another port each time; its configuration is what it is.
    for target in targets:
        if target["simulated"] is not None:
            target["url"] = None
    dataset = run.get("dataset") or {}
    return {
        "targets": targets,
        "models": run.get("models") or [],
        "dataset": dataset.get("sha256") or dataset.get("source"),
    }


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise StoreError("not found", str(path), "give the folder of a run, the one that holds run.json") from None
    except OSError as error:
        raise StoreError(f"unreadable ({error.strerror})", str(path), "check its permissions") from None
    except ValueError as error:
        raise StoreError(f"broken JSON ({error})", str(path), "the file is damaged; leave this run out") from None
    if not isinstance(found, dict):
        raise StoreError("not a JSON object", str(path), "the file is damaged; leave this run out")
    return found
