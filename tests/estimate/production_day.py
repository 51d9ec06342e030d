"""A day of production in virtual time, and what scrapes of it would have stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benches.lib.scrapes import Served, scrape_times, scraped
from gpusize.engine.session import core
from tests.estimate.virtual import CLUSTER

WALL_NS = 1_790_000_000_000_000_000
PROMPTS = {"uniform": {"min_tokens": 50, "max_tokens": 400}}


def served(peak_per_s: float, *, minutes: int = 40, replicas: int = 2, seed: int = 1, **more: Any) -> Served:
    """Requests of replicas at a rate that rises to ``peak_per_s`` each and falls again, three times."""
    rng = np.random.default_rng(seed)
    grid = np.arange(minutes * 60)
    rate = peak_per_s * replicas * (0.3 + 0.7 * np.sin(3 * np.pi * grid / grid.size) ** 2)
    counts = rng.poisson(rate)
    due_s = np.sort(np.repeat(grid, counts) + rng.random(counts.sum()))
    config = {**CLUSTER, "gpus": replicas, "seed": seed, **more}
    load = {"arrivals": "plan", "prompt_tokens": PROMPTS}
    stream, _ = core().simulate(json.dumps(config), json.dumps(load), due=np.round(due_s * 1e9).astype("<i8").tobytes())
    rows = pl.DataFrame(stream)
    due, start, first, end = (
        rows[name].to_numpy() / 1e9 for name in ("due_ns", "start_ns", "first_token_ns", "end_ns")
    )
    prompt, output = (rows[name].to_numpy().astype(np.int64) for name in ("prompt_tokens", "tokens_out"))
    return Served(rows["gpu"].to_numpy().astype(np.int64), due, start, first, end, prompt, output)


def day(peak_per_s: float, **more: Any) -> pl.DataFrame:
    """The samples of such a day."""
    return scrapes(served(peak_per_s, **more), minutes=more.get("minutes", 40), seed=more.get("seed", 1))


def scrapes(requests: Served, *, minutes: int = 40, seed: int = 1, missed: float = 0.01) -> pl.DataFrame:
    """The samples of requests."""
    rng = np.random.default_rng(seed)
    replicas = int(requests.replica.max()) + 1
    return scraped(
        requests, [scrape_times(rng, 0, minutes * 60, missed=missed) for _ in range(replicas)], wall_ns=WALL_NS
    )


def folder(place: Path, frame: pl.DataFrame) -> Path:
    """The same as a pull leaves it."""
    (place / "series.parquet").mkdir(parents=True)
    frame.write_parquet(place / "series.parquet" / "part-000001.parquet")
    return place


def renamed(frame: pl.DataFrame, names: Mapping[str, str]) -> pl.DataFrame:
    """The frame with some names changed."""
    return frame.with_columns(pl.col("name").replace(dict(names)))
