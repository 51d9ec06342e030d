"""An autoscaler as it is simulated: its policy, its signals, and what the simulation leaves out of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

__all__ = ["Autoscaler", "Surroundings", "Timing"]

SYNC_S: Final = 15.0
"""``--horizontal-pod-autoscaler-sync-period`` of the controller manager."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How often is looked.

    Attributes:
        scrape_s: from one scrape of the replicas' metrics to the next.
        sync_s: from one decision to the next.
    """

    scrape_s: float = 15.0
    sync_s: float = SYNC_S


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What stands around an autoscaler.

    Attributes:
        holds: requests that come while no replica takes any are held by the gateway in front; else it refuses them.
        hold_s: one that was held for so long is refused.
        outages_s: from when to when there are no metrics: nothing is scraped, and every query fails.
    """

    holds: bool = True
    hold_s: float = 3600.0
    outages_s: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """One policy.

    Attributes:
        name: what it is called in tables.
        policy: the HorizontalPodAutoscaler, as the extension reads it; of a ScaledObject the one that KEDA makes of it.
        signals: what each of its metrics measures, as the extension reads it; of a ScaledObject each trigger.
        timing: how often is looked.
        notes: what the simulation leaves out.
        keda: what KEDA itself goes by, as the extension reads it; None of an HPA alone.
        surroundings: what stands around it.
    """

    name: str
    policy: Mapping[str, Any]
    signals: tuple[Mapping[str, Any], ...]
    timing: Timing = Timing()
    notes: tuple[str, ...] = ()
    keda: Mapping[str, Any] | None = None
    surroundings: Surroundings = Surroundings()

    @property
    def least(self) -> int:
        """The fewest replicas that there may be for long: with KEDA those without activity."""
        if self.keda is None:
            return int(self.policy["min_replicas"])
        idle = self.keda["idle_replicas"]
        return int(self.keda["min_replicas"] if idle is None else idle)

    @property
    def most(self) -> int:
        """The most replicas that there may be."""
        return int(self.policy["max_replicas"])

    def bounded(self, replicas: int) -> int:
        """So many replicas, within what there may be; none are as many as there are without activity."""
        return self.least if replicas == 0 else max(int(self.policy["min_replicas"]), min(replicas, self.most))

    def named(self, name: str) -> Autoscaler:
        """The same under another name."""
        return replace(self, name=name)

    def to_json(self, first: int, slowness: float = 1.0, until_s: float = 0.0) -> str:
        """What the simulation takes.

        Args:
            first: how many replicas there are at first.
            slowness: its clock is slower by this factor than that of the simulated replicas.
            until_s: it goes on for so long, though all requests have been answered.
        """
        around = self.surroundings
        # A day goes on from the one before: what is there at first was in use, unless the object is new.
        is_new = self.keda is not None and self.keda["initial_cooldown_s"] > 0
        return json.dumps(
            {
                "policy": {**self.policy, "sync_s": self.timing.sync_s},
                "signals": [dict(each) for each in self.signals],
                "keda": None if self.keda is None else dict(self.keda),
                "scrape_s": self.timing.scrape_s,
                "slowness": slowness,
                "outages": [{"from_s": begin, "until_s": end} for begin, end in around.outages_s],
                "front": {"holds": around.holds, "timeout_s": around.hold_s},
                "begins_at_zero": first == 0,
                "until_s": until_s,
                "was_active": first > self.least and not is_new,
            }
        )
