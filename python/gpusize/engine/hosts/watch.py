"""Pings: the head asks every host for its clock, over and over, and each side sees by them that the other is there.

A ping is 8 bytes, its number; the answer is three times 8 bytes: the number, and when the ping came and when the answer
left, on the host's clock. They have a connection of their own, so that no part on its way home is before them.
"""

from __future__ import annotations

import contextlib
import math
import selectors
import socket
import struct
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gpusize.engine.hosts.clocks import HostClock, Ping
from gpusize.engine.hosts.protocol import Broken
from gpusize.engine.session import monotonic_ns

if TYPE_CHECKING:
    from gpusize.engine.hosts.protocol import Wire

__all__ = ["AGENT_PATIENCE_S", "HEAD_PATIENCE_S", "Watch", "answer_pings", "pace_s"]

PACES: Final = ((0.4, 0.01), (20.0, 0.1), (math.inf, 0.25))
"""Until so long after a host has joined, and so long from one ping to the next. The first level starts soon, and a line
through twenty seconds of pings tells a drift; then they only have to see that it stays, and that the host is there."""
HEAD_PATIENCE_S: Final = 2.0
"""A host without an answer for so long is given up."""
AGENT_PATIENCE_S: Final = 1.5
"""A host without a ping for so long stops by itself, well within the two seconds after which it may send nothing."""

PATIENCE_NS: Final = int(HEAD_PATIENCE_S * 1e9) + 1_000_000
_PING: Final = struct.Struct("!Q")
_ANSWER: Final = struct.Struct("!QQQ")


def pace_s(since_s: float) -> float:
    """From one ping to the next, so long after a host has joined."""
    return next(every_s for until_s, every_s in PACES if since_s < until_s)


class _Watched:
    """One host's connection for pings."""

    def __init__(self, wire: Wire, clock: HostClock, lost: Callable[[str], None]) -> None:
        self.wire, self.clock, self.lost = wire, clock, lost
        self.number_of_socket = wire.socket.fileno()
        self.sent: dict[int, int] = {}
        self.number = 0
        self.since_ns = self.due_ns = self.heard_ns = 0
        self.buffer = bytearray()


class Watch:
    """Pings every host from one thread, until it is closed.

    Args:
        now_ns: our clock.
    """

    def __init__(self, now_ns: Callable[[], int] = monotonic_ns) -> None:
        self._now_ns = now_ns
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self._watched: dict[int, _Watched] = {}
        self._ends = False
        # A byte here ends the wait of the thread.
        self._woken, self._wakes = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._loop, name="gpusize-pings", daemon=True)
        self._thread.start()

    def add(self, wire: Wire, clock: HostClock, lost: Callable[[str], None]) -> None:
        """Ping one more host.

        Args:
            wire: its connection for pings.
            clock: takes them.
            lost: told, once, why the host is given up.
        """
        watched = _Watched(wire, clock, lost)
        watched.since_ns = watched.due_ns = watched.heard_ns = self._now_ns()
        wire.socket.setblocking(False)  # noqa: FBT003 -- the library's own
        with self._lock:
            self._watched[watched.number_of_socket] = watched
            self._selector.register(wire.socket, selectors.EVENT_READ, watched)
        self._wakes.send(b"-")

    def close(self) -> None:
        """End the thread; safe to call twice."""
        if self._ends:
            return
        self._ends = True
        self._wakes.send(b"-")
        self._thread.join()
        self._selector.close()
        self._woken.close()
        self._wakes.close()

    def _loop(self) -> None:
        while not self._ends:
            with self._lock:
                everybody = list(self._watched.values())
            now_ns = self._now_ns()
            for each in everybody:
                if now_ns - each.heard_ns > HEAD_PATIENCE_S * 1e9:
                    self._give_up(each, f"it has not answered for {HEAD_PATIENCE_S:g} s")
                elif now_ns >= each.due_ns:
                    self._ping(each)
            # Times of answers are taken after each wait: sleep no longer than to the next ping.
            next_ns = min((min(each.due_ns, each.heard_ns + PATIENCE_NS) for each in everybody), default=None)
            wait_s = None if next_ns is None else max(0.0, (next_ns - self._now_ns()) / 1e9)
            for key, _ in self._selector.select(wait_s):
                if key.data is None:
                    self._woken.recv(64)
                else:
                    self._take(key.data)

    def _ping(self, each: _Watched) -> None:
        now_ns = self._now_ns()
        each.due_ns = now_ns + int(1e9 * pace_s((now_ns - each.since_ns) / 1e9))
        each.sent = {number: at for number, at in each.sent.items() if number > each.number - 100}
        with contextlib.suppress(BlockingIOError):
            try:
                each.sent[each.number] = self._now_ns()
                each.wire.socket.send(_PING.pack(each.number))
                each.number += 1
            except BlockingIOError:
                raise
            except (OSError, ValueError):
                self._give_up(each, "its connection was closed")

    def _take(self, each: _Watched) -> None:
        try:
            got = each.wire.socket.recv(4096)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            # TLS says in its own way that there is nothing yet.
            if type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError"):
                return
            got = b""
        back_ns = self._now_ns()
        if not got:
            self._give_up(each, "its connection was closed")
            return
        each.buffer += got
        while len(each.buffer) >= _ANSWER.size:
            number, came_ns, left_ns = _ANSWER.unpack_from(each.buffer)
            del each.buffer[: _ANSWER.size]
            sent_ns = each.sent.pop(number, None)
            if sent_ns is None:
                continue
            each.heard_ns = back_ns
            ping = Ping(sent_ns, came_ns, left_ns, back_ns)
            if ping.round_trip_ns >= 0:
                each.clock.add(ping)

    def _give_up(self, each: _Watched, why: str) -> None:
        with self._lock:
            known = self._watched.pop(each.number_of_socket, None)
            if known is None:
                return
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(each.wire.socket)
        each.lost(why)

    def remove(self, wire: Wire) -> None:
        """Ping a host no more."""
        with self._lock:
            for number, each in list(self._watched.items()):
                if each.wire is wire:
                    del self._watched[number]
                    with contextlib.suppress(KeyError, ValueError):
                        self._selector.unregister(wire.socket)


def answer_pings(wire: Wire, lost: Callable[[str], None], now_ns: Callable[[], int] = monotonic_ns) -> None:
    """Answer pings until the head is lost; for a thread of its own.

    Args:
        wire: the connection for pings.
        lost: told why.
        now_ns: this host's clock.
    """
    while True:
        if not wire.readable(AGENT_PATIENCE_S):
            lost(f"the head has not asked for {AGENT_PATIENCE_S:g} s")
            return
        try:
            (number,) = _PING.unpack(wire.exactly(_PING.size))
            came_ns = now_ns()
            wire.socket.sendall(_ANSWER.pack(number, came_ns, now_ns()))
        except (Broken, OSError):
            lost("the head closed the connection")
            return
