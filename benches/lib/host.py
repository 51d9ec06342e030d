"""Facts of the host that a number belongs to, and what its neighbours took meanwhile."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOT", "CpuTimes", "facts", "load_average", "pin_cores"]

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class CpuTimes:
    """Ticks since boot over all cores, from the first line of /proc/stat."""

    total: int
    steal: int
    idle: int

    @classmethod
    def parse(cls, text: str) -> CpuTimes:
        """From the text of /proc/stat; guest time is already within user time (proc(5)) and is left out."""
        user, nice, system, idle, iowait, irq, softirq, steal = (int(word) for word in text.split()[1:9])
        return cls(user + nice + system + idle + iowait + irq + softirq + steal, steal, idle + iowait)

    @classmethod
    def now(cls) -> CpuTimes:
        """As it stands."""
        return cls.parse(Path("/proc/stat").read_text(encoding="ascii"))

    def steal_share(self, since: CpuTimes) -> float:
        """The share of all cores' time that the hypervisor gave to others since the earlier reading."""
        passed = self.total - since.total
        return (self.steal - since.steal) / passed if passed else 0.0


def load_average() -> float:
    """Processes that wanted to run, over the last minute."""
    return os.getloadavg()[0]


def pin_cores() -> tuple[int, int]:
    """The server's core and the client's: the first two that this process may use, on a single core the same."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[0], cores[min(1, len(cores) - 1)]


def facts() -> dict[str, str]:
    """What a reader needs to place the numbers: machine, kernel and the versions of both sides."""
    memory = _proc_value("/proc/meminfo", "MemTotal").split()[0]
    clocksource = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    found = {
        "cpu": _proc_value("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": str(os.cpu_count()),
        "virtual": "yes" if " hypervisor" in _proc_value("/proc/cpuinfo", "flags") else "no",
        "memory": f"{int(memory) / 1024**2:.1f} GiB" if memory else "unknown",
        "kernel": platform.release(),
        "clock source": clocksource.read_text(encoding="ascii").strip() if clocksource.exists() else "unknown",
        "python": platform.python_version(),
        "rustc": _first_line(["rustc", "--version"]),
        "wrk": _first_line(["wrk", "--version"]),
        "h2load": _first_line(["h2load", "--version"]),
        "go": _first_line(["go", "version"]),
        "nginx": _first_line(["nginx", "-v"]),
        "valgrind": _first_line(["valgrind", "--version"]),
        "commit": _commit(),
        "load average at start": f"{load_average():.2f}",
    }
    return {name: value for name, value in found.items() if value}


def _proc_value(path: str, key: str) -> str:
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""


def _first_line(command: list[str]) -> str:
    # nginx lies in sbin, which a user's PATH may lack.
    executable = shutil.which(command[0], path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if executable is None:
        return ""
    done = subprocess.run([executable, *command[1:]], capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    return lines[0].split(" Copyright")[0].strip() if lines else ""


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()
