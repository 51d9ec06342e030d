"""A canned API server on a core of its own: every creation is answered at once, with a pod.

    python -m benches.programs.canned_kube

prints its address, and serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, cast

METADATA = {"name": "j-bcdfghjk-0", "namespace": "default", "uid": "0b7e7d0e-aaaa-bbbb-cccc-1234567890ab", "labels": {}}
CONTAINER = {"name": "main", "image": "busybox:1.37", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
SPEC = {"containers": [CONTAINER], "restartPolicy": "Never", "schedulerName": "default-scheduler"}
MADE = {"kind": "Pod", "apiVersion": "v1", "metadata": METADATA, "spec": SPEC, "status": {"phase": "Pending"}}
KNOWN: dict[str, Any] = {
    "/version": {"gitVersion": "v0-canned"},
    "/api/v1": {"resources": [{"name": "pods", "kind": "Pod", "namespaced": True}]},
    "/api/v1/namespaces/default": {},
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": {"status": {"allowed": True}},
}


def answer(status: str, body: Any) -> bytes:
    """An answer as a real server's headers have it."""
    content = json.dumps(body).encode()
    date = "Date: Sat, 28 Nov 2026 00:00:00 GMT\r\nAudit-Id: 0b7e7d0e-aaaa-bbbb-cccc-1234567890ab\r\n"
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{date}Content-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


CREATED = answer("201 Created", MADE)
ANSWERS = {path: answer("200 OK", body) for path, body in KNOWN.items()}


class Canned(asyncio.Protocol):
    """Takes requests with a Content-Length, one after the other."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.held = cast("asyncio.Transport", transport), b""

    def data_received(self, data: bytes) -> None:
        self.held += data
        while (end := self.held.find(b"\r\n\r\n")) >= 0:
            head = self.held[:end]
            _, found, after = head.lower().partition(b"content-length:")
            whole = end + 4 + (int(after.split(b"\r\n", 1)[0]) if found else 0)
            if len(self.held) < whole:
                return
            self.held = self.held[whole:]
            path = head.split(b" ", 2)[1].decode().partition("?")[0]
            self.transport.write(ANSWERS.get(path, CREATED))


async def serve() -> None:
    """Until standard input ends."""
    server = await asyncio.get_running_loop().create_server(Canned, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve())
