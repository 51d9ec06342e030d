"""Service level objectives: their grammar, and how requests are judged by them.

    [pNN|mean|share] METRIC [from due|from sent] OP NUMBER UNIT

``p95 runtime <= 10s``, ``p99.9 ttft from sent < 200 ms``, ``mean itl_mean <= 30ms``, ``share ok >= 99%``,
``share timeout <= 0.1%``. Without a word before the metric every request must keep the bound (``p100``).

An SLO is judged by attainment, the share of requests that ended ok within the bound. Every other outcome is a miss,
but for ``cancelled``, which the user did and which counts nowhere. A request that ended ok without having the metric
(no token, say) is undetermined and counts nowhere either. ``pNN METRIC <= B`` is met when attainment >= NN %. For a
level without misses that is the inverted-CDF percentile, ``numpy.quantile(method="inverted_cdf") <= B``; the percentile
in tables interpolates linearly between two neighbouring requests and so can lie beyond B by part of that one gap.
With ``>=`` it reads "NN % of the requests have at least B". A mean counts a missed request as endless, so that one
miss fails an upper bound: an error is never a fast response.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

from gpusize.analysis.metrics import METRICS, metric, of_request, read_as
from gpusize.analysis.slo_grammar import Kind, Op, parse
from gpusize.base.typed import SEQUENCE, check_kinds

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Counts", "Slo", "as_slos", "readings"]


class Counts(NamedTuple):
    """How the requests of a frame fared: within the bound, over it (or failed), undetermined."""

    within: int
    over: int
    undetermined: int


@dataclass(frozen=True, slots=True)
class Slo:
    """One objective.

    Attributes:
        kind: ``percentile``, ``mean`` or ``share``.
        metric: a name of the registry, or for shares ``ok``, ``error`` or an outcome.
        share: attainment that is asked for, in (0, 1]; 1 for a mean, which is not judged by attainment.
        op: ``<=``, ``<``, ``>=`` or ``>``.
        bound: seconds for times, the metric's unit otherwise, a share in [0, 1] for shares.
    """

    kind: Kind
    metric: str
    share: float
    op: Op
    bound: float

    @classmethod
    def parse(cls, text: str) -> Slo:
        """Read an SLO.

        Args:
            text: as in ``p95 runtime <= 10s``; the grammar is in docs/reference/slo.md.

        Raises:
            SloError: it does not follow the grammar; the text points at the column.
        """
        return cls(*parse(text))

    @property
    def columns(self) -> list[str]:
        """The columns of records (or calls) that say how a request fared."""
        return self.within_expr().meta.root_names()

    @property
    def of_calls(self) -> bool:
        """Whether it is about the calls inside requests."""
        return self.kind != "share" and METRICS[self.metric].table == "calls"

    def of_request(self, nature: str | None) -> Slo:
        """The same in terms of a request that is itself the call which it is about.

        Args:
            nature: what a request is, such as ``language_model``; None, or another one: the SLO stays as it is.
        """
        return self if self.kind == "share" else replace(self, metric=of_request(self.metric, nature))

    @property
    def bound_s(self) -> float | None:
        """The bound in seconds, None when the metric is no time."""
        return self.bound if self.kind != "share" and METRICS[self.metric].unit == "s" else None

    def __str__(self) -> str:
        bound = Decimal(repr(self.bound))
        if self.kind == "share":
            return f"share {self.metric} {self.op} {_plain(bound * 100)}%"
        head = "mean" if self.kind == "mean" else f"p{_plain(Decimal(repr(self.share)) * 100)}"
        unit = METRICS[self.metric].unit
        if unit == "s" and bound < Decimal(1):
            bound, unit = (bound * 1000, "ms")
        elif unit == "bytes":
            unit = "B"
        gap = "" if unit in ("s", "ms", "B") else " "
        return f"{head} {self.metric} {self.op} {_plain(bound)}{gap}{unit}"

    def within_expr(self) -> pl.Expr:
        """Boolean per record: true within, false a miss, null for what counts nowhere."""
        import polars as pl

        outcome = pl.col("outcome")
        if self.kind == "share":
            judged = outcome == "ok" if self.metric in ("ok", "error") else outcome != self.metric
        else:
            found = metric(self.metric)
            ok = _compare(found.raw(), self.op, float(Decimal(repr(self.bound)) * int(found.per_unit)))
            judged = pl.when(outcome == "ok").then(ok).otherwise(pl.lit(value=False))
        return pl.when(outcome == "cancelled").then(None).otherwise(judged)

    def within(self, value: float) -> bool:
        """Whether one value in the unit of ``bound`` keeps the bound.

        Args:
            value: of the metric: seconds for times.
        """
        return {
            "<=": value <= self.bound,
            "<": value < self.bound,
            ">=": value >= self.bound,
            ">": value > self.bound,
        }[self.op]

    def count(self, frame: pl.DataFrame | pl.LazyFrame) -> Counts:
        """Count the requests of a record frame by how they fared.

        Args:
            frame: requests, one a row, as ``LevelData.requests`` gives them.
        """
        import polars as pl

        within = self.within_expr()
        row = (
            frame.lazy()
            .select(
                within=within.sum(),
                judged=within.count(),
                asked=(pl.col("outcome") != "cancelled").sum(),
            )
            .collect(engine="streaming")
            .row(0)
        )
        good, judged, asked = (int(value or 0) for value in row)
        return Counts(good, judged - good, asked - judged)

    def attainment(self, frame: pl.DataFrame | pl.LazyFrame) -> tuple[float, int]:
        """Share of the judged requests within the bound, and how many were judged; (nan, 0) when none could be.

        When every request that ended ok lacks the metric, nothing is known, even if others failed.

        Args:
            frame: requests, one a row, as ``LevelData.requests`` gives them.
        """
        counts = self.count(frame)
        n = counts.within + counts.over
        if n == 0 or (counts.within == 0 and counts.undetermined > 0 and not self._seen(frame)):
            return math.nan, 0
        return counts.within / n, n

    def _seen(self, frame: pl.DataFrame | pl.LazyFrame) -> bool:
        """Whether any request that ended ok has the metric."""
        import polars as pl

        has = (pl.col("outcome") == "ok") & metric(self.metric).raw().is_not_null()
        return bool(frame.lazy().select(has.any()).collect(engine="streaming").item())

    def met_by(self, attainment: float) -> bool:
        """Whether an attainment suffices. A level without any judged request (nan) does not.

        Args:
            attainment: share of the requests, 0 to 1, or nan.
        """
        return attainment >= self.share

    def met(self, frame: pl.DataFrame | pl.LazyFrame) -> bool:
        """Whether the requests of a record frame keep the objective.

        Args:
            frame: requests, one a row, as ``LevelData.requests`` gives them.
        """
        if self.kind != "mean":
            return self.met_by(self.attainment(frame)[0])
        import polars as pl

        ok = frame.lazy().filter(pl.col("outcome") == "ok")
        values = metric(self.metric).values(ok)
        failed = self._failed(frame)
        if values.size == 0 or (failed and self.op in ("<=", "<")):
            return False
        return self.within(float(values.sum()) / (values.size + failed))

    @staticmethod
    def _failed(frame: pl.DataFrame | pl.LazyFrame) -> int:
        import polars as pl

        bad = ~pl.col("outcome").is_in(["ok", "cancelled"])
        return int(frame.lazy().select(bad.sum()).collect(engine="streaming").item())


def as_slos(slos: Sequence[Slo | str] | Slo | str | None) -> tuple[Slo, ...]:
    """SLOs from texts or objects, one or several.

    Raises:
        SloError: a text that does not parse.
    """
    if slos is None:
        return ()
    given = [slos] if isinstance(slos, Slo | str) else slos
    check_kinds({"slos": given}, {"slos": SEQUENCE})
    for each in given:
        check_kinds({"slo": each}, {"slo": ((Slo, str), "an SLO, as 'p95 runtime <= 10s'")})
    return tuple(Slo.parse(each) if isinstance(each, str) else each for each in given)


def readings(slos: Sequence[Slo | str] | Slo | str | None) -> list[str]:
    """What to tell of SLOs with names of other tools for metrics: which of ours each was taken for."""
    texts = [slos] if isinstance(slos, str) else slos if isinstance(slos, Sequence) else []
    return [f"SLO {found}" for text in texts if isinstance(text, str) and (found := read_as(text)) is not None]


def _compare(left: pl.Expr, op: Op, bound: float) -> pl.Expr:
    if op == "<=":
        return left <= bound
    if op == "<":
        return left < bound
    return left >= bound if op == ">=" else left > bound


def _plain(number: Decimal) -> str:
    """Digits without exponent and without trailing zeros."""
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
