from __future__ import annotations

from typing import Any

import httpx
import pytest

from gpusize.base.errors import UsageError
from gpusize.observe.metrics import scrape_page
from gpusize.observe.metrics.reading import SourceFailed
from gpusize.observe.metrics.scrape_page import MetricsPage, default_metrics_urls, keep_pattern, metrics_url
from tests.samples.sources import Clock

URL = "http://h:8000/metrics"


def page(answer, **options) -> MetricsPage:
    """A page whose server gives one answer, or raises."""

    def handle(request: httpx.Request) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer

    return MetricsPage(options.pop("url", URL), transport=httpx.MockTransport(handle), **options)


def test_a_page_is_read_with_the_time_in_the_middle():
    clock = Clock(100)

    def handle(request: httpx.Request) -> httpx.Response:
        assert str(request.url) == URL
        assert request.headers["user-agent"] == "gpusize"
        clock.now_ns = 300
        return httpx.Response(200, text="vllm:num_requests_running 3\n")

    source = page(handle, clock=clock)
    source.open()
    clock.now_ns = 200
    reading = source.read()
    assert (reading.t_ns, reading.width_ns) == (250, 100)
    assert reading.values == {("vllm:num_requests_running", ""): 3}
    assert source.notes() == []
    source.close()
    source.close()


@pytest.mark.parametrize(
    "answer, reason",
    [
        (httpx.Response(404, text="no"), "status 404"),
        (httpx.Response(200, text="<html>\n<body>hello</body>\n"), "not a page of metrics"),
        (httpx.Response(200, text=""), "no series"),
        (httpx.Response(302, headers={"location": "http://evil/"}), "status 302"),
        (httpx.ConnectError("refused"), "refused"),
        (httpx.ReadTimeout("timed out"), "timed out"),
    ],
)
def test_what_is_no_page_of_metrics_is_refused(answer, reason: str):
    with pytest.raises(SourceFailed, match=reason):
        page(answer).open()


def test_a_page_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scrape_page, "MAX_PAGE_BYTES", 1 << 20)
    with pytest.raises(SourceFailed, match="larger than 1 MiB"):
        page(httpx.Response(200, content=b"a 1\n" * 300_000)).read()


def test_a_page_that_drips_is_given_up():
    clock = Clock()

    def drip():
        while True:
            clock.now_ns += 1_000_000_000
            yield b"a 1\n"

    with pytest.raises(SourceFailed, match="longer than 5 s"):
        page(lambda request: httpx.Response(200, content=drip()), clock=clock).read()


def test_a_guess_needs_a_known_name():
    other = httpx.Response(200, text="go_goroutines 7\n")
    page(other).open()
    with pytest.raises(SourceFailed, match="known server"):
        page(other, guessed=True).open()
    page(httpx.Response(200, text="nv_cpu_utilization 0.5\n"), guessed=True).open()


def test_lines_that_are_no_samples_are_noted():
    source = page(httpx.Response(200, text="vllm:a 1\noops\nvllm:b 2\n"))
    source.open()
    assert source.notes() == [f"metrics {URL}: up to 1 lines per page are not samples and were skipped"]


def test_secrets_are_sent_and_never_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("METRICS_TOKEN", "sesame-street")

    def handle(request: httpx.Request) -> httpx.Response:
        assert request.headers["authorization"] == "Bearer sesame-street"
        raise httpx.ConnectError("cannot reach sesame-street\x1b[1m")

    with pytest.raises(SourceFailed) as caught:
        page(handle, headers={"Authorization": "Bearer env:METRICS_TOKEN"}).open()
    assert "sesame" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    "given, full",
    [
        ("http://h:9400", "http://h:9400/metrics"),
        ("http://h:9400/", "http://h:9400/metrics"),
        ("https://h/prom?x=1", "https://h/prom?x=1"),
    ],
)
def test_the_path_is_added(given: str, full: str):
    assert metrics_url(given) == full


@pytest.mark.parametrize("url", ["h:9400", "ftp://h", "http://u:p@h/", "http://h/?token=x"])
def test_addresses_that_cannot_be_meant(url: str):
    with pytest.raises(UsageError):
        metrics_url(url)


def test_a_pattern_that_is_none():
    assert keep_pattern(None) is None
    with pytest.raises(UsageError, match="regular expression"):
        keep_pattern("(")


def test_the_usual_addresses():
    targets: list[dict[str, Any]] = [
        {"url": "http://h1:8000/v1/chat/completions", "api": "openai-chat"},
        {"url": "http://h2:8000/v1/chat/completions", "api": "openai-chat"},
        {"url": "http://h1:8000/v1/chat/completions", "api": "openai-chat"},
        {"url": None, "api": None},
        {"url": "kube://ns/s:80", "api": "kserve"},
    ]
    assert default_metrics_urls(targets) == ["http://h1:8000/metrics", "http://h2:8000/metrics"]
    triton = [{"url": "https://[::1]:8000/v2/models/m/infer", "api": "kserve-grpc"}]
    assert default_metrics_urls(triton) == ["https://[::1]:8000/metrics", "http://[::1]:8002/metrics"]
