"""Talks to ``bench-worlds`` (rust/bench-worlds): requests as lines of JSON, answers as columns."""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benches.lib.host import ROOT
from benches.lib.procs import BenchFailed

__all__ = ["run_foreign", "worlds_program"]

_TIMES = ("due_ns", "start_ns", "first_token_ns", "end_ns")
_COUNTS = ("prompt_tokens", "tokens_out", "gpu", "user")

_children: dict[int, subprocess.Popen[bytes]] = {}
"""One per process of ours, by its id: a fork must not share its parent's child."""


@functools.cache
def worlds_program() -> str:
    """Build rust/bench-worlds in release mode, quick when nothing has changed; the path of the program."""
    command = ["cargo", "build", "--quiet", "--release", "--locked", "--package", "bench-worlds"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchFailed(f"bench-worlds cannot be built:\n{done.stderr[-2000:]}")
    return str(Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "release" / "bench-worlds")


def _child() -> subprocess.Popen[bytes]:
    child = _children.get(os.getpid())
    if child is None or child.poll() is not None:
        child = subprocess.Popen([worlds_program()], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        _children[os.getpid()] = child
        # At the end of its input it ends by itself; the context closes both ends and waits for that.
        atexit.register(child.__exit__, None, None, None)
    return child


def run_foreign(request: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """The columns that ``bench-worlds`` gives for one request: times as int64, counts as uint32, each of shape (n,).

    Raises BenchFailed when it refuses the request or has died.
    """
    child = _child()
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(json.dumps(request).encode() + b"\n")
    child.stdin.flush()
    head = child.stdout.readline()
    if not head:
        raise BenchFailed("bench-worlds has died")
    said = json.loads(head)
    if "error" in said:
        raise BenchFailed(f"bench-worlds: {said['error']}")
    n = int(said["rows"])
    data = child.stdout.read(n * (8 * len(_TIMES) + 4 * len(_COUNTS)))
    found: dict[str, NDArray[Any]] = {}
    at = 0
    for names, kind in ((_TIMES, "<i8"), (_COUNTS, "<u4")):
        for name in names:
            found[name] = np.frombuffer(data, kind, n, at)
            at += found[name].nbytes
    return found
