"""The head: listens, lets agents in, waits until all are there, and is one engine made of them."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from gpusize.base.errors import EnvironmentLacks, UsageError
from gpusize.base.text import shown
from gpusize.engine.hosts.access import Access, nonce
from gpusize.engine.hosts.host import Host
from gpusize.engine.hosts.protocol import PROTOCOL, Broken, Frame, Wire, tuned
from gpusize.engine.hosts.watch import Watch
from gpusize.engine.session import monotonic_ns

if TYPE_CHECKING:
    from gpusize.engine.hosts.engine import HostsEngine

__all__ = ["LOOPBACK", "MOST_HOSTS", "Head", "HostsOptions"]

LOOPBACK: Final = ("127.0.0.1", 7070)
MOST_HOSTS: Final = 1000
GREETING_S: Final = 10.0
WAIT_S: Final = 600.0
SAY_EVERY_S: Final = 10.0
CLOCK_PINGS: Final = 10
"""Pings of each host before the first level."""


@dataclass(frozen=True)
class HostsOptions:
    """What is asked of a head.

    Attributes:
        count: hosts to wait for.
        listen: address and port; port 0: any free one.
        access: what agents have to show.
        wait_s: how long to wait for them.
        one_in: of how many rows one comes home; the others stay on their host.
        ray: the address of a Ray cluster that starts them, or ``auto``; None: they join by themselves.
        checks: whether those that Ray starts look at their clock, their limits and the rate that they reach first.
    """

    count: int
    listen: tuple[str, int] = LOOPBACK
    access: Access = field(default_factory=Access)
    wait_s: float = WAIT_S
    one_in: int = 1
    ray: str | None = None
    checks: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_HOSTS:
            raise UsageError(f"hosts must be 1 to {MOST_HOSTS}", "hosts", "give the number of agents to wait for")
        if self.ray is None:
            self.access.needed_for(self.listen[0])


class Head:
    """Listens while the ``with`` block runs; agents are dismissed at its end.

    Args:
        options: what is asked of it.
        note: told who has joined and who was turned away.
        now_ns: this machine's clock; another one for tests.

    Attributes:
        hosts: who has joined, by number.
        share: takes rows to the hosts another way; None: they are sent.

    Raises:
        EnvironmentLacks: on entry, when the address cannot be had.
    """

    def __init__(
        self,
        options: HostsOptions,
        note: Callable[[str], None] = lambda _: None,
        now_ns: Callable[[], int] = monotonic_ns,
    ) -> None:
        self.options, self.now_ns = options, now_ns
        self.hosts: list[Host] = []
        self.share: Callable[[Sequence[bytes]], str] | None = None
        self._note = note
        self._changed = threading.Condition()
        self._context = options.access.context(server=True)
        self._stack = contextlib.ExitStack()
        self._listener: socket.socket | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        if self._listener is None:
            return self.options.listen
        host, port = self._listener.getsockname()[:2]
        return str(host), int(port)

    def __enter__(self) -> Self:
        host, port = self.options.listen
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listener = socket.create_server((host, port), family=family, backlog=256)
        except OSError as error:
            todo = "give another --listen, or end what has it"
            raise EnvironmentLacks(f"cannot listen: {error.strerror or error}", f"{host}:{port}", todo) from None
        self._stack.callback(self._end)
        self.watch = Watch(self.now_ns)
        self._stack.callback(self.watch.close)
        threading.Thread(target=self._accept, args=(self._listener,), name="gpusize-joins", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _end(self) -> None:
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        for host in self.hosts:
            host.dismiss()

    def gather(self) -> list[Host]:
        """Wait until all hosts are there and their clocks are known.

        Raises:
            EnvironmentLacks: some did not come in time; the text says how many came.
        """
        host, port = self.address
        want, left_s = self.options.count, self.options.wait_s
        self._note(f"waiting for {want} host{'s' if want > 1 else ''} at {host}:{port}")
        while True:
            with self._changed:
                if self._changed.wait_for(self._complete, min(SAY_EVERY_S, left_s)):
                    return list(self.hosts)
                names = [each.name for each in self._there()]
            left_s -= SAY_EVERY_S
            told = f"{len(names)} of {want} hosts have joined{': ' if names else ''}{', '.join(names)}"
            if left_s <= 0:
                todo = f"start on each: gpusize agent --join {host}:{port}"
                raise EnvironmentLacks(f"{told}; the others did not come in time", f"{host}:{port}", todo)
            self._note(told)

    def _there(self) -> list[Host]:
        return [each for each in self.hosts if each.lost is None]

    def _complete(self) -> bool:
        there = self._there()
        return len(there) >= self.options.count and all(len(each.clock) >= CLOCK_PINGS // 2 for each in there)

    def engine(self, *given: Any, **named: Any) -> HostsEngine:
        """One engine of all hosts, with the arguments of `gpusize.engine.session.Engine`."""
        from gpusize.engine.hosts.engine import HostsEngine

        one_in, share = self.options.one_in, self.share
        return HostsEngine(self.hosts, *given, now_ns=self.now_ns, one_in=one_in, share=share, **named)

    def can_send(self, rate: float | None) -> None:
        """Refuse a rate that the hosts have found they cannot send.

        Args:
            rate: the highest that is asked for, requests/s; None where answers decide.

        Raises:
            EnvironmentLacks: together they send less.
        """
        most = [each.facts.get("rate_per_s") for each in self._there()]
        if rate is None or not all(isinstance(each, int | float) for each in most):
            return
        total = sum(float(each) for each in most if each is not None)
        if total < rate:
            what = f"the load asks for {rate:,.0f} requests/s, these {len(most)} hosts send at most {total:,.0f}"
            raise EnvironmentLacks(what, "hosts", "join more hosts, or hosts with more cores, or ask for less")

    def facts(self) -> list[dict[str, Any]]:
        """What each host said of itself, and what it is called, for ``run.json``."""
        return [{"host": each.number, "name": each.name, **each.facts} for each in self.hosts]

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, where = listener.accept()
            except OSError:
                return
            arguments = (connection, f"{where[0]}:{where[1]}")
            threading.Thread(target=self._greet, args=arguments, name="gpusize-join", daemon=True).start()

    def _greet(self, connection: socket.socket, where: str) -> None:
        """Let one connection in, or turn it away."""
        connection.settimeout(GREETING_S)
        try:
            tuned(connection)
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True)
        except (OSError, ssl.SSLError) as error:
            connection.close()
            self._note(f"turned away {where}: no TLS ({shown(str(error), 120)})")
            return
        wire = Wire(connection)
        try:
            self._enter(wire)
        except Broken as error:
            wire.close()
            self._note(f"turned away {where}: {shown(str(error), 120)}")

    def _enter(self, wire: Wire) -> None:
        from gpusize import __version__

        access, ours = self.options.access, nonce()
        wire.send("hello", protocol=PROTOCOL, gpusize=__version__, nonce=ours)
        hello = wire.receive()
        theirs, role = str(hello.fields.get("nonce")), str(hello.fields.get("role"))
        if hello.kind != "hello" or role not in ("work", "clock"):
            raise Broken("it greets in another way")
        if not access.holds(hello.fields.get("proof"), "agent", role, ours, theirs):
            # Why, it is told only in so many words: who guesses learns nothing.
            self._refuse(wire, "the token is not the head's", "give both the same --token-file")
        version = hello.fields.get("gpusize")
        if (hello.fields.get("protocol"), version) != (PROTOCOL, __version__):
            what = f"the agent is gpusize {shown(str(version), 40)}, the head {__version__}: their draws may differ"
            self._refuse(wire, what, "install the same version on all hosts")
        welcome: dict[str, Any] = {"proof": access.proof("head", role, ours, theirs)}
        wire.socket.settimeout(None)
        if role == "work":
            self._admit(wire, hello, welcome)
            return
        number = hello.fields.get("number")
        with self._changed:
            known = [each for each in self.hosts if each.number == number and each.pings is None]
            if not known:
                raise Broken("it names a host that is not there")
            host = known[0]
            host.pings = wire
        wire.send("welcome", number=host.number, **welcome)
        self.watch.add(wire, host.clock, host.give_up)
        self._note(f"host {host.number} is {host.name}; {len(self._there())} of {self.options.count}")
        self._wake_on_clock(host)

    def _admit(self, wire: Wire, hello: Frame, welcome: dict[str, Any]) -> None:
        facts = hello.fields.get("facts")
        with self._changed:
            if len(self._there()) >= self.options.count:
                self._refuse(
                    wire, f"all {self.options.count} hosts are there already", "start the head for more --hosts"
                )
            facts = facts if isinstance(facts, dict) else {}
            host = Host(len(self.hosts), wire, facts, self.now_ns, {each.name for each in self.hosts})
            host.gone = self._gone
            self.hosts.append(host)
            wire.send("welcome", number=host.number, **welcome)
            wire.trust()
            host.begin()

    @staticmethod
    def _refuse(wire: Wire, what: str, todo: str) -> None:
        wire.send("refused", what=what, todo=todo)
        raise Broken(what)

    def _wake_on_clock(self, host: Host) -> None:
        while len(host.clock) < CLOCK_PINGS // 2 and host.lost is None:
            threading.Event().wait(0.01)
        with self._changed:
            self._changed.notify_all()

    def _gone(self, host: Host) -> None:
        if host.pings is not None:
            self.watch.remove(host.pings)
        self._note(f"host {host.number} ({host.name}) is lost: {host.lost}")
        with self._changed:
            self._changed.notify_all()
