"""Runs tests, and once more, by themselves, those that failed. Standard library only.

Python's tests take turns. Those marked ``realtime`` share the cores, one process on each; beside them one more runs
those marked ``waits``, and another one those marked ``nodes``. All of these wait much of the time: whenever a core is
idle, those with no mark run there, which only compute.
Those marked ``alone`` come after all, and beside them, in a process of their own, those marked ``paced``.
docs/decisions/0029-tests-on-both-cores.md says why.

Some thousand tests here run in real time against real servers, and share two cores with whatever else the machine
does: now and then one is disturbed. They are marked: Python's by ``realtime`` or their turn, Rust's by their name, as
libtest has no marks: a program ``realtime*``, or a module ``realtime``. A fault fails again. A test that passes the
second time is named at the end, for somebody to mend. Where more than ``MAX_FILES`` files (Rust: test programs) hold
such tests, or one failed that has no such mark, the run has failed.
docs/decisions/0025-failed-tests-run-again.md says why.

    run_tests.py rust
    run_tests.py python [ARGUMENT OF pytest...]
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

__all__ = ["MAX_FILES", "TURNS", "Run", "main", "run_again", "run_python", "run_rust"]

AT_ONCE = (("together", "waits", "nodes", "idle"), ("alone", "paced"))
TURNS = tuple(turn for turns in AT_ONCE for turn in turns)
SPREAD = frozenset({"together", "idle"})
"""Turns that have one process for each core."""
IDLE_TIMEOUT_S = 600
"""Of a test that has a core only while nothing else wants it, unless it says otherwise."""
CGROUPS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))
"""Where cgroups of version 1 and version 2 are made."""
MAX_FILES = 3
SAYS = "== run again: "
SLOWEST = 10
# Of pytest: all passed, some failed, nothing to run. Every other status: it did not get to its end.
PASSED, FAILED, INTERRUPTED, NOTHING = 0, 1, 2, 5

CARGO = ["cargo", "test", "--workspace", "--locked", "--no-fail-fast"]
# What libtest and cargo print of a program that begins, of one test, of a program with failed tests, and of one that
# did not get to its end.
TEST = re.compile(
    r"^ +Running (?:unittests )?(?P<program>\S+) \(|^ +Doc-tests (?P<examples>\S+)$"
    r"|^test (?P<name>\S+)(?: - should panic)? \.\.\. (?P<how>ok|FAILED)$",
    re.MULTILINE,
)
REALTIME = "realtime"
PROGRAM = re.compile(r"^    `((?:-p \S+ )?--.+)`$", re.MULTILINE)
RESULT = re.compile(r"^test result: FAILED\. \d+ passed; (\d+) failed;", re.MULTILINE)
CUT_OFF = "process didn't exit successfully"


@dataclass(frozen=True)
class Run:
    """One run: its exit status, the tests that failed and their files, and those known to have passed.

    Faults are those among the failed that nothing in the machine can have disturbed.

    No names although the status is bad: the run did not get to its end, and nothing of it can be run again.
    """

    status: int
    failed: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    passed: frozenset[str] = frozenset()
    faults: frozenset[str] = frozenset()


def run_rust(only: frozenset[str] = frozenset()) -> Run:
    """All tests of the workspace, or those of these names."""
    status, output = _shown([*CARGO, *(["--", "--exact", *sorted(only)] if only else [])])
    names: dict[str, list[str]] = {"ok": [], "FAILED": []}
    faults, program = set(), ""
    for line in TEST.finditer(output):
        if line["name"] is None:
            program = line["program"] or line["examples"]
            continue
        names[line["how"]].append(line["name"])
        if line["how"] == "FAILED" and not _may_be_disturbed(program, line["name"]):
            faults.add(line["name"])
    programs = frozenset(PROGRAM.findall(output))
    # An example in a docstring that failed has no such name.
    if CUT_OFF in output or (status and not programs) or sum(map(int, RESULT.findall(output))) != len(names["FAILED"]):
        return Run(status or 1)
    return Run(status, frozenset(names["FAILED"]), programs, frozenset(names["ok"]), frozenset(faults))


def _may_be_disturbed(program: str, name: str) -> bool:
    """Whether a test of Rust says that it runs in real time."""
    return any(part.startswith(REALTIME) for part in Path(program).parts) or REALTIME in name.split("::")


def run_python(arguments: Sequence[str], folder: Path, cores: int) -> Run:
    """The tests that pytest finds by these arguments; what failed is remembered in ``folder``."""
    statuses: list[int] = []
    times: list[tuple[float, str]] = []
    with _idle_cgroup() as idle:
        for turns in AT_ONCE if cores > 1 else [(turn,) for at_once in AT_ONCE for turn in at_once]:
            statuses += _turns(turns, arguments, folder, cores, idle)
            broken = [each for each in statuses if each not in {PASSED, FAILED, NOTHING}]
            if broken:
                # Ctrl-C reaches the turns at different moments: one that was still starting dies by the signal.
                return Run(INTERRUPTED if {INTERRUPTED, 128 + signal.SIGINT} & {*broken} else broken[0])
            for turn in turns:
                times += _times(folder / f"{turn}.xml")
    for seconds, name in sorted(times, reverse=True)[:SLOWEST]:
        print(f"== slowest: {seconds:6.1f} s  {name}", flush=True)
    if FAILED not in statuses:
        return Run(min(statuses))
    failed = _remembered(folder)
    files = frozenset(name.partition("::")[0] for name in failed)
    return Run(FAILED, failed, files, faults=frozenset().union(*(_faults(folder, turn) for turn in TURNS)))


@contextlib.contextmanager
def _idle_cgroup() -> Iterator[Path | None]:
    """A cgroup whose processes run only while no other wants the core; None where this user can make none."""
    place = next(filter(None, map(_made_idle, CGROUPS)), None)
    try:
        yield place
    finally:
        # What a killed test has left in it keeps it.
        with contextlib.suppress(OSError):
            if place is not None:
                place.rmdir()


def _made_idle(root: Path) -> Path | None:
    place = root / f"gpusize-tests-{os.getpid()}"
    try:
        place.mkdir()
    except OSError:
        return None
    try:
        with (place / "cpu.idle").open("r+") as file:
            file.write("1")
    except OSError:
        place.rmdir()
        return None
    return place


def _turns(turns: Sequence[str], arguments: Sequence[str], folder: Path, cores: int, idle: Path | None) -> list[int]:
    """The exit statuses of turns that run at once; what others than the first print comes when all have ended."""
    start = time.monotonic()
    first, *others = turns
    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context((folder / f"{turn}.log").open("w+b")) for turn in others]
        beside = [
            stack.enter_context(
                subprocess.Popen(_pytest(folder / turn, _words(turn, arguments, folder, cores)), stdout=log)
            )
            for turn, log in zip(others, logs, strict=True)
        ]
        for turn, child in zip(others, beside, strict=True):
            if turn == "idle" and idle is not None:
                (idle / "cgroup.procs").write_text(str(child.pid))
        shown = _shown(_pytest(folder, _words(first, arguments, folder, cores)), kept=False, beside=beside)
        statuses = [shown[0]]
        print(f"== tests {first}: {time.monotonic() - start:.0f} s", flush=True)
        for turn, log, child in zip(others, logs, beside, strict=True):
            if turn == "idle" and idle is not None:
                # The last of its turns: there is nothing left to disturb.
                (idle / "cpu.idle").write_text("0")
            statuses.append(_waited(child, beside))
            log.seek(0)
            sys.stdout.write(log.read().decode(errors="replace"))
            print(f"== tests {turn}: {time.monotonic() - start:.0f} s", flush=True)
            _remember(folder, _remembered(folder / turn))
    return statuses


def _words(turn: str, arguments: Sequence[str], folder: Path, cores: int) -> list[str]:
    """What pytest is told for a turn."""
    words = ["-p", "scripts.turns", "--turn", turn, "--junit-xml", str(folder / f"{turn}.xml")]
    if turn in SPREAD and cores > 1:
        words += ["-n", str(cores), "--dist", "loadfile", "--max-worker-restart", "0"]
    if turn == "idle":
        words += ["--timeout", str(IDLE_TIMEOUT_S)]
    return [*words, *arguments]


def run_again(arguments: Sequence[str], folder: Path, only: frozenset[str]) -> Run:
    """Those that failed, in one process with nothing beside them."""
    again = ["--last-failed", "--last-failed-no-failures=none", *arguments]
    status = _shown(_pytest(folder, again), kept=False)[0]
    failed = _remembered(folder)
    if status:
        return Run(status, failed if status == FAILED else frozenset())
    # A test that it could not find again, under a name made up anew, stays among those that failed.
    return Run(status, passed=only - failed)


def _pytest(cache: Path, arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *arguments]


def _memory(cache: Path) -> Path:
    return cache / "v" / "cache" / "lastfailed"


def _remembered(cache: Path) -> frozenset[str]:
    memory = _memory(cache)
    return frozenset(json.loads(memory.read_text()) if memory.exists() else ())


def _faults(folder: Path, turn: str) -> frozenset[str]:
    """What the plugin has noted of a turn."""
    notes = [cache / "v" / "turns" / turn for cache in (folder, folder / turn)]
    return frozenset(name for note in notes if note.exists() for name in json.loads(note.read_text()))


def _remember(cache: Path, names: frozenset[str]) -> None:
    """Add to what pytest remembers as failed, for turns that run at once keep apart what they remember."""
    if names:
        _memory(cache).parent.mkdir(parents=True, exist_ok=True)
        _memory(cache).write_text(json.dumps(dict.fromkeys(names | _remembered(cache), True)))


def _times(results: Path) -> list[tuple[float, str]]:
    cases = ElementTree.parse(results).iter("testcase")
    return [(float(case.get("time", "0")), f"{case.get('classname')}::{case.get('name')}") for case in cases]


def _shown(
    command: Sequence[str], *, kept: bool = True, beside: Sequence[subprocess.Popen[bytes]] = ()
) -> tuple[int, str]:
    """Exit status of a command, and its output if that is to be kept, which is shown as it comes."""
    lines = []
    out, err = (subprocess.PIPE, subprocess.STDOUT) if kept else (None, None)
    with subprocess.Popen(command, stdout=out, stderr=err) as child, _signals_to([child, *beside]):
        for line in child.stdout or ():
            lines.append(line.decode(errors="replace"))
            sys.stdout.write(lines[-1])
            sys.stdout.flush()
        child.wait()
    return _status(child), "".join(lines)


def _waited(child: subprocess.Popen[bytes], children: Sequence[subprocess.Popen[bytes]]) -> int:
    with _signals_to(children):
        child.wait()
    return _status(child)


def _status(child: subprocess.Popen[bytes]) -> int:
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _terminate(children: Sequence[subprocess.Popen[bytes]]) -> None:
    for child in children:
        child.terminate()


@contextlib.contextmanager
def _signals_to(children: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """The tests have things to put away: a terminal sends Ctrl-C to them too, and the rest is handed on."""
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: _terminate(children))
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


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
        if first.faults:
            _say("not at all, since no mark says that the machine may disturb it:", first.faults)
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
