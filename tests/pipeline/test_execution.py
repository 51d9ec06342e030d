"""How an execution ended, from what the daemon says and what the kernel has counted."""

from __future__ import annotations

import pytest

from gpusize.containers.pipeline import Execution
from gpusize.containers.pipeline.execution import Outcome, finished, timed
from gpusize.observe.usage.readings import Readings, empty_frame
from gpusize.observe.usage.source_facts import Facts

RAN = {"StartedAt": "2026-11-22T19:11:13Z", "FinishedAt": "2026-11-22T19:11:15Z", "ExitCode": 0}
NEVER = {"StartedAt": "0001-01-01T00:00:00Z", "FinishedAt": "0001-01-01T00:00:00Z", "ExitCode": 0}


@pytest.mark.parametrize(
    "outcome, state, expected",
    [
        ("completed", RAN, ("completed", 0, None)),
        ("completed", RAN | {"ExitCode": 3}, ("failed", 3, None)),
        ("completed", RAN | {"ExitCode": 137, "OOMKilled": True}, ("failed", 137, "it was killed for lack of memory")),
        ("failed", NEVER | {"ExitCode": 127}, ("failed", 127, "no such program")),
        # Podman tells 0 of what never ran.
        ("failed", NEVER, ("failed", None, "no such program")),
        ("interrupted", NEVER, ("interrupted", None, "no such program")),
    ],
)
def test_ends(outcome: Outcome, state: dict[str, object], expected: tuple[Outcome, int | None, str | None]) -> None:
    error = None if outcome == "completed" else "no such program"
    done = finished(Execution(outcome, error=error), state, "")
    assert (done.outcome, done.exit_code, done.error) == expected


@pytest.mark.parametrize(
    "execution, kills, expected",
    [
        (Execution("failed", 137), 1, (True, "it was killed for lack of memory")),
        (Execution("failed", 137), 0, (False, None)),
        (Execution("failed", 137, error="of another reason"), 1, (True, "of another reason")),
        # Some child of it may have been: it got along without.
        (Execution("completed", 0), 1, (False, None)),
    ],
)
def test_kills_that_the_kernel_counted(execution: Execution, kills: int, expected: tuple[bool, str | None]) -> None:
    readings = Readings("a", empty_frame(), Facts(totals={"oom_kill_events": kills}))
    done = timed(execution, readings)
    assert (done.oom_killed, done.error) == expected
    assert timed(execution, None) == execution
