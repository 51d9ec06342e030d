"""Run folders and pulled series with a known truth, as `gpusize autoscale report` reads them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gpusize import _core
from gpusize.analysis.level import LevelData
from gpusize.records.schema import OUTCOMES, outcome_dtype, record_dtypes
from tests.whatif.folder import stored

START_WALL_NS = 1_795_000_000_123_456_789
BY = {"replicas_desired": ("namespace", "horizontalpodautoscaler"), "replicas": ("namespace", "deployment")}
BY["replicas_ready"] = BY["replicas"]
"""Labels that tell deployments apart, as the pull writes them."""
MONO_NS = 5_000_000_000_000
"""The records' clock at the start of a run."""


@dataclass
class Pulled:
    """Series in the making; times are seconds after the run's start, by our clock."""

    offset_s: float = 0.0
    rows: list[tuple[float, str, str, float]] = field(default_factory=list)

    def add(self, name: str, at_s: Iterable[float], values: Iterable[float], **labels: str) -> None:
        """Readings of one label set."""
        text = json.dumps(labels, sort_keys=True)
        self.rows += [(float(at), name, text, float(value)) for at, value in zip(at_s, values, strict=True)]

    def write(self, folder: Path, *, uncertainty_s: float | None = 0.01) -> Path:
        """As the pull writes them, on a clock that is ahead of ours by ``offset_s``."""
        folder.mkdir(parents=True, exist_ok=True)
        at, names, labels, values = zip(*self.rows, strict=True) if self.rows else ((), (), (), ())
        ahead_ns = START_WALL_NS + round(self.offset_s * 1e9)
        frame = pl.DataFrame(
            {
                "t_ns": [ahead_ns + round(each * 1e9) for each in at],
                "name": names,
                "labels": labels,
                "le": [None] * len(at),
                "value": values,
            },
            schema={"t_ns": pl.Int64, "name": pl.String, "labels": pl.String, "le": pl.Float64, "value": pl.Float64},
        )
        parts = folder / "series.parquet"
        parts.mkdir(exist_ok=True)
        frame.sample(fraction=1.0, shuffle=True, seed=1).write_parquet(parts / "part-000001.parquet")
        clock: dict[str, Any] = {"offset_ns": round(self.offset_s * 1e9)}
        if uncertainty_s is not None:
            clock["uncertainty_ns"] = round(uncertainty_s * 1e9)
        told = {name: {"by": list(by)} for name, by in BY.items()}
        (folder / "series.json").write_text(json.dumps({"version": 1, "clock": clock, "names": told}))
        return folder


def records(
    due_s: np.ndarray,
    end_s: np.ndarray,
    *,
    outcome: np.ndarray | None = None,
    tokens_out: np.ndarray | None = None,
    first_s: np.ndarray | None = None,
) -> pl.DataFrame:
    """Records of requests, times in seconds after the run's start; outcomes as codes."""

    def ns(values: np.ndarray) -> pl.Series:
        return pl.Series(np.rint(values * 1e9).astype(np.int64) + MONO_NS)

    n = due_s.size
    codes = pl.Series(np.zeros(n, int) if outcome is None else outcome.astype(int))
    known = {
        "seq": pl.Series(range(n), dtype=pl.UInt64),
        "due_ns": ns(due_s),
        "fired_ns": ns(due_s),
        "sent_ns": ns(due_s),
        "end_ns": ns(end_s),
        "outcome": pl.Series(OUTCOMES, dtype=outcome_dtype()).gather(codes),
    }
    if tokens_out is not None:
        known["tokens_out"] = pl.Series(tokens_out)
    if first_s is not None:
        known["first_token_ns"] = ns(first_s)
    dtypes = {**record_dtypes(), "outcome": outcome_dtype()}
    zero = {"visit", "stream", "attempt", "row"}
    return pl.DataFrame(
        [
            known[name].cast(dtype).alias(name)
            if name in known
            else pl.repeat(0 if name in zero else None, n, dtype=dtype, eager=True).alias(name)
            for name, dtype in dtypes.items()
        ]
    )


def level(
    setting: Mapping[str, Any],
    rows: pl.DataFrame,
    from_s: float,
    until_s: float,
    *,
    visit: int = 0,
    state: str = "done",
) -> LevelData:
    """One level between two times."""
    start, close = (MONO_NS + round(each * 1e9) for each in (from_s, until_s))
    end = max(close, int(rows["end_ns"].to_numpy().max() if rows.height else close))
    meta = {
        "setting": dict(setting),
        "state": state,
        "visit": visit,
        "start_ns": start,
        "close_ns": close,
        "end_ns": end,
    }
    steady = [{"name": "steady", "start_ns": start, "end_ns": close, "method": "all"}]
    return LevelData(visit, setting, state, steady, 1, "judged", meta, records=rows.lazy())


