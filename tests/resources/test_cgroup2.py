"""The sampler on a real cgroup v2, whatever this machine mounts: Debian's kernels are booted in software emulation."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from scripts.kernel import NEWER, USUAL, MissingError, kernel
from tests.resources.guest import QEMU, console_of, initramfs, static_busybox

pytestmark = [pytest.mark.timeout(1800), pytest.mark.alone("compiles a program and boots a machine with it")]
ROOT = Path(__file__).parents[2]
MIB = 2**20


def _program() -> Path:
    """The program for the guest, linked statically."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    build = ["cargo", "rustc", "--quiet", "--locked", "-p", "gpusize-sampler", "--example", "cgroup2_guest"]
    flags = ["--", "-C", "target-feature=+crt-static", "-C", "strip=symbols"]
    subprocess.run([*build, *flags], cwd=ROOT, check=True)
    return target / "debug" / "examples" / "cgroup2_guest"


@pytest.fixture(
    scope="module",
    params=[USUAL, pytest.param(NEWER, marks=pytest.mark.optional_in_ci("not in every release of Debian"))],
)
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the guest's program printed."""
    busybox = static_busybox()
    if shutil.which(QEMU) is None or busybox is None or shutil.which("cargo") is None:
        pytest.skip("needs qemu-system-x86, busybox-static and cargo")
    try:
        vmlinuz = kernel(request.param)
    except MissingError as error:
        pytest.skip(f"there is no kernel to boot: {error}")
    archive = tmp_path_factory.mktemp("guest") / "initramfs"
    archive.write_bytes(initramfs(_program(), busybox))
    console = console_of(vmlinuz, archive, timeout_s=900)
    lines = [line.partition("RESULT ")[2] for line in console.splitlines() if "RESULT " in line]
    assert len(lines) == 1, console[-3000:]
    result: dict[str, Any] = json.loads(lines[0])
    return result


def test_everything_of_v2_is_there(told: dict[str, Any]) -> None:
    stage = told["facts"]["sources"]["stage"]
    assert stage["layout"]["mode"] == "v2"
    assert [place["controller"] for place in stage["layout"]["controllers"]] == ["unified"]
    # 6.1 has all but these: its kernel's pids.peak came in 6.1 too, swap is compiled in.
    lacking = set(stage["missing"]) - {"mem_pss_bytes", "tmpfs_bytes", "cpu_waited_ns"}
    assert lacking <= {"pids_peak", "swap_bytes"}
    first = told["gone"]["sources"]["stage"]
    for column in ("cpu_some_ns", "mem_some_ns", "io_some_ns", "mem_peak_bytes", "mem_kernel_bytes", "oom_kill_events"):
        assert column in first["last"], column
    assert first["limits"]["memory_bytes"] == {"value": 128 * MIB, "group": "/run/stage"}
    assert first["limits"]["cpu_cores"] == {"value": 0.5, "group": "/run/stage"}


def test_cpu_and_memory_are_those_of_the_child(told: dict[str, Any]) -> None:
    first = told["gone"]["sources"]["stage"]
    sampled_ns = first["last"]["cpu_ns"] - first["first"]["cpu_ns"]
    assert told["first_end"] == "exit status: 0"
    # No less than it says itself, and no more than the kernel says of all its life: while the emulation is stopped its
    # time goes on, also before and after what it told of.
    assert 0.9 * told["used_ns"] <= sampled_ns <= told["waited_ns"] + 60e6
    assert told["emptied"]["sources"]["stage"]["last"]["mem_peak_bytes"] >= told["touched_bytes"]
    # Half a core for 0.6 s of CPU time: most periods end throttled, and the wait for CPU shows in the pressure.
    assert first["last"]["cpu_throttled_periods"] > 3
    assert first["last"]["cpu_some_ns"] > 100_000_000
    tree = told["facts"]["sources"]["tree"]["last"]
    # From its start, not from its entry into the group.
    assert tree["cpu_ns"] >= 0.9 * told["used_ns"]
    assert tree["mem_peak_bytes"] >= told["touched_bytes"]
    anonymous = [value for value in told["stage"]["mem_anon_bytes"] if value is not None]
    # memory.stat is read again when memory has grown by 1 %.
    assert max(anonymous) >= 0.99 * told["touched_bytes"] - told["facts"]["mem_error_bytes"]


def test_the_end_is_caught_before_the_group_is_gone(told: dict[str, Any]) -> None:
    emptied, gone = told["emptied"]["sources"]["stage"], told["gone"]["sources"]["stage"]
    assert not emptied["gone"]
    assert emptied["emptied_ns"] is not None
    assert emptied["exited_ns"] is not None
    assert gone["gone_ns"] > emptied["emptied_ns"]
    assert gone["last"]["cpu_ns"] == emptied["last"]["cpu_ns"]
    parent = gone["parent"]
    in_parent_ns = parent["last"]["cpu_ns"] - parent["first"]["cpu_ns"]
    assert 0.9 * told["used_ns"] <= in_parent_ns <= told["waited_ns"] + 60e6
    assert parent["last"]["mem_peak_bytes"] >= told["touched_bytes"]


def test_a_group_made_anew_has_an_epoch_of_its_own_and_its_kill_is_counted(told: dict[str, Any]) -> None:
    stage = told["facts"]["sources"]["stage"]
    assert stage["restarts"] == 1
    assert sorted(set(told["stage"]["epoch"])) == [0, 1]
    assert told["second_end"] == "signal: 9 (SIGKILL)"
    assert stage["last"]["oom_kill_events"] == 1
    assert stage["last"]["mem_max_events"] > 0
    # The parent has it too, and would even if the group were gone.
    assert stage["parent"]["last"]["oom_kill_events"] == 1
    cpu_ns, epochs = told["stage"]["cpu_ns"], told["stage"]["epoch"]
    begins = next(value for value, epoch in zip(cpu_ns, epochs, strict=True) if epoch == 1 and value is not None)
    assert begins < told["used_ns"] / 2


def test_limits_of_the_group_above_are_told_when_they_were_met(told: dict[str, Any]) -> None:
    assert told["gone"]["sources"]["stage"]["held"] == []
    held = told["facts"]["sources"]["stage"]["held"]
    assert {(each["group"], each["above"], each["kind"], each["limit"]) for each in held} == {
        ("/run", True, "memory_high", 30 * MIB),
        ("/run", True, "cpu", 0.05),
    }
    assert all(each["times"] > 0 for each in held)


def test_a_mark_begins_a_new_high_water_mark_where_the_kernel_can(told: dict[str, Any]) -> None:
    marks = told["facts"]["marks"]
    can = tuple(int(number) for number in told["release"].split(".")[:2]) >= (6, 12)
    assert [mark["name"] for mark in marks] == ["begun", "ended", "read again"]
    assert [mark["peak_reset"] for mark in marks] == [["stage"] if can else []] * 3
    gone = told["gone"]["sources"]["stage"]
    assert gone["peak_resettable"] is can
    # What is left in the group after its process is gone, or all that it ever had.
    assert (gone["last"]["mem_peak_bytes"] < told["touched_bytes"] / 2) is can
