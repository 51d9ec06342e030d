"""Series of a Prometheus server for the time of a level, at the times at which it scraped them.

The samples are asked for as they were stored (an instant query with a range selector), not through ``query_range``:
that one evaluates at steps of its own and repeats an old value for up to five minutes, so that a gauge that went away
looks alive and a counter moves in stairs.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import UsageError
from gpusize.base.secrets import resolve, secret_words, without_secrets
from gpusize.base.text import shown
from gpusize.base.urls import parse_url
from gpusize.observe.metrics.buffer import empty_samples
from gpusize.observe.metrics.gpus_and_replicas import PROMETHEUS
from gpusize.observe.metrics.prometheus_text import KNOWN_NAMES, MAX_SERIES, canonical_labels
from gpusize.observe.metrics.reading import SourceFailed
from gpusize.observe.metrics.trust import Verify, tls_context

if TYPE_CHECKING:
    import httpx
    import polars as pl

__all__ = ["ClockPair", "PrometheusServer", "checked_matchers", "wall_from_mono"]

TIMEOUT_S: Final = 30.0
MAX_ANSWER_BYTES: Final = 256 << 20
MARGIN_S: Final = 60.0
"""Time before a level that is asked for besides: counters need a value from before its start."""

_MATCHER: Final = r"[ ]*[A-Za-z_][A-Za-z0-9_]*[ ]*(?:=~|!~|!=|=)[ ]*\"(?:[^\"\\\n]|\\[^\n])*+\"[ ]*"
_MATCHERS: Final = re.compile(f"{_MATCHER}(?:,{_MATCHER})*+")
_MAX_VALUES: Final = 20_000_000
ClockPair = tuple[int, int, int]
"""``(mono_ns, wall_ns, uncertainty_ns)``, as the engine gives it."""


def wall_from_mono(pairs: Sequence[ClockPair], mono_ns: int) -> int:
    """Wall time of a time on the engine's clock: the offset between the two, interpolated between the pairs around it.

    Args:
        pairs: ``(mono_ns, wall_ns, uncertainty_ns)`` in the order taken, at least one.
        mono_ns: the time.
    """
    import numpy as np

    at = np.array([pair[0] - mono_ns for pair in pairs], np.float64)
    first = pairs[0][1] - pairs[0][0]
    drift = np.array([pair[1] - pair[0] - first for pair in pairs], np.float64)
    return mono_ns + first + round(float(np.interp(0.0, at, drift)))


def checked_matchers(match: str | None) -> str | None:
    """Label matchers as they go between the braces of a selector.

    Raises:
        UsageError: they are none.
    """
    if match is not None and not _MATCHERS.fullmatch(match):
        raise UsageError(
            f'"{shown(match)}" are not label matchers', "prometheus-match", "write them as 'namespace=\"prod\"'"
        )
    return match


class PrometheusServer:
    """Pulls what a Prometheus server has stored.

    Args:
        url: its address; a path is kept, as behind a proxy.
        keep: regular expression for the names of the series; None for those of `KNOWN_NAMES`.
        match: further label matchers, such as ``namespace="prod",pod=~"llm-.*"``: a server that watches a whole cluster
            knows of more than the one that is measured.
        headers: request headers; a value may refer to the environment or a file.
        verify: check its certificate; see `gpusize.observe.metrics.trust`.
        transport: replaces the network, for tests.

    Raises:
        UsageError: an invalid address, header or matchers.
    """

    def __init__(
        self,
        url: str,
        *,
        keep: str | None = None,
        match: str | None = None,
        headers: Mapping[str, str] | None = None,
        verify: Verify = True,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        address = parse_url(url)
        self.url = address.url(address.path.rstrip("/"))
        self.name = f"{PROMETHEUS}{self.url}"
        self._keep = keep or KNOWN_NAMES
        checked = checked_matchers(match)
        self._match = "" if checked is None else f",{checked}"
        self._headers = dict(headers or {})
        self._secrets = secret_words(self._headers)
        self._verify = verify
        self._transport = transport
        self._pulls = 0
        self._failures = 0
        self._last_failure: str | None = None

    def facts(self) -> dict[str, Any]:
        """How pulling went, as `Sampler.facts`: each level is one reading."""
        counts = {"readings": self._pulls, "failures": self._failures, "missed": 0}
        return {"source": self.name, "interval_s": None, **counts, "last_failure": self._last_failure, "cpu_s": None}

    def notes(self) -> list[str]:
        """What the user should know of the way to it."""
        notes = []
        address = parse_url(self.url)
        if address.tls and self._verify is False:
            notes.append(f"{self.name}: the server's certificate is not checked")
        if self._secrets and not address.tls and not address.is_loopback:
            notes.append(f"{self.name}: a secret is sent unencrypted: the address is http://")
        return notes

    def check(self) -> None:
        """Ask whether it answers.

        Raises:
            SourceFailed: it does not.
        """
        self._ask("/api/v1/query", {"query": "vector(1)"})

    def pull(self, start_ns: int, end_ns: int, wall: Callable[[int], int]) -> pl.DataFrame:
        """Everything stored from a little before ``start_ns`` to ``end_ns``.

        Args:
            start_ns: on the engine's clock.
            end_ns: likewise.
            wall: wall time, in ns since 1970, of a time on the engine's clock.

        Returns:
            A frame of samples, their times on the engine's clock. Prometheus stamps to the millisecond, with the clock
            of its own host.

        Raises:
            SourceFailed: it does not answer, refuses, or answers with something else.
        """
        try:
            frame = self._pulled(start_ns, end_ns, wall)
        except SourceFailed as problem:
            self._failures, self._last_failure = self._failures + 1, str(problem)
            raise
        self._pulls += 1
        return frame

    def _pulled(self, start_ns: int, end_ns: int, wall: Callable[[int], int]) -> pl.DataFrame:
        to_ns = wall(end_ns)
        range_s = math.ceil((end_ns - start_ns) / 1e9 + MARGIN_S)
        pattern = self._keep.replace("\\", "\\\\").replace('"', '\\"')
        query = f'{{__name__=~"(?:{pattern}).*"{self._match}}}[{range_s}s]'
        # One millisecond is what it rounds to.
        answer = self._ask("/api/v1/query", {"query": query, "time": f"{to_ns / 1e9:.3f}"})
        return self._frame(answer, to_ns - end_ns)

    def _ask(self, path: str, parameters: Mapping[str, str]) -> Any:
        import httpx

        try:
            headers = {name: resolve(name, value) for name, value in self._headers.items()}
            with (
                httpx.Client(
                    timeout=TIMEOUT_S,
                    verify=tls_context(self._verify, self.url),
                    transport=self._transport,
                    trust_env=False,
                ) as client,
                client.stream("POST", f"{self.url}{path}", data=dict(parameters), headers=headers) as answer,
            ):
                body = self._body(answer)
                status = answer.status_code
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as problem:
            raise SourceFailed(self._safe(str(problem) or type(problem).__name__)) from None
        return self._data(status, body)

    @staticmethod
    def _body(answer: httpx.Response) -> bytes:
        body = bytearray()
        for chunk in answer.iter_bytes():
            body += chunk
            if len(body) > MAX_ANSWER_BYTES:
                raise SourceFailed(f"the answer is larger than {MAX_ANSWER_BYTES >> 20} MiB; keep fewer names")
        return bytes(body)

    def _data(self, status: int, body: bytes) -> Any:
        try:
            content = json.loads(body)
        except ValueError:
            content = None
        if not isinstance(content, dict) or content.get("status") != "success":
            said = content.get("error") if isinstance(content, dict) else None
            raise SourceFailed(self._safe(f"answered with status {status}{f': {said}' if said else ''}"))
        return content.get("data")

    def _safe(self, text: str) -> str:
        return shown(without_secrets(text, self._secrets), 200)

    def _frame(self, data: Any, offset_ns: int) -> pl.DataFrame:
        import polars as pl

        matrix = data.get("result") if isinstance(data, dict) and data.get("resultType") == "matrix" else None
        if not isinstance(matrix, list) or not all(_is_series(each) for each in matrix):
            raise SourceFailed("answered with something else than series")
        if len(matrix) > MAX_SERIES or sum(len(each.get("values", ())) for each in matrix) > _MAX_VALUES:
            raise SourceFailed(f"answered with {len(matrix)} series, too many; keep fewer names")
        frames = [_series_frame(each, self.name, offset_ns) for each in matrix]
        frames = [frame for frame in frames if frame.height]
        return pl.concat(frames).sort("t_ns", maintain_order=True) if frames else empty_samples()


def _is_series(each: Any) -> bool:
    return isinstance(each, dict) and isinstance(each.get("metric"), dict) and isinstance(each.get("values", []), list)


def _series_frame(series: Mapping[str, Any], source: str, offset_ns: int) -> pl.DataFrame:
    import polars as pl

    labels = {str(name): str(text) for name, text in series["metric"].items()}
    metric = labels.pop("__name__", "")
    points = series.get("values", ())
    try:
        # To the millisecond before it is made nanoseconds: the JSON numbers are seconds with three decimals.
        times = [round(float(at) * 1e3) * 1_000_000 - offset_ns for at, _ in points]
        values = [float(text) for _, text in points]
    except (TypeError, ValueError):
        raise SourceFailed("answered with values that are not numbers") from None
    frame = pl.DataFrame({"t_ns": times, "value": values}, schema={"t_ns": pl.Int64, "value": pl.Float64})
    return frame.select(
        "t_ns",
        pl.lit(source).alias("source"),
        pl.lit(metric).alias("metric"),
        pl.lit(canonical_labels(labels)).alias("labels"),
        "value",
    )
