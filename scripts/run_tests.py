"""Runs tests, and once more, by themselves, those that failed. Standard library only.

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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MAX_FILES", "Run", "main", "run_python", "run_rust"]

MAX_FILES = 3
SAYS = "== run again: "

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


def run_python(arguments: Sequence[str], cache: Path, only: frozenset[str] = frozenset()) -> Run:
    """The tests that pytest finds by these arguments, or those of them that failed before; ``cache`` remembers them."""
    again = ["--last-failed", "--last-failed-no-failures=none"] if only else []
    command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *again, *arguments]
    status, _ = _shown(command, kept=False)
    memory = cache / "v" / "cache" / "lastfailed"
    failed = frozenset[str](json.loads(memory.read_text()) if memory.exists() else ())
    if status:
        return Run(status, *((failed, frozenset(name.partition("::")[0] for name in failed)) if status == 1 else ()))
    # A test that it could not find again, under a name made up anew, stays among those that failed.
    return Run(status, passed=only - failed)


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


def main(argv: Sequence[str]) -> int:
    """The exit status for the shell: that of the first run, or 0 if all that failed there passes by itself."""
    kind, *arguments = argv
    with tempfile.TemporaryDirectory(prefix="gpusize-tests-") as folder:

        def run(only: frozenset[str] = frozenset()) -> Run:
            return run_rust(only) if kind == "rust" else run_python(arguments, Path(folder, "cache"), only)

        first = run()
        if not first.failed:
            return first.status
        if len(first.files) > MAX_FILES:
            _say(f"nothing: tests of {len(first.files)} files failed, and more than {MAX_FILES} are no accident")
            return first.status
        _say("now by itself, since it failed:", first.failed)
        second = run(first.failed)
    if second.status or not first.failed <= second.passed:
        _say("failed again:", second.failed or first.failed - second.passed)
        return second.status or first.status
    _say("passed by itself; why it failed before stands above, and wants mending:", first.failed)
    return 0


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parent.parent)
    sys.exit(main(sys.argv[1:]))
