"""An autoscaler as it is simulated: its policy, its signals, and what the simulation leaves out of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

__all__ = ["Autoscaler", "Timing"]

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
class Autoscaler:
    """One policy.

    Attributes:
        name: what it is called in tables.
        policy: the HorizontalPodAutoscaler, as the extension reads it.
        signals: what each of its metrics measures, as the extension reads it.
        timing: how often is looked.
        notes: what the simulation leaves out.
    """

    name: str
    policy: Mapping[str, Any]
    signals: tuple[Mapping[str, Any], ...]
    timing: Timing = Timing()
    notes: tuple[str, ...] = ()

    @property
    def most(self) -> int:
        """The most replicas that there may be."""
        return int(self.policy["max_replicas"])

    def bounded(self, replicas: int) -> int:
        """So many replicas, within what there may be."""
        return max(int(self.policy["min_replicas"]), min(replicas, self.most))

    def named(self, name: str) -> Autoscaler:
        """The same under another name."""
        return replace(self, name=name)

    def to_json(self, slowness: float = 1.0) -> str:
        """What the simulation takes; its clock is slower by this factor than that of the simulated replicas."""
        return json.dumps(
            {
                "policy": {**self.policy, "sync_s": self.timing.sync_s},
                "signals": [dict(each) for each in self.signals],
                "scrape_s": self.timing.scrape_s,
                "slowness": slowness,
            }
        )
