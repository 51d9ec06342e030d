"""The same on Podman: what other files here ask of a daemon, asked of its service, and where it differs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusize.containers.pipeline import Operator
from gpusize.containers.pipeline.daemon import Daemon
from gpusize.containers.pipeline.runner import run_pipeline
from gpusize.containers.pipeline.sizing import SizingOptions
from gpusize.observe.usage.usage import usage_of
from tests.containers import test_command, test_run, test_sample, test_servers, test_sizing
from tests.containers.conftest import Leftovers
from tests.containers.engine import IMAGE, import_image
from tests.containers.podman import podman_address
from tests.containers.test_sample import gpusize, scripted_server

__all__ = ["gpusize", "scripted_server"]


@pytest.fixture(scope="module")
def docker_host() -> Iterator[str]:
    with podman_address() as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", address)
        daemon = Daemon.connect()
        assert daemon.cli == "podman"
        import_image(daemon.client)
        yield address
        daemon.close()


models, slow, start, three, triton_image = (
    *(test_servers.models, test_command.slow, test_sample.start, test_command.three),
    test_servers.triton_image,
)

test_files_flow = test_run.test_files_flow_through_three_operators
test_inputs = test_run.test_inputs_cannot_be_written_to_unless_asked_for
test_a_time_limit = test_run.test_an_operator_that_runs_too_long_is_stopped
test_an_end_by_the_user = test_run.test_the_user_may_end_it
test_volumes = test_run.test_volumes_are_shared
test_a_line_to_paste = test_run.test_the_line_that_is_logged_gives_the_same_container
test_tables_and_files = test_command.test_tables_files_and_exit_code
test_what_a_kill_leaves = test_command.test_what_a_kill_leaves_is_found_and_removed
test_the_end_of_a_sample = test_sample.test_sampling_ends_with_the_container
test_limits_of_a_sample = test_sample.test_a_container_under_limits_tells_them
test_a_server = test_servers.test_operators_find_the_server
test_services = test_servers.test_services_run_as_long_as_operators_need_them
test_a_verification = test_sizing.test_a_recommendation_holds_when_it_is_tried
test_a_life_of_a_moment = test_sizing.test_what_lives_for_a_moment_has_a_result_from_counters


@pytest.mark.parametrize("program", ["no-such-program", "/etc"])
def test_what_cannot_be_run_is_told_without_a_code_that_nobody_gave(
    daemon: Daemon, work: Path, leftovers: Leftovers, program: str
) -> None:
    result = run_pipeline(test_run.pipeline(Operator("a", IMAGE, command=(program,))), daemon=daemon)
    [execution] = result.operators[0].executions
    assert (execution.outcome, execution.exit_code) == ("failed", None)
    assert program in (execution.error or "")
    assert leftovers() == []


def test_the_work_of_podmans_monitor_is_not_the_containers(daemon: Daemon, work: Path) -> None:
    # Its start and its end cost Podman some 120 ms of CPU time in the group above, about as much as this uses.
    result = test_sizing.one(daemon, "dd if=/dev/zero of=/dev/null bs=1M count=4000", SizingOptions())
    [execution] = result.executions
    assert execution.readings is not None
    raw = execution.readings.facts.raw["source"]
    [monitor] = raw["parent"]["monitors"].values()
    assert monitor["cpu_ns"] > 20e6
    usage = usage_of(execution.readings)
    assert usage.cpu is not None
    whole_s = raw["parent"]["last"]["cpu_ns"] / 1e9
    assert usage.cpu.total_s <= whole_s - 0.02
    # Where it had ended before it could be looked at, all that was read is of the group above, with the monitor in it.
    own = {} if raw.get("pid") is None else raw["last"]
    assert (own.get("cpu_ns") or 0) / 1e9 <= usage.cpu.total_s
