"""What perf_analyzer prints, as the rows of its CSV: the same columns, and what only the text tells.

    Request concurrency: 2
      Pass [1] throughput: ...            with -v
      Client:   Throughput, latency and percentiles, in microseconds
      Server:   counts, and the parts of a request's time
      Server Prometheus Metrics:   one line per GPU
    Inferences/Second vs. Client Average Batch Latency
    Concurrency: 2, throughput: ...       one line per level that it counts

Each line is told by what it says, not by where it stands: warnings come in between, and what was written to standard
error. A level that did not settle, or went over the latency limit, has no figures of its own; it is there with the
reason, and with those of its windows where -v printed them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from gpusize.base.errors import ConfigError
from gpusize.base.text import shown
from gpusize.studies.imports.perf_analyzer_rows import RATE, THROUGHPUT, USERS, Row, number_of

__all__ = ["Printed", "is_printed", "parse_text"]

_PRINTED: Final = re.compile(
    r"^\*\*\* Measurement Settings \*\*\*|^Request (?:concurrency|Rate): |^Concurrency: .*throughput: ",
    re.MULTILINE,
)
_HEADER: Final = re.compile(r"Request (?:(concurrency): (\S+)|Rate: (\S+) inference requests per seconds?)$")
_SUMMARY: Final = re.compile(r"(Concurrency|Request Rate): (\S+), throughput: (\S+) infer/sec, latency (\S+) usec$")
_HEADING: Final = re.compile(r"Inferences/Second vs\. Client (Average|p[\d.]+) ")
_BATCH: Final = re.compile(r"Batch size: (\d+)$")
_SENDS: Final = re.compile(r"Sending (\d+) benchmark requests$")
_PASS: Final = re.compile(
    r"Pass \[\d+\] throughput: (\S+) infer/sec\. (?:(Avg) latency|p[\d.]+ (?:batch )?latency): (\S+) usec"
)
_DELAYED: Final = re.compile(r"\[WARNING\] .* (\S+)% of the requests were delayed")
_SECTIONS: Final = {
    "Client:": "client",
    "Server:": "server",
    "Composing models:": "composing",
    "Server Prometheus Metrics:": "gpus",
}
_CLIENT: Final = (
    (re.compile(r"Request count: (\S+)$"), ("Request count",)),
    (re.compile(r"Throughput: (\S+) infer/sec$"), (THROUGHPUT,)),
    (re.compile(r"Avg send request rate: (\S+) infer/sec$"), ("Avg send request rate",)),
    (re.compile(r"Avg latency: (\S+) usec(?: \(standard deviation (\S+) usec\))?$"), ("Avg latency", "Latency std")),
)
_SERVER: Final = (
    (re.compile(r"Inference count: (\S+)$"), ("Inference count",)),
    (re.compile(r"Execution count: (\S+)$"), ("Execution count",)),
    (re.compile(r"Successful request count: (\S+)$"), ("Successful request count",)),
    (re.compile(r"Avg request latency: (\S+) usec\b"), ("Avg request latency",)),
)
_PERCENTILE: Final = re.compile(r"(p[\d.]+) latency: (\S+) usec$")
_PARTS_OF: Final = re.compile(r"Avg (?:HTTP|gRPC) time: .*? usec \((.*)\)$|Avg request latency: .*? usec \((.*)\)$")
_PART: Final = re.compile(r"(.*\S) (\S+) usec$")
_PARTS: Final = {
    "send/recv": "request/response",
    "(un)marshal request/response": "request/response",
    "marshal": "Client Send",
    "send": "Client Send",
    "unmarshal": "Client Recv",
    "receive": "Client Recv",
    "recv": "Client Recv",
    "response wait": "response wait",
    "overhead": "Overhead",
    "queue": "Server Queue",
    "compute input": "Server Compute Input",
    "compute infer": "Server Compute Infer",
    "compute output": "Server Compute Output",
    "cache hit": "Server Cache Hit",
    "cache miss": "Server Cache Miss",
}
"""The text's names of a time's parts, and those of the CSV's columns."""
_GPU_COLUMNS: Final = ("Avg GPU Utilization", "Avg GPU Power Usage", "Max GPU Memory Usage", "Total GPU Memory")
_GPU: Final = re.compile(r"(\S+) : (\S+?) ?(%|watts|bytes)$")
_WINDOWS: Final = 3
"""perf_analyzer joins its last three windows to a level's figures."""
_DAMAGED: Final = "the file is damaged"


class Printed(NamedTuple):
    """What was read.

    Attributes:
        rows: as those of a CSV, in the order of the text; without a throughput where nothing tells it.
        batch: samples in a request, None where the text does not say.
        warnings: what is missing or contradicts itself, and where.
    """

    rows: list[Row]
    batch: int | None
    warnings: list[str]


