"""scripts/run_tests.py: what failed runs once more by itself, and is told either way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import run_tests
from scripts.run_tests import MAX_FILES

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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    (tmp_path / "helper.py").write_text(ONCE)
    return tmp_path


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


def test_what_passes_is_not_run_again(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "test_a.py").write_text("def test_fine(): ...")
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    assert run_tests.main(["python"]) == 0
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert "run again" not in capfd.readouterr().out


def test_a_test_that_was_disturbed_passes_and_is_named(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "test_a.py").write_text(
        "from helper import once\ndef test_once(): once('a')\ndef test_fine(): open('fine', 'a').write('x')\n"
    )
    assert run_tests.main(["python", "-q"]) == 0
    out = capfd.readouterr().out
    assert "AssertionError: disturbed" in out
    assert out.rstrip().endswith("wants mending: test_a.py::test_once")
    assert (folder / "fine").read_text() == "x", "what had passed ran again too"


def test_a_fault_fails_again(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "test_a.py").write_text(
        "from helper import once\ndef test_once(): once('a')\ndef test_fault(): assert False\n"
    )
    assert run_tests.main(["python"]) == 1
    assert capfd.readouterr().out.rstrip().endswith("== run again: failed again: test_a.py::test_fault")


def test_a_fixture_that_was_disturbed_is_set_up_anew(folder: Path) -> None:
    (folder / "test_a.py").write_text(
        "import pytest\nfrom helper import once\n"
        "@pytest.fixture(scope='module')\ndef server(): once('a')\n"
        + "".join(f"def test_{n}(server): ...\n" for n in range(MAX_FILES + 2))
    )
    assert run_tests.main(["python"]) == 0


def test_a_test_whose_name_changes_is_not_taken_for_one_that_passed(folder: Path) -> None:
    (folder / "test_a.py").write_text(
        "import os, pytest\nfrom helper import once\n"
        "@pytest.mark.parametrize('name', [f'pid-{os.getpid()}'])\ndef test_named(name): once('a')\n"
        "def test_once(): once('b')\n"
    )
    assert run_tests.main(["python"]) != 0


def test_a_run_that_was_disturbed_all_over_has_failed(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for n in range(MAX_FILES + 1):
        (folder / f"test_{n}.py").write_text(f"from helper import once\ndef test_once(): once('{n}')\n")
    assert run_tests.main(["python"]) == 1
    assert f"tests of {MAX_FILES + 1} files failed" in capfd.readouterr().out


@pytest.mark.parametrize(
    "text, status",
    [
        ("import nothing_of_this_name", 2),
        ("import os\ndef test_gone(): os._exit(7)", 7),
        ("import os, signal\ndef test_killed(): os.kill(os.getpid(), signal.SIGKILL)", 137),
    ],
)
def test_a_run_that_did_not_get_to_its_end_has_failed(folder: Path, text: str, status: int) -> None:
    (folder / "test_a.py").write_text(text)
    assert run_tests.main(["python"]) == status


def test_a_rust_test_that_was_disturbed(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first, second = (RUST_ONCE.format(path=folder / name) for name in "ab")
    crate(
        folder,
        first=rust_test("fine") + rust_test("disturbed", first),
        second=rust_test("fine") + f"mod inner {{ {rust_test('once', second)} }}",
    )
    assert run_tests.main(["rust"]) == 0
    *_, first_told, second_told = capfd.readouterr().out.splitlines()
    assert first_told.endswith("wants mending: disturbed")
    assert second_told.endswith("wants mending: inner::once")


@pytest.mark.parametrize(
    "body, said",
    [
        ('assert!(std::env::args().count() == 0, "a fault");', "== run again: failed again: fault"),
        ("std::process::abort();", None),
        ("no such thing", None),
    ],
)
def test_a_fault_in_rust(folder: Path, capfd: pytest.CaptureFixture[str], body: str, said: str | None) -> None:
    crate(folder, first=rust_test("fine") + rust_test("fault", body))
    assert run_tests.main(["rust"]) == 101
    out = capfd.readouterr().out.rstrip()
    assert out.endswith(said) if said else run_tests.SAYS not in out


def test_a_fault_in_an_example_is_not_lost_beside_a_disturbed_test(folder: Path) -> None:
    crate(folder, first=rust_test("disturbed", RUST_ONCE.format(path=folder / "a")))
    (folder / "src" / "lib.rs").write_text("/// ```\n/// assert!(false);\n/// ```\npub fn shown() {}\n")
    assert run_tests.main(["rust"]) == 101


def test_ctrl_c_ends_the_tests_and_nothing_is_run_again(folder: Path) -> None:
    (folder / "test_a.py").write_text(
        "import os, signal\n"
        "def test_fails(): assert False\n"
        "def test_ctrl_c():\n    os.kill(os.getppid(), signal.SIGINT)\n    os.kill(os.getpid(), signal.SIGINT)\n"
    )
    root = Path(run_tests.__file__).parents[1]
    code = "import sys; from scripts import run_tests; sys.exit(run_tests.main(['python']))"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert "run again" not in ended.stdout
    assert "KeyboardInterrupt" in ended.stdout
    assert not ended.stderr
