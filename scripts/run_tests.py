"""Runs tests, and once more, by themselves, those that failed. Standard library only.

Python's tests take turns. Those marked ``realtime`` share the cores, one process on each; beside them one more runs
those marked ``waits``, and another one those marked ``nodes``.
All of these wait much of the time, and so do Rust's: whenever a core is idle, those with no mark run there, which only
compute. Those marked ``alone`` come after all, and beside them, in a process of their own, those marked ``paced``.
docs/decisions/0029-tests-on-both-cores.md says why.

Some thousand tests here run in real time against real servers, and share two cores with whatever else the machine
does: now and then one is disturbed. They are marked: Python's by ``realtime`` or their turn, Rust's by their name, as
libtest has no marks: a program ``realtime*``, or a module ``realtime``. A fault fails again. A test that passes the
second time is named at the end, for somebody to mend. Where more than ``MAX_FILES`` files (Rust: test programs) hold
such tests, or one failed that has no such mark, the run has failed. A file of Python's does not count if the host took
the cores while its test failed, and if it does so again, there is one more chance.
docs/decisions/0025-failed-tests-run-again.md says why.

    run_tests.py all [ARGUMENT OF pytest...]
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from xml.etree import ElementTree

from scripts import steal
from scripts.idle import IdleGroup, idle_group

__all__ = ["MAX_FILES", "TURNS", "Run", "main", "run_again", "run_python", "run_rust"]

KINDS = {"all": ("rust", "python"), "rust": ("rust",), "python": ("python",)}
AT_ONCE = (("together", "waits", "nodes"), ("alone", "paced"))
IDLE = "idle"
TURNS = (*(turn for turns in AT_ONCE for turn in turns), IDLE)
SPREAD = frozenset({"together", IDLE})
"""Turns that have one process for each core."""
IDLE_TIMEOUT_S = 600
"""Of a test that has a core only while nothing else wants it, unless it says otherwise."""
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

    Faults are those among the failed that nothing in the machine can have disturbed. The files of the others from which
    the host took the cores are ``robbed``, with the core seconds.

    No names although the status is bad: the run did not get to its end, and nothing of it can be run again.
    """

    status: int
    failed: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    passed: frozenset[str] = frozenset()
    faults: frozenset[str] = frozenset()
    robbed: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class IdleTurn:
    """The turn ``idle``: tests that give way to all that run beside them."""

    child: subprocess.Popen[bytes]
    log: IO[bytes]
    group: IdleGroup
    began: steal.Mark

    def ended(self, folder: Path) -> int:
        """Its exit status, when nothing is left that it could disturb; what failed is remembered in ``folder``."""
        self.group.end_idling()
        status = _waited(self.child, [self.child])
        _tell(IDLE, self.log, self.began)
        _remember(folder, _remembered(folder / IDLE))
        return status


def run_rust(only: frozenset[str] = frozenset(), idle: IdleTurn | None = None) -> Run:
    """All tests of the workspace, or those of these names."""
    command = [*CARGO, *(["--", "--exact", *sorted(only)] if only else [])]
    status, output = _shown(command, beside=[idle.child] if idle else [])
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


def run_python(arguments: Sequence[str], folder: Path, cores: int, idle: IdleTurn | None = None) -> Run:
    """The tests that pytest finds by these arguments; what failed is remembered in ``folder``."""
    statuses: list[int] = []
    # With no turn that gives way, its tests share the cores with the others.
    at_once = AT_ONCE if idle else ((*AT_ONCE[0], IDLE), *AT_ONCE[1:])
    for turns in at_once if cores > 1 else [(turn,) for each in at_once for turn in each]:
        statuses += _turns(turns, arguments, folder, cores, idle)
        if idle and turns == AT_ONCE[0]:
            # Those that come now measure closely, and two virtual cores may be one with two threads.
            statuses.append(idle.ended(folder))
        broken = [each for each in statuses if each not in {PASSED, FAILED, NOTHING}]
        if broken:
            # Ctrl-C reaches the turns at different moments: one that was still starting dies by the signal.
            return Run(INTERRUPTED if {INTERRUPTED, 128 + signal.SIGINT} & {*broken} else broken[0])
    times = [time for file in folder.glob("*.xml") for time in _times(file)]
    for seconds, name in sorted(times, reverse=True)[:SLOWEST]:
        print(f"== slowest: {seconds:6.1f} s  {name}", flush=True)
    if FAILED not in statuses:
        return Run(min(statuses))
    failed = _remembered(folder)
    files = frozenset(name.partition("::")[0] for name in failed)
    notes = [_notes(folder, turn) for turn in TURNS]
    faults = frozenset(name for note in notes for name in note["faults"])
    return Run(FAILED, failed, files, faults=faults, robbed={k: v for note in notes for k, v in note["robbed"].items()})


@contextlib.contextmanager
def _idle_turn(arguments: Sequence[str], folder: Path, cores: int) -> Iterator[IdleTurn | None]:
    """The turn that gives way to all others, which begins here; None where it cannot be made to."""
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(idle_group()) if cores > 1 else None
        if group is None:
            yield None
            return
        log = stack.enter_context((folder / f"{IDLE}.log").open("w+b"))
        words = _pytest(folder / IDLE, _words(IDLE, arguments, folder, cores))
        child = stack.enter_context(subprocess.Popen(words, stdout=log))
        group.add(child.pid)
        try:
            yield IdleTurn(child, log, group, steal.mark())
        finally:
            group.end_idling()
            if child.poll() is None:
                child.terminate()


