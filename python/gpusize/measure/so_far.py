"""What the answers of a running level come to, for those who watch: tokens, TTFT, ITL, and the SLOs' shares.

Times come from the counts of whole seconds, to the width of a bucket. Tokens and shares come from the parts of the
records that are written, every 5 s or so: they are exact, of the requests that these hold. All are of the whole level
so far, warm-up included; the summary's are of its steady window.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.analysis.metrics import METRICS, NS_PER_S
from gpusize.analysis.slo import Slo
from gpusize.base.errors import GpusizeError
from gpusize.base.regular_files import part_files
from gpusize.engine.session import monotonic_ns
from gpusize.records.schema import scan

if TYPE_CHECKING:
    from gpusize.engine.session import AnyLevel

__all__ = ["SoFar"]

EVERY_NS: Final = 1_000_000_000
TIMES: Final = ("ttft", "itl")
PROBS: Final = {"p50": 0.5, "p95": 0.95}


@dataclass
class _Watched:
    due_ns: int = 0
    after: int = 0
    read: set[str] = field(default_factory=set)
    times: dict[str, Counter[tuple[int, int]]] = field(default_factory=lambda: {name: Counter() for name in TIMES})
    judged: dict[str, tuple[int, int]] = field(default_factory=dict)
    tokens: int | None = None
    first_ns: float = math.inf
    last_ns: float = -math.inf
    figures: dict[str, Any] = field(default_factory=dict)


class SoFar:
    """Watches the levels of a run, each at most once a second. Reading never fails a run.

    Args:
        slos: whose shares are told; of those on calls inside requests nothing is.
        nature: what a request is (`gpusize.targets.apis.base.Nature`).
        clock: in nanoseconds.
    """

    def __init__(
        self, slos: Sequence[Slo] = (), nature: str | None = None, clock: Callable[[], int] = monotonic_ns
    ) -> None:
        self._slos = {str(slo): meant for slo in slos if (meant := _of_records(slo, nature)) is not None}
        self._clock = clock
        self._levels: dict[int, _Watched] = {}

    def look(self, level: AnyLevel, folder: Path, *, sampled: int = 1, last: bool = False) -> Mapping[str, Any]:
        """The figures of a level so far, at most a second old.

        Args:
            level: the level.
            folder: where it is written.
            sampled: n where 1 in n requests has a row; of those rows nothing is told.
            last: it has ended: look once more, and for the last time.

        Returns:
            ``ttft_p50_ns``, ``ttft_p95_ns``, ``itl_p50_ns``, ``itl_p95_ns``; ``tokens_per_s``, output tokens of
            answers that ended ok, from the first due time to the last end; ``judged``: by SLO the requests within it
            and all that were judged. What is not known is not there.
        """
        watched = self._levels.setdefault(level.visit, _Watched())
        now_ns = self._clock()
        if last or now_ns >= watched.due_ns:
            watched.due_ns = now_ns + EVERY_NS
            self._take_seconds(level, watched)
            if sampled == 1:
                self._take_parts(folder / "records", watched)
            watched.figures = self._figures(watched)
        if last:
            del self._levels[level.visit]
        return watched.figures

    @staticmethod
    def _take_seconds(level: AnyLevel, watched: _Watched) -> None:
        seconds = getattr(level, "seconds", None)
        for row in () if seconds is None else seconds(watched.after):
            watched.after = int(row["second"]) + 1
            for name, times in watched.times.items():
                for low_ns, high_ns, count in (row.get("times") or {}).get(name) or ():
                    times[low_ns, high_ns] += count

    def _take_parts(self, folder: Path, watched: _Watched) -> None:
        import polars as pl

        try:
            new = [part for part in part_files(folder) if part.name not in watched.read]
            if not new:
                return
            wanted = {"outcome", "due_ns", "end_ns", "tokens_out"}
            wanted.update(name for slo in self._slos.values() for name in slo.columns)
            frame = scan(new).select(sorted(wanted)).collect()
        except (OSError, GpusizeError, pl.exceptions.PolarsError):
            return  # whoever reads the level for good says what is wrong with it
        watched.read.update(part.name for part in new)
        if not frame.height:
            return
        ok = frame.filter(pl.col("outcome") == "ok")["tokens_out"]
        if ok.count():
            watched.tokens = (watched.tokens or 0) + int(ok.sum())
        watched.first_ns = min(watched.first_ns, float(frame["due_ns"].to_numpy().min()))
        watched.last_ns = max(watched.last_ns, float(frame["end_ns"].to_numpy().max()))
        for text, slo in self._slos.items():
            counts = slo.count(frame)
            within, judged = watched.judged.get(text, (0, 0))
            watched.judged[text] = (within + counts.within, judged + counts.within + counts.over)

    @staticmethod
    def _figures(watched: _Watched) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, times in watched.times.items():
            for quantile, prob in PROBS.items():
                if (value := _percentile(times, prob)) is not None:
                    made[f"{name}_{quantile}_ns"] = value
        span_s = (watched.last_ns - watched.first_ns) / NS_PER_S
        if watched.tokens is not None and span_s > 0:
            made["tokens_per_s"] = watched.tokens / span_s
        judged = {text: counts for text, counts in watched.judged.items() if counts[1]}
        return {**made, "judged": judged} if judged else made


def _of_records(slo: Slo, nature: str | None) -> Slo | None:
    """The SLO in terms of the columns of records; None where it is about something else, or is judged by a mean."""
    if slo.kind == "mean":
        return None
    told = slo.of_request(nature)
    if told.kind == "share":
        return told
    found = METRICS[told.metric]
    return told if found.table == "records" and found.build is not None else None


def _percentile(times: Mapping[tuple[int, int], int], prob: float) -> float | None:
    """By nearest rank, the middle of its bucket; None for none."""
    left = math.ceil(prob * sum(times.values()))
    for (low_ns, high_ns), count in sorted(times.items()):
        left -= count
        if left <= 0:
            return (low_ns + high_ns) / 2
    return None
