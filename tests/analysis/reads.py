"""Counts what Polars is asked for while something runs: collects, those of them that read files, and scans of files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest


@dataclass
class Reads:
    """What was asked for so far.

    Attributes:
        collects: frames that were worked out, in memory or from files.
        from_files: those whose rows came from Parquet files.
        scans: frames that were opened over files.
    """

    collects: int = 0
    from_files: int = 0
    scans: int = 0


@contextmanager
def counted() -> Iterator[Reads]:
    """Count until the block ends."""
    found = Reads()
    collect, scan = pl.LazyFrame.collect, pl.scan_parquet

    def counting_collect(self: pl.LazyFrame, *args: Any, **more: Any) -> Any:
        found.collects += 1
        # How many rows there are is asked of the footers alone.
        plan = self.explain()
        found.from_files += "Parquet SCAN" in plan and "FAST COUNT" not in plan.upper()
        return collect(self, *args, **more)

    def counting_scan(*args: Any, **more: Any) -> Any:
        found.scans += 1
        return scan(*args, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pl.LazyFrame, "collect", counting_collect)
        patch.setattr(pl, "scan_parquet", counting_scan)
        yield found