def _turns(
    turns: Sequence[str], arguments: Sequence[str], folder: Path, cores: int, idle: IdleTurn | None
) -> list[int]:
    """The exit statuses of turns that run at once; what others than the first print comes when all have ended."""
    start = steal.mark()
    first, *others = turns
    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context((folder / f"{turn}.log").open("w+b")) for turn in others]
        beside = [
            stack.enter_context(
                subprocess.Popen(_pytest(folder / turn, _words(turn, arguments, folder, cores)), stdout=log)
            )
            for turn, log in zip(others, logs, strict=True)
        ]
        signalled = [*beside, *([idle.child] if idle else [])]
        words = _pytest(folder, _words(first, arguments, folder, cores))
        statuses = [_shown(words, kept=False, beside=signalled)[0]]
        _tell(first, None, start)
        for turn, log, child in zip(others, logs, beside, strict=True):
            statuses.append(_waited(child, signalled))
            _tell(turn, log, start)
            _remember(folder, _remembered(folder / turn))
    return statuses


def _tell(turn: str, log: IO[bytes] | None, began: steal.Mark) -> None:
    if log is not None:
        log.seek(0)
        sys.stdout.write(log.read().decode(errors="replace"))
    taken = began.since()
    print(f"== tests {turn}: {taken.of_s:.0f} s, in which the host took {taken.seconds:.0f} s of a core", flush=True)


def _words(turn: str, arguments: Sequence[str], folder: Path, cores: int) -> list[str]:
    """What pytest is told for a turn."""
    words = ["-p", "scripts.turns", "--turn", turn, "--junit-xml", str(folder / f"{turn}.xml")]
    if turn in SPREAD and cores > 1:
        words += ["-n", str(cores), "--dist", "loadfile", "--max-worker-restart", "0"]
    if turn == IDLE:
        words += ["--timeout", str(IDLE_TIMEOUT_S)]
    return [*words, *arguments]


def run_again(arguments: Sequence[str], folder: Path, only: frozenset[str]) -> Run:
    """Those that failed, in one process with nothing beside them."""
    again = ["--last-failed", "--last-failed-no-failures=none", *arguments]
    began = steal.mark()
    status = _shown(_pytest(folder, again), kept=False)[0]
    failed, taken = _remembered(folder), began.since()
    if status == FAILED:
        files = frozenset(name.partition("::")[0] for name in failed)
        return Run(status, failed, files, robbed=dict.fromkeys(files, taken.seconds) if taken.disturbs else {})
    if status:
        return Run(status)
    # A test that it could not find again, under a name made up anew, stays among those that failed.
    return Run(status, passed=only - failed)


def _pytest(cache: Path, arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *arguments]


def _memory(cache: Path) -> Path:
    return cache / "v" / "cache" / "lastfailed"


def _remembered(cache: Path) -> frozenset[str]:
    memory = _memory(cache)
    return frozenset(json.loads(memory.read_text()) if memory.exists() else ())


def _notes(folder: Path, turn: str) -> dict[str, Any]:
    """What the plugin has noted of a turn."""
    found: dict[str, Any] = {"faults": [], "robbed": {}}
    for cache in (folder, folder / turn):
        note = cache / "v" / "turns" / turn
        if note.exists():
            found |= json.loads(note.read_text())
    return found


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


def _say_robbed(robbed: Mapping[str, float]) -> None:
    for file, seconds in sorted(robbed.items()):
        print(f"{SAYS}the host took {seconds:.1f} s of a core meanwhile: {file}", flush=True)


def main(argv: Sequence[str], cores: int | None = None) -> int:
    """The exit status for the shell: that of the first run, or 0 if all that failed there passes by itself."""
    kind, *arguments = argv
    shared = cores or len(os.sched_getaffinity(0))
    status = PASSED
    with tempfile.TemporaryDirectory(prefix="gpusize-tests-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        idle = stack.enter_context(_idle_turn(arguments, folder, shared)) if "python" in KINDS[kind] else None
        for each in KINDS[kind]:
            status = _judged(each, arguments, folder, shared, idle)
            if status:
                break
    return status


def _judged(kind: str, arguments: Sequence[str], folder: Path, cores: int, idle: IdleTurn | None) -> int:
    """The exit status of Rust's or Python's tests, with a second chance for some that failed."""
    first = run_rust(idle=idle) if kind == "rust" else run_python(arguments, folder, cores, idle)
    if not first.failed:
        return first.status
    if first.faults:
        _say("not at all, since no mark says that the machine may disturb it:", first.faults)
        return first.status
    if len(first.files - first.robbed.keys()) > MAX_FILES:
        _say(f"nothing: tests of {len(first.files)} files failed, and more than {MAX_FILES} are no accident")
        return first.status
    status, failed, robbed = first.status, first.failed, first.robbed
    for last in (False, True):
        _say_robbed(robbed)
        _say("now by itself, since it failed:", failed)
        again = run_rust(failed, idle) if kind == "rust" else run_again(arguments, folder, failed)
        failed = again.failed or failed - again.passed
        if not again.status and not failed:
            _say("passed by itself; why it failed before stands above, and wants mending:", first.failed)
            return 0
        status = again.status or status
        # Of one from which the host took the cores both times nothing is known yet.
        if last or not again.files or again.files - again.robbed.keys():
            break
        robbed = again.robbed
        steal.calm()
    _say("failed again:", failed)
    return status


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parent.parent)
    sys.exit(main(sys.argv[1:]))
