"""What is counted of one level while it runs. May be used from any thread."""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final

from gpusize.calls import LLM, write_spans
from gpusize.errors import StoreError
from gpusize.frames import OUTCOMES
from gpusize.recorded import ErrorLog
from gpusize.workflow.histogram import Times

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gpusize.recorded import PartWriter, RecordedRequest

__all__ = ["MARKED", "Tally", "written"]

MARKED: Final = "llm-marked"
"""The kind of a call that the workflow marks as ``llm`` while the proxy times the same calls: it counts once."""

_METRICS: Final = ("runtime", "service", "ttft", "itl", "lateness")
_SECOND_NS: Final = 1_000_000_000


class Tally:
    """Counts, errors, histograms and calls of one level; hands every row to the writer.

    Args:
        visit: number of the level visit.
        writer: takes the rows.
        stop: the plan's ``stop``: ``max_error_share`` and ``min_errors`` decide when there are too many failures.
        proxied: whether the LLM proxy times the calls of language models.
    """

    def __init__(self, visit: int, writer: PartWriter, stop: Mapping[str, Any], *, proxied: bool) -> None:
        self.writer = writer
        self.spans: list[dict[str, Any]] = []
        self.too_many = False
        self._visit = visit
        self._share = stop.get("max_error_share")
        self._least = max(int(stop.get("min_errors") or 1), 1)
        self._proxied = proxied
        self._lock = threading.Lock()
        self._outcomes: Counter[str] = Counter()
        self._errors = ErrorLog()
        self._times = {name: Times() for name in _METRICS}
        self._sent = 0
        self._unsent = 0
        self._service_ns = 0
        self._recent: deque[int] = deque()

    def sent(self) -> None:
        """A request begins."""
        with self._lock:
            self._sent += 1

    def add(self, request: RecordedRequest) -> None:
        """A request has ended."""
        row = dict(request.values)
        with self._lock:
            self._count(row, request.outcome, request.message)
            if request.outcome == "ok":
                for gap_ns in request.gaps_ns:
                    self._times["itl"].record(gap_ns)
            for call in request.calls.rows(request.outcome):
                kind = MARKED if self._proxied and call["kind"] == LLM else call["kind"]
                self.spans.append({**call, "kind": kind, "visit": self._visit, "seq": row["seq"]})

    def unsent(self, row: dict[str, Any], outcome: str) -> None:
        """A request was never sent: ``shed`` because the bounded queue was full, or ``cancelled`` while it waited."""
        with self._lock:
            self._unsent += 1
            self._count(row, outcome, "")

    def _count(self, row: dict[str, Any], outcome: str, message: str) -> None:
        row |= {"visit": self._visit, "worker": 0, "outcome": OUTCOMES.index(outcome)}
        self._outcomes[outcome] += 1
        if outcome != "ok":
            row["error_id"] = self._errors.note(outcome, row.get("status"), message)
        self._time(row, outcome)
        self.writer.add(row)
        failed = sum(n for name, n in self._outcomes.items() if name not in ("ok", "cancelled"))
        if self._share is not None and failed >= self._least and failed > self._share * self._outcomes.total():
            self.too_many = True

    def _time(self, row: Mapping[str, Any], outcome: str) -> None:
        sent_ns, end_ns = row.get("sent_ns"), row.get("end_ns")
        if end_ns is not None:
            self._recent.append(end_ns)
            self._forget(end_ns)
        if sent_ns is None or end_ns is None:
            return
        self._times["lateness"].record(sent_ns - row["due_ns"])
        if outcome != "ok":
            return
        self._service_ns += end_ns - sent_ns
        self._times["runtime"].record(end_ns - row["due_ns"])
        self._times["service"].record(end_ns - sent_ns)
        if row.get("first_token_ns") is not None:
            self._times["ttft"].record(row["first_token_ns"] - row["due_ns"])

    def _forget(self, now_ns: int) -> None:
        """Only the ends of the last second are of use, for the rate."""
        while self._recent and self._recent[0] < now_ns - _SECOND_NS:
            self._recent.popleft()

    @property
    def residence_ns(self) -> int | None:
        """Mean of end - sent of the requests that ended ok."""
        with self._lock:
            good = self._outcomes["ok"]
            return self._service_ns // good if good else None

    def progress(self, now_ns: int) -> dict[str, Any]:
        """The counts among the fields of a Progress."""
        with self._lock:
            self._forget(now_ns)
            done = self._outcomes.total()
            runtime, lateness = self._times["runtime"], self._times["lateness"]
            return {
                "due": self._sent + self._unsent,
                "sent": self._sent,
                "done": done,
                "ok": self._outcomes["ok"],
                "failed": {name: n for name, n in self._outcomes.items() if name != "ok"},
                "in_flight": self._sent + self._unsent - done,
                "p50_ns": runtime.quantile_ns(0.5),
                "p95_ns": runtime.quantile_ns(0.95),
                "lateness_p99_ns": lateness.quantile_ns(0.99),
                "rate": float(len(self._recent)),
            }

    def outcome(self) -> dict[str, Any]:
        """The counts among the fields of a LevelOutcome."""
        with self._lock:
            rows = self._outcomes.total()
            return {
                "due": rows,
                "sent": self._sent,
                "outcomes": {name: n for name, n in self._outcomes.items() if n},
                "rows": rows,
                "errors": self._errors.errors(),
                "histograms": {name: times.buckets() for name, times in self._times.items()},
            }


def written(writer: PartWriter, folder: Path, spans: list[dict[str, Any]]) -> tuple[str | None, list[str]]:
    """Put a level's last rows and its calls on the disk: what kept it from that, and the files of the calls."""
    try:
        writer.close()
        return None, write_spans(folder, spans)
    except StoreError as error:
        return f"{error.what} ({error.where})", []
    except Exception as error:  # noqa: BLE001 - whatever kept the rows from the disk, the level has to end
        return f"{type(error).__name__}: {error}", []
