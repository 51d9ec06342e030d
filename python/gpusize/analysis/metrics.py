"""Every metric, declared once: name, unit, formula, origin, whose it is and where it is shown.

Tables, SLOs, stop rules, counts by the second, Prometheus histograms and ``docs/reference/metrics.md`` are made from
this table. One more metric is one more entry here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from gpusize.base.errors import UsageError
from gpusize.records.schema import column, quantiles

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

__all__ = [
    "FIELD",
    "FROM_DUE",
    "FROM_SENT",
    "METRICS",
    "NS_PER_S",
    "QUANTILES",
    "Metric",
    "Span",
    "by_second",
    "metric",
    "of_request",
    "read_as",
]

NS_PER_S: Final = 1e9

QUANTILES: Final[Mapping[str, float]] = MappingProxyType({"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0})
"""Those that the summary has of a metric."""

Origin = Literal["due", "sent", "none"]
Table = Literal["records", "histograms", "calls"]
Requests = Literal["ok", "sent"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One quantity.

    Attributes:
        name: the name in tables and SLOs.
        unit: ``s``, ``tokens``, ``tokens/s`` or ``bytes``.
        formula: how it follows from the columns of docs/reference/records.md.
        origin: what the time counts from: ``due`` (what a user waits), ``sent`` (the first write) or ``none``.
        table: ``records`` (exact, per request), ``histograms`` (pooled per level by the engine) or ``calls`` (exact,
            per call inside a request).
        note: what a reader must know, or an empty text.
        build: makes the expression of ``raw``; None where it is no quantity of one request or call.
        title: what tables and plots call it, where that is not its name.
        requests: whose quantiles the summary has: of requests that ended ``ok``, or of all that were ``sent``.
        by_second: whether the engine counts it by the second, of every request. The engine has to know it then.
        exported: what Prometheus is told that it is; empty where it gets no histogram.
        summary: whether the summary has its quantiles, as columns for each of ``QUANTILES``.
        shown: quantiles that the table of levels shows (for ``calls``, that of the calls), and how important each is:
            0 is never left out.
        beside_parts: how important those are where answers come in parts, as far as it differs: the table then has room
            for several metrics rather than for three quantiles of one.
        parts: quantiles in the tables of replicas and models, likewise; -1 for one that is kept and not shown.
        streamed: whether it says something only of answers that come in parts.
        pair: the metric that counts the same time from the other origin.
        request: by nature of an API (`gpusize.targets.apis.base.Nature`), the metric of a request that this one is
            where each request is a call of that nature.
        item: the field of it in an imported level's items; empty where these do not have it.
        names: what other tools call it in SLOs, and what their name means.
        said: whether only servers that say it make it known, so that a summary without such a server leaves it out.
    """

    name: str
    unit: str
    formula: str
    origin: Origin
    table: Table
    note: str = ""
    build: Callable[[], pl.Expr] | None = None
    title: str = ""
    requests: Requests = "ok"
    by_second: bool = False
    exported: str = ""
    summary: bool = False
    shown: Mapping[str, int] = field(default_factory=dict)
    beside_parts: Mapping[str, int] = field(default_factory=dict)
    parts: Mapping[str, int] = field(default_factory=dict)
    streamed: bool = False
    pair: str = ""
    request: Mapping[str, str] = field(default_factory=dict)
    item: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    said: bool = False

    @property
    def label(self) -> str:
        """What tables and plots call it."""
        return self.title or self.name

    def column(self, quantile: str) -> str:
        """The summary's column of a quantile, as ``runtime_p95_s``."""
        return f"{self.name}_{quantile}{'_s' if self.unit == 's' else ''}"

    def raw(self) -> pl.Expr:
        """Polars expression over its table: nanoseconds for times, else ``unit``; null where it is undefined.

        What is compared or ranked is taken from here: Polars divides by multiplying with the reciprocal, so that 9 ms
        in seconds can come out one rounding error above 0.009.

        Raises:
            UsageError: the metric is not a quantity of one request or call.
        """
        if self.build is None:
            raise UsageError(f"{self.name} is not known per request", None, f"it comes from {self.table}")
        return self.build()

    def expr(self) -> pl.Expr:
        """As ``raw``, but seconds for times (to a rounding error)."""
        return self.raw() / self.per_unit

    @property
    def columns(self) -> list[str]:
        """The columns of its table that it is made from."""
        return self.raw().meta.root_names()

    @property
    def per_unit(self) -> float:
        """How many of ``raw`` make one ``unit``."""
        return NS_PER_S if self.unit == "s" else 1.0

    def values(self, frame: pl.LazyFrame) -> NDArray[np.float64]:
        """All values in ``unit``, nulls left out. Shape (n,)."""
        return column(frame, self.raw()) / self.per_unit

    def quantiles(self, frame: pl.LazyFrame, probs: Sequence[float]) -> list[float | None]:
        """Exact quantiles in ``unit``, as ``gpusize.records.schema.quantiles``."""
        found = quantiles(frame, self.raw(), probs)
        return [None if value is None else value / self.per_unit for value in found]


