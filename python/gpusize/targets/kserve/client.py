"""Questions to a KServe v2 server beside the load: what a model takes, what was counted, which models there are."""

from __future__ import annotations

import functools
import json
import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote

from gpusize.base.errors import TargetError
from gpusize.base.secrets import without_secrets
from gpusize.base.text import shown
from gpusize.targets.kserve.metadata import ModelMetadata, parse_metadata
from gpusize.targets.kserve.responses import (
    Response,
    StatsUnavailable,
    bounded,
    error_text,
    index_names,
    model_stats,
    must_be_object,
    parsed,
    unknown_model,
)

if TYPE_CHECKING:
    import httpx

__all__ = ["GrpcClient", "HttpClient", "KserveClient", "connect"]


_TIMEOUT_S: Final = 30.0
_NOT_FOUND: Final = 5
_NOT_IMPLEMENTED: Final = 501
_PASSING: Final = frozenset({1, 4, 8, 10, 13, 14})
"""Statuses of gRPC after which asking again may help, UNAVAILABLE (14) among them."""
_SERVICE: Final = "/inference.GRPCInferenceService/"

GrpcCall = Callable[[str, str, bytes, int], tuple[int, str, bytes]]
Encode = Callable[[str, str, list[bytes]], bytes]
Decode = Callable[[str, bytes], str]


class KserveClient(Protocol):
    """A server that can be asked about its models."""

    where: str

    def metadata(self, model: str, version: str | None = None) -> ModelMetadata:
        """What ``model`` takes and gives.

        Raises:
            TargetError: no answer, none that can be read, or no such model.
        """

    def statistics(self) -> list[dict[str, Any]]:
        """Triton's ``model_stats`` of all models.

        Raises:
            StatsUnavailable: the server gives none, now or later, with the reason.
            TargetError: no answer this time.
        """

    def models(self) -> list[str]:
        """Names of the models that exist, as far as the server tells."""


def connect(spec: Mapping[str, Any], *, grpc: bool, prefix: str = "") -> KserveClient:
    """A client for the engine's TargetSpec: the same address, certificates and headers as the load.

    Args:
        spec: the TargetSpec; it holds the secrets.
        grpc: whether the server is asked over gRPC.
        prefix: what stands before ``/v2`` in the path.
    """
    if not grpc:
        return HttpClient(spec, prefix)
    from gpusize.engine.session import core

    extension = core()
    return GrpcClient(spec, extension.grpc_call, extension.kserve_encode, extension.kserve_decode)


class HttpClient:
    """The REST protocol.

    Args:
        spec: the engine's TargetSpec.
        prefix: what stands before ``/v2``.
        transport: httpx's transport; for tests.
    """

    def __init__(self, spec: Mapping[str, Any], prefix: str = "", *, transport: Any = None) -> None:
        tls = spec.get("tls")
        host = f"[{spec['host']}]" if ":" in spec["host"] else spec["host"]
        self.where = f"{'https' if tls else 'http'}://{host}:{spec['port']}{prefix}"
        self._headers = {name: value for name, value in spec["headers"] if name.lower() not in _OF_THE_LOAD}
        self._secrets = _secrets(spec)
        self._tls = tls
        self._transport = transport

    def metadata(self, model: str, version: str | None = None) -> ModelMetadata:
        """As `KserveClient.metadata`: ``GET /v2/models/M`` and ``/config``."""
        path = _model_path(model, version)
        answer = self._ask("GET", path)
        if answer.status != 200:
            if answer.status == 404:
                raise unknown_model(model, self.where, self.models())
            raise TargetError(
                f"the metadata of {shown(model)} was answered with status {answer.status}: {answer.message}",
                f"{self.where}{path}",
                "is this a KServe v2 server, and is the model ready?",
            )
        must_be_object(answer, f"{self.where}{path}")
        config = self._ask("GET", f"{path}/config")
        known = config.value if config.status == 200 and isinstance(config.value, dict) else None
        return parse_metadata(answer.value, known, f"{self.where}{path}", version)

    def statistics(self) -> list[dict[str, Any]]:
        """As `KserveClient.statistics`: ``GET /v2/models/stats``."""
        answer = self._ask("GET", "/v2/models/stats")
        if answer.status != 200:
            said = f"it answered with status {answer.status}: {answer.message}"
            if answer.status >= 500 and answer.status != _NOT_IMPLEMENTED:
                raise TargetError(f"no statistics this time, {said}", self.where, None)
            raise StatsUnavailable(said)
        return model_stats(answer.value)

    def models(self) -> list[str]:
        """As `KserveClient.models`: ``POST /v2/repository/index``."""
        try:
            answer = self._ask("POST", "/v2/repository/index")
        except TargetError:
            return []
        return (index_names(answer.value) if answer.status == 200 else []) or _counted(self)

    @functools.cached_property
    def _client(self) -> httpx.Client:
        import httpx

        # Nothing stays open between two questions, so nothing has to be closed at the end.
        once = httpx.Limits(max_keepalive_connections=0)
        verify = _context(self._tls) if self._tls else False
        return httpx.Client(verify=verify, timeout=_TIMEOUT_S, trust_env=False, limits=once, transport=self._transport)

    def _ask(self, method: str, path: str) -> Response:
        import httpx

        content = b"{}" if method == "POST" else None
        try:
            with self._client.stream(method, f"{self.where}{path}", headers=self._headers, content=content) as response:
                body = bounded(response.iter_bytes(), f"{self.where}{path}")
                status = response.status_code
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as problem:
            what = without_secrets(shown(str(problem), 200), self._secrets)
            todo = "is the server running, and is the address right?"
            if isinstance(problem, httpx.RemoteProtocolError):
                todo = "if this is the port of gRPC, use --api kserve-grpc"
            raise TargetError(f"cannot ask for the model: {what}", self.where, todo) from None
        if status != 200:
            return Response(status, None, error_text(body, self._secrets))
        return parsed(status, body)


