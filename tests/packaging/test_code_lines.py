"""`python -m scripts.code_lines` counts code, and nothing that only explains it or sets it out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts import code_lines

CODE = '''\
"""What the module is for.

More of it.
"""

import os  # a comment behind code is a line of code

LIMIT = 3
"""What the limit is."""


@staticmethod
def add(a, b):
    # a comment alone
    """A docstring."""
    text = """first

third"""

    return a + b + len(text) + LIMIT + len(os.name)
'''


def test_blank_lines_comments_and_docstrings_do_not_count() -> None:
    # import, LIMIT, decorator, def, three lines of a text that is a value, return
    assert code_lines.size_of(CODE) == code_lines.Size(lines=8, unbroken=6, statements=5)


def test_a_broken_line_is_more_lines_and_the_same_code() -> None:
    one, broken = code_lines.size_of("x = f(1, 2)\n"), code_lines.size_of("x = f(\n    1,\n    2,\n)\n")
    assert (one.lines, broken.lines) == (1, 4)
    assert one[1:] == broken[1:] == (1, 1)


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def test_a_commit_is_counted_as_it_was(tmp_path: Path) -> None:
    room = tmp_path / "python/gpusize/base"
    room.mkdir(parents=True)
    (room / "a.py").write_text("x = 1\ny = 2\n")
    (room.parent / "__init__.py").write_text("z = 3\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    (room / "b.py").write_text("w = 4\n")
    (room / "notes.txt").write_text("no code\n")
    before = code_lines.sizes(code_lines.modules_of("HEAD", tmp_path))
    after = code_lines.sizes(code_lines.modules_here(tmp_path))
    assert {name: size.lines for name, size in before.items()} == {"__init__": 1, "base": 2}
    assert {name: size.lines for name, size in after.items()} == {"__init__": 1, "base": 3}


def test_a_commit_that_is_not_there_is_named() -> None:
    with pytest.raises(SystemExit, match="nowhere"):
        list(code_lines.modules_of("nowhere"))


def test_the_table_ends_with_the_sum(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    some = [each for each in code_lines.modules_here() if each[0].startswith(("analysis/s", "base/f"))]
    monkeypatch.setattr(code_lines, "modules_here", lambda: iter(some))
    assert code_lines.main([]) == 0
    head, *rows, last = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head == ["lines", "unbroken", "statements"]
    assert last == ["total", *(str(sum(int(row[at]) for row in rows)) for at in (1, 2, 3))]
    assert "analysis" in {row[0] for row in rows}
