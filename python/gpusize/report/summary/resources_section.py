"""What containers, processes and cgroups used in each level, as a table beside the summary."""

from __future__ import annotations

from gpusize.report.summary.columns import BAD, Cell, Column, plain_column
from gpusize.report.summary.section import Section, section, text_column
from gpusize.report.summary.sweep import Sweep
from gpusize.report.text import finite, number, percent

__all__ = ["resources_section"]

THROTTLED = 0.01
"""Share of throttled periods from which on it is marked."""


def resources_section(sweep: Sweep) -> Section | None:
    """CPU, memory and waiting of each source; None where none was sampled."""
    rows = sweep.rows
    if not rows:
        return None
    marked = [(finite(row.get("throttled_share")) or 0) >= THROTTLED for row in rows]
    throttled = tuple(
        Cell(percent(row.get("throttled_share")), BAD if bad else "") for row, bad in zip(rows, marked, strict=True)
    )
    columns = [
        text_column(rows, "source", "source"),
        plain_column(rows, "cpu_mean_cores", "CPU", "cores", 1, number),
        plain_column(rows, "cpu_p95_cores", "CPU p95", "over 1 s", 3, number),
        plain_column(rows, "cpu_peak_cores", "CPU peak", "over 100 ms", 2, number),
        Column("throttled_share", "throttled", "of periods", throttled, 4),
        plain_column(rows, "mem_working_set_bytes", "working set", "MiB", 1, _mib),
        plain_column(rows, "mem_peak_bytes", "memory peak", "MiB", 2, _mib),
        plain_column(rows, "cpu_wait_share", "waited", "for a CPU", 5, percent),
        plain_column(rows, "mem_wait_share", "waited", "for memory", 6, percent),
    ]
    note = (
        "Over the whole level. The peak of memory has page cache in it, the working set less of it; a throttled source "
        "was held back by a CPU limit, so that the level shows the limit."
    )
    return section("resources", "Containers and processes", note, sweep, columns)


def _mib(used_bytes: object) -> str:
    x = finite(used_bytes)
    return number(None if x is None else x / 2**20)
