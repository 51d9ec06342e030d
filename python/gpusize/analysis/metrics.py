"""The registry of metrics: one place for name, unit, formula and origin of everything that is measured per request.

Tables, SLOs, plots and ``docs/reference/metrics.md`` are made from it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from gpusize.base.errors import UsageError
from gpusize.records.schema import column, quantiles

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

__all__ = ["FIELD", "METRICS", "NS_PER_S", "Metric", "markdown", "metric", "read_as"]

NS_PER_S: Final = 1e9

Origin = Literal["due", "sent", "none"]
Table = Literal["records", "histograms", "calls"]


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
    """

    name: str
    unit: str
    formula: str
    origin: Origin
    table: Table
    note: str = ""
    build: Callable[[], pl.Expr] | None = None

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


def _between(start: str, end: str) -> Callable[[], pl.Expr]:
    """From column ``start`` to column ``end``."""

    def build() -> pl.Expr:
        import polars as pl

        return pl.col(end) - pl.col(start)

    return build


def _plain(column: str) -> Callable[[], pl.Expr]:
    def build() -> pl.Expr:
        import polars as pl

        return pl.col(column).cast(pl.Float64)

    return build


def _itl_mean() -> pl.Expr:
    import polars as pl

    tokens = pl.coalesce(pl.col("tokens_out"), pl.col("events")).cast(pl.Int64)
    span_ns = pl.col("last_token_ns") - pl.col("first_token_ns")
    return pl.when(tokens >= 2).then(span_ns / (tokens - 1)).otherwise(None)


def _output_rate() -> pl.Expr:
    import polars as pl

    service_ns = pl.col("end_ns") - pl.col("sent_ns")
    return pl.when(service_ns > 0).then(pl.col("tokens_out") * NS_PER_S / service_ns).otherwise(None)


