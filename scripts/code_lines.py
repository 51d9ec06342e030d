"""How much Python the package is: lines of code without blank lines, comments and docstrings.

    python -m scripts.code_lines            of the files of the working tree, by name at the top
    python -m scripts.code_lines COMMIT     of a commit, without checking it out

Three counts stand side by side. Lines are what a reader scrolls through. They grow when the formatter breaks a line, so
two more do not depend on the layout: lines as `ast.unparse` writes them, which never breaks one, and statements.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = "python/gpusize"
_NO_CODE: Final = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


class Size(NamedTuple):
    """Of one module or of many."""

    lines: int
    unbroken: int
    statements: int


def size_of(text: str) -> Size:
    """The size of a module. A text that stands alone, as docstrings do, is no code, wherever it stands."""
    tree = ast.parse(text)
    alone = [node for node in ast.walk(tree) if isinstance(node, ast.Expr) and _is_text(node)]
    taken = {line for node in alone for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    statements = sum(isinstance(node, ast.stmt) for node in ast.walk(tree)) - len(alone)
    bare = ast.unparse(ast.fix_missing_locations(_WithoutTexts().visit(tree)))
    return Size(len(code - taken), sum(bool(line.strip()) for line in bare.splitlines()), statements)


def _is_text(node: ast.Expr) -> bool:
    return isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


class _WithoutTexts(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if _is_text(node) else node


def modules_here(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Path below the package and text of every module of the working tree."""
    folder = root / PACKAGE
    for path in sorted(folder.rglob("*.py")):
        yield path.relative_to(folder).as_posix(), path.read_text("utf-8")


def modules_of(commit: str, root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Path below the package and text of every module of a commit.

    Raises:
        SystemExit: git knows no such commit, or it has no package.
    """
    words = ["git", "archive", "--format=tar", commit, PACKAGE]
    asked = subprocess.run(words, cwd=root, capture_output=True, check=False)
    if asked.returncode:
        raise SystemExit(asked.stderr.decode(errors="replace").strip())
    with tarfile.open(fileobj=io.BytesIO(asked.stdout)) as archive:
        for member in archive:
            held = archive.extractfile(member) if member.name.endswith(".py") else None
            if held is not None:
                yield member.name.removeprefix(f"{PACKAGE}/"), held.read().decode()


def sizes(modules: Iterator[tuple[str, str]]) -> dict[str, Size]:
    """The size of each name at the top of the package."""
    found: dict[str, Size] = {}
    for path, text in modules:
        name = path.partition("/")[0].removesuffix(".py")
        found[name] = Size(*map(sum, zip(found.get(name, (0, 0, 0)), size_of(text), strict=True)))
    return found


def main(arguments: list[str]) -> int:
    """Print the table."""
    found = sizes(modules_of(arguments[0]) if arguments else modules_here())
    total = Size(*map(sum, zip(*found.values(), strict=True)))
    print(f"{'':<12}{'lines':>8}{'unbroken':>10}{'statements':>12}")
    for name, size in [*sorted(found.items()), ("total", total)]:
        print(f"{name:<12}{size.lines:>8}{size.unbroken:>10}{size.statements:>12}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
