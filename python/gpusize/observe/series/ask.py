"""One question to a Prometheus server: asked again while it may help, and what its refusals mean."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpusize.base.clock import MACHINE, Clock
from gpusize.base.secrets import resolve, secret_words, without_secrets
from gpusize.base.text import shown
from gpusize.base.urls import parse_url
from gpusize.observe.metrics.trust import Verify, tls_context

if TYPE_CHECKING:
    import httpx

__all__ = ["Answer", "Asker", "NotAllowed", "Refused", "TooMuch", "Unreachable"]

TIMEOUT_S: Final = 60.0
MOST_BYTES: Final = 16 << 20
"""Of one answer: what JSON is made of is some eight times as large in memory."""
PAUSES_S: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Between attempts, the last one again and again."""
MOST_PAUSE_S: Final = 60.0
_TOO_MUCH: Final = re.compile(
    r"exceeded maximum resolution|too many (?:samples|points|chunks)|query timed out|timed out in|"
    r"(?:larger|longer|bigger) than|max[- ]\w+ limit|exceeds? (?:the )?limit|context deadline exceeded",
    re.IGNORECASE,
)
_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_DENIED: Final = frozenset({401, 403, 407})
_METHOD, _LARGE, _OK, _SPLIT = 405, 413, 200, frozenset({400, 413, 422, 503})


class Unreachable(Exception):
    """The server cannot be reached, or fails again and again: no other question will fare better."""


class NotAllowed(Exception):
    """The server does not answer us, or is no Prometheus: no other question will fare better."""


class Refused(Exception):
    """The server refuses this question."""


class TooMuch(Exception):
    """The server refuses so much at once, or answers with more than is taken: ask for less."""


class Answer(NamedTuple):
    """What a question gave.

    Attributes:
        data: the member ``data``.
        warnings: what the server says of it: that a part is missing, for instance.
        date: the header ``Date``.
    """

    data: Any
    warnings: tuple[str, ...]
    date: str | None


