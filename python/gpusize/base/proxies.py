"""Proxies that the environment names: nothing of ours goes through them, and a user who has one is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpusize.base.urls import Address

__all__ = ["proxy_note"]


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