@dataclass(slots=True)
class _Level:
    """A level as it is read; without a load of its own where perf_analyzer prints none (custom intervals)."""

    line: int
    kind: str = RATE
    load: float | None = None
    values: dict[str, float] = field(default_factory=dict)
    gpus: dict[str, str] = field(default_factory=dict)
    windows: list[tuple[float, float | None]] = field(default_factory=list)
    failed: str | None = None
    over: str | None = None


@dataclass(slots=True)
class _Summary:
    line: int
    kind: str
    load: float
    throughput: float
    latency: float
    column: str


def is_printed(text: str) -> bool:
    """Whether a text is what perf_analyzer prints."""
    return _PRINTED.search(text) is not None


def parse_text(text: str, path: str) -> Printed:
    """All levels of what was printed.

    Args:
        text: what perf_analyzer printed, with or without what it wrote to standard error.
        path: how the file is called in errors.

    Raises:
        ConfigError: a number that is none, or no level in it.
    """
    reader = _Reader(path)
    lines = text.splitlines()
    if lines and not text.endswith(("\n", "\r")) and not lines[-1].endswith(" usec"):
        lines.pop()  # it may be cut short within a number; a unit at its end says that it is not
    for number, line in enumerate(lines, 1):
        reader.take(line.strip(), number)
    return reader.result()


