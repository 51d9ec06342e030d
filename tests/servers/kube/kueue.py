"""Kueue on the control plane: its own scheduler and controllers, definitions and webhooks; for Jobs of Kubernetes."""

from __future__ import annotations

import base64
import json
import shutil
import signal
from pathlib import Path
from typing import Any, Self

import httpx
from ruamel.yaml import YAML

from tests.servers.child import free_ports
from tests.servers.kube.control_plane import ControlPlane
from tests.servers.kube.crds import install
from tests.servers.kube.objects import create
from tests.servers.kube.part import Part
from tests.servers.kube.users import KUEUE

__all__ = ["Kueue"]

# Of Kueue's webhooks those of its own kinds, and of Jobs; others would hold up every pod and Deployment.
HOOKS = {"clusterqueue", "cohort", "localqueue", "resourceflavor", "workload", "job"}


class Kueue:
    """A running Kueue; a context manager, within the control plane's own.

    Its webhooks serve with the control plane's certificate, and the API server is told their address: there is no
    network of a cluster in which a service could stand for them.

    Args:
        folder: of the peer ``kueue``, with the program in ``bin`` and its ``config`` beside it.
        plane: the control plane, which has to run; it keeps the definitions when this ends.
    """

    def __init__(self, folder: Path, plane: ControlPlane) -> None:
        self._components = folder / "config" / "components"
        self._plane = plane
        self._hooks_port, health = free_ports(2)
        certificates = plane.folder / "kueue-certificates"
        config = {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": self._hooks_port, "certDir": str(certificates)},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "clientConnection": {"qps": 500, "burst": 1000},
            "integrations": {"frameworks": ["batch/job"]},
        }
        certificates.mkdir()
        shutil.copy(plane.certificates.certificate, certificates / "tls.crt")
        shutil.copy(plane.certificates.key, certificates / "tls.key")
        file = plane.folder / "kueue.yaml"
        file.write_text(json.dumps(config), encoding="utf-8")
        self._part = Part(
            [folder / "bin" / "kueue", f"--config={file}", f"--kubeconfig={plane.kubeconfig(KUEUE)}"],
            plane.folder / "kueue.log",
            f"http://127.0.0.1:{health}/readyz",
            plane.tls,
        )

    def __enter__(self) -> Self:
        with self._plane.client() as client:
            files = sorted((self._components / "crd" / "bases").glob("*.yaml"))
            install(client, *files, change=self._converted)
            self._part.start()
            try:
                self._part.wait()
            except BaseException:
                self._part.stop(signal.SIGKILL)
                raise
            for each in YAML(typ="safe").load_all(self._components / "webhook" / "manifests.yaml"):
                if each:
                    self._add_hooks(client, each)
        return self

    def __exit__(self, *_: object) -> None:
        with self._plane.client() as client:
            for kind in ("mutating", "validating"):
                path = f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations"
                client.delete(f"{path}/kueue-{kind}").raise_for_status()
        self._part.stop()

    def _at(self, path: str) -> dict[str, Any]:
        authority = base64.b64encode(self._plane.certificates.ca.read_bytes()).decode()
        return {"url": f"https://127.0.0.1:{self._hooks_port}{path}", "caBundle": authority}

    def _converted(self, definition: dict[str, Any]) -> dict[str, Any]:
        """As Kueue's own patches do it: kinds with several versions are converted by it."""
        if len(definition["spec"]["versions"]) > 1:
            hook = {"clientConfig": self._at("/convert"), "conversionReviewVersions": ["v1"]}
            definition["spec"]["conversion"] = {"strategy": "Webhook", "webhook": hook}
        return definition

    def _add_hooks(self, client: httpx.Client, configuration: dict[str, Any]) -> None:
        kind = configuration["kind"].removesuffix("WebhookConfiguration").lower()
        configuration["metadata"]["name"] = f"kueue-{kind}"
        wanted = {f"{kind[0]}{name}.kb.io" for name in HOOKS}
        configuration["webhooks"] = [each for each in configuration["webhooks"] if each["name"] in wanted]
        for each in configuration["webhooks"]:
            each["clientConfig"] = self._at(each["clientConfig"]["service"]["path"])
        create(client, f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations", configuration)
