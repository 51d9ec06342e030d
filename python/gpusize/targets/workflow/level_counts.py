"""What is counted of one level while it runs. May be used from any thread."""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import StoreError
from gpusize.base.text import said
from gpusize.records.calls import LLM, write_spans
from gpusize.records.schema import OUTCOMES
from gpusize.targets.workflow.per_second import SecondLog
from gpusize.targets.workflow.record import ErrorLog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import polars as pl

    from gpusize.engine.session import Second
    from gpusize.targets.workflow.record import PartWriter, RecordedRequest

__all__ = ["MARKED", "Tally", "written"]

MARKED: Final = "llm-marked"
"""The kind of a call that the workflow marks as ``llm`` while the proxy times the same calls: it counts once."""

_SECOND_NS: Final = 1_000_000_000


class Tally:
    """Counts, errors, histograms and calls of one level; hands every row to the writer.

    Args:
        visit: number of the level visit.
        writer: takes the rows.
        stop: the plan's ``stop``: ``max_error_share`` and ``min_errors`` decide when there are too many failures.
        proxied: whether the LLM proxy times the calls of language models.
        sample: of so many requests one is kept as a row, by its number.
    """

    def __init__(
        self, visit: int, writer: PartWriter, stop: Mapping[str, Any], *, proxied: bool, sample: int = 1
    ) -> None:
        self.writer = writer
        self.log = SecondLog()
        self.sample = max(sample, 1)
        self.spans: list[dict[str, Any]] = []
        self.too_many = False
        self._visit = visit
        self._share = stop.get("max_error_share")
        self._least = max(int(stop.get("min_errors") or 1), 1)
        self._proxied = proxied
        self._lock = threading.Lock()
        self._outcomes: Counter[str] = Counter()
        self._errors = ErrorLog()
        self._sent = 0
        self._unsent = 0
        self._service_ns = 0
        self._rows = 0
        self._recent: deque[int] = deque()
        self._due_at: deque[int] = deque()
        self._sent_at: deque[int] = deque()

    def begin(self, start_ns: int) -> None:
        """The level begins."""
        self.log.start_ns = start_ns

    def sent(self, due_ns: int, sent_ns: int) -> None:
        """A request begins."""
        with self._lock:
            self._sent += 1
            self._note_due(due_ns)
            self.log.sent(sent_ns)
            self._sent_at.append(sent_ns)

    def _note_due(self, due_ns: int) -> None:
        self.log.due(due_ns)
        self._due_at.append(due_ns)

    def add(self, request: RecordedRequest) -> None:
        """A request has ended."""
        row = dict(request.values)
        with self._lock:
            self._count(row, request.outcome, request.message, request.gaps_ns)
            for call in request.calls.rows(request.outcome):
                kind = MARKED if self._proxied and call["kind"] == LLM else call["kind"]
                self.spans.append({**call, "kind": kind, "visit": self._visit, "seq": row["seq"]})

    def unsent(self, row: dict[str, Any], outcome: str) -> None:
        """A request was never sent: ``shed`` because the bounded queue was full, or ``cancelled`` while it waited."""
        with self._lock:
            self._unsent += 1
            self._note_due(row["due_ns"])
            self._count(row, outcome, "", ())

    def _count(self, row: dict[str, Any], outcome: str, message: str, gaps_ns: Sequence[int]) -> None:
        row |= {"visit": self._visit, "worker": 0, "outcome": OUTCOMES.index(outcome)}
        self._outcomes[outcome] += 1
        if outcome != "ok":
            row["error_id"] = self._errors.note(outcome, row.get("status"), message)
        self._time(row, outcome, gaps_ns)
        if row["seq"] % self.sample == 0:
            self._rows += 1
            self.writer.add(row)
        failed = sum(n for name, n in self._outcomes.items() if name not in ("ok", "cancelled", "shed"))
        ended = self._outcomes.total() - self._outcomes["shed"]
        if self._share is not None and failed >= self._least and failed > self._share * ended:
            self.too_many = True

    def _time(self, row: Mapping[str, Any], outcome: str, gaps_ns: Sequence[int]) -> None:
        sent_ns, end_ns = row.get("sent_ns"), row.get("end_ns")
        self.log.ended(row, outcome, gaps_ns)
        if end_ns is not None:
            self._recent.append(end_ns)
            self._forget(end_ns)
        if sent_ns is not None and end_ns is not None and outcome == "ok":
            self._service_ns += end_ns - sent_ns

    def _forget(self, now_ns: int) -> None:
        """Only the events of the last second are of use, for the rates."""
        for events in (self._recent, self._due_at, self._sent_at):
            while events and events[0] < now_ns - _SECOND_NS:
                events.popleft()

    def tables(self) -> dict[str, pl.DataFrame]:
        """What was counted by the second since the last call, for the writer."""
        with self._lock:
            return self.log.tables()

    def seconds(self, after: int, now_ns: int | None) -> list[Second]:
        """As ``SecondLog.seconds``."""
        with self._lock:
            return self.log.seconds(after, now_ns)

    @property
    def residence_ns(self) -> int | None:
        """Mean of end - sent of the requests that ended ok."""
        with self._lock:
            good = self._outcomes["ok"]
            return self._service_ns // good if good else None

    def progress(self, now_ns: int, waiting: int) -> dict[str, Any]:
        """The counts among the fields of a Progress; ``waiting``: requests that are due and have no place yet."""
        with self._lock:
            self._forget(now_ns)
            done = self._outcomes.total()
            runtime, lateness = self.log.totals["runtime"], self.log.totals["lateness"]
            return {
                "due": self._sent + self._unsent + waiting,
                "sent": self._sent,
                "done": done,
                "ok": self._outcomes["ok"],
                "failed": {name: n for name, n in self._outcomes.items() if name != "ok"},
                "in_flight": self._sent + self._unsent + waiting - done,
                "waiting": waiting,
                "shed": self._outcomes["shed"],
                "p50_ns": runtime.quantile_ns(0.5),
                "p95_ns": runtime.quantile_ns(0.95),
                "lateness_p99_ns": lateness.quantile_ns(0.99),
                "recent": self.log.recent(now_ns),
                "rate": float(len(self._recent)),
                "offered_rate": float(len(self._due_at)),
                "sent_rate": float(len(self._sent_at)),
            }

    def outcome(self) -> dict[str, Any]:
        """The counts among the fields of a LevelOutcome."""
        with self._lock:
            return {
                "due": self._outcomes.total(),
                "sent": self._sent,
                "outcomes": {name: n for name, n in self._outcomes.items() if n},
                "rows": self._rows,
                "sampled": self.sample,
                "errors": self._errors.errors(),
                "histograms": {name: times.buckets() for name, times in self.log.totals.items()},
            }


def written(writer: PartWriter, folder: Path, spans: list[dict[str, Any]]) -> tuple[str | None, list[str]]:
    """Put a level's last rows and its calls on the disk: what kept it from that, and the files of the calls."""
    try:
        writer.close()
        return None, write_spans(folder, spans)
    except StoreError as error:
        return f"{error.what} ({error.where})", []
    except Exception as error:  # noqa: BLE001 - whatever kept the rows from the disk, the level has to end
        return said(error), []