class Asker:
    """Asks one server; several threads may ask at once.

    Args:
        url: its address; a path is kept, as behind a proxy.
        headers: request headers; a value may refer to the environment or a file.
        verify: check its certificate; see `gpusize.observe.metrics.trust`.
        retry_s: how long a question is asked again while the server cannot be reached, or fails.
        clock: of the pauses between attempts.
        transport: replaces the network, for tests.

    Attributes:
        url: the address.
        name: what the server is called; its address, where nobody says otherwise.
        requests: how many were sent.

    Raises:
        UsageError: an invalid address or header.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        verify: Verify = True,
        retry_s: float = 30.0,
        clock: Clock = MACHINE,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        import httpx

        address = parse_url(url)
        self.url = address.url(address.path.rstrip("/"))
        self.name = self.url
        self.plain = not address.tls and not address.is_loopback
        self.unchecked = address.tls and verify is False
        self._secrets = secret_words(headers or {})
        self._retry_s = retry_s
        self._clock = clock
        self._stop = threading.Event()
        self._counting = threading.Lock()
        self._parsing = threading.Lock()
        self._method = "POST"
        self.requests = 0
        self._client = httpx.Client(
            timeout=httpx.Timeout(TIMEOUT_S, connect=10.0),
            verify=tls_context(verify, self.url),
            transport=transport,
            trust_env=False,
            headers={name: resolve(name, value) for name, value in (headers or {}).items()},
        )

    @property
    def sends_secret(self) -> bool:
        """Whether a header of it is a secret."""
        return bool(self._secrets)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def stop(self) -> None:
        """Let questions that wait for their next attempt give up."""
        self._stop.set()

    def ask(self, path: str, parameters: Mapping[str, str]) -> Answer:
        """One question, asked again while the server cannot be reached, fails or says that it is busy.

        Args:
            path: below the address, as ``/api/v1/query``.
            parameters: of the form.

        Raises:
            Unreachable: it did not answer in time.
            NotAllowed: it asks for credentials, or what answers is no Prometheus.
            Refused: the question is wrong.
            TooMuch: it asks for more than the server gives, or than is taken.
        """
        began_s = self._clock.now_s()
        attempt = 0
        while True:
            try:
                return self._once(path, parameters)
            except _Again as problem:
                pause_s = PAUSES_S[min(attempt, len(PAUSES_S) - 1)]
                pause_s = min(max(pause_s, problem.after_s), MOST_PAUSE_S)
                attempt += 1
                spent_s = self._clock.now_s() - began_s
                if spent_s + pause_s > self._retry_s or self._clock.wait(self._stop, pause_s):
                    raise Unreachable(str(problem)) from None

    def _once(self, path: str, parameters: Mapping[str, str]) -> Answer:
        import httpx

        with self._counting:
            self.requests += 1
        form = {"data" if self._method == "POST" else "params": dict(parameters)}
        try:
            with self._client.stream(self._method, f"{self.url}{path}", **form) as answer:  # type: ignore[arg-type]
                body = bytearray()
                for chunk in answer.iter_bytes():
                    body += chunk
                    if len(body) > MOST_BYTES:
                        raise TooMuch(f"the answer is larger than {MOST_BYTES >> 20} MiB")
        except httpx.ReadTimeout:
            raise TooMuch(f"no answer within {TIMEOUT_S:.0f} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as problem:
            if "CERTIFICATE_VERIFY_FAILED" in str(problem):
                raise NotAllowed(self._safe(str(problem))) from None
            raise _Again(self._safe(str(problem) or type(problem).__name__)) from None
        if answer.status_code == _METHOD and self._method == "POST":
            # A proxy that lets nothing but reading pass.
            self._method = "GET"
            return self._once(path, parameters)
        return self._read(answer, bytes(body))

    def _read(self, answer: httpx.Response, body: bytes) -> Answer:
        content = self._parsed(body)
        status = answer.status_code
        if content is not None and content.get("status") == "success" and status == _OK:
            warnings = content.get("warnings")
            told = tuple(self._safe(str(each)) for each in warnings) if isinstance(warnings, list) else ()
            return Answer(content.get("data"), told, answer.headers.get("date"))
        said = self._safe(str(content.get("error") or "")) if content is not None else ""
        what = f"status {status}{f': {said}' if said else ''}"
        if status in _DENIED:
            raise NotAllowed(f"{what}: a token that may read its API is asked for")
        if status == _LARGE or (status in _SPLIT and _TOO_MUCH.search(said)):
            raise TooMuch(what)
        if status in _AGAIN:
            raise _Again(what, _retry_after(answer))
        if content is not None and "status" in content:
            raise Refused(what)
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if status == _OK and (kind.endswith("json") or body.lstrip()[:1] == b"{"):
            raise _Again("the answer is cut off, or broken JSON")
        raise NotAllowed(self._no_prometheus(answer, kind))

    def _no_prometheus(self, answer: httpx.Response, kind: str) -> str:
        to = answer.headers.get("location")
        if to is not None:
            return self._safe(
                f"status {answer.status_code}, which leads to {to.partition('?')[0]}: is a login before it?"
            )
        return self._safe(
            f"status {answer.status_code} with {kind or 'no type'}, not Prometheus's JSON: is the address right?"
        )

    def _parsed(self, body: bytes) -> dict[str, Any] | None:
        with self._parsing:
            try:
                content = json.loads(body)
            except ValueError:
                return None
        return content if isinstance(content, dict) else None

    def _safe(self, text: str) -> str:
        return shown(without_secrets(text, self._secrets), 200)


class _Again(Exception):
    """What another attempt may mend; not before so many seconds."""

    def __init__(self, what: str, after_s: float = 0.0) -> None:
        super().__init__(what)
        self.after_s = after_s


def _retry_after(answer: httpx.Response) -> float:
    """Seconds of the header ``Retry-After``; a date in it is not looked at."""
    text = answer.headers.get("retry-after", "").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0.0
