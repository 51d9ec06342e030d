"""What it would cost to be wrong by one GPU: the load that each count would leave to the tested GPUs, as measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpusize.estimate.level_quality import UNBELIEVED
from gpusize.estimate.question import Estimate
from gpusize.estimate.twin.visit_data import tightest
from gpusize.report.summary.sweep import Sweep
from gpusize.report.summary.words import slos_of
from gpusize.report.text import finite, percent, plain_number

__all__ = ["Count", "off_by_one"]

_WORST: Final = "worst_attainment"
_UNBELIEVED: Final = frozenset(UNBELIEVED)


@dataclass(frozen=True, slots=True)
class Count:
    """A number of GPUs, the load that it leaves to as many GPUs as were tested, and what was measured around that."""

    gpus: int
    load: str
    measured: str
    answer: bool


def off_by_one(estimate: Estimate, sweep: Sweep) -> list[Count]:
    """The answer, one GPU fewer and one more; empty where the levels do not tell.

    With n GPUs each group of as many as were tested (t) has load * t / n to carry, as capacity in proportion has it.
    What share of requests was within the SLO there is known at the measured levels alone, so those on both sides stand.

    Args:
        estimate: the answer.
        sweep: the levels that it rests on; those of the tested GPUs are read.
    """
    n, tested = estimate.gpus, estimate.tested_gpus
    load = estimate.rate if estimate.rate is not None else estimate.users
    # A mean is no share of requests: it may be kept where most of them are beyond its bound.
    slos = slos_of(estimate)
    judged = [(k, slo.required) for k, slo in sweep.attainments() if slo.text in slos]
    required = {k: share for k, share in judged if share is not None}
    law = estimate.details.get("law") or finite(estimate.details.get("sigma")) or finite(estimate.details.get("kappa"))
    if n is None or not tested or not load or law or estimate.think != "none":
        return []
    # Of each SLO that the count keeps the share has to be known.
    if not required or len(required) < len(slos):
        return []
    # Levels of conversations have no place among requests/s.
    if sweep.open_loop != (estimate.rate is not None) or sweep.by_session:
        return []
    rows = tuple(
        {**row, _WORST: _worst(row, required)}
        for row in sweep.rows
        if finite(row.get("gpus")) == tested and _tells(row)
    )
    line = Sweep(rows, sweep.open_loop, sweep.slos, sweep.about).line(_WORST)
    if not line:
        return []
    unit = "requests/s" if sweep.open_loop else "in flight"
    counts = [each for each in (n - 1, n, n + 1) if each > 0]
    return [
        Count(each, f"{plain_number(at)} {unit}", _around(line, at), each == n)
        for each, at in ((each, load * tested / each) for each in counts)
    ]


def _worst(row: Mapping[str, Any], required: Mapping[int, float]) -> float | None:
    """The attainment of the SLO that a level is nearest to missing."""
    found = [finite(row.get(f"slo_{k}_attainment")) for k in required]
    shares = [share for share in found if share is not None]
    return shares[tightest(shares, list(required.values()))] if len(shares) == len(required) else None


def _tells(row: Mapping[str, Any]) -> bool:
    """Whether a level says something of the target: estimates leave the others out, too."""
    return _UNBELIEVED.isdisjoint(row.get("flags") or ())


def _around(line: Sequence[tuple[float, float]], at: float) -> str:
    """The attainment of the levels on both sides, or of the one that is met."""
    exact = [y for x, y in line if x == at]
    if exact:
        return f"{percent(exact[0])} at {plain_number(at, 6)}"
    below = [(x, y) for x, y in line if x < at]
    above = [(x, y) for x, y in line if x > at]
    if not above:
        x, y = below[-1]
        return f"{percent(y)} at {plain_number(x, 6)}, the highest level"
    if not below:
        x, y = above[0]
        return f"{percent(y)} at {plain_number(x, 6)}, the lowest level"
    return " and ".join(f"{percent(y)} at {plain_number(x, 6)}" for x, y in (below[-1], above[0]))
