"""What people wait for: ``python -m benches.report [--pairs 15] [--large 1000000] [--base COMMIT]``.

CPU time of whole processes, in alternating pairs with an earlier commit: ``gpusize report``, ``gpusize estimate`` and
the end of ``gpusize run``, for 8 levels of 10^4 requests and of 10^6; ``gpusize report`` beside matplotlib alone; and
the wall time of ``gpusize --help``. Beside them stands their floor: importing what each cannot do without, and drawing.
The earlier commit is checked out beside this one and shares its extension. Of 10^6 requests it takes two minutes per
pair, so there are fewer pairs. Tables go to standard output, and with ``--record`` to benches/RESULTS.md. The exit code
is 1 when a bar is short.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benches.lib.bars import Bar, exit_code
from benches.lib.host import ROOT, facts
from benches.lib.procs import Finished, run_measured
from benches.lib.report_runs import LEVELS, write_run
from benches.lib.results import Report
from benches.lib.rounds import rotate
from benches.lib.stats import bootstrap_median, paired, plain

BASE = "3d03d9a"
"""The last commit at which every figure read the files for itself."""
SMALL, LARGE = 10_000, 1_000_000
LEAST_RATIO = 3.0
MOST_OVER_DRAWING = 1.5
MOST_HELP_S = 0.15
MAIN = "import sys; from gpusize.cli import main; sys.argv[0] = 'gpusize'; main()"
PROGRAMS = ROOT / "benches" / "programs"
COMMANDS = {
    "report": ["-c", MAIN, "report"],
    "estimate": ["-c", MAIN, "estimate"],
    "run_end": [str(PROGRAMS / "run_end.py")],
}
READING = "import numpy, polars, typer"
MATPLOTLIB = "import matplotlib.figure, matplotlib.backends.backend_agg, matplotlib.backends.backend_svg"


@dataclass(frozen=True)
class Side:
    """One of the versions: its name, and the folder that holds its package."""

    name: str
    package: Path

    def run(self, *arguments: str) -> Finished:
        """Run Python with this version's package, bytecode cached."""
        environment = {"PYTHONPATH": str(self.package), "PYTHONDONTWRITEBYTECODE": ""}
        return run_measured([sys.executable, *arguments], environment=environment)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the runs, measure both sides, print."""
    options = _options(arguments)
    report = Report()
    with tempfile.TemporaryDirectory(dir=options.dir) as place, _checked_out(options.base, Path(place)) as before:
        sides = (Side("now", ROOT / "python"), before)
        for requests, pairs in ((SMALL, options.pairs), (options.large, options.large_pairs)):
            if requests:
                run = write_run(Path(place) / f"of-{requests}", requests)
                before_s = _beside(report, run, requests, pairs, sides)
                if requests == SMALL:
                    drawn_s = _drawing(report, run, pairs, sides[0])
                    _floors(report, before_s, drawn_s, pairs, sides[0])
                shutil.rmtree(run)
        _help(report, options.pairs, sides[0])
    if options.record:
        report.append_to(ROOT / "benches" / "RESULTS.md", facts(), options.command)
    return exit_code(report.bars)


@contextmanager
def _checked_out(commit: str, place: Path) -> Iterator[Side]:
    """The package at a commit, with this one's extension."""
    tree = place / "before"
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
    try:
        shutil.copy(ROOT / "python" / "gpusize" / "_core.abi3.so", tree / "python" / "gpusize")
        yield Side(f"at {commit}", tree / "python")
    finally:
        subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def _beside(report: Report, run: Path, requests: int, pairs: int, sides: Sequence[Side]) -> dict[str, float]:
    """Each command on one run, now and before; the median of its CPU seconds before."""
    rows, before_s = [], {}
    for name, words in COMMANDS.items():
        turns = {side.name: lambda side=side, words=words: side.run(*words, str(run)) for side in sides}
        rotate(1, turns, _cpu)  # bytecode, fonts and files are in their caches from here on
        found = rotate(pairs, turns, _cpu)
        now, before = (found[side.name] for side in sides)
        ratio = paired([each.cpu_s for each in before], [each.cpu_s for each in now])
        before_s[name] = statistics.median(each.cpu_s for each in before)
        cpu = (bootstrap_median([each.cpu_s for each in side]) for side in (before, now))
        peaks = (plain(max(each.peak_rss_bytes for each in side) / 2**20) for side in (before, now))
        rows.append([name, *cpu, ratio, *peaks])
        report.bar(Bar(f"{name}_{requests}_times_less_cpu", ratio, LEAST_RATIO, at_least=True))
    header = ["command", "CPU s before", "CPU s now", "times less", "peak MiB before", "peak MiB now"]
    note = f"CPU time of the whole process, medians with their 95 % intervals, {pairs} alternating pairs."
    report.table(f"{len(LEVELS)} levels of {requests:,} requests", header, rows, note)
    return before_s


