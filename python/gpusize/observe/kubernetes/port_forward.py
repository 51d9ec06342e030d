"""The way to a service in a Kubernetes cluster: ``kubectl port-forward``, started, watched, restarted and stopped.

The local port stays the same however often it is restarted, so that an address once given stays true. While it is down
every connection to it is refused: when that was is kept, so that the levels and records touched can be told apart.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
from collections import deque
from typing import IO, TYPE_CHECKING, Final, Self

from gpusize.base.clock import MACHINE, Clock
from gpusize.base.errors import EnvironmentLacks, TargetError
from gpusize.base.text import shown
from gpusize.observe.kubernetes.address import KubeAddress, parse_kube

if TYPE_CHECKING:
    import polars as pl

__all__ = ["KubeForward", "resolve_kube", "touched"]

READY_S: Final = 30.0
STOP_S: Final = 5.0
BACK_OFF_S: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
"""Pauses between a death and the next start; the last one repeats. Once it is up for `STEADY_S` they begin anew."""

STEADY_S: Final = 10.0
KEPT_LINES: Final = 20

_READY: Final = re.compile(r"Forwarding from 127\.0\.0\.1:(?P<port>\d+)")
_LOST: Final = re.compile(r"lost connection to pod|error creating (error )?stream|connection refused to apiserver")


def resolve_kube(url: str) -> tuple[str, KubeForward]:
    """The local address that stands for a ``kube://`` address, and what makes it work.

    Args:
        url: as ``kube://namespace/service:port/path``.

    Returns:
        An ``http://127.0.0.1:port/path`` address, and the forward, which has yet to be entered.

    Raises:
        UsageError: not such an address.
        EnvironmentLacks: there is no kubectl.
    """
    address = parse_kube(url)
    forward = KubeForward(address)
    return f"{forward.url}{address.path}", forward


def touched(down: list[tuple[int, int]], due: str = "due_ns", end: str = "end_ns") -> pl.Expr:
    """Which records were under way while a forward was down, as a Polars expression.

    Args:
        down: intervals in ns on the engine's clock, as `KubeForward.down` and ``level.json``'s ``forward_down`` hold.
        due: column with the record's begin.
        end: column with its end.
    """
    import polars as pl

    hit = [(pl.col(due) < to_ns) & (pl.col(end) >= from_ns) for from_ns, to_ns in down]
    return pl.any_horizontal(hit) if hit else pl.lit(value=False)


class KubeForward:
    """A ``kubectl port-forward`` that runs while the ``with`` block does.

    Args:
        address: what to forward to. Of a service, kubectl picks one pod and stays with it: several replicas behind one
            service are not all reached this way.
        clock: what pauses and times down are of.

    Raises:
        EnvironmentLacks: there is no kubectl.
    """

    def __init__(self, address: KubeAddress, *, clock: Clock = MACHINE) -> None:
        kubectl = shutil.which("kubectl")
        if kubectl is None:
            raise EnvironmentLacks(
                "kubectl is not on the path", str(address), "install it, or give the service's own http:// address"
            )
        self.address = address
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._clock = clock
        self._command = [kubectl, "port-forward", "--address", "127.0.0.1", "--namespace", address.namespace]
        self._command += [f"{address.kind}/{address.name}", f"{self.port}:{address.port}"]
        self._child: subprocess.Popen[str] | None = None
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._down: list[tuple[int, int | None]] = []
        self._lock = threading.Lock()
        self._up = threading.Event()
        self._settled = threading.Event()
        self._was_up = False
        self._stopping = threading.Event()
        self._watcher: threading.Thread | None = None
        self.restarts = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and wait until it forwards; calling it again does nothing.

        Raises:
            TargetError: it did not come up; with what it said.
        """
        if self._watcher is not None:
            return
        self._watcher = threading.Thread(target=self._watch, name=f"forward {self.address}", daemon=True)
        self._watcher.start()
        try:
            came_up = self._wait_up(READY_S)
        except BaseException:
            # Ctrl-C while waiting: nobody else knows of the child yet.
            self.stop()
            raise
        if not came_up:
            said = self.last_words() or "it printed nothing"
            self.stop()
            raise TargetError(
                f"kubectl port-forward did not come up: {said}", str(self.address), "check the context and the names"
            )

    def _wait_up(self, timeout_s: float) -> bool:
        # Set also by an early death, which need not be waited for then.
        self._settled.wait(timeout_s)
        # It may be down again by now; then it is being restarted.
        return self._was_up

    def down(self) -> list[tuple[int, int]]:
        """When it was down, as intervals in ns on the engine's clock; one that lasts ends now."""
        now_ns = self._clock.now_ns()
        with self._lock:
            return [(from_ns, now_ns if to_ns is None else to_ns) for from_ns, to_ns in self._down]

    def wait_until_up(self, timeout_s: float) -> bool:
        """Wait until it forwards. False when the time ran out."""
        return self._up.wait(timeout_s)

    def last_words(self) -> str:
        """What kubectl said last, bounded and printable."""
        with self._lock:
            return shown("; ".join(self._lines), 300)

    @property
    def pid(self) -> int | None:
        """Of the running kubectl."""
        child = self._child
        return None if child is None else child.pid

    def stop(self) -> None:
        """End it, with all that it started; safe to call twice."""
        self._stopping.set()
        child = self._child
        if child is not None:
            _end(child)
        watcher = self._watcher
        if watcher is not None and watcher is not threading.current_thread():
            watcher.join(STOP_S + 1)

    def _watch(self) -> None:
        deaths = 0
        while not self._stopping.is_set():
            started_ns = self._clock.now_ns()
            self._run_once()
            self._up.clear()
            if self._stopping.is_set():
                return
            if not self._settled.is_set():
                # It never came up: whoever waits in `start` is told why, and nothing is tried again.
                self._settled.set()
                return
            with self._lock:
                if not self._down or self._down[-1][1] is not None:
                    self._down.append((self._clock.now_ns(), None))
            self.restarts += 1
            deaths = 0 if self._clock.now_ns() - started_ns > STEADY_S * 1e9 else deaths
            self._clock.wait(self._stopping, BACK_OFF_S[min(deaths, len(BACK_OFF_S) - 1)])
            deaths += 1

    def _run_once(self) -> None:
        """One life of kubectl, from its start to its end."""
        child = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # A group of its own: Ctrl-C on the terminal is for the generator, which still drains through it.
            start_new_session=True,
        )
        self._child = child
        if self._stopping.is_set():
            _end(child)
        if child.stdout is None:  # pragma: no cover -- Popen gives one when a pipe is asked for
            return
        with child.stdout:
            self._listen(child, child.stdout)
        child.wait()
        self._child = None

    def _listen(self, child: subprocess.Popen[str], out: IO[str]) -> None:
        while line := out.readline(4096):
            with self._lock:
                self._lines.append(line.strip())
            if _READY.search(line):
                self._note_up()
            elif _LOST.search(line):
                # Some versions stay alive after this and forward nothing any more.
                _end(child)

    def _note_up(self) -> None:
        with self._lock:
            if self._down and self._down[-1][1] is None:
                self._down[-1] = (self._down[-1][0], self._clock.now_ns())
        self._was_up = True
        self._up.set()
        self._settled.set()


def _end(child: subprocess.Popen[str]) -> None:
    """End a process that leads its own group, and the group with it."""
    for what in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, what)
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            continue
        return


def _free_port() -> int:
    """A port on loopback that nobody listens on. It is free again for a moment, as kubectl has to take it itself."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
