"""Whether estimates hold: ``python -m benches.estimates [--family engines] [--seeds 201] [--count 100]``.

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

from benches.estimates.families import ENGINES, FAMILIES, MECHANISMS
from benches.estimates.judge import ORACLE, Outcome, Task, run_all
from benches.estimates.methods import JUDGED, METHODS
from benches.estimates.table import HEADER, Figures, bars, engine_bars, groups, rows
from benches.lib.bars import Bar, exit_code
from benches.lib.host import ROOT, facts
from benches.lib.results import Report
from gpusize.base.on_ray.connection import ray_address

MANY_REQUESTS = 16_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge, print, and say whether all bars are kept."""
    options = _options(arguments)
    methods = tuple(dict.fromkeys([*options.method, ORACLE]))
    tasks = _tasks(options, methods, options.requests)
    start_s = time.monotonic()
    by_method = _judged(tasks, options)
    default = options.method[-1]
    report = Report()
    _tell(report, by_method, default, len(tasks), FAMILIES[options.family].parts)
    held = engine_bars if options.family == ENGINES else bars
    for bar in held(by_method, default):
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
    tasks = _tasks(options, (default,), MANY_REQUESTS)
    found = Figures.of(_judged(tasks, options)[default])
    return Bar(f"estimate_exact_up_to_20_at_{MANY_REQUESTS}_requests", found.exact, 0.8, at_least=True)


def _tasks(options: argparse.Namespace, methods: tuple[str, ...], requests: int | None) -> list[Task]:
    numbers = range(options.count)
    return [Task(seed, number, methods, requests, options.family) for seed in options.seeds for number in numbers]


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


def _tell(report: Report, by_method: dict[str, list[Outcome]], default: str, drawn: int, parts: Sequence[str]) -> None:
    outcomes = next(iter(by_method.values()))
    ties = sum(len(each.right) > 1 for each in outcomes)
    none = sum(each.n is None for each in outcomes)
    note = (
        f"{len(outcomes)} scenarios, {none} of them without an answer; {ties} ties. In brackets Wilson intervals, 95 %."
    )
    if len(outcomes) < drawn:
        note += f" {drawn - len(outcomes)} more were drawn and left out: no number was right where one had to be."
    report.table("Methods", ["method", *HEADER], rows(by_method), note)
    for part in parts:
        chosen = {name: groups(found).get(part, []) for name, found in by_method.items()}
        report.table(f"Methods, {part}", ["method", *HEADER], rows(chosen))
    report.table(f"Where: {default}", ["scenarios", *HEADER], rows(groups(by_method[default])))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m benches.estimates")
    parser.add_argument("--family", choices=FAMILIES, default=MECHANISMS, help="of the scenarios")
    parser.add_argument("--seeds", help="by comma; the family's for judging where none are given")
    parser.add_argument("--count", type=int, help="scenarios per seed")
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
    family = FAMILIES[options.family]
    options.seeds = [int(seed) for seed in options.seeds.split(",")] if options.seeds else family.seeds
    options.count = family.count if options.count is None else options.count
    options.method = [name.strip() for name in options.method.split(",")]
    unknown = [name for name in options.method if name not in METHODS]
    if unknown:
        parser.error(f"unknown method {unknown[0]}; there are {', '.join(METHODS)}")
    options.command = " ".join(["python -m benches.estimates", *given])
    return options


if __name__ == "__main__":
    sys.exit(main())
