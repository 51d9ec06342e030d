"""A server's page of metrics as a source of samples, and the addresses where one is usually found."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import UsageError
from gpusize.base.secrets import resolve, secret_words, without_secrets
from gpusize.base.text import shown
from gpusize.base.urls import Address, parse_url
from gpusize.engine.session import monotonic_ns
from gpusize.observe.metrics.prometheus_text import KNOWN_NAMES, MAX_PAGE_BYTES, PageReader
from gpusize.observe.metrics.reading import Reading, SourceFailed
from gpusize.observe.metrics.trust import Verify, tls_context
from gpusize.records.run_json import nature_of

if TYPE_CHECKING:
    import httpx

__all__ = ["MetricsPage", "default_metrics_urls", "keep_pattern", "metrics_url"]

TIMEOUT_S: Final = 2.0
"""Bound on connecting, and on waiting for the next bytes."""

WHOLE_S: Final = 5.0
"""Bound on a whole reading: a server that drips its page byte by byte must not hold the thread."""

TRITON_METRICS_PORT: Final = 8002
_ACCEPT: Final = "text/plain;version=0.0.4;q=1,*/*;q=0.1"


def keep_pattern(text: str | None) -> re.Pattern[str] | None:
    """The names to keep, as a pattern; None for the known names.

    Raises:
        UsageError: not a regular expression.
    """
    if text is None:
        return None
    try:
        return re.compile(text)
    except re.error as problem:
        raise UsageError(
            f'"{shown(text)}" is not a regular expression: {problem}', "metrics-keep", "write it as 'vllm:|nv_gpu_'"
        ) from None


def metrics_url(text: str) -> str:
    """The address of a page of metrics: ``/metrics`` is added where no path is given.

    Raises:
        UsageError: not an address that can be read.
    """
    address = parse_url(text)
    return address.url("/metrics" if address.path in {"", "/"} else address.path)


def default_metrics_urls(targets: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where the servers behind these targets usually have their metrics: tried, and dropped when nothing is there.

    Args:
        targets: per replica ``url``, ``api`` and ``nature``, as in ``run.json``'s ``targets``. One without an address
            is left out.

    Returns:
        ``/metrics`` of each server; for KServe servers that of Triton's own port, 8002, besides. Without repetitions.
    """
    found: list[str] = []
    for target in targets:
        url = target.get("url")
        if not url or str(url).startswith("kube:"):
            continue
        address = parse_url(str(url))
        found.append(address.url("/metrics"))
        if nature_of(target) == "inference":
            # Triton serves its metrics in plain text whatever its other ports speak.
            found.append(Address(tls=False, host=address.host, port=TRITON_METRICS_PORT, path="").url("/metrics"))
    return list(dict.fromkeys(found))


class MetricsPage:
    """A page in the Prometheus text format, fetched with every reading.

    Args:
        url: its address.
        keep: the names to keep; see `PageReader`.
        headers: further request headers; a value may refer to the environment or a file.
        verify: check the certificate; see `gpusize.observe.metrics.trust`.
        guessed: the address was guessed: `open` then refuses a page without a single known name.
        clock: the engine's clock.
        transport: replaces the network, for tests.
    """

    def __init__(
        self,
        url: str,
        *,
        keep: re.Pattern[str] | None = None,
        headers: Mapping[str, str] | None = None,
        verify: Verify = True,
        guessed: bool = False,
        clock: Callable[[], int] = monotonic_ns,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = metrics_url(url)
        self.name = self.url
        self._reader = PageReader(keep)
        self._headers = dict(headers or {})
        self._secrets = secret_words(self._headers)
        self._verify = verify
        self._guessed = guessed
        self._clock = clock
        self._transport = transport
        self._client: httpx.Client | None = None
        self._bad_lines = 0

    def open(self) -> None:
        """Fetch the page once.

        Raises:
            SourceFailed: it does not answer, or what is there is no page of metrics.
        """
        page = self.read()
        if not page.values:
            raise SourceFailed("the page has no series that is kept")
        if self._guessed and not any(re.match(KNOWN_NAMES, name) for name, _ in page.values):
            raise SourceFailed("the page has no series of a known server")

    def read(self) -> Reading:
        """Fetch and read the page.

        Raises:
            SourceFailed: no answer in time, a status other than 200, or a page that is too large.
        """
        import httpx

        asked_ns = self._clock()
        try:
            text, answered_ns = self._fetch(asked_ns + round(WHOLE_S * 1e9))
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as problem:
            reason = without_secrets(str(problem) or type(problem).__name__, self._secrets)
            raise SourceFailed(shown(reason, 200)) from None
        page = self._reader.read(text)
        self._bad_lines = max(self._bad_lines, page.bad_lines)
        if page.bad_lines and not page.series:
            raise SourceFailed("this is not a page of metrics in the Prometheus text format")
        return Reading((asked_ns + answered_ns) // 2, answered_ns - asked_ns, page.values)

    def _fetch(self, until_ns: int) -> tuple[str, int]:
        body = bytearray()
        answered_ns = 0
        with self._opened().stream("GET", self.url) as answer:
            # The server renders its page before it sends the first byte: what follows is transport.
            answered_ns = self._clock()
            if answer.status_code != 200:
                raise SourceFailed(f"answered with status {answer.status_code}")
            for chunk in answer.iter_bytes():
                body += chunk
                if len(body) > MAX_PAGE_BYTES:
                    raise SourceFailed(f"the page is larger than {MAX_PAGE_BYTES >> 20} MiB")
                if self._clock() > until_ns:
                    raise SourceFailed(f"the page took longer than {WHOLE_S:g} s")
        return body.decode("utf-8", "replace"), answered_ns

    def _opened(self) -> httpx.Client:
        import httpx

        if self._client is None:
            headers = {"Accept": _ACCEPT, "User-Agent": "gpusize"}
            headers |= {name: resolve(name, value) for name, value in self._headers.items()}
            # Metrics are read from the server itself, as the load is sent to it: never through a proxy.
            self._client = httpx.Client(
                timeout=TIMEOUT_S,
                verify=tls_context(self._verify, self.url),
                headers=headers,
                transport=self._transport,
                trust_env=False,
            )
        return self._client

    def notes(self) -> list[str]:
        """Lines that could not be read, if there were any."""
        if not self._bad_lines:
            return []
        return [f"metrics {self.name}: up to {self._bad_lines} lines per page are not samples and were skipped"]

    def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
