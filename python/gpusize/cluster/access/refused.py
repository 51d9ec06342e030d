"""What an API server's refusal becomes: one error that says what, where, and what to do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Self

from gpusize.base.errors import TargetError
from gpusize.base.text import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["KubeRefused", "status_of"]

_TODO: Final = {
    400: "correct the template; the message names the field",
    401: "check the user of this context: kubectl auth whoami",
    403: "ask the cluster's administrator for this permission, or name another --namespace or --context",
    404: "check that the cluster knows this kind and this namespace: kubectl api-resources",
    409: "remove what is there, or begin a new run",
    422: "correct the template; the message names the field",
}


class KubeRefused(TargetError):
    """The API server answered with an error.

    Attributes:
        status: HTTP status.
        reason: the server's word, such as ``AlreadyExists``; empty where it gave none.
        message: its sentence.
        fields: the fields that it names as wrong, such as ``spec.replicas``.
        retry_after_s: how long it asks to wait; None where it does not.
    """

    def __init__(self, what: str, where: str | None = None, todo: str | None = None) -> None:
        super().__init__(what, where, todo)
        self.status = 0
        self.reason = ""
        self.message = what
        self.fields: tuple[str, ...] = ()
        self.retry_after_s: float | None = None

    @classmethod
    def answered(cls, status: int, body: bytes, where: str, retry_after_s: float | None = None) -> Self:
        """The error that an answer tells of.

        Args:
            status: of HTTP.
            body: the answer's.
            where: what was asked.
            retry_after_s: how long it asks to wait.
        """
        said = status_of(body)
        reason = str(said.get("reason") or "")
        message = str(said.get("message") or body[:300].decode("utf-8", "replace"))
        word = f" {reason}" if reason else ""
        error = cls(f"{status}{word}: {shown(message, 400)}", where, _TODO.get(status))
        error.status, error.reason, error.message, error.retry_after_s = status, reason, message, retry_after_s
        causes = (said.get("details") or {}).get("causes") or []
        error.fields = tuple(str(cause["field"]) for cause in causes if isinstance(cause, dict) and cause.get("field"))
        return error


def status_of(body: bytes) -> Mapping[str, Any]:
    """The ``Status`` object in an answer's body; empty where it holds none."""
    try:
        said = json.loads(body)
    except ValueError:
        return {}
    return said if isinstance(said, dict) and said.get("kind") == "Status" else {}
