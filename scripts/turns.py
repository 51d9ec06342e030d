"""A plugin for pytest: whose turn it is. Tests share the cores, but for those marked ``waits`` or ``alone``.

``run_tests.py`` runs pytest once for each turn; docs/decisions/0029-tests-on-both-cores.md says why.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from scripts.run_tests import TURNS

__all__ = ["DISTURBED", "lost_worker"]

DISTURBED = frozenset({"realtime", "waits", "alone"})
"""Marks of tests that the machine may disturb: only these may run once more (docs/decisions/0025)."""
lost_worker = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--turn", choices=TURNS, help="Only the tests marked so, or (together) with neither mark")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--turn") is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Undisturbed())


class _Undisturbed:
    """Notes what failed although no mark says that the machine may disturb it, where ``run_tests.py`` finds it."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and DISTURBED.isdisjoint(report.keywords):
            self.names.append(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        config = session.config
        # Nothing is kept where somebody has asked for that.
        if getattr(config, "cache", None) is not None:
            config.cache.set(f"turns/{config.getoption('--turn')}", self.names)


@pytest.hookimpl(trylast=True)  # a conftest.py may mark a whole folder
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    turn = config.getoption("--turn")
    if turn is None:
        return
    others = {each for each in items if _turn(each) != turn}
    config.hook.pytest_deselected(items=[each for each in items if each in others])
    items[:] = [each for each in items if each not in others]


def _turn(item: pytest.Item) -> str:
    """Of two marks the stricter: a folder may have one, and a test in it the other."""
    marked = [turn for turn in ("alone", "waits") if item.get_closest_marker(turn) is not None]
    return marked[0] if marked else "together"


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
