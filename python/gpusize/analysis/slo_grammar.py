"""The grammar of SLOs: from text to its parts, with the column in every error. ``analysis.slo`` says what they mean."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import ClassVar, Final, Literal, NamedTuple

from gpusize.analysis.metrics import FIELD, FROM_DUE, FROM_SENT, METRICS, metric
from gpusize.base.errors import SloError, UsageError
from gpusize.records.schema import OUTCOMES

__all__ = ["Kind", "Op", "Parsed", "SloParser", "parse"]

Kind = Literal["percentile", "mean", "share"]
Op = Literal["<=", "<", ">=", ">"]

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<op><=|>=|≤|≥|<|>)|(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(?P<percent>%)|(?P<word>[^\W\d][\w./]*)|(?P<end>$))"
)
_AS_TYPED: Final = {"≤": "<=", "≥": ">="}
_UNITS: Final[dict[str, dict[str, Decimal]]] = {
    "s": {
        "us": Decimal("1e-6"),
        "µs": Decimal("1e-6"),
        "ms": Decimal("1e-3"),
        "s": Decimal(1),
        "min": Decimal(60),
        "h": Decimal(3600),
    },
    "tokens": {"tokens": Decimal(1)},
    "tokens/s": {"tokens/s": Decimal(1), "tok/s": Decimal(1)},
    "bytes": {"B": Decimal(1), "KiB": Decimal(1024), "MiB": Decimal(1024**2)},
}
_MOST_DIGITS: Final = 40
_MOST_EXPONENT: Final = 400
_ORIGINS: Final = {
    **{(name, "due"): name for name in FROM_SENT},
    **{(name, "sent"): sent for name, sent in FROM_SENT.items()},
    **{(name, "sent"): name for name in FROM_DUE},
}
_SHARES: Final = ("ok", "error", *(name for name in OUTCOMES if name not in ("ok", "cancelled")))


class Parsed(NamedTuple):
    """The parts of an SLO, as in ``gpusize.analysis.slo.Slo``."""

    kind: Kind
    metric: str
    share: float
    op: Op
    bound: float


def parse(text: str) -> Parsed:
    """Read one SLO.

    Raises:
        SloError: it does not follow the grammar; the text points at the column.
    """
    return SloParser(text).slo()


class SloParser:
    """Recursive descent over one line; keeps the column for the error."""

    subject: ClassVar[str] = "SLO"
    """What the line is, for errors."""
    examples: ClassVar[str] = "write it as in: p95 runtime <= 10s"

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.kind = ""
        self.token = ""
        self.column = 0
        self.next()

    def fail(self, what: str, todo: str) -> SloError:
        """An error that points at the current token."""
        pointer = f"{todo}\n  {self.text}\n  {' ' * self.column}^"
        return SloError(what, f"{self.subject}, column {self.column + 1}", pointer)

    def next(self) -> str:
        """Step to the next token; returns the one that was current."""
        before = self.token
        found = _TOKEN.match(self.text, self.at)
        if found is None:
            self.column = len(self.text) - len(self.text[self.at :].lstrip())
            raise self.fail(f"unexpected {self.text[self.column]!r}", self.examples)
        self.kind = found.lastgroup or "end"
        self.token = _AS_TYPED.get(found[self.kind], found[self.kind])
        self.column = found.start(self.kind)
        self.at = found.end()
        return before

    def slo(self) -> Parsed:
        """The whole line as an SLO."""
        kind, share = self._head()
        if kind == "share":
            return self._share()
        name = self._metric()
        op = self._op()
        bound = self._quantity(METRICS[name].unit)
        self._end()
        return Parsed(kind, name, share, op, bound)

    def _head(self) -> tuple[Kind, float]:
        if self.kind != "word":
            raise self.fail("an SLO starts with a word", self.examples)
        if self.token in ("mean", "share"):
            return ("mean" if self.next() == "mean" else "share"), 1.0
        percentile = re.fullmatch(r"[pP]([0-9]{1,9}(?:\.[0-9]{1,30})?)", self.token)
        if percentile is None:
            return "percentile", 1.0
        value = Decimal(percentile[1])
        share = float(value / 100)
        if not 0 < share <= 1 or (share == 1 and value != 100):
            raise self.fail(
                f"{self.token} is not a percentile", "use more than p0 and at most p100, as in p95 or p99.9"
            )
        self.next()
        return "percentile", share

    def _metric(self) -> str:
        if self.kind != "word":
            raise self.fail("a metric is missing", f"name one of {', '.join(METRICS)}")
        # TTFT and E2E are how many write them.
        lower = self.token.lower()
        typed = lower if lower in FIELD or lower in METRICS else self.token
        try:
            found = metric(FIELD.get(typed, typed))
        except UsageError as error:
            raise self.fail(error.what, error.todo or "") from None
        if found.name == "itl":
            raise self.fail("itl is known per level, not per request", "use itl_mean, the mean gap of one request")
        self.next()
        if (self.kind, self.token) != ("word", "from"):
            return found.name
        self.next()
        # What other tools call latency may count from either; our service is a time from the write by its name.
        either = FROM_DUE.get(found.name, found.name) if typed in FIELD else found.name
        name = _ORIGINS.get((either, self.token))
        if name is None:
            raise self.fail(
                f"{found.name} cannot count from {self.token or 'nothing'}",
                f"{' and '.join(FROM_SENT)} can count from due or from sent",
            )
        self.next()
        return name

    def _op(self) -> Op:
        operators: dict[str, Op] = {"<=": "<=", "<": "<", ">=": ">=", ">": ">"}
        if self.kind != "op":
            raise self.fail("a comparison is missing", "put one of <=, <, >= and > before the bound")
        return operators[self.next()]

    def _number(self) -> Decimal:
        if self.kind != "number":
            raise self.fail("a number is missing", "put the bound here, as in 10s")
        mantissa, _, exponent = self.token.lower().partition("e")
        # Exact arithmetic takes time and room by the number of digits that a number stands for.
        if len(mantissa) > _MOST_DIGITS or len(exponent) > 4 or abs(int(exponent or 0)) > _MOST_EXPONENT:
            raise self.fail("the number is too large or has too many digits", "put the bound here, as in 10s")
        return Decimal(self.token)

    def _quantity(self, unit: str) -> float:
        known = _UNITS[unit]
        value = self._number()
        if float(value) <= 0 or float(value * min(known.values())) == 0:
            raise self.fail("the bound must be above 0", "put the bound here, as in 10s")
        digits = self.next()
        factor = known.get(self.token)
        if factor is None:
            what = f"{self.token!r} is not a unit of it" if self.token else "the bound has no unit"
            raise self.fail(what, f"write {digits} with one of {', '.join(known)}")
        bound = float(value * factor)
        if not math.isfinite(bound):
            raise self.fail("the bound is too large", "put the bound here, as in 10s")
        self.next()
        return bound

    def _share(self) -> Parsed:
        name = self.token
        if name not in _SHARES:
            raise self.fail(f"there is no share of {name or 'nothing'}", f"name one of {', '.join(_SHARES)}")
        self.next()
        wanted: Op = ">=" if name == "ok" else "<="
        if self.token != wanted:
            raise self.fail(
                f"a share of {name} needs {wanted}", f"as in: share {name} {wanted} {'99%' if name == 'ok' else '1%'}"
            )
        self.next()
        value = self._number()
        self.next()
        if self.kind == "percent":
            value /= 100
            self.next()
        if not 0 <= value <= 1 or (name == "ok" and value == 0):
            raise self.fail("a share lies between 0 and 1", "as in 0.99 or 99%")
        self._end()
        return Parsed("share", name, float(value if name == "ok" else 1 - value), wanted, float(value))

    def _end(self) -> None:
        if self.kind != "end":
            raise self.fail(f"{self.token!r} is not expected here", "the SLO ends before it; give each SLO on its own")
