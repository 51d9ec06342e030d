"""Levels of which another tool kept figures alone, and what such figures say against themselves."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from gpusize.analysis.level import LevelData
from gpusize.analysis.windows import LITTLE_TOLERANCE
from gpusize.base.errors import ConfigError
from gpusize.records.schema import SCHEMA_VERSION

__all__ = ["KEPT_UP", "Remarks", "both", "figure_level", "refuse_longest"]

KEPT_UP: Final = 0.95
"""Share of a rate below which it was not sent as asked for."""
_LONGEST_S: Final = 1e9
_QUANTILE: Final = re.compile(r"(\w+)_p([\d.]+)_s")


class Remarks:
    """What contradicts itself in a level, or must be known of it: sentences, and the names of flags."""

    def __init__(self) -> None:
        self.alerts: list[str] = []
        self.flags: list[str] = []

    def add(self, alert: str, flag: str | None = None) -> None:
        """Note a sentence, and that the level is not to be trusted as it is where ``flag`` names why."""
        self.alerts.append(alert)
        if flag is not None and flag not in self.flags:
            self.flags.append(flag)

    def failures(self, failed: int, total: int, kinds: Mapping[str, int] | None = None) -> None:
        """Note failures, by kind where the file says it."""
        if not failed:
            return
        said = ", ".join(f"{n:,} {kind}" for kind, n in (kinds or {}).items()) or "the file does not say how"
        self.add(f"{failed:,} of {total:,} requests failed: {said}")
        if kinds and sum(kinds.values()) != failed:
            self.add(f"its failures by kind add up to {sum(kinds.values()):,}, not {failed:,}", "inconsistent")

    def little(
        self,
        rate: float | None,
        mean_s: float | None,
        concurrency: int,
        *,
        longest_s: float | None = None,
        seconds: float | None = None,
        others: int = 0,
    ) -> None:
        """Hold what was in flight by Little's law (rate times mean time) against what was asked for.

        A closed loop that ends has fewer in flight at its end: of C users all but the last may be idle for as long as
        the longest request takes, so that of C are in flight, over ``seconds``, at least C - (C - 1) longest / seconds.
        A request whose time is not in the mean, as it failed or was cut off, held a place for as long at most.

        Args:
            rate: requests per second that the mean is of.
            mean_s: their mean time.
            concurrency: C.
            longest_s: the longest of their times; None for no time at which users are idle.
            seconds: how long it took; None as above.
            others: requests whose time is not in the mean.
        """
        if rate is None or mean_s is None or not rate or not mean_s:
            return
        held = rate * mean_s
        idle = (concurrency - 1 + others) * longest_s / seconds if longest_s and seconds else 0.0
        low, high = concurrency * (1 - LITTLE_TOLERANCE) - idle, concurrency * (1 + LITTLE_TOLERANCE)
        if not low <= held <= high:
            what = f"{rate:.4g}/s for {mean_s:.4g} s each are {held:.3g} in flight, not {concurrency}"
            self.add(f"Little's law: {what}", "little")

    def falling(self, percentiles: Mapping[str, float]) -> None:
        """Note metrics of which a higher percentile is below a lower one."""
        ordered: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for name, value in percentiles.items():
            match = _QUANTILE.fullmatch(name)
            if match is not None:
                ordered[match[1]].append((float(match[2]), value))
        for metric, points in ordered.items():
            values = [value for _, value in sorted(points)]
            # What is equal may differ by the rounding of its mean.
            fallen = any(high < low * (1 - 1e-9) for low, high in itertools.pairwise(values))
            if fallen:
                self.add(f"its percentiles of {metric} fall", "inconsistent")


def refuse_longest(percentiles: Mapping[str, float], where: str) -> None:
    """Refuse times that no request takes.

    Raises:
        ConfigError: one of them is longer than 30 years.
    """
    for name, value in percentiles.items():
        if value > _LONGEST_S:
            raise ConfigError(f"{value:.3g} s are out of range", f"{where}, {name}", "the file is damaged")


def figure_level(
    setting: Mapping[str, Any],
    percentiles: Mapping[str, float | None],
    remarks: Remarks,
    facts: Mapping[str, Any],
    *,
    gpus: int,
    where: str,
    state: str = "done",
) -> LevelData:
    """A level of figures.

    Args:
        setting: as in docs/reference/run-folder.md.
        percentiles: seconds by name, as ``runtime_p95_s`` or ``service_mean_s``; null and 0 are what the tool lacks.
        remarks: what is odd in it. That percentiles fall is added here.
        facts: more fields of ``level.json``: ``due`` and ``failed`` (requests), rates, the tool's own figures.
        gpus: GPUs behind the target; 0 for unknown.
        where: the place in the file, for errors.
        state: as in ``level.json``.

    Raises:
        ConfigError: a time that no request takes.
    """
    known = {name: value for name, value in percentiles.items() if value}
    refuse_longest(known, where)
    remarks.falling(known)
    mean_s = known.get("service_mean_s", known.get("runtime_mean_s"))
    meta = {
        "schema": SCHEMA_VERSION,
        "visit": 0,
        "imported": True,
        "setting": dict(setting),
        "state": state,
        "stop_reason": None,
        "intervals": [],
        "alerts": remarks.alerts,
        "flags": remarks.flags,
        "percentiles": known,
        "items": {},
        "residence_ns": None if mean_s is None else round(mean_s * 1e9),
        **facts,
    }
    return LevelData(
        visit=0, setting=setting, state=state, intervals=(), gpus=gpus, run="", meta=meta, percentiles=known
    )


def both(names: Iterable[str], figures: Mapping[str, float | None]) -> dict[str, float | None]:
    """Figures (``p95``: seconds) under each of several metrics' names, as percentiles of a level."""
    return {f"{name}_{what}_s": value for name in names for what, value in figures.items()}
