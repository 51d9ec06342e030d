"""The settings of an autoscaler with the fewest GPU-hours that keep the SLOs on such days.

    1  settings     for each stabilization window and each least number of replicas the largest factor on the targets
                    that keeps the SLOs on a few days of the same kind, by bisection
    2  confirmation the cheapest of them on days that were not searched on; tighter where it fails on too many
    3  judgement    the policy as it is, as it was tuned, and with larger and smaller targets, on days that nothing was
                    chosen by

docs/reference/autoscale.md says what a day of the same kind is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from gpusize.estimate.isotonic import wilson
from gpusize.estimate.plan.autoscale.days import another_day

if TYPE_CHECKING:
    from gpusize.estimate.plan.autoscale.autoscaler import Autoscaler
    from gpusize.estimate.plan.over_time.demand import Demand
    from gpusize.estimate.plan.over_time.over_time import Planner
    from gpusize.estimate.plan.over_time.types import OverTime

__all__ = ["Setting", "Trial", "Tuned", "tune"]

WINDOWS_S: Final = (60, 120, 300, 600)
"""Stabilization windows of ``scaleDown`` that are tried, beside that of the policy."""
LEAST_FACTOR, MOST_FACTOR = 1 / 16, 16.0
TURNS: Final = 7
"""Of the bisection: to 1/16 of an octave."""
TRIED, CONFIRMED, JUDGED = 3, 20, 20
"""Days that settings are chosen on, confirmed on, and judged on."""
KEPT: Final = 0.95
"""Share of the days of confirmation that are to keep the SLOs."""
TIGHTER: Final = 0.92
"""Factor on the targets where they do not."""
TIGHTENINGS: Final = 8
EDGE: Final = (0.5, 0.8, 1.0, 1.25, 2.0)
SHARES_OF_PEAK: Final = (0.25, 0.5, 1.0)
"""Least numbers of replicas that are tried beside the policy's, over those that the largest window needs."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is changed of a policy.

    Attributes:
        factor: on the target of each metric.
        window_s: stabilization window of ``scaleDown``.
        min_replicas: the least number of replicas.
    """

    factor: float
    window_s: int
    min_replicas: int

    def on(self, autoscaler: Autoscaler) -> Autoscaler:
        """The policy with this setting."""
        policy, keda = autoscaler.policy, autoscaler.keda
        metrics = [{**each, "target": _scaled(each["target"], self.factor)} for each in policy["metrics"]]
        behavior = policy["behavior"] or DEFAULTS
        behavior = {**behavior, "down": {**behavior["down"], "stabilization_s": self.window_s}}
        least = self.min_replicas
        if keda is not None:
            keda = self._on_keda(keda, metrics)
            if keda["modifiers"] is not None:
                [kind] = metrics[0]["target"]
                metrics = [{**metrics[0], "target": {kind: int(float(keda["modifiers"]["target"]) * 1000)}}]
            least = max(1, least)
        changed = {"metrics": metrics, "behavior": behavior, "min_replicas": least}
        return replace(autoscaler, policy={**policy, **changed}, keda=keda)

    def _on_keda(self, keda: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """KEDA's own part: thresholds are what its fallback goes by, and the target of a formula is the HPA's."""
        changed: dict[str, Any] = {"min_replicas": self.min_replicas}
        modifiers = keda["modifiers"]
        if modifiers is None:
            pairs = zip(keda["triggers"], metrics, strict=True)
            changed["triggers"] = [{**trigger, "target": metric["target"]} for trigger, metric in pairs]
        else:
            changed["modifiers"] = {**modifiers, "target": self._target(keda)}
        return {**keda, **changed}

    def _target(self, keda: Mapping[str, Any]) -> str:
        text = keda["modifiers"]["target"]
        scaled = float(text) * self.factor
        # Beside a fallback KEDA wants a whole number, and would leave the fallback out for another.
        if keda["fallback"] is not None and text.isdecimal():
            return str(max(1, round(scaled)))
        return f"{max(0.001, round(scaled, 3)):.15g}"


DEFAULTS: Final[dict[str, Any]] = {
    "up": {
        "stabilization_s": 0,
        "select": "max",
        "policies": [{"kind": "pods", "value": 4, "period_s": 15}, {"kind": "percent", "value": 100, "period_s": 15}],
        "tolerance": None,
    },
    "down": {
        "stabilization_s": 300,
        "select": "max",
        "policies": [{"kind": "percent", "value": 100, "period_s": 15}],
        "tolerance": None,
    },
}
"""``behavior`` as Kubernetes fills it in, for a policy that has none."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A policy on several days.

    Attributes:
        gpu_hours: mean over the days.
        kept: days on which every SLO was kept.
        days: how many there were.
        shares: the smallest share of requests within each SLO on any of the days.
    """

    gpu_hours: float
    kept: int
    days: int
    shares: tuple[float, ...]

    @property
    def interval(self) -> tuple[float, float]:
        """The share of days that keep the SLOs, as a 95 % interval by Wilson."""
        return wilson(self.kept / self.days, self.days)


@dataclass(frozen=True, eq=False)
class Tuned:
    """The settings that were found.

    Attributes:
        found: the static course for the trace, and how it was come by; its ``reason`` says why there is none.
        before: the policy as it is, on days that nothing was chosen by; None without an answer.
        setting: what is changed; None where no setting keeps the SLOs on enough days.
        policy: the policy with it.
        after: this policy on the same days.
        edge: factor on its targets, and what that comes to there.
        simulations: how many were made.
    """

    found: OverTime
    before: Trial | None = None
    setting: Setting | None = None
    policy: Autoscaler | None = None
    after: Trial | None = None
    edge: tuple[tuple[float, Trial], ...] = ()
    simulations: int = 0


def tune(
    planner: Planner, autoscaler: Autoscaler, *, seed: int = 1, progress: Callable[[str], None] | None = None
) -> Tuned:
    """Search for the settings of a policy with the fewest GPU-hours that keep the SLOs.

    Args:
        planner: a trace on a fitted replica.
        autoscaler: the policy.
        seed: key of the days.
        progress: told in words what is done next.
    """
    say = progress or _nothing
    found = planner.answer()
    if found.reason is not None:
        return Tuned(found)
    search = _Search(planner, autoscaler, found, seed)
    say(f"the policy as it is, on {JUDGED} days")
    before = search.trial(autoscaler, search.judged)
    candidates: list[tuple[Setting, Trial]] = []
    cells = search.cells()
    for number, (window_s, least) in enumerate(cells):
        say(f"settings: {number + 1} of {len(cells)}, {search.made:,} simulations")
        candidates += search.largest(window_s, least)
    candidates.sort(key=lambda each: each[1].gpu_hours)
    for setting, _trial in candidates[:3]:
        chosen = search.confirmed(setting, say)
        if chosen is not None:
            say(f"judging on {JUDGED} days that nothing was chosen by, {search.made:,} simulations")
            edge = {factor: search.trial(search.times(chosen, factor), search.judged) for factor in EDGE}
            return Tuned(found, before, chosen, chosen.on(autoscaler), edge[1.0], tuple(edge.items()), search.made)
    return Tuned(found, before, simulations=search.made)


class _Search:
    """Simulations of one policy's settings on days of one kind."""

    def __init__(self, planner: Planner, autoscaler: Autoscaler, found: OverTime, seed: int) -> None:
        self._planner, self._autoscaler, self._found = planner, autoscaler, found
        edges = found.edges_ns
        others = TRIED - 1 + CONFIRMED + JUDGED
        days = [another_day(planner.demand, edges, seed * 1000 + k) for k in range(others)]
        # The day itself is one of those that settings are chosen on.
        self.tried: list[Demand] = [planner.demand, *days[: TRIED - 1]]
        self._confirming: list[Demand] = days[TRIED - 1 : TRIED - 1 + CONFIRMED]
        self.judged: list[Demand] = days[TRIED - 1 + CONFIRMED :]
        self.made = 0

    def cells(self) -> list[tuple[int, int]]:
        """Stabilization windows and least numbers of replicas."""
        policy = self._autoscaler.policy
        own = (policy["behavior"] or DEFAULTS)["down"]["stabilization_s"]
        windows = sorted({*WINDOWS_S, 300 if own is None else int(own)})
        peak = min(self._found.static.peak_gpus // self._found.replica_gpus, self._autoscaler.most)
        first = self._autoscaler.least if self._autoscaler.keda is None else int(self._autoscaler.keda["min_replicas"])
        # Never fewer than the policy has: they may be there for another reason than the load.
        steps = {first, *(max(first, round(peak * share)) for share in SHARES_OF_PEAK)}
        return [(window_s, least) for window_s in windows for least in sorted(steps)]

    def times(self, setting: Setting, factor: float) -> Autoscaler:
        """The policy with a setting whose targets are larger by a factor."""
        return replace(setting, factor=setting.factor * factor).on(self._autoscaler)

    def trial(self, autoscaler: Autoscaler, days: Sequence[Demand]) -> Trial:
        """The policy on these days, both cores at once."""
        with ThreadPoolExecutor(2) as pool:
            courses = list(pool.map(lambda day: self._planner.scaled(autoscaler, day, quiet=True), days))
        self.made += len(days)
        shares = zip(*(course.shares for course in courses), strict=True)
        hours = sum(course.gpu_hours for course in courses) / len(courses)
        return Trial(hours, sum(course.keeps for course in courses), len(days), tuple(map(min, shares)))

    def largest(self, window_s: int, least: int) -> Iterable[tuple[Setting, Trial]]:
        """The largest factor on the targets that keeps the SLOs on the days that settings are chosen on, if any."""

        def tried(factor: float) -> tuple[Setting, Trial]:
            setting = Setting(factor, window_s, least)
            return setting, self.trial(setting.on(self._autoscaler), self.tried)

        low, high = math.log2(LEAST_FACTOR), math.log2(MOST_FACTOR)
        best = tried(2**low)
        if best[1].kept < TRIED:
            return []
        for _ in range(TURNS):
            middle = tried(2 ** ((low + high) / 2))
            if middle[1].kept == TRIED:
                low, best = (low + high) / 2, middle
            else:
                high = (low + high) / 2
        return [best]

    def confirmed(self, setting: Setting, say: Callable[[str], None]) -> Setting | None:
        """The setting, with tighter targets where it fails on too many other days; None where that is not enough."""
        for _ in range(TIGHTENINGS):
            say(f"confirming on {CONFIRMED} other days, {self.made:,} simulations")
            if self.trial(setting.on(self._autoscaler), self._confirming).kept >= KEPT * CONFIRMED:
                return setting
            setting = replace(setting, factor=setting.factor * TIGHTER)
        return None


def _scaled(target: dict[str, Any], factor: float) -> dict[str, int]:
    return {kind: max(1, round(value * factor)) for kind, value in target.items()}


def _nothing(_text: str) -> None:
    return