def run_of(out: Path, levels: Sequence[LevelData], *, name: str = "judged", slo: Sequence[str] = ()) -> Path:
    """A run folder of levels, with its clocks."""
    about = {"schema": 1, "run": name, "created": "2026-11-20T00:00:00+00:00", "targets": [{"gpus": 1}]}
    about |= {"options": {"slo": list(slo)}, "labels": {}}
    path = stored(out, about, levels, first=True)
    times = [0, 10**13]
    pl.DataFrame(
        {
            "mono_ns": [MONO_NS + t for t in times],
            "wall_ns": [START_WALL_NS + t for t in times],
            "uncertainty_ns": [0, 0],
        }
    ).write_parquet(path / "clocks.parquet")
    return path


@dataclass(frozen=True)
class Truth:
    """What the simulator did: replicas by its own log, and every request."""

    due_s: np.ndarray
    end_s: np.ndarray
    steps: list[tuple[float, int]]
    """(s, replicas that are asked for) from 0 on."""
    start_delay_s: float
    end: float

    def asked(self, at_s: np.ndarray) -> np.ndarray:
        """Replicas that are asked for at times."""
        at, counts = (np.array(each) for each in zip(*self.steps, strict=True))
        return counts[np.searchsorted(at, at_s, "right") - 1]

    def ready(self, at_s: np.ndarray) -> np.ndarray:
        """Replicas that take requests at times, replica by replica: each one's own start and end."""
        lives: list[list[float]] = []
        for at, count in self.steps:
            alive = [each for each in lives if each[1] == np.inf]
            for each in alive[count:]:
                each[1] = at
            lives += [[at + (self.start_delay_s if at > 0 else 0.0), np.inf] for _ in range(count - len(alive))]
        alive_at = [(at_s >= begin) & (at_s < end) for begin, end in lives]
        return np.asarray(np.sum(alive_at, axis=0))


def simulated(
    rates: Sequence[tuple[float, float]],
    *,
    seed: int = 5,
    start_delay_s: float = 40.0,
    target_milli: int = 3000,
    most: int = 8,
    sync_s: float = 15.0,
) -> Truth:
    """A flow of requests at (seconds, requests/s) one after another, on replicas that an HPA scales."""
    rnd = np.random.default_rng(seed)
    due, at = [], 0.0
    for length, rate in rates:
        count = rnd.poisson(length * rate)
        due.append(np.sort(rnd.uniform(at, at + length, count)))
        at += length
    due_ns = np.rint(np.concatenate(due) * 1e9).astype("<i8")
    first = 2
    config = {
        "rates": [1.0, 1.9, 2.7, 3.4],
        "gpus": most,
        "replicas": [{"at_s": 0.0, "replicas": first}],
        "start_delay_s": start_delay_s,
    }
    policy = {
        "min_replicas": 1,
        "max_replicas": most,
        "metrics": [{"source": "external", "target": {"average_value": target_milli}}],
        "behavior": None,
        "sync_s": sync_s,
    }
    signal = {"series": {"quantity": "in_flight", "over_time": "last", "window_s": 300.0, "across": "sum"}}
    autoscaler = json.dumps({"policy": policy, "signals": [signal], "scrape_s": 15.0})
    stream, text = _core.simulate_flow(
        json.dumps(config),
        '{"arrivals": "plan"}',
        np.full(1, 0.5).tobytes(),
        due=due_ns.tobytes(),
        autoscaler=autoscaler,
    )
    rows, told = pl.DataFrame(stream), json.loads(text)["scaling"]
    steps = [(0.0, first), *((each["at_s"], each["replicas"]) for each in told["steps"])]
    due_s, end_s = (rows[name].to_numpy() / 1e9 for name in ("due_ns", "end_ns"))
    return Truth(due_s, end_s, steps, start_delay_s, float(max(end_s.max(), at)))


def stages(rates: Sequence[tuple[float, float]], truth: Truth, **more: Any) -> list[LevelData]:
    """The levels of a simulated truth, one a stage."""
    found, at = [], 0.0
    for number, (length, rate) in enumerate(rates):
        inside = (truth.due_s >= at) & (truth.due_s < at + length)
        picked = {name: values[inside] for name, values in more.items()}
        rows = records(truth.due_s[inside], truth.end_s[inside], **picked)
        setting = {"kind": "open", "rate": rate, "process": "poisson", "duration_s": length}
        found.append(level(setting, rows, at, at + length, visit=number))
        at += length
    return found


def scraped(truth: Truth, *, every_s: float = 15.0, first_s: float = -30.0, offset_s: float = 0.0) -> Pulled:
    """The replicas of a truth as a monitoring server reads them."""
    at = np.arange(first_s, truth.end + 4 * every_s, every_s)
    pulled = Pulled(offset_s)
    now = np.maximum(at, 0)
    pulled.add("replicas_desired", at, truth.asked(now), horizontalpodautoscaler="llama")
    # The exporter restarts on its way: another instance tells of the same deployment.
    instance = np.where(at < truth.end / 2, "10.0.0.7:8080", "10.0.0.9:8080")
    for each in dict.fromkeys(instance.tolist()):
        mine = instance == each
        labels = {"deployment": "llama", "instance": each}
        pulled.add("replicas", at[mine], truth.asked(now[mine]), **labels)
        pulled.add("replicas_ready", at[mine], truth.ready(now[mine]), **labels)
    return pulled
