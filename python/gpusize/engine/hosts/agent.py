"""``gpusize agent``: joins a head, sends its share of every load, and stops by itself when the head is gone."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import EnvironmentLacks
from gpusize.engine.hosts.access import nonce
from gpusize.engine.hosts.protocol import PROTOCOL, Broken, Wire, tuned
from gpusize.engine.hosts.scratch import scratch
from gpusize.engine.hosts.sending import Fetch, Sending
from gpusize.engine.hosts.watch import answer_pings
from gpusize.engine.session import Engine

if TYPE_CHECKING:
    from gpusize.engine.hosts.access import Access
    from gpusize.engine.hosts.protocol import Frame
    from gpusize.engine.session import AnyEngine

__all__ = ["KEEP", "join"]

KEEP: Final = Path("gpusize-records")
"""Where rows stay that are not to come home."""

AGAIN_S: Final = 0.5
CONNECT_S: Final = 10.0
SILENT_S: Final = 2.0
"""A head that has said nothing for so long may wait for us to speak TLS."""
LAST_WORD_S: Final = 0.2
CLOSED: Final = "the connection was closed before the head greeted"


def join(
    head: tuple[str, int],
    access: Access,
    facts: Mapping[str, Any],
    *,
    workers: int | None = None,
    patience_s: float = 60.0,
    say: Callable[[str], None] = lambda _: None,
    folder: Path | None = None,
    keep: Path = KEEP,
    engine: Callable[..., AnyEngine] = Engine,
    fetch: Fetch | None = None,
) -> None:
    """Join a head and do what it says until it has no more to do.

    Args:
        head: its address and port.
        access: what shows who we are.
        facts: about this machine; the head keeps them in ``run.json``.
        workers: threads that send; None: as many as the load needs.
        patience_s: how long to try where nobody listens yet, or a proxy closes the connection for want of a head.
        say: told how it goes.
        folder: where levels are written until they have come home; None: the system's folder for temporary files.
        keep: where rows stay that are not to come home.
        engine: makes an engine; for tests.
        fetch: gets the packed rows that the head has shared under a key; None: all come over the connection.

    Raises:
        UsageError: nothing shows the head who we are, though it is not on this machine.
        EnvironmentLacks: it does not listen, does not let us in, or was lost.
    """
    access.needed_for(head[0])
    place = f"{head[0]}:{head[1]}"
    with contextlib.ExitStack() as stack:
        until = time.monotonic() + patience_s
        wire, number = _entered(head, access, "work", {"facts": {**facts, "pid": os.getpid()}}, until, say)
        stack.callback(wire.close)
        wire.trust()
        pings, _ = _entered(head, access, "clock", {"number": number}, until, say)
        stack.callback(pings.close)
        say(f"joined {place} as host {number}")
        sending = Sending(wire, stack.enter_context(scratch(folder)), engine, workers, keep, fetch)
        stack.callback(sending.close)
        why: list[str] = []
        dismissed = threading.Event()

        def lost(text: str) -> None:
            # What the head said last may still be on its way: it closes all connections when it has no more to do.
            if not dismissed.wait(LAST_WORD_S):
                sending.stop_all()
                why.append(text)
                wire.close()

        threading.Thread(target=answer_pings, args=(pings, lost), name="gpusize-pings", daemon=True).start()
        try:
            while (frame := wire.receive()).kind != "bye":
                sending.obey(frame)
            dismissed.set()
        except Broken as error:
            sending.stop_all()
            raise EnvironmentLacks(f"the head was lost ({why[0] if why else error})", place, "join again") from None
        say("the head has no more to do")


class _NotYet(Exception):
    """There is no head there yet: it may come."""


def _entered(
    head: tuple[str, int],
    access: Access,
    role: str,
    more: Mapping[str, Any],
    until_s: float,
    say: Callable[[str], None],
) -> tuple[Wire, int]:
    """A connection that has been let in, and the number that we have there; tried until the time is over.

    A proxy before the head (that of a service mesh, or of a load balancer) takes connections for a head that is not
    there yet, and closes them: to an agent that is a head which listens and says nothing. Who is told no, or speaks TLS
    where the head does not, is not helped by time.
    """
    place, said = f"{head[0]}:{head[1]}", False
    while True:
        try:
            return _tried(head, access, role, more)
        except _NotYet as early:
            todo = "start gpusize run --hosts there, and see that the port can be reached"
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise EnvironmentLacks(str(early), place, todo) from None
            if not said:
                said = True
                say(f"{place}: {early}; trying for {left_s:.0f} s (--patience)")
            time.sleep(min(AGAIN_S, left_s))


def _tried(head: tuple[str, int], access: Access, role: str, more: Mapping[str, Any]) -> tuple[Wire, int]:
    context, place = access.context(server=False), f"{head[0]}:{head[1]}"
    try:
        connection = tuned(socket.create_connection(head, timeout=CONNECT_S))
    except ConnectionResetError as error:
        raise _NotYet(f"{CLOSED} ({error})") from None
    except OSError as error:
        raise _NotYet(f"nobody listens: {error}") from None
    if context is not None:
        try:
            connection = context.wrap_socket(connection, server_hostname=head[0])
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError) as error:
            connection.close()
            raise _NotYet(f"{CLOSED} ({error})") from None
        except OSError as error:
            connection.close()
            raise EnvironmentLacks(f"no TLS with the head: {error}", place, "see its certificate and ours") from None
    wire = Wire(connection)
    try:
        number = _greeted(wire, access, role, more, _hello(wire, head, tls=context is not None))
        wire.socket.settimeout(None)
    except Broken as error:
        wire.close()
        todo = "is this the address of gpusize run --hosts, and are both with TLS, or both without?"
        raise EnvironmentLacks(f"the head did not let us in: {error}", place, todo) from None
    except BaseException:
        wire.close()
        raise
    return wire, number


def _hello(wire: Wire, head: tuple[str, int], *, tls: bool) -> Frame:
    """The head's first word.

    Raises:
        Broken: somebody else speaks, or the head speaks TLS.
        _NotYet: the connection was closed before a word.
    """
    wire.socket.settimeout(CONNECT_S)
    # A head speaks first; one that waits for TLS says nothing.
    if not tls and not wire.readable(SILENT_S) and _speaks_tls(head):
        raise Broken("it speaks TLS")
    try:
        first = wire.exactly(1)
    except Broken as error:
        # With TLS it was the head that shook hands, and closed.
        if tls:
            raise
        raise _NotYet(f"{CLOSED} ({error})") from None
    return wire.receive(first)


def _speaks_tls(head: tuple[str, int]) -> bool:
    """Whether TLS is spoken there, by whomever."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(head, SILENT_S) as plain, context.wrap_socket(plain):
            return True
    except ssl.SSLError as error:
        # An alert is an answer in TLS too.
        return "ALERT" in str(error.reason)
    except OSError:
        return False


def _greeted(wire: Wire, access: Access, role: str, more: Mapping[str, Any], hello: Frame) -> int:
    from gpusize import __version__

    theirs, ours = str(hello.fields.get("nonce")), nonce()
    if hello.kind != "hello":
        raise Broken("it greets in another way")
    about = {"protocol": PROTOCOL, "gpusize": __version__, "nonce": ours, "role": role, **more}
    wire.send("hello", proof=access.proof("agent", role, theirs, ours), **about)
    answer = wire.receive()
    if answer.kind == "refused":
        where = "{}:{}".format(*wire.socket.getpeername()[:2])
        raise EnvironmentLacks(str(answer.fields.get("what")), where, answer.fields.get("todo"))
    if answer.kind != "welcome" or not access.holds(answer.fields.get("proof"), "head", role, theirs, ours):
        raise Broken("it does not know the token")
    return int(answer.fields["number"])
