"""Where to send requests, which API is spoken there, and how many GPUs stand behind it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gpusize.apis import Api, ApiOptions, create_api, guess_api
from gpusize.errors import UsageError
from gpusize.headers import check_name, check_value, is_secret, public_value, resolve, secret_words
from gpusize.textio import is_file, shown
from gpusize.units import format_duration, seconds_to_ns
from gpusize.urls import Address, parse_url

__all__ = ["Target"]

_METHOD: Final = re.compile(r"[A-Z]{1,20}")
MAX_HEADER_BYTES: Final = 65_536
MAX_BODY_BYTES: Final = 1 << 30


@dataclass(frozen=True, repr=False)
class Target:
    """A server under test.

    Args:
        url: ``http://`` or ``https://`` address; without a path (or with ``/v1``) the API's own path is added.
        api: name of the API (`gpusize.apis.api_names`); None: guessed from the path.
        model: name of the model to ask for.
        headers: further headers. A value may be ``env:VARIABLE`` or ``file:PATH``, also after a scheme such as
            ``Bearer``; it is read when the run starts.
        api_key_env: environment variable whose value is sent as ``Authorization: Bearer``.
        gpus: GPUs that serve this target.
        timeout_s: bound on one request, from its first byte out to the last byte in.
        connect_timeout_s: bound on TCP connect and TLS handshake together.
        cacert: PEM file of the authorities to trust instead of the system's.
        insecure: accept any certificate; the report says so.
        method: HTTP method.
        stream: ask for a stream of events where the API has one.
        max_tokens: bound on generated tokens.
        temperature: sampling temperature.
        extra_body: further members of the request body.
        body_template: body with placeholders, as text or as a file's path (`gpusize.apis.template`).
        content_type: of the request body.
        response: fields of `gpusize.apis.ResponseSpec` that differ from the API's own.

    Raises:
        UsageError: an address, a name or a number that cannot be meant.
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

    def __post_init__(self) -> None:
        address = parse_url(self.url)
        method = self.method.upper()
        if not _METHOD.fullmatch(method) or method in {"CONNECT", "TRACE"}:
            raise UsageError(f'"{shown(self.method)}" is not a method that can be sent', "method", "use POST or GET")
        object.__setattr__(self, "method", method)
        name = self.api or guess_api(address.path, method)
        object.__setattr__(self, "api", name)
        object.__setattr__(self, "url", address.url(self._path(address, name)))
        object.__setattr__(self, "headers", self._checked_headers())
        self._check_numbers()
        self._check_tls(address)

    def _path(self, address: Address, name: str) -> str:
        if address.path.rstrip("/") not in {"", "/v1"}:
            return address.path
        default = create_api(name, self.api_options()).default_path
        return default if default.startswith("/v1/") or not address.path.rstrip("/") else address.path

    def _checked_headers(self) -> dict[str, str]:
        seen: dict[str, str] = {}
        for name, value in self.headers.items():
            if check_name(name).lower() in {other.lower() for other in seen}:
                raise UsageError(f"{name} is given twice", "header", "give it once")
            seen[name] = check_value(name, value)
        if self.api_key_env:
            check_value("Authorization", f"env:{self.api_key_env}")
        if self.api_key_env and any(name.lower() == "authorization" for name in seen):
            raise UsageError("an API key and an Authorization header are both given", "header", "give one of them")
        return seen

    def _check_numbers(self) -> None:
        for name in ("gpus", "max_tokens"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise UsageError(f"{name} is {value!r}", name, "give a whole number of 1 or more")
        for name in ("timeout_s", "connect_timeout_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
                raise UsageError(f"{name} is {value!r}", name, "give seconds, more than 0")
        if self.temperature is not None and not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise UsageError(f"a temperature of {self.temperature} cannot be meant", "temperature", "give 0 or more")

    def _check_tls(self, address: Address) -> None:
        if not address.tls and (self.insecure or self.cacert):
            raise UsageError(
                "a certificate is not checked for http://", "insecure" if self.insecure else "cacert", "use https://"
            )
        if self.insecure and self.cacert:
            raise UsageError("insecure and cacert contradict each other", "cacert", "give one of them")
        if self.cacert is not None and not is_file(self.cacert):
            raise UsageError("there is no such file", str(self.cacert), "give a PEM file of certificates")

    @property
    def address(self) -> Address:
        """Host, port and path."""
        return parse_url(self.url)

    @property
    def tls_verified(self) -> bool | None:
        """Whether the server's certificate is checked; None without TLS."""
        return not self.insecure if self.address.tls else None

    def api_options(self) -> ApiOptions:
        """What the API gets to know."""
        return ApiOptions(
            model=self.model,
            stream=self.stream,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            extra_body=self.extra_body,
            body_template=self.body_template,
            method=self.method,
            content_type=self.content_type,
            response=self.response,
        )

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
        address = self.address
        tls = None
        if address.tls:
            tls = {"server_name": address.host, "ca_file": self.cacert, "insecure": self.insecure}
        return {
            "host": address.host,
            "port": address.port,
            "tls": tls,
            "method": self.method,
            "path": address.path or "/",
            "headers": [[name, value] for name, value in self._sent_headers(spoken)],
            "connect_timeout_ns": seconds_to_ns(self.connect_timeout_s),
            "timeout_ns": seconds_to_ns(self.timeout_s),
            "max_header_bytes": MAX_HEADER_BYTES,
            "max_body_bytes": MAX_BODY_BYTES,
            "response": spoken.response(),
        }

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
        secret = self.api_key_env or any(is_secret(name) for name in self.headers)
        if secret and not address.tls and not address.is_loopback:
            notes.append(f"{address.host}: a secret travels unencrypted, the address is http://")
        return notes

    def public(self) -> dict[str, Any]:
        """What ``run.json`` says about the target: no secret, and ``simulated`` for the runner to fill."""
        return {
            "url": self.url,
            "api": self.api,
            "model": self.model,
            "gpus": self.gpus,
            "tls_verified": self.tls_verified,
            "simulated": None,
        }

    def options(self) -> dict[str, Any]:
        """The options that make this target again, as ``--config`` takes them, without secrets."""
        plain = ("api_key_env", "cacert", "max_tokens", "temperature", "body_template", "model", "gpus")
        options: dict[str, Any] = {"url": self.url, "api": self.api}
        options |= {name: getattr(self, name) for name in plain if getattr(self, name) is not None}
        for name in ("cacert", "body_template"):
            if name in options and is_file(options[name]):
                options[name] = str(Path(options[name]).absolute())
        options |= {name: dict(getattr(self, name)) for name in ("extra_body", "response") if getattr(self, name)}
        if self.headers:
            options["headers"] = {name: public_value(name, value) for name, value in self.headers.items()}
        if self.content_type != "application/json":
            options["content_type"] = self.content_type
        times = {"timeout": self.timeout_s, "connect_timeout": self.connect_timeout_s}
        options |= {name: format_duration(value) for name, value in times.items()}
        return {**options, "method": self.method, "insecure": self.insecure, "stream": self.stream}

    def __repr__(self) -> str:
        said = {"api": self.api, "model": self.model, "gpus": self.gpus}
        rest = "".join(f", {name}={value!r}" for name, value in said.items() if value is not None)
        return f"Target({self.url!r}{rest})"
