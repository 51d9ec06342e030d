"""A run folder with levels of a simulated cluster in virtual time: one replica, up to past its capacity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

from gpusize.analysis.level import LevelData
from gpusize.records.schema import OUTCOMES
from gpusize.studies.imports.run_folder import write_run
from tests.estimate.virtual import level

SLO = "p95 runtime <= 8s"
LOADS = (1, 4, 12, 20, 22, 24, 26, 30)


@cache
def levels() -> tuple[LevelData, ...]:
    """One replica at loads around its capacity of some 19 users."""
    return tuple(level(users, requests=1500 if users > 12 else 200) for users in LOADS)


def run_folder(out: Path, *, users: float | None = 100, tokens: bool = True, first: bool = False) -> Path:
    """The levels as a run folder, with the question that the run was asked.

    Without first tokens the twin reads the measured curve, and users without pauses are answered without simulation.
    """
    options = {"slo": [SLO]} | ({} if users is None else {"users": users})
    about = {"schema": 1, "run": "virtual", "targets": [{"gpus": 1}], "options": options}
    return stored(out, about, list(levels()), tokens=tokens, first=first)


def stored(
    out: Path, about: Mapping[str, Any], known: Sequence[LevelData], *, tokens: bool = True, first: bool = False
) -> Path:
    """Levels in memory as a run folder with records."""
    path = write_run(out, about, [_with_schema(each) for each in known])
    for number, each in enumerate(known):
        place = path / "levels" / f"{number:04d}"
        (place / "records").mkdir()
        codes = pl.col("outcome").cast(pl.String).replace_strict(OUTCOMES, range(len(OUTCOMES)), return_dtype=pl.UInt8)
        counted = pl.col("tokens_out") if tokens else pl.lit(None, dtype=pl.UInt32).alias("tokens_out")
        early = pl.col("first_token_ns") if first else pl.lit(None, dtype=pl.Int64).alias("first_token_ns")
        each.records.with_columns(codes, counted, early).collect().write_parquet(
            place / "records" / "part-0000.parquet"
        )
    return path


def _with_schema(level: LevelData) -> LevelData:
    intervals = [dict(each) for each in level.intervals]
    return replace(level, meta={**level.meta, "schema": 1, "intervals": intervals})
