"""A plugin for pytest: whose turn it is: that of a test's mark, ``together`` if it runs in real time, ``idle`` if not.

``run_tests.py`` runs pytest once for each turn; docs/decisions/0029-tests-on-both-cores.md says why.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts import steal
from scripts.run_tests import IDLE, SPREAD, TURNS

__all__ = ["DISTURBED", "OF_THEIR_OWN", "lost_worker"]

OF_THEIR_OWN = ("alone", "paced", "nodes", "waits")
"""Marks that give a test a turn, the strictest first: a folder may have one, and a test in it another."""
DISTURBED = frozenset({"realtime", *OF_THEIR_OWN})
"""Marks of tests that the machine may disturb: only these may run once more (docs/decisions/0025)."""
SAYS = {turn: (f"mark.{turn}",) for turn in OF_THEIR_OWN} | {"alone": ("mark.alone", "mark.slow")}
"""What a file or the conftest.py beside it says where it holds tests of a turn: the others need no import for it."""
lost_worker = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--turn", choices=TURNS, help="Only the tests of this turn")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--turn") is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Undisturbed())


class _Undisturbed:
    """Notes, where ``run_tests.py`` finds it, what failed although no mark says that the machine may disturb it.

    And the files of the others that failed while the host took the cores, counted from the file's first test on, which
    may have begun what a later one looks at. Of what was never read there is nothing to run again.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.files: dict[str, steal.Mark] = {}
        self.robbed: dict[str, float] = {}
        self.all_read = True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.all_read = self.all_read and not report.failed

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.files.setdefault(_file(nodeid), steal.mark())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.failed:
            return
        if DISTURBED.isdisjoint(report.keywords):
            self.names.append(report.nodeid)
        file = _file(report.nodeid)
        taken = self.files.setdefault(file, steal.mark()).since()
        if taken.disturbs:
            self.robbed[file] = taken.seconds

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        config = session.config
        # pytest-xdist takes a file that cannot be imported for a failed test.
        if not self.all_read and session.exitstatus == pytest.ExitCode.TESTS_FAILED:
            session.exitstatus = pytest.ExitCode.INTERRUPTED
        # Nothing is kept where somebody has asked for that.
        if getattr(config, "cache", None) is not None:
            config.cache.set(f"turns/{config.getoption('--turn')}", {"faults": self.names, "robbed": self.robbed})


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    turn = config.getoption("--turn")
    needless = turn in OF_THEIR_OWN and collection_path.suffix == ".py" and not _may_hold(collection_path, turn)
    return True if needless else None


def _may_hold(file: Path, turn: str) -> bool:
    texts = [each.read_text(encoding="utf-8") for each in (file, file.with_name("conftest.py")) if each.is_file()]
    return any(mark in text for mark in SAYS[turn] for text in texts)


@pytest.hookimpl(trylast=True)  # a conftest.py may mark a whole folder
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    turn = config.getoption("--turn")
    if turn is None:
        return
    others = {each for each in items if _turn(each) != turn}
    if turn in SPREAD:
        _require_told(others)
    config.hook.pytest_deselected(items=[each for each in items if each in others])
    items[:] = [each for each in items if each not in others]


def _require_told(items: set[pytest.Item]) -> None:
    """Refuse tests that their turn would not find."""
    for file, turn in {(each.path, _turn(each)) for each in items}:
        if turn not in SPREAD and not _may_hold(file, turn):
            raise pytest.UsageError(f"{file} holds tests marked {turn}; say so in it or in the conftest.py beside it")


def pytest_collection_finish() -> None:
    """Leave what was collected out of the garbage collector's rounds: twelve thousand tests stay until the end."""
    gc.collect()
    gc.freeze()


def _turn(item: pytest.Item) -> str:
    shared = IDLE if item.get_closest_marker("realtime") is None else "together"
    return next((turn for turn in OF_THEIR_OWN if item.get_closest_marker(turn) is not None), shared)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """A worker of pytest-xdist has ended, by an error if it says one: what it still had to run has not been run."""
    if error:
        node.config.stash[lost_worker] = True


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    # pytest-xdist counts the test that it died in as failed, and would leave it at that.
    result = yield
    if session.config.stash.get(lost_worker, False) and session.exitstatus != pytest.ExitCode.INTERRUPTED:
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
    return result
