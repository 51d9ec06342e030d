"""Requests to an API server: objects as dictionaries, refusals as `KubeRefused`, lists page by page."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, Self

from gpusize.base.errors import GpusizeError, TargetError, UsageError
from gpusize.cluster.access.refused import KubeRefused
from gpusize.cluster.access.sign_in import Access, find_access
from gpusize.cluster.access.stream import Broken
from gpusize.cluster.access.wire import Wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from types import TracebackType

__all__ = ["Answer", "KubeApi", "Resource", "connect"]

_PAGE: Final = 500
_TIMEOUT_S: Final = 30.0
_PROOF_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind as the server knows it.

    Attributes:
        api_version: such as ``batch/v1``; ``v1`` for the core group.
        kind: such as ``Job``.
        plural: its word in paths, such as ``jobs``.
        namespaced: whether its objects live in namespaces.
    """

    api_version: str
    kind: str
    plural: str
    namespaced: bool

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """Path of the collection, in one namespace or in all (None), or of one object in it."""
        group = f"/api/{self.api_version}" if "/" not in self.api_version else f"/apis/{self.api_version}"
        inside = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{group}{inside}/{self.plural}" + (f"/{name}" if name else "")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the server, whatever its status.

    Attributes:
        status: HTTP status.
        headers: names in lower case.
        body: bytes.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body's contents."""
        return json.loads(self.body)

    @property
    def retry_after_s(self) -> float | None:
        """How long the server asks to wait, in seconds; None where it does not (RFC 9110, 10.2.3)."""
        said = self.headers.get("retry-after", "").strip()
        if said.isascii() and said.isdigit():
            return float(said)
        # The other form is a time, by the server's clock, which it tells in the same answer.
        until, now = _time_of(said), _time_of(self.headers.get("date", ""))
        return None if until is None else max((until - (now or datetime.now(UTC))).total_seconds(), 0.0)


def _time_of(date: str) -> datetime | None:
    """An HTTP date; None for what is none."""
    try:
        found = parsedate_to_datetime(date)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


