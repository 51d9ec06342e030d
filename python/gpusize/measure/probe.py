"""One request before the sweep: a target that does not answer is told in one line, before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpusize.base.errors import TargetError
from gpusize.base.secrets import without_secrets
from gpusize.base.text import shown
from gpusize.base.units import format_duration
from gpusize.targets.workflow.target import WorkflowTarget

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpusize.engine.session import AnyEngine, ProbeRecord
    from gpusize.targets.server import Target

__all__ = ["probe", "refusal"]

MESSAGE_CHARS: Final = 300


def probe(engine: AnyEngine, target: Target | WorkflowTarget) -> ProbeRecord:
    """Send the dataset's first row once, outside every level.

    Raises:
        TargetError: the sweep could not count the answer; with the server's own words, bounded and harmless.
    """
    record = engine.probe()
    if record["outcome"] == "ok":
        return record
    if isinstance(target, WorkflowTarget):
        what, todo = f"the first request ended as {record['outcome']}", "try it by itself"
        raise TargetError(what + _words(record, target.secret_words()), target.url, todo)
    raise refusal(record, target)


def refusal(record: ProbeRecord, target: Target) -> TargetError:
    """The error for a first answer that is no success; with the server's own words, bounded and harmless."""
    what, todo = _complaint(record, target)
    return TargetError(what, target.url, todo)


def _complaint(record: ProbeRecord, target: Target) -> tuple[str, str]:
    """What was wrong with the first answer, and what to do about it."""
    said = _words(record, target.secret_words())
    status = record["status"]
    if target.http2 and not status and record["outcome"] in ("truncated", "protocol_error"):
        return f"the server does not answer in HTTP/2{said}", "leave out --http2 where it speaks HTTP/1.1 alone"
    match record["outcome"]:
        case "connect_error":
            return f"cannot connect{said}", "is the server running, and is the address right?"
        case "tls_error":
            return _tls_complaint(said)
        case "timeout":
            bounds = (
                f"{format_duration(target.connect_timeout_s)} to connect, {format_duration(target.timeout_s)} in all"
            )
            return f"no answer to the first request in time ({bounds}){said}", "raise --timeout or --connect-timeout"
        case "http_error":
            advice = "use https://" if "HTTPS port" in said else _advice(status, target)
            return f"the first request was answered with status {status}{said}", advice
        case "api_error":
            return f"the first request was answered with an error{said}", _api_advice(said, target)
        case outcome:
            what = "ended too early" if outcome == "truncated" else "cannot be read"
            alone = "not an HTTP/1.1 response" in said
            todo = (
                "a server that speaks HTTP/2 alone needs --http2" if alone else f"does it speak the {target.api} API?"
            )
            return f"the first answer {what}{said}", todo


def _tls_complaint(said: str) -> tuple[str, str]:
    if "CaUsedAsEndEntity" in said:
        # What `openssl req -x509` makes when nobody says otherwise; the library's word for it helps nobody.
        what = "the TLS handshake failed: the server's certificate is marked as an authority (CA:TRUE)"
        return what, "make one with basicConstraints=CA:FALSE, signed by the --cacert, or accept any with --insecure"
    if "NoApplicationProtocol" in said:
        return f"the server does not offer HTTP/2{said}", "leave out --http2"
    if "InvalidContentType" in said:
        return f"the TLS handshake failed{said}", "does the server speak TLS at this port? else use http://"
    return f"the TLS handshake failed{said}", "name its authority with --cacert, or accept any with --insecure"


def _words(record: ProbeRecord, secrets: Sequence[str]) -> str:
    """What the server, or the system, said: one line, bounded, without control characters and secrets."""
    words = without_secrets(" ".join((record["message"] or "").split()), secrets)
    return f": {shown(words, MESSAGE_CHARS)}" if words else ""


def _api_advice(said: str, target: Target) -> str:
    """What to do about an answer whose status is a success and which is none."""
    if "success_if" not in said:
        return "see the server's documentation"
    if "success_if" in target.response:
        return "look at the answer, and at --response success_if"
    return f"does it speak the {target.api} API? --success any counts answers whatever they hold"


def _advice(status: int | None, target: Target) -> str:
    if status in (401, 403) and target.has_key:
        return "is it the right key, and may it use this model?"
    if status in (401, 403):
        return "does it need a key? name its variable with --api-key-env"
    if status in (404, 405):
        path = f"is this the path of the {target.api} API, and does the model exist there?"
        return f"{path} a workflow without a stream wants --no-stream" if target.api == "nat-chat" else path
    if status in (400, 422):
        return "does the server want other fields? see --api, --model, --body-template"
    if status == 429:
        return "the server limits requests: a sweep would measure its limit"
    return "see the server's log"
