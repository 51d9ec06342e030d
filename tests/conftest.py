"""What all tests share: in CI a skipped test is a failed test, unless it says that it may be skipped."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Generator

pytest_plugins = ["pytester"]

# How long an example takes is the machine's affair, and no property of what is tested.
settings.register_profile("untimed", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_configure() -> None:
    # Commands that a script puts into the background ignore Ctrl-C, and the commands under test would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before turns are taken
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow") is not None:
            item.add_marker(pytest.mark.alone("takes minutes, most of them measured"))


def _is_unwanted_skip(report: pytest.TestReport | pytest.CollectReport) -> bool:
    return os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail")


def _fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    report.outcome = "failed"
    report.longrepr = f"{report.nodeid} was skipped, and CI has to run it: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if _is_unwanted_skip(report) and item.get_closest_marker("optional_in_ci") is None:
        _fail(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if _is_unwanted_skip(report):
        _fail(report)
    return report
