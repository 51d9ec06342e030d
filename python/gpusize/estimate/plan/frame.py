"""The rows of a plan as a Polars frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import polars as pl

    from gpusize.estimate.plan.types import Row, WhatIf

__all__ = ["COLUMNS", "frame_of"]

COSTS: Final = ("per_hour", "per_month", "per_million_requests", "per_million_tokens")
COLUMNS: Final = (
    "step",
    "growth",
    "users",
    "rate",
    "token_rate",
    "bound_s",
    "bound_factor",
    "slos",
    "method",
    "gpus",
    "gpus_low",
    "gpus_high",
    "gpus_raw",
    "raised",
    "slo",
    "reason",
    "per_s",
    "failed_attainment",
    "failed_target",
    "failed_kept",
    "failed_gpus",
    "currency",
    *(f"cost_{name}" for name in COSTS),
)
"""Every column, whether it was asked for or not."""


def frame_of(plan: WhatIf) -> pl.DataFrame:
    """One row per row of the plan, all of ``COLUMNS``; what was not asked for, or is not known, is null."""
    import polars as pl

    dtypes: dict[str, Any] = dict.fromkeys(COLUMNS, pl.Float64)
    dtypes |= dict.fromkeys(("gpus", "gpus_low", "gpus_high", "failed_gpus"), pl.Int64)
    dtypes |= dict.fromkeys(("step", "method", "slo", "reason", "currency"), pl.String)
    dtypes |= {"raised": pl.Boolean, "failed_kept": pl.Boolean, "slos": pl.List(pl.String)}
    currency = None if plan.price is None else plan.price.currency
    return pl.DataFrame([_fields(row, currency) for row in plan.rows], schema=dtypes, orient="row")


def _fields(row: Row, currency: str | None) -> dict[str, Any]:
    own = {name: getattr(row, name) for name in COLUMNS if hasattr(row, name)}
    failed = {f"failed_{name}": getattr(row.failed, name, None) for name in ("attainment", "target", "kept", "gpus")}
    cost = {f"cost_{name}": getattr(row.cost, name, None) for name in COSTS}
    return {**own, "slos": list(row.slos), **failed, "currency": currency, **cost}
