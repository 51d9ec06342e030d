"""CPU time of one reading of a process's CPU and memory by psutil, in an environment that has it; prints JSON.

``python -m benches.programs.psutil_reading PID READINGS INTERVAL_S``
"""

from __future__ import annotations

import json
import sys
import time


def main() -> None:
    """One process object, as psutil's documentation has it, read at each tick."""
    import psutil

    pid, readings, interval_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    process = psutil.Process(pid)
    before_ns, due = time.thread_time_ns(), time.monotonic()
    for _ in range(readings):
        due += interval_s
        time.sleep(max(0.0, due - time.monotonic()))
        process.cpu_times()
        process.memory_info()
        process.num_threads()
    print(json.dumps({"cpu_ns_per_tick": (time.thread_time_ns() - before_ns) / readings}))


if __name__ == "__main__":
    main()
