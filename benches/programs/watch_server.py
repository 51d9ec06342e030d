"""An API server's watch of pods, played back over TLS: each event a chunk and a TLS record of its own, as Go sends it.

``python -m benches.programs.watch_server FOLDER PODS`` makes a certificate in FOLDER, prints the port, and answers
lists of pods (none) and watches of them (six events each, recorded from a real server, with names and versions of their
own) until its standard input is closed.
"""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

RECORDED = Path(__file__).parents[2] / "tests/fixtures/kube/watch/pods.jsonl"
EVENTS_A_POD = 6
ROUND = 500
"""Pods that live at the same time: all are added, then all are bound, and so on."""

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
NONE = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}'
NAME, UID, VERSION = b"w-000001-mkv8f", b"@UID@", b"@VERSION@"


def templates() -> list[bytes]:
    """The recorded events of one pod, with marks where its uid and its version stand."""
    lines: list[bytes] = []
    for line in RECORDED.read_bytes().splitlines():
        event = json.loads(line)
        if event["object"]["metadata"].get("name") != NAME.decode() or event["type"] not in ("ADDED", "MODIFIED"):
            continue
        uid, version = event["object"]["metadata"]["uid"], event["object"]["metadata"]["resourceVersion"]
        marked = line.replace(uid.encode(), UID).replace(b'"' + version.encode() + b'"', b'"' + VERSION + b'"')
        lines.append(marked + b"\n")
    return lines[:EVENTS_A_POD]


def events(pods: int) -> list[bytes]:
    """All events, each as a chunk of HTTP, made before anybody asks: the server is not what is measured."""
    lines = templates()
    made = []
    version = 1
    for first in range(0, pods, ROUND):
        for line in lines:
            for number in range(first, min(first + ROUND, pods)):
                version += 1
                body = (
                    line.replace(NAME, b"w-%06d-mkv8f" % number)
                    .replace(UID, b"00000000-0000-4000-8000-%012d" % number)
                    .replace(VERSION, b"%d" % version)
                )
                made.append(b"%x\r\n%b\r\n" % (len(body), body))
    return made


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for loopback that signs itself."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


def answer(conn: ssl.SSLSocket, told: list[bytes]) -> None:
    """Answer the requests of one connection."""
    rest = b""
    while True:
        while b"\r\n\r\n" not in rest:
            data = conn.recv(65536)
            if not data:
                return
            rest += data
        request, _, rest = rest.partition(b"\r\n\r\n")
        path = request.split(b" ", 2)[1]
        if b"watch=" not in path or b"watch=false" in path:
            conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(NONE))
            conn.sendall(NONE)
            continue
        if b"sendInitialEvents" in path:  # as a server before 1.32
            conn.sendall(b"HTTP/1.1 422 Unprocessable Entity\r\nContent-Length: 2\r\n\r\n{}")
            continue
        conn.sendall(HEAD)
        for chunk in told:
            conn.sendall(chunk)
        conn.sendall(b"0\r\n\r\n")


def main(folder: str, pods: str) -> None:
    """Serve."""
    told = events(int(pods))
    cert, key = certificate(Path(folder))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)

    def serve(raw: socket.socket) -> None:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            with context.wrap_socket(raw, server_side=True) as conn:
                answer(conn, told)
        except OSError:
            return  # the client has what it wanted

    def accept() -> None:
        while True:
            threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
