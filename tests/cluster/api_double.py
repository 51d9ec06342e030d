"""A double of an API server on loopback, for what a real one does not do when it is asked to: faults.

It keeps objects of a few kinds, as JSON, and knows selectors, dry runs, access reviews and deletion with finalizers.
What it does otherwise is held against a real server by the same tests (`tests/peers/test_cluster_submit.py`).
"""

from __future__ import annotations

import itertools
import json
import re
import ssl
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

__all__ = ["DROP", "LOST", "ApiDouble", "Asked", "Reply", "refusal"]

KINDS = {
    "v1": [("Pod", "pods"), ("PersistentVolumeClaim", "persistentvolumeclaims"), ("ConfigMap", "configmaps")],
    "batch/v1": [("Job", "jobs")],
    "apps/v1": [("Deployment", "deployments")],
    "run.ai/v1": [("RunaiJob", "runaijobs")],
    "run.ai/v2alpha1": [
        ("TrainingWorkload", "trainingworkloads"),
        ("DistributedWorkload", "distributedworkloads"),
        ("InteractiveWorkload", "interactiveworkloads"),
    ],
}
VERBS = ["create", "delete", "deletecollection", "get", "list", "watch"]
_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>v[^/]+)/namespaces/(?P<ns>[^/]+)/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?\Z"
)

DROP = "drop"
"""Instead of a reply: the connection is cut before anything is done."""
LOST = "lost"
"""Instead of a reply: what was asked for is done, and the connection is cut before the answer."""


