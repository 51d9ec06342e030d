"""``make bench-autoscale``: ``python -m benches.autoscale [--only pull,judge,simulate,tune] [--record]``.

Tables and bars go to standard output, and with ``--record`` to benches/RESULTS.md. The exit code is 1 when a bar is
short, 3 where a program is missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from benches.autoscale.judge import judge_day
from benches.autoscale.pull import pull_day
from benches.autoscale.simulate import simulate_day
from benches.autoscale.tune import tune_worlds
from benches.lib.bars import exit_code
from benches.lib.host import ROOT, facts
from benches.lib.procs import BenchFailed
from benches.lib.results import Report

SECTIONS: Final[Mapping[str, Callable[[Report], None]]] = {
    "pull": pull_day,
    "judge": judge_day,
    "simulate": simulate_day,
    "tune": tune_worlds,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the sections that were asked for, and print."""
    options = _options(arguments)
    report = Report()
    try:
        for name in options.only:
            if name == "tune":
                tune_worlds(report, options.worlds)
            else:
                SECTIONS[name](report)
    except BenchFailed as problem:
        sys.stderr.write(f"benches.autoscale: {problem}\n")
        return 3
    if options.record:
        report.append_to(ROOT / "benches" / "RESULTS.md", facts(), options.command)
    return exit_code(report.bars)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m benches.autoscale")
    parser.add_argument("--only", default=",".join(SECTIONS), help=f"sections, by comma: {', '.join(SECTIONS)}")
    parser.add_argument("--record", action="store_true", help="append to benches/RESULTS.md")
    parser.add_argument("--worlds", type=_seeds, default=range(1, 41), help="of tune, by their seeds: FIRST-LAST")
    options = parser.parse_args(given)
    options.only = [name.strip() for name in options.only.split(",")]
    unknown = [name for name in options.only if name not in SECTIONS]
    if unknown:
        parser.error(f"unknown section {unknown[0]}; there are {', '.join(SECTIONS)}")
    options.command = " ".join(["python -m benches.autoscale", *given])
    return options


def _seeds(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


if __name__ == "__main__":
    sys.exit(main())
