"""A part of PromQL, as trees: what a query is made of, not yet what its names mean.

Numbers, ``+ - * /``, ``or``, parentheses; ``sum``, ``avg``, ``max``, ``min`` and ``count`` over replicas;
``rate``, ``increase``, ``avg_over_time``, ``max_over_time`` and ``last_over_time`` of a name with a range;
``histogram_quantile`` of the ``rate`` of a ``_bucket``, each replica's own or with ``sum by (le)`` around it;
``vector`` of a number. Labels in braces are passed over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["Call", "Operation", "Query", "QueryError", "Selector", "parse"]

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))"
    r"|(?P<name>[A-Za-z_:][\w:]*)"
    r"|(?P<labels>\{(?:[^{}\"']|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*')*\})"
    r"|(?P<window>\[[^\]]*\])"
    r"|(?P<sign>[-+*/(),]))"
)
_OVER_TIME: Final = ("rate", "increase", "avg_over_time", "max_over_time", "last_over_time")
_ACROSS: Final = ("sum", "avg", "max", "min", "count")
_OTHER: Final = ("histogram_quantile", "vector")
_DEEPEST: Final = 50


class QueryError(ValueError):
    """It is not of this part of PromQL."""


@dataclass(frozen=True, slots=True)
class Selector:
    """A name; ``window`` is its range as it is written, without brackets."""

    name: str
    window: str | None


@dataclass(frozen=True, slots=True)
class Call:
    """A function or an aggregation; ``by`` has the labels that it keeps apart, None where it names none."""

    name: str
    of: tuple[Query, ...]
    by: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """``sign`` is one of ``+ - * /`` or ``or``."""

    sign: str
    left: Query
    right: Query


Query = Selector | Call | Operation | float


def parse(text: str) -> Query:
    """The tree of a query.

    Raises:
        QueryError: it is none of this part.
    """
    reader = _Reader(_tokens(text))
    found = reader.alternatives()
    if reader.kind is not None:
        raise QueryError(f'unexpected "{reader.text}"')
    return found


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    stripped = text.rstrip()
    while at < len(stripped):
        token = _TOKEN.match(stripped, at)
        if token is None or token.lastgroup is None:
            raise QueryError(f'unexpected "{stripped[at:].strip()[:1]}"')
        found.append((token.lastgroup, token.group(token.lastgroup)))
        at = token.end()
    return found


class _Reader:
    """Recursive descent; ``or`` binds least, ``*`` and ``/`` most."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens, self._at, self._depth = tokens, 0, 0

    @property
    def kind(self) -> str | None:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else None

    @property
    def text(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _takes(self, *texts: str) -> str | None:
        found = self.text
        if found in texts:
            self._at += 1
            return found
        return None

    def _expect(self, text: str) -> None:
        if self._takes(text) is None:
            raise QueryError(f'"{text}" was expected')

    def alternatives(self) -> Query:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise QueryError(f"it is nested more than {_DEEPEST} deep")
        found = self._sum()
        while self.kind == "name" and self._takes("or"):
            found = Operation("or", found, self._sum())
        self._depth -= 1
        return found

    def _sum(self) -> Query:
        found = self._product()
        while sign := self._takes("+", "-"):
            found = Operation(sign, found, self._product())
        return found

    def _product(self) -> Query:
        found = self._value()
        while sign := self._takes("*", "/"):
            found = Operation(sign, found, self._value())
        return found

    def _value(self) -> Query:
        kind, text = self.kind, self.text
        if kind == "number":
            self._at += 1
            return float(text)
        if self._takes("("):
            found = self.alternatives()
            self._expect(")")
            return found
        if kind != "name":
            raise QueryError(f'unexpected "{text}"' if kind else "it ends where a value was expected")
        self._at += 1
        if text in _ACROSS and (self.text == "(" or self.text in ("by", "without")):
            return self._across(text)
        if self.text == "(":
            if text not in (*_OVER_TIME, *_OTHER):
                raise QueryError(f"the function {text} is not known")
            return Call(text, self._values())
        if self.kind == "labels":
            self._at += 1
        window = None
        if self.kind == "window":
            window = self.text[1:-1].strip()
            self._at += 1
        return Selector(text, window)

    def _across(self, name: str) -> Query:
        by = self._labels()
        values = self._values()
        return Call(name, values, by if by is not None else self._labels())

    def _labels(self) -> tuple[str, ...] | None:
        if self.kind != "name" or not self._takes("by"):
            return None
        self._expect("(")
        found = []
        while self.kind == "name":
            found.append(self.text)
            self._at += 1
            if not self._takes(","):
                break
        self._expect(")")
        return tuple(found)

    def _values(self) -> tuple[Query, ...]:
        self._expect("(")
        found = [self.alternatives()]
        while self._takes(","):
            found.append(self.alternatives())
        self._expect(")")
        return tuple(found)
