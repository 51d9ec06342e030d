"""From the levels of a run, all of one load, to what a proof is judged by, and to what forbids it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from gpusize.analysis.delivery.delivery import delivery_of
from gpusize.analysis.generator import generator_limits
from gpusize.analysis.proof.judge import Judged, Part, PartCalls, Terms, judge
from gpusize.analysis.stop_cause import WHOLE
from gpusize.records.calls import WITHIN_VISIT, judged_calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from gpusize.analysis.level import LevelData
    from gpusize.analysis.slo import Slo

__all__ = ["Evidence", "Levels"]

NO_GAP_NS: Final = 250_000_000
"""Levels that begin so soon after the one before closed go on with its load."""
MOST_LIMITED: Final = 3
"""Levels in a row in which the generator was the limit, after which nothing more is measured."""
TAIL: Final = 0.2
"""Share of a level, at its end, that shows whether the target still answers."""
_GONE: Final = ("connect_error", "tls_error", "truncated", "protocol_error")
"""Outcomes that no server gives on purpose."""
_OF_THE_LOAD: Final = ("count", "lateness", "order", "hosts", "little", "think")
"""Checks of delivery that count: whether as much was sent as was asked for, when it was."""


class Evidence(NamedTuple):
    """What the levels so far have to say.

    Attributes:
        judged: by all of them.
        requests: that were sent, warm-up included.
        levels: that were measured to their end.
        length_s: how long these were, together.
        left_out: of these, how many count for nothing, as the load generator was the limit.
        ends: whether to measure no further.
        over: whether no further level could change anything, as when the target failed.
    """

    judged: Judged
    requests: int
    levels: int
    length_s: float
    left_out: int
    ends: bool
    over: bool


class _Seen(NamedTuple):
    """One level, read once. Rows by due time; ``cut``: those after the last one were cut off."""

    start_ns: int
    close_ns: int
    part: Part
    cut: bool
    generator: str
    undelivered: str
    failed: str


class Levels:
    """Judges the levels of a run as they come. Each is read once.

    Args:
        slos: on what each request has, as `gpusize.estimate.search.terms.searched` gives them, or on the calls inside
            requests; no means.
        terms: what is promised.
        users: of a closed loop; None for an open one, of which as many count as are in flight on average.
    """

    def __init__(self, slos: Sequence[Slo], terms: Terms, users: int | None) -> None:
        self._slos = tuple(slos)
        self._terms = terms
        self._users = users
        self._seen: dict[int, _Seen] = {}
        self._blocks: dict[int, int] = {}

    def judge(self, levels: Sequence[LevelData]) -> Evidence:
        """Judge all levels of the run so far.

        Args:
            levels: in the order of their visits; those that were cut short count in nothing but a failure.
        """
        whole = [each for each in levels if each.state == "done" and each.meta.get("stop_reason") in WHOLE]
        for level in whole:
            if level.visit not in self._seen:
                self._seen[level.visit] = self._read(level)
        seen = [self._seen[level.visit] for level in whole]
        requests = sum(each.part.runtime_s.size for each in seen)
        length_s = sum((each.close_ns - each.start_ns) / 1e9 for each in seen)
        limited = [each.generator for each in seen if each.generator]
        parts = list(_joined(seen))
        asked = [(str(slo), slo.share) for slo in self._slos]
        in_flight = float(self._users) if self._users is not None else _in_flight(seen)
        judged = judge(parts, asked, self._terms, in_flight=in_flight, blocks=self._blocks)
        self._blocks = {k: each.block for k, each in enumerate(judged.slos)}
        broken = next((_broken(each) for each in levels if each.state in ("interrupted", "partial")), "")
        judged, ends = _believed(judged, seen, broken)
        # Where the generator was the limit, a resumed run may do better.
        over = ends and not (
            judged.verdict == "undecided" and seen and seen[-1].generator and not _failure(seen, broken)
        )
        return Evidence(judged, requests, len(whole), length_s, len(limited), ends, over)

    def _read(self, level: LevelData) -> _Seen:
        import numpy as np
        import polars as pl

        own = [slo for slo in self._slos if not slo.of_calls]
        columns = {name for slo in own for name in slo.columns} - {"outcome", "due_ns", "end_ns"}
        of_calls = level.calls is not None and len(own) < len(self._slos)
        key = WITHIN_VISIT if of_calls else ()
        unknown = pl.lit(None, pl.Float64)
        marks = [
            (unknown if slo.of_calls else slo.within_expr().cast(pl.Float64)).alias(f"within_{k}")
            for k, slo in enumerate(self._slos)
        ]
        frame = (
            level.requests(*sorted({*columns, *key}))
            .select("due_ns", "end_ns", "outcome", *key, *marks)
            .sort("due_ns", maintain_order=True)
            .collect(engine="streaming")
        )
        cancelled = (frame["outcome"] == "cancelled").to_numpy()
        first = int(np.argmax(cancelled)) if cancelled.any() else frame.height
        rows = frame.head(first)
        runtime_s = (rows["end_ns"] - rows["due_ns"]).cast(pl.Float64).to_numpy() / 1e9
        longest = float(np.nanmax(runtime_s)) if runtime_s.size and not np.isnan(runtime_s).all() else 0.0
        within = np.array([rows[f"within_{k}"].fill_null(math.nan).to_numpy() for k in range(len(self._slos))])
        delivery = delivery_of(level)
        late = [each.text for each in delivery.checks
                if each.status == "failed" and each.name.partition(" ")[0] in _OF_THE_LOAD]  # fmt: skip
        meta = level.meta
        return _Seen(
            int(meta.get("start_ns") or 0),
            int(meta.get("close_ns") or meta.get("end_ns") or 0),
            Part(
                within.reshape(len(self._slos), first),
                np.nan_to_num(runtime_s, nan=longest),
                self._calls(level.calls, rows) if of_calls and level.calls is not None else {},
            ),
            bool(cancelled.any()),
            "; ".join(generator_limits(level)),
            "; ".join(late),
            _gone(frame["outcome"].cast(pl.String).to_list()),
        )

    def _calls(self, every: pl.LazyFrame, rows: pl.DataFrame) -> dict[int, PartCalls]:
        """The calls inside these requests, by the number of the SLO that is about them."""
        import numpy as np
        import polars as pl

        places = rows.lazy().select(*WITHIN_VISIT).with_row_index("of")
        calls = judged_calls(every, rows.lazy()).join(places, on=WITHIN_VISIT)
        found = calls.sort("of", "start_ns", nulls_last=True, maintain_order=True).collect()
        of = found["of"].to_numpy().astype(np.intp)
        took_s = (found["end_ns"] - found["start_ns"]).cast(pl.Float64).fill_null(math.nan).to_numpy() / 1e9
        # One without times is that of a request that failed: as long as the longest.
        took_s = np.nan_to_num(took_s, nan=float(np.nanmax(took_s)) if np.isfinite(took_s).any() else 0.0)
        told = {}
        for k, slo in enumerate(self._slos):
            if slo.of_calls:
                within = found.select(slo.within_expr().cast(pl.Float64).fill_null(math.nan)).to_series().to_numpy()
                told[k] = PartCalls(of, within, took_s)
        return told


def _gone(outcomes: Sequence[str]) -> str:
    """That the target no longer answered at the end of a level, in words; empty where it did."""
    told = [each for each in outcomes if each != "cancelled"]
    tail = told[-max(1, round(TAIL * len(told))) :] if told else []
    if not tail:
        return "no request was sent"
    lost = sum(each in _GONE for each in tail)
    if 2 * lost >= len(tail):
        return f"{lost:,} of the last {len(tail):,} requests of a level found no server that answers"
    return "" if "ok" in tail else f"none of the last {len(tail):,} requests of a level was answered well"


def _broken(level: LevelData) -> str:
    alerts = level.meta.get("alerts") or ["it was interrupted"]
    return f"a level could not be measured to its end: {alerts[0]}"


def _joined(seen: Sequence[_Seen]) -> list[Part]:
    """Levels that follow each other without a gap as one part each; those that the generator limited are gaps."""
    import numpy as np

    found: list[list[_Seen]] = []
    before: _Seen | None = None
    for each in seen:
        goes_on = before is not None and not before.cut and not before.generator
        if each.generator:
            pass
        elif goes_on and before is not None and each.start_ns - before.close_ns <= NO_GAP_NS:
            found[-1].append(each)
        else:
            found.append([each])
        before = each
    return [
        Part(
            np.concatenate([one.part.within for one in group], axis=1),
            np.concatenate([one.part.runtime_s for one in group]),
            _joined_calls([one.part for one in group]),
        )
        for group in found
    ]


def _joined_calls(parts: Sequence[Part]) -> dict[int, PartCalls]:
    """The calls of parts that follow each other; nothing of an SLO that a part has none for."""
    import numpy as np

    begins = np.cumsum([0, *(part.runtime_s.size for part in parts)])
    found = {}
    for number in parts[0].calls:
        each = [part.calls.get(number) for part in parts]
        known = [one for one in each if one is not None]
        if len(known) == len(each):
            of = [one.of + begin for one, begin in zip(known, begins, strict=False)]
            arrays = (np.concatenate([getattr(one, name) for one in known]) for name in ("within", "took_s"))
            found[number] = PartCalls(np.concatenate(of), *arrays)
    return found


def _in_flight(seen: Sequence[_Seen]) -> float:
    """Requests in flight on average, by Little's law; 0 where nothing was measured."""
    busy_s = sum(float(each.part.runtime_s.sum()) for each in seen)
    length_s = sum((each.close_ns - each.start_ns) / 1e9 for each in seen)
    return busy_s / length_s if length_s > 0 else 0.0


def _failure(seen: Sequence[_Seen], broken: str) -> str:
    """That the target failed, in words; empty where it did not."""
    return next((each.failed for each in seen if each.failed), broken)


def _believed(judged: Judged, seen: Sequence[_Seen], broken: str) -> tuple[Judged, bool]:
    """The judgement, as far as the load and the target allow one, and whether to measure no further."""
    failed = _failure(seen, broken)
    if failed:
        return replace(judged, verdict="undecided", why=f"the target failed: {failed}"), True
    silent = next((each for each in judged.slos if judged.requests and each.requests == each.unknown), None)
    if silent is not None:
        return replace(judged, why=f"no request has data for {silent.slo}"), True
    undelivered = [each.undelivered for each in seen if each.undelivered and not each.generator]
    if undelivered and judged.verdict == "kept":
        why = f"the load was not delivered: {undelivered[0]}"
        return replace(judged, verdict="undecided", why=why), True
    if judged.verdict != "undecided" or judged.settled:
        return judged, True
    last = [each.generator for each in seen[-MOST_LIMITED:]]
    if len(last) == MOST_LIMITED and all(last):
        why = f"the load generator was the limit in the last {MOST_LIMITED} levels: {last[-1]}"
        return replace(judged, why=why), True
    return judged, False
