"""One agent as the head sees it: what it said of itself, its clock, what is asked of it, and whether it is there."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from gpusize.base import errors
from gpusize.base.errors import EnvironmentLacks, GpusizeError
from gpusize.engine.hosts.clocks import HostClock
from gpusize.engine.hosts.protocol import Broken

if TYPE_CHECKING:
    from gpusize.engine.hosts.protocol import Frame, Wire

__all__ = ["Host"]

MOST_NAME: Final = 200
SEND_S: Final = 10.0
"""A host that takes nothing for so long is lost."""


class Host:
    """One agent that has joined.

    Args:
        number: its number, from 0.
        wire: for all but pings.
        facts: what it said of itself.
        now_ns: the head's clock.
        others: names that other hosts have.

    Attributes:
        name: what it calls itself, with a number behind where another one calls itself so too.
        lost: why it is given up; None while it is there.
        lost_ns: when that was noticed, on the head's clock.
    """

    def __init__(
        self,
        number: int,
        wire: Wire,
        facts: Mapping[str, Any],
        now_ns: Callable[[], int],
        others: Collection[str] = (),
    ) -> None:
        self.number, self.wire, self.facts = number, wire, facts
        own = str(facts.get("hostname") or f"number {number}")[:MOST_NAME]
        names = itertools.chain([own], (f"{own}-{k}" for k in itertools.count(2)))
        self.name = next(name for name in names if name not in others)
        self.clock = HostClock()
        self.pings: Wire | None = None
        self.lost: str | None = None
        self.lost_ns = 0
        self.heard: Callable[[Host, Frame], None] = lambda _host, _frame: None
        self.gone: Callable[[Host], None] = lambda _host: None
        self._now_ns = now_ns
        self._answers: dict[int, Callable[[dict[str, Any]], None]] = {}
        self._boxes: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._asked = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._read, name=f"gpusize-host-{number}", daemon=True)

    def begin(self) -> None:
        """Read what it says, from now on."""
        self._thread.start()

    def tell(self, kind: str, strings: Sequence[bytes] = (), **fields: Any) -> None:
        """Say something that needs no answer; nothing happens where the host is lost."""
        if self.lost is not None:
            return
        try:
            self.wire.send(kind, strings, **fields)
        except Broken as error:
            self.give_up(str(error))

    def ask(
        self,
        kind: str,
        strings: Sequence[bytes] = (),
        then: Callable[[dict[str, Any]], None] | None = None,
        **fields: Any,
    ) -> int:
        """Say something, and take what comes of it.

        Args:
            kind: of the frame.
            strings: beside it.
            then: told the answer's fields, on another thread; ``error`` or ``lost`` among them where there is none.
                None: `answer` waits for it.
            fields: of the frame.
        """
        with self._lock:
            self._asked += 1
            number = self._asked
            if then is None:
                box = self._boxes[number] = queue.SimpleQueue()
                then = box.put
            lost = self.lost
            self._answers[number] = then
        if lost is not None:
            self._answers.pop(number, None)
            then({"lost": lost})
            return number
        self.tell(kind, strings, id=number, **fields)
        return number

    def answer(self, number: int, timeout_s: float) -> dict[str, Any]:
        """What came of `ask`.

        Raises:
            GpusizeError: what was raised there, or the host is lost.
        """
        try:
            found = self._boxes[number].get(timeout=timeout_s)
        except queue.Empty:
            raise EnvironmentLacks(f"the host did not answer within {timeout_s:g} s", self.name) from None
        finally:
            with self._lock:
                self._boxes.pop(number, None)
        if "lost" in found:
            raise EnvironmentLacks(f"the host was lost: {found['lost']}", self.name)
        problem = found.get("error")
        if problem is not None:
            raise as_error(problem, self.name)
        return found

    def give_up(self, why: str) -> None:
        """The host is gone; safe to call twice."""
        with self._lock:
            if self.lost is not None:
                return
            self.lost, self.lost_ns = why, self._now_ns()
            waiting = list(self._answers.values())
            self._answers.clear()
        for then in waiting:
            then({"lost": why})
        self.wire.close()
        if self.pings is not None:
            self.pings.close()
        self.gone(self)

    def dismiss(self) -> None:
        """It has no more to do."""
        self.tell("bye")
        with self._lock:
            if self.lost is None:
                self.lost = "it was dismissed"
        self.wire.close()
        if self.pings is not None:
            self.pings.close()

    def _read(self) -> None:
        try:
            while True:
                frame = self.wire.receive()
                if frame.kind == "answer":
                    with self._lock:
                        then = self._answers.pop(int(frame.fields["id"]), None)
                    if then is not None:
                        then(frame.fields)
                    continue
                self.heard(self, frame)
        except (Broken, GpusizeError, KeyError, TypeError, ValueError, IndexError) as error:
            self.give_up(
                str(error) if isinstance(error, Broken | GpusizeError) else f"it said what is no answer ({error!r})"
            )


def as_error(problem: Mapping[str, Any], host: str) -> GpusizeError:
    """An error of a host as one of ours, with the host's name."""
    kind = getattr(errors, str(problem.get("type")), GpusizeError)
    if not (isinstance(kind, type) and issubclass(kind, GpusizeError)):
        kind = GpusizeError
    what, where, todo = (
        None if problem.get(name) is None else str(problem[name]) for name in ("what", "where", "todo")
    )
    return kind(f"{what or 'it failed'} (on host {host})", where, todo)
