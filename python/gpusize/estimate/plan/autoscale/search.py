"""Search for the setting of a policy with the fewest GPU-hours that keeps the SLOs.

    1  least       for each least number of replicas the largest factor on the targets that keeps the SLOs, with the
                   policy's own window
    2  windows     for the best two least numbers the same with the other windows; and smaller factors, which may be
                   cheaper where a backlog asks for more replicas than the load
    3  confirmed   the cheapest of them on days that were not searched on: the largest factor that keeps the SLOs there

All settings meet the same days, so that they differ by themselves and not by chance. The replica of stages 1 and 2 is
slower than the fitted one by one standard error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from gpusize.base.tasks import side_by_side
from gpusize.estimate.plan.autoscale.setting import DEFAULTS, Setting
from gpusize.estimate.plan.autoscale.trials import KEPT, Days, Trial

if TYPE_CHECKING:
    from gpusize.estimate.plan.autoscale.autoscaler import Autoscaler
    from gpusize.estimate.plan.over_time.types import OverTime

__all__ = ["Search"]

WINDOWS_S: Final = (60, 120, 300, 600)
"""Stabilization windows of ``scaleDown`` that are tried, beside that of the policy."""
LEAST, MOST = -4.0, 4.0
"""Logarithms to base 2 of the factors on the targets that are tried."""
FINE, FINER = 1 / 16, 1 / 32
"""Parts of an octave to which the factor is searched, on few days and on those of confirmation."""
TRIED: Final = 3
"""Days that settings are chosen on."""
LEASTS: Final = 8
"""Least numbers of replicas that are tried at first."""
BEYOND: Final = 2
"""More replicas than the largest window needs, up to which a least number is tried."""
SMALLER: Final = (-0.5, -1.0, -2.0)
BEST: Final = 3
"""Least numbers of replicas that are tried with other windows."""
CONFIRMED: Final = 4
"""Settings that are tried on the days of confirmation."""
FREE: Final = 1.003
"""Targets are made smaller where that costs no more than this."""
ROOM: Final = (-0.125, -0.25, -0.5, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0)
"""Where the least number of replicas carries the days, targets decide nothing, and all of these cost the same."""

Found = tuple[Setting, Trial]


class Search:
    """Settings of one policy on days of one kind.

    Args:
        days: simulates them.
        autoscaler: the policy.
        found: the static course for the trace.
        confirming: how many days a setting is confirmed on.
        say: told in words what is done next.
    """

    def __init__(
        self, days: Days, autoscaler: Autoscaler, found: OverTime, confirming: int, say: Callable[[str], None]
    ) -> None:
        self._days, self._autoscaler, self._found, self._say = days, autoscaler, found, say
        # The day itself is one of those that settings are chosen on.
        self._tried = [days.slower(1.0), *(days.slower(1.0, found.edges_ns) for _ in range(TRIED - 1))]
        self._confirming = days.draw(confirming, found.edges_ns)
        self._known: dict[Setting, Trial | None] = {}
        self._sure: dict[Setting, Trial | None] = {}

    def best(self) -> Setting | None:
        """The setting with the fewest GPU-hours that keeps the SLOs for sure; None where none does."""
        candidates = sorted(self._candidates(), key=lambda each: each[1].gpu_hours)
        chosen: Found | None = None
        for number, (setting, trial) in enumerate(candidates):
            # On slower replicas it cost more than the best does for sure.
            if chosen is not None and (number >= CONFIRMED or trial.gpu_hours > chosen[1].gpu_hours):
                break
            self._say(f"confirming on {len(self._confirming)} other days, {self._days.made:,} simulations")
            sure = self._largest(setting, self._surely, FINE, FINER)
            if sure is not None and (chosen is None or sure[1].gpu_hours < chosen[1].gpu_hours):
                chosen = sure
        return None if chosen is None else self._with_room(*chosen)

    def _candidates(self) -> Iterator[Found]:
        """One for each cell of stages 1 and 2 in which any setting keeps the SLOs, and what is cheaper beside it."""
        own = (self._autoscaler.policy["behavior"] or DEFAULTS)["down"]["stabilization_s"]
        own = 300 if own is None else int(own)
        cells = self._by_least(own)
        yield from cells.values()
        best = sorted(cells, key=lambda least: cells[least][1].gpu_hours)[:BEST]
        others = [window_s for window_s in WINDOWS_S if window_s != own]
        for number, window_s in enumerate(others):
            self._say(f"windows: {number + 1} of {len(others)}, {self._days.made:,} simulations")
            wanted = [replace(cells[least][0], window_s=window_s) for least in best]
            searches = [partial(self._largest, each, self._keeps, 0.25, FINE) for each in wanted]
            yield from (found for found in side_by_side(self._days.at_once, searches) if found is not None)
        smaller = [setting for least in best for step in SMALLER if (setting := _times(cells[least][0], step))]
        trials = side_by_side(self._days.at_once, [partial(self._keeps, each) for each in smaller])
        yield from ((setting, trial) for setting, trial in zip(smaller, trials, strict=True) if trial is not None)

    def _by_least(self, window_s: int) -> dict[int, Found]:
        """The largest factor for each least number of replicas that is tried: some, then those beside the best."""
        found: dict[int, Found] = {}
        tried: set[int] = set()
        wanted = self._leasts()
        start = 0.0
        while wanted:
            for number, least in enumerate(wanted):
                self._say(f"least replicas: {number + 1} of {len(wanted)}, {self._days.made:,} simulations")
                largest = self._largest(Setting(2.0**start, window_s, least), self._keeps, 1.0, FINE)
                if largest is not None:
                    found[least] = largest
                    start = round(math.log2(largest[0].factor) / FINE) * FINE
            tried.update(wanted)
            if not found:
                break
            at = min(found, key=lambda least: found[least][1].gpu_hours)
            below = max((each for each in tried if each < at), default=at)
            above = min((each for each in tried if each > at), default=at)
            wanted = sorted({(below + at) // 2, (at + above + 1) // 2} - tried)
        return found

    def _leasts(self) -> list[int]:
        """From the policy's own on, evenly up to some more than the largest window needs."""
        autoscaler = self._autoscaler
        # Never fewer than the policy has: they may be there for another reason than the load.
        first = autoscaler.least if autoscaler.keda is None else int(autoscaler.keda["min_replicas"])
        peak = self._found.static.peak_gpus // self._found.replica_gpus
        last = max(first, min(peak + BEYOND, autoscaler.most))
        steps = min(LEASTS - 1, last - first)
        return sorted({first + round(step * (last - first) / max(1, steps)) for step in range(steps + 1)})

    def _largest(
        self, setting: Setting, keeps: Callable[[Setting], Trial | None], step: float, close: float
    ) -> Found | None:
        """The largest factor near a setting's that keeps the SLOs, from steps that double and then halve; or None.

        It takes for granted that larger targets are fewer replicas, and those more misses.
        """
        at = math.log2(setting.factor)
        low, high = -math.inf, math.inf
        best: Found | None = None
        while True:
            tried = replace(setting, factor=2.0**at)
            trial = keeps(tried)
            if trial is not None:
                low, best = at, (tried, trial)
            else:
                high = at
            if high - low <= close or (low >= MOST) or (high <= LEAST):
                return best
            if math.isinf(low):
                at, step = max(LEAST, high - step), 2 * step
            elif math.isinf(high):
                at, step = min(MOST, low + step), 2 * step
            else:
                at = (low + high) / 2

    def _keeps(self, setting: Setting) -> Trial | None:
        """On the few days that settings are chosen on, if all are kept."""
        if setting not in self._known:
            self._known[setting] = self._days.trial(setting.on(self._autoscaler), self._tried, misses=0)
        return self._known[setting]

    def _surely(self, setting: Setting) -> Trial | None:
        """On the days of confirmation, if the SLOs are kept for sure."""
        if setting not in self._sure:
            misses = math.floor(len(self._confirming) * (1 - KEPT) + 1e-9)
            trial = self._days.trial(setting.on(self._autoscaler), self._confirming, misses=misses)
            self._sure[setting] = trial if trial is not None and trial.surely else None
        return self._sure[setting]

    def _with_room(self, setting: Setting, trial: Trial) -> Setting:
        """The same with the smallest targets that cost no more: room for what the days do not tell."""
        found, before = setting, self._keeps(setting)
        for step in ROOM:
            smaller = _times(setting, step)
            few = None if smaller is None or before is None else self._keeps(smaller)
            # The few days are enough to see that it costs more.
            if smaller is None or few is None or before is None or few.gpu_hours > FREE * before.gpu_hours:
                break
            sure = self._surely(smaller)
            if sure is None or sure.gpu_hours > FREE * trial.gpu_hours:
                break
            found = smaller
        return found


def _times(setting: Setting, octaves: float) -> Setting | None:
    """With a factor that is larger by so many octaves; None where that is none that is tried."""
    at = math.log2(setting.factor) + octaves
    return replace(setting, factor=2.0**at) if LEAST <= at <= MOST else None
