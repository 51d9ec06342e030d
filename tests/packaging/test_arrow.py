"""The arrow of imports: no package of the library reaches itself, and nothing imports the command line."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2] / "python" / "gpusize"
TOLD_LATE = {"result", "report", "truth"}
"""A result writes its report on request, and a report reads results."""


def checked_only(tree: ast.Module) -> set[int]:
    """Nodes that only a type checker runs."""
    guards = [n for n in ast.walk(tree) if isinstance(n, ast.If) and getattr(n.test, "id", "") == "TYPE_CHECKING"]
    return {id(inner) for guard in guards for inner in ast.walk(guard)}


def imports() -> dict[str, set[str]]:
    """For each module or package at the top of the library those that it imports at run time."""
    found: dict[str, set[str]] = {}
    for path in ROOT.rglob("*.py"):
        own = path.relative_to(ROOT).parts[0].removesuffix(".py")
        tree = ast.parse(path.read_text("utf-8"))
        skipped = checked_only(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and id(node) not in skipped and (node.module or "")[:8] == "gpusize.":
                found.setdefault(own, set()).add((node.module or "").split(".")[1])
    return {own: others - {own} for own, others in found.items()}


def reached(start: str, edges: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for other in edges.get(waiting.pop(), set()) - seen:
            seen.add(other)
            waiting.append(other)
    return seen


def test_no_package_reaches_itself() -> None:
    edges = {own: others - TOLD_LATE if own in TOLD_LATE else others for own, others in imports().items()}
    assert "assemble" in edges["study"]
    assert [own for own in sorted(edges) if own in reached(own, edges)] == []


def test_nothing_imports_the_command_line() -> None:
    assert [own for own, others in imports().items() if "cli" in others and own not in ("cli", "__main__")] == []
