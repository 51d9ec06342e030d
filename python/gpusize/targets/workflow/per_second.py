"""What is counted of every request by the second, in the engine's tables: they tell of all, whatever rows are kept."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final

from gpusize.analysis.metrics import Span, by_second
from gpusize.records.schema import OUTCOMES
from gpusize.targets.workflow.histogram import Times

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import polars as pl

    from gpusize.engine.session import Recent, Second

__all__ = ["KEPT_SECONDS", "SecondLog"]

_METRICS: Final = by_second()
KEPT_SECONDS: Final = 600
"""Seconds that who watches may ask for."""
_SECOND_NS: Final = 1_000_000_000
_NOTHING: Final[Recent] = {
    "p50_ns": None,
    "p95_ns": None,
    "p99_ns": None,
    "ttft_p50_ns": None,
    "ttft_p99_ns": None,
    "lateness_p99_ns": None,
    "pacer_late_p99_ns": None,
}


class SecondLog:
    """Counts of one level by the second. Not for several threads.

    Attributes:
        totals: times of the whole level, by metric.
        start_ns: when the level began; seconds count from there.
    """

    def __init__(self) -> None:
        self.totals = {name: Times() for name in _METRICS}
        self.start_ns = 0
        self._events: Counter[tuple[int, int, str]] = Counter()
        self._times: dict[tuple[str, int, int], Times] = {}
        self._open: dict[int, dict[str, Any]] = {}
        self._kept: deque[Second] = deque(maxlen=KEPT_SECONDS)
        self._next = 0
        self._under_way = 0

    def due(self, due_ns: int) -> None:
        """A request is due."""
        self._at(due_ns)["due"] += 1

    def sent(self, sent_ns: int) -> None:
        """A request begins."""
        self._at(sent_ns)["sent"] += 1

    def ended(self, row: Mapping[str, Any], outcome: str, gaps_ns: Iterable[int]) -> None:
        """A request has its outcome; ``row`` is its record."""
        due_ns, sent_ns, end_ns = int(row["due_ns"]), row.get("sent_ns"), row.get("end_ns")
        end_ns = due_ns if end_ns is None else end_ns
        stream = int(row.get("stream") or 0)
        due, end = self._second(due_ns), self._second(end_ns)
        self._events.update([(due, stream, "due"), (due, stream, f"due_{outcome}"), (end, stream, "done")])
        self._events[end, stream, outcome] += 1
        if len(self._open) > KEPT_SECONDS:
            # Nobody looks.
            self._complete(end_ns)
        seen = self._at(end_ns)
        seen["outcomes"][outcome] += 1
        if sent_ns is None:
            return
        self._events[self._second(sent_ns), stream, "sent"] += 1
        for metric, time_ns in _times_of(row, sent_ns, end_ns, outcome, gaps_ns):
            for times in (self.totals, seen["times"]):
                times[metric].record(time_ns)
            self._times.setdefault((metric, due, stream), Times()).record(time_ns)

    def tables(self) -> dict[str, pl.DataFrame]:
        """What has been counted since the last call, as rows of ``seconds`` and ``histograms``; without empty ones."""
        import polars as pl

        events, self._events = self._events, Counter()
        times, self._times = self._times, {}
        if not events:
            return {}
        keys = sorted({key[:2] for key in events})
        names = ("due", "sent", "done", *OUTCOMES, *(f"due_{name}" for name in OUTCOMES))
        counts = {name: [events[*key, name] for key in keys] for name in names}
        seconds = {"second": [key[0] for key in keys], "stream": [key[1] for key in keys], **counts}
        rows = [(*key, *bucket) for key, counted in sorted(times.items()) for bucket in counted.buckets()]
        types = {"second": pl.UInt32, "stream": pl.UInt16}
        bucket_types = {"metric": pl.String, **types, "low_ns": pl.Int64, "high_ns": pl.Int64, "count": pl.UInt64}
        tables = {"seconds": pl.DataFrame(seconds, schema={**types, **dict.fromkeys(names, pl.UInt64)})}
        if rows:
            tables["histograms"] = pl.DataFrame(rows, schema=bucket_types, orient="row")
        return tables

    def seconds(self, after: int, now_ns: int | None) -> list[Second]:
        """The complete seconds from number ``after`` on, as far as they are kept; all of them without a ``now_ns``."""
        self._complete(now_ns)
        return [second for second in self._kept if second["second"] >= after]

    def recent(self, now_ns: int | None) -> Recent:
        """The last full second; None where nothing ended."""
        self._complete(now_ns)
        if not self._kept:
            return _NOTHING
        found = {name: Times.of(buckets) for name, buckets in self._kept[-1]["times"].items()}
        runtime, ttft = found["runtime"], found["ttft"]
        return {
            "p50_ns": runtime.quantile_ns(0.5),
            "p95_ns": runtime.quantile_ns(0.95),
            "p99_ns": runtime.quantile_ns(0.99),
            "ttft_p50_ns": ttft.quantile_ns(0.5),
            "ttft_p99_ns": ttft.quantile_ns(0.99),
            "lateness_p99_ns": found["lateness"].quantile_ns(0.99),
            "pacer_late_p99_ns": found["pacer_late"].quantile_ns(0.99),
        }

    def _second(self, ns: int) -> int:
        return max(ns - self.start_ns, 0) // _SECOND_NS

    def _at(self, ns: int) -> dict[str, Any]:
        """The second in which ``ns`` lies, or the first one that is still open."""
        number = max(self._second(ns), self._next)
        if number not in self._open:
            times = {name: Times() for name in _METRICS}
            self._open[number] = {"due": 0, "sent": 0, "outcomes": Counter(), "times": times}
        return self._open[number]

    def _complete(self, now_ns: int | None) -> None:
        last = max(self._open, default=self._next - 1) + 1
        through = last if now_ns is None else self._second(now_ns)
        # Of a long silence only the seconds that would be kept are written out.
        for number in range(self._next, through):
            seen = self._open.pop(number, None)
            if seen is None and number < through - KEPT_SECONDS:
                continue
            seen = seen or {"due": 0, "sent": 0, "outcomes": Counter(), "times": {name: Times() for name in _METRICS}}
            done = seen["outcomes"].total()
            self._under_way += seen["due"] - done
            self._kept.append(
                {
                    "second": number,
                    "due": seen["due"],
                    "sent": seen["sent"],
                    "done": done,
                    "outcomes": dict(seen["outcomes"]),
                    "in_flight": self._under_way,
                    "waiting": 0,
                    "cpu_ns": 0,
                    "times": {name: times.buckets() for name, times in seen["times"].items()},
                }
            )
        self._next = max(self._next, through)


def _times_of(
    row: Mapping[str, Any], sent_ns: int, end_ns: int, outcome: str, gaps_ns: Iterable[int]
) -> Iterable[tuple[str, int]]:
    """Metrics of one request that was sent, with its times."""
    moments = {**row, "sent_ns": sent_ns, "end_ns": end_ns}
    for name, each in _METRICS.items():
        if each.requests == "ok" and outcome != "ok":
            continue
        if isinstance(each.build, Span):
            start_ns, stop_ns = moments.get(each.build.start), moments.get(each.build.end)
            if start_ns is not None and stop_ns is not None:
                yield name, stop_ns - start_ns
        else:
            yield from ((name, gap_ns) for gap_ns in gaps_ns)
