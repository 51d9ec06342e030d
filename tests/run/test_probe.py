"""What a user is told about a first request that failed: what it was, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from gpusize.base.errors import TargetError
from gpusize.measure.probe import probe
from gpusize.targets.server import Target

if TYPE_CHECKING:
    from gpusize.engine.session import AnyEngine


class _Answers:
    def __init__(self, outcome: str, status: int | None, message: str) -> None:
        self.record = {"outcome": outcome, "status": status, "message": message, "service_ns": None}

    def probe(self) -> dict[str, Any]:
        return self.record


def told(outcome: str, status: int | None, message: str, url: str = "http://h/v1", **target: Any) -> str:
    engine = cast("AnyEngine", _Answers(outcome, status, message))
    with pytest.raises(TargetError) as caught:
        probe(engine, Target(url, **target))
    return str(caught.value)


@pytest.mark.parametrize("outcome", ["truncated", "protocol_error"])
def test_a_server_without_http2(outcome: str) -> None:
    assert "eave out --http2" in told(outcome, 0, "the server closed the connection", http2=True)
    assert "--http2" not in told(outcome, 0, "the server closed the connection")
    assert "--http2" not in told(outcome, 200, "the stream ended without its end marker", http2=True)


def test_tls_that_is_not_spoken_there() -> None:
    alert = "received fatal alert: NoApplicationProtocol"
    assert "eave out --http2" in told("tls_error", 0, alert, "https://h/v1", http2=True)
    corrupt = "received corrupt message of type InvalidContentType"
    assert "use http://" in told("tls_error", 0, corrupt, "https://h/v1")
    plain = "The plain HTTP request was sent to HTTPS port"
    assert "se https://" in told("http_error", 400, plain)


def test_a_server_of_http2_alone() -> None:
    said = "not an HTTP/1.1 response: invalid HTTP version in the response head"
    assert "needs --http2" in told("protocol_error", 0, said)


def test_a_key_that_is_refused_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "s3cret")
    assert "--api-key-env" in told("http_error", 401, "no")
    refused = told("http_error", 401, "s3cret is wrong", api_key_env="KEY")
    assert "right key" in refused
    assert "s3cret" not in refused


def test_a_success_rule_that_does_not_hold() -> None:
    said = "the answer does not satisfy success_if"
    assert "--response success_if" in told("api_error", 200, said, response={"success_if": {"at": "/status"}})


def test_an_answer_of_another_service() -> None:
    told_of = told("api_error", 200, "the answer lacks what makes it a success (success_if): content")
    assert "openai-chat API? --success any" in told_of
    assert "--success" not in told("api_error", 200, "out of memory")


def test_a_workflow_without_a_stream() -> None:
    assert "--no-stream" in told("http_error", 404, "no", api="nat-chat")
