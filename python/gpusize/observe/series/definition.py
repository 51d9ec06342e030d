"""One quantity that is pulled: which series say it, in which unit, and how replicas add up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from gpusize.base.errors import UsageError
from gpusize.base.text import shown

__all__ = ["Across", "Definition", "Kind", "Role", "Said", "Source", "parse_series"]

Kind = Literal["gauge", "counter", "histogram"]
Across = Literal["sum", "mean", "max", "each"]
Role = Literal["value", "bucket", "sum", "count", "native"]

_SUFFIXES: Final[tuple[tuple[str, Role], ...]] = (("_bucket", "bucket"), ("_sum", "sum"), ("_count", "count"))
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,99}")
_METRIC: Final = r"[A-Za-z_:][A-Za-z0-9_:]*"
_MATCHER: Final = r"\s*[A-Za-z_][A-Za-z0-9_]*\s*(?:=~|!~|!=|=)\s*\"(?:[^\"\\\n]|\\[^\n])*+\"\s*"
_SELECTOR: Final = re.compile(rf"(?P<metric>{_METRIC})\s*(?:\{{(?P<match>(?:{_MATCHER}(?:,{_MATCHER})*+,?)?)\s*\}})?")
_WORDS: Final = frozenset({"nan", "inf"})
"""What reads as a selector and is a number."""


@dataclass(frozen=True, slots=True)
class Source:
    """A metric that says it.

    Attributes:
        metric: its name; of a histogram without ``_bucket``; of a counter with ``_total``, where it has that.
        scale: factor to the definition's unit.
    """

    metric: str
    scale: float = 1.0


class Said(NamedTuple):
    """What a series of one name says.

    Attributes:
        metric: the series' name.
        rank: of several that say the same at the same time, the lowest counts.
        role: which part of a histogram, or ``value``.
        scale: factor to the definition's unit.
    """

    metric: str
    rank: int
    role: Role
    scale: float


@dataclass(frozen=True, slots=True)
class Definition:
    """One quantity.

    Attributes:
        name: its canonical name, the column ``name`` of the samples; of a histogram's sum and count with ``_sum`` and
            ``_count`` behind it.
        means: in words.
        kind: ``gauge``, ``counter`` or ``histogram``.
        unit: of the values; of a histogram, of its bounds.
        sources: the metrics that say it, those of today first, older names behind; only the first that a scrape of a
            target has counts.
        across: how replicas make one figure: added, averaged, the largest, or not at all.
        by: labels that tell apart what is never made one figure of: deployments, for instance.
        match: label matchers of its own, for a selector of the user's.
        promql: an expression instead of metrics, evaluated at steps.
    """

    name: str
    means: str
    kind: Kind
    unit: str
    sources: tuple[Source, ...] = ()
    across: Across = "sum"
    by: tuple[str, ...] = ()
    match: str | None = None
    promql: str | None = None

    def said(self) -> Iterator[Said]:
        """Every series name that may say it.

        A counter's name with ``_total`` stands for the bare name too, as exporters differ, and a colon for an
        underscore, as some collectors replace it. A native histogram comes before buckets of the same name.
        """
        seen: set[str] = set()
        rank = 0
        for source in self.sources:
            for name in _spellings(source.metric):
                for each in self._forms(name):
                    if each[0][0] in seen:
                        continue
                    seen |= {metric for metric, _ in each}
                    yield from (Said(metric, rank, role, source.scale) for metric, role in each)
                    rank += 1

    def _forms(self, name: str) -> tuple[tuple[tuple[str, Role], ...], ...]:
        if self.kind == "histogram":
            return ((name, "native"),), tuple((f"{name}{suffix}", role) for suffix, role in _SUFFIXES)
        if self.kind == "counter" and name.endswith("_total"):
            return ((name, "value"),), ((name.removesuffix("_total"), "value"),)
        return (((name, "value"),),)


def _spellings(metric: str) -> tuple[str, ...]:
    return (metric, metric.replace(":", "_")) if ":" in metric else (metric,)


def parse_series(text: str) -> Definition:
    """A series of the user's own, ``NAME=PROMQL``.

    A plain selector, as ``queue=my_queue_length{app="x"}``, is pulled as it was stored; any other expression is
    evaluated by the server at steps.

    Raises:
        UsageError: not of this form.
    """
    name, equals, query = (part.strip() for part in text.partition("="))
    if not equals or not query or not _NAME.fullmatch(name):
        raise UsageError(
            f'"{shown(text)}" is not a series', "series", "write NAME=PROMQL, the name in small letters and digits"
        )
    if any(not (character.isprintable() or character in "\n\t") for character in query):
        raise UsageError("the expression holds a control character", f"series {name}", "leave it out")
    plain = _SELECTOR.fullmatch(query)
    if plain is None or query.lower() in _WORDS:
        return Definition(name, query, "gauge", "", across="each", promql=query)
    metric, match = plain["metric"], (plain["match"] or "").strip().rstrip(",") or None
    if metric.endswith("_bucket"):
        sources = (Source(metric.removesuffix("_bucket")),)
        return Definition(name, query, "histogram", "", sources, match=match)
    kind: Kind = "counter" if metric.endswith(("_total", "_sum", "_count")) else "gauge"
    return Definition(name, query, kind, "", (Source(metric),), match=match)