class KubeApi:
    """One API server, asked as one user. To be used as ``async with``.

    Args:
        access: where it is and who asks.
        connections: how many requests may be under way at once; watches count.
    """

    def __init__(self, access: Access, connections: int = 256) -> None:
        import httpx2

        self.access = access
        self.server = access.server
        self.namespace = access.namespace
        self.context = access.context
        self._client = httpx2.AsyncClient(
            base_url=access.server,
            verify=access.tls,
            auth=access.auth,
            timeout=httpx2.Timeout(_TIMEOUT_S),
            # As everywhere here: no proxy of the environment. Watches and creations have connections of their own.
            trust_env=False,
            limits=httpx2.Limits(max_connections=connections, max_keepalive_connections=connections),
        )
        self._resources: dict[tuple[str, str], Resource] = {}
        self._auth = access.auth
        self._proof: tuple[float, str | None] | None = None
        self._wire = Wire(access.server, access.tls)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wire.close()
        await self._client.aclose()

    async def post(self, path: str, content: bytes, *, accept: str = "application/json") -> Answer:
        """Send one object, at as little cost as can be, and take its answer, whatever its status.

        Raises:
            TargetError: no answer came.
        """
        headers = [(b"Accept", accept.encode()), (b"Content-Type", b"application/json")]
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                if (proof := await self._proven()) is not None:
                    headers.append((b"Authorization", proof.encode()))
                status, told, body = await self._wire.ask("POST", path, headers, content)
        except GpusizeError:
            raise
        except OSError as problem:  # a TimeoutError among them
            raise self._unreached(path, problem) from problem
        if status == 401:
            # The general client asks for other credentials, where there may be some.
            self._proof = None
            return await self.ask("POST", path, content=content, accept=accept)
        return Answer(status, {name.decode("latin-1"): value.decode("latin-1") for name, value in told}, body)

    async def _proven(self) -> str | None:
        """What goes into ``Authorization``: what the way to sign in puts there, asked for once a second."""
        import httpx2

        if self._auth is None:
            return None
        now = asyncio.get_running_loop().time()
        if self._proof is None or now - self._proof[0] > _PROOF_S:
            flow = self._auth.async_auth_flow(httpx2.Request("POST", self.server))
            try:
                self._proof = (now, (await anext(flow)).headers.get("Authorization"))
            finally:
                await flow.aclose()
        return self._proof[1]

    async def ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        content: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout_s: float | None = None,
    ) -> Answer:
        """Send one request and take its answer, whatever its status.

        Raises:
            Broken: connected, and no answer came.
            TargetError: no connection.
        """
        import httpx2
        from lightkube.core.exceptions import ConfigError as Unreadable

        headers = {"Accept": accept} | ({"Content-Type": content_type} if content is not None else {})
        try:
            answer = await self._client.request(
                method,
                path,
                params=dict(params) if params else None,
                content=content,
                headers=headers,
                timeout=timeout_s if timeout_s is not None else httpx2.USE_CLIENT_DEFAULT,
            )
        except GpusizeError:  # of the command that hands out credentials
            raise
        except (httpx2.HTTPError, OSError, Unreadable) as problem:
            raise self._unreached(path, problem) from problem
        return Answer(answer.status_code, answer.headers, answer.content)

    async def request(
        self, method: str, path: str, body: object = None, *, patch: str = "merge-patch", **more: Any
    ) -> Any:
        """Send one request, its body as JSON, and return what the answer's JSON holds.

        Args:
            method: of HTTP.
            path: on the server.
            body: what is sent; None for nothing.
            patch: which kind of patch a ``PATCH`` is: ``merge-patch``, ``strategic-merge-patch``, ``json-patch`` or
                ``apply-patch``.
            more: as `ask` has them.

        Raises:
            KubeRefused: the server refused it.
            TargetError: no answer came.
        """
        content = None if body is None else json.dumps(body).encode()
        kind = f"application/{patch}+json" if method == "PATCH" else "application/json"
        answer = await self.ask(method, path, content=content, content_type=kind, **more)
        if answer.status >= 400:
            raise KubeRefused.answered(answer.status, answer.body, f"{method} {path}", answer.retry_after_s)
        return answer.json() if answer.body else None

    async def pages(
        self, path: str, params: Mapping[str, str] | None = None, *, accept: str = "application/json"
    ) -> AsyncIterator[dict[str, Any]]:
        """A list, page by page: each the server's list object, the last one's ``metadata`` with its version.

        Raises:
            KubeRefused: the server refused it.
            TargetError: no answer came.
        """
        asked = {"limit": str(_PAGE), **(params or {})}
        while True:
            page = await self.request("GET", path, params=asked, accept=accept)
            yield page
            onward = (page.get("metadata") or {}).get("continue")
            if not onward:
                return
            asked = {**asked, "continue": onward}

    async def resource(self, api_version: str, kind: str) -> Resource:
        """The kind as the server knows it; asked once.

        Raises:
            UsageError: it does not know it.
            KubeRefused, TargetError: it could not be asked.
        """
        if (api_version, kind) not in self._resources:
            group = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
            try:
                known = await self.request("GET", group)
            except KubeRefused as refused:
                if refused.status != 404:
                    raise
                known = {"resources": []}
            for each in known["resources"]:
                if "/" not in each["name"]:
                    found = Resource(api_version, each["kind"], each["name"], bool(each["namespaced"]))
                    self._resources[api_version, each["kind"]] = found
        if (api_version, kind) not in self._resources:
            raise UsageError(
                f"the cluster knows no {kind} of {api_version}",
                self.server,
                "install what brings it, or take another --workload-type",
            )
        return self._resources[api_version, kind]

    def _unreached(self, path: str, problem: Exception) -> TargetError:
        import httpx2

        what = (str(problem) or type(problem).__name__).rstrip(".")
        unconnected = isinstance(problem, (httpx2.ConnectError, httpx2.ConnectTimeout, ConnectionRefusedError))
        kind = TargetError if unconnected else Broken
        return kind(f"no answer from the API server: {what}", f"{self.server}{path}", "check that it runs")


def connect(kubeconfig: str | None = None, context: str | None = None, *, connections: int = 256) -> KubeApi:
    """Make ready to ask a cluster's API server; nothing is sent yet.

    Args:
        kubeconfig: path of a kubeconfig; as `find_access` finds one by default.
        context: one of its contexts; the current one by default.
        connections: how many requests may be under way at once.

    Raises:
        EnvironmentLacks: lightkube is not installed.
        ConfigError: no kubeconfig, or one that cannot be used.
    """
    return KubeApi(find_access(kubeconfig, context), connections)
