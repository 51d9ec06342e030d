"""Runs tests, and once more, by themselves, those that failed. Standard library only.

Python's tests take two turns: most share the cores, one process on each; those marked ``alone`` come after them.
docs/decisions/0029-tests-on-both-cores.md says why.

Some thousand tests here run in real time against real servers, and share two cores with whatever else the machine
does: now and then one is disturbed. A fault fails again. A test that passes the second time is named at the end, for
somebody to mend; where more than ``MAX_FILES`` files (Rust: test programs) hold such tests, the run has failed.
docs/decisions/0025-failed-tests-run-again.md says why.

    run_tests.py rust
    run_tests.py python [ARGUMENT OF pytest...]
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

__all__ = ["MAX_FILES", "Run", "main", "run_again", "run_python", "run_rust"]

MAX_FILES = 3
SAYS = "== run again: "
SLOWEST = 10
# Of pytest: all passed, some failed, nothing to run. Every other status: it did not get to its end.
PASSED, FAILED, NOTHING = 0, 1, 5

CARGO = ["cargo", "test", "--workspace", "--locked", "--no-fail-fast"]
# What libtest and cargo print of one test, of a program with failed tests, and of one that did not get to its end.
TEST = re.compile(r"^test (?P<name>\S+)(?: - should panic)? \.\.\. (?P<how>ok|FAILED)$", re.MULTILINE)
PROGRAM = re.compile(r"^    `((?:-p \S+ )?--.+)`$", re.MULTILINE)
RESULT = re.compile(r"^test result: FAILED\. \d+ passed; (\d+) failed;", re.MULTILINE)
CUT_OFF = "process didn't exit successfully"


@dataclass(frozen=True)
class Run:
    """One run: its exit status, the tests that failed and their files, and those known to have passed.

    No names although the status is bad: the run did not get to its end, and nothing of it can be run again.
    """

    status: int
    failed: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    passed: frozenset[str] = frozenset()


def run_rust(only: frozenset[str] = frozenset()) -> Run:
    """All tests of the workspace, or those of these names."""
    status, output = _shown([*CARGO, *(["--", "--exact", *sorted(only)] if only else [])])
    names: dict[str, list[str]] = {"ok": [], "FAILED": []}
    for test in TEST.finditer(output):
        names[test["how"]].append(test["name"])
    programs = frozenset(PROGRAM.findall(output))
    # An example in a docstring that failed has no such name.
    if CUT_OFF in output or (status and not programs) or sum(map(int, RESULT.findall(output))) != len(names["FAILED"]):
        return Run(status or 1)
    return Run(status, frozenset(names["FAILED"]), programs, frozenset(names["ok"]))


def run_python(arguments: Sequence[str], folder: Path, cores: int) -> Run:
    """The tests that pytest finds by these arguments; what failed is remembered in ``folder``."""
    share = ["-n", str(cores), "--dist", "loadfile", "--max-worker-restart", "0"] if cores > 1 else []
    statuses, times = [], []
    for turn, more in (("together", share), ("alone", [])):
        start = time.monotonic()
        results = folder / f"{turn}.xml"
        plugin = ["-p", "scripts.turns", "--turn", turn, "--junit-xml", str(results)]
        statuses.append(_pytest(folder, [*plugin, *more, *arguments]))
        if statuses[-1] not in {PASSED, FAILED, NOTHING}:
            return Run(statuses[-1])
        times += _times(results)
        print(f"== tests {turn}: {time.monotonic() - start:.0f} s", flush=True)
    for seconds, name in sorted(times, reverse=True)[:SLOWEST]:
        print(f"== slowest: {seconds:6.1f} s  {name}", flush=True)
    if FAILED not in statuses:
        return Run(min(statuses))
    failed = _remembered(folder)
    return Run(FAILED, failed, frozenset(name.partition("::")[0] for name in failed))


def run_again(arguments: Sequence[str], folder: Path, only: frozenset[str]) -> Run:
    """Those that failed, in one process with nothing beside them."""
    status = _pytest(folder, ["--last-failed", "--last-failed-no-failures=none", *arguments])
    failed = _remembered(folder)
    if status:
        return Run(status, failed if status == FAILED else frozenset())
    # A test that it could not find again, under a name made up anew, stays among those that failed.
    return Run(status, passed=only - failed)


def _pytest(folder: Path, arguments: Sequence[str]) -> int:
    return _shown([sys.executable, "-m", "pytest", "-o", f"cache_dir={folder}", *arguments], kept=False)[0]


def _remembered(folder: Path) -> frozenset[str]:
    memory = folder / "v" / "cache" / "lastfailed"
    return frozenset(json.loads(memory.read_text()) if memory.exists() else ())


def _times(results: Path) -> list[tuple[float, str]]:
    cases = ElementTree.parse(results).iter("testcase")
    return [(float(case.get("time", "0")), f"{case.get('classname')}::{case.get('name')}") for case in cases]


def _shown(command: Sequence[str], *, kept: bool = True) -> tuple[int, str]:
    """Exit status of a command, and its output if that is to be kept, which is shown as it comes."""
    lines = []
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    out, err = (subprocess.PIPE, subprocess.STDOUT) if kept else (None, None)
    with subprocess.Popen(command, stdout=out, stderr=err, text=True, errors="replace") as child:
        # The tests have things to put away: a terminal sends Ctrl-C to them too, and the rest is handed on.
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        try:
            for line in child.stdout or ():
                sys.stdout.write(line)
                sys.stdout.flush()
                lines.append(line)
            child.wait()
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
    return (child.returncode if child.returncode >= 0 else 128 - child.returncode), "".join(lines)


def _say(text: str, names: frozenset[str] = frozenset()) -> None:
    for name in sorted(names) or [""]:
        print(SAYS + text, name, flush=True)


def main(argv: Sequence[str], cores: int | None = None) -> int:
    """The exit status for the shell: that of the first run, or 0 if all that failed there passes by itself."""
    kind, *arguments = argv
    with tempfile.TemporaryDirectory(prefix="gpusize-tests-") as name:
        folder = Path(name)
        shared = cores or len(os.sched_getaffinity(0))
        first = run_rust() if kind == "rust" else run_python(arguments, folder, shared)
        if not first.failed:
            return first.status
        if len(first.files) > MAX_FILES:
            _say(f"nothing: tests of {len(first.files)} files failed, and more than {MAX_FILES} are no accident")
            return first.status
        _say("now by itself, since it failed:", first.failed)
        second = run_rust(first.failed) if kind == "rust" else run_again(arguments, folder, first.failed)
    if second.status or not first.failed <= second.passed:
        _say("failed again:", second.failed or first.failed - second.passed)
        return second.status or first.status
    _say("passed by itself; why it failed before stands above, and wants mending:", first.failed)
    return 0


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parent.parent)
    sys.exit(main(sys.argv[1:]))
