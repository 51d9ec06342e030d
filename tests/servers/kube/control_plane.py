"""etcd, the API server, schedulers and controllers of Kubernetes: its own code, as processes on loopback."""

from __future__ import annotations

import json
import signal
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import httpx

from tests.servers.child import free_ports
from tests.servers.kube.part import Part, PartFailed
from tests.servers.kube.users import CONTROLLERS, SCHEDULER, Users
from tests.servers.tls import make_certificates

__all__ = ["DEFAULT_SCHEDULER", "ControlPlane"]

DEFAULT_SCHEDULER = "default-scheduler"
_TRIES = 3

# Each request that changes something, with both its times in microseconds; leases are renewed without end.
_AUDIT = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, verbs: [get, list, watch]}
- {level: None, resources: [{group: coordination.k8s.io}]}
- {level: Metadata}
"""

# Without a kubelet's lease a node counts as lost; its range of addresses comes from a cloud. Fake nodes have neither.
_WITHOUT = ("node-lifecycle-controller", "node-ipam-controller", "taint-eviction-controller")


class ControlPlane:
    """A running control plane; a context manager. It knows no nodes: those are made through the API.

    Nodes get no taints, and pods need no service account, since those plugins of admission are off.

    Args:
        program: ``bin/kube`` of the peer.
        folder: an empty folder for its state and its logs.
        schedulers: the names that pods give in ``schedulerName``; a kube-scheduler each. None: nothing is bound.
        controllers: whether the controller manager runs (Jobs, Deployments, namespaces that end, garbage).
        feature_gates: of all parts, such as ``GenericWorkload=true``.
        flags: more flags of the API server.
        controller_flags: more flags of the controller manager.
    """

    def __init__(
        self,
        program: Path,
        folder: Path,
        *,
        schedulers: Sequence[str] = (DEFAULT_SCHEDULER,),
        controllers: bool = True,
        feature_gates: str = "",
        flags: Sequence[str] = (),
        controller_flags: Sequence[str] = (),
    ) -> None:
        self._program = program
        self.folder = folder
        self._schedulers = tuple(schedulers)
        self._controllers = controllers
        self._gates = [f"--feature-gates={feature_gates}"] if feature_gates else []
        self._flags = list(flags)
        self._controller_flags = list(controller_flags)
        self.certificates = make_certificates(folder)
        self.tls = ssl.create_default_context(cafile=str(self.certificates.ca))
        self.users = Users(folder, self.certificates)
        self.audit_log = folder / "audit.log"
        self.url = ""
        self._parts: dict[str, Part] = {}
        self._ports: dict[str, int] = {}

    # ------------------------------------------------------------------------------------------ start and end

    def start(self) -> None:
        """Start all parts, and wait until each is ready. A port that somebody took meanwhile: once more with others."""
        for left in reversed(range(_TRIES)):
            try:
                self._start()
            except PartFailed as failed:
                self.stop()
                if not left or "address already in use" not in str(failed):
                    raise
            else:
                return

    def _start(self) -> None:
        names = ["peers", "etcd", "apiserver", *self._schedulers, "controllers"]
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.url = f"https://127.0.0.1:{self._ports['apiserver']}"
        self._parts = {"etcd": self._etcd(), "apiserver": self._apiserver()}
        for part in self._parts.values():
            part.start()
            part.wait()
        beside = {name: self._scheduler(name) for name in self._schedulers}
        if self._controllers:
            beside["controllers"] = self._controller_manager()
        for part in beside.values():
            part.start()
        self._parts |= beside
        for part in beside.values():
            part.wait()

    def stop(self) -> None:
        """End all parts. Nothing is asked of them: what they have is thrown away."""
        for part in reversed(self._parts.values()):
            part.stop(signal.SIGKILL)
        self._parts = {}

    def kill_apiserver(self) -> None:
        """The API server dies; the other parts run on, and try again."""
        self._parts["apiserver"].stop(signal.SIGKILL)

    def restart_apiserver(self) -> None:
        """Start the API server anew on the same etcd and port: watches of old versions get 410 from now on."""
        self.kill_apiserver()
        self._parts["apiserver"].start()
        self._parts["apiserver"].wait()

    def pid(self, part: str) -> int:
        """The process of ``etcd``, ``apiserver``, ``controllers``, or of a scheduler by its name."""
        return self._parts[part].pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ------------------------------------------------------------------------------------------ what tests ask

    def kubeconfig(self, context: str = "admin") -> Path:
        """A kubeconfig whose current context is one of ``tests.servers.kube.users.USERS``."""
        return self.users.kubeconfig(self.url, context)

    def client(self, user: str = "admin", timeout: float = 60.0) -> httpx.Client:
        """Plain HTTP as one who has a token: ``admin``, ``exec`` or ``limited``.

        Nothing is compressed: a watch that begins with a list is gzip of many members, of which httpx reads the first.
        """
        headers = {"Authorization": f"Bearer {self.users.tokens[user]}", "Accept-Encoding": "identity"}
        return httpx.Client(base_url=self.url, verify=self.tls, headers=headers, timeout=timeout, trust_env=False)

    def audit(self, resource: str = "", verb: str = "", subresource: str = "") -> list[dict[str, Any]]:
        """What the audit log has of requests that were answered, in its order; empty words fit all but a subresource.

        ``requestReceivedTimestamp`` and ``stageTimestamp`` are microseconds by the API server's clock.
        """
        text = self.audit_log.read_text(encoding="utf-8") if self.audit_log.exists() else ""
        events = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        return [
            event
            for event in events
            if (not verb or event["verb"] == verb)
            and (not resource or _target(event) == (resource, subresource))
            and event["stage"] == "ResponseComplete"
        ]

    def scheduler_metrics(self, name: str = DEFAULT_SCHEDULER) -> str:
        """A scheduler's own metrics, as text."""
        with self.client() as client:
            answer = client.get(f"https://127.0.0.1:{self._ports[name]}/metrics")
        assert answer.status_code == httpx.codes.OK, answer.text
        return answer.text

    # ------------------------------------------------------------------------------------------ the parts

    def _part(self, name: str, path: str, words: Sequence[str | Path], tls: str = "https") -> Part:
        ready = f"{tls}://127.0.0.1:{self._ports[name]}{path}"
        log = self.folder / f"{name}.log"
        return Part([self._program, *words], log, ready, self.tls, self.users.tokens["admin"])

    def _etcd(self) -> Part:
        client, peers = (f"http://127.0.0.1:{self._ports[name]}" for name in ("etcd", "peers"))
        words = [
            f"--data-dir={self.folder / 'etcd'}",
            "--unsafe-no-fsync",
            "--log-level=warn",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
        ]
        return self._part("etcd", "/readyz", ["etcd", *words], "http")

    def _serving(self, name: str) -> list[str]:
        tls = [f"--tls-cert-file={self.certificates.certificate}", f"--tls-private-key-file={self.certificates.key}"]
        return ["--bind-address=127.0.0.1", f"--secure-port={self._ports[name]}", *tls, *self._gates]

    def _apiserver(self) -> Part:
        policy = self.folder / "audit-policy.yaml"
        policy.write_text(_AUDIT, encoding="utf-8")
        words = [
            *self._serving("apiserver"),
            f"--etcd-servers=http://127.0.0.1:{self._ports['etcd']}",
            # Nothing of the machine's network is looked at, and nobody looks for `kubernetes.default`.
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.certificates.certificate}",
            f"--service-account-signing-key-file={self.certificates.key}",
            f"--client-ca-file={self.certificates.ca}",
            f"--token-auth-file={self.users.token_file()}",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.audit_log}",
            *self._flags,
        ]
        return self._part("apiserver", "/readyz", ["apiserver", *words])

    def _beside(self, name: str, user: str) -> list[str]:
        kubeconfig = self.kubeconfig(user)
        asked = ("--authentication-kubeconfig", "--authorization-kubeconfig")
        return [*self._serving(name), *(f"{flag}={kubeconfig}" for flag in asked)]

    def _scheduler(self, name: str) -> Part:
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(self.kubeconfig(SCHEDULER)), "qps": 500, "burst": 1000},
            "profiles": [{"schedulerName": name}],
        }
        file = self.folder / f"{name}.yaml"
        file.write_text(json.dumps(config), encoding="utf-8")
        return self._part(name, "/readyz", ["scheduler", f"--config={file}", *self._beside(name, SCHEDULER)])

    def _controller_manager(self) -> Part:
        words = [
            *self._beside("controllers", CONTROLLERS),
            f"--kubeconfig={self.kubeconfig(CONTROLLERS)}",
            f"--service-account-private-key-file={self.certificates.key}",
            f"--controllers=*,{','.join(f'-{name}' for name in _WITHOUT)}",
            "--leader-elect=false",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            *self._controller_flags,
        ]
        return self._part("controllers", "/healthz", ["controller-manager", *words])


def _target(event: dict[str, Any]) -> tuple[str, str]:
    of = event.get("objectRef", {})
    return of.get("resource", ""), of.get("subresource", "")
