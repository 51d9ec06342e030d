"""The programs that stand beside gpusize: wrk and nginx from Debian, and our own small tools."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benches.lib.host import ROOT
from benches.lib.procs import BenchFailed

__all__ = ["Tools", "WrkCount", "build_tools", "parse_wrk", "require"]


@dataclass(frozen=True)
class Tools:
    """Paths of the programs in rust/bench-tools."""

    canned: str
    timerfd_loop: str


@dataclass(frozen=True)
class WrkCount:
    """What wrk says at its end."""

    requests: int
    seconds: float
    errors: int


def require(name: str, package: str) -> str:
    """The path of a program from Debian; raises BenchFailed with the package to install."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if path is None:
        raise BenchFailed(f"{name} is not installed: apt-get install {package}")
    return path


def build_tools() -> Tools:
    """Build rust/bench-tools in release mode; quick when nothing has changed."""
    command = ["cargo", "build", "--quiet", "--release", "--locked", "--package", "bench-tools"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchFailed(f"bench-tools cannot be built:\n{done.stderr[-2000:]}")
    release = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "release"
    return Tools(str(release / "canned"), str(release / "timerfd-loop"))


_TOTAL = re.compile(r"(\d+) requests in ([\d.]+)(us|ms|s|m),")
_SOCKET_ERRORS = re.compile(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)")
_STATUS_ERRORS = re.compile(r"Non-2xx or 3xx responses: (\d+)")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


def parse_wrk(text: str) -> WrkCount:
    """Counts from wrk's output; raises BenchFailed when it holds no total."""
    total = _TOTAL.search(text)
    if total is None:
        raise BenchFailed(f"wrk printed no total:\n{text[-500:]}")
    groups = [match.groups() for pattern in (_SOCKET_ERRORS, _STATUS_ERRORS) if (match := pattern.search(text))]
    errors = sum(int(number) for group in groups for number in group)
    return WrkCount(int(total[1]), float(total[2]) * _SECONDS[total[3]], errors)
