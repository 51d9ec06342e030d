"""Where the mean time of a request goes: the client, the way to the server, its queue, its computing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from gpusize.analysis.metrics import NS_PER_S
from gpusize.records.samples import value_of

if TYPE_CHECKING:
    import polars as pl

    from gpusize.analysis.level import LevelData

__all__ = ["PARTS", "split_rows"]

PARTS: Final = (
    "client_s",
    "network_s",
    "server_other_s",
    "queue_s",
    "compute_input_s",
    "compute_infer_s",
    "compute_output_s",
)
"""Columns of the parts, in the order in which a request goes through them, but for the way back."""
_TOLD: Final = {
    "queue_s": "queue_time",
    "compute_input_s": "compute_input_time",
    "compute_infer_s": "compute_infer_time",
    "compute_output_s": "compute_output_time",
}


def split_rows(levels: Iterable[LevelData]) -> pl.DataFrame:
    """One row per level visit whose server told of its queue or its computing.

    Columns: ``visit``, ``run``, ``concurrency``, ``rate``, ``state``, ``residence_s`` (mean time from the first write
    to the last byte, of the whole visit) and ``PARTS``, all in seconds, null where nothing told. ``client_s`` is known
    of imports only. ``server_other_s`` is the server's own time of a request less its queue and computing.
    ``network_s`` is what is left of the residence, a difference of means, and not below 0: it holds whatever the
    others lack.
    """
    import polars as pl

    rows = [row for level in levels if (row := _row(level)) is not None]
    whole = {"visit": pl.Int64, "run": pl.String, "concurrency": pl.Int64, "rate": pl.Float64, "state": pl.String}
    return pl.DataFrame(rows, schema={**whole, **dict.fromkeys(("residence_s", *PARTS), pl.Float64)}, orient="row")


def _row(level: LevelData) -> dict[str, Any] | None:
    told = level.meta.get("server") or ()
    parts = {column: value_of(told, metric) for column, metric in _TOLD.items()}
    if level.parts or all(value is None for value in parts.values()):
        return None
    inside = sum(value for value in parts.values() if value is not None)
    request_s = value_of(told, "request_time")
    client_ns, residence_ns = level.meta.get("client_ns"), level.meta.get("residence_ns")
    client_s = None if client_ns is None else client_ns / NS_PER_S
    residence_s = None if residence_ns is None else residence_ns / NS_PER_S
    other_s = None if request_s is None else max(0.0, request_s - inside)
    known = inside + (client_s or 0.0) + (other_s or 0.0)
    return {
        "visit": level.visit,
        "run": level.run,
        "concurrency": level.concurrency,
        "rate": level.rate,
        "state": level.state,
        "residence_s": residence_s,
        "client_s": client_s,
        "network_s": None if residence_s is None else max(0.0, residence_s - known),
        "server_other_s": other_s,
        **parts,
    }
