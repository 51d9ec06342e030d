"""What a client of an address checks certificates with."""

from __future__ import annotations

import ssl

import pytest

from gpusize.base.urls import without_tls
from gpusize.observe.metrics.trust import tls_context


def test_without_tls_nobody_is_trusted() -> None:
    context = without_tls("http://127.0.0.1:9090")
    assert context is not None
    assert context.get_ca_certs() == []
    # Whoever is sent on to an address with TLS is refused there, and not let in unchecked.
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


@pytest.mark.parametrize("verify", [True, False])
def test_with_tls_it_is_as_asked(verify: bool) -> None:
    assert without_tls("https://p") is None
    assert tls_context(verify, "https://p") is verify
    assert isinstance(tls_context(verify, "http://p"), ssl.SSLContext)