class GrpcClient:
    """The gRPC protocol.

    Args:
        spec: the engine's TargetSpec.
        call: ``_core.grpc_call``: (target, method, message, timeout in ns) to (status, text, message).
        encode: ``_core.kserve_encode``: (method, JSON, raw contents) to a message.
        decode: ``_core.kserve_decode``: (method, message) to JSON.
    """

    def __init__(self, spec: Mapping[str, Any], call: GrpcCall, encode: Encode, decode: Decode) -> None:
        host = f"[{spec['host']}]" if ":" in spec["host"] else spec["host"]
        self.where = f"grpc://{host}:{spec['port']}"
        self._spec = json.dumps(dict(spec))
        self._secrets = _secrets(spec)
        self._call, self._encode, self._decode = call, encode, decode

    def metadata(self, model: str, version: str | None = None) -> ModelMetadata:
        """As `KserveClient.metadata`: ModelMetadata and ModelConfig."""
        asked = {"name": model, **({"version": version} if version else {})}
        answer = self._ask("ModelMetadata", asked)
        if answer.status == _NOT_FOUND:
            raise unknown_model(model, self.where, self.models())
        if answer.status != 0:
            raise TargetError(
                f"the metadata of {shown(model)} was answered with gRPC status {answer.status}: {answer.message}",
                self.where,
                "is this the server's gRPC port, and is the model ready?",
            )
        must_be_object(answer, self.where)
        config = self._ask("ModelConfig", asked)
        known = config.value.get("config") if config.status == 0 and isinstance(config.value, dict) else None
        return parse_metadata(answer.value, known if isinstance(known, dict) else None, self.where, version)

    def statistics(self) -> list[dict[str, Any]]:
        """As `KserveClient.statistics`: ModelStatistics of all models."""
        answer = self._ask("ModelStatistics", {})
        if answer.status != 0:
            said = f"it answered with gRPC status {answer.status}: {answer.message}"
            # A restricted service is UNAVAILABLE like one that is down; its words tell them apart.
            restricted = "restricted" in answer.message or "expecting header" in answer.message
            if answer.status in _PASSING and not restricted:
                raise TargetError(f"no statistics this time, {said}", self.where, None)
            raise StatsUnavailable(said)
        return model_stats(answer.value)

    def models(self) -> list[str]:
        """As `KserveClient.models`: RepositoryIndex, where the extension knows that message."""
        try:
            answer = self._ask("RepositoryIndex", {})
        except (TargetError, ValueError):
            return _counted(self)
        return (index_names(answer.value) if answer.status == 0 else []) or _counted(self)

    def _ask(self, method: str, request: Mapping[str, Any]) -> Response:
        message = self._encode(method, json.dumps(request), [])
        status, said, body = self._call(self._spec, _SERVICE + method, message, int(_TIMEOUT_S * 1e9))
        if status != 0:
            return Response(status, None, without_secrets(shown(said, 300), self._secrets))
        return parsed(0, self._decode(method, body).encode())


def _counted(client: KserveClient) -> list[str]:
    """Names of the models that the server counts: an index may be empty, as it is with models given by a program."""
    try:
        return index_names(client.statistics())
    except (TargetError, StatsUnavailable):
        return []


_OF_THE_LOAD: Final = frozenset({"content-type", "accept", "inference-header-content-length"})


def _context(tls: Mapping[str, Any]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.get("ca_file"))
    if tls.get("insecure"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _secrets(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The values of the target's headers: some servers repeat what they refuse."""
    values = {value for name, value in spec["headers"] if name.lower() not in {*_OF_THE_LOAD, "user-agent"}}
    return tuple(word for value in values for word in {value, value.rpartition(" ")[2]} if len(word) >= 4)


def _model_path(model: str, version: str | None) -> str:
    tail = f"/versions/{quote(version, safe='')}" if version else ""
    return f"/v2/models/{quote(model, safe='')}{tail}"
