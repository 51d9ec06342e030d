from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from gpusize.base.errors import UsageError
from gpusize.observe.series.ask import Asker, NotAllowed, Refused, TooMuch, Unreachable
from tests.virtual_time import VirtualClock

GOOD = {"status": "success", "data": {"resultType": "vector", "result": []}}


def asker(*answers: Any, clock: VirtualClock | None = None, **options: Any) -> tuple[Asker, list[httpx.Request]]:
    """One that gets these answers, the last one again and again."""
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        each = answers[min(len(seen), len(answers)) - 1]
        if isinstance(each, Exception):
            raise each
        assert isinstance(each, httpx.Response)
        return each

    transport = httpx.MockTransport(handle)
    return Asker(
        options.pop("url", "http://p:9090/x/"), clock=clock or VirtualClock(), transport=transport, **options
    ), seen


def said(status: int, error: str = "no", **headers: str) -> httpx.Response:
    body = {"status": "error", "errorType": "x", "error": error}
    return httpx.Response(status, json=body, headers={name.replace("_", "-"): text for name, text in headers.items()})


def test_an_answer_brings_data_warnings_and_date():
    good = httpx.Response(200, json={**GOOD, "warnings": ["a store is\x1b down"]}, headers={"Date": "now"})
    one, seen = asker(good)
    found = one.ask("/api/v1/query", {"query": "up"})
    assert (found.data, found.warnings, found.date) == (GOOD["data"], ("a store is\\x1b down",), "now")
    [request] = seen
    assert (request.method, str(request.url), request.content) == ("POST", "http://p:9090/x/api/v1/query", b"query=up")
    assert one.requests == 1


@pytest.mark.parametrize(
    "answer",
    [
        httpx.ConnectError("refused"),
        httpx.RemoteProtocolError("peer closed connection without sending complete message body"),
        said(503, "starting"),
        said(429),
        said(500),
        httpx.Response(502, text="<html>bad gateway"),
        httpx.Response(200, text='{"status":"success","da', headers={"Content-Type": "application/json"}),
    ],
)
def test_what_another_attempt_may_mend_is_asked_again(answer: Any):
    clock = VirtualClock()
    one, seen = asker(answer, answer, httpx.Response(200, json=GOOD), clock=clock)
    one.ask("/q", {})
    assert len(seen) == 3
    assert clock.waits == [0.5, 1]


def test_attempts_end():
    clock = VirtualClock()
    one, seen = asker(httpx.ConnectError("refused"), clock=clock, retry_s=30.0)
    with pytest.raises(Unreachable, match="refused"):
        one.ask("/q", {})
    assert clock.waits == [0.5, 1, 2, 4, 8, 8]
    assert clock.passed_s <= 30
    assert len(seen) == 7


def test_an_asker_that_is_stopped_gives_up():
    clock = VirtualClock()
    one, _ = asker(httpx.ConnectError("refused"), clock=clock, retry_s=1e6)
    clock.at(20, one.stop)
    with pytest.raises(Unreachable):
        one.ask("/q", {})
    assert 20 <= clock.passed_s < 30


@pytest.mark.parametrize(
    "after, waits", [("7", [7]), ("900", [60]), ("0", [0.5]), ("Fri, 27 Nov 2026", [0.5]), ("-1", [0.5])]
)
def test_retry_after_is_kept_to(after: str, waits: list[float]):
    clock = VirtualClock()
    one, _ = asker(said(429, Retry_After=after), httpx.Response(200, json=GOOD), clock=clock, retry_s=600)
    one.ask("/q", {})
    assert clock.waits == waits


@pytest.mark.parametrize(
    "answer, words",
    [
        (said(401, "who are you"), "status 401: who are you: a token"),
        (httpx.Response(403, text="forbidden"), "status 403: a token"),
        (httpx.Response(302, headers={"Location": "https://login/?secret=1"}), "leads to https://login/: is a login"),
        (httpx.Response(200, text="<html>", headers={"Content-Type": "text/html; charset=x"}), "200 with text/html"),
        (httpx.Response(404, text="404 page not found"), "404 with text/plain.*is the address right"),
        (httpx.Response(200, text=""), "200 with no type|200 with text/plain"),
        (httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"), "certificate verify failed"),
    ],
)
def test_who_does_not_answer_us_is_not_asked_again(answer: Any, words: str):
    one, seen = asker(answer)
    with pytest.raises(NotAllowed, match=words) as caught:
        one.ask("/q", {})
    assert "secret" not in str(caught.value)
    assert len(seen) == 1


@pytest.mark.parametrize(
    "status, error",
    [
        (400, "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution"),
        (422, "exceeded maximum resolution of 11,000 points"),
        (422, "query processing would load too many samples into memory in query execution"),
        (503, "query timed out in expression evaluation"),
        (422, "the query time range exceeds the limit (query length: 800h, limit: 700h)"),
        (413, "too large"),
    ],
)
def test_too_much_is_told_from_wrong(status: int, error: str):
    one, seen = asker(said(status, error))
    with pytest.raises(TooMuch, match=f"status {status}"):
        one.ask("/q", {})
    assert len(seen) == 1


@pytest.mark.parametrize("status, error", [(400, "parse error: unexpected end"), (422, "invalid expression type")])
def test_a_wrong_question_is_refused(status: int, error: str):
    one, seen = asker(said(status, error))
    with pytest.raises(Refused, match=error):
        one.ask("/q", {})
    assert len(seen) == 1


def test_a_query_that_takes_too_long_is_too_much():
    one, _ = asker(httpx.ReadTimeout("slow"))
    with pytest.raises(TooMuch, match="no answer within 60 s"):
        one.ask("/q", {})


def test_an_answer_that_is_too_large_is_too_much(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gpusize.observe.series.ask.MOST_BYTES", 1 << 20)
    one, _ = asker(httpx.Response(200, text=json.dumps(GOOD) + " " * (1 << 20)))
    with pytest.raises(TooMuch, match="larger than 1 MiB"):
        one.ask("/q", {})


def test_a_proxy_that_forbids_posting_is_asked_otherwise():
    one, seen = asker(httpx.Response(405, text="no"), httpx.Response(200, json=GOOD))
    one.ask("/q", {"query": "a b"})
    one.ask("/q", {"query": "c"})
    assert [request.method for request in seen] == ["POST", "GET", "GET"]
    assert str(seen[1].url) == "http://p:9090/x/q?query=a+b"


def test_a_secret_is_sent_and_never_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TOKEN", "open-sesame")
    one, seen = asker(said(422, "open-sesame is no query"), headers={"Authorization": "Bearer env:TOKEN"})
    with pytest.raises(Refused, match="is no query") as caught:
        one.ask("/q", {})
    assert seen[0].headers["authorization"] == "Bearer open-sesame"
    assert "sesame" not in str(caught.value)
    assert one.sends_secret
    assert one.plain


def test_an_address_that_is_none_is_refused():
    with pytest.raises(UsageError, match="no scheme"):
        Asker("prometheus:9090")
