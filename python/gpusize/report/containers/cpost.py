"""Tables in the form of CPOST, so that what reads its output goes on reading.

Titles are centred in 60 underscores. The table of one operator has centred cells between rules (tabulate's form
``pretty``), the one of the pipeline has cells on the left, a rule below each operator and a double one below the head
(``grid``), figures are rounded to three places. Under CPOST's own rule, and of its files under any, they are those of
its rows, which halve a spike and average over rows; else they are averages over time, the highest 100 ms of CPU and the
kernel's peak of memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final

from gpusize.containers.recommend.types import MB
from gpusize.report.text import clean

if TYPE_CHECKING:
    from gpusize.containers.recommend.cpost_rule import Row
    from gpusize.containers.recommend.types import Recommendation
    from gpusize.observe.usage.usage_types import Usage

__all__ = [
    "OperatorSummary",
    "metrics_table",
    "operator_table",
    "pipeline_table",
    "summarise",
    "summarise_usage",
    "title",
    "whole_request",
]

WIDTH: Final = 60
HEAD: Final = ("Metric", "Average", "Maximum", "Resource")
FAILED: Final = "(Non-zero exitcode)"
NONE: Final = "none"


@dataclass(frozen=True, slots=True)
class OperatorSummary:
    """One operator as the tables show it.

    Attributes:
        name: the operator.
        cpu_mean: average, in per cent of a core.
        cpu_max: highest.
        mem_mean_mb: average, in MB of 1,000,000 bytes.
        mem_max_mb: highest.
        cpu: whole cores to request; None for none.
        memory: MB to request; None for none.
        failed: whether it ended otherwise than well.
    """

    name: str
    cpu_mean: float
    cpu_max: float
    mem_mean_mb: float
    mem_max_mb: float
    cpu: int | None
    memory: int | None
    failed: bool = False

    def cells(self) -> list[tuple[str, str, str, str]]:
        """A line for CPU and one for memory."""
        cpu = NONE if self.cpu is None else f"cpu: {self.cpu}"
        memory = NONE if self.memory is None else f"memory: {self.memory}"
        return [
            ("CPU", f"{round(self.cpu_mean, 3)} %", f"{round(self.cpu_max, 3)} %", cpu),
            ("Memory", f"{round(self.mem_mean_mb, 3)} MB", f"{round(self.mem_max_mb, 3)} MB", memory),
        ]


def whole_request(made: Recommendation) -> tuple[int | None, int | None]:
    """Whole cores and whole MB of 1,000,000 bytes, both rounded up; None where nothing is recommended."""
    cpu = None if made.cpu_cores is None else max(1, ceil(made.cpu_cores))
    return cpu, None if made.mem_bytes is None else -(-made.mem_bytes // MB)


def summarise(name: str, rows: Sequence[Row], made: Recommendation, *, failed: bool = False) -> OperatorSummary:
    """An operator from the rows of `gpusize.containers.recommend.cpost_rule`; without rows all figures are 0."""
    count = max(1, len(rows))
    cpu, memory = whole_request(made)
    return OperatorSummary(
        name=name,
        cpu_mean=sum(row.cpu_percent for row in rows) / count,
        cpu_max=max((row.cpu_percent for row in rows), default=0.0),
        mem_mean_mb=sum(row.memory_mb for row in rows) / count,
        mem_max_mb=max((row.memory_mb for row in rows), default=0.0),
        cpu=cpu,
        memory=memory,
        failed=failed,
    )


def summarise_usage(
    name: str, usage: Usage, made: Recommendation, *, ran_s: float | None = None, failed: bool = False
) -> OperatorSummary:
    """An operator from what it used, for the rules that are not CPOST's; what was not told is 0.

    One that was too short for readings has used its peak of memory all the time.

    Args:
        name: the operator.
        usage: what it used; it may begin with the runtime's work before the operator ran.
        made: what is recommended.
        ran_s: how long the operator itself ran; by default as long as was measured.
        failed: whether it ended otherwise than well.
    """
    cpu, memory = whole_request(made)
    peaks = [] if usage.cpu is None else [window.peak_cores for window in usage.cpu.windows[:1]]
    mean_cores = 0.0 if usage.cpu is None else usage.cpu.mean_cores or 0.0
    if ran_s and peaks:
        # Too short a one used what the runtime did rather than what it did itself.
        mean_cores = min(peaks[0], mean_cores * usage.duration_s / ran_s)
    peak_bytes = usage.memory.peak_bytes or 0
    mean_bytes = peak_bytes if usage.memory.mean_bytes is None else usage.memory.mean_bytes
    return OperatorSummary(
        name=name,
        cpu_mean=100 * mean_cores,
        cpu_max=100 * max([mean_cores, *peaks]),
        mem_mean_mb=mean_bytes / MB,
        mem_max_mb=peak_bytes / MB,
        cpu=cpu,
        memory=memory,
        failed=failed,
    )


def title(text: str) -> str:
    """A text centred in underscores."""
    return f"{clean(text):_^{WIDTH}}"


def operator_table(operator: OperatorSummary) -> str:
    """Title and table of one operator."""
    return f"{title(f'Operator {operator.name} Summary')}\n{_pretty(HEAD, operator.cells())}"


def metrics_table(name: str, rows: Iterable[Row], wall_ns: int = 0) -> str:
    """All rows of an operator, which CPOST prints where it writes no files.

    Args:
        name: the operator.
        rows: its rows.
        wall_ns: what the time since 1970 is ahead of the engine's clock.
    """
    cells = [
        (f"{(row.at_ns + wall_ns) / 1e9:.6f}", str(round(row.cpu_percent, 6)), str(round(row.memory_mb, 6)))
        for row in rows
    ]
    return f"{title(f'Operator {name} Metrics Data')}\n{_pretty(('timestamp', 'cpu_percent', 'memory'), cells)}"


def pipeline_table(operators: Sequence[OperatorSummary]) -> str:
    """All operators, a row for each with a line for CPU and one for memory."""
    rows = []
    for operator in operators:
        cpu, memory = operator.cells()
        name = clean(operator.name)
        both = [f"{above}\n{below}" for above, below in zip(cpu, memory, strict=True)]
        rows.append([f"{name}\n{FAILED}" if operator.failed else name, *both])
    return _grid(("Operator", *HEAD), rows)


def _pretty(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[place]) for row in (head, *rows)) for place in range(len(head))]
    rule = "+".join(["", *("-" * (width + 2) for width in widths), ""])

    def line(cells: Sequence[str]) -> str:
        return "|".join(["", *(f" {cell:^{width}} " for cell, width in zip(cells, widths, strict=True)), ""])

    return "\n".join([rule, line(head), rule, *(line(row) for row in rows), rule])


def _grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    split = [[cell.split("\n") for cell in row] for row in (head, *rows)]
    # That form leaves room for two more characters beside each head.
    wide = [[len(name) + 2 for name in head], *([max(map(len, cell)) for cell in row] for row in split[1:])]
    widths = [max(row[place] for row in wide) for place in range(len(head))]

    def rule(mark: str) -> str:
        return "+".join(["", *(mark * (width + 2) for width in widths), ""])

    def lines(row: Sequence[Sequence[str]]) -> list[str]:
        made = []
        for number in range(max(len(cell) for cell in row)):
            texts = [cell[number] if number < len(cell) else "" for cell in row]
            made.append("|".join(["", *(f" {text:<{w}} " for text, w in zip(texts, widths, strict=True)), ""]))
        return made

    made = [rule("-"), *lines(split[0]), rule("=")]
    for row in split[1:]:
        made += [*lines(row), rule("-")]
    return "\n".join(made)
