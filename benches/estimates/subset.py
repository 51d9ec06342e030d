"""A small fixed part of the suite with its truths stored, on which tests judge the default in seconds.

``python -m benches.estimates.subset`` makes the truths again, after a change of what scenarios are (a minute or two).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from benches.estimates.judge import Outcome, Task, judge
from benches.estimates.scenarios import draw
from benches.estimates.truth import MODEL_VERSION, cache_folder, truth
from benches.lib.host import ROOT

__all__ = ["NUMBERS", "SEED", "STORED", "judged", "lay", "main"]

SEED: Final = 5
"""Not one of the judging seeds."""
SLOW: Final = (9, 11, 12, 13, 24, 26)
NUMBERS: Final = tuple(number for number in range(30) if number not in SLOW)
STORED: Final = ROOT / "tests" / "estimates_suite" / "truths.json"


def lay(stored: Path = STORED) -> set[str]:
    """Put the stored truths where they are looked for, so that none is worked out again; their files' names.

    Where a scenario has changed its name is another one: then its truth is worked out, and a file more is there.
    """
    known = json.loads(stored.read_text(encoding="utf-8"))
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    for name, each in known.items():
        (folder / name).write_text(json.dumps(each), encoding="utf-8")
    return set(known)


def judged(method: str, numbers: Sequence[int] = NUMBERS) -> list[Outcome]:
    """How a method does on the subset."""
    return [each for number in numbers for each in judge(Task(SEED, number, (method,)))]


def main() -> int:
    """Work the truths out and store them."""
    found = {}
    for number in NUMBERS:
        [scenario] = draw(SEED, 1, first=number)
        found[f"{scenario.digest()}-{MODEL_VERSION}.json"] = asdict(truth(scenario)) | {"shares": {}}
    lines = [f"{json.dumps(name)}: {json.dumps(each)}" for name, each in found.items()]
    STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    sys.stderr.write(f"{len(found)} truths in {STORED.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
