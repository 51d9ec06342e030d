"""Mutants: what is changed, what is left alone, and whether a run sees the change of a file that stays as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.mutants import NOT_RUN, Map, run_mutant
from scripts.mutations import NEVER_IMPORTED, Mutant, mutants, mutated

ROOT = Path(__file__).resolve().parents[2]
LIMITED = '''
"""A module with 2 numbers in its docstring."""
from __future__ import annotations

def limited(value: int | None, most: int = 10) -> int:
    if value is None:
        raise ValueError(f"{1 + 1} of {most}")
    return min(value, most)

def adult(age: float) -> bool:
    return not age < 18
'''
WEAK = "import limited\ndef test_adults():\n    assert limited.adult(20)\n    assert not limited.adult(10)\n"
STRONG = WEAK + "    assert limited.adult(18)\n"


def test_each_place_is_changed_by_itself_and_words_are_left_alone(tmp_path: Path):
    path = tmp_path / "limited.py"
    path.write_text(LIMITED, "utf-8")
    found = mutants(path, "limited.py")
    assert [(each.line, each.was, each.now) for each in found] == [
        (5, "10", "11"),
        (6, "value is None", "not value is None"),
        (6, "value is None", "value is not None"),
        (8, "min(value, most)", "max(value, most)"),
        (11, "not age < 18", "age < 18"),
        (11, "age < 18", "age <= 18"),
        (11, "18", "19"),
    ]
    values = []
    for each in found[3:]:
        module: dict[str, Any] = {}
        exec(mutated(path, each.number), module)
        values.append((module["limited"](12), module["adult"](18.0)))
    assert values == [(12, True), (10, False), (10, False), (10, False)]
    assert path.read_text("utf-8") == LIMITED


@pytest.mark.parametrize("tests, status", [(STRONG, 1), (WEAK, 0), ("def test_nothing():\n    pass\n", NEVER_IMPORTED)])
def test_a_run_of_tests_sees_the_mutant(tmp_path: Path, tests: str, status: int):
    path = tmp_path / "limited.py"
    path.write_text(LIMITED, "utf-8")
    (tmp_path / "test_limited.py").write_text(tests, "utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n", "utf-8")
    (tmp_path / "only").write_text("test_limited.py::test_adults\ntest_limited.py::test_nothing\n", "utf-8")
    [boundary] = [each for each in mutants(path, "limited.py") if each.now == "age <= 18"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "scripts.mutations", "-p", "no:cacheprovider"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "GPUSIZE_MUTANT": f"{path}:{boundary.number}",
            "GPUSIZE_MUTANT_TESTS": str(tmp_path / "only"),
        },
    )
    assert done.returncode == status, done.stdout + done.stderr


def test_tests_of_the_line_come_first_and_then_those_of_their_files():
    mutant = Mutant("a.py", 0, 7, "1", "2")
    seconds = {"t.py::slow": 15.0, "t.py::quick": 0.1, "t.py::other": 0.2, "u.py::else": 0.3, "t.py::long": 70.0}
    lines = {str(ROOT / "a.py"): {"7": ["t.py::slow", "t.py::quick", "t.py::failed"], "9": ["u.py::else"]}}
    known = Map(seconds, lines)
    assert known.tests(mutant, whole_files=False) == ["t.py::quick", "t.py::slow"]
    assert known.tests(mutant, whole_files=True) == ["t.py::quick", "t.py::other", "t.py::slow"]
    # A line that runs when the module is imported has all tests of the module.
    at_import = Map(seconds, {str(ROOT / "a.py"): {**lines[str(ROOT / "a.py")], "7": [""]}})
    assert "u.py::else" in at_import.tests(mutant, whole_files=False)


def test_a_line_that_no_test_runs_is_told_apart(tmp_path: Path):
    assert run_mutant(Mutant("a.py", 0, 7, "1", "2"), Map({}, {}), tmp_path).how == NOT_RUN
