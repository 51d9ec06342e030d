"""One Triton server in the background: started, waited for, and ended by the number in its file."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpusize.base import process_group
from gpusize.base.errors import EnvironmentLacks, UsageError
from gpusize.base.files import write_json
from gpusize.base.procfs import start_ticks
from gpusize.base.urls import is_ok

__all__ = ["Ports", "serve", "stop"]

_PID_FILE: Final = "server.json"
_LOG: Final = "server.log"
_POLL_S: Final = 0.2


@dataclass(frozen=True)
class Ports:
    """Where the server listens."""

    http: int = 8000
    grpc: int = 8001
    metrics: int = 8002
    host: str = "127.0.0.1"


def serve(
    repository: Path,
    work: Path,
    *,
    program: str = "tritonserver",
    ports: Ports | None = None,
    timeout_s: float = 600.0,
    extra: Sequence[str] = (),
) -> str:
    """Start a server and wait until it is ready; it goes on when this process ends.

    Args:
        repository: the model repository.
        work: takes the server's log ``server.log`` and ``server.json``, by which ``stop`` finds it.
        program: the server's name or path.
        ports: where it listens.
        timeout_s: longest time until it is ready.
        extra: further arguments of the server.

    Returns:
        Its HTTP address.

    Raises:
        UsageError: a server that was started for this folder still runs.
        EnvironmentLacks: the program is missing, it ended, or it was not ready in time; then it has been stopped.
    """
    where = ports or Ports()
    if _running(work) is not None:
        raise UsageError("the server of this folder is still running", str(work), "stop it first")
    words = [
        program,
        f"--model-repository={repository.absolute()}",
        f"--http-address={where.host}",
        f"--grpc-address={where.host}",
        f"--http-port={where.http}",
        f"--grpc-port={where.grpc}",
        f"--metrics-port={where.metrics}",
        *extra,
    ]
    started = process_group.launch(words, work / _LOG)
    try:
        write_json(work / _PID_FILE, {"pid": started.pid, "started": start_ticks(started.pid)})
        url = f"http://{where.host}:{where.http}"
        until = time.monotonic() + timeout_s
        while not is_ok(f"{url}/v2/health/ready"):
            if started.poll() is not None:
                raise EnvironmentLacks(f"the server ended with status {started.returncode}", None, _words(work))
            if time.monotonic() >= until:
                raise EnvironmentLacks(f"the server was not ready within {timeout_s:g} s", None, _words(work))
            time.sleep(_POLL_S)
        if started.poll() is not None:
            # Somebody else answers on that port.
            raise EnvironmentLacks("another server has the port, and this one ended", url, _words(work))
    except BaseException:
        process_group.end(started)
        (work / _PID_FILE).unlink(missing_ok=True)
        raise
    # It outlives us on purpose; without this the interpreter would warn about it at its end.
    started.returncode = 0
    return url


def stop(work: Path, *, grace_s: float = 30.0) -> bool:
    """End the server that was started for a folder: SIGTERM, and after ``grace_s`` SIGKILL, to it and its children.

    Returns:
        Whether one was running.

    Raises:
        EnvironmentLacks: it is not ours to end.
    """
    pid = _running(work)
    if pid is None:
        (work / _PID_FILE).unlink(missing_ok=True)
        return False
    try:
        os.killpg(pid, signal.SIGTERM)
        until = time.monotonic() + grace_s
        while _running(work) is not None and time.monotonic() < until:
            time.sleep(_POLL_S)
        # The group outlives its leader when a child ignores the first signal.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    except PermissionError:
        raise EnvironmentLacks(
            f"process {pid} may not be ended", str(work), "end it as the user who started it"
        ) from None
    while _running(work) is not None:
        time.sleep(_POLL_S)
    # Started by this very process it stays in the table of processes until it is waited for.
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
    (work / _PID_FILE).unlink(missing_ok=True)
    return True


def _running(work: Path) -> int | None:
    """The number of the folder's server if it runs; a number that another process has by now does not count."""
    try:
        known: Any = json.loads((work / _PID_FILE).read_text("utf-8"))
        pid, started = int(known["pid"]), int(known["started"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return pid if started and start_ticks(pid) == started else None


def _words(work: Path) -> str:
    tail = process_group.log_tail(work / _LOG)
    return f"its last output: {tail}" if tail else f"see {work / _LOG}"
