"""What all tests share: in CI a skipped test is a failed test, unless it says that it may be skipped."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from scripts.turns import OF_THEIR_OWN

if TYPE_CHECKING:
    from collections.abc import Generator

pytest_plugins = ["pytester"]

# How long an example takes is the machine's affair, and no property of what is tested.
settings.register_profile("untimed", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


HERE = Path(__file__).parent
REALTIME = {
    **dict.fromkeys(
        ("engine", "run", "faults", "servers", "load/test_kserve_streams.py"), "load on servers of the test"
    ),
    **dict.fromkeys(("additions", "cli", "study", "docs/test_tutorials.py"), "commands that load servers of the test"),
    "adaptive/test_run.py": "functions that are searched in real time",
    **dict.fromkeys(("resources", "samples/test_observer.py"), "processes are watched while they run"),
    **dict.fromkeys(
        ("monitor/test_exposition.py", "samples/test_kube.py", "samples/test_scrape.py", "series/test_pull_kube.py"),
        "servers of the test are asked while they serve",
    ),
    **dict.fromkeys(
        (
            "cluster/test_access.py",
            "cluster/test_wire.py",
            *(f"cluster/submit/test_{n}.py" for n in ("any_faults", "clean", "commands", "submit")),
        ),
        "an API server of the test is asked while it serves",
    ),
    **dict.fromkeys(
        ("cluster/watch/test_command.py", "cluster/watch/test_watching.py", "cluster/watch/test_stream.py"),
        "servers of the test are watched while they serve",
    ),
    "benches": "programs that are measured, with little room",
    "estimate/test_twin_served_live.py": "a simulated cluster that serves in real time",
    "peers": "servers of others, in real time",
    "workflow": "programs and threads that are given a time",
}
"""Folders and files whose tests the machine may disturb, and why: only these may run once more (decision 0025)."""

OUT_OF_TIME = frozenset(
    f"{folder}/test_{name}.py"
    for folder, names in {
        "benches": "endurance load_truths scaling_bench stats",
        "cli": "compare help import limits load missing_path options_once other_tools plan_over_time simulate",
        "resources": "facts_of gpus package policies recommend series usage",
        "run": "answer limits mixing overload probe recorder sweep virtual_time wrong_types",
        "faults": "mutated_json",
        "study": "spec",
        "workflow": "misbehaving seconds",
    }.items()
    for name in names.split()
)
"""Files among them whose tests load no server, start no program and wait for nothing: a failure there is a fault."""


def pytest_configure() -> None:
    # Commands that a script puts into the background ignore Ctrl-C, and the commands under test would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    # What was collected stays to the end, so nothing of it is garbage to be looked for again and again.
    gc.collect()
    gc.freeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Of the two turns that share the cores each imports only its own files."""
    turn = config.getoption("--turn", default=None)
    if turn not in {"together", "idle"} or collection_path.suffix != ".py":
        return None
    return True if (turn == "together") != (_real_time(collection_path) is not None) else None


def _real_time(file: Path) -> str | None:
    """Why the machine may disturb the tests of a file."""
    name = file.relative_to(HERE)
    return None if name.as_posix() in OUT_OF_TIME else REALTIME.get(name.parts[0]) or REALTIME.get(name.as_posix())


@pytest.hookimpl(tryfirst=True)  # before turns are taken
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        reason = _real_time(item.path)
        if reason is not None:
            item.add_marker(pytest.mark.realtime(reason))
        elif item.get_closest_marker("realtime") and not any(map(item.get_closest_marker, OF_THEIR_OWN)):
            # Its turn would not read the file, and the turn that does would leave it out.
            raise pytest.UsageError(f"{item.nodeid} is marked realtime: name its file in REALTIME of {__file__}")
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
