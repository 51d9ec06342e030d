"""Levels as a run stores them, of tasks that were simulated elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from benches.estimates.agent_servers import Drawn
from gpusize.analysis.level import LevelData
from gpusize.analysis.windows import intervals
from gpusize.records.calls import LLM, span_dtypes
from gpusize.records.schema import outcome_dtype, record_dtypes

__all__ = ["calls_table", "level_of"]


def level_of(visit: int, users: int, found: Sequence[Drawn], *, pause_s: float, calls: bool) -> LevelData:
    """A level of a closed loop on one replica, with what was due until its last request ended.

    Args:
        visit: its number.
        users: how many there were.
        found: their requests; of those without an end nothing is known.
        pause_s: mean of their pauses, which are exponential.
        calls: whether the calls inside requests are stored.
    """
    ended = [each for each in found if each.end_s == each.end_s]
    due = [_ns(each.due_s) for each in ended]
    end = [_ns(each.end_s) for each in ended]
    known = {name: pl.Series(due) for name in ("due_ns", "fired_ns", "sent_ns")}
    known |= {name: pl.Series(end) for name in ("first_byte_ns", "end_ns")}
    known |= {"seq": pl.Series(range(len(ended))), "outcome": pl.Series(["ok"] * len(ended), dtype=outcome_dtype())}
    zeros = {"visit", "stream", "attempt", "row", "events"}
    dtypes = {**record_dtypes(), "outcome": outcome_dtype()}
    records = pl.DataFrame(
        [
            known[name].cast(dtype).alias(name)
            if name in known
            else pl.repeat(0 if name in zeros else None, len(ended), dtype=dtype, eager=True).alias(name)
            for name, dtype in dtypes.items()
        ]
    )
    setting = {"kind": "closed", "concurrency": users, "count": len(ended)}
    if pause_s:
        setting |= {"think": f"exp({pause_s * 1e3:.6f}ms)"}
    meta = {
        "setting": setting, "state": "done", "start_ns": 0, "close_ns": max(due) + 1, "end_ns": max(end),
        "outcomes": {"ok": len(ended)},
    }  # fmt: skip
    return LevelData(
        visit=visit,
        setting=setting,
        state="done",
        intervals=intervals(meta, records.lazy()).intervals,
        gpus=1,
        run="agents",
        meta=meta,
        records=records.lazy(),
        calls=_spans(ended).lazy() if calls else None,
    )


def _spans(ended: Sequence[Drawn]) -> pl.DataFrame:
    rows = [(seq, number, *call) for seq, each in enumerate(ended) for number, call in enumerate(each.calls)]
    return calls_table([(seq, number, _ns(begin_s), _ns(end_s)) for seq, number, begin_s, end_s in rows])


def _ns(at_s: float) -> int:
    return round(at_s * 1e9) + 1_000


def calls_table(rows: Sequence[tuple[int, int, int, int]], outcomes: Sequence[str] | None = None) -> pl.DataFrame:
    """Calls of language models as a run stores them.

    Args:
        rows: of each the number of its request, its own within that, its beginning and its end in nanoseconds.
        outcomes: likewise; None: all ended well.
    """
    known = dict(zip(("seq", "call", "start_ns", "end_ns"), zip(*rows, strict=True), strict=True))
    zeros = {"visit", "stream", "attempt", "domain"}
    columns = [
        pl.Series(name, known[name], dtype=dtype)
        if name in known
        else pl.repeat(0 if name in zeros else None, len(rows), dtype=dtype, eager=True).alias(name)
        for name, dtype in span_dtypes().items()
        if name not in ("outcome", "kind")
    ]
    named = pl.Series("outcome", outcomes or ["ok"] * len(rows), dtype=outcome_dtype())
    return pl.DataFrame([*columns, pl.repeat(LLM, len(rows), eager=True).alias("kind"), named])
