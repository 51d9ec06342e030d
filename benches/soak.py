"""A hundred million requests in one level: ``python -m benches.soak [--quick]``, some twenty minutes.

Resident memory and CPU per request of the last tenth must be within 5 % of the first tenth's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benches.lib.bars import Bar
from benches.lib.command import run_sections
from benches.lib.context import Context
from benches.lib.endurance import HEADER, endure
from benches.lib.stats import Interval

__all__ = ["main", "soak"]

REQUESTS = 100_000_000
CHANGE = 0.05
CHANGE_QUICK = 1.0
"""In a few seconds the buffers of the first part are still being filled."""


def soak(ctx: Context) -> None:
    """One level; the first and the last tenth of its requests are compared."""
    run = endure(ctx, ctx.size(REQUESTS, 1_000_000), 4 * 3600)
    tenths = [run.tenth(k) for k in range(10)]
    first, last = tenths[0], tenths[-1]
    rows = [tenth.row(f"tenth {k}") for k, tenth in enumerate(tenths, start=1)]
    title = f"soak: {int(run.done[-1])} requests in one level"
    ctx.report.table(title, HEADER, rows, "Every request has its record on disk.")
    changes = {"rss": last.rss_bytes / first.rss_bytes, "cpu_per_request": last.cpu_s / first.cpu_s}
    for name, ratio in changes.items():
        bound = CHANGE_QUICK if ctx.quick else CHANGE
        ctx.report.bar(Bar(f"soak_{name}_change", Interval.exact(abs(ratio - 1)), bound))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it."""
    return run_sections("benches.soak", {"soak": soak}, arguments)


if __name__ == "__main__":
    sys.exit(main())
