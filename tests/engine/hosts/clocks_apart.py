"""Machines on this one: links that take their time, and clocks that are off."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

SECOND_NS = 10**9


def in_time_of_its_own(offset_ns: int) -> list[str]:
    """Words before a command whose monotonic clock is to be off by so much."""
    return [sys.executable, "-m", "benches.programs.with_clock", str(offset_ns)]


def can_move_clocks() -> bool:
    """Whether this process may."""
    done = subprocess.run([*in_time_of_its_own(SECOND_NS), "true"], capture_output=True, check=False)
    return done.returncode == 0


def delaying(goal: tuple[str, int], delay_s: float) -> list[str]:
    """A command that prints the port of such a link."""
    words = [goal[0], str(goal[1]), *[f"{1e3 * delay_s:g}"] * 2]
    return [sys.executable, "-m", "benches.programs.delaying_relay", *words]


@contextlib.contextmanager
def slow_link(goal: tuple[str, int], delay_s: float) -> Iterator[tuple[str, int]]:
    """An address on loopback from which everything reaches another one, and comes back, so much later."""
    relay = subprocess.Popen(delaying(goal, delay_s), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert relay.stdin is not None
    assert relay.stdout is not None
    try:
        yield "127.0.0.1", int(relay.stdout.readline())
    finally:
        relay.stdin.close()
        relay.wait(30)
        relay.stdout.close()
