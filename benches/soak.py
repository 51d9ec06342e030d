"""A hundred million requests in one level: ``python -m benches.soak [--quick]``, some twenty minutes.

Resident memory and CPU per request of the last tenth must be within 5 % of the first tenth's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benches.lib.bars import Bar
from benches.lib.command import run_sections
from benches.lib.context import Context
from benches.lib.endurance import endure
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
    rows: list[list[object]] = [
        [f"tenth {k + 1}", f"{rss / 2**20:.1f}", f"{cpu_s * 1e6:.2f}"] for k, (rss, cpu_s) in enumerate(tenths)
    ]
    title = f"soak: {int(run.done[-1])} requests in one level"
    ctx.report.table(title, ["", "resident MiB", "CPU us/request"], rows, "Every request has its record on disk.")
    for name, at in (("rss", 0), ("cpu_per_request", 1)):
        change = abs(tenths[-1][at] / tenths[0][at] - 1)
        ctx.report.bar(Bar(f"soak_{name}_change", Interval.exact(change), CHANGE_QUICK if ctx.quick else CHANGE))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it."""
    return run_sections("benches.soak", {"soak": soak}, arguments)


if __name__ == "__main__":
    sys.exit(main())
