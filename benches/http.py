"""The timing bars, each beside its peer in one run: ``python -m benches.http [--only cpu,open] [--quick]``.

Prints tables, then one ``BAR name value [lo,hi] bound ok|short`` per bar; exits with 1 when one is short, 2 when a
measurement cannot be taken. A full run is appended to benches/RESULTS.md; a quick one is a smoke test and never is.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benches.lib.bars import exit_code
from benches.lib.context import Context, say
from benches.lib.host import ROOT, CpuTimes, facts, load_average, pin_cores
from benches.lib.peers import build_tools
from benches.lib.procs import BenchFailed
from benches.lib.results import Report
from benches.sections.cpu import cpu
from benches.sections.instructions import instructions
from benches.sections.model import model
from benches.sections.open_loop import open_loop
from benches.sections.records import records

__all__ = ["main"]

SECTIONS: dict[str, Callable[[Context], None]] = {
    "cpu": cpu,
    "instructions": instructions,
    "open": open_loop,
    "records": records,
    "model": model,
}
MIN_PAIRS = 15


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sections that were asked for."""
    options = _options(arguments)
    report = Report()
    scratch = Path(tempfile.mkdtemp(prefix="gpusize-bench-"))
    host, before = facts(), CpuTimes.now()
    try:
        ctx = Context(report, build_tools(), *pin_cores(), options.pairs, options.quick, scratch)
        for name in options.only:
            say(f"== {name}")
            SECTIONS[name](ctx)
    except BenchFailed as error:
        say(f"bench: {error}")
        return 2
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    host["load average at end"] = f"{load_average():.2f}"
    host["steal over the whole run"] = f"{100 * CpuTimes.now().steal_share(before):.2f} %"
    print("\nSummary" + (" (quick: a smoke test, not for the record)" if options.quick else ""))
    for bar in report.bars:
        print(bar.line())
    if not options.quick:
        report.append_to(ROOT / "benches" / "RESULTS.md", host, options.command)
    return exit_code(report.bars)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m benches.http", description=__doc__)
    parser.add_argument("--only", default=",".join(SECTIONS), help=f"sections, by comma: {', '.join(SECTIONS)}")
    parser.add_argument("--pairs", type=int, default=MIN_PAIRS, help=f"alternating pairs (default {MIN_PAIRS})")
    parser.add_argument(
        "--quick", action="store_true", help="a smoke test: two short pairs, never written to RESULTS.md"
    )
    options = parser.parse_args(given)
    options.only = [name.strip() for name in options.only.split(",")]
    unknown = [name for name in options.only if name not in SECTIONS]
    if unknown:
        parser.error(f"unknown section {unknown[0]}; there are {', '.join(SECTIONS)}")
    if options.quick:
        options.pairs = min(options.pairs, 2)
    elif options.pairs < MIN_PAIRS:
        parser.error(f"a result for the record takes at least {MIN_PAIRS} pairs; --quick takes fewer")
    options.command = " ".join(["python -m benches.http", *given])
    return options


if __name__ == "__main__":
    sys.exit(main())
