"""What the system lets one process open: files, of which each connection is one, and local ports towards one target."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from gpusize.base.errors import EnvironmentLacks, UsageError

__all__ = [
    "LocalPorts",
    "allow_connections",
    "allow_most_files",
    "allow_ports",
    "allowed_connections",
    "local_ports",
    "source_notes",
    "time_wait",
]

RESERVE: Final = 128
"""Open files beside the connections: parts being written and read, libraries, standard streams, event polls."""
TIME_WAIT_S: Final = 60
"""How long Linux keeps a closed connection's port from being used again towards the same target."""
_PROC: Final = Path("/proc")
_TIME_WAIT: Final = "06"


def allow_connections(connections: int) -> None:
    """Raise this process's own limit so that so many connections fit; nothing happens where they fit already.

    Raises:
        EnvironmentLacks: the system's hard limit is lower.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + RESERVE
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise EnvironmentLacks(
            f"{connections} connections need {needed} open files; the limit here is {hard}",
            "open files",
            f"raise the hard limit (ulimit -Hn {needed}, or LimitNOFILE of the service), or ask for fewer connections",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def allowed_connections(wanted: int) -> int:
    """As many connections as are wanted, or as the system's hard limit lets this process open; at least one."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if hard == resource.RLIM_INFINITY else max(1, min(wanted, hard - RESERVE))


def allow_most_files() -> None:
    """Raise this process's own limit as far as the system lets it: a server cannot know how many will connect."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class LocalPorts(NamedTuple):
    """Local ports that connections may have.

    Attributes:
        low: first of the range.
        high: last of it.
        usable: how many of them may be used; one connection each per source address, target address and port.
        reuse: ``net.ipv4.tcp_tw_reuse``: ports of closed connections are used again at once by 1 anywhere, by 2 towards
            this machine.
    """

    low: int
    high: int
    usable: int
    reuse: int


def local_ports(proc: Path = _PROC) -> LocalPorts | None:
    """The range of local ports for outgoing connections; None where the system does not report it."""
    base = proc / "sys/net/ipv4"
    try:
        low, high = (int(word) for word in (base / "ip_local_port_range").read_text().split())
    except (OSError, ValueError):
        return None
    reserved = 0
    for part in _text(base / "ip_local_reserved_ports").replace(",", " ").split():
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            reserved += max(0, min(high, int(last or first)) - max(low, int(first)) + 1)
    reuse = _text(base / "tcp_tw_reuse").strip()
    return LocalPorts(low, high, high - low + 1 - reserved, int(reuse) if reuse.isdigit() else 0)


def time_wait(address: str, port: int, proc: Path = _PROC) -> int:
    """How many closed connections to an IP address and port still hold their local ports."""
    wanted = {f"{_hex(form)}:{port:04X}" for form in _forms(address)}
    held = 0
    for table in ("net/tcp", "net/tcp6"):
        for line in _text(proc / table).splitlines()[1:]:
            fields = line.split()
            held += len(fields) > 3 and fields[3] == _TIME_WAIT and fields[2] in wanted
    return held


def allow_ports(
    connections: int, targets: Sequence[tuple[str, int]], sources: Sequence[str] = (), *, proc: Path = _PROC
) -> str | None:
    """Whether there are local ports for so many connections to each target at the same time.

    Args:
        connections: most connections that are open to one target.
        targets: host and port of each; a name that cannot be resolved is left to whoever connects.
        sources: addresses to connect from; none: the system's choice, which is one.
        proc: where the system tells of itself.

    Returns:
        A warning with numbers when it only works once ports of earlier connections are free; else None.

    Raises:
        EnvironmentLacks: there are not so many ports.
    """
    ports = local_ports(proc)
    if ports is None:
        return None
    usable = ports.usable * max(1, len(sources))
    todo = "connect from more addresses (--source-address, repeatable), or widen net.ipv4.ip_local_port_range"
    for host, port in dict.fromkeys(targets):
        where = f"{host}:{port}"
        if connections > usable:
            raise EnvironmentLacks(
                f"{connections:,} connections take as many local ports, and there are {usable:,} "
                f"({ports.low} to {ports.high}{f', of {len(sources)} addresses' if len(sources) > 1 else ''})",
                where,
                todo,
            )
        address = _resolved(host, port)
        if address is None or ports.reuse == 1 or (ports.reuse == 2 and ipaddress.ip_address(address).is_loopback):
            continue
        held = time_wait(address, port, proc)
        if connections > usable - held:
            return (
                f"{where}: {connections:,} connections are wanted, and {held:,} of {usable:,} local ports are held by "
                f"earlier ones for up to {TIME_WAIT_S} s: wait a minute, or {todo}"
            )
    return None


def source_notes(targets: Sequence[tuple[str, int]], sources: Sequence[str]) -> list[str]:
    """Whether connections to each target can come from these addresses: both have to be IPv4, or both IPv6.

    Args:
        targets: host and port of each; a name that cannot be resolved is left to whoever connects.
        sources: addresses to connect from.

    Returns:
        Where only some connections will come from them.

    Raises:
        UsageError: an address from which no target can be reached, or a target that none of them reaches.
    """
    found = {(host, port): _families(host, port) for host, port in targets} if sources else {}
    known = {place: families for place, families in found.items() if families}
    mine = {text: ipaddress.ip_address(text).version for text in sources}
    notes = []
    for (host, port), families in known.items():
        theirs = " and ".join(f"IPv{each}" for each in sorted(families))
        todo = f"give an {theirs} address"
        if families.isdisjoint(mine.values()):
            raise UsageError(f"{host}:{port} is reached by {theirs} only", f"source address {sources[0]}", todo)
        if not families <= set(mine.values()):
            other = next(iter(families - set(mine.values())))
            notes.append(
                f"{host}:{port} has {theirs} addresses: connections by IPv{other} come from the address that the "
                "system chooses, not from --source-address"
            )
    for text, version in mine.items():
        if len(known) == len(found) and not any(version in families for families in known.values()):
            raise UsageError(f"no target is reached by IPv{version}", f"source address {text}", "leave it out")
    return notes


def _families(host: str, port: int) -> set[int]:
    """The versions of IP by which a host is reached; none where its name cannot be resolved."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return set()
    versions = {socket.AF_INET: 4, socket.AF_INET6: 6}
    return {versions[each[0]] for each in found if each[0] in versions}


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _resolved(host: str, port: int) -> str | None:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    return str(found[0][4][0]).partition("%")[0]


def _forms(address: str) -> list[bytes]:
    """The address as the tables of both protocols have it."""
    parsed = ipaddress.ip_address(address)
    return [parsed.packed] if parsed.version == 6 else [parsed.packed, b"\0" * 10 + b"\xff\xff" + parsed.packed]


def _hex(packed: bytes) -> str:
    """As the kernel prints it: words of 32 bits in the machine's byte order."""
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed))
