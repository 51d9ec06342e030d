"""Whether comparisons keep their word: ``python -m benches.compare [--only simulated,real] [--repeats 400]``.

Systems are held against themselves and against slower copies, by the very code behind ``gpusize compare`` and ``gpusize
duet``: simulated clusters in virtual time, and real servers on one core beside a neighbour that changes. Tables go to
standard output, and with ``--record`` to benches/RESULTS.md. The exit code is 1 when a bar is short.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benches.lib.bars import exit_code
from benches.lib.host import ROOT, facts
from benches.lib.results import Report
from benches.sections.compare_real import real
from benches.sections.compare_simulated import simulated

PARTS = ("simulated", "real")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, count, print."""
    options = _options(arguments)
    report = Report()
    host = facts()
    if "simulated" in options.only:
        simulated(report, repeats=options.repeats, seed=options.seed, jobs=options.jobs, cases=options.cases)
    if "real" in options.only:
        real(report, repeats=options.real_repeats, seed=options.seed)
    if options.record:
        report.append_to(ROOT / "benches" / "RESULTS.md", host, options.command)
    return exit_code(report.bars)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m benches.compare")
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, by comma: {', '.join(PARTS)}")
    parser.add_argument("--repeats", type=int, default=400, help="of equal systems; a quarter of them of others")
    parser.add_argument("--cases", default="", help="only simulated cases whose name has this in it")
    parser.add_argument("--real-repeats", type=int, default=20, help="of each pair of real servers, a minute each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--record", action="store_true", help="append to benches/RESULTS.md")
    options = parser.parse_args(given)
    options.only = [name.strip() for name in options.only.split(",")]
    unknown = [name for name in options.only if name not in PARTS]
    if unknown:
        parser.error(f"unknown part {unknown[0]}; there are {', '.join(PARTS)}")
    options.command = " ".join(["python -m benches.compare", *given])
    return options


if __name__ == "__main__":
    sys.exit(main())
