"""What is written down of a target: its replicas in ``run.json``, and the options that make it again. No secrets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusize.base.secrets import public_value
from gpusize.base.text import is_file
from gpusize.base.units import format_duration
from gpusize.targets.apis import nature_of_api

if TYPE_CHECKING:
    from gpusize.targets.server import Target

__all__ = ["options_of", "public_of"]


def public_of(target: Target) -> list[dict[str, Any]]:
    """As ``Target.public``."""
    nature = nature_of_api(str(target.api), target.api_options())
    each, rest = divmod(target.gpus or 0, len(target.urls))
    shares = [each] * len(target.urls) if not rest else [target.gpus, *[0] * len(target.replicas)]
    return [
        {
            "url": url,
            "api": target.api,
            "nature": nature,
            "model": target.asked_for,
            "gpus": None if target.gpus is None else gpus,
            "tls_verified": target.tls_verified,
            "simulated": None,
        }
        for url, gpus in zip(target.urls, shares, strict=True)
    ]


def options_of(target: Target) -> dict[str, Any]:
    """As ``Target.options``."""
    plain = ("api_key_env", "cacert", "max_tokens", "temperature", "body_template", "model", "gpus")
    options: dict[str, Any] = {"url": list(target.urls) if target.replicas else target.url, "api": target.api}
    options |= {name: getattr(target, name) for name in plain if getattr(target, name) is not None}
    for name in ("cacert", "body_template"):
        if name in options and is_file(options[name]):
            options[name] = str(Path(options[name]).absolute())
    options |= {name: dict(getattr(target, name)) for name in ("extra_body", "response") if getattr(target, name)}
    if target.headers:
        options["headers"] = {name: public_value(name, value) for name, value in target.headers.items()}
    if target.content_type != "application/json":
        options["content_type"] = target.content_type
    times = {"timeout": target.timeout_s, "connect_timeout": target.connect_timeout_s}
    options |= {name: format_duration(value) for name, value in times.items()}
    unusual = {
        "balance": (target.balance, "round_robin"),
        "http2": (target.http2, False),
        "streams": (target.streams, 1),
        "record_events": (target.record_events, False),
        "output_length": (target.output_length, "max"),
        "history": (target.history, "recorded"),
        "resolve_every": (format_duration(target.resolve_every_s), "30s"),
    }
    options |= {name: value for name, (value, usual) in unusual.items() if value != usual}
    return {**options, "method": target.method, "insecure": target.insecure, "stream": target.stream}
