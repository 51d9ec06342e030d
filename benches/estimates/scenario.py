"""A scenario: a cluster, a question about it, what may be spent on the answer, and over what the answer must hold."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from benches.estimates.question import Visible
from benches.estimates.worlds import World

__all__ = ["Expected", "Scenario", "horizon"]

Expected = Literal["answer", "single", "flat", "never"]

MIN_COUNTED = 4_000
MAX_COUNTED = 100_000
COUNTED_ROUNDS = 24
WARMUP_ROUNDS = 4


@dataclass(frozen=True)
class Scenario:
    """A cluster, a question about it, and what may be spent on the answer.

    Attributes:
        name: seed and number.
        kind: ``own`` or the name of a foreign mechanism.
        traits: what else is special about it, for tables.
        world: the replicas' nature. Hidden from estimators.
        visible: the question.
        expects: ``answer``, or why there is none: ``single`` (one request alone misses an SLO), ``flat`` (nothing that
            the budget can measure comes near an SLO), ``never`` (replicas slow each other down too much).
        hint: the replicas that were drawn; near the truth.
        edge: users (or rate) per replica at the drawn edge.
        per_load: requests in flight, thinking users included, per user (1) or per request/s.
        budget: requests that an estimator may send, warm-up included.
    """

    name: str
    kind: str
    traits: tuple[str, ...]
    world: World
    visible: Visible
    expects: Expected
    hint: int
    edge: float
    per_load: float
    budget: int

    @property
    def foreign(self) -> bool:
        """Whether its mechanism is not the project's own model."""
        return self.kind != "own"

    def rounds(self, load: float) -> float:
        """Requests of a round at a load on the whole cluster: one per user, or per request in flight."""
        return max(1.0, load * self.per_load)

    def digest(self) -> str:
        """A name for what the truth depends on."""
        what = {"world": self.world.to_json(), "asked": self.visible.to_json(), "per_load": self.per_load}
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:32]


def horizon(scenario: Scenario, load: float) -> tuple[int, int]:
    """(counted requests, warm-up requests) over which an answer must hold."""
    each = scenario.rounds(load)
    counted = int(np.clip(math.ceil(COUNTED_ROUNDS * each), MIN_COUNTED, MAX_COUNTED))
    return counted, math.ceil(WARMUP_ROUNDS * each)
