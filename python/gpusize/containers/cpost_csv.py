"""CPOST's CSV files, ``<operator>_final_result.csv``, written and read.

A row is an interval of 200 ms between two readings: the time of its middle in seconds since 1970, CPU use in per cent
of a core, and the mean of memory at its ends in MB of 1,000,000 bytes. Times are UTC; CPOST's own are off by the local
offset to UTC, which a file does not tell.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import ConfigError, UsageError
from gpusize.base.files import write_atomic
from gpusize.base.text import read_text, shown
from gpusize.containers.recommend.cpost_rule import PERIOD_S, Row, cpost_rows
from gpusize.observe.usage.readings import Readings, wide_frame
from gpusize.observe.usage.source_facts import Facts

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["HEADER", "SUFFIX", "read_cpost_csv", "wall_offset_ns", "write_cpost_csv"]

HEADER: Final = ("timestamp", "cpu_percent", "memory")
SUFFIX: Final = "_final_result.csv"


def wall_offset_ns(readings: Readings) -> int:
    """What the time since 1970 is ahead of the engine's clock.

    Raises:
        UsageError: the readings do not say.
    """
    if readings.facts.clock is None:
        raise UsageError("the readings do not say what time of day it was", readings.name, "sample it again")
    mono_ns, wall_ns = readings.facts.clock
    return wall_ns - mono_ns


def write_cpost_csv(readings: Readings, file: Path) -> Path:
    """Write readings as CPOST does.

    Raises:
        UsageError: the readings do not say what time of day it was.
        StoreError: the file cannot be written.
    """
    ahead_ns = wall_offset_ns(readings)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEADER)
    for row in cpost_rows(readings):
        whole, part = divmod(row.at_ns + ahead_ns, 10**9)
        writer.writerow([f"{whole}.{part // 1000:06d}", round(row.cpu_percent, 6), round(row.memory_mb, 6)])
    write_atomic(file, out.getvalue().encode())
    return file


def read_cpost_csv(file: Path) -> Readings:
    """Readings out of a file of CPOST.

    The CPU counter begins at 0 where the first interval does. Memory stands at the middle of the intervals, whose mean
    it is; the preset ``cpost`` takes the rows as they are. The engine's clock is the time since 1970 here.

    Raises:
        ConfigError: it cannot be read, or a line is none of CPOST's; with its number.
    """
    lines = list(csv.reader(io.StringIO(read_text(file, error=ConfigError))))
    if not lines or tuple(cell.strip() for cell in lines[0]) != HEADER:
        raise ConfigError(f"the first line is not {','.join(HEADER)}", f"{file}:1", "name a file that CPOST wrote")
    rows = [_row(cells, f"{file}:{number}") for number, cells in enumerate(lines[1:], 2) if cells]
    for number, (before, after) in enumerate(itertools.pairwise(rows), 3):
        if after.at_ns <= before.at_ns:
            raise ConfigError("its time is not after the line before", f"{file}:{number}", "keep the lines in order")
    name = file.name.removesuffix(SUFFIX) if file.name.endswith(SUFFIX) else file.stem
    return _readings(name, rows)


def _row(cells: Sequence[str], where: str) -> Row:
    try:
        at_s, percent, megabytes = (float(cell) for cell in cells)
    except ValueError:
        told = shown(",".join(cells))
        raise ConfigError(f'"{told}" is not a time, a CPU use and a memory', where, "restore the line") from None
    if not all(math.isfinite(value) and value >= 0 for value in (at_s, percent, megabytes)):
        raise ConfigError(f'"{shown(",".join(cells))}" holds a negative or infinite value', where, "restore the line")
    # As text, because a double holds the time since 1970 to a quarter of a microsecond only.
    whole, _, part = cells[0].strip().partition(".")
    exact = whole.isdigit() and (part.isdigit() or not part)
    at_ns = int(whole) * 10**9 + int(f"{part:0<9}"[:9]) if exact else round(at_s * 1e9)
    return Row(at_ns, percent, megabytes)


def _readings(name: str, rows: Sequence[Row]) -> Readings:
    import polars as pl

    if not rows:
        return Readings(name, wide_frame(pl.DataFrame(schema={"t_ns": pl.Int64})))
    half_ns = round(PERIOD_S * 1e9 / 2)
    middles = [row.at_ns for row in rows]
    inner = [(before + after) // 2 for before, after in itertools.pairwise(middles)]
    borders = [middles[0] - half_ns, *inner, middles[-1] + half_ns]
    cpu: list[int] = [0]
    for number, row in enumerate(rows):
        cpu.append(cpu[-1] + round(row.cpu_percent / 100 * (borders[number + 1] - borders[number])))
    columns: dict[str, list[Any]] = {
        "t_ns": [*borders, *middles],
        "cpu_ns": [*cpu, *[None] * len(rows)],
        "mem_bytes": [*[None] * len(borders), *[round(row.memory_mb * 1e6) for row in rows]],
    }
    facts = Facts(
        interval_ns=round(PERIOD_S * 1e9),
        begun_ns=borders[0],
        ended_ns=borders[-1],
        clock=(0, 0),
        notes=("read from CPOST's CSV: memory is a mean of two readings, page cache included",),
        raw={"cpost_rows": [[row.at_ns, row.cpu_percent, row.memory_mb] for row in rows]},
    )
    return Readings(name, wide_frame(pl.DataFrame(columns)), facts)
