"""Each phase in figures: percentiles with what had not ended, and without it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from gpusize.cluster.phases.deltas import CENSORED, DONE, IMPOSSIBLE
from gpusize.cluster.phases.known_phases import PHASES, POD_PHASES
from gpusize.cluster.phases.survival import Survival, kaplan_meier

if TYPE_CHECKING:
    import polars as pl

__all__ = ["ALWAYS", "PERCENTILES", "lasting", "phase_figures", "summary"]

PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999, "max": 1.0}
ALWAYS: Final = ("scheduled",)
"""Phases that are told of even where no workload came to their end."""
NS: Final = 1e9


def lasting(rows: pl.DataFrame, *, end: str = "value_ns") -> Survival:
    """How long one phase takes, in seconds; what will never end takes longer than anything.

    Args:
        rows: of one phase, of `gpusize.cluster.phases.deltas.phases_schema`.
        end: which figure of a row counts: ``value_ns``, or ``hi_ns`` for the worse end of each interval.
    """
    import polars as pl

    known = rows.filter(pl.col("state") != IMPOSSIBLE)
    lasted = known.select(pl.when("never").then(math.inf).otherwise(pl.col(end) / NS)).to_series()
    return kaplan_meier(lasted.to_numpy(), (known["state"] == DONE).to_numpy())


def phase_figures(rows: pl.DataFrame) -> dict[str, Any]:
    """The figures of one phase.

    Returns:
        ``n`` (done and censored), ``done``, ``censored``, ``never`` (of these), ``impossible``; of each of
        `PERCENTILES`, in seconds and None where it is not reached: the percentile (``p95_s``) with its interval
        (``p95_low_s``, ``p95_high_s``), of those that ended alone (``p95_ended_s``), and by the worse end of every
        interval (``p95_worst_s``); ``mean_s`` of those that ended; ``longest_s``, beyond which a percentile lies that
        is not reached; ``error_s``, half the width of the interval of a row, in the median; ``clock`` and ``method``,
        those of most rows, and ``methods``, how many there are.
    """
    import polars as pl

    done = rows.filter(pl.col("state") == DONE)
    all_of_them, worst = lasting(rows), lasting(rows, end="hi_ns")
    ended = kaplan_meier((done["value_ns"] / NS).to_numpy(), [True] * done.height)

    def finite(value: float) -> float | None:
        return value if math.isfinite(value) else None

    made: dict[str, Any] = {
        "n": all_of_them.n,
        "done": done.height,
        "censored": rows.filter(pl.col("state") == CENSORED).height,
        "never": int(rows["never"].sum()),
        "impossible": rows.filter(pl.col("state") == IMPOSSIBLE).height,
    }
    for name, share in PERCENTILES.items():
        found = all_of_them.percentile(share)
        made |= {
            f"{name}_s": finite(found.value),
            f"{name}_low_s": finite(found.low),
            f"{name}_high_s": finite(found.high),
            f"{name}_ended_s": finite(ended.percentile(share).value),
            f"{name}_worst_s": finite(worst.percentile(share).value),
        }
    methods = done["method"].value_counts(sort=True) if done.height else None
    half = (done["hi_ns"] - done["lo_ns"]).median()
    return {
        **made,
        "longest_s": _number(rows.filter(pl.col("state") != IMPOSSIBLE)["value_ns"].max()),
        "mean_s": _number(done["value_ns"].mean()),
        "error_s": None if half is None else _number(half, 2.0),
        "clock": done["clock"].mode().sort()[0] if done.height else None,
        "method": methods["method"][0] if methods is not None else None,
        "methods": 0 if methods is None else methods.height,
    }


def _number(value: Any, parts: float = 1.0) -> float | None:
    return None if value is None else float(value) / parts / NS


def summary(deltas: pl.DataFrame, pods: pl.DataFrame, also: Iterable[str] = ()) -> pl.DataFrame:
    """One row for each phase that some workload or pod came to the end of.

    Args:
        deltas, pods: phases of workloads and of pods.
        also: names of phases that are to have a row in any case, if any began them.
    """
    import polars as pl

    wanted = {*ALWAYS, *also}
    made = []
    for frame, known in ((deltas, PHASES), (pods, POD_PHASES)):
        parts = {key[0]: part for key, part in frame.partition_by("phase", as_dict=True).items()}
        for name, phase in known.items():
            rows = parts.get(name)
            if rows is not None and (name in wanted or (rows["state"] != CENSORED).any()):
                made.append({"phase": name, "of": phase.of, **phase_figures(rows)})
    return pl.DataFrame(made, infer_schema_length=None) if made else pl.DataFrame(schema={"phase": pl.String})