@dataclass(frozen=True, slots=True)
class Span:
    """The time from one column of a row to another; called, the expression of it."""

    start: str
    end: str

    def __call__(self) -> pl.Expr:
        """Nanoseconds from ``start`` to ``end``."""
        import polars as pl

        return pl.col(self.end) - pl.col(self.start)


def _time(name: str, start: str, end: str, note: str = "", **more: Any) -> Metric:
    """A metric that is the time between two moments of a request or call."""
    origin: Origin = "due" if start == "due_ns" else "sent" if start in ("sent_ns", "start_ns") else "none"
    table: Table = "calls" if start == "start_ns" else "records"
    return Metric(name, "s", f"{end} - {start}", origin, table, note, Span(start, end), **more)


def _plain(name: str, unit: str, column: str, note: str, **more: Any) -> Metric:
    """A metric that a column of records holds."""

    def build() -> pl.Expr:
        import polars as pl

        return pl.col(column).cast(pl.Float64)

    return Metric(name, unit, column, "none", "records", note, build, **more)


def _itl_mean() -> pl.Expr:
    import polars as pl

    tokens = pl.coalesce(pl.col("tokens_out"), pl.col("events")).cast(pl.Int64)
    span_ns = pl.col("last_token_ns") - pl.col("first_token_ns")
    return pl.when(tokens >= 2).then(span_ns / (tokens - 1)).otherwise(None)


def _output_rate() -> pl.Expr:
    import polars as pl

    service_ns = pl.col("end_ns") - pl.col("sent_ns")
    return pl.when(service_ns > 0).then(pl.col("tokens_out") * NS_PER_S / service_ns).otherwise(None)


def _outside() -> pl.Expr:
    import polars as pl

    took_ns = pl.col("end_ns") - pl.col("sent_ns")
    return took_ns - pl.col("server_queue_ns").fill_null(0) - pl.col("server_service_ns")


_TOLD: Final = "as the server reported"
_WIRE: Final = "on the wire above TLS"
_LATENCY: Final = "from the first write to the last byte; runtime counts from when a request was due"

