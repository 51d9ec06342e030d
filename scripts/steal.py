"""What a hypervisor takes of this machine's cores, and gives to others, while tests run."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from benches.lib.host import CpuTimes

__all__ = ["Mark", "Taken", "calm", "mark"]

STAT = Path("/proc/stat")
LEAST_SHARE, LEAST_S = 0.05, 0.1
"""Of one core, and in all: what disturbs a test in real time. A quiet host takes a third of that or less, and a machine
of one's own loses nothing."""
CALM_S, PATIENCE_S = 5, 60


@dataclass(frozen=True)
class Taken:
    """Core seconds that the host took, in these seconds."""

    seconds: float
    of_s: float

    @property
    def disturbs(self) -> bool:
        """Whether a test that failed meanwhile may owe it to the host."""
        return self.seconds >= max(LEAST_S, LEAST_SHARE * self.of_s)


@dataclass(frozen=True)
class Mark:
    """A moment to look back to."""

    at_s: float
    stolen_s: float

    def since(self) -> Taken:
        """What has been taken since."""
        now = mark()
        return Taken(now.stolen_s - self.stolen_s, now.at_s - self.at_s)


def mark() -> Mark:
    """This moment. Where there is no /proc/stat nothing is ever taken."""
    try:
        ticks = CpuTimes.parse(STAT.read_text(encoding="ascii")).steal
    except OSError:
        ticks = 0
    return Mark(time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"))


def calm() -> None:
    """Wait until the host has left the cores alone for some seconds, but not for long."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        begin = mark()
        time.sleep(CALM_S)
        if not begin.since().disturbs:
            return
