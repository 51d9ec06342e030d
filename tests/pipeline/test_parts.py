"""The parts of a run that need no daemon: docker's options, cgroup mounts, pulls, labels, waiting, the end of a log."""

from __future__ import annotations

import os
import shlex
import threading
from pathlib import Path
from typing import cast

import pytest

from gpusize.base.errors import EnvironmentLacks
from gpusize.base.interrupt import StopSwitch
from gpusize.containers.pipeline import Execution, Input, Operator, Output, Pipeline, Requests, RunOptions, Service
from gpusize.containers.pipeline.cgroups import GroupName, hierarchies
from gpusize.containers.pipeline.cleaning import _is_locked, _is_ours, _running
from gpusize.containers.pipeline.container import Container, Mount
from gpusize.containers.pipeline.container_spec import container_of
from gpusize.containers.pipeline.daemon import Daemon
from gpusize.containers.pipeline.execute import ContainerGpus, is_of
from gpusize.containers.pipeline.execution import wall_ns
from gpusize.containers.pipeline.images import PullState
from gpusize.containers.pipeline.labels import OWNER, RUN, owner_label, owner_lives
from gpusize.containers.pipeline.outcome import OperatorResult, PipelineResult
from gpusize.containers.pipeline.wait import Call, Interrupted, wait_for
from gpusize.containers.pipeline.workspace import Workspace, through_container
from tests.samples.fake_nvml import Gpu, fake_nvml
from tests.virtual_time import VirtualClock