_ALL: Final = (
    _time(
        "runtime",
        "due_ns",
        "end_ns",
        "what a user waits",
        by_second=True,
        exported="From when a request was due to its last byte, of requests that ended ok",
        summary=True,
        shown={"p50": 3, "p95": 0, "p99": 5},
        beside_parts={"p50": 6, "p99": 8},
        parts={"p50": 3, "p95": 1, "p99": 6},
        pair="service",
        item="workflow_runtime",
    ),
    _time(
        "service",
        "sent_ns",
        "end_ns",
        "what the target took",
        by_second=True,
        exported="From the first write of a request to its last byte, of requests that ended ok",
        summary=True,
        parts={"p50": -1, "p95": -1},
        pair="runtime",
        item="workflow_runtime",
        names={"latency": _LATENCY, "e2e": _LATENCY},
    ),
    _time(
        "ttft",
        "due_ns",
        "first_token_ns",
        "time to first token",
        title="TTFT",
        by_second=True,
        exported="From when a request was due to its first token, of requests that ended ok",
        summary=True,
        shown={"p50": 9, "p95": 3},
        parts={"p50": 7, "p95": 4},
        streamed=True,
        pair="ttft_sent",
    ),
    _time(
        "ttft_sent",
        "sent_ns",
        "first_token_ns",
        "time to first token as most load generators count it",
        by_second=True,
        summary=True,
        streamed=True,
        pair="ttft",
    ),
    _time(
        "ttfo",
        "due_ns",
        "first_output_ns",
        "time to first output: the first content that is not reasoning",
        streamed=True,
    ),
    Metric(
        "itl_mean",
        "s",
        "(last_token_ns - first_token_ns) / (tokens_out - 1)",
        "none",
        "records",
        "mean gap between the tokens of one request; null below two tokens; "
        "counts events with content where the server reported no tokens",
        _itl_mean,
        streamed=True,
        names={"tpot": "from the first token to the last, by the tokens between them"},
    ),
    _plain(
        "itl_p99",
        "s",
        "itl_p99_ns",
        "99th percentile of the gaps between the events with content of one request, by nearest rank",
        streamed=True,
    ),
    _plain("itl_max", "s", "itl_max_ns", "longest of these gaps", streamed=True),
    Metric(
        "itl",
        "s",
        "gaps between events with content, pooled over the requests of a level",
        "none",
        "histograms",
        "exact, over the steady requests that ended ok, where the times of events were kept (`--record-events`); "
        "else from the engine's histograms, to the width of their buckets; of the whole visit where it has but one",
        title="ITL",
        by_second=True,
        exported="Gaps between the events with content of requests that ended ok",
        summary=True,
        shown={"p50": 10, "p95": 4},
        streamed=True,
    ),
    Metric(
        "output_rate",
        "tokens/s",
        "tokens_out / (end_ns - sent_ns)",
        "sent",
        "records",
        "of one request; null where the server reported no tokens",
        _output_rate,
    ),
    _plain("tokens_in", "tokens", "tokens_in", _TOLD),
    _plain("tokens_out", "tokens", "tokens_out", _TOLD),
    _plain("tokens_cached", "tokens", "tokens_cached", _TOLD),
    _time("first_byte", "sent_ns", "first_byte_ns"),
    _plain(
        "server_queue",
        "s",
        "server_queue_ns",
        "how long the server says that the request waited in it",
        title="server queue",
        summary=True,
        shown={"p50": 11, "p95": 7},
        said=True,
    ),
    _plain(
        "server_service",
        "s",
        "server_service_ns",
        "how long the server says that it served the request, from its turn to its end",
        title="server service",
        summary=True,
        shown={"p95": 11},
        said=True,
    ),
    Metric(
        "outside_server",
        "s",
        "end_ns - sent_ns - server_queue_ns - server_service_ns",
        "sent",
        "records",
        "what the server does not account for: network, proxies, its own front, the client; a queue that it does not "
        "tell of is in it",
        _outside,
        title="outside server",
        summary=True,
        said=True,
    ),
    _time(
        "lateness",
        "due_ns",
        "sent_ns",
        "how far the generator was behind its schedule: pacer_late + no_connection",
        requests="sent",
        by_second=True,
        exported="From when a request was due to its first write: pacer_late and no_connection",
        summary=True,
    ),
    _time(
        "pacer_late",
        "due_ns",
        "fired_ns",
        "the generator's own share",
        requests="sent",
        by_second=True,
        exported="From when a request was due to when the generator fired it",
    ),
    _time(
        "no_connection",
        "fired_ns",
        "sent_ns",
        "wait for a free connection, its set-up included",
        requests="sent",
        by_second=True,
        exported="From when a request was fired to its first write: the wait for a connection",
    ),
    _plain("connect", "s", "connect_ns", "TCP connect, where one was needed"),
    _plain("tls", "s", "tls_ns", "TLS handshake, where one was needed"),
    _plain("bytes_in", "bytes", "bytes_in", _WIRE),
    _plain("bytes_out", "bytes", "bytes_out", _WIRE),
    _time(
        "llm_latency",
        "start_ns",
        "end_ns",
        "of each LLM call inside a request; where no calls are known and the request itself is the LLM call, "
        "it is service; the sizing calculator's second metric",
        title="LLM latency",
        summary=True,
        shown={"p50": 2, "p95": 1, "p99": 3},
        request={"language_model": "service"},
        item="llm_latency",
    ),
)

METRICS: Final[Mapping[str, Metric]] = MappingProxyType({m.name: m for m in _ALL})
"""Every metric by name, in the order in which tables show them."""

FIELD: Final[Mapping[str, str]] = MappingProxyType({name: m.name for m in _ALL for name in m.names})
"""Names of other tools in SLOs, and which metric of ours each is.

Their end-to-end latency counts from the write, as ``service`` does; ``runtime`` counts from when a request was due.
Their time per output token is (e2e - ttft) / (tokens - 1); ``itl_mean`` differs by what comes after the last token
alone.
"""

FROM_DUE: Final[Mapping[str, str]] = MappingProxyType({m.name: m.pair for m in _ALL if m.pair and m.origin == "sent"})
"""Metrics that count from the write, and the same times from when a request was due."""
FROM_SENT: Final[Mapping[str, str]] = MappingProxyType({m.name: m.pair for m in _ALL if m.pair and m.origin == "due"})
"""The other way round."""


def by_second(requests: Requests | None = None) -> dict[str, Metric]:
    """Metrics that the engine counts by the second; of requests that ended ``ok``, of all ``sent``, or both."""
    return {m.name: m for m in _ALL if m.by_second and requests in (None, m.requests)}


def of_request(name: str, nature: str | None) -> str:
    """The metric of a request that ``name`` is where each request is a call of ``nature``; else ``name`` itself."""
    return name if nature is None else METRICS[name].request.get(nature, name)


def read_as(text: str) -> str | None:
    """Which metric of ours an SLO takes for a name of other tools, in a sentence; None where it has none of them."""
    words = re.findall(r"\w+", text.lower())
    name = next((name for name in FIELD if name in words), None)
    if name is None or "due" in words:
        return None
    return f'"{name}" is read as {FIELD[name]}: {METRICS[FIELD[name]].names[name]}'


def metric(name: str) -> Metric:
    """Look a metric up.

    Raises:
        UsageError: there is none of that name; the nearest one is suggested.
    """
    found = METRICS.get(name)
    if found is None:
        near = difflib.get_close_matches(name, METRICS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(METRICS)}"
        raise UsageError(f"unknown metric {name!r}", None, hint)
    return found
