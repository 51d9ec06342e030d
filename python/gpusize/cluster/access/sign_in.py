"""Which server a kubeconfig names, and how to sign in to it.

lightkube reads the kubeconfig and knows tokens, token files, certificates and passwords. Commands that hand out
credentials (``exec``) are called here, as it does not know their current version, nor certificates from them.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import ConfigError, EnvironmentLacks, GpusizeError, TargetError, UsageError
from gpusize.base.text import shown

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lightkube.config.kubeconfig import SingleConfig

__all__ = ["Access", "ExecCredentials", "find_access"]

_EXEC_VERSIONS: Final = (
    "client.authentication.k8s.io/v1",
    "client.authentication.k8s.io/v1beta1",
    "client.authentication.k8s.io/v1alpha1",
)
_EXEC_S: Final = 60.0


class Access:
    """Where a server is, and what proves who asks.

    Attributes:
        server: its address.
        namespace: the one that the context names, else ``default``.
        context: the context's name.
        tls: checks the server's certificate and holds ours, where there is one.
        auth: what puts credentials into a request (an ``httpx2.Auth``); None for none.
    """

    def __init__(self, config: SingleConfig) -> None:
        from lightkube.config.client_adapter import user_auth, verify_cluster
        from lightkube.config.models import User
        from lightkube.core.exceptions import ConfigError as Unreadable

        user = config.user or User()
        self.server: str = config.cluster.server.rstrip("/")
        self.namespace: str = config.namespace
        self.context: str = config.context_name
        try:
            self.tls: ssl.SSLContext = verify_cluster(config.cluster, user, config.abs_file)
            if config.cluster.insecure:
                self.tls.check_hostname = False
                self.tls.verify_mode = ssl.CERT_NONE
            if user.token_file is not None:
                user.token_file = str(config.abs_file(user.token_file))
            self.auth: Any = _exec_auth(user.exec, self.tls, config) if user.exec else user_auth(user)
        except GpusizeError:  # of the command that hands out credentials
            raise
        except (Unreadable, OSError, ValueError) as problem:
            raise ConfigError(
                f"the credentials of context {config.context_name} cannot be used: {problem}",
                str(config.fname or "kubeconfig"),
                "check them: kubectl auth whoami",
            ) from problem


def find_access(kubeconfig: str | None = None, context: str | None = None) -> Access:
    """Find the server and the credentials.

    Without ``kubeconfig``: the account of the pod that this runs in, else ``$KUBECONFIG``, else ``~/.kube/config``.

    Args:
        kubeconfig: path of one.
        context: one of its contexts; the current one by default.

    Raises:
        EnvironmentLacks: lightkube is not installed.
        ConfigError: no kubeconfig, or one that cannot be used.
        UsageError: there is no such context.
    """
    try:
        from lightkube.config.kubeconfig import KubeConfig
        from lightkube.core.exceptions import ConfigError as Unreadable
    except ImportError as missing:
        raise EnvironmentLacks(
            "the way to a Kubernetes cluster needs lightkube", None, "install it: pip install 'gpusize[kube]'"
        ) from missing
    where = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    if os.pathsep in where and not Path(where).exists():
        raise ConfigError("it names several files", where, "give the one that is meant with --kubeconfig FILE")
    try:
        found = KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_env()
    except Unreadable as problem:
        raise ConfigError(str(problem), where, "name a kubeconfig with --kubeconfig FILE") from problem
    except Exception as problem:  # whatever YAML or msgspec find in a file that is no kubeconfig
        raise ConfigError(f"this is no kubeconfig: {shown(str(problem), 200)}", where, None) from problem
    if context is not None and context not in found.contexts:
        raise UsageError(
            f'there is no context "{shown(context)}"', "--context", f"use one of: {', '.join(sorted(found.contexts))}"
        )
    try:
        single = found.get(context)
    except (Unreadable, KeyError) as problem:
        raise ConfigError(f"the context cannot be used: {problem}", where, "name one with --context NAME") from problem
    if single is None:
        raise ConfigError("it names no current context", where, "name one with --context NAME")
    return Access(single)


class ExecCredentials:
    """The credentials that a command of the kubeconfig prints, kept until they expire or are refused.

    Args:
        spec: the user's ``exec`` (``lightkube.config.models.UserExec``).
        folder: what a relative command counts from.
    """

    def __init__(self, spec: Any, folder: Path | None) -> None:
        if spec.apiVersion not in _EXEC_VERSIONS:
            raise ValueError(f"exec of version {spec.apiVersion} is not known; these are: {', '.join(_EXEC_VERSIONS)}")
        self._spec = spec
        self._folder = folder
        self._status: dict[str, Any] | None = None

    @property
    def expired(self) -> bool:
        """Whether the command has to be asked before the next request."""
        return self._status is None or _expired(self._status)

    def status(self, *, fresh: bool = False) -> dict[str, Any]:
        """What the command printed as ``status``: ``token``, or ``clientCertificateData`` and ``clientKeyData``.

        Raises:
            TargetError: the command failed, or printed something else.
        """
        if self._status is None or fresh or _expired(self._status):
            self._status = self._ask()
        return self._status

    def _ask(self) -> dict[str, Any]:
        spec = self._spec
        asked = {"apiVersion": spec.apiVersion, "kind": "ExecCredential", "spec": {"interactive": False}}
        environment = {**os.environ, "KUBERNETES_EXEC_INFO": json.dumps(asked)}
        environment.update({pair.name: pair.value for pair in spec.env or []})
        command = spec.command
        # As kubectl: a path with a slash counts from the kubeconfig's folder, a bare name is looked up.
        if "/" in command and not Path(command).is_absolute() and self._folder is not None:
            command = str(self._folder / command)
        where = f"credentials command {shown(spec.command, 80)}"
        try:
            done = subprocess.run(
                [command, *(spec.args or [])],
                check=True,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=environment,
                timeout=_EXEC_S,
            )
            status = json.loads(done.stdout)["status"]
        except subprocess.CalledProcessError as problem:
            said = shown((problem.stderr or b"").decode("utf-8", "replace").strip(), 300)
            raise TargetError(f"it ended with {problem.returncode}: {said}", where, None) from problem
        except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError) as problem:
            raise TargetError(f"it gave no credentials: {problem}", where, spec.installHint) from problem
        if not isinstance(status, dict):
            raise TargetError("it gave no credentials: status is no object", where, None)
        return status


def _expired(status: dict[str, Any]) -> bool:
    until = status.get("expirationTimestamp")
    if not isinstance(until, str):
        return False
    return datetime.fromisoformat(until) <= datetime.now(UTC)


def _exec_auth(spec: Any, tls: ssl.SSLContext, config: SingleConfig) -> Any:
    import httpx2

    credentials = ExecCredentials(spec, config.fname.parent if config.fname else None)
    loaded: list[Any] = [None]

    def current(*, fresh: bool = False) -> dict[str, Any]:
        """What the command says now; its certificate holds for connections that are opened from now on."""
        status = credentials.status(fresh=fresh)
        certificate = status.get("clientCertificateData")
        if certificate and certificate != loaded[0]:
            _load_certificate(tls, status)
            loaded[0] = certificate
        return status

    current()
    one_at_a_time = asyncio.Lock()

    class Bearer(httpx2.Auth):
        """Asks the command again when its answer has expired, and once when the server refuses it."""

        async def async_auth_flow(self, request: Any) -> AsyncGenerator[Any, Any]:
            # In a thread: other requests go on meanwhile.
            async with one_at_a_time:
                status = await asyncio.to_thread(current) if credentials.expired else current()
            token = status.get("token")
            if token:
                request.headers["Authorization"] = f"Bearer {token}"
            response = yield request
            if response.status_code == 401:
                async with one_at_a_time:
                    # Somebody else may have asked meanwhile.
                    if credentials.status().get("token") == token:
                        status = await asyncio.to_thread(current, fresh=True)
                    else:
                        status = current()
                if status.get("token"):
                    request.headers["Authorization"] = f"Bearer {status['token']}"
                yield request

    return Bearer()


def _load_certificate(tls: ssl.SSLContext, status: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pair = [Path(folder) / "cert.pem", Path(folder) / "key.pem"]
        for file, key in zip(pair, ("clientCertificateData", "clientKeyData"), strict=True):
            file.touch(mode=0o600)
            file.write_text(str(status.get(key) or ""))
        tls.load_cert_chain(pair[0], pair[1])
