"""What a target's options must be like, before anything is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, get_args

from gpusize.base.errors import UsageError
from gpusize.base.numeric import within
from gpusize.base.secrets import check_name, check_value, secret_member
from gpusize.base.text import is_file, shown
from gpusize.base.typed import FLAG, MAPPING, SEQUENCE, TEXT, Kind, check_kinds, or_none
from gpusize.targets.apis import History
from gpusize.targets.apis.base import OutputLength

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpusize.targets.server import Target

__all__ = ["Balance", "check_kinds_of", "check_target", "checked_headers"]

Balance = Literal["round_robin", "least_outstanding"]
"""Which replica gets the next request: each in turn, or the one with the fewest requests in flight."""

_TLS_TODO: Final = "use https://; for a Prometheus server there are --prometheus-cacert and --prometheus-insecure"
_KINDS: Final[dict[str, Kind]] = {
    **dict.fromkeys(("url", "method", "content_type", "balance", "output_length", "history"), TEXT),
    **dict.fromkeys(("api", "model", "api_key_env", "cacert", "body_template"), or_none(TEXT)),
    **dict.fromkeys(("headers", "extra_body", "response"), MAPPING),
    **dict.fromkeys(("insecure", "stream", "http2", "record_events"), FLAG),
    "replicas": SEQUENCE,
    "streams": ((int,), "a whole number"),
}
_WORDS: Final = (
    ("balance", get_args(Balance)),
    ("output_length", get_args(OutputLength)),
    ("history", get_args(History)),
)


def checked_headers(headers: Mapping[str, str], api_key_env: str | None) -> dict[str, str]:
    """The user's own headers, names and values checked; secrets stay references.

    Raises:
        UsageError: a header that cannot be sent, or is given twice.
    """
    seen: dict[str, str] = {}
    for name, value in headers.items():
        if check_name(name).lower() in {other.lower() for other in seen}:
            raise UsageError(f"{name} is given twice", "header", "give it once")
        seen[name] = check_value(name, value)
    if api_key_env:
        check_value("Authorization", f"env:{api_key_env}")
    if api_key_env and any(name.lower() == "authorization" for name in seen):
        raise UsageError("an API key and an Authorization header are both given", "header", "give one of them")
    return seen


def check_kinds_of(target: Target) -> None:
    """Refuse arguments of other kinds, before any of them is used.

    Raises:
        UsageError: with the argument's name.
    """
    check_kinds(target, _KINDS)
    if isinstance(target.replicas, str) or not all(isinstance(url, str) for url in target.replicas):
        raise UsageError("replicas are not a list of addresses", "replicas", "give a list of texts")


def check_target(target: Target, *, tls: bool) -> None:
    """Refuse invalid numbers, words and files.

    Raises:
        UsageError: with the option's name.
    """
    _check_numbers(target)
    secret = secret_member(target.extra_body)
    if secret is not None:
        todo = (
            'send it as a header: --header "Authorization: Bearer env:VARIABLE"; or keep the body in a --body-template'
        )
        raise UsageError(f"{shown(secret)} holds a secret, which would be stored with the run", "extra_body", todo)
    for name, known in _WORDS:
        value = getattr(target, name)
        if value not in known:
            raise UsageError(f'"{shown(value)}" is not a {name}', name, f"use {' or '.join(known)}")
    _check_tls(target, tls=tls)


def _check_numbers(target: Target) -> None:
    for name in ("gpus", "max_tokens", "streams"):
        value = getattr(target, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise UsageError(f"{shown(repr(value))} is not a whole number", name, "give a whole number of 1 or more")
        if value is not None:
            within(name, value)
    if target.streams > 1 and not target.http2 and getattr(target.make_api(), "transport", "http1") == "http1":
        raise UsageError("HTTP/1.1 carries one request at a time", "streams", "give --http2 as well, or 1")
    for name in ("timeout_s", "connect_timeout_s", "resolve_every_s"):
        value = getattr(target, name)
        within(name.removesuffix("_s"), _number(value, name), name)
    drawn = target.temperature
    if drawn is not None:
        within("temperature", _number(drawn, "temperature"))


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{shown(repr(value))} is not a number", name, "give a number")
    return value


def _check_tls(target: Target, *, tls: bool) -> None:
    if not tls and (target.insecure or target.cacert):
        raise UsageError(
            "a certificate is not checked for http://", "insecure" if target.insecure else "cacert", _TLS_TODO
        )
    if target.insecure and target.cacert:
        raise UsageError("insecure and cacert contradict each other", "cacert", "give one of them")
    if target.cacert is not None and not is_file(target.cacert):
        raise UsageError("there is no such file", str(target.cacert), "give a PEM file of certificates")
