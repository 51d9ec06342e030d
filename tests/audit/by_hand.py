"""Every figure of a level's summary once more, from the raw requests alone: plain loops and sorts, no code of ours.

Requests are dictionaries of floats (nanoseconds), None where a time was never reached. The rules are those of
docs/reference/windows.md, slo.md and metrics.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OUTCOMES = (
    "ok", "http_error", "api_error", "timeout", "connect_error",
    "tls_error", "protocol_error", "truncated", "cancelled", "shed",
)  # fmt: skip
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}
SPANS = {
    "runtime": ("due_ns", "end_ns"),
    "service": ("sent_ns", "end_ns"),
    "ttft": ("due_ns", "first_token_ns"),
    "ttft_sent": ("sent_ns", "first_token_ns"),
    "lateness": ("due_ns", "sent_ns"),
    "pacer_late": ("due_ns", "fired_ns"),
}
S = 1e9

Request = dict[str, Any]


def requests_of(raw: Mapping[str, Iterable[float]]) -> list[Request]:
    """The raw columns as one dictionary for each request; outcomes by name."""
    names = list(raw)
    rows = []
    for values in zip(*raw.values(), strict=True):
        row = {name: None if math.isnan(x) else float(x) for name, x in zip(names, values, strict=True)}
        rows.append({**row, "outcome": OUTCOMES[int(row["outcome"] or 0)]})
    return rows


def span_s(row: Request, metric: str) -> float | None:
    """A time of one request in seconds; None where it has none."""
    low, high = (row[name] for name in SPANS[metric])
    return None if low is None or high is None else (high - low) / S


def quantile(values: Sequence[float], prob: float) -> float | None:
    """By linear interpolation between the two neighbours (Hyndman and Fan's type 7)."""
    ranked = sorted(values)
    if not ranked:
        return None
    place = prob * (len(ranked) - 1)
    low = int(place)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (ranked[high] - ranked[low]) * (place - low)


@dataclass
class Hand:
    """One level.

    Attributes:
        rows: all of its requests.
        meta: its ``level.json``.
        window: the steady interval, (start, end) in ns.
    """

    rows: list[Request]
    meta: Mapping[str, Any]
    window: tuple[float, float]

    def __post_init__(self) -> None:
        low, high = self.window
        self.steady = [row for row in self.rows if low <= row["due_ns"] < high]
        self.good = [row for row in self.steady if row["outcome"] == "ok"]
        self.slots = self.meta["setting"].get("concurrency")

    # ----------------------------------------------------------------------------------------------------- counts

    def counts(self) -> dict[str, Any]:
        """Counts of what was due in the window."""
        outcomes = [row["outcome"] for row in self.steady]
        never = [row for row in self.steady if row["sent_ns"] is None]
        return {
            "n": len(self.steady),
            "errors": sum(each not in ("ok", "cancelled") for each in outcomes),
            "shed": outcomes.count("shed"),
            "unsent": sum(row["outcome"] != "shed" for row in never),
            **{f"err_{name}": outcomes.count(name) for name in OUTCOMES[1:]},
        }

    # ------------------------------------------------------------------------------------------------------ times

    def times(self) -> dict[str, float | None]:
        """Percentiles of the steady requests that ended ok; lateness of all that were sent."""
        found: dict[str, float | None] = {}
        for metric in ("runtime", "service", "ttft", "ttft_sent", "lateness"):
            of = self.steady if metric == "lateness" else self.good
            values = [x for row in of if (x := span_s(row, metric)) is not None]
            found |= {f"{metric}_{name}_s": quantile(values, prob) for name, prob in QUANTILES.items()}
        runtimes = [span_s(row, "runtime") or 0.0 for row in self.good]
        late = [x for row in self.steady if (x := span_s(row, "pacer_late")) is not None]
        found["runtime_mean_s"] = sum(runtimes) / len(runtimes) if runtimes else None
        found["pacer_late_p99_s"] = quantile(late, 0.99)
        sent = [row["sent_ns"] for row in self.rows if row["sent_ns"] is not None]
        ends = [row["end_ns"] for row in self.rows if row["end_ns"] is not None]
        found["total_runtime_s"] = (max(ends) - min(sent)) / S if sent and ends else None
        return found

    # ------------------------------------------------------------------------------------------------------ rates

    def full_ns(self) -> float:
        """When nearly all slots first ran a request of this level, else when the last of them began one."""
        begun: list[float] = sorted(row["sent_ns"] for row in self.rows if row["sent_ns"] is not None)
        start = float(self.meta["start_ns"])
        ends = [row["end_ns"] for row in self.rows if row["sent_ns"] is not None and row["end_ns"] is not None]
        for k, at in enumerate(begun):
            if k + 1 - sum(end <= at for end in ends) >= math.ceil(0.95 * self.slots):
                return max(at, start)
        return max(begun[min(self.slots, len(begun)) - 1], start) if begun else start

    def answered(self) -> tuple[list[Request], float, float]:
        """The answers that make the achieved rate, and from when to when they came.

        Of a level of few passes those behind each slot's first, and the time that a slot takes for its part of them.
        """
        came, begun, closed = self.came()
        passes = self.slots is not None and self.meta["stop_reason"] == "count"
        if not passes or self.meta["setting"].get("duration_s"):
            return came, begun, closed
        due = [row for row in self.rows if begun < row["due_ns"] <= closed]
        failed, n = any(row["outcome"] != "ok" for row in self.rows), len(self.rows)
        if failed or self.slots < 2 or len(due) < self.slots or not 2 * self.slots <= n < 20 * self.slots:
            return came, begun, closed
        start, last = self.meta["start_ns"], max(row["end_ns"] for row in self.rows)
        whole = self.window[0] <= start and max(row["due_ns"] for row in self.rows) <= closed
        took = [row["end_ns"] - row["due_ns"] for row in due]
        mean = sum(took) / len(took)
        spread = math.sqrt(sum((x - mean) ** 2 for x in took) / (len(took) - 1))
        if mean and spread < 0.15 * mean:
            waves = math.ceil(len(due) / self.slots) + 1
            idle = max(row["end_ns"] for row in due) - begun > 1.1 * waves * mean
            if not idle and whole and n / (last - start) > self.slots / mean:
                return self.rows, start, last
            return (came, begun, closed) if idle else (due, begun, begun + sum(took) / self.slots)
        busy = sum(max(0, min(row["end_ns"], closed) - row["due_ns"]) for row in self.rows)
        if not whole or 1.1 * busy < self.slots * (closed - start):
            return came, begun, closed
        ranked = [row["end_ns"] - row["due_ns"] for row in sorted(self.rows, key=lambda row: row["due_ns"])]
        first, later = ranked[: self.slots], ranked[self.slots :]
        slow = max(sum(first) / len(first), sum(later) / len(later))
        length = min(n * slow / self.slots, last - start)
        return self.rows, start, start + length

    def came(self) -> tuple[list[Request], float, float]:
        """The answers that came while the load went on, and from when to when that was."""
        ok = [row for row in self.rows if row["outcome"] == "ok"]
        low, high = self.window
        close = self.meta["close_ns"]
        if self.slots is not None:
            begun, closed = max(low, self.full_ns()), min(high, close)
            came = [row for row in ok if begun < row["end_ns"] <= closed]
            if len(came) >= self.slots and closed > begun:
                return came, begun, closed
            last = max(low, min(high, max(row["end_ns"] for row in self.rows)))
            return [row for row in ok if low < row["end_ns"] <= last], low, last
        high = max(low, min(high, close))
        due = [row for row in ok if low <= row["due_ns"] < high]
        later = 0.0
        if due:
            first = min(due, key=lambda row: row["end_ns"])
            later = first["end_ns"] - first["due_ns"]
            # Due for less time than half of them took: the answers alone say how long they took to come.
            runtimes = sorted(row["end_ns"] - row["due_ns"] for row in due)
            ends = sorted(row["end_ns"] for row in due)
            half, length = runtimes[(len(runtimes) - 1) // 2], high - low
            if 10 * length < half:
                return [row for row in ok if low <= row["end_ns"] <= ends[-1]], low, ends[-1] + 1
            if length < half and ends[-1] - ends[0] > length:
                return [row for row in ok if ends[0] < row["end_ns"] <= ends[-1]], ends[0] + 1, ends[-1] + 1
        begun, ended = low + later, high + later
        if self.meta["stop_reason"] not in ("count", "duration"):
            ended = max(begun, min(ended, self.meta["end_ns"]))
        return [row for row in ok if begun <= row["end_ns"] < ended], begun, ended

    def rates(self) -> dict[str, float | None]:
        """Requests and tokens per second."""
        came, begun, ended = self.answered()
        low, high = self.window
        closed = self.came()[2] if self.slots is not None else max(low, min(high, self.meta["close_ns"]))
        offered = len(self.steady) / (closed - low) * S if closed > low else None
        if ended <= begun:
            return {"offered_rate": offered, "achieved_rate": None, "tokens_out_per_s": None, "tokens_in_per_s": None}
        length_s = (ended - begun) / S
        told = any(row[name] is not None for row in came for name in ("tokens_in", "tokens_out"))
        tokens = {
            f"{name}_per_s": sum(row[name] or 0 for row in came) / length_s if told else None
            for name in ("tokens_out", "tokens_in")
        }
        return {"offered_rate": offered, "achieved_rate": len(came) / length_s, **tokens}

    def goodput(self, slos: Sequence[Asked], *, swapped: Mapping[str, str]) -> float | None:
        """Answers per second that keep the bounds of all SLOs on percentiles."""
        bounds = [(swapped.get(slo.metric, slo.metric), slo) for slo in slos if slo.kind == "percentile"]
        came, begun, ended = self.answered()
        if not bounds or ended <= begun:
            return None
        kept = [row for row in came if all(slo.keeps(span_s(row, metric)) for metric, slo in bounds)]
        return len(kept) / (ended - begun) * S

    # ------------------------------------------------------------------------------------------------- Little's law

    def in_flight(self) -> float:
        """Requests in flight on average while all slots had one: the area under their number."""
        low = max(self.window[0], self.full_ns())
        high = min(self.window[1], max(row["sent_ns"] for row in self.rows if row["sent_ns"] is not None))
        area = sum(
            max(0.0, min(high if row["end_ns"] is None else row["end_ns"], high) - max(row["sent_ns"], low))
            for row in self.rows
            if row["sent_ns"] is not None
        )
        return float(area / (high - low))


@dataclass(frozen=True)
class Asked:
    """An SLO in plain terms: ``kind``, ``metric``, the share that is asked for, ``op`` and a bound in seconds."""

    text: str
    kind: str
    metric: str
    share: float
    op: str
    bound: float

    def keeps(self, value: float | None) -> bool:
        """Whether one time keeps the bound, to the nanosecond."""
        if value is None:
            return False
        left, right = round(value * S), self.bound * S
        return {"<=": left <= right, "<": left < right, ">=": left >= right, ">": left > right}[self.op]

    def judged(self, rows: Sequence[Request]) -> tuple[float | None, int | None, bool | None]:
        """Attainment, how many are over, and whether it is met, of the steady requests."""
        asked = [row for row in rows if row["outcome"] != "cancelled"]
        if self.kind == "share":
            kept = [
                row["outcome"] == "ok" if self.metric in ("ok", "error") else row["outcome"] != self.metric
                for row in asked
            ]
            return self._verdict(sum(kept), len(kept), rows)
        failed = [row for row in asked if row["outcome"] != "ok"]
        times = [x for row in asked if row["outcome"] == "ok" and (x := span_s(row, self.metric)) is not None]
        if not times and any(row["outcome"] == "ok" for row in asked):
            return None, None, None
        return self._verdict(sum(map(self.keeps, times)), len(times) + len(failed), rows)

    def _verdict(self, kept: int, n: int, rows: Sequence[Request]) -> tuple[float | None, int | None, bool | None]:
        if n == 0:
            return None, None, None
        if self.kind != "mean":
            return kept / n, n - kept, kept / n >= self.share
        times = [x for row in rows if row["outcome"] == "ok" and (x := span_s(row, self.metric)) is not None]
        failed = n - len(times)
        if not times or (failed and self.op in ("<=", "<")):
            return kept / n, n - kept, False
        mean = sum(times) / n
        met = {"<=": mean <= self.bound, "<": mean < self.bound, ">=": mean >= self.bound, ">": mean > self.bound}
        return kept / n, n - kept, met[self.op]
