"""Thresholds on phases: ``p99 scheduled <= 5s``, and what others ask for by name.

    pNN|mean|share PHASE OP NUMBER UNIT

A percentile is of all that began the phase, those that never ended included, and each is taken at the worse end of its
interval. So it is met only where the times would be met however wrong the sources are, and whatever becomes of what had
not ended: of all, as many as the percentile says had ended within the bound. A mean with anything that never ended is
endless. ``share`` is of those that ended: ``share scheduled >= 99%``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from gpusize.analysis.slo_grammar import SloParser
from gpusize.base.errors import SloError
from gpusize.base.text import did_you_mean
from gpusize.cluster.phases.deltas import CENSORED, DONE
from gpusize.cluster.phases.known_phases import PHASES, POD_PHASES
from gpusize.cluster.phases.statistics import NS, lasting

if TYPE_CHECKING:
    import polars as pl

    from gpusize.cluster.phases.timed import Timed

__all__ = ["PRESETS", "Judged", "Threshold", "judge", "thresholds"]

ROUNDING: Final = 1e-9
PRESETS: Final = {
    "kubernetes": ("p99 pod_startup <= 5s",),
    "kube-burner": ("p99 pod_ready <= 15s",),
    "clusterloader2": ("p50 pod_startup <= 5s", "p90 pod_startup <= 5s", "p99 pod_startup <= 5s"),
}
"""Thresholds of others by name: the pod startup SLO of Kubernetes, kube-burner's of its workload node-density, and
ClusterLoader2's of PodStartupLatency."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """One threshold.

    Attributes:
        text: as it is written, with one blank between words.
        kind: what is bounded.
        phase: of which phase.
        share: which percentile, 0.99 for p99.
        op: ``<=`` or ``<``, of a share ``>=`` or ``>``.
        bound: seconds, of a share 0 to 1.
        preset: the name that it came by; empty for none.
    """

    text: str
    kind: Literal["percentile", "mean", "share"]
    phase: str
    share: float
    op: str
    bound: float
    preset: str = ""

    @classmethod
    def parse(cls, text: str, preset: str = "") -> Threshold:
        """Read one.

        Raises:
            SloError: it does not follow the grammar; the text points at the column.
        """
        return _Parser(text).threshold(preset)


@dataclass(frozen=True, slots=True)
class Judged:
    """What a test says of a threshold.

    Attributes:
        threshold: the threshold.
        met: whether it is met.
        value: the figure that was judged: seconds, or a share; infinite where a percentile was not reached.
        n: workloads or pods that began the phase; 0 where nothing is known of it.
        censored: of them, those that had not ended.
        why: in words.
    """

    threshold: Threshold
    met: bool
    value: float
    n: int
    censored: int
    why: str


class _Parser(SloParser):
    """As SLOs of requests are read, with phases in place of metrics."""

    subject: ClassVar[str] = "threshold"
    examples: ClassVar[str] = "write it as in: p99 scheduled <= 5s, share ready >= 99%"

    def threshold(self, preset: str) -> Threshold:
        kind, share = self._head()
        name = self.token
        known = {**PHASES, **POD_PHASES}
        if self.kind != "word" or name not in known:
            what = f"there is no phase {name}" if self.kind == "word" else "a phase is missing"
            raise self.fail(what, did_you_mean(name, known, f"name one of {', '.join(known)}"))
        self.next()
        op = self._op()
        if (kind == "share") != op.startswith(">"):
            raise self.fail(f"{op} does not fit", "times are bounded by <= or <, a share of what ended by >=")
        if kind == "share":
            bound = float(self._number())
            self.next()
            if self.kind == "percent":
                bound = float(Decimal(repr(bound)) / 100)
                self.next()
            if not 0 < bound <= 1:
                raise self.fail("a share lies between 0 and 1", "as in 0.99 or 99%")
        else:
            bound = self._quantity("s")
        self._end()
        return Threshold(" ".join(self.text.split()), kind, name, share, op, bound, preset)


def thresholds(texts: Iterable[str]) -> list[Threshold]:
    """Thresholds from texts, each one threshold or the name of a preset.

    Raises:
        SloError: one that is neither.
    """
    made: list[Threshold] = []
    for text in texts:
        name = text.strip().lower()
        if name in PRESETS:
            made += [Threshold.parse(each, name) for each in PRESETS[name]]
        elif name and " " not in name and not any(mark in name for mark in "<>"):
            todo = did_you_mean(name, PRESETS, f"name one of {', '.join(PRESETS)}, or {_Parser.examples}")
            raise SloError(f"there is no preset {text.strip()}", "threshold", todo)
        else:
            made.append(Threshold.parse(text))
    return made


def judge(timed: Timed, wanted: Iterable[Threshold]) -> list[Judged]:
    """Hold a test against thresholds."""
    return [_judged(each, timed.rows(each.phase)) for each in wanted]


def _judged(threshold: Threshold, rows: pl.DataFrame) -> Judged:
    import polars as pl

    known = rows.filter(pl.col("state").is_in((DONE, CENSORED)))
    censored = known.filter(pl.col("state") == CENSORED).height
    n = known.height
    if n == 0:
        return Judged(threshold, met=False, value=math.nan, n=0, censored=0, why="nothing is known of this phase")
    if threshold.kind == "share":
        value = (n - censored) / n
    elif threshold.kind == "mean":
        value = math.inf if censored else float(known["hi_ns"].mean() or 0.0) / NS  # type: ignore[arg-type]
    else:
        value = lasting(known, end="hi_ns").percentile(threshold.share).value
        early = _too_early(threshold, known)
        if early:
            return Judged(threshold, met=False, value=math.inf, n=n, censored=censored, why=early)
    met = {
        "<=": value <= threshold.bound,
        "<": value < threshold.bound,
        ">=": value >= threshold.bound,
        ">": value > threshold.bound,
    }[threshold.op]
    return Judged(threshold, met, value, n, censored, _why(threshold, value, n, censored))


def _too_early(threshold: Threshold, known: pl.DataFrame) -> str:
    """Why nobody knows yet whether a percentile keeps its bound, as what had not ended decides; else empty."""
    import polars as pl

    bound, least = threshold.bound, threshold.share * known.height * (1 - ROUNDING)
    within = known.filter(pl.col("state") == DONE, pl.col("hi_ns") / NS <= bound).height
    waiting = (pl.col("state") == CENSORED) & ~pl.col("never") & (pl.col("value_ns") / NS < bound)
    younger = known.filter(waiting).height
    if not within < least <= within + younger:
        return ""
    return f"{within} of {known.height} ended within {bound:g} s, and {younger} had waited for less: too early to say"


def _why(threshold: Threshold, value: float, n: int, censored: int) -> str:
    left = f"; {censored} of {n} had not ended" if censored else ""
    if threshold.kind == "share":
        return f"{value:.2%} of {n} ended{left}"
    if math.isinf(value):
        reason = "so the mean has no end" if threshold.kind == "mean" else "so it was not reached"
        return f"{censored} of {n} had not ended at the last look, {reason}"
    return f"{value:.4g} s by the worse end of the interval, n {n}{left}"
