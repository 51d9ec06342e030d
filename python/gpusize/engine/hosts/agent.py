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
    from gpusize.engine.session import AnyEngine

__all__ = ["KEEP", "join"]

KEEP: Final = Path("gpusize-records")
"""Where rows stay that are not to come home."""

AGAIN_S: Final = 0.5
CONNECT_S: Final = 10.0
LAST_WORD_S: Final = 0.2


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
        patience_s: how long to try where nobody listens yet.
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
        wire, number = _entered(head, access, "work", {"facts": {**facts, "pid": os.getpid()}}, until)
        stack.callback(wire.close)
        wire.trust()
        pings, _ = _entered(head, access, "clock", {"number": number}, until)
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


def _entered(
    head: tuple[str, int], access: Access, role: str, more: Mapping[str, Any], until_s: float
) -> tuple[Wire, int]:
    """A connection that has been let in, and the number that we have there."""
    wire = Wire(_connected(head, access, until_s))
    try:
        wire.socket.settimeout(CONNECT_S)
        number = _greeted(wire, access, role, more)
        wire.socket.settimeout(None)
    except Broken as error:
        wire.close()
        todo = "is this the address of gpusize run --hosts, and are both with TLS, or both without?"
        raise EnvironmentLacks(f"the head did not let us in: {error}", f"{head[0]}:{head[1]}", todo) from None
    except BaseException:
        wire.close()
        raise
    return wire, number


def _greeted(wire: Wire, access: Access, role: str, more: Mapping[str, Any]) -> int:
    from gpusize import __version__

    hello = wire.receive()
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


def _connected(head: tuple[str, int], access: Access, until_s: float) -> socket.socket:
    """A connection, tried again until the time is over."""
    context = access.context(server=False)
    place = f"{head[0]}:{head[1]}"
    while True:
        try:
            plain = tuned(socket.create_connection(head, timeout=CONNECT_S))
        except OSError as error:
            if time.monotonic() >= until_s:
                todo = "start gpusize run --hosts there, and see that the port can be reached"
                raise EnvironmentLacks(f"nobody listens: {error}", place, todo) from None
            time.sleep(AGAIN_S)
            continue
        if context is None:
            return plain
        try:
            return context.wrap_socket(plain, server_hostname=head[0])
        except (OSError, ssl.SSLError) as error:
            plain.close()
            raise EnvironmentLacks(f"no TLS with the head: {error}", place, "see its certificate and ours") from None
