"""Numbers out of the records that benches.client has written."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benches.lib.procs import run_measured

__all__ = ["column"]

_COLUMN = """
import json, sys, polars as pl
rows = pl.scan_parquet(sys.argv[1] + '/**/*.parquet').sort('seq').select(pl.sql_expr(sys.argv[2]).alias('value'))
print(json.dumps(rows.collect()['value'].to_list()))
"""


def column(folder: Path, expression: str) -> list[Any]:
    """One value for each request, in the order sent; ``expression`` is SQL over the columns of the records.

    In a process of its own: Polars in this one would be a neighbour of the next measurement.
    """
    found: list[Any] = json.loads(run_measured([sys.executable, "-c", _COLUMN, str(folder), expression]).stdout)
    return found
