"""Small faults in a module, one at a time, and a plugin for pytest that runs tests with one of them.

The file itself is never changed: the plugin hands Python another tree when it imports that module. What it is to do
stands in the environment, since packages are imported before pytest reads its options:

- ``GPUSIZE_MUTANT``: path and number of the mutant, ``python/gpusize/base/units.py:17``.
- ``GPUSIZE_MUTANT_TESTS``: a file with the names of the tests to run, one a line.
- ``GPUSIZE_MUTANT_MAP``: a file to write: which tests run which lines, and for how long (JSON).
"""

from __future__ import annotations

import ast
import copy
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

import coverage
import pytest

__all__ = ["NEVER_IMPORTED", "Mutant", "mutants", "mutated"]

PACKAGE = Path(__file__).resolve().parents[1] / "python" / "gpusize"
NEVER_IMPORTED = 9
"""Exit status: no test imported the module that was to be changed."""

PAIRS: list[tuple[type[ast.AST], type[ast.AST]]] = [
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn)),
    *((ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.BitAnd, ast.BitOr)),
]
SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    **dict(PAIRS),
    **{b: a for a, b in PAIRS},
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}
CALLED = {"min": "max", "any": "all", "floor": "ceil", "lower": "upper", "min_horizontal": "max_horizontal"}
CALLED |= {new: old for old, new in CALLED.items()}
# Neither types nor messages: their wording is no behaviour that a fault would show in.
UNCHANGED_FIELDS = {"annotation", "returns", "decorator_list", "type_params", "exc"}


@dataclass(frozen=True)
class Mutant:
    """One change of one file; ``number`` counts the places of the file in the order of its tree."""

    path: str
    number: int
    line: int
    was: str
    now: str


def mutants(path: Path, name: str) -> list[Mutant]:
    """All that can be made of a file, which is told as ``name``."""
    found = []
    for number, (_, _, _, node, new) in enumerate(_places(ast.parse(path.read_text("utf-8")))):
        was, now = _words(node, new)
        found.append(Mutant(name, number, node.lineno, was, now))
    return found


def mutated(path: Path, number: int) -> CodeType:
    """The module's code with one change."""
    tree = ast.parse(path.read_text("utf-8"))
    parent, field, index, node, new = list(_places(tree))[number]
    ast.copy_location(new, node)
    if index is None:
        setattr(parent, field, new)
    else:
        getattr(parent, field)[index] = new
    return compile(ast.fix_missing_locations(tree), str(path), "exec", dont_inherit=True)


def _words(node: Any, new: Any) -> tuple[str, str]:
    if isinstance(node, ast.If):
        node, new = node.test, new.test
    return ast.unparse(node), ast.unparse(new)


def _places(parent: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, Any, Any]]:
    """Where something can be changed: parent, field, index in the field, what stands there, what could."""
    for field, value in ast.iter_fields(parent):
        if field in UNCHANGED_FIELDS:
            continue
        listed = isinstance(value, list)
        for index, node in enumerate(value if listed else [value]):
            if isinstance(node, ast.AST) and not _is_left_alone(node):
                yield from ((parent, field, index if listed else None, node, new) for new in _changed(node))
                yield from _places(node)


def _is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.JoinedStr() | ast.keyword(arg="strict") | ast.If(test=ast.Name("TYPE_CHECKING")):
            return True
    return False


def _changed(node: Any) -> Iterator[Any]:
    match node:
        case ast.Compare():
            yield _with(node, ops=[_swapped(node.ops[0]), *node.ops[1:]])
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in SWAPPED and not _joins_text(node):
            yield _with(node, op=_swapped(op))
        case ast.BoolOp():
            yield _with(node, op=_swapped(node.op))
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield copy.deepcopy(node.operand)
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.If(test=test) if not isinstance(test, ast.UnaryOp):
            yield _with(node, test=ast.UnaryOp(ast.Not(), test))
        case ast.Call(func=ast.Name(id=name)) if name in CALLED:
            yield _with(node, func=ast.Name(CALLED[name], ast.Load()))
        case ast.Call(func=ast.Attribute(attr=name)) if name in CALLED:
            yield _with(node, func=_with(node.func, attr=CALLED[name]))
        case ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Break() | ast.Continue():
            yield ast.Continue() if isinstance(node, ast.Break) else ast.Break()


def _with(node: Any, **fields: Any) -> Any:
    new = copy.deepcopy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _swapped(operator: ast.AST) -> ast.AST:
    return SWAPPED[type(operator)]()


def _joins_text(node: Any) -> bool:
    """Whether it joins text or a path, where another operator is nothing but an error."""
    operands = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.value,)
    constants = [each.value for each in operands if isinstance(each, ast.Constant)]
    return any(isinstance(each, str) for each in constants) or any(isinstance(each, ast.JoinedStr) for each in operands)


# ------------------------------------------------------------------------------------------------- as a plugin


class _WithMutant:
    """Has one module imported with its change, and only some tests run."""

    def __init__(self, place: str, tests: Path) -> None:
        path, _, number = place.rpartition(":")
        self.path, self.tests = Path(path).resolve(), tests.read_text("utf-8").splitlines()
        self.code, self.imported, plain = mutated(self.path, int(number)), False, SourceFileLoader.get_code

        def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
            if Path(loader.path) != self.path:
                return plain(loader, name)
            self.imported = True
            return self.code

        SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        order = {name: number for number, name in enumerate(self.tests)}
        items[:] = sorted((each for each in items if each.nodeid in order), key=lambda each: order[each.nodeid])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self.imported and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = NEVER_IMPORTED


class _Map:
    """Notes the lines that each test runs; of tests that fail it notes nothing."""

    def __init__(self, result: Path) -> None:
        self.result, self.seconds = result, dict[str, float]()
        self.coverage = coverage.Coverage(data_file=None, config_file=False, source=[str(PACKAGE)])
        self.coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed:
            self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + report.duration
        else:
            self.seconds[report.nodeid] = float("nan")

    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()
        data = self.coverage.get_data()
        lines = {path: data.contexts_by_lineno(path) for path in data.measured_files()}
        self.result.write_text(json.dumps({"seconds": self.seconds, "lines": lines}), "utf-8")


def pytest_configure(config: pytest.Config) -> None:
    if PLUGIN is not None:
        config.pluginmanager.register(PLUGIN)


PLUGIN: _WithMutant | _Map | None = None
if "GPUSIZE_MUTANT" in os.environ:
    PLUGIN = _WithMutant(os.environ["GPUSIZE_MUTANT"], Path(os.environ["GPUSIZE_MUTANT_TESTS"]))
elif "GPUSIZE_MUTANT_MAP" in os.environ:
    PLUGIN = _Map(Path(os.environ["GPUSIZE_MUTANT_MAP"]))
