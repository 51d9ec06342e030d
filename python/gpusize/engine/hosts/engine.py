"""Many hosts as one engine, with the interface of `gpusize.engine.session.Engine`."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from gpusize.base.errors import EnvironmentLacks, GpusizeError, UsageError
from gpusize.engine.hosts.level import HostsLevel
from gpusize.engine.hosts.merge import merged_probe
from gpusize.engine.hosts.protocol import pack_rows
from gpusize.engine.session import monotonic_ns

if TYPE_CHECKING:
    from gpusize.engine.hosts.host import Host
    from gpusize.engine.hosts.protocol import Frame
    from gpusize.engine.session import ProbeRecord

__all__ = ["HostsEngine"]

STEP_S: Final = 0.1
"""Between two looks at what nobody tells of: that a host is lost, or that it is time for a level to be shipped."""
OPEN_S: Final = 120.0
CLOSE_S: Final = 10.0
_NUMBERS: Final = itertools.count(1)
"""Of sessions and levels: no two of one head are alike, whichever engine they are of."""


class HostsEngine:
    """Workers and connections on every host. A context manager.

    Args:
        hosts: who sends; those that are lost are left out.
        target: as `gpusize.engine.session.Engine`.
        segments: likewise.
        rows: likewise.
        workers: threads that send on each host; one with fewer cores, or with a number of its own, has its own.
        mix: as `gpusize.engine.session.Engine`.
        now_ns: the head's clock.
        share: takes the packed rows to the hosts another way, and says under which key; None: beside the frame.
        one_in: of how many rows one comes home.

    Raises:
        GpusizeError: a host cannot open it; the text names the host.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        target: Mapping[str, Any],
        segments: Sequence[Mapping[str, Any]],
        rows: Sequence[Sequence[bytes]],
        *,
        workers: int = 1,
        mix: Mapping[str, Any] | None = None,
        now_ns: Callable[[], int] = monotonic_ns,
        share: Callable[[Sequence[bytes]], str] | None = None,
        one_in: int = 1,
    ) -> None:
        self.one_in = one_in
        self.now_ns, self.changed, self.session = now_ns, threading.Condition(threading.RLock()), next(_NUMBERS)
        self._hosts = [host for host in hosts if host.lost is None]
        self._workers: dict[int, int] = {}
        self._levels: list[HostsLevel] = []
        self._by_number: dict[int, HostsLevel] = {}
        self._ends = False
        self._slowest_s = (target.get("timeout_ns", 0) + target.get("connect_timeout_ns", 0)) / 1e9 + CLOSE_S
        if not self._hosts:
            raise EnvironmentLacks("no host is left", "hosts", "see why they were lost, and join them again")
        fields: dict[str, Any] = {
            "session": self.session,
            "target": dict(target),
            "segments": list(segments),
            "mix": mix,
            "workers": workers,
            "files": dict(_files(target)),
        }
        packed = pack_rows(rows)
        if share is not None:
            fields["shared"], packed = share(packed), []
        asked = []
        for host in self._hosts:
            host.heard = self._heard
            asked.append((host, host.ask("open", packed, **fields)))
        try:
            for host, number in asked:
                self._workers[host.number] = int(host.answer(number, OPEN_S)["workers"])
        except GpusizeError:
            self._close_all()
            raise
        self._thread = threading.Thread(target=self._conduct, name="gpusize-conductor", daemon=True)
        self._thread.start()

    def queue(self, plan: Mapping[str, Any], **arrays: bytes) -> HostsLevel:
        """Queue one level on all hosts; as `gpusize.engine.session.Engine.queue`."""
        with self.changed:
            before = self._levels[-1] if self._levels else None
            level = HostsLevel(self, next(_NUMBERS), plan, arrays, before)
            self._levels = [*(each for each in self._levels if not each.finished), level]
            self._by_number = {each.number: each for each in self._levels}
            self.changed.notify_all()
        return level

    def probe(self) -> ProbeRecord:
        """Send the first row once from every host, outside every level.

        Raises:
            EnvironmentLacks: a host was lost meanwhile.
        """
        asked = [(host, host.ask("probe", session=self.session)) for host in self._hosts]
        return merged_probe([(host.name, host.answer(number, self._slowest_s)["record"]) for host, number in asked])

    def close(self) -> None:
        """Close the connections and end the workers on every host; safe to call twice."""
        if self._ends:
            return
        with self.changed:
            self._ends = True
            self.changed.notify_all()
        self._thread.join()
        self._close_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def shares(self) -> list[tuple[Host, int]]:
        """The hosts that are there, and how many workers each has."""
        return [(host, self._workers[host.number]) for host in self._hosts if host.lost is None]

    def _close_all(self) -> None:
        asked = [(host, host.ask("close", session=self.session)) for host in self._hosts]
        for host, number in asked:
            with contextlib.suppress(GpusizeError):
                host.answer(number, CLOSE_S)

    def _heard(self, host: Host, frame: Frame) -> None:
        level = self._by_number.get(int(frame.fields.get("level", -1)))
        if level is None:
            return
        if frame.kind == "part":
            # Writing takes its time, and nobody else looks at the file before its level has ended.
            level.hear(host, frame)
            return
        with self.changed:
            level.hear(host, frame)
            self.changed.notify_all()

    def _conduct(self) -> None:
        """Hand levels on, start them, judge and end them; until the engine is closed."""
        with self.changed:
            while not self._ends:
                for level in list(self._levels):
                    level.step()
                self.changed.wait(STEP_S)


def _files(target: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The files that a target names, and what is in them: hosts have other disks.

    Raises:
        UsageError: one cannot be read.
    """
    for endpoint in (target, *target.get("replicas", ())):
        name = (endpoint.get("tls") or {}).get("ca_file")
        if name is None:
            continue
        try:
            yield str(name), Path(name).read_text("utf-8")
        except (OSError, ValueError) as error:
            raise UsageError(f"the file of authorities cannot be read: {error}", str(name), "name a PEM file") from None