_ALL: Final = (
    Metric("runtime", "s", "end_ns - due_ns", "due", "records", "what a user waits", _between("due_ns", "end_ns")),
    Metric(
        "service", "s", "end_ns - sent_ns", "sent", "records", "what the target took", _between("sent_ns", "end_ns")
    ),
    Metric(
        "ttft",
        "s",
        "first_token_ns - due_ns",
        "due",
        "records",
        "time to first token",
        _between("due_ns", "first_token_ns"),
    ),
    Metric(
        "ttft_sent",
        "s",
        "first_token_ns - sent_ns",
        "sent",
        "records",
        "time to first token as most load generators count it",
        _between("sent_ns", "first_token_ns"),
    ),
    Metric(
        "ttfo",
        "s",
        "first_output_ns - due_ns",
        "due",
        "records",
        "time to first output: the first content that is not reasoning",
        _between("due_ns", "first_output_ns"),
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
    ),
    Metric(
        "itl_p99",
        "s",
        "itl_p99_ns",
        "none",
        "records",
        "99th percentile of the gaps between the events with content of one request, by nearest rank",
        _plain("itl_p99_ns"),
    ),
    Metric("itl_max", "s", "itl_max_ns", "none", "records", "longest of these gaps", _plain("itl_max_ns")),
    Metric(
        "itl",
        "s",
        "gaps between events with content, pooled over the requests of a level",
        "none",
        "histograms",
        "exact, over the steady requests that ended ok, where the times of events were kept (`--record-events`); "
        "else from the engine's histograms, to the width of their buckets; of the whole visit where it has but one",
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
    Metric("tokens_in", "tokens", "tokens_in", "none", "records", "as the server reported", _plain("tokens_in")),
    Metric("tokens_out", "tokens", "tokens_out", "none", "records", "as the server reported", _plain("tokens_out")),
    Metric(
        "tokens_cached", "tokens", "tokens_cached", "none", "records", "as the server reported", _plain("tokens_cached")
    ),
    Metric("first_byte", "s", "first_byte_ns - sent_ns", "sent", "records", "", _between("sent_ns", "first_byte_ns")),
    Metric(
        "lateness",
        "s",
        "sent_ns - due_ns",
        "due",
        "records",
        "how far the generator was behind its schedule: pacer_late + no_connection",
        _between("due_ns", "sent_ns"),
    ),
    Metric(
        "pacer_late",
        "s",
        "fired_ns - due_ns",
        "due",
        "records",
        "the generator's own share",
        _between("due_ns", "fired_ns"),
    ),
    Metric(
        "no_connection",
        "s",
        "sent_ns - fired_ns",
        "none",
        "records",
        "wait for a free connection, its set-up included",
        _between("fired_ns", "sent_ns"),
    ),
    Metric("connect", "s", "connect_ns", "none", "records", "TCP connect, where one was needed", _plain("connect_ns")),
    Metric("tls", "s", "tls_ns", "none", "records", "TLS handshake, where one was needed", _plain("tls_ns")),
    Metric("bytes_in", "bytes", "bytes_in", "none", "records", "on the wire above TLS", _plain("bytes_in")),
    Metric("bytes_out", "bytes", "bytes_out", "none", "records", "on the wire above TLS", _plain("bytes_out")),
    Metric(
        "llm_latency",
        "s",
        "end_ns - start_ns",
        "sent",
        "calls",
        "of each LLM call inside a request; where no calls are known and the request itself is the LLM call, "
        "it is service; the sizing calculator's second metric",
        _between("start_ns", "end_ns"),
    ),
)

METRICS: Final[Mapping[str, Metric]] = MappingProxyType({m.name: m for m in _ALL})
"""Every metric by name, in the order in which tables show them."""


FIELD: Final[Mapping[str, str]] = MappingProxyType({"latency": "service", "e2e": "service", "tpot": "itl_mean"})
"""Names of other tools in SLOs, and which metric of ours each is.

Their end-to-end latency counts from the write, as ``service`` does; ``runtime`` counts from when a request was due.
Their time per output token is (e2e - ttft) / (tokens - 1); ``itl_mean`` differs by what comes after the last token
alone.
"""

_MEANS: Final = {
    "latency": "from the first write to the last byte; runtime counts from when a request was due",
    "e2e": "from the first write to the last byte; runtime counts from when a request was due",
    "tpot": "from the first token to the last, by the tokens between them",
}


def read_as(text: str) -> str | None:
    """Which metric of ours an SLO takes for a name of other tools, in a sentence; None where it has none of them."""
    words = re.findall(r"\w+", text)
    name = next((name for name in FIELD if name in words), None)
    if name is None or "due" in words:
        return None
    return f'"{name}" is read as {FIELD[name]}: {_MEANS[name]}'


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


_FROM: Final = {"due": "due", "sent": "sent", "none": "–"}
_SLO_TEXT: Final = """
## In an SLO

    [pNN|mean|share] METRIC [from due|from sent] OP NUMBER UNIT

`p95 runtime <= 10s`, `p99.9 ttft from sent < 200ms`, `mean itl_mean <= 30ms`, `share ok >= 99%`. Times take us, ms, s,
min or h. `runtime from sent` is `service` and `ttft from sent` is `ttft_sent`. A share is that of `ok`, of `error` (all
that is not ok) or of one outcome, as in `share timeout <= 0.1%`; its unit, `%`, may be left out. Without a word before
the metric every request must keep the bound.

An SLO is judged by attainment: the share of requests due in the steady window that ended ok within the bound. `p95`
asks for an attainment of 95 %. Every outcome but `ok` is a miss, except `cancelled`, which counts nowhere, as does a
request that ended ok and does not have the metric. A failed request makes a mean endless.

`llm_latency` is judged by [calls](calls.md): the share of the LLM calls, of requests due in the window, that
ended ok within the bound. A failed request of which no call failed is one miss more.

Of a [sampled level](windows.md#sampled-levels) the attainment of `runtime`, `service`, `ttft` and `ttft_sent` is that
of all requests, by histograms, with the bound's own bucket split evenly; of other metrics, of the requests with a row.

The summary's `goodput` is the part of `achieved_rate` that kept the bounds of all SLOs on percentiles, with
times from due; `goodput_sent` is the same from the send: `service` stands for `runtime`, `ttft_sent` for `ttft`.
"""


def markdown() -> str:
    """The registry as the text of ``docs/reference/metrics.md``."""
    head = (
        "# Metrics\n\n"
        "Made from the registry in `gpusize/analysis/metrics.py`; a test fails when the two differ.\n\n"
        "Times are shown in seconds. `from` says what a time counts from: `due`, when the schedule wanted the request\n"
        "sent, or `sent`, just before the first write. Columns are those of [records](records.md)\n"
        "or, for `llm_latency`, of [calls](calls.md).\n\n"
        "| metric | unit | formula | from | table | note |\n|---|---|---|---|---|---|\n"
    )
    rows = (f"| `{m.name}` | {m.unit} | `{m.formula}` | {_FROM[m.origin]} | {m.table} | {m.note} |\n" for m in _ALL)
    return head + "".join(rows) + _SLO_TEXT
