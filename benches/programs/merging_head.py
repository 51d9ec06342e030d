"""A head that takes one level of four hosts home: ``python -m benches.programs.merging_head FOLDER HOST_FOLDER...``.

Each HOST_FOLDER has what one host has measured (`benches.programs.measured_host`). Prints as JSON the seconds from the
level's end on the hosts to its end here, the rows, and this process's peak of resident memory.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gpusize.engine.hosts.head import Head, HostsOptions

PLAN: dict[str, Any] = {
    "visit": 0,
    "seed": 1,
    "load": {"closed": {"concurrency": 4, "start": "burst"}},
    "stop": {"count": 4},
}


def main(folder: Path, sources: list[str]) -> None:
    """Start the hosts, have them measure, take it home."""
    with Head(HostsOptions(len(sources), ("127.0.0.1", 0))) as head:
        command = [sys.executable, "-m", "benches.programs.measured_host", str(head.address[1])]
        hosts = [subprocess.Popen([*command, source]) for source in sources]
        try:
            head.gather()
            records = folder / "0000" / "records"
            records.mkdir(parents=True)
            with head.engine({"timeout_ns": 0, "connect_timeout_ns": 0}, [], [[b""]]) as engine:
                level = engine.queue({**PLAN, "dir": str(records)})
                while not level.start_ns:
                    level.wait(0.001)
                begun_s = time.monotonic()
                while not level.wait(1.0):
                    pass
                seconds = time.monotonic() - begun_s
                outcome = level.outcome()
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        finally:
            for each in hosts:
                each.terminate()
                each.wait()
    parts = [str(folder / "0000" / part) for part in outcome["parts"]]
    print(json.dumps({"seconds": seconds, "rows": outcome["rows"], "rss_mib": peak, "parts": parts}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
