"""How many small faults the tests find: a sample of mutants of four areas, each run with the tests that cover it.

First all tests of ``TESTS`` run once and each line's tests are noted. Then each mutant of the sample runs with the
tests of its line, and where those pass with all tests of their files, since a fixture runs for one test and serves
many. A mutant that ends in an error or runs far too long counts as killed. Tests that start a program of their own do
not see the mutant. docs/decisions/0031-mutants-by-a-script.md says why this is not a library.

    python -m scripts.mutants [--area estimate] [--count 25] [--seed 1] [--record]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benches.lib.bars import Bar, exit_code
from benches.lib.host import facts
from benches.lib.results import Report
from benches.lib.stats import Interval, plain
from gpusize.estimate.isotonic import wilson
from scripts.mutations import NEVER_IMPORTED, Mutant, mutants

__all__ = ["AREAS", "NOT_RUN", "Map", "Outcome", "main", "run_mutant"]

ROOT = Path(__file__).resolve().parents[1]
AREAS = {
    "estimate": ["estimate/*.py", "estimate/*/*.py"],
    "analysis": ["analysis/*.py", "analysis/detect/*.py"],
    "comparison": ["analysis/compare/*.py", "report/comparison/*.py"],
    "parsers": ["analysis/slo_grammar.py", "workload/load/*.py", "base/units.py", "workload/dataset/*.py"],
    "records": ["records/*.py"],
}
TESTS = [
    "adaptive",
    "analysis",
    "audit",
    "compare",
    "estimate",
    "faults",
    "inputs",
    "load",
    "report",
    "run",
    "store",
    "whatif",
]
ENOUGH = 0.8
"""The share that each area's tests have to kill; what survives is looked at one by one."""
LONGEST_S = 20.0
"""Of the tests that a mutant is run with, as long as they take without it; the quickest come first."""
KILLED, SURVIVED, NOT_RUN = "killed", "survived", "survived, run by no test"


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant, and after how many tests at most."""

    mutant: Mutant
    how: str
    tests: int


@dataclass(frozen=True)
class Map:
    """Seconds of each test that passes, and the tests of each line."""

    seconds: dict[str, float]
    lines: dict[str, dict[str, list[str]]]

    def tests(self, mutant: Mutant, *, whole_files: bool) -> list[str]:
        """The quickest first, as many as fit into ``LONGEST_S``. A line that runs at import has those of its module."""
        lines = self.lines.get(str(ROOT / mutant.path), {})
        covering = set(lines.get(str(mutant.line), [])) or {each for tests in lines.values() for each in tests}
        if "" in covering:
            covering |= {each for tests in lines.values() for each in tests}
        if whole_files:
            files = {each.partition("::")[0] for each in covering}
            covering = {each for each in self.seconds if each.partition("::")[0] in files}
        chosen: list[str] = []
        left = LONGEST_S
        for seconds, test in sorted((self.seconds[each], each) for each in covering if each in self.seconds):
            left -= seconds
            if left < 0 and chosen:
                break
            chosen.append(test)
        return chosen


def main(arguments: Sequence[str] | None = None) -> int:
    """Map, sample, run, print."""
    options = _options(arguments)
    os.nice(19)
    report = Report()
    with tempfile.TemporaryDirectory(prefix="gpusize-mutants-") as name:
        folder = Path(name)
        known = _map(options.map or folder / "map.json")
        outcomes = {area: _outcomes(area, options, known, folder) for area in options.area or AREAS}
    _tell(report, outcomes, options.seed)
    if options.record:
        report.append_to(ROOT / "benches" / "RESULTS.md", facts(), options.command)
    return exit_code(report.bars)


def _map(result: Path) -> Map:
    if not result.exists():
        tests = [f"tests/{each}" for each in TESTS]
        status = _pytest([*tests, "--timeout", "600"], None, GPUSIZE_MUTANT_MAP=str(result.resolve()))
        if not result.exists():
            raise SystemExit(f"the tests did not get to their end without a mutant: pytest's exit status is {status}")
    told = json.loads(result.read_text("utf-8"))
    seconds = {test: each for test, each in told["seconds"].items() if not math.isnan(each)}
    for test in told["seconds"].keys() - seconds:
        print(f"left out, for it fails without a mutant: {test}", flush=True)
    return Map(seconds, told["lines"])


def _outcomes(area: str, options: argparse.Namespace, known: Map, folder: Path) -> list[Outcome]:
    paths = sorted({path for each in AREAS[area] for path in (ROOT / "python" / "gpusize").glob(each)})
    every = [each for path in paths for each in mutants(path, str(path.relative_to(ROOT)))]
    draws = random.Random(f"{area} {options.seed}")
    found = []
    for mutant in sorted(draws.sample(every, min(options.count, len(every))), key=lambda each: (each.path, each.line)):
        start = time.monotonic()
        found.append(run_mutant(mutant, known, folder))
        place = f"{mutant.path}:{mutant.line}"
        print(f"{found[-1].how:9} {place} {mutant.was} -> {mutant.now} ({time.monotonic() - start:.0f} s)", flush=True)
    return found


def run_mutant(mutant: Mutant, known: Map, folder: Path) -> Outcome:
    ran = 0
    for whole_files in (False, True):
        tests = known.tests(mutant, whole_files=whole_files)
        if not tests:
            return Outcome(mutant, NOT_RUN, 0)
        ran = len(tests)
        listed = folder / "tests"
        listed.write_text("\n".join(tests), "utf-8")
        place = {"GPUSIZE_MUTANT": f"{ROOT / mutant.path}:{mutant.number}", "GPUSIZE_MUTANT_TESTS": str(listed)}
        files = list(dict.fromkeys(each.partition("::")[0] for each in tests))
        # Four cores' worth of other work beside it is no reason to call a mutant endless.
        longest = 60 + 10 * sum(known.seconds[each] for each in tests)
        status = _pytest(["-x", *files], longest, **place)
        if status == NEVER_IMPORTED:
            return Outcome(mutant, NOT_RUN, ran)
        if status:
            return Outcome(mutant, KILLED, ran)
    return Outcome(mutant, SURVIVED, ran)


def _pytest(arguments: Sequence[str], longest_s: float | None, **environment: str) -> int:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "scripts.mutations", "-p", "no:cacheprovider", *arguments]
    env = {**os.environ, **environment}
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=env,
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=longest_s,
        )
    except subprocess.TimeoutExpired:
        return 124
    return done.returncode


def _tell(report: Report, outcomes: dict[str, list[Outcome]], seed: int) -> None:
    rows, survivors, bars = [], [], []
    for area, found in outcomes.items():
        killed = sum(each.how == KILLED for each in found)
        share = killed / len(found)
        low, high = wilson(share, len(found))
        bars.append(Bar(f"mutants_killed_{area}", Interval(share, low, high), ENOUGH, at_least=True))
        not_run = sum(each.how == NOT_RUN for each in found)
        rows.append([area, len(found), killed, len(found) - killed, not_run, f"{plain(low)} to {plain(high)}"])
        survivors += [
            [f"{each.mutant.path}:{each.mutant.line}", f"`{each.mutant.was}`", f"`{each.mutant.now}`", each.how]
            for each in found
            if each.how != KILLED
        ]
    header = ["area", "mutants", "killed", "survived", "of these run by no test", "killed share, 95%"]
    report.table("mutants", header, rows, f"A sample of each area by seed {seed}, one change each.")
    report.table("survivors", ["place", "was", "mutant", "how"], survivors)
    for bar in bars:
        report.bar(bar)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m scripts.mutants")
    parser.add_argument("--area", action="append", choices=AREAS, help="only this one; may be repeated")
    parser.add_argument("--count", type=int, default=25, help="mutants of each area")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--map", type=Path, help="keep here which tests run which lines, for a further sample")
    parser.add_argument("--record", action="store_true", help="append to benches/RESULTS.md")
    options = parser.parse_args(given)
    options.command = " ".join(["python -m scripts.mutants", *given])
    return options


if __name__ == "__main__":
    sys.exit(main())
