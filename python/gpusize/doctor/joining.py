"""What an agent tells its head of the machine it is on: the facts of ``run.json``, and what the checks have found.

``python -m gpusize.doctor.joining`` prints it as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from gpusize.base.errors import GpusizeError
from gpusize.base.host import host_facts
from gpusize.doctor.ceiling import measured
from gpusize.doctor.examine import examine
from gpusize.doctor.null import NullServer
from gpusize.engine.workers import usable_cores

__all__ = ["joining_facts"]

BURST_S: Final = 0.5


def joining_facts(workers: int | None = None, *, checks: bool = True) -> dict[str, Any]:
    """About this machine, in about two seconds; at once without checks.

    Args:
        workers: threads that will send; None: as many as there are cores.
        checks: look at clock, limits and the rate that one worker reaches.

    Returns:
        The facts of `gpusize.base.host.host_facts`; with checks ``findings``, a list of group, name, verdict and value
        of what may spoil results, and ``rate_per_s``, more requests per second than these workers will send: what one
        reaches against a server that answers at once, times their number.
    """
    found: dict[str, Any] = dict(host_facts())
    if not checks:
        return found
    findings = examine(quick=True)
    bad = [each for each in findings if each.verdict != "ok"]
    found["findings"] = [
        {"group": each.group, "name": each.name, "verdict": each.verdict, "value": each.value} for each in bad
    ]
    try:
        with NullServer() as server:
            rate = measured(server, 1, seconds=BURST_S).rate
    except GpusizeError as error:
        found["findings"].append({"group": "ceiling", "name": "null server", "verdict": "lacks", "value": error.what})
        return found
    return {**found, "rate_per_s": rate * (workers or usable_cores())}


if __name__ == "__main__":
    json.dump(joining_facts(), sys.stdout)
