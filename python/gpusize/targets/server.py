"""Where to send requests, which API is spoken there, and how many GPUs stand behind it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from gpusize.base.errors import UsageError
from gpusize.base.secrets import is_secret, resolve, secret_words
from gpusize.base.text import shown
from gpusize.base.units import seconds_to_ns
from gpusize.base.urls import Address, parse_url
from gpusize.targets.apis import Api, ApiOptions, create_api, guess_api
from gpusize.targets.apis.kserve import is_kserve
from gpusize.targets.kserve.mix import parse_models
from gpusize.targets.server_checks import Balance, check_kinds_of, check_target, checked_headers
from gpusize.targets.server_facts import options_of, public_of

if TYPE_CHECKING:
    from gpusize.base.urls import Address

__all__ = ["Balance", "Target"]

_METHOD: Final = re.compile(r"[A-Z]{1,20}")
MAX_HEADER_BYTES: Final = 65_536
MAX_BODY_BYTES: Final = 1 << 30


@dataclass(frozen=True, repr=False)
class Target:
    """A server under test.

    Args:
        url: ``http://`` or ``https://`` address; without a path (or with ``/v1``) the API's own path is added.
            ``grpc://`` and ``grpcs://`` are the same with the KServe API over gRPC as default.
        api: name of the API (`gpusize.targets.apis.api_names`); None: guessed from the path.
        model: name of the model to ask for; of several, a mix with weights, ``a=3,b=1``.
        headers: further headers. A value may be ``env:VARIABLE`` or ``file:PATH``, also after a scheme such as
            ``Bearer``; it is read when the run starts.
        api_key_env: environment variable whose value is sent as ``Authorization: Bearer``.
        gpus: GPUs that serve this target.
        timeout_s: bound on one request, from its first byte out to the last byte in.
        connect_timeout_s: bound on TCP connect and TLS handshake together.
        resolve_every_s: from one resolving of the host names to the next, for connections that are opened later; 0:
            only after connects that failed.
        cacert: PEM file of the authorities to trust instead of the system's.
        insecure: accept any certificate; the report says so.
        method: HTTP method.
        stream: ask for a stream of events where the API has one.
        max_tokens: bound on generated tokens.
        temperature: sampling temperature.
        extra_body: further members of the request body.
        body_template: body with placeholders, as text or as a file's path (`gpusize.targets.apis.template`).
        content_type: of the request body.
        response: fields of `gpusize.targets.apis.ResponseSpec` that differ from the API's own.
        replicas: addresses of further replicas of the same service; path, headers and API are those of ``url``.
        balance: which replica gets the next request.
        http2: speak HTTP/2, by prior knowledge over plain TCP; gRPC always does.
        streams: requests that share an HTTP/2 connection at the same time.
        record_events: keep the time of every event with content, in the records' ``events_ns``.
        output_length: ``max``: a row's ``output_tokens`` bounds its answer; ``exact``: the server is asked for just so
            many, with ``min_tokens`` and ``ignore_eos``.
        history: what the earlier turns of a conversation say: ``recorded``: what the dataset holds; ``answers``: what
            this server answered to them.

    Raises:
        UsageError: an invalid address, name or number.
    """

    url: str
    api: str | None = None
    model: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    api_key_env: str | None = None
    gpus: int | None = None
    timeout_s: float = 300.0
    connect_timeout_s: float = 5.0
    cacert: str | None = None
    insecure: bool = False
    method: str = "POST"
    stream: bool = True
    max_tokens: int | None = None
    temperature: float | None = None
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    body_template: str | None = None
    content_type: str = "application/json"
    response: Mapping[str, Any] = field(default_factory=dict)
    replicas: Sequence[str] = ()
    balance: Balance = "round_robin"
    http2: bool = False
    streams: int = 1
    record_events: bool = False
    output_length: Literal["max", "exact"] = "max"
    history: Literal["recorded", "answers"] = "recorded"
    resolve_every_s: float = 30.0

    api_is_open: bool = field(default=False, init=False, compare=False)
    """Whether neither the user nor the address said which API it is, so that a dataset may decide."""

    api_is_guessed: bool = field(default=False, init=False, compare=False)
    """Whether the path alone decided on the API."""

    stream_models: tuple[str, ...] = field(default=(), init=False)
    """The models that the streams of a load ask for, those of ``model`` among them where a stream names none."""

    def __post_init__(self) -> None:
        check_kinds_of(self)
        if self.url.startswith(("grpc://", "grpcs://")):
            object.__setattr__(self, "api", self.api or "kserve-grpc")
        address = parse_url(self.url)
        method = self.method.upper()
        if not _METHOD.fullmatch(method) or method in {"CONNECT", "TRACE"}:
            raise UsageError(f'"{shown(self.method)}" is not a method that can be sent', "method", "use POST or GET")
        object.__setattr__(self, "method", method)
        name = self.api or guess_api(address.path, method)
        unsaid = _is_base(address.path) or name == "generic"
        object.__setattr__(self, "api_is_open", self.api is None and unsaid)
        object.__setattr__(self, "api_is_guessed", self.api is None)
        object.__setattr__(self, "api", name)
        object.__setattr__(self, "url", address.url(self._path(address, name)))
        object.__setattr__(self, "headers", checked_headers(self.headers, self.api_key_env))
        check_target(self, tls=address.tls)
        object.__setattr__(self, "replicas", tuple(self._replica(address, other) for other in self.replicas))

    def _replica(self, first: Address, other: str) -> str:
        address = parse_url(other)
        if address.tls != first.tls:
            raise UsageError("some replicas use TLS and others do not", f'URL "{shown(other)}"', "use one way")
        known = {"", "/v1", first.path.rstrip("/"), self.address.path.rstrip("/")}
        if address.path.rstrip("/") not in known:
            raise UsageError(
                "the replicas have different paths", f'URL "{shown(other)}"', "give the same path, or none"
            )
        return address.url(self.address.path)

    def _path(self, address: Address, name: str) -> str:
        if not _is_base(address.path):
            return address.path
        before = address.path.rstrip("/").removesuffix("/v1")
        default = create_api(name, self.api_options()).default_path
        return before + default if default.startswith("/v1/") or not address.path.rstrip("/") else address.path

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The parsed addresses of all replicas, the first one included."""
        return (self.address, *map(parse_url, self.replicas))

    @property
    def address(self) -> Address:
        """Host, port and path."""
        return parse_url(self.url)

    @property
    def models(self) -> dict[str, int]:
        """The models that are asked for, with their weights; none where only the rows name them, or nobody does."""
        if self.stream_models:
            return dict.fromkeys(self.stream_models, 1)
        return parse_models(self.model) if self.model else {}

    def asking(self, models: Sequence[str]) -> Target:
        """The same target, asked for the models of a load's streams; ``model`` stays what the user said.

        Args:
            models: names of models, in the order of the streams.
        """
        made = replace(self)
        object.__setattr__(made, "stream_models", tuple(models))
        return made

    @property
    def asked_for(self) -> str | None:
        """The models that are asked for as one text, with weights as the user wrote them; None where nobody says."""
        return ",".join(self.stream_models) or self.model

    @property
    def tls_verified(self) -> bool | None:
        """Whether the server's certificate is checked; None without TLS."""
        return not self.insecure if self.address.tls else None

    def api_options(self) -> ApiOptions:
        """What the API gets to know."""
        kserve, mixed = is_kserve(self.api), len(self.models) > 1
        return ApiOptions(
            model=self.model if kserve else None if mixed else next(iter(self.models), None),
            stream=self.stream,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            extra_body=self.extra_body,
            body_template=self.body_template,
            method=self.method,
            content_type=self.content_type,
            response=self.response,
            output_length=self.output_length,
            row_models=mixed and not kserve,
        )

    def speaking(self, api: str | None) -> Target:
        """The same target with the API that a dataset is for, where nothing else decides on it.

        Args:
            api: the API's name; None where the dataset names none.
        """
        if api is None or api == self.api or not self.api_is_open:
            return self
        if self.api == "generic":
            return replace(self, api=api)
        # Chat's own path was added, as nothing else was said: what stood before it is all that the user gave.
        versioned = create_api(api, self.api_options()).default_path.startswith("/v1/")
        base = self.address.path.removesuffix("/chat/completions") if versioned else ""
        bare = [parse_url(url).url(base) for url in self.urls]
        return replace(self, url=bare[0], replicas=tuple(bare[1:]), api=api)

    def make_api(self) -> Api:
        """The API that this target speaks, with this target's options.

        Raises:
            UsageError: no such API, or options that it cannot take.
        """
        return create_api(str(self.api), self.api_options())

    def to_spec(self, api: Api | None = None) -> dict[str, Any]:
        """The engine's TargetSpec. Holds the secrets: hand it to the engine and to nothing else.

        Args:
            api: when it was made already.

        Raises:
            UsageError: a secret cannot be read, or options that the API cannot take.
        """
        spoken = api or self.make_api()
        return {
            **self._endpoint(self.address),
            "replicas": [self._endpoint(parse_url(url)) for url in self.replicas],
            "balance": self.balance,
            "transport": getattr(spoken, "transport", "http2" if self.http2 else "http1"),
            "streams": self.streams,
            "record_events": self.record_events,
            "method": self.method,
            "path": self.address.path or "/",
            "headers": [[name, value] for name, value in self._sent_headers(spoken)],
            "connect_timeout_ns": seconds_to_ns(self.connect_timeout_s),
            "timeout_ns": seconds_to_ns(self.timeout_s),
            "resolve_every_ns": seconds_to_ns(self.resolve_every_s),
            "max_header_bytes": MAX_HEADER_BYTES,
            "max_body_bytes": MAX_BODY_BYTES,
            "response": spoken.response(),
        }

    def _endpoint(self, address: Address) -> dict[str, Any]:
        tls = None
        if address.tls:
            tls = {"server_name": address.host, "ca_file": self.cacert, "insecure": self.insecure}
        return {"host": address.host, "port": address.port, "tls": tls}

    def secret_words(self) -> tuple[str, ...]:
        """What no message may show: the secrets among the headers, as they are sent.

        Raises:
            UsageError: a secret cannot be read.
        """
        return secret_words(self._own_headers())

    def _own_headers(self) -> dict[str, str]:
        own = dict(self.headers)
        if self.api_key_env:
            own["Authorization"] = f"Bearer env:{self.api_key_env}"
        return own

    def _sent_headers(self, api: Api) -> list[tuple[str, str]]:
        own = self._own_headers()
        taken = {name.lower() for name in own}
        base = [("User-Agent", "gpusize"), *api.headers()]
        sent = [(name, value) for name, value in base if name.lower() not in taken]
        return sent + [(name, resolve(name, value)) for name, value in own.items()]

    def notes(self) -> list[str]:
        """What the user should know about the way to this target."""
        notes = []
        address = self.address
        if self.insecure:
            notes.append(f"{address.host}: the server's certificate is not checked")
        if self.has_key and not address.tls and not address.is_loopback:
            notes.append(f"{address.host}: a secret is sent unencrypted: the address is http://")
        notes += [note for note in [proxy_note(address)] if note is not None]
        twice = list(dict.fromkeys(url for url in self.urls if self.urls.count(url) > 1))
        return [*notes, *(f"{url} is named more than once: it gets a share of the load for each" for url in twice)]

    @property
    def has_key(self) -> bool:
        """Whether a secret is sent along."""
        return bool(self.api_key_env) or any(is_secret(name) for name in self.headers)

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses of all replicas, in the order of the records' ``target``."""
        return (self.url, *self.replicas)

    def public(self) -> list[dict[str, Any]]:
        """What ``run.json`` says about each replica: no secret, and ``simulated`` for the runner to fill.

        The GPUs are shared out evenly; where that leaves a rest, the first replica has all of them.
        """
        return public_of(self)

    def options(self) -> dict[str, Any]:
        """The options that make this target again, as ``--config`` takes them, without secrets."""
        return options_of(self)

    def __repr__(self) -> str:
        said = {"api": self.api, "model": self.model, "gpus": self.gpus}
        rest = "".join(f", {name}={value!r}" for name, value in said.items() if value is not None)
        return f"Target({self.url!r}{rest})"


def _is_base(path: str) -> bool:
    """Whether an API's own path is to be added to this one: there is none, or it ends with the version."""
    return not path.rstrip("/") or path.rstrip("/").endswith("/v1")


def proxy_note(address: Address) -> str | None:
    """What to know where the environment names a proxy for an address; None where it does not."""
    # urllib is only asked here: it takes a while to load.
    from urllib.request import getproxies_environment, proxy_bypass

    found = getproxies_environment()
    scheme = "https" if address.tls else "http"
    name = next((each for each in (scheme, "all") if found.get(each)), None)
    if name is None or address.is_loopback or proxy_bypass(f"{address.host}:{address.port}"):
        return None
    return f"{name.upper()}_PROXY is ignored: requests go to {address.host} directly"
