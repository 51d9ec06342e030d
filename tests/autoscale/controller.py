"""The HPA controller of Kubernetes itself, on seeded courses; ``python -m tests.autoscale.controller`` records anew."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.autoscale.courses import SYNC_NS, course

RECORDED = Path(__file__).parents[1] / "fixtures" / "autoscale" / "hpa-1.37.2.json"
COURSES, STEPS = 200, 60


def controller_decisions(program: Path, courses: Sequence[dict[str, Any]]) -> list[list[int]]:
    """The replicas after each sync, as the controller sets them."""
    with tempfile.TemporaryDirectory() as scratch:
        asked, told = Path(scratch, "courses.json"), Path(scratch, "decisions.json")
        asked.write_text(json.dumps(courses), encoding="utf-8")
        environment = {**os.environ, "HPA_COURSES": str(asked), "HPA_DECISIONS": str(told)}
        command = [str(program), "-test.run", "^TestCourses$"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=250)
        if not told.exists():
            raise AssertionError(f"the controller ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
        found = json.loads(told.read_text(encoding="utf-8"))
    # It syncs when it should: what the courses say of a moment is of that moment.
    for each, one in zip(courses, found, strict=True):
        assert one["times_ns"] == [SYNC_NS * k for k in range(len(each["steps"]))]
    return [one["replicas"] for one in found]


def record() -> None:
    from scripts.peers import peer_folder

    courses = [course(seed, STEPS) for seed in range(COURSES)]
    found = controller_decisions(peer_folder("hpa") / "bin" / "hpa", courses)
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text("[\n" + ",\n".join(json.dumps(each, separators=(",", ":")) for each in found) + "\n]\n")


if __name__ == "__main__":
    record()
