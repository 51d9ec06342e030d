"""Local ports: how many there are for one target, and when a run has to be refused."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from gpusize.base.errors import EnvironmentLacks, UsageError
from gpusize.engine.limits import LocalPorts, allow_ports, local_ports, source_notes, time_wait

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def proc(folder: Path, *, reuse: int = 0, reserved: str = "", held: int = 0, span: str = "32768\t60999") -> Path:
    """A /proc that tells of so many closed connections to 192.0.2.7:8000."""
    base = folder / "sys/net/ipv4"
    base.mkdir(parents=True)
    (base / "ip_local_port_range").write_text(span)
    (base / "ip_local_reserved_ports").write_text(f"{reserved}\n")
    (base / "tcp_tw_reuse").write_text(f"{reuse}\n")
    (folder / "net").mkdir()
    remote = "070200C0:1F40"
    lines = [f"   {n}: 0100A8C0:{32768 + n:04X} {remote} 06 0:0 3:17 0 0 0 3\n" for n in range(held)]
    lines += [f"   9: 0100A8C0:0400 {remote} 01 0:0 0:0 0 0 0 3\n", "   8: 0100A8C0:0401 070200C0:1F41 06 0:0 0\n"]
    (folder / "net/tcp").write_text(HEAD + "".join(lines))
    return folder


def test_the_range_without_what_is_reserved(tmp_path: Path) -> None:
    assert local_ports(proc(tmp_path)) == LocalPorts(32768, 60999, 28232, 0)
    assert local_ports(proc(tmp_path / "b", reserved="80,32768-32777,60999,60990-70000", reuse=2)) == LocalPorts(
        32768, 60999, 28232 - 10 - 1 - 10, 2
    )
    assert local_ports(tmp_path / "nothing") is None


def test_closed_connections_are_counted_by_target(tmp_path: Path) -> None:
    folder = proc(tmp_path, held=5)
    assert time_wait("192.0.2.7", 8000, folder) == 5
    assert time_wait("192.0.2.7", 8001, folder) == 1
    assert time_wait("192.0.2.8", 8000, folder) == 0
    (folder / "net/tcp6").write_text(
        f"{HEAD}  0: 0000:1 0000000000000000FFFF0000070200C0:1F40 06 0:0\n"
        "  1: 0000:1 B80D0120000000000000000001000000:1F40 06 0:0\n"
    )
    assert time_wait("192.0.2.7", 8000, folder) == 6, "also by a socket that speaks both"
    assert time_wait("2001:db8::1", 8000, folder) == 1


def test_the_kernel_prints_addresses_as_they_are_read(tmp_path: Path) -> None:
    # An address that nothing else here uses: closed connections to a port that others had before count for a minute.
    with socket.create_server(("127.83.29.61", 0)) as server:
        address = server.getsockname()
        with socket.create_connection(address) as client:
            accepted = server.accept()[0]
            client.shutdown(socket.SHUT_RDWR)
            accepted.close()
        until = time.monotonic() + 30
        # The last packet of a connection may take a moment, on loopback too.
        while time_wait(*address) == 0 and time.monotonic() < until:
            time.sleep(0.01)
        assert time_wait(*address) == 1


def test_what_fits_is_let_go(tmp_path: Path) -> None:
    assert allow_ports(28_232, [("192.0.2.7", 8000), ("192.0.2.7", 8000)], proc=proc(tmp_path)) is None
    assert allow_ports(10**9, [("192.0.2.7", 8000)], proc=tmp_path / "nothing") is None


def test_more_than_there_are_is_refused(tmp_path: Path) -> None:
    folder = proc(tmp_path)
    with pytest.raises(EnvironmentLacks, match=r"28,233 connections .* there are 28,232 \(32768 to 60999\)") as caught:
        allow_ports(28_233, [("192.0.2.7", 8000)], proc=folder)
    assert caught.value.where == "192.0.2.7:8000"
    assert "--source-address" in str(caught.value)
    two = ["192.0.2.1", "192.0.2.2"]
    assert allow_ports(28_233, [("192.0.2.7", 8000)], two, proc=folder) is None
    with pytest.raises(EnvironmentLacks, match="of 2 addresses"):
        allow_ports(60_000, [("192.0.2.7", 8000)], two, proc=folder)


@pytest.mark.parametrize("reuse, warned", [(0, True), (2, True), (1, False)])
def test_ports_that_are_still_held_are_told(tmp_path: Path, reuse: int, warned: bool) -> None:
    text = allow_ports(20, [("192.0.2.7", 8000)], proc=proc(tmp_path, held=15, span="40000 40029", reuse=reuse))
    assert (text is not None) is warned
    if text:
        assert text.startswith("192.0.2.7:8000: 20 connections are wanted, and 15 of 30 local ports are held")


def test_this_machine_uses_its_ports_again(tmp_path: Path) -> None:
    folder = proc(tmp_path, reuse=2, span="40000 40029")
    (folder / "net/tcp").write_text(HEAD + "  0: 0100007F:9C40 0100007F:1F40 06 0:0\n" * 20)
    assert allow_ports(20, [("127.0.0.1", 8000)], proc=folder) is None


def test_a_name_that_nobody_knows_is_left_to_who_connects(tmp_path: Path) -> None:
    assert allow_ports(20, [("no such host", 8000)], proc=proc(tmp_path, span="40000 40029")) is None


def test_addresses_of_another_family_are_refused() -> None:
    four, six = ("127.0.0.1", 8000), ("::1", 8000)
    assert source_notes([four], ["127.0.0.2", "127.0.0.3"]) == []
    assert source_notes([four, six], ["127.0.0.2", "::1"]) == []
    assert source_notes([four], []) == []
    for targets, sources in (([four], ["::1"]), ([six], ["127.0.0.2"]), ([four, six], ["::1"])):
        with pytest.raises(UsageError, match=r"is reached by IPv[46] only"):
            source_notes(targets, sources)
    with pytest.raises(UsageError, match="no target is reached by IPv6") as caught:
        source_notes([four], ["127.0.0.2", "::1"])
    assert caught.value.where == "source address ::1"
    assert source_notes([("no such host", 8000)], ["::1"]) == []


def test_a_name_of_both_families_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [(family, socket.SOCK_STREAM, 6, "", ()) for family in (socket.AF_INET6, socket.AF_INET)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    [note] = source_notes([("both", 8000)], ["127.0.0.2"])
    assert note.startswith("both:8000 has IPv4 and IPv6 addresses: connections by IPv6 come from the address that the")
    assert source_notes([("both", 8000)], ["127.0.0.2", "::1"]) == []
