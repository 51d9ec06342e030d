"""Rules that end a run, as text.

    pNN METRIC [from due|from sent] > NUMBER UNIT for DURATION
    errors|OUTCOME > NUMBER [%] for DURATION
    saturation [for DURATION], of 10 seconds or more

``p99 ttft > 2s for 30s``, ``errors > 5% for 10s``, ``shed > 1% for 1m``, ``saturation``. Words, metrics and units are
those of SLOs (`gpusize.analysis.slo`); ``gpusize.measure.monitor.judge_rules`` says when a rule has come true.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final, Literal, NamedTuple

from gpusize.analysis.detect.saturation import LEAST_STEPS
from gpusize.analysis.metrics import METRICS, by_second
from gpusize.analysis.slo_grammar import SloParser
from gpusize.base.errors import UsageError
from gpusize.base.units import parse_duration_s
from gpusize.records.schema import OUTCOMES

__all__ = ["NOTHING", "TIMES", "Rule", "Seen", "failed_of", "parse_rule", "parse_rules"]

TIMES: Final = tuple(by_second())
"""Metrics that are known for each second while a level runs."""
OF_REQUESTS: Final = tuple(name for name, each in by_second("ok").items() if each.table == "records")
"""Those of them that a request which failed has missed."""
SATURATION_S: Final = 30
"""Time over which saturation is looked for when the rule does not say."""
_ERRORS: Final = ("errors", "error")
_SHARES: Final = (*_ERRORS, *(name for name in OUTCOMES if name not in ("ok", "cancelled")))
_PERCENTILE: Final = re.compile(r"[pP][0-9]{1,9}(?:\.[0-9]{1,30})?")
_EXAMPLES: Final = "write it as in: p99 ttft > 2s for 30s; errors > 5% for 10s; saturation"


class Seen(NamedTuple):
    """What one second, or several, say about a rule: requests (or gaps) judged, and those beyond the bound."""

    judged: int
    over: int

    def __add__(self, other: object) -> Seen:
        return Seen(self.judged + other.judged, self.over + other.over) if isinstance(other, Seen) else NotImplemented

    def __sub__(self, other: Seen) -> Seen:
        return Seen(self.judged - other.judged, self.over - other.over)


NOTHING: Final = Seen(0, 0)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Attributes:
        text: as it was written.
        kind: ``percentile``, ``share`` or ``saturation``.
        subject: a metric of `TIMES`, ``errors``, an outcome, or ``saturation``.
        tolerated: share of the requests that may lie beyond the bound: 1 - NN % of a percentile, the bound of a share.
        bound_ns: of a percentile; 0 otherwise.
        for_s: how long it has to hold, in whole seconds.
    """

    text: str
    kind: Literal["percentile", "share", "saturation"]
    subject: str
    tolerated: Fraction
    bound_ns: int
    for_s: int

    @property
    def reason(self) -> Literal["slo", "errors", "saturation"]:
        """The stop reason in ``level.json``."""
        return {"percentile": "slo", "share": "errors", "saturation": "saturation"}[self.kind]  # type: ignore[return-value]

    @property
    def needed(self) -> int:
        """Requests that can show the tolerated share: 100 for a 99th percentile."""
        return math.ceil(1 / self.tolerated) if self.tolerated else 1

    @property
    def stall_s(self) -> int | None:
        """Seconds without any end, requests being in flight, that break it by themselves; None where they never do.

        Not less than the bound: until then those in flight may still keep it.
        """
        if self.kind != "percentile" or self.subject not in by_second("ok"):
            return None
        return max(self.for_s, math.ceil(self.bound_ns / 1e9))

    def see(self, second: Mapping[str, Any]) -> Seen:
        """Judge what ended in one second (a row of ``Level.seconds``).

        A bucket of a histogram that holds the bound counts as within.
        """
        outcomes = second.get("outcomes") or {}
        if self.kind == "share":
            ended = sum(outcomes.values()) - outcomes.get("cancelled", 0)
            return Seen(ended, failed_of(outcomes) if self.subject == "errors" else outcomes.get(self.subject, 0))
        buckets = (second.get("times") or {}).get(self.subject) or ()
        judged = sum(count for _, _, count in buckets)
        over = sum(count for low_ns, _, count in buckets if low_ns > self.bound_ns)
        if self.subject not in OF_REQUESTS:
            return Seen(judged, over)
        if not judged and outcomes.get("ok"):
            return Seen(0, 0)  # requests end well and do not have the metric: nothing is known
        failed = failed_of(outcomes)
        return Seen(judged + failed, over + failed)

    def broken(self, seen: Seen) -> bool:
        """Whether so many beyond the bound are too many. One alone is never, unless there is no other or none may."""
        if seen.judged == 0 or seen.over == 0:
            return False
        if seen.over == seen.judged or not self.tolerated:
            return True
        return seen.over > 1 and seen.over > self.tolerated * seen.judged