MOUNTED = """docker run --rm --mount type=bind,source=/a,target=/b,readonly \
--mount 'type=bind,"source=/x,y""z",target=/c' i:1"""
OPTIONS = {
    "nothing": (Container("i:1"), "docker run --rm i:1"),
    "a command": (Container("i:1", command=("sh", "-c", "a b")), "docker run --rm i:1 sh -c 'a b'"),
    "an empty command": (Container("i:1", command=()), "docker run --rm i:1"),
    "an entry point of several words": (
        Container("i:1", command=("x",), entrypoint=("python", "-u")),
        "docker run --rm --entrypoint python i:1 -u x",
    ),
    "no entry point": (Container("i:1", command=("x", "y"), entrypoint=()), "docker run --rm --entrypoint '' i:1 x y"),
    "variables": (
        Container("i:1", environment={"A": "1", "B": "it's\n"}),
        "docker run --rm --env A=1 --env 'B=it'\"'\"'s\n' i:1",
    ),
    "mounts": (
        Container("i:1", mounts=(Mount("/a", "/b", read_only=True), Mount('/x,y"z', "/c"))),
        MOUNTED,
    ),
    "who and where": (
        Container("i:1", user="1:2", workdir="/w", network="none"),
        "docker run --rm --network none --user 1:2 --workdir /w i:1",
    ),
    "limits": (
        Container("i:1", cpus=1.5, mem_bytes=64 << 20, shm_bytes=1 << 20),
        "docker run --rm --shm-size 1048576 --cpus 1.5 --memory 67108864 --memory-swap 67108864 i:1",
    ),
    "all GPUs": (Container("i:1", gpus="all"), "docker run --rm --gpus all i:1"),
    "some GPUs": (Container("i:1", gpus="device=0,2"), "docker run --rm --gpus '\"device=0,2\"' i:1"),
    "ports": (Container("i:1", ports=(8000,)), "docker run --rm --publish 127.0.0.1::8000 i:1"),
    "the rest": (
        Container("i:1", init=True, tmpfs=("/t:size=1m",)),
        "docker run --rm --init --tmpfs /t:size=1m i:1",
    ),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_the_line_of_a_container(case: str) -> None:
    container, line = OPTIONS[case]
    assert container.command_line() == line
    assert container.command_line("podman") == line.replace("docker", "podman", 1)
    assert shlex.split(line)[:3] == ["docker", "run", "--rm"]


@pytest.mark.parametrize(
    "command, entrypoint, sent",
    [
        (None, None, (None, None)),
        (("x",), None, (None, ["x"])),
        # One empty word is how the API is told that there is to be none; the image's arguments go with it.
        (None, (), ([""], [])),
        (("x",), (), ([""], ["x"])),
        ((), ("a", "b"), (["a"], ["b"])),
    ],
)
def test_entry_points_as_the_daemon_takes_them(
    command: tuple[str, ...] | None, entrypoint: tuple[str, ...] | None, sent: tuple[object, object]
) -> None:
    config = Container("i", command=command, entrypoint=entrypoint).config()
    assert (config["Entrypoint"], config["Cmd"]) == sent


@pytest.mark.parametrize("gpus, count, ids", [("all", -1, None), ("2", 2, None), ("device=0,2", 0, ["0", "2"])])
def test_gpus_as_the_daemon_takes_them(gpus: str, count: int, ids: list[str] | None) -> None:
    [request] = Container("i", gpus=gpus).config()["HostConfig"]["DeviceRequests"]
    assert (request["Count"], request["DeviceIDs"], request["Capabilities"]) == (count, ids, [["gpu"]])


def operator_container(
    tmp_path: Path, operator: Operator, options: RunOptions, limits: tuple[float | None, int | None] = (None, None)
) -> Container:
    pipeline = Pipeline("p", (Operator("up", "i", outputs=(Output("/o"),)), operator), "clara")
    workspace = Workspace("run", parent=tmp_path)
    try:
        return container_of(
            pipeline,
            operator,
            workspace,
            input_dir=tmp_path,
            options=options,
            network="own",
            addresses={"A": "x:1"},
            limits=limits,
        )
    finally:
        assert workspace.close(None) == []


def test_options_of_the_run_come_before_the_definition(tmp_path: Path) -> None:
    operator = Operator(
        "a",
        "i",
        variables={"V": "1"},
        inputs=(Input("/in"), Input("/up", "UP")),
        outputs=(Output("/x", "x"),),
        user="1",
        shm_bytes=1,
        requests=Requests(cpus=4, mem_bytes=1, gpus=1),
        limits=Requests(cpus=2.0, mem_bytes=1 << 30),
    )
    plain = operator_container(tmp_path, operator, RunOptions())
    assert dict(plain.environment) == {"NVIDIA_CLARA_NOSYNCLOCK": "1", "A": "x:1", "V": "1"}
    assert (plain.user, plain.shm_bytes, plain.network, plain.gpus) == ("1", 1, "own", "1")
    # Requests are what is looked for; limits of the definition are applied.
    assert (plain.cpus, plain.mem_bytes) == (2.0, 1 << 30)
    assert [(mount.target, mount.read_only) for mount in plain.mounts] == [("/in", True), ("/up", True), ("/x", False)]
    options = RunOptions(user="5", shm_bytes=9, network="host", gpus="none", writable_inputs=True)
    other = operator_container(tmp_path, operator, options)
    assert (other.user, other.shm_bytes, other.network, other.gpus) == ("5", 9, "host", None)
    assert not any(mount.read_only for mount in other.mounts)


@pytest.mark.parametrize(
    "limits, applied",
    [((None, None), (2.0, 1 << 30)), ((0.5, None), (0.5, 1 << 30)), ((None, 5), (2.0, 5)), ((0.5, 5), (0.5, 5))],
)
def test_a_limit_that_is_tried_takes_no_other_away(
    tmp_path: Path, limits: tuple[float | None, int | None], applied: tuple[float, int]
) -> None:
    operator = Operator("a", "i", limits=Requests(cpus=2.0, mem_bytes=1 << 30))
    made = operator_container(tmp_path, operator, RunOptions(), limits)
    assert (made.cpus, made.mem_bytes) == applied


MOUNTS = """\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
34 31 0:31 /docker/x /elsewhere rw - cgroup cgroup rw,pids
41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw - cgroup2 cgroup2 rw
42 31 0:39
"""


def test_mounts_of_cgroups(tmp_path: Path) -> None:
    file = tmp_path / "proc/self/mountinfo"
    file.parent.mkdir(parents=True)
    file.write_text(MOUNTS, "utf-8")
    found = hierarchies(str(tmp_path))
    assert [str(point) for point, _ in found] == [
        "/sys/fs/cgroup/cpu,cpuacct",
        "/sys/fs/cgroup/memory",
        "/sys/fs/cgroup/uni fied",
    ]
    assert {"cpu", "cpuacct"} <= (found[0][1] or set())
    assert found[2][1] is None
    file.write_text("", "utf-8")
    assert hierarchies(str(tmp_path)) == []


def test_how_far_a_pull_is() -> None:
    state = PullState()
    assert state.text() == "asking the registry"
    state.take({"status": "Pulling from x", "id": "latest"})
    state.take({"status": "Downloading", "id": "a", "progressDetail": {"current": 5_000_000, "total": 20_000_000}})
    state.take({"status": "Downloading", "id": "b", "progressDetail": {"current": 1_000_000, "total": 2_000_000}})
    assert state.text() == "6 of 22 MB"
    state.take({"status": "Download complete", "id": "a", "progressDetail": {}})
    assert state.text() == "21 of 22 MB"
    assert state.problem is None
    state.take({"error": "short", "errorDetail": {"message": "unauthorized: authentication required"}})
    assert state.problem == "unauthorized: authentication required"


@pytest.mark.parametrize(
    "stamp, expected",
    [
        ("2026-11-22T19:11:13.161399274Z", 1795374673_161399274),
        ("2026-11-22T19:11:13Z", 1795374673_000000000),
        ("2026-11-22T20:11:13.5+01:00", 1795374673_500000000),
        ("0001-01-01T00:00:00Z", None),
        ("soon", None),
    ],
)
def test_times_of_the_daemon(stamp: str, expected: int | None) -> None:
    assert wall_ns(stamp) == expected


def test_what_belongs_to_a_container_is_told_by_its_cgroup(tmp_path: Path) -> None:
    for pid, text in (("1", "0::/system.slice/docker-abc.scope"), ("2", "4:memory:/docker/abd"), ("3", "0::/")):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cgroup").write_text(f"{text}\n", "utf-8")
    assert [is_of(pid, "abc", tmp_path) for pid in (1, 2, 3, 4)] == [True, False, False, None]


def test_gpus_of_a_container() -> None:
    gpu = Gpu(processes=[(os.getpid(), 2 << 30), (1, 1 << 30)])
    watched = ContainerGpus(os.getpid(), nvml=fake_nvml(gpu, Gpu("GPU-1")))
    uses, samples = watched.stop()
    assert [(use.gpu, use.mem_peak_bytes) for use in uses if use.mem_peak_bytes] == [("GPU-0", 2 << 30)]
    assert samples is not None
    assert not samples.is_empty()
    assert watched.stop() == ((), None)


def test_a_machine_without_a_driver_is_a_note() -> None:
    watched = ContainerGpus(os.getpid(), nvml=fake_nvml(refuses=True))
    assert watched.stop() == ((), None)
    assert "GPUs are not watched" in watched.notes[0]


def test_whose_process_lives() -> None:
    mine = owner_label()
    assert owner_lives(mine) is True
    host, pid, ticks = mine.rsplit("/", 2)
    assert owner_lives(f"{host}/{pid}/{int(ticks) + 1}") is False
    assert owner_lives(f"{host}/{2**22 + 1}/5") is False
    assert owner_lives(f"another-host/{pid}/{ticks}") is None
    assert owner_lives("") is None


def test_groups_in_use_are_known_by_their_name() -> None:
    mine = GroupName.of("ab12")
    assert (mine.run, mine.pid, mine.in_use) == ("ab12", os.getpid(), True)
    assert not GroupName(f"{mine.text}0").in_use
    assert not GroupName(f"ab12_{2**22 + 1}_5").in_use
    assert [(each.run, each.pid, each.in_use) for each in map(GroupName, ("ab12", "ab12_x_5"))] == [
        ("ab12", None, False)
    ] * 2
    # Nothing but its groups shows a run between two containers.
    assert _running([], {}, [mine, GroupName("cd34_1_0")]) == {"ab12"}


def test_a_folder_in_use_is_known_by_its_lock(tmp_path: Path) -> None:
    workspace = Workspace("run", parent=tmp_path)
    assert _is_locked(workspace.path)
    [folder] = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert workspace.close(None) == []
    assert not _is_locked(folder)
    assert list(tmp_path.iterdir()) == []


def test_a_wait_looks_for_ctrl_c_and_lasts_no_longer_than_its_time() -> None:
    clock, stop, event = VirtualClock(), StopSwitch(), threading.Event()
    assert not wait_for(event, stop, timeout_s=0.12, clock=clock)
    assert clock.waits == pytest.approx([0.05, 0.05, 0.02])
    clock.at(600.0, event.set)
    assert wait_for(event, stop, clock=clock)
    assert clock.passed_s == pytest.approx(600.0)
    event.clear()
    clock.at(700.01, stop.ask)
    with pytest.raises(Interrupted):
        wait_for(event, stop, timeout_s=3600, clock=clock)
    assert 700.01 <= clock.passed_s <= 700.07


def test_waits_end_when_the_user_asks() -> None:
    stop = StopSwitch()
    event = threading.Event()
    assert wait_for(event, stop, timeout_s=0) is False
    stop.ask()
    with pytest.raises(Interrupted):
        wait_for(event, stop)
    assert wait_for(event, stop, timeout_s=0, asked=1) is False
    event.set()
    assert wait_for(event, stop)


def test_a_call_gives_what_it_gave_or_raised() -> None:
    call = Call(lambda: 7)
    assert call.ended.wait(10)
    assert call.result() == 7

    def fails() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        Call(fails).result()


def result_of(*executions: Execution) -> OperatorResult:
    return OperatorResult(Operator("a", "i"), executions)


@pytest.mark.parametrize(
    "results, interrupted, code",
    [
        ([result_of(Execution("completed"))], False, 0),
        ([result_of(Execution("failed", exit_code=1))], False, 1),
        ([result_of(Execution("completed")), result_of()], False, 1),
        ([result_of(Execution("timed_out"))], False, 1),
        ([result_of(Execution("failed")), result_of(Execution("lost"))], False, 3),
        ([result_of(Execution("completed"), Execution("failed", exit_code=1))], False, 1),
        ([result_of(Execution("completed"), Execution("timed_out"))], False, 1),
        ([result_of(Execution("completed"), Execution("lost"))], False, 3),
        ([result_of(Execution("interrupted"))], True, 130),
    ],
)
def test_exit_codes(results: list[OperatorResult], interrupted: bool, code: int) -> None:
    pipeline = Pipeline("p", (Operator("a", "i"),), "own")
    assert PipelineResult("r", pipeline, tuple(results), interrupted=interrupted).exit_code == code


def test_the_same_service_named_twice_is_one() -> None:
    first, second = (Service("trtis", "triton:1", connections=(("URI", 8000),), where=f"a.yaml:{n}") for n in (4, 9))
    assert first == second


def test_only_folders_of_this_user_are_cleaned(tmp_path: Path) -> None:
    mine, link = tmp_path / "gpusize-pipeline-a", tmp_path / "gpusize-pipeline-b"
    mine.mkdir()
    link.symlink_to(mine)
    assert [_is_ours(each) for each in (mine, link, tmp_path / "gone")] == [True, False, False]


def test_a_container_that_works_on_files_is_found_by_its_labels(tmp_path: Path) -> None:
    made: list[Container] = []

    class Refusing:
        def create(self, container: Container) -> str:
            made.append(container)
            raise EnvironmentLacks("no")

    assert not through_container(cast("Daemon", Refusing()), "i", ("rm", "x"), (Mount(str(tmp_path), "/x"),))
    assert made[0].labels[RUN] == f"files{os.getpid()}"
    assert owner_lives(made[0].labels[OWNER]) is True
