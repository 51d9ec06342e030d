"""Whether two clusters, or two settings of one, differ in how long phases take: percentiles with what never ended.

The unit is the test, as it is the run in `gpusize compare`: with repeats of a test on each side there is a verdict on
the clusters; with one on a side only these two tests are compared, and their figures vary by blocks of submissions that
followed on each other, as those share a queue.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from gpusize.analysis.compare.blocks import block_length
from gpusize.analysis.compare.differences import MARGIN, Difference, difference, with_verdicts
from gpusize.analysis.compare.figures import Figure, Measured
from gpusize.base.errors import PathMissing, UsageError
from gpusize.cluster.folder import FACTS
from gpusize.cluster.opened import open_test
from gpusize.cluster.phases.deltas import CENSORED, DONE
from gpusize.cluster.phases.known_phases import PHASES, phase
from gpusize.cluster.phases.statistics import NS, lasting
from gpusize.cluster.seed_files.read import SUBMITTED

if TYPE_CHECKING:
    import polars as pl

    from gpusize.cluster.phases.timed import Timed

__all__ = ["Compared", "compare_tests"]

SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
USUAL: Final = ("acknowledgement", "admitted", "scheduled", "running", "ready", "completed")
_QUANTILE: Final = 1.959963984540054
_RATE: Final = "pods/s"


@dataclass(frozen=True)
class Compared:
    """What two sides differ in.

    Attributes:
        sides: how many tests each side has, by name.
        differences: one for each figure, with its verdict on the second side.
        not_reached: figures that tests of a side did not reach, where some had not ended: name, and tests of each side.
    """

    sides: Mapping[str, int]
    differences: tuple[Difference, ...]
    not_reached: tuple[tuple[str, int, int], ...]

    def to_json(self) -> dict[str, Any]:
        """In plain types."""
        return {
            "schema": 1,
            "sides": dict(self.sides),
            "differences": [asdict(each) for each in self.differences],
            "not_reached": [{"figure": name, "tests": [a, b]} for name, a, b in self.not_reached],
        }


def compare_tests(
    sides: Mapping[str, str | Path],
    phases: Sequence[str] | None = None,
    *,
    margin: float = MARGIN,
    skip_errors: bool = True,
) -> Compared:
    """Hold the tests of a second side against those of a first.

    Args:
        sides: by name the folder of a test, or a folder of several that are repeats of each other; two of them.
        phases: which are compared; None for those from the submission that both sides have.
        margin: relative differences within it do not matter: 0.02 is 2 %.
        skip_errors: leave out workloads whose times cannot be right.

    Raises:
        UsageError: not two sides, no such phase, or none that both have.
        PathMissing, StoreError: a folder cannot be read.
    """
    if len(sides) != 2:
        raise UsageError(f"two folders are compared, and {len(sides)} given", None, "name two")
    (a, first), (b, second) = sides.items()
    places = [_tests(Path(each)) for each in (first, second)]
    if set(map(Path.resolve, places[0])) & set(map(Path.resolve, places[1])):
        raise UsageError("a test is on both sides", None, "give each side its own")
    made = [[open_test(place, skip_errors=skip_errors) for place in side] for side in places]
    names = [phase(name).name for name in phases] if phases is not None else _common(made)
    if not names:
        raise UsageError("no phase was measured on both sides", None, "name some with --phase")
    found, missed = [], []
    for name in names:
        for figure, share in SHARES.items():
            spec = _figure(f"{figure} {name}", "s", "less")
            values = [[_percentile(test.rows(name), share) for test in side] for side in made]
            found.append(difference(b, "", spec, *values))
            lacking = [sum(_not_reached(test.rows(name), share) for test in side) for side in made]
            if any(lacking):
                missed.append((spec.name, lacking[0], lacking[1]))
    rates = [[_rate(test) for test in side] for side in made]
    found.append(difference(b, "", _figure(_RATE, "pods/s", "more"), *rates))
    known = [each for each in found if not math.isnan(each.change)]
    return Compared({a: len(made[0]), b: len(made[1])}, tuple(with_verdicts(known, margin=margin)), tuple(missed))


def _tests(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise PathMissing("there is no such folder", str(folder), "name the folder of a cluster test")
    if (folder / FACTS).exists() or (folder / SUBMITTED).exists():
        return [folder]
    inside = [each for each in sorted(folder.iterdir()) if (each / FACTS).exists() or (each / SUBMITTED).exists()]
    if not inside:
        raise PathMissing("not a folder of a cluster test, nor of several", str(folder), "see gpusize cluster submit")
    return inside


def _common(made: Sequence[Sequence[Timed]]) -> list[str]:
    import polars as pl

    def ended(side: Sequence[Timed]) -> set[str]:
        each = [set(test.deltas.filter(pl.col("state") == DONE)["phase"].unique()) for test in side]
        return set.intersection(*each)

    both = ended(made[0]) & ended(made[1])
    return [name for name in USUAL if name in both and name in PHASES]


def _figure(name: str, unit: str, better: Any) -> Figure:
    def unused(_: Any) -> NoReturn:
        # Levels are measured by a figure itself; a cluster test has none, and hands in what was measured.
        raise AssertionError(name)

    return Figure(name, unit, better, "ratio", unused)


def _percentile(rows: pl.DataFrame, share: float) -> Measured | None:
    """A percentile with what had not ended, and the error of its logarithm within the test."""
    import polars as pl

    ordered = rows.filter(pl.col("state").is_in((DONE, CENSORED))).sort("submitted_ns", nulls_last=True)
    if ordered.is_empty():
        return None
    found = lasting(ordered).percentile(share)
    if not found.reached or found.value <= 0:
        return Measured(math.nan)
    length = block_length((ordered["value_ns"] / NS).to_numpy())
    if not (found.low > 0 and math.isfinite(found.high)):
        return Measured(found.value)
    error = (math.log(found.high) - math.log(found.low)) / 2 / _QUANTILE * math.sqrt(length)
    return Measured(found.value, error if error > 0 else math.nan, ordered.height / length)


def _not_reached(rows: pl.DataFrame, share: float) -> bool:
    return not rows.is_empty() and not lasting(rows).percentile(share).reached


def _rate(test: Timed) -> Measured | None:
    """Pods scheduled a second, with the error of its logarithm by blocks of seconds."""
    from gpusize.analysis.compare.blocks import block_error

    rate = test.pods_per_s()
    if rate is None or not rate.rate > 0:
        return None
    seconds = block_error(rate.per_s)
    mean = float(rate.per_s.mean())
    return Measured(rate.rate, seconds.error / mean if mean > 0 else math.nan, seconds.blocks)