def _drawing(report: Report, run: Path, pairs: int, side: Side) -> float:
    """``gpusize report`` beside an import of matplotlib and the same figures drawn and saved: CPU seconds of these."""

    def alone() -> float:
        drawn = side.run(str(PROGRAMS / "drawn_alone.py"), str(run))
        return side.run("-c", MATPLOTLIB).cpu_s + float(drawn.stdout)

    turns = {"report": lambda: side.run(*COMMANDS["report"], str(run)).cpu_s, "matplotlib alone": alone}
    found = rotate(pairs, turns, lambda cpu_s: f"{cpu_s:.2f} s")
    rows = [[name, bootstrap_median(each)] for name, each in found.items()]
    report.table("gpusize report beside matplotlib", ["what", "CPU s"], rows)
    report.bar(Bar("report_over_matplotlib", paired(found["report"], found["matplotlib alone"]), MOST_OVER_DRAWING))
    return statistics.median(found["matplotlib alone"])


def _floors(report: Report, before_s: Mapping[str, float], drawn_s: float, pairs: int, side: Side) -> None:
    """What no command of these can do without: the most that it could ever become times less."""
    turns = {code: lambda code=code: side.run("-c", code).cpu_s for code in ("import numpy", READING)}
    found = rotate(pairs, turns, lambda cpu_s: f"{cpu_s:.2f} s")
    numpy_s, reading_s = (statistics.median(found[each]) for each in turns)
    # numpy is a part of importing matplotlib, too.
    floors = {"estimate": reading_s} | dict.fromkeys(("report", "run_end"), reading_s - numpy_s + drawn_s)
    rows = [[name, plain(at_s), plain(floors[name]), plain(at_s / floors[name])] for name, at_s in before_s.items()]
    header = ["command", "CPU s before", "floor, CPU s", "before over floor"]
    note = (
        f"The floor: `{READING}`; where figures are drawn, matplotlib and their drawing besides. It computes nothing."
    )
    report.table(f"Floors of {len(LEVELS)} levels of {SMALL:,} requests", header, rows, note)


def _help(report: Report, pairs: int, side: Side) -> None:
    """Wall time of ``gpusize --help``, and of a Python that does nothing."""
    turns = {"--help": lambda: side.run("-c", MAIN, "--help"), "pass": lambda: side.run("-c", "pass")}
    found = rotate(2 * pairs, turns, lambda each: f"{each.wall_s:.3f} s")
    rows = [
        [name, *(bootstrap_median([getattr(each, what) for each in runs]) for what in ("wall_s", "cpu_s"))]
        for name, runs in found.items()
    ]
    report.table("gpusize --help", ["what", "wall s", "CPU s"], rows)
    report.bar(Bar("help_wall_s", bootstrap_median([each.wall_s for each in found["--help"]]), MOST_HELP_S, "s"))


def _cpu(finished: Finished) -> str:
    return f"{finished.cpu_s:.2f} s"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m benches.report")
    parser.add_argument("--pairs", type=int, default=15, help="of 8 levels of 10,000 requests, and all else")
    parser.add_argument("--large", type=int, default=LARGE, help="requests of a large level; 0 for none")
    parser.add_argument("--large-pairs", type=int, default=5, help="of these")
    parser.add_argument("--base", default=BASE, help="the commit to stand beside")
    parser.add_argument("--dir", help="where the runs are written: 800 MB")
    parser.add_argument("--record", action="store_true", help="append to benches/RESULTS.md")
    options = parser.parse_args(given)
    options.command = " ".join(["python -m benches.report", *given])
    return options


if __name__ == "__main__":
    sys.exit(main())
