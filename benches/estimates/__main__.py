"""Whether estimates hold: ``python -m benches.estimates [--seeds 101,102] [--count 300] [--method crossing]``.

Every method answers every scenario, beside the oracle; tables go to standard output, and with ``--record`` to
benches/RESULTS.md. The exit code is 1 when a bar is short.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benches.estimates.judge import ORACLE, Outcome, Task, run_all
from benches.estimates.methods import JUDGED, METHODS
from benches.estimates.table import HEADER, Figures, bars, groups, rows
from benches.lib.bars import Bar, exit_code
from benches.lib.host import ROOT, facts
from benches.lib.results import Report
from gpusize.base.on_ray.connection import ray_address

JUDGING_SEEDS = (101, 102, 103, 104)
"""Of the figures in RESULTS.md; nothing is developed on them."""
COUNT = 300
MANY_REQUESTS = 16_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge, print, and say whether all bars are kept."""
    options = _options(arguments)
    methods = tuple(dict.fromkeys([*options.method, ORACLE]))
    tasks = [Task(seed, number, methods, options.requests) for seed in options.seeds for number in range(options.count)]
    start_s = time.monotonic()
    by_method = _judged(tasks, options)
    default = options.method[-1]
    report = Report()
    _tell(report, by_method, default, len(tasks))
    for bar in bars(by_method, default):
        report.bar(bar)
    if options.many:
        report.bar(_with_many_requests(options, default))
    _say(f"{time.monotonic() - start_s:.0f} s")
    if options.outcomes:
        lines = [json.dumps(asdict(each)) for outcomes in by_method.values() for each in outcomes]
        Path(options.outcomes).write_text("\n".join(lines) + "\n", encoding="utf-8")
    if options.record:
        host = {**facts(), "seconds": f"{time.monotonic() - start_s:.0f}"}
        report.append_to(ROOT / "benches" / "RESULTS.md", host, options.command)
    return exit_code(report.bars)


def _with_many_requests(options: argparse.Namespace, default: str) -> Bar:
    """The default method with a larger budget: the part of its error that requests cannot buy."""
    tasks = [Task(seed, number, (default,), MANY_REQUESTS) for seed in options.seeds for number in range(options.count)]
    found = Figures.of(_judged(tasks, options)[default])
    return Bar(f"estimate_exact_up_to_20_at_{MANY_REQUESTS}_requests", found.exact, 0.8, at_least=True)


def _judged(tasks: Sequence[Task], options: argparse.Namespace) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = defaultdict(list)
    for done, outcomes in enumerate(run_all(tasks, options.jobs, options.ray), start=1):
        if not outcomes:
            task = tasks[done - 1]
            _say(f"{task.seed}/{task.number} is left out: it turned out to have no truth that could be found")
        for each in outcomes:
            found[each.method].append(each)
            if each.crash:
                _say(f"{each.scenario} {each.method}: {each.crash}")
        if done % 50 == 0:
            _say(f"{done} of {len(tasks)}")
    return dict(found)


def _tell(report: Report, by_method: dict[str, list[Outcome]], default: str, drawn: int) -> None:
    outcomes = next(iter(by_method.values()))
    ties = sum(len(each.right) > 1 for each in outcomes)
    none = sum(each.n is None for each in outcomes)
    note = (
        f"{len(outcomes)} scenarios, {none} of them without an answer; {ties} ties. In brackets Wilson intervals, 95 %."
    )
    if len(outcomes) < drawn:
        note += f" {drawn - len(outcomes)} more were drawn and left out: no number was right where one had to be."
    report.table("Methods", ["method", *HEADER], rows(by_method), note)
    for part in ("own mechanism", "foreign mechanisms", "foreign, no model of the twin's"):
        chosen = {name: groups(found)[part] for name, found in by_method.items()}
        report.table(f"Methods, {part}", ["method", *HEADER], rows(chosen))
    report.table(f"Where: {default}", ["scenarios", *HEADER], rows(groups(by_method[default])))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m benches.estimates")
    parser.add_argument("--seeds", default=",".join(map(str, JUDGING_SEEDS)), help="by comma")
    parser.add_argument("--count", type=int, default=COUNT, help="scenarios per seed")
    parser.add_argument("--method", default=",".join(JUDGED), help="by comma; the last one is held against the bars")
    parser.add_argument("--requests", type=int, help="the least budget of every scenario")
    parser.add_argument("--many", action="store_true", help=f"also the default method with {MANY_REQUESTS} requests")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument(
        "--ray", type=ray_address, help="a Ray cluster in place of processes here: auto, or the address of its head"
    )
    parser.add_argument("--outcomes", help="write every outcome to this file, one JSON object per line")
    parser.add_argument("--record", action="store_true", help="append to benches/RESULTS.md")
    options = parser.parse_args(given)
    options.seeds = [int(seed) for seed in options.seeds.split(",")]
    options.method = [name.strip() for name in options.method.split(",")]
    unknown = [name for name in options.method if name not in METHODS]
    if unknown:
        parser.error(f"unknown method {unknown[0]}; there are {', '.join(METHODS)}")
    options.command = " ".join(["python -m benches.estimates", *given])
    return options


if __name__ == "__main__":
    sys.exit(main())