def failed_of(outcomes: Mapping[str, int]) -> int:
    """How many requests neither ended well nor were cancelled."""
    return sum(count for name, count in outcomes.items() if name not in ("ok", "cancelled"))


def parse_rules(texts: Iterable[str]) -> list[Rule]:
    """Read several rules; see `parse_rule`."""
    return [parse_rule(text) for text in texts]


def parse_rule(text: str) -> Rule:
    """Read one rule.

    Raises:
        SloError: it does not follow the grammar; the text points at the column.
    """
    return _RuleParser(text).rule()


class _RuleParser(SloParser):
    subject: ClassVar[str] = "stop rule"
    examples: ClassVar[str] = _EXAMPLES

    def rule(self) -> Rule:
        if self.kind != "word":
            raise self.fail("a stop rule starts with a word", _EXAMPLES)
        if self._at("saturation"):
            self.next()
            for_s = SATURATION_S if self.kind == "end" else self._for(LEAST_STEPS)
            return Rule(self.text, "saturation", "saturation", Fraction(0), 0, for_s)
        if self.token in _SHARES:
            name = "errors" if self.token in _ERRORS else self.token
            self.next()
            self._above()
            bound = self._share_bound()
            return Rule(self.text, "share", name, bound, 0, self._for())
        if not _PERCENTILE.fullmatch(self.token):
            known = "begin with pNN and a metric, errors, an outcome, or saturation"
            raise self.fail(f"{self.token} is nothing that a stop rule watches", known)
        percentile = self.token
        self._head()
        share = Fraction(percentile[1:]) / 100
        name = self._metric()
        self._above()
        bound_ns = round(self._quantity("s") * 1e9)
        return Rule(self.text, "percentile", name, 1 - share, bound_ns, self._for())

    def _at(self, word: str) -> bool:
        return self.token == word

    def _metric(self) -> str:
        column = self.column
        name = self.token
        if name in TIMES and METRICS[name].table != "records":
            self.next()
            return name
        name = super()._metric()
        if name not in TIMES:
            self.column = column
            raise self.fail(f"{name} is not known while a level runs", f"watch one of {', '.join(TIMES)}")
        return name

    def _above(self) -> None:
        if not self._at(">"):
            raise self.fail("a stop rule says when to stop", "put > before the bound, as in: p99 ttft > 2s for 30s")
        self.next()

    def _share_bound(self) -> Fraction:
        column = self.column
        value = Fraction(self._number())
        self.next()
        if self.kind == "percent":
            value /= 100
            self.next()
        if value >= 1:
            self.column = column
            raise self.fail("no share is above that", "give less than 1, as in 0.05 or 5%")
        return value

    def _for(self, least_s: int = 1) -> int:
        if not self._at("for"):
            raise self.fail("it does not say for how long", "end it with a time, as in: for 30s")
        rest = self.text[self.at :]
        self.column = self.at + len(rest) - len(rest.lstrip())
        try:
            seconds = parse_duration_s(rest)
        except UsageError as error:
            raise self.fail(error.what, error.todo or "") from None
        if not rest.strip()[-1].isalpha():
            raise self.fail("the time has no unit", "write it as 10s, 30s or 1m")
        if seconds < 1:
            raise self.fail("rules are judged second by second", f"give a time of {least_s}s or more")
        if seconds < least_s:
            raise self.fail("that is too short to see saturation in", f"give a time of {least_s}s or more")
        return math.ceil(seconds)
