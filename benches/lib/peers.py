"""The programs that stand beside gpusize: some from Debian, some of ``make peers``, and our own small tools."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benches.lib.host import ROOT
from benches.lib.procs import BenchFailed
from scripts.peers import LOAD_PEERS, SAMPLE_PEERS, Place, default_root, peer_folder, peer_pieces

__all__ = [
    "H2loadCount",
    "Tools",
    "WrkCount",
    "build_tools",
    "parse_h2load",
    "parse_wrk",
    "peer_program",
    "peer_version",
    "require",
]


@dataclass(frozen=True)
class Tools:
    """Paths of the programs in rust/bench-tools."""

    canned: str
    timerfd_loop: str
    streams: str
    canned_h2: str
    read_loop: str
    known_use: str


@dataclass(frozen=True)
class WrkCount:
    """What wrk says at its end."""

    requests: int
    seconds: float
    errors: int


@dataclass(frozen=True)
class H2loadCount:
    """What h2load says at its end."""

    requests: int
    seconds: float
    errors: int


def require(name: str, package: str) -> str:
    """The path of a program from Debian; raises BenchFailed with the package to install."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if path is None:
        raise BenchFailed(f"{name} is not installed: apt-get install {package}")
    return path


def peer_program(peer: str, name: str = "python", piece: str = "packages") -> str:
    """A program of one of the environments of ``make peers``; raises BenchFailed when it is not there."""
    folder = peer_folder(peer)
    if piece not in peer_pieces(folder):
        how = "scripts/peers.py --load" if peer in LOAD_PEERS else "make peers"
        how = f"scripts/peers.py {peer}" if peer in SAMPLE_PEERS else how
        raise BenchFailed(f"the {peer} environment has no {piece}: {how}")
    return str(folder / "bin" / name)


def peer_version(name: str) -> str:
    """The version that ``make lock`` or its authors gave a peer of the same name."""
    return Place(name, peer_folder(name), default_root()).version


def build_tools() -> Tools:
    """Build rust/bench-tools in release mode; quick when nothing has changed."""
    command = ["cargo", "build", "--quiet", "--release", "--locked", "--package", "bench-tools"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchFailed(f"bench-tools cannot be built:\n{done.stderr[-2000:]}")
    release = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "release"
    names = ("canned", "timerfd-loop", "streams", "canned-h2", "read-loop", "known-use")
    return Tools(*(str(release / name) for name in names))


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


_FINISHED = re.compile(r"finished in ([\d.]+)(us|ms|s),")
_REQUESTS = re.compile(r"(\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout")


def parse_h2load(text: str) -> H2loadCount:
    """Counts from h2load's output; raises BenchFailed when it holds no total."""
    finished, requests = _FINISHED.search(text), _REQUESTS.search(text)
    if finished is None or requests is None:
        raise BenchFailed(f"h2load printed no total:\n{text[-500:]}")
    done, succeeded, failed, errored, timeout = (int(number) for number in requests.groups())
    errors = max(done - succeeded, failed + errored + timeout)
    return H2loadCount(succeeded, float(finished[1]) * _SECONDS[finished[2]], errors)
