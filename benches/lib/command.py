"""A benchmark's command line: sections by name, tables and bars, a record of full runs."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benches.lib.bars import exit_code
from benches.lib.context import Context, say
from benches.lib.host import ROOT, CpuTimes, facts, load_average, pin_cores
from benches.lib.peers import build_tools
from benches.lib.procs import BenchFailed
from benches.lib.results import Report

__all__ = ["Section", "run_sections"]

Section = Callable[[Context], None]

MIN_PAIRS = 15
INTERRUPTED = 130
"""Exit code at Ctrl-C, as of a shell's commands."""


def run_sections(prog: str, sections: Mapping[str, Section], arguments: Sequence[str] | None = None) -> int:
    """Run the sections that were asked for; 1 when a bar is short, 2 when a measurement cannot be taken, 130 at Ctrl-C.

    A section that fails is told, here and in the record, and the others go on.
    """
    options = _options(prog, sections, arguments)
    report = Report()
    scratch = Path(tempfile.mkdtemp(prefix="gpusize-bench-"))
    host, before = facts(), CpuTimes.now()
    failed = False
    try:
        ctx = Context(report, build_tools(), *pin_cores(), options.pairs, options.quick, scratch)
        spent = {}
        for name in options.only:
            start_s = time.monotonic()
            failed |= not _measured(ctx, name, sections[name])
            spent[name] = f"{name} {time.monotonic() - start_s:.0f}"
            say(f"== {spent[name]} s")
    except BenchFailed as error:
        say(f"bench: {error}")
        return 2
    except KeyboardInterrupt:
        say("bench: interrupted; nothing is recorded")
        return INTERRUPTED
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    host["seconds per section"] = ", ".join(spent.values())
    host["load average at end"] = f"{load_average():.2f}"
    host["steal over the whole run"] = f"{100 * CpuTimes.now().steal_share(before):.2f} %"
    print("\nSummary" + (" (quick: a smoke test, not for the record)" if options.quick else ""))
    for bar in report.bars:
        print(bar.line())
    if not options.quick:
        report.append_to(ROOT / "benches" / "RESULTS.md", host, options.command)
    return 2 if failed else exit_code(report.bars)


def _measured(ctx: Context, name: str, section: Section) -> bool:
    say(f"== {name}")
    try:
        section(ctx)
    except BenchFailed as error:
        ctx.report.text(f"### {name}: not measured\n\n{shortened(str(error))}\n")
        say(f"bench: {name}: {error}")
        return False
    return True


def shortened(text: str) -> str:
    """The first and the last line of what went wrong: a command and what it said."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[0][:300] if len(lines) < 2 else f"{lines[0][:300]} ... {lines[-1][:300]}"


def _options(prog: str, sections: Mapping[str, Section], arguments: Sequence[str] | None) -> argparse.Namespace:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog=f"python -m {prog}")
    parser.add_argument("--only", default=",".join(sections), help=f"sections, by comma: {', '.join(sections)}")
    parser.add_argument("--pairs", type=int, default=MIN_PAIRS, help=f"alternating pairs (default {MIN_PAIRS})")
    parser.add_argument(
        "--quick", action="store_true", help="a smoke test: two short pairs, never written to RESULTS.md"
    )
    options = parser.parse_args(given)
    options.only = [name.strip() for name in options.only.split(",")]
    unknown = [name for name in options.only if name not in sections]
    if unknown:
        parser.error(f"unknown section {unknown[0]}; there are {', '.join(sections)}")
    if options.quick:
        options.pairs = min(options.pairs, 2)
    elif options.pairs < MIN_PAIRS:
        parser.error(f"a result for the record takes at least {MIN_PAIRS} pairs; --quick takes fewer")
    options.command = " ".join([f"python -m {prog}", *given])
    return options
