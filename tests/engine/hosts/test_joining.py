"""Who may join: the token, certificates, versions, and what is no agent at all."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from gpusize import __version__
from gpusize.base.errors import EnvironmentLacks, UsageError
from gpusize.base.urls import address_of
from gpusize.engine.hosts.access import TOKEN_VARIABLE, Access, read_token
from gpusize.engine.hosts.agent import join
from gpusize.engine.hosts.head import Head, HostsOptions
from gpusize.engine.hosts.host import Host
from gpusize.engine.hosts.protocol import PROTOCOL, Broken, Wire
from tests.engine.hosts.hosting import LOOPBACK, WITHIN_S
from tests.servers.tls import OPENSSL, make_certificates, sign

TOKEN = b"a token that is long enough"


def await_note(notes: list[str], text: str) -> None:
    """Wait until the head has said so: it lets each connection in on a thread of its own."""
    until_s = time.monotonic() + WITHIN_S
    while not any(text in note for note in notes):
        assert time.monotonic() < until_s, notes
        time.sleep(0.01)


@contextlib.contextmanager
def joined(head: Head, access: Access, count: int = 1) -> Iterator[list[EnvironmentLacks]]:
    """Agents on threads of this process; what they raise."""
    problems: list[EnvironmentLacks] = []

    def one() -> None:
        try:
            join(head.address, access, {"hostname": "here"}, patience_s=1.0)
        except EnvironmentLacks as error:
            problems.append(error)

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    yield problems
    for thread in threads:
        thread.join(30.0)
        assert not thread.is_alive()


def head_of(access: Access, notes: list[str], wait_s: float = 30.0) -> Head:
    return Head(HostsOptions(1, LOOPBACK, access, wait_s), notes.append)


def test_the_token_lets_in_and_is_never_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []
    original = socket.socket.sendall

    def seen(connection: socket.socket, data: bytes) -> None:
        sent.append(bytes(data))
        original(connection, data)

    monkeypatch.setattr(socket.socket, "sendall", seen)
    with head_of(Access(TOKEN), []) as head, joined(head, Access(TOKEN)) as problems:
        head.gather()
        head.__exit__()
    assert problems == []
    assert any(b"welcome" in each for each in sent)
    assert not any(TOKEN in each for each in sent)


@pytest.mark.parametrize("theirs", [b"another token, long too", None])
def test_another_token_or_none_is_turned_away(theirs: bytes | None) -> None:
    notes: list[str] = []
    with head_of(Access(TOKEN), notes) as head, joined(head, Access(theirs)) as problems:
        await_note(notes, "turned away")
    assert "the token is not the head's" in str(problems[0])


def test_an_agent_with_a_token_joins_no_head_that_lacks_it() -> None:
    with head_of(Access(), []) as head, joined(head, Access(TOKEN)) as problems:
        pass
    assert "does not know the token" in str(problems[0])


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.5", "::", "head.lab"])
def test_off_loopback_nothing_is_open(host: str) -> None:
    with pytest.raises(UsageError, match="could send load"):
        HostsOptions(2, (host, 0))
    with pytest.raises(UsageError, match="could send load"):
        join((host, 7070), Access(), {})
    HostsOptions(2, (host, 0), Access(TOKEN))


@pytest.mark.parametrize("protocol, version", [(PROTOCOL, "0.0.1"), (PROTOCOL + 1, __version__), (None, None)])
def test_another_version_is_refused_by_name(protocol: int | None, version: str | None) -> None:
    notes: list[str] = []
    with head_of(Access(), notes) as head:
        wire = Wire(socket.create_connection(head.address))
        assert wire.receive().kind == "hello"
        wire.send("hello", protocol=protocol, gpusize=version, nonce="1", role="work", proof="", facts={})
        refused = wire.receive()
        assert refused.kind == "refused"
        assert str(version) in refused.fields["what"]
        with pytest.raises(Broken):
            wire.receive()
        wire.close()
        assert head.hosts == []


@pytest.mark.parametrize(
    "said",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"", b"gz\xff\xff\xff\xff\xff\xff"],
)
def test_garbage_is_turned_away_and_agents_still_join(said: bytes) -> None:
    notes: list[str] = []
    with head_of(Access(), notes) as head:
        with socket.create_connection(head.address) as other:
            other.sendall(said)
            with contextlib.suppress(OSError):  # where it has been turned away by then
                other.shutdown(socket.SHUT_WR)
                while other.recv(4096):
                    pass
        await_note(notes, "turned away")
        with joined(head, Access()) as problems:
            head.gather()
            head.__exit__()
    assert problems == []


def test_one_more_than_asked_for_is_turned_away() -> None:
    with head_of(Access(), []) as head, joined(head, Access(), 2) as problems:
        head.gather()
        while not problems:
            pass
        head.__exit__()
    assert [problem.what for problem in problems] == ["all 1 hosts are there already"]


def test_who_is_missing_is_said() -> None:
    notes: list[str] = []
    options = HostsOptions(2, LOOPBACK, wait_s=0.5)
    with Head(options, notes.append) as head, joined(head, Access()):
        with pytest.raises(EnvironmentLacks, match=r"1 of 2 hosts have joined: here; the others did not come in time"):
            head.gather()
        head.__exit__()


def test_hosts_of_one_name_are_told_apart() -> None:
    notes: list[str] = []
    with Head(HostsOptions(3, LOOPBACK), notes.append) as head, joined(head, Access(), 3) as problems:
        head.gather()
        names = [each["name"] for each in head.facts()]
        assert [each["hostname"] for each in head.facts()] == ["here"] * 3
        head.__exit__()
    assert problems == []
    assert names == ["here", "here-2", "here-3"]
    assert {f"host {number} is {name};" for number, name in enumerate(names)} == {
        " ".join(note.split(" ")[:4]) for note in notes if " is here" in note
    }


@pytest.mark.parametrize(
    "hostname, others, name",
    [
        ("a", [], "a"),
        ("a", ["a"], "a-2"),
        # One calls itself what another one would be called.
        ("a", ["a", "a-2"], "a-3"),
        ("a-2", ["a", "a-2"], "a-2-2"),
        (None, ["a"], "number 7"),
        ("x" * 300, ["x" * 200], f"{'x' * 200}-2"),
    ],
)
def test_a_name_is_nobody_elses(hostname: str | None, others: list[str], name: str) -> None:
    here, there = socket.socketpair()
    with here, there:
        assert Host(7, Wire(here), {"hostname": hostname}, time.monotonic_ns, others).name == name


def test_nobody_listens() -> None:
    with socket.socket() as one:
        one.bind(LOOPBACK)
        with pytest.raises(EnvironmentLacks, match="nobody listens"):
            join(one.getsockname()[:2], Access(), {}, patience_s=0.1)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Access, Access]:
    """What a head and an agent of one authority show."""
    if OPENSSL is None:
        pytest.skip("there is no openssl")
    made = make_certificates(tmp_path_factory.mktemp("tls"))
    return Access(None, made.ca, made.certificate, made.key), Access(None, made.ca, *sign(made, "agent"))


def test_certificates_of_one_authority_let_in(both: tuple[Access, Access]) -> None:
    mine, theirs = both
    with head_of(mine, []) as head, joined(head, theirs) as problems:
        head.gather()
        head.__exit__()
    assert problems == []


def test_an_agent_without_a_certificate_is_turned_away(both: tuple[Access, Access]) -> None:
    notes: list[str] = []
    with head_of(both[0], notes) as head, joined(head, Access()) as problems:
        await_note(notes, "no TLS")
    assert "did not let us in" in str(problems[0])


def test_a_certificate_of_another_authority_is_turned_away(both: tuple[Access, Access], tmp_path: Path) -> None:
    other = make_certificates(tmp_path)
    notes: list[str] = []
    # It trusts the head, and shows what the head's authority has not signed.
    with head_of(both[0], notes) as head, joined(head, Access(None, both[0].ca, *sign(other, "agent"))) as problems:
        await_note(notes, "no TLS")
    assert len(problems) == 1


def test_tls_takes_all_three_files() -> None:
    with pytest.raises(UsageError, match="no file of the key"):
        Access(None, Path("ca.pem"), Path("cert.pem"))


def test_a_token_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("0123456789abcdef\n")
    assert read_token(file, {}) == b"0123456789abcdef"
    assert read_token(None, {TOKEN_VARIABLE: "fedcba9876543210"}) == b"fedcba9876543210"
    assert read_token(None, {}) is None
    file.write_text("short")
    with pytest.raises(UsageError, match="fewer than 16 characters") as caught:
        read_token(file, {})
    assert "short" not in str(caught.value)
    with pytest.raises(UsageError, match="cannot be read"):
        read_token(tmp_path / "none", {})


@pytest.mark.parametrize(
    "text, place",
    [("10.0.0.5:7070", ("10.0.0.5", 7070)), ("head.lab:1", ("head.lab", 1)), ("[fd00::5]:7070", ("fd00::5", 7070))],
)
def test_an_address_has_a_port(text: str, place: tuple[str, int]) -> None:
    assert address_of(text, "listen") == place


@pytest.mark.parametrize("text", ["", "head", "head:", ":7070", "head:70700", "head:x", "head:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no address with a port"):
        address_of(text, "listen")


class Proxy:
    """A TCP proxy that takes connections before there is anybody to pass them on to, and then closes them.

    Args:
        resets: whether it closes by a reset.

    Attributes:
        goal: whom it passes on to; None: nobody.
        taken: connections that it has taken.
    """

    def __init__(self, *, resets: bool) -> None:
        self.goal: tuple[str, int] | None = None
        self.taken = 0
        self._resets = resets
        self._listener = socket.create_server(LOOPBACK)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._serve)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in self._open:
            each.close()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.taken += 1
            if self.goal is None:
                if self._resets:
                    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                near.close()
                continue
            far = socket.create_connection(self.goal)
            self._open += [near, far]
            for a, b in ((near, far), (far, near)):
                thread = threading.Thread(target=self._pass, args=(a, b))
                self._threads.append(thread)
                thread.start()

    @staticmethod
    def _pass(a: socket.socket, b: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while got := a.recv(1 << 16):
                b.sendall(got)
        with contextlib.suppress(OSError):
            b.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def trying(place: tuple[str, int], access: Access, patience_s: float) -> Iterator[tuple[list[str], list[str]]]:
    """An agent on a thread: what it says, and the words of what it raises."""
    said: list[str] = []
    problems: list[str] = []

    def one() -> None:
        try:
            join(place, access, {"hostname": "here"}, patience_s=patience_s, say=said.append)
        except EnvironmentLacks as error:
            problems.append(str(error))

    thread = threading.Thread(target=one)
    thread.start()
    yield said, problems
    thread.join(WITHIN_S)
    assert not thread.is_alive()


@pytest.mark.parametrize("resets", [False, True], ids=["closes", "resets"])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_head_that_comes_later_behind_a_proxy_is_joined(tls: bool, resets: bool, both: tuple[Access, Access]) -> None:
    mine, theirs = both if tls else (Access(), Access())
    with Proxy(resets=resets) as proxy, trying(proxy.address, theirs, WITHIN_S) as (said, problems):
        until_s = time.monotonic() + WITHIN_S
        while proxy.taken < 3:
            assert time.monotonic() < until_s
            time.sleep(0.01)
        with head_of(mine, []) as head:
            proxy.goal = head.address
            head.gather()
            head.__exit__()
    assert problems == []
    assert "closed before the head greeted" in said[0]
    assert said[1].startswith("joined ")


def test_why_it_gave_up_is_said_in_the_end() -> None:
    with Proxy(resets=False) as proxy, trying(proxy.address, Access(), 0.7) as (_, problems):
        pass
    assert "the connection was closed before the head greeted" in problems[0]
    assert proxy.taken >= 2


@pytest.mark.parametrize("wrong", ["tls head", "tls agent", "token", "certificate"])
def test_who_is_told_no_does_not_try_again(wrong: str, both: tuple[Access, Access], tmp_path: Path) -> None:
    """With a minute of patience left."""
    mine, theirs = {
        "tls head": (both[0], Access()),
        "tls agent": (Access(), both[1]),
        "token": (Access(TOKEN), Access(b"another token, long too")),
        "certificate": (both[0], Access(None, both[0].ca, *sign(make_certificates(tmp_path), "agent"))),
    }[wrong]
    with head_of(mine, []) as head, Proxy(resets=False) as proxy:
        proxy.goal = head.address
        with trying(proxy.address, theirs, 60.0) as (said, problems):
            until_s = time.monotonic() + WITHIN_S
            while not problems:
                assert time.monotonic() < until_s
                time.sleep(0.01)
    assert said == []
    words = {"tls head": "it speaks TLS", "tls agent": "no TLS with the head", "token": "the token is not the head's"}
    assert words.get(wrong, "did not let us in") in problems[0]
    # The second one asked whether it is TLS that is spoken.
    assert proxy.taken == (2 if wrong == "tls head" else 1)
