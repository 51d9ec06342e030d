"""Random levels for the audit: closed and open loops, drained or cut off, failing, sampled. No load is sent."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from hypothesis import strategies as st
from numpy.typing import NDArray

from gpusize.analysis.level import LevelData
from gpusize.analysis.windows import intervals
from gpusize.records.schema import OUTCOMES, from_arrow
from tests.analysis.open_levels import START_NS, columns, frame_histograms, frame_seconds, meta_of, open_setting
from tests.analysis.synthetic import SOURCE, frame

Floats = NDArray[np.float64]
FAILURES = ("http_error", "api_error", "timeout", "protocol_error", "truncated")
TARGETS = ({"url": "http://gpu-0/"}, {"url": "http://gpu-1/"})


@dataclass(frozen=True)
class World:
    """What a level is made of; times in seconds.

    Attributes:
        slots: users of a closed loop, servers behind an open one.
        rate: requests per second; None for a closed loop.
        stop: ``passes``, ``count`` or ``duration``.
        size: so many passes, or residence times that a duration lasts.
        service_s, spread: median and sigma of the lognormal service time.
        failing: share of requests that fail, in half the time of others.
        late_s: the generator's lateness, uniform up to this.
        connect_s: wait for a connection of each slot's first request.
        queue: so many may wait at a rate; more are shed.
        cut: whether the level is ended half-way, and what is in flight is cancelled.
        tokens: whether answers come in tokens.
        sampled: 1 in so many requests keeps its row.
        seed: of all draws.
    """

    slots: int
    rate: float | None
    stop: str
    size: int
    service_s: float
    spread: float
    failing: float
    late_s: float
    connect_s: float
    queue: int
    cut: bool
    tokens: bool
    sampled: int
    seed: int


OPEN: Final = st.floats(5, 80)
CLOSED: Final[st.SearchStrategy[None]] = st.none()


def worlds(rate: st.SearchStrategy[float | None], sampled: st.SearchStrategy[int]) -> st.SearchStrategy[World]:
    """Any of one loop, sampled or whole."""
    return st.builds(
        World,
        slots=st.integers(1, 12),
        rate=rate,
        stop=st.sampled_from(["passes", "count", "duration"]),
        size=st.integers(1, 14),
        service_s=st.floats(0.02, 0.6),
        spread=st.sampled_from([0.0, 0.05, 0.3, 0.9]),
        failing=st.sampled_from([0.0, 0.0, 0.03, 0.3, 1.0]),
        late_s=st.sampled_from([0.0, 0.0002, 0.01]),
        connect_s=st.sampled_from([0.0, 0.004]),
        queue=st.sampled_from([0, 5, 10_000]),
        cut=st.booleans(),
        tokens=st.booleans(),
        sampled=sampled,
        seed=st.integers(0, 2**32),
    )


@dataclass(frozen=True)
class Made:
    """A level, and all of its requests as they were before any was left out of the records."""

    level: LevelData
    raw: dict[str, Floats]


def make(world: World, visit: int = 0) -> Made:
    """The level of a world."""
    rng = np.random.default_rng(world.seed)
    length_s = max(world.size, 2) * world.service_s if world.rate is None else float(max(world.size, 2))
    due, fired, sent, end, codes = (_closed if world.rate is None else _open)(world, rng, length_s)
    setting = _setting(world, length_s)
    last_s = float(due.max()) if due.size else 0.0
    close_s = length_s if world.stop == "duration" else last_s + 1e-6
    facts: dict[str, Any] = {"stop_reason": "duration" if world.stop == "duration" else "count"}
    if world.cut:
        close_s, facts = 0.5 * close_s, {"stop_reason": "cancelled", "state": "cancelled"}
        keep = due <= close_s
        due, fired, sent, end, codes = (each[keep] for each in (due, fired, sent, end, codes))
        gone = end > close_s
        sent = np.where(gone & (sent > close_s), np.nan, sent)
        end = np.where(gone, np.fmax(close_s, due), end)
        codes = np.where(gone, OUTCOMES.index("cancelled"), codes)
    raw = _frame(world, rng, (due, fired, sent, end), codes)
    meta = meta_of(raw, setting, visit, START_NS, close_s, **facts)
    meta["end_ns"] = max([meta["close_ns"], *raw["end_ns"].drop_nulls().to_list()])
    return Made(_level(world, raw, meta, visit), {name: _floats(raw[name]) for name in _READ})


_READ = (
    "due_ns", "fired_ns", "sent_ns", "end_ns", "first_token_ns", "tokens_out", "tokens_in", "outcome", "target",
)  # fmt: skip


def _floats(column: pl.Series) -> Floats:
    return np.array([np.nan if value is None else float(value) for value in column.to_list()])


def _setting(world: World, length_s: float) -> dict[str, Any]:
    ends: dict[str, float | None] = {"passes": None, "count": None, "duration_s": None}
    if world.rate is not None:
        return {**open_setting(world.rate, length_s), **ends, "duration_s": length_s}
    ends[{"passes": "passes", "count": "count", "duration": "duration_s"}[world.stop]] = {
        "passes": world.size,
        "count": world.size * world.slots,
        "duration": length_s,
    }[world.stop]
    return {"kind": "closed", "concurrency": world.slots, "think_s": 0.0, **ends}


def _service(world: World, rng: np.random.Generator, n: int) -> tuple[Floats, NDArray[np.int64]]:
    times = world.service_s * rng.lognormal(0, world.spread, n) if world.spread else np.full(n, world.service_s)
    failed = rng.random(n) < world.failing
    codes = np.where(failed, rng.choice([OUTCOMES.index(name) for name in FAILURES], n), 0)
    return np.where(failed, times / 2, times), codes


def _closed(world: World, rng: np.random.Generator, length_s: float) -> tuple[Any, ...]:
    """Each slot sends again when its answer came; half of the levels start spread over one service time."""
    most = world.size * world.slots if world.stop != "duration" else 40 * world.slots
    times, codes = _service(world, rng, most)
    late = rng.uniform(0, world.late_s, most)
    spread_s = world.service_s if world.seed % 2 and world.stop == "duration" else 0.0
    slots = [(spread_s * k / world.slots, k, world.connect_s) for k in range(world.slots)]
    rows: list[tuple[float, float, float, float]] = []
    while slots and len(rows) < most:
        at, slot, connect_s = heapq.heappop(slots)
        if world.stop == "duration" and at >= length_s:
            continue
        k = len(rows)
        sent_s = at + float(late[k]) + connect_s
        rows.append((at, at + float(late[k]), sent_s, sent_s + float(times[k])))
        heapq.heappush(slots, (rows[-1][3], slot, 0.0))
    due, fired, sent, end = (np.array(each) for each in zip(*rows, strict=True))
    return due, fired, sent, end, codes[: len(rows)]


def _open(world: World, rng: np.random.Generator, length_s: float) -> tuple[Any, ...]:
    """First come, first served by so many servers; what finds too many waiting is shed, a few find no connection."""
    gaps = rng.exponential(1 / (world.rate or 1.0), int(2 * (world.rate or 1.0) * length_s) + 50)
    due = np.cumsum(gaps)
    due = due[due < length_s]
    due = due if due.size else np.array([0.0])
    times, codes = _service(world, rng, due.size)
    fired = due + rng.uniform(0, world.late_s, due.size)
    refused = rng.random(due.size) < world.failing / 10
    free = [0.0] * world.slots
    begins: list[float] = []
    sent, end = np.full(due.size, np.nan), np.empty(due.size)
    for k, at in enumerate(fired):
        if refused[k]:
            codes[k], end[k] = OUTCOMES.index("connect_error"), at
        elif free[0] > at and sum(begin > at for begin in begins) >= world.queue:
            codes[k], end[k] = OUTCOMES.index("shed"), at
        else:
            sent[k] = max(at, heapq.heappop(free))
            begins.append(sent[k])
            end[k] = sent[k] + times[k]
            heapq.heappush(free, end[k])
    return due, fired, sent, end, codes


def _frame(world: World, rng: np.random.Generator, times: tuple[Floats, ...], codes: NDArray[np.int64]) -> pl.DataFrame:
    due, fired, sent, end = times
    n = due.size
    more: dict[str, Any] = {"outcome": codes.tolist(), "target": rng.integers(0, 2, n).tolist()}
    if world.tokens:
        first = sent + (end - sent) * rng.uniform(0.1, 1.0, n)
        # Some answers have no token, and of some nobody says how many they have.
        none = (rng.random(n) < 0.05) | np.isnan(first) | (codes != 0)
        more["first_token_ns"] = [
            None if skip else START_NS + round(at * 1e9) for skip, at in zip(none, first, strict=True)
        ]
        told = rng.random(n) < 0.9
        more["tokens_out"] = [int(x) if t else None for x, t in zip(rng.integers(1, 300, n), told, strict=True)]
        more["tokens_in"] = [int(x) if t else None for x, t in zip(rng.integers(1, 900, n), told, strict=True)]
    return frame(columns(due, end, sent_s=sent, fired_s=fired, **more))


def _level(world: World, raw: pl.DataFrame, meta: dict[str, Any], visit: int) -> LevelData:
    kept, seconds, histograms = raw, None, None
    if world.sampled > 1:
        kept = raw.filter(pl.col("seq") % world.sampled == 0)
        known = frame_seconds(raw, START_NS)
        names = [name for outcome in OUTCOMES for name in (outcome, f"due_{outcome}") if name not in known.columns]
        seconds = known.with_columns(pl.lit(0, pl.UInt64).alias(name) for name in names).lazy()
        histograms = frame_histograms(raw, START_NS).lazy()
        meta |= {"sampled": world.sampled, "rows": kept.height}
    records = from_arrow(kept)
    return LevelData(
        visit=visit,
        setting=meta["setting"],
        state=meta["state"],
        intervals=intervals(meta, records, seconds=seconds).intervals,
        gpus=1,
        run="audit",
        meta=meta,
        source={**SOURCE, "targets": TARGETS},
        records=records,
        seconds=seconds,
        histograms=histograms,
    )
