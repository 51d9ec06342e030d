"""Levels as the analysis sees them: setting, state, steady window and records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusize.analysis.failed_requests import misses_by_failures, share_told
from gpusize.analysis.gaps import gap_mean, gap_quantiles
from gpusize.analysis.histograms import COUNTED, attainment, histogram_mean, histogram_quantiles, outcomes_due
from gpusize.analysis.kept import LARGEST, Kept
from gpusize.analysis.metrics import METRICS, Metric, metric, of_request
from gpusize.analysis.slo import Slo
from gpusize.base.errors import UsageError
from gpusize.records.calls import judged_calls
from gpusize.records.run_json import nature_of
from gpusize.records.schema import empty

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from gpusize.workload.dataset import LengthReport

__all__ = ["LevelData"]


@dataclass(frozen=True, slots=True, eq=False)
class LevelData:
    """One visit of a level, or several equal ones pooled.

    Attributes:
        visit: number of the (first) visit.
        setting: as in docs/reference/run-folder.md.
        state: ``done``, ``interrupted``, ``cancelled`` or ``partial``.
        intervals: warm-up, steady and drain; without any, all records are steady.
        gpus: GPUs behind the target; 0 when unknown.
        run: id of the (first) run.
        meta: the level's ``level.json``.
        labels: the run's labels.
        source: what must be equal for levels to be compared: ``targets``, ``models``, ``dataset`` (any JSON).
        records: one row per attempt; without rows for an imported level, 1 row in ``sampled`` for a sampled one. Over
            the files, where the level has a folder: figures take ``requests``.
        calls: the calls of language models inside the requests, of this visit; None when none are known.
        histograms: as ``gpusize.records.per_second.scan_histograms``; None when there are none.
        seconds: as ``gpusize.records.per_second.scan_seconds``; None when there are none.
        percentiles: for imported levels, seconds by name, as ``runtime_p95_s`` or ``runtime_mean_s``.
        items: for imported levels, the other tool's figures per dataset item, in seconds.
        parts: the visits that were pooled; empty for a single visit.
        rows: what the run kept of its dataset's rows, as ``records.dataset_rows.read_rows``; None when it kept none.
        folder: the level's folder; None for levels that are in memory only.
        balance: the rule by which the generator chose among several replicas; empty for one, or where it is not known.
        before: the visit that the same run measured before this one; None for the first, and where that is not known.
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
    calls: pl.LazyFrame | None = None
    histograms: pl.LazyFrame | None = None
    seconds: pl.LazyFrame | None = None
    percentiles: Mapping[str, float] = field(default_factory=dict)
    items: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    parts: tuple[LevelData, ...] = ()
    rows: pl.DataFrame | None = None
    folder: Path | None = None
    balance: str = ""
    before: LevelData | None = field(default=None, repr=False, compare=False)
    kept: Kept = field(default_factory=Kept, init=False, repr=False)

    def requests(self, *more: str) -> pl.LazyFrame:
        """The records with the columns ``kept.COLUMNS`` and ``more``, read from the files once for all figures."""
        import polars as pl

        if self.parts:
            return pl.concat([part.requests(*more) for part in self.parts])
        if self.folder is None or int(self.meta.get("rows") or 0) > LARGEST:
            return self.records
        return self.kept.rows(self.records, more)

    @property
    def concurrency(self) -> int | None:
        """Requests kept in flight; None for an open loop."""
        value = self.setting.get("concurrency")
        return None if value is None else int(value)

    @property
    def rate(self) -> float | None:
        """Requests per second that were asked for, of conversations how many begin; None for a closed loop.

        How many requests these bring, `gpusize.analysis.throughput.request_rate` says.
        """
        value = self.setting.get("rate")
        return None if value is None else float(value)

    @property
    def by_session(self) -> bool:
        """Whether the load counts conversations: a rate says how many begin, and each brings several requests."""
        return self.setting.get("unit") == "session"

    @property
    def imported(self) -> bool:
        """Whether the level has another tool's figures instead of records."""
        return bool(self.meta.get("imported"))

    @property
    def due_known(self) -> bool:
        """Whether the rows say when requests were due; of some imports they do not, and ``due_ns`` is the write."""
        return all(bool(visit.meta.get("due_known", True)) for visit in self.visits())

    def tells(self, of: Metric) -> bool:
        """Whether the rows hold a metric; without due times, none that counts from them.

        In a closed loop a request is due when its user is free, so that the runtime is the service time.
        """
        if self.due_known or of.origin != "due":
            return True
        return self.concurrency is not None and of.requests == "ok"

    @property
    def sampled(self) -> int:
        """1, or n where 1 in n requests has a row and seconds and histograms tell of all."""
        return int(self.meta.get("sampled") or 1)

    def _from_histograms(self, name: str) -> str | None:
        """The metric whose histogram tells of ``name``; None where every request has a row, and where there is none."""
        if self.sampled == 1 or self.histograms is None:
            return None
        known = name if self.knows_calls or name not in METRICS else of_request(name, self.nature)
        return known if known in COUNTED else None

    @property
    def llm(self) -> bool:
        """Whether a request is the call of a language model, so that its service time is the LLM latency."""
        return self.nature == "language_model"

    @property
    def nature(self) -> str | None:
        """What a request is, where the APIs of all targets declare the same (`gpusize.records.run_json.nature_of`)."""
        natures = {nature_of(target) for target in self.source.get("targets") or []}
        return natures.pop() if len(natures) == 1 else None

    def _measured(self, name: str) -> tuple[Metric, pl.LazyFrame] | None:
        """The metric that says ``name``, and the steady rows that have it: records, or LLM calls with outcomes.

        None for an imported level, and where there is none.
        """
        if self.imported:
            return None
        found = metric(name)
        if found.table == "calls":
            calls = self.llm_calls()
            if calls is not None:
                return found, calls
            found = metric(of_request(name, self.nature))
        if found.build is None or found.table != "records" or not self.tells(found):
            return None
        return found, self.steady(*found.columns)

    @property
    def knows_calls(self) -> bool:
        """Whether the LLM calls inside the requests are known."""
        return any(visit.calls is not None for visit in self.visits())

    def llm_calls(self) -> pl.LazyFrame | None:
        """The LLM calls of the steady requests, as ``gpusize.records.calls.judged_calls``; None when none are known."""
        import polars as pl

        frames = [judged_calls(v.calls, v.steady()) for v in self.visits() if v.calls is not None]
        return pl.concat(frames) if frames else None

    def lengths(self) -> list[LengthReport]:
        """Lengths asked for beside those reported, of the steady requests that ended ok; empty when none were asked."""
        if self.imported or self.rows is None:
            return []
        from gpusize.workload.dataset import length_report

        return length_report(self.steady(), self.rows)

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

    def steady(self, *more: str) -> pl.LazyFrame:
        """The records due in a steady interval, with columns as ``requests``."""
        import polars as pl

        if self.parts:
            return pl.concat([part.steady(*more) for part in self.parts])
        return self.in_window(self.requests(*more))

    def in_window(self, records: pl.LazyFrame) -> pl.LazyFrame:
        """Those of a single visit's records that were due in a steady interval."""
        import polars as pl

        windows = [(i["start_ns"], i["end_ns"]) for i in self.intervals if i["name"] == "steady"]
        if not windows:
            return records
        due = pl.col("due_ns")
        return records.filter(pl.any_horizontal(*((due >= low) & (due < high) for low, high in windows)))

    def ok(self, *more: str) -> pl.LazyFrame:
        """The steady records that ended ok, with columns as ``requests``."""
        import polars as pl

        return self.steady(*more).filter(pl.col("outcome") == "ok")

    def quantile(self, name: str, prob: float) -> float | None:
        """Exact quantile of a metric over steady requests that ended ok, in the metric's unit.

        For an imported level the stored percentile, else the quantile of the stored items. Of a sampled level to the
        width of a bucket, over all requests, where there is a histogram; of ``itl`` too, where the times of events were
        not kept. None where nothing is known.

        Raises:
            UsageError: ``prob`` is not from 0 to 1.
        """
        if not 0 <= prob <= 1:
            raise UsageError(f"prob must be from 0 to 1, not {prob:g}", "prob", "the 95th percentile is 0.95")
        counted = self._from_histograms(name)
        if counted is not None:
            return histogram_quantiles(self, counted, [prob])[0]
        if not self.imported:
            return self.kept.once(("quantile", name, prob), lambda: self._row_quantile(name, prob))
        stored = self._stored(name, f"p{round(prob * 100, 6):g}")
        if stored is not None:
            return stored if math.isfinite(stored) and stored > 0 else None
        import numpy as np

        values = self.values(name)
        return float(np.quantile(values, prob)) if values.size else None

    def _row_quantile(self, name: str, prob: float) -> float | None:
        if metric(name).table == "histograms":
            return gap_quantiles(self, [prob])[0][0]
        found = self._measured(name)
        return None if found is None else found[0].quantiles(_ok(found[1]), [prob])[0]

    def _stored(self, name: str, what: str) -> float | None:
        """An imported level's own figure; its runtime is its service time, unless it tells both apart."""
        names = (name, "runtime") if name == "service" else (name,)
        return next(
            (self.percentiles[f"{each}_{what}_s"] for each in names if f"{each}_{what}_s" in self.percentiles), None
        )

    def late_quantile(self, name: str, prob: float) -> float | None:
        """As ``quantile``, over all steady requests that were sent; for what the generator itself adds."""
        if self._from_histograms(name) is not None:
            return histogram_quantiles(self, name, [prob])[0]
        found = metric(name)
        if self.imported or not self.tells(found):
            return None
        return found.quantiles(self.steady(*found.columns), [prob])[0]

    def mean(self, name: str) -> float | None:
        """Mean of a metric over steady requests that ended ok, in its unit; of others as ``quantile``."""
        counted = self._from_histograms(name)
        if counted is not None:
            return histogram_mean(self, counted)
        stored = self._stored(name, "mean") if self.imported else None
        if stored is not None:
            return stored
        if not self.imported and metric(name).table == "histograms":
            return gap_mean(self)
        values = self.values(name)
        return float(values.mean()) if values.size else None

    def values(self, name: str) -> NDArray[np.float64]:
        """A metric of the steady requests (or calls) that ended ok, or of an imported level's items; shape (n,).

        Of a sampled level, of those that have a row.
        """
        import numpy as np

        found = self._measured(name)
        return np.array(self.item_values(name)) if found is None else found[0].values(_ok(found[1]))

    def item_values(self, name: str) -> list[float]:
        """An imported level's figures per item, seconds; zeros are that tool's missing values and left out."""
        key = METRICS[name].item if name in METRICS else ""
        if not key:
            return []
        return [v for item in self.items.values() if (v := item.get(key)) is not None and math.isfinite(v) and v > 0]

    def outcomes(self) -> dict[str, int]:
        """How the steady requests ended: their number by outcome, complete for a sampled level too."""
        import polars as pl

        if self.sampled > 1 and self.seconds is not None:
            return outcomes_due(self)

        def count() -> dict[str, int]:
            counted = self.steady().group_by("outcome").agg(pl.len()).collect(engine="streaming")
            return {str(outcome): int(n) for outcome, n in counted.iter_rows()}

        return dict(self.kept.once("outcomes", count))

    def attainment(self, slo: Slo | str) -> tuple[float, int]:
        """Share of steady requests (or calls) within the SLO and the number judged; (nan, 0) when nothing is known.

        Of a sampled level over all requests, by interpolation inside a bucket, where seconds and histograms tell; else
        over those that have a row.

        Raises:
            SloError: a text is no SLO.
        """
        slo = _parsed(slo)
        counted = self._counted_attainment(slo)
        if counted is not None:
            return counted
        if not self.imported:
            return self.kept.once(("attainment", slo), lambda: self._row_attainment(slo))
        if slo.kind == "share":
            return share_told(self, slo)
        values = self.item_values(slo.metric)
        if not values:
            return math.nan, 0
        return sum(slo.within(value) for value in values) / len(values), len(values)

    def _row_attainment(self, slo: Slo) -> tuple[float, int]:
        judged = self.judged(slo)
        return (math.nan, 0) if judged is None else judged[0].attainment(judged[1])

    def met(self, slo: Slo | str) -> bool | None:
        """Whether the level keeps the SLO; None when it says nothing about it.

        Raises:
            SloError: a text is no SLO.
        """
        slo = _parsed(slo)
        share, n = self.attainment(slo)
        if n == 0:
            # Another tool's percentiles have no interval; that too many failed is sure.
            return False if self.imported and misses_by_failures(self, slo) else None
        if slo.kind != "mean":
            return slo.met_by(share)
        judged = self.judged(slo)
        if judged is not None and self._from_histograms(slo.metric) is None:
            return judged[0].met(judged[1])
        if judged is not None and slo.op in ("<=", "<") and set(self.outcomes()) - {"ok", "cancelled"}:
            return False
        mean = self.mean(slo.metric)
        return mean is not None and slo.within(mean)

    def _counted_attainment(self, slo: Slo) -> tuple[float, int] | None:
        """The attainment by seconds and histograms; None where every request has a row, or they do not tell."""
        if self.sampled == 1 or self.seconds is None:
            return None
        name = slo.metric if slo.kind == "share" else self._from_histograms(slo.metric)
        return None if name is None else attainment(self, replace(slo, metric=name))

    def judged(self, slo: Slo) -> tuple[Slo, pl.LazyFrame] | None:
        """The SLO in terms of what was measured, and the rows to judge; None where they cannot hold its metric."""
        if slo.kind == "share":
            return None if self.imported else (slo, self.steady())
        found = self._measured(slo.metric)
        return None if found is None else (replace(slo, metric=found[0].name), found[1])


def _parsed(slo: Slo | str) -> Slo:
    return Slo.parse(slo) if isinstance(slo, str) else slo


def _ok(frame: pl.LazyFrame) -> pl.LazyFrame:
    import polars as pl

    return frame.filter(pl.col("outcome") == "ok")
