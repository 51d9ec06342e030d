"""A large cluster in virtual time: ``python -m benches.cluster [--quick]``, under a minute.

1,000 GPUs with 100,000 users in a closed loop, judged inside the simulation, for ten minutes of their time.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Sequence

from benches.lib.bars import Bar
from benches.lib.command import run_sections
from benches.lib.context import Context
from benches.lib.stats import Interval
from gpusize.engine.session import core

__all__ = ["cluster", "main"]

GPUS = 1_000
USERS = 100_000
VIRTUAL_S = 600
BOUND_S = 60.0
BOUNDS = {"bounds": [{"metric": "runtime", "bound_s": 3.0}, {"metric": "ttft", "bound_s": 1.0}], "every_s": 1.0}


def cluster(ctx: Context) -> None:
    """One run; its wall time is the bar."""
    config = {"gpus": GPUS, "max_batch": 128, "kv_blocks": 65_536}
    load = {"arrivals": {"closed": {"users": USERS}}, "duration_s": ctx.size(VIRTUAL_S, 5)}
    wall, cpu = time.perf_counter(), time.process_time()
    _, told = core().simulate(json.dumps(config), json.dumps(load), judge=json.dumps(BOUNDS), rows=False)
    wall_s, cpu_s = time.perf_counter() - wall, time.process_time() - cpu
    requests = json.loads(told)["requests"]
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    row = [f"{requests}", f"{wall_s:.1f}", f"{cpu_s:.1f}", f"{requests / cpu_s / 1e6:.2f}", f"{peak_mib:.0f}"]
    title = f"{GPUS} GPUs, {USERS} users, {load['duration_s']} s of virtual time"
    ctx.report.table(title, ["requests", "wall s", "CPU s", "million requests per CPU s", "peak MiB"], [row])
    ctx.report.bar(Bar("cluster_wall_s", Interval.exact(wall_s), BOUND_S, unit="s"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it."""
    return run_sections("benches.cluster", {"cluster": cluster}, arguments)


if __name__ == "__main__":
    sys.exit(main())
