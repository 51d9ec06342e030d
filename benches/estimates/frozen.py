"""The judged scenarios of the second family, by what they are made of: a change of any of them does not pass unseen.

``python -m benches.estimates.frozen`` stores them again (a few minutes). That makes another family of it: figures of
before and after are not of the same questions.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np

from benches.estimates.engine_scenarios import Sketch, found_at, sketch_of
from benches.estimates.families import ENGINES, FAMILIES
from benches.estimates.worlds import ForeignWorld, WorldLoad
from benches.lib.host import ROOT

__all__ = ["SAMPLES", "STORED", "main", "sample", "stored"]

STORED: Final = ROOT / "tests" / "estimates_suite" / "engines.json"
SAMPLES: Final = 40
"""Scenarios whose replicas are run, so that a change of the simulator shows."""


def stored() -> dict[str, Any]:
    """What was stored: ``scenarios`` by name as [attempt, digest of the sketch, digest], and ``samples``."""
    found: dict[str, Any] = json.loads(STORED.read_text(encoding="utf-8"))
    return found


def sample(sketch: Sketch) -> list[float]:
    """Mean runtime and mean TTFT of some requests, seconds: what the simulator makes of a replica."""
    users = max(1, round(sketch.replica.in_flight))
    rows = ForeignWorld(sketch.replica.spec).run(WorldLoad(users=users, requests=600), gpus=1, seed=77)
    return [float(np.mean(times - rows.due_ns)) / 1e9 for times in (rows.end_ns, rows.first_token_ns)]


def main() -> int:
    """Draw all of them and store what they are."""
    family = FAMILIES[ENGINES]
    scenarios: dict[str, list[Any]] = {}
    samples: dict[str, list[float]] = {}
    for seed in family.seeds:
        for number in range(family.count):
            attempt, scenario = found_at(seed, number)
            sketch = sketch_of(seed, number, attempt)
            assert sketch is not None
            scenarios[scenario.name] = [attempt, sketch.digest(), scenario.digest()]
            if len(samples) < SAMPLES:
                samples[scenario.name] = sample(sketch)
    parts = {"scenarios": scenarios, "samples": samples}
    lines = [
        f"{json.dumps(part)}: {{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found.items()) + "\n}"
        for part, found in parts.items()
    ]
    STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    sys.stderr.write(f"{len(scenarios)} scenarios in {Path(STORED).relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
