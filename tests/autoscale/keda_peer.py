"""KEDA's own code on seeded courses and formulas; ``python -m tests.autoscale.keda_peer PROGRAM`` records anew.

The program is built by hand, 8 minutes of CPU: ``go -C tests/peers/programs/keda test -vet=off -c -o PROGRAM``.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.autoscale.keda_courses import course

RECORDED = Path(__file__).parents[1] / "fixtures" / "autoscale" / "keda-2.20.2.json.gz"
COURSES, FORMULAS = 300, 3000
ACTS = {"none", "activated", "deactivated", "raised", "cooling"}


def ran(program: Path, test: str, kind: str, asked: Any) -> Any:
    """What the program makes of a document."""
    with tempfile.TemporaryDirectory() as scratch:
        place, told = Path(scratch, "asked.json"), Path(scratch, "told.json")
        place.write_text(json.dumps(asked), encoding="utf-8")
        environment = {**os.environ, kind: str(place), "KEDA_OUTCOMES": str(told)}
        command = [str(program), "-test.run", f"^{test}$"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=500)
        if not told.exists():
            raise AssertionError(f"KEDA ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
        return json.loads(told.read_text(encoding="utf-8"))


def outcomes_of(program: Path, courses: Sequence[dict[str, Any]]) -> list[list[Any]]:
    """Of each poll [replicas, active, error, fallback], of each question its answer in thousandths or None."""
    return [[_short(each) for each in one] for one in ran(program, "TestCourses", "KEDA_COURSES", list(courses))]


def _short(outcome: dict[str, Any]) -> Any:
    if "poll" not in outcome:
        return outcome.get("told")
    poll = outcome["poll"]
    return [poll["replicas"], poll["is_active"], poll["is_error"], poll["is_fallback"]]


def shortened(found: Sequence[dict[str, Any]]) -> list[Any]:
    """The extension's outcomes of a course in the same form."""
    return [_short(each) for each in found]


def formulas(seed: int, count: int) -> list[dict[str, Any]]:
    """Formulas by lot over a, b and c, sound ones and others, with values of which some are nil."""
    rnd = random.Random(seed)
    values = [None, 0.0, 1.0, 2.5, -3.0, 7.0, 40.0]
    return [{"text": _text(rnd, 4), "values": [rnd.choice(values) for _ in range(3)]} for _ in range(count)]


def _text(rnd: random.Random, depth: int) -> str:
    if depth == 0 or rnd.random() < 0.12:
        odd = rnd.random() < 0.02
        return rnd.choice(("nil", "true", "[a]")) if odd else rnd.choice(("a", "b", "c", "2", "0.5", "7", "1e1"))
    one = [_text(rnd, depth - 1) for _ in range(3)]
    return rnd.choice(_KINDS)(rnd, one, depth - 1)


def _pair(rnd: random.Random, one: list[str], _depth: int) -> str:
    sign = rnd.choice(("+", "-", "*", "/") * 4 + ("%", "**", "^"))
    text = f"{one[0]} {sign} {one[1]}"
    return f"({text})" if rnd.random() < 0.6 else text


def _other(rnd: random.Random, one: list[str], _depth: int) -> str:
    text = f"{one[0]} ?? {one[1]}"
    return f"({text})" if rnd.random() < 0.8 else text


def _choice(rnd: random.Random, one: list[str], depth: int) -> str:
    return f"({_condition(rnd, depth)} ? {one[0]} : {one[1]})"


def _function(rnd: random.Random, one: list[str], _depth: int) -> str:
    several = f"{rnd.choice(('max', 'min', 'mean', 'median'))}({one[0]}, {one[1]})"
    single = f"{rnd.choice(('abs', 'ceil', 'floor', 'round', 'int', 'float'))}({one[0]})"
    listed = f"{rnd.choice(('max', 'min', 'sum', 'mean', 'median', 'len', 'count'))}([{', '.join(one)}])"
    return rnd.choice((several, single, listed))


def _fold(rnd: random.Random, one: list[str], _depth: int) -> str:
    fold = rnd.choice(("count", "sum", "len(filter", "sum(map"))
    judges = fold in ("count", "len(filter")
    inner = rnd.choice(("# > 1", "{# > 1}", "# >= a") if judges else ("# * 2", "{# + 1}", "#"))
    return f"{fold}([{one[0]}, {one[1]}], {inner}){')' * fold.count('(')}"


def _judged(rnd: random.Random, one: list[str], _depth: int) -> str:
    return f"({rnd.choice(('all', 'any', 'none', 'one'))}([{one[0]}, {one[1]}], # > 2) ? {one[2]} : a)"


def _signed(rnd: random.Random, one: list[str], _depth: int) -> str:
    return f"{rnd.choice('-+')}{one[0]}" if rnd.random() < 0.5 else f"(let x = {one[0]}; x + {one[1]})"


_KINDS = (_pair, _pair, _pair, _pair, _pair, _other, _choice, _function, _function, _function, _fold, _judged, _signed)


def _condition(rnd: random.Random, depth: int) -> str:
    def one() -> str:
        return f"{_text(rnd, depth)} {rnd.choice(('<', '<=', '>', '>=', '==', '!='))} {_text(rnd, depth)}"

    if depth > 0 and rnd.random() < 0.3:
        return f"{rnd.choice(('', 'not ', '!'))}({one()}) {rnd.choice(('&&', '||', 'and', 'or'))} {one()}"
    return one()


def record(program: Path) -> None:
    document = {
        "courses": outcomes_of(program, [course(seed) for seed in range(COURSES)]),
        "formulas": ran(program, "TestFormulas", "KEDA_FORMULAS", formulas(1, FORMULAS)),
    }
    RECORDED.write_bytes(gzip.compress(json.dumps(document, separators=(",", ":")).encode(), 9, mtime=0))


if __name__ == "__main__":
    record(Path(sys.argv[1]))
