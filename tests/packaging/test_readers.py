"""Paths are names, not patterns: a folder may be called ``runs[H200]``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import gpusize

READERS = frozenset(("scan_parquet", "read_parquet", "read_csv", "scan_csv", "read_ndjson", "scan_ndjson"))


def _calls(file: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of_polars = isinstance(node.func.value, ast.Name) and node.func.value.id == "pl"
            if of_polars and node.func.attr in {*READERS, "read_parquet_schema"}:
                yield node


def test_no_reader_takes_a_path_for_a_pattern() -> None:
    package = Path(gpusize.__file__).parent
    calls = [(file, call) for file in sorted(package.rglob("*.py")) for call in _calls(file)]
    assert len(calls) > 10
    for file, call in calls:
        given = ast.unparse(call.args[0])
        in_memory = given.startswith("io.") or given == "opened"
        literal = any(each.arg == "glob" and ast.unparse(each.value) == "False" for each in call.keywords)
        assert in_memory or literal, f"{file.relative_to(package)}:{call.lineno}: say glob=False"