class _Reader:
    """Takes line after line."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.levels: list[_Level] = []
        self.summaries: list[_Summary] = []
        self.warnings: list[str] = []
        self.batch: int | None = None
        self.sends: int | None = None
        self.section = ""
        self.gpu_column = ""
        self.average = True
        self.column = "Avg latency"
        self.last_line = 0

    def take(self, line: str, number: int) -> None:
        self.last_line = number
        if self._settings(line, number) or self._begins(line, number) or self._summary(line, number):
            return
        level = self.levels[-1] if self.levels else None
        if level is None:
            return
        if line.startswith(("Failed to ", "Error: ")):
            level.failed = level.failed or line.rstrip(". ")
        elif line.startswith("Measured latency went over the set limit"):
            level.over = line.rstrip(". ")
        elif found := _PASS.match(line):
            latency = self._number(found[3], number) if found[2] else None
            level.windows.append((self._number(found[1], number), latency))
        elif self.section == "gpus":
            self._gpu(level, line, number)
        elif self.section in ("client", "server"):
            self._figures(level, line, number)

    def _settings(self, line: str, number: int) -> bool:
        if found := _BATCH.match(line):
            self.batch = int(self._number(found[1], number)) or None
        elif found := _SENDS.match(line):
            self.sends = int(self._number(found[1], number))
        return found is not None

    def _begins(self, line: str, number: int) -> bool:
        """A level, or a part of it."""
        if found := _HEADER.match(line):
            kind = USERS if found[1] else RATE
            self.levels.append(_Level(number, kind, self._load(found[2] or found[3], kind, number)))
            self.section = ""
            return True
        if line not in _SECTIONS:
            return False
        self.section = _SECTIONS[line]
        # A load that is no number, such as custom intervals, has no heading: its client's figures begin it.
        if self.section == "client" and (not self.levels or THROUGHPUT in self.levels[-1].values):
            self.levels.append(_Level(number))
        return True

    def _summary(self, line: str, number: int) -> bool:
        if found := _HEADING.match(line):
            self.column = "Avg latency" if found[1] == "Average" else f"{found[1]} latency"
            self.section = ""
            return True
        found = _SUMMARY.match(line)
        if found is None:
            return False
        kind = USERS if found[1] == USERS else RATE
        told = (self._number(found[3], number), self._number(found[4], number))
        self.summaries.append(_Summary(number, kind, self._load(found[2], kind, number), *told, self.column))
        return True

    def _figures(self, level: _Level, line: str, number: int) -> None:
        if found := _DELAYED.match(line):
            level.values.setdefault("Delayed", self._number(found[1], number) / 100)
        for pattern, columns in _CLIENT if self.section == "client" else _SERVER:
            if found := pattern.match(line):
                for column, text in zip(columns, found.groups(), strict=True):
                    if text is not None:
                        level.values.setdefault(column, self._number(text, number))
        if self.section == "client" and (found := _PERCENTILE.match(line)):
            level.values.setdefault(f"{found[1]} latency", self._number(found[2], number))
        if found := _PARTS_OF.match(line):
            for part in (found[1] or found[2]).split(" + "):
                each = _PART.match(part)
                if each and each[1] in _PARTS:
                    level.values.setdefault(_PARTS[each[1]], self._number(each[2], number))

    def _gpu(self, level: _Level, line: str, number: int) -> None:
        if line.removesuffix(":") in _GPU_COLUMNS:
            self.gpu_column = line.removesuffix(":")
        elif (found := _GPU.match(line)) and self.gpu_column:
            value = self._number(found[2], number) / (100 if found[3] == "%" else 1)
            told = level.gpus.get(self.gpu_column, "")
            level.gpus[self.gpu_column] = f"{told}{found[1]}:{value!r};"

    def _load(self, text: str, kind: str, number: int) -> float:
        load = self._number(text, number)
        if load <= 0 or (kind == USERS and load != int(load)):
            raise ConfigError(f"{shown(text, 40)} is not a load", f"{self.path}, line {number}", _DAMAGED)
        return load

    def _number(self, text: str, number: int) -> float:
        return number_of(text, f"{self.path}, line {number}")

    def result(self) -> Printed:
        self._name_loads()
        rows = [self._row(level) for level in self.levels if level.load is not None]
        by_load = {(row.kind, row.load): row for row in reversed(rows)}
        for each in self.summaries:
            row = by_load.get((each.kind, each.load))
            if row is None or THROUGHPUT not in row.values:
                why = "of this level only the line of the summary is there"
                values = {THROUGHPUT: each.throughput, each.column: each.latency}
                made = Row(each.kind, each.load, each.line, values, {}, remarks=(why,))
                rows = [made if old is row else old for old in rows] if row is not None else [*rows, made]
            elif not _same(row.values, each):
                self.warnings.append(
                    f"{self.path}, line {each.line}: the summary says {each.throughput:g} infer/sec and "
                    f"{each.latency:g} usec, and its own lines (from {row.line}) do not; these count"
                )
        if not rows:
            todo = "its first level did not settle; look at its output, and give it a longer --measurement-interval"
            raise ConfigError("no level in it", self.path, todo)
        if not self.summaries and any(row.state == "done" for row in rows):
            self.warnings.append(
                f"{self.path}, line {self.last_line}: the text ends without a summary; it was cut short, or "
                "perf_analyzer was stopped"
            )
        return Printed(rows, self.batch, self.warnings)

    def _name_loads(self) -> None:
        """Levels without a heading have the load that the summary's line with the same figures says."""
        for level in self.levels:
            if level.load is not None:
                continue
            fitting = [each for each in self.summaries if THROUGHPUT in level.values and _same(level.values, each)]
            if len(fitting) == 1:
                level.kind, level.load = fitting[0].kind, fitting[0].load
            else:
                where = f"{self.path}, line {level.line}"
                self.warnings.append(f"{where}: nothing says which load these figures are of; they are left out")

    def _row(self, level: _Level) -> Row:
        values, load = dict(level.values), level.load or 0.0
        if "Client Send" in values and "Client Recv" in values:
            values.setdefault("request/response", values["Client Send"] + values["Client Recv"])
        row = Row(level.kind, load, level.line, values, dict(level.gpus))
        if THROUGHPUT in values and level.failed is None:
            return replace(row, remarks=self._remarks(level))
        why = level.failed or level.over or "the text ends before its figures"
        if THROUGHPUT in values:
            return replace(row, state="interrupted", doubts=(f"perf_analyzer says: {why}",))
        last = level.windows[-_WINDOWS:]
        if not last:
            doubt = f"perf_analyzer gave no figures: {why}"
            return replace(row, state="interrupted", doubts=(doubt,))
        told = f"perf_analyzer gave no figures ({why}); these are the means of its last {len(last)} windows"
        joined = {**values, **_joined(last)}
        settled = level.failed is None and level.over is not None
        found = replace(row, values=joined, state="done" if settled else "interrupted")
        return replace(found, remarks=(told,)) if settled else replace(found, doubts=(told,))

    def _remarks(self, level: _Level) -> tuple[str, ...]:
        said = [f"perf_analyzer says: {level.over}"] if level.over else []
        late = level.values.get("Delayed")
        if late:
            said.append(f"{100 * late:.3g} % of the requests were sent late, which no latency of this text counts")
        if self.sends is not None:
            count = f"--request-count {self.sends}"
            said.append(f"measured with {count}: its throughput then counts time in which nothing was sent")
        return tuple(said)


def _joined(windows: list[tuple[float, float | None]]) -> dict[str, float]:
    """Windows of one length as one: the mean rate, and the mean latency of all of their requests."""
    total = math.fsum(rate for rate, _ in windows)
    found = {THROUGHPUT: total / len(windows)}
    if total > 0 and all(latency is not None for _, latency in windows):
        found["Avg latency"] = math.fsum(rate * (latency or 0.0) for rate, latency in windows) / total
    return found


def _same(values: Mapping[str, float], told: _Summary) -> bool:
    """Whether a level's own figures are those of a line of the summary, to the digits that are printed."""
    latency = values.get(told.column, told.latency)
    return math.isclose(values[THROUGHPUT], told.throughput, rel_tol=1e-4, abs_tol=0.006) and latency == told.latency
