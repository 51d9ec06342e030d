"""Who may join: a shared token that is never sent, or certificates of one authority on both sides."""

from __future__ import annotations

import hmac
import os
import secrets
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpusize.base.errors import UsageError
from gpusize.engine.workers import is_local

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TOKEN_VARIABLE", "Access", "nonce", "read_token"]

TOKEN_VARIABLE: Final = "GPUSIZE_TOKEN"  # noqa: S105 -- a name
LEAST_TOKEN: Final = 16
"""Characters of a token: who listens to one join can try shorter ones at leisure."""


def nonce() -> str:
    """A number that is used once."""
    return secrets.token_hex(32)


@dataclass(frozen=True)
class Access:
    """What one side shows and asks for.

    Attributes:
        token: the shared token; None for none.
        ca: PEM file of the authority that both sides' certificates are of; None for no TLS.
        cert: PEM file of this side's certificate.
        key: PEM file of its key.
    """

    token: bytes | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        parts = {"ca": self.ca, "cert": self.cert, "key": self.key}
        missing = [name for name, path in parts.items() if path is None]
        if missing and len(missing) < len(parts):
            todo = "TLS takes all three: authority, certificate and key"
            raise UsageError(f"there is no file of the {missing[0]}", missing[0], todo)

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.ca is not None

    def needed_for(self, host: str) -> None:
        """Refuse an open door on anything but loopback.

        Raises:
            UsageError: there is neither token nor TLS.
        """
        if self.token is None and not self.tls and not is_local(host):
            todo = f"give a token (--token-file, or ${TOKEN_VARIABLE}), or certificates for TLS"
            raise UsageError("whoever reaches this address could send load, or join", host, todo)

    def context(self, *, server: bool) -> ssl.SSLContext | None:
        """What encrypts, and asks the other side for its certificate; None without TLS.

        Raises:
            UsageError: a file cannot be read, or does not fit the others.
        """
        if self.ca is None or self.cert is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(cafile=self.ca)
            context.load_cert_chain(self.cert, self.key)
        except (OSError, ValueError) as error:
            files = f"{self.ca}, {self.cert}, {self.key}"
            raise UsageError(f"TLS cannot be set up: {error}", files, "give PEM files that belong together") from None
        return context

    def proof(self, side: str, role: str, head: str, agent: str) -> str:
        """What shows that this side knows the token, for these two nonces only; empty without a token."""
        if self.token is None:
            return ""
        return hmac.new(self.token, f"gpusize {side} {role} {head} {agent}".encode(), "sha256").hexdigest()

    def holds(self, proof: object, side: str, role: str, head: str, agent: str) -> bool:
        """Whether the other side knows the token; without one everybody does."""
        if self.token is None:
            return True
        return isinstance(proof, str) and hmac.compare_digest(proof, self.proof(side, role, head, agent))


def read_token(file: Path | None, environment: Mapping[str, str] = os.environ) -> bytes | None:
    """The token of a file, else of the environment; None where there is neither.

    Raises:
        UsageError: the file cannot be read, or the token is too short.
    """
    if file is None:
        text, where = environment.get(TOKEN_VARIABLE, ""), f"${TOKEN_VARIABLE}"
        if not text:
            return None
    else:
        where = str(file)
        try:
            text = file.read_text("utf-8")
        except (OSError, ValueError) as error:
            raise UsageError(f"the token cannot be read: {error}", where, "name a text file") from None
    token = text.strip().encode()
    if len(token) < LEAST_TOKEN:
        todo = "make one with: openssl rand -hex 32"
        raise UsageError(f"the token has fewer than {LEAST_TOKEN} characters", where, todo)
    return token
