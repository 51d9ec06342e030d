"""Who may log in to the control plane of the tests, and how: tokens, a client certificate, an exec plugin."""

from __future__ import annotations

import base64
import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.servers.tls import Certificates, sign

__all__ = ["USERS", "Users"]

MASTERS = "system:masters"
# The scheduler has its rights by its name; controllers have some of theirs only where each has an account of its own.
SCHEDULER, CONTROLLERS, KUEUE = "system:kube-scheduler", "system:kube-controller-manager", "kueue"
TOKENS = {"admin": MASTERS, "exec": MASTERS, "limited": "", SCHEDULER: "", CONTROLLERS: MASTERS, KUEUE: MASTERS}
USERS = ("admin", "certificate", "exec", "limited", "stranger")
"""Contexts of the kubeconfig: token; certificate, all inline; exec plugin; no rights (403); a wrong token (401)."""


@dataclass
class Users:
    """Tokens and files, made once; where the server is may be told later.

    Args:
        folder: for the files.
        certificates: whose authority signs the client certificate.
    """

    folder: Path
    certificates: Certificates
    tokens: dict[str, str] = field(default_factory=lambda: {name: secrets.token_hex(16) for name in TOKENS})

    def token_file(self) -> Path:
        """What ``--token-auth-file`` reads."""
        groups = {name: f',"{group}"' if group else "" for name, group in TOKENS.items()}
        lines = [f"{token},{name},{name}{groups[name]}\n" for name, token in self.tokens.items()]
        file = self.folder / "tokens.csv"
        file.write_text("".join(lines), encoding="ascii")
        return file

    def kubeconfig(self, server: str, context: str = "admin") -> Path:
        """A kubeconfig with all ``USERS`` as contexts, of which this is the current one."""
        authority = self.certificates.ca
        clusters = {
            "by-file": {"server": server, "certificate-authority": str(authority)},
            "inline": {"server": server, "certificate-authority-data": _inline(authority)},
        }
        users = self._logins()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster} for name, cluster in clusters.items()],
            "users": [{"name": name, "user": user} for name, user in users.items()],
            "contexts": [
                {"name": name, "context": {"cluster": "inline" if name == "certificate" else "by-file", "user": name}}
                for name in users
            ],
            "current-context": context,
        }
        file = self.folder / f"kubeconfig-{context.replace(':', '-')}.yaml"
        file.write_text(json.dumps(config, indent=1), encoding="utf-8")  # JSON is YAML
        return file

    def exec_calls(self) -> int:
        """How often the exec plugin was run."""
        counted = self.folder / "exec-calls"
        return len(counted.read_text(encoding="ascii").splitlines()) if counted.exists() else 0

    def _logins(self) -> dict[str, dict[str, Any]]:
        certificate, key = sign(self.certificates, "certificate", organisation=MASTERS)
        return {
            **{name: {"token": token} for name, token in self.tokens.items() if name != "exec"},
            "certificate": {"client-certificate-data": _inline(certificate), "client-key-data": _inline(key)},
            "exec": {"exec": self._plugin()},
            "stranger": {"token": "of-nobody"},
        }

    def _plugin(self) -> dict[str, Any]:
        version = "client.authentication.k8s.io/v1"
        answer = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": self.tokens["exec"]}}
        program = self.folder / "exec-plugin"
        program.write_text(
            f"#!/bin/sh\necho called >>'{self.folder}/exec-calls'\ncat <<'EOF'\n{json.dumps(answer)}\nEOF\n",
            encoding="utf-8",
        )
        program.chmod(0o755)
        return {"apiVersion": version, "command": str(program), "interactiveMode": "Never"}


def _inline(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