@dataclass(frozen=True)
class Asked:
    """One request that came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    number: int

    @property
    def creates(self) -> bool:
        """Whether it is to create an object, and not only to try."""
        return self.method == "POST" and _PATH.match(self.path) is not None and "dryRun" not in self.query

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])


@dataclass(frozen=True)
class Reply:
    """What is answered."""

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)


Fault = Callable[[Asked], "Reply | str | None"]
"""Says what is answered instead: a reply, `DROP`, `LOST`; None for the right answer."""


def refusal(status: int, reason: str, message: str, headers: dict[str, str] | None = None, **details: Any) -> Reply:
    """A refusal as the real server writes it."""
    said = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    return Reply(status, {**said, "reason": reason, "details": details, "code": status}, headers or {})


class ApiDouble:
    """The server, in a thread. To be used as ``with``.

    Args:
        fault: asked before each request.
        allowed: what access reviews say.
        namespaces: that there are.
        kinds: API versions with kinds and plurals.
        tls: certificate and key; none for plain HTTP. With an authority, clients need certificates of it.
        token: that a request must have, where it is given.
    """

    def __init__(
        self,
        fault: Fault | None = None,
        *,
        allowed: bool = True,
        namespaces: tuple[str, ...] = ("default", "runai-project-0"),
        kinds: dict[str, list[tuple[str, str]]] | None = None,
        tls: ssl.SSLContext | None = None,
        token: Callable[[], str] | None = None,
    ) -> None:
        self.fault = fault
        self.allowed = allowed
        self.namespaces = namespaces
        self.kinds = KINDS if kinds is None else kinds
        self.asked: list[Asked] = []
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.token = token
        self.most_under_way = 0
        self._under_way = 0
        self._numbers = itertools.count()
        self.lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def kubeconfig(self, folder: Path, **user: Any) -> str:
        """A kubeconfig that names it; further keys are the user's."""
        file = folder / "kubeconfig.yaml"
        content = {
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        file.write_text(json.dumps(content))
        return str(file)

    def created(self) -> list[str]:
        """Names of the objects that were created, in the order in which it was asked for."""
        return [asked.name for asked in self.asked if asked.creates]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, asked: Asked) -> Reply | str:
        """What comes back."""
        with self.lock:
            self.asked.append(asked)
            self._under_way += 1
            self.most_under_way = max(self.most_under_way, self._under_way)
        try:
            instead = self.fault(asked) if self.fault else None
            if instead is not None and instead != LOST:
                return instead
            with self.lock:
                reply = self._right(asked)
            return LOST if instead == LOST else reply
        finally:
            with self.lock:
                self._under_way -= 1

    def _right(self, asked: Asked) -> Reply:
        if self.token is not None and asked.headers.get("authorization") != f"Bearer {self.token()}":
            return refusal(401, "Unauthorized", "Unauthorized")
        if asked.path == "/version":
            return Reply(200, {"gitVersion": "v1.0.0-double"})
        if asked.path == "/apis":
            return Reply(200, {"groups": _groups([version for version in self.kinds if "/" in version])})
        if asked.path.endswith("selfsubjectaccessreviews"):
            return Reply(201, {**asked.body, "status": {"allowed": self.allowed}})
        if namespace := re.fullmatch(r"/api/v1/namespaces/([^/]+)", asked.path):
            known = namespace[1] in self.namespaces
            missing = refusal(404, "NotFound", f'namespaces "{namespace[1]}" not found')
            return Reply(200, {"metadata": {"name": namespace[1]}}) if known else missing
        version = asked.path.removeprefix("/apis/").removeprefix("/api/")
        if version in self.kinds:
            return Reply(200, {"resources": [_resource(kind, plural) for kind, plural in self.kinds[version]]})
        return self._object(asked)

    def _object(self, asked: Asked) -> Reply:
        found = _PATH.match(asked.path)
        if found is None:
            return refusal(404, "NotFound", f"the server could not find the requested resource {asked.path}")
        plural, namespace, name = found["plural"], found["ns"], found["name"]
        if asked.method == "POST":
            return self._create(plural, namespace, asked)
        if name is not None:
            if (plural, namespace, name) not in self.objects:
                return refusal(404, "NotFound", f'{plural} "{name}" not found')
            if asked.method == "DELETE":
                self._delete((plural, namespace, name))
                return Reply(200, {"kind": "Status", "status": "Success"})
            return Reply(200, self.objects[plural, namespace, name])
        chosen = [
            key
            for key, value in self.objects.items()
            if key[:2] == (plural, namespace) and _selected(value, asked.query.get("labelSelector", ""))
        ]
        if asked.method == "DELETE":
            for key in chosen:
                self._delete(key)
        items = [self.objects[key] for key in chosen if key in self.objects]
        begin, limit = int(asked.query.get("continue", 0)), int(asked.query.get("limit", 500))
        onward = {"continue": str(begin + limit)} if begin + limit < len(items) else {}
        return Reply(200, {"metadata": {"resourceVersion": "1", **onward}, "items": items[begin : begin + limit]})

    def _create(self, plural: str, namespace: str, asked: Asked) -> Reply:
        key = (plural, namespace, asked.name)
        if key in self.objects:
            return refusal(409, "AlreadyExists", f'{plural} "{asked.name}" already exists', name=asked.name)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        made = {
            **asked.body,
            "metadata": {**asked.body["metadata"], "uid": str(uuid.uuid4()), "creationTimestamp": stamp},
        }
        if "dryRun" not in asked.query:
            self.objects[key] = made
        return Reply(201, made)

    def _delete(self, key: tuple[str, str, str]) -> None:
        metadata = self.objects[key]["metadata"]
        if metadata.get("finalizers"):
            metadata["deletionTimestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        else:
            del self.objects[key]


def _groups(versions: list[str]) -> list[dict[str, Any]]:
    """Groups, each with its versions in their order, the first of which it prefers."""
    found: dict[str, list[dict[str, str]]] = {}
    for version in versions:
        found.setdefault(version.partition("/")[0], []).append({"groupVersion": version})
    return [{"name": name, "versions": each, "preferredVersion": each[0]} for name, each in found.items()]


def _resource(kind: str, plural: str) -> dict[str, Any]:
    return {"kind": kind, "name": plural, "namespaced": True, "verbs": VERBS}


def _selected(value: dict[str, Any], selector: str) -> bool:
    labels = value["metadata"].get("labels") or {}
    return all(labels.get(name) == wanted for name, _, wanted in (each.partition("=") for each in selector.split(",")))


def _handler(double: ApiDouble) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            url = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(self.command, url.path, query, headers, body, next(double._numbers))
            reply = double.answer(asked)
            if isinstance(reply, str):
                self.close_connection = True
                return
            content = json.dumps(reply.body).encode()
            self.send_response_only(reply.status)
            if "Date" not in reply.headers:
                self.send_header("Date", self.date_time_string())
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = do_PATCH = handle_any

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler
