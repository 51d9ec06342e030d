"""scripts/run_tests.py: what failed runs once more by itself, and is told either way."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scripts import idle, run_tests, steal
from scripts.run_tests import MAX_FILES
from tests.conftest import OUT_OF_TIME, REALTIME, pytest_collection_modifyitems

# Fails the first time that it is called, whoever calls it.
ONCE = """
from pathlib import Path

def once(path):
    if not Path(path).exists():
        Path(path).touch()
        raise AssertionError("disturbed")
"""
RUST_ONCE = """
    if !std::path::Path::new("{path}").exists() {{
        std::fs::write("{path}", "").unwrap();
        panic!("disturbed");
    }}
"""


ROOT = Path(run_tests.__file__).parents[1]
AT_ONCE = run_tests.AT_ONCE
CORES = 2
MARKED = "import pytest\npytestmark = pytest.mark."
TURNS = {turn: f"{MARKED}{turn}\n" for turn in run_tests.TURNS} | {
    "together": f"{MARKED}realtime\n",
    "idle": "import pytest\n",
}
"""What a file of tests begins with, for its turn."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    # These tests may themselves be run by one worker of several, and what they start would take that for its own.
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
        monkeypatch.delenv(name, raising=False)
    # Plugins that are of no use here take a second to import, in every process.
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest -p no:anyio")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\npythonpath = .\nmarkers =\n  alone\n  paced\n  realtime\n  waits\n  nodes\n"
    )
    (tmp_path / "helper.py").write_text(ONCE)
    # The other turns are like these, and each costs processes.
    monkeypatch.setattr(run_tests, "AT_ONCE", (("together",), ("alone",)))
    return tmp_path


@pytest.fixture
def all_turns(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run_tests, "AT_ONCE", AT_ONCE)
    return folder


def crate(folder: Path, **programs: str) -> None:
    (folder / "Cargo.toml").write_text('[package]\nname = "tried"\nversion = "0.1.0"\nedition = "2021"\n')
    (folder / "Cargo.lock").write_text('version = 4\n\n[[package]]\nname = "tried"\nversion = "0.1.0"\n')
    (folder / "src").mkdir()
    (folder / "src" / "lib.rs").write_text("")
    (folder / "tests").mkdir()
    for name, text in programs.items():
        (folder / "tests" / f"{name}.rs").write_text(text)


def rust_test(name: str, body: str = "") -> str:
    return f"#[test]\nfn {name}() {{{body}}}\n"


@pytest.mark.parametrize("cores", [1, CORES])
def test_what_passes_is_not_run_again(folder: Path, capfd: pytest.CaptureFixture[str], cores: int) -> None:
    (folder / "test_a.py").write_text("def test_fine(): ...")
    (folder / "test_b.py").write_text(TURNS["alone"] + "def test_fine(): ...")
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    assert run_tests.main(["python"], cores) == 0
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers
    out = capfd.readouterr().out
    assert "run again" not in out
    assert out.count("1 passed") == 2


def test_tests_share_the_cores_and_those_marked_come_after_them(all_turns: Path) -> None:
    folder = all_turns
    meet = """
import os, time
def test_meets():
    open(f"{os.environ['PYTEST_XDIST_WORKER']}.here", "w").close()
    while not all(os.path.exists(f"{name}.here") for name in ("gw0", "gw1", "waits", "nodes")):
        time.sleep(0.01)
    assert not os.path.exists("alone")
"""
    (folder / "test_a.py").write_text(TURNS["together"] + meet)
    (folder / "test_b.py").write_text(TURNS["together"] + meet)
    # Beside those that share the cores, each in one process, and a test in it may have a turn of its own.
    for name, turn in (("e", "waits"), ("g", "nodes")):
        beside = meet.replace("os.environ['PYTEST_XDIST_WORKER']", f"os.environ.get('PYTEST_XDIST_WORKER', '{turn}')")
        alone = "\n@pytest.mark.alone\ndef test_of_its_own(): assert os.path.exists('gw0.here')\n"
        (folder / f"test_{name}.py").write_text(f"{TURNS[turn]}{beside}{alone}")
    # Those of a turn are run by one process, with one of the other turn beside it.
    for name, turn, other in (("c", "alone", "paced"), ("d", "alone", "paced"), ("f", "paced", "alone")):
        (folder / f"test_{name}.py").write_text(
            TURNS[turn]
            + f"import os, time\ndef test_{turn}():\n    open('{turn}', 'a').write(f'{{os.getpid()}} ')\n"
            + "    assert 'PYTEST_XDIST_WORKER' not in os.environ\n    assert os.path.exists('gw0.here')\n"
            + f"    while not os.path.exists('{other}'):\n        time.sleep(0.01)\n"
        )
    assert run_tests.main(["python", "--timeout", "500"], CORES) == 0
    first, second = (folder / "alone").read_text().split()
    assert first == second != (folder / "paced").read_text().strip()


@pytest.fixture
def idle_folder() -> Path:
    """The cgroup that a run in this process will make."""
    with idle.idle_group() as group:
        if group is None:
            pytest.skip("it takes a user who may make cgroups")
        assert group.folder.joinpath("cpu.idle").read_text() == "1\n"
    assert not group.folder.exists()
    return group.folder


MEETS = """
import os, time
def test_{mine}():
    with open("/proc/self/cgroup") as file: place = file.read()
    with open("{mine}.here", "w") as file: file.write(place)
    while not os.path.exists("{other}.here"): time.sleep(0.01)
"""


def test_those_without_a_mark_run_beside_them_while_a_core_is_idle(
    folder: Path, idle_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "test_a.py").write_text(TURNS["together"] + MEETS.format(mine="real", other="idle"))
    # It ends when it has equal rights: nothing is left to disturb by then.
    ends = f"    while open('{idle_folder}/cpu.idle').read() != '0\\n': time.sleep(0.01)\n"
    (folder / "test_b.py").write_text(MEETS.format(mine="idle", other="real") + ends)
    assert run_tests.main(["python", "--timeout", "500"], CORES) == 0
    assert run_tests.SAYS not in capfd.readouterr().out
    assert idle_folder.name in (folder / "idle.here").read_text()
    assert idle_folder.name not in (folder / "real.here").read_text()
    assert not idle_folder.exists()


@pytest.mark.usefixtures("idle_folder")
def test_they_have_ended_when_those_alone_begin(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "test_a.py").write_text(TURNS["alone"] + "import os\ndef test_it(): assert os.path.exists('ended')\n")
    (folder / "test_b.py").write_text("import time\ndef test_it():\n    time.sleep(1)\n    open('ended', 'w')\n")
    assert run_tests.main(["python"], CORES) == 0
    assert run_tests.SAYS not in capfd.readouterr().out, "by itself it would find that they have"


@pytest.mark.usefixtures("idle_folder")
def test_they_begin_beside_those_of_rust(folder: Path) -> None:
    meets = """
    std::fs::write("rust.here", "").unwrap();
    while !std::path::Path::new("idle.here").exists() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
"""
    crate(folder, realtime=rust_test("meets", meets))
    (folder / "test_a.py").write_text(MEETS.format(mine="idle", other="rust"))
    assert run_tests.main(["all", "--timeout", "500"], CORES) == 0


def test_they_end_where_rust_has_failed(folder: Path, idle_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "test_a.py").write_text("import time\ndef test_it():\n    open('it.began', 'w')\n    time.sleep(60)\n")
    waits = """
    while !std::fs::read_dir(".").unwrap().any(|file| file.unwrap().path().extension() == Some("began".as_ref())) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!();
"""
    crate(folder, second=rust_test("fault", waits))
    assert run_tests.main(["all"], CORES) == 101
    assert "== tests together" not in capfd.readouterr().out
    # Which can only be removed when nothing runs in it.
    assert not idle_folder.exists()


def test_they_share_the_cores_where_no_cgroup_can_be_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "CGROUPS", (folder / "nowhere", folder))
    (folder / "test_a.py").write_text(TURNS["together"] + MEETS.format(mine="real", other="idle"))
    (folder / "test_b.py").write_text(MEETS.format(mine="idle", other="real"))
    assert run_tests.main(["python", "--timeout", "500"], CORES) == 0
    assert list(folder.glob("gpusize-tests-*")) == []


def test_a_mark_that_its_turn_would_not_find_is_refused(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "marks.py").write_text("import pytest\n\nhidden = pytest.mark.alone\n")
    (folder / "test_a.py").write_text("from marks import hidden\n\n@hidden\ndef test_it(): ...\n")
    (folder / "test_b.py").write_text("def test_fine(): ...\n")
    assert run_tests.main(["python"], 1) not in {0, 1}
    assert "test_a.py holds tests marked alone; say so in it or in the conftest.py beside it" in capfd.readouterr().err
    (folder / "conftest.py").write_text("import pytest\n\nALONE = pytest.mark.alone\n")
    assert run_tests.main(["python"], 1) == 0


def test_the_slowest_tests_of_both_turns_are_named_at_the_end(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "test_a.py").write_text("import time\ndef test_slow(): time.sleep(0.5)\ndef test_quick(): ...")
    (folder / "test_b.py").write_text(TURNS["alone"] + "import time\ndef test_alone(): time.sleep(0.2)")
    assert run_tests.main(["python"], 1) == 0
    told = [line.split()[-1] for line in capfd.readouterr().out.splitlines() if line.startswith("== slowest: ")]
    assert told == ["test_a::test_slow", "test_b::test_alone", "test_a::test_quick"]


def test_nothing_to_run_is_told_as_pytest_tells_it(folder: Path) -> None:
    (folder / "test_a.py").write_text(TURNS["alone"] + "def test_alone(): ...")
    assert run_tests.main(["python"], 1) == 0, "one turn had something to run"
    assert run_tests.main(["python", "-k", "of_no_such_name"], 1) == 5


def test_a_test_that_was_disturbed_passes_and_is_named(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "test_a.py").write_text(
        f"{TURNS['together']}from helper import once\n"
        "def test_once(): once('a')\ndef test_fine(): open('fine', 'a').write('x')\n"
    )
    assert run_tests.main(["python", "-q"], 1) == 0
    out = capfd.readouterr().out
    assert "AssertionError: disturbed" in out
    assert out.rstrip().endswith("wants mending: test_a.py::test_once")
    assert (folder / "fine").read_text() == "x", "what had passed ran again too"


def test_what_no_machine_can_disturb_has_no_second_chance(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name, begins in {"a": "", "b": TURNS["together"], "c": TURNS["alone"]}.items():
        (folder / f"test_{name}.py").write_text(f"{begins}from helper import once\ndef test_it(): once('{name}')")
    assert run_tests.main(["python", "-q"], CORES) == 1
    told = [line for line in capfd.readouterr().out.splitlines() if line.startswith(run_tests.SAYS)]
    assert told == ["== run again: not at all, since no mark says that the machine may disturb it: test_a.py::test_it"]


def test_a_worker_that_dies_once_is_no_disturbed_test(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "test_a.py").write_text(
        "import os\nfrom helper import once\ndef test_dies():\n    try: once('a')\n"
        "    except AssertionError: os._exit(7)\ndef test_never_ran(): ...\n"
    )
    (folder / "test_b.py").write_text("def test_fine(): ...")
    assert run_tests.main(["python"], CORES) == 3
    assert run_tests.SAYS not in capfd.readouterr().out


def test_tests_of_all_turns_that_were_disturbed_run_again(all_turns: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = all_turns
    disturbed = {turn: begins for turn, begins in TURNS.items() if turn != "idle"}
    for place, (turn, begins) in enumerate(disturbed.items()):
        mark = begins.strip().rpartition("=")[2]
        with (folder / f"test_{place // 2}.py").open("a") as file:
            file.write(f"import pytest\nfrom helper import once\n@{mark}\ndef test_{turn}(): once('{turn}')\n")
    assert run_tests.main(["python", "-q"], CORES) == 0
    assert capfd.readouterr().out.count("wants mending: ") == len(disturbed)


def test_a_fault_fails_again(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "test_a.py").write_text(
        f"{TURNS['together']}from helper import once\ndef test_once(): once('a')\ndef test_fault(): assert False\n"
    )
    (folder / "test_b.py").write_text("def test_fine(): ...\n")
    assert run_tests.main(["python"], 1) == 1
    assert capfd.readouterr().out.rstrip().endswith("== run again: failed again: test_a.py::test_fault")


def test_a_test_that_hangs_fails_by_its_timeout_and_the_others_run(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "test_a.py").write_text("import time\ndef test_hangs(): time.sleep(600)\ndef test_fine(): ...\n")
    assert run_tests.main(["python", "--timeout", "1"], 1) == 1
    out = capfd.readouterr().out
    assert "1 failed, 1 passed" in out
    assert "Timeout" in out


def test_a_fixture_that_was_disturbed_is_set_up_anew(folder: Path) -> None:
    (folder / "test_a.py").write_text(
        f"{TURNS['together']}from helper import once\n"
        "@pytest.fixture(scope='module')\ndef server(): once('a')\n"
        + "".join(f"def test_{n}(server): ...\n" for n in range(MAX_FILES + 2))
    )
    assert run_tests.main(["python"], 1) == 0


def test_a_test_whose_name_changes_is_not_taken_for_one_that_passed(folder: Path) -> None:
    (folder / "test_a.py").write_text(
        TURNS["alone"] + "import os\nfrom helper import once\n"
        "@pytest.mark.parametrize('name', [f'pid-{os.getpid()}'])\ndef test_named(name): once('a')\n"
        "def test_once(): once('b')\n"
    )
    assert run_tests.main(["python"], 1) != 0


def test_a_run_that_was_disturbed_all_over_has_failed(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for n in range(MAX_FILES + 1):
        (folder / f"test_{n}.py").write_text(
            f"{TURNS['together']}from helper import once\ndef test_once(): once('{n}')\n"
        )
    assert run_tests.main(["python"], 1) == 1
    assert f"tests of {MAX_FILES + 1} files failed" in capfd.readouterr().out


ROBS = """
from pathlib import Path
from scripts import steal

steal.STAT = Path("stat")

def rob(seconds):
    ticks = int(steal.STAT.read_text().split()[8]) + int(seconds * 100)
    steal.STAT.write_text(f"cpu 0 0 0 0 0 0 0 {ticks} 0 0")
"""


@pytest.fixture
def host(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host that takes cores when a test says so: ``rob(seconds)``."""
    (folder / "helper.py").write_text(ONCE + ROBS)
    (folder / "conftest.py").write_text("import helper\n")
    (folder / "stat").write_text("cpu 0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n")
    monkeypatch.setattr(steal, "STAT", folder / "stat")
    monkeypatch.setattr(steal, "CALM_S", 0.01)
    return folder


def failing_once(folder: Path, n: int, before: str) -> None:
    """A file whose first test does something, and whose second fails the first time."""
    (folder / f"test_{n}.py").write_text(
        f"{TURNS['alone']}from helper import once, rob\ndef test_fine(): {before}\ndef test_once(): once('{n}')\n"
    )


def test_files_from_which_the_host_took_the_cores_are_no_fault(host: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for n in range(MAX_FILES + 2):
        # What a later test looks at may have been begun by the first of its file.
        failing_once(host, n, "rob(2.5)" if n < 2 else "pass")
    assert run_tests.main(["python"], 1) == 0
    out = capfd.readouterr().out
    told = [line for line in out.splitlines() if "the host took 2.5 s of a core meanwhile" in line]
    assert told == [f"== run again: the host took 2.5 s of a core meanwhile: test_{n}.py" for n in range(2)]
    assert "in which the host took 5 s of a core" in out


def test_one_more_file_than_may_fail_was_not_robbed(host: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for n in range(MAX_FILES + 2):
        failing_once(host, n, "rob(2.5)" if n < 1 else "rob(0.05)")
    assert run_tests.main(["python"], 1) == 1
    assert f"tests of {MAX_FILES + 2} files failed" in capfd.readouterr().out


@pytest.mark.parametrize("times, status", [(2, 0), (3, 1)])
def test_a_test_robbed_twice_has_one_more_chance(host: Path, times: int, status: int) -> None:
    (host / "test_a.py").write_text(
        f"{TURNS['alone']}from helper import rob\ndef test_it():\n"
        f"    with open('count', 'a') as file: file.write('x')\n"
        f"    if len(open('count').read()) <= {times}:\n        rob(2)\n        raise AssertionError\n"
    )
    assert run_tests.main(["python"], 1) == status
    assert (host / "count").read_text() == "xxx"


def test_a_test_that_fails_again_by_itself_has_no_other_chance(host: Path) -> None:
    (host / "test_a.py").write_text(
        f"{TURNS['alone']}from helper import rob\ndef test_it():\n"
        f"    with open('count', 'a') as file: file.write('x')\n"
        f"    if len(open('count').read()) == 1: rob(2)\n    raise AssertionError\n"
    )
    assert run_tests.main(["python"], 1) == 1
    assert (host / "count").read_text() == "xx"


@pytest.mark.parametrize("busy, waits", [(2, 3), (10**6, 12)])
def test_calm_is_waited_for_but_not_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: int, waits: int
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        (tmp_path / "stat").write_text(f"cpu 0 0 0 0 0 0 0 {min(len(slept), busy) * 100}\n")

    (tmp_path / "stat").write_text("cpu 0 0 0 0 0 0 0 0\n")
    monkeypatch.setattr(steal, "STAT", tmp_path / "stat")
    monkeypatch.setattr(steal, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: sum(slept)))
    steal.calm()
    assert slept == [steal.CALM_S] * waits


def test_nothing_is_taken_where_nothing_tells_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steal, "STAT", tmp_path / "none")
    taken = steal.mark().since()
    assert (taken.seconds, taken.disturbs) == (0, False)


GONE = "import os\ndef test_gone(): os._exit(7)"
KILLED = "import os, signal\ndef test_killed(): os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.parametrize(
    "turn, text, status",
    [
        ("together", "import nothing_of_this_name", 2),
        ("together", GONE, 3),
        ("together", KILLED, 3),
        ("alone", GONE, 7),
        ("alone", KILLED, 137),
    ],
)
def test_a_run_that_did_not_get_to_its_end_has_failed(
    folder: Path, capfd: pytest.CaptureFixture[str], turn: str, text: str, status: int
) -> None:
    (folder / "test_a.py").write_text(TURNS[turn] + text)
    (folder / "test_b.py").write_text("def test_fine(): ...")
    assert run_tests.main(["python"], CORES) == status
    assert run_tests.SAYS not in capfd.readouterr().out


def test_a_rust_test_that_was_disturbed(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first, second = (RUST_ONCE.format(path=folder / name) for name in "ab")
    crate(
        folder,
        realtime_first=rust_test("fine") + rust_test("disturbed", first),
        second=rust_test("fine") + f"mod realtime {{ {rust_test('once', second)} }}",
    )
    assert run_tests.main(["rust"]) == 0
    *_, first_told, second_told = capfd.readouterr().out.splitlines()
    assert first_told.endswith("wants mending: disturbed")
    assert second_told.endswith("wants mending: realtime::once")


def test_a_rust_test_whose_name_says_nothing_of_real_time_has_no_second_chance(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = (RUST_ONCE.format(path=folder / name) for name in "ab")
    crate(folder, realtime_first=rust_test("disturbed", first), second=rust_test("not_realtime", second))
    assert run_tests.main(["rust"]) == 101
    told = [line for line in capfd.readouterr().out.splitlines() if line.startswith(run_tests.SAYS)]
    assert told == ["== run again: not at all, since no mark says that the machine may disturb it: not_realtime"]


@pytest.mark.parametrize(
    "body, said",
    [
        ('assert!(std::env::args().count() == 0, "a fault");', "== run again: failed again: fault"),
        ("std::process::abort();", None),
        ("no such thing", None),
    ],
)
def test_a_fault_in_rust(folder: Path, capfd: pytest.CaptureFixture[str], body: str, said: str | None) -> None:
    crate(folder, realtime=rust_test("fine") + rust_test("fault", body))
    assert run_tests.main(["rust"]) == 101
    out = capfd.readouterr().out.rstrip()
    assert out.endswith(said) if said else run_tests.SAYS not in out


def test_a_fault_in_an_example_is_not_lost_beside_a_disturbed_test(folder: Path) -> None:
    crate(folder, realtime=rust_test("disturbed", RUST_ONCE.format(path=folder / "a")))
    (folder / "src" / "lib.rs").write_text("/// ```\n/// assert!(false);\n/// ```\npub fn shown() {}\n")
    assert run_tests.main(["rust"]) == 101


@pytest.mark.parametrize("turn", TURNS)
def test_ctrl_c_ends_the_tests_and_nothing_is_run_again(folder: Path, turn: str) -> None:
    # As a terminal does it: every process of the group hears of it.
    (folder / "test_a.py").write_text(
        f"{TURNS[turn]}import os, signal, time\n"
        "def test_fails(): assert False\n"
        "def test_ctrl_c():\n    os.killpg(0, signal.SIGINT)\n    time.sleep(60)\n"
    )
    (folder / "test_b.py").write_text("def test_fine(): ...")
    code = f"import sys; from scripts import run_tests; sys.exit(run_tests.main(['python'], {CORES}))"
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False, start_new_session=True
    )
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert "run again" not in ended.stdout
    assert "KeyboardInterrupt" in ended.stdout + ended.stderr


@pytest.mark.parametrize("marks, refused", [({"realtime"}, True), ({"realtime", "alone"}, False), (set(), False)])
def test_a_mark_of_real_time_that_no_turn_would_find_is_refused(marks: set[str], refused: bool) -> None:
    item: Any = SimpleNamespace(
        path=ROOT / "tests/analysis/test_some.py",
        nodeid="test_some",
        get_closest_marker=lambda name: name if name in marks else None,
    )
    with pytest.raises(pytest.UsageError, match="name its file in REALTIME") if refused else contextlib.nullcontext():
        pytest_collection_modifyitems([item])


def test_what_is_marked_as_real_time_is_there() -> None:
    # A folder that is moved would lose its mark, and its tests their second chance.
    assert [name for name in (*REALTIME, *OUT_OF_TIME) if not (ROOT / "tests" / name).exists()] == []
