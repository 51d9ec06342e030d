"""Which certificates the servers beside the load are held against: metrics pages and Prometheus."""

from __future__ import annotations

import ssl
from typing import Final

from gpusize.base.errors import UsageError
from gpusize.base.text import is_file, shown
from gpusize.base.urls import without_tls

__all__ = ["Verify", "only", "prometheus_trust", "tls_context", "with_systems"]

Verify = bool | str | ssl.SSLContext
"""Whether certificates are checked; a text names a PEM file of the only authorities, a context says all of it."""

_TODO: Final = "give a PEM file of certificates"


def tls_context(verify: Verify, url: str) -> bool | ssl.SSLContext:
    """What httpx takes: a path is not among it any more."""
    return without_tls(url) or (only(verify) if isinstance(verify, str) else verify)


def only(cacert: str) -> ssl.SSLContext:
    """Trust these authorities and no others."""
    return ssl.create_default_context(cafile=cacert)


def with_systems(verify: bool | str) -> Verify:  # noqa: FBT001 -- as httpx names it
    """Trust the target's authorities beside the system's: for an address that is not the target's."""
    if isinstance(verify, bool):
        return verify
    context = ssl.create_default_context()
    context.load_verify_locations(verify)
    return context


def prometheus_trust(cacert: str | None, *, insecure: bool) -> Verify:
    """What ``prometheus_cacert`` and ``prometheus_insecure`` come to.

    Raises:
        UsageError: both are given, or a file that is none of certificates.
    """
    if cacert is None:
        return not insecure
    if insecure:
        raise UsageError("insecure and cacert contradict each other", "prometheus_cacert", "give one of them")
    if not is_file(cacert):
        raise UsageError(f"there is no such file: {shown(cacert)}", "prometheus_cacert", _TODO)
    try:
        return only(cacert)
    except ssl.SSLError:
        raise UsageError(f"no certificates are in {shown(cacert)}", "prometheus_cacert", _TODO) from None
    except OSError as problem:
        raise UsageError(f"{shown(cacert)} cannot be read: {problem.strerror}", "prometheus_cacert", _TODO) from None
