"""Pipelines on a real daemon: data flows, failures are told, and nothing is left behind."""

from __future__ import annotations

import os
import shlex
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gpusize.base.errors import ConfigError, EnvironmentLacks, UsageError
from gpusize.base.interrupt import StopSwitch
from gpusize.containers.pipeline import (
    Bind,
    Cleaned,
    Input,
    Operator,
    Output,
    Pipeline,
    clean,
    read_pipeline,
)
from gpusize.containers.pipeline.cgroups import run_groups, run_slices
from gpusize.containers.pipeline.container_spec import RunOptions
from gpusize.containers.pipeline.daemon import Daemon
from gpusize.containers.pipeline.outcome import OperatorResult
from gpusize.containers.pipeline.runner import Events, run_pipeline
from gpusize.observe.usage.sampler import ContainerReader
from tests.containers.conftest import Leftovers
from tests.containers.engine import IMAGE, import_image


class Told(Events):
    """What a run told of itself."""

    def __init__(self) -> None:
        self.commands: dict[str, str] = {}
        self.notes: list[str] = []
        self.asked: list[str] = []
        self.began_with: list[str] = []
        self.answer = False

    def command(self, name: str, line: str) -> None:
        self.commands[name] = line

    def note(self, text: str) -> None:
        self.notes.append(text)

    def began(self, container_id: str) -> None:
        self.began_with.append(container_id)

    def go_on(self, result: OperatorResult) -> bool:
        self.asked.append(result.name)
        return self.answer


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def shell(name: str, script: str, **more: Any) -> Operator:
    return Operator(name, IMAGE, command=("sh", "-c", script), where=f"test:{name}", **more)


def pipeline(*operators: Operator) -> Pipeline:
    return Pipeline("test", operators, "own")


CLARA = """
name: three
operators:
- name: writer
  container: {image: BOX, tag: 1, command: [sh, -c, "cat /in/masks.txt /orig/a.txt; env"]}
  input:
  - {from: segment, name: Masks, path: /in}
  - {path: /orig}
- name: reader
  container: {image: BOX, tag: 1, command: [sh, -c, "cat /in/a.txt > /out/b.txt"]}
  input: [{path: /in}]
  output: [{path: /out}]
- name: segment
  variables: {LEVEL: 1.10}
  container: {image: BOX, tag: 1, command: [sh, -c, "echo $LEVEL >/log/l; cat /in/* /in/* >/m/masks.txt"]}
  input: [{from: reader, path: /in}]
  output: [{path: /m, name: masks}, {path: /log, name: log}]
"""


def test_files_flow_through_three_operators(
    daemon: Daemon, payload: Path, work: Path, tmp_path: Path, leftovers: Leftovers
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(CLARA.replace("BOX", IMAGE.rpartition(":")[0]), "utf-8")
    keep = tmp_path / "kept"
    result = run_pipeline(read_pipeline(file), payload, options=RunOptions(keep=keep), daemon=daemon)
    assert result.exit_code == 0
    assert [(each.name, each.outcome) for each in result.operators] == [
        ("reader", "completed"),
        ("segment", "completed"),
        ("writer", "completed"),
    ]
    said = result.operators[2].executions[0].log_tail.splitlines()
    assert said[:3] == ["hello", "hello", "hello"]
    assert "NVIDIA_CLARA_NOSYNCLOCK=1" in said
    assert (keep / "segment" / "log" / "l").read_text() == "1.10\n"
    assert leftovers() == []


def test_data_that_is_not_kept_goes_away_whoever_owns_it(
    daemon: Daemon, payload: Path, work: Path, leftovers: Leftovers
) -> None:
    script = "echo x > /out/f; mkdir -p /out/d; chmod 700 /out/d; id"
    operator = shell(
        "a",
        script,
        outputs=(Output("/out"),),
        user="4711:4711",
    )
    result = run_pipeline(pipeline(operator), daemon=daemon)
    assert result.operators[0].executions[0].log_tail == "uid=4711 gid=4711 groups=4711"
    assert result.exit_code == 0
    assert leftovers() == []


def test_files_of_other_users_are_removed_through_a_container(daemon: Daemon, tmp_path: Path) -> None:
    from gpusize.containers.pipeline.workspace import _empty_through

    folder = tmp_path / "work"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "-f").write_text("x", "utf-8")
    (folder / ".hidden").write_text("x", "utf-8")
    _empty_through(daemon, IMAGE, folder)
    assert names(folder) == []


def test_without_root_there_is_no_group_of_ours_and_a_note_says_so(
    daemon: Daemon, work: Path, tmp_path: Path, leftovers: Leftovers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpusize.containers.pipeline.cgroups.os.geteuid", lambda: 1000)
    told = tmp_path / "told"
    told.mkdir()

    class Seen(ContainerReader):
        """Lets it end when it has been read: without a group of ours nothing is known of what was not."""

        def start(self, pid: int | None, parent: str | None = None) -> None:
            super().start(pid, parent)
            while len(self.look()) <= 3:
                time.sleep(0.005)
            (told / "on").touch()

    script = "until [ -e /told/on ]; do sleep 0.05; done; cat /proc/self/cgroup"
    result = run_pipeline(
        pipeline(shell("a", script, binds=(Bind(str(told), "/told"),))), make_reader=Seen, daemon=daemon
    )
    [execution] = result.operators[0].executions
    assert execution.ok
    assert "/gpusize/" not in execution.log_tail
    assert execution.readings is not None
    assert len(execution.readings) > 3
    assert any("no cgroup of our own" in note for note in result.notes)
    assert leftovers() == []


def test_inputs_cannot_be_written_to_unless_asked_for(daemon: Daemon, payload: Path, work: Path) -> None:
    operator = shell("a", "echo x > /in/new", inputs=(Input("/in"),))
    result = run_pipeline(pipeline(operator), payload, daemon=daemon)
    assert result.operators[0].outcome == "failed"
    assert "Read-only file system" in result.operators[0].executions[0].log_tail
    assert names(payload) == ["a.txt"]
    options = RunOptions(writable_inputs=True)
    assert run_pipeline(pipeline(operator), payload, options=options, daemon=daemon).exit_code == 0
    assert names(payload) == ["a.txt", "new"]


FAILURES = {
    "exit 126": (shell("a", "echo no; exit 126"), 126, "no"),
    "a program that is not there": (Operator("a", IMAGE, command=("no-such-program",)), 127, ""),
    "a file that cannot be run": (Operator("a", IMAGE, command=("/etc",)), 126, ""),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_failure_is_told_with_its_exit_code_and_last_words(
    daemon: Daemon, work: Path, case: str, leftovers: Leftovers
) -> None:
    operator, code, words = FAILURES[case]
    told = Told()
    result = run_pipeline(pipeline(operator, shell("b", "true")), force="none", daemon=daemon, events=told)
    first, second = result.operators
    assert (first.outcome, first.exit_code, first.executions[0].log_tail) == ("failed", code, words)
    assert second.outcome == "not_run"
    assert told.asked == ["a"]
    assert result.exit_code == 1
    assert leftovers() == []


def test_a_failure_may_be_gone_over(daemon: Daemon, work: Path) -> None:
    told = Told()
    told.answer = True
    failing = pipeline(shell("a", "exit 3"), shell("b", "true"))
    for force, asked in (("cont", []), ("none", ["a"])):
        told.asked.clear()
        result = run_pipeline(failing, force=force, daemon=daemon, events=told)  # type: ignore[arg-type]
        assert [each.outcome for each in result.operators] == ["failed", "completed"]
        assert (result.exit_code, told.asked) == (1, asked)


def test_an_operator_that_runs_too_long_is_stopped(daemon: Daemon, work: Path, leftovers: Leftovers) -> None:
    operator = shell("a", "trap 'echo bye; exit 0' TERM; echo on; while true; do sleep 0.1; done")
    result = run_pipeline(pipeline(operator), options=RunOptions(timeout_s=2.5), daemon=daemon)
    [execution] = result.operators[0].executions
    assert (execution.outcome, execution.log_tail) == ("timed_out", "on\nbye")
    assert execution.error == "it ran longer than 2.5 s"
    assert (execution.duration_s or 0) >= 2
    assert result.exit_code == 1
    assert leftovers() == []


def test_a_container_that_lives_for_a_moment_is_no_riddle(daemon: Daemon, work: Path) -> None:
    result = run_pipeline(pipeline(shell("a", "true"), shell("b", "sleep 0.05"), shell("c", "sleep 2")), daemon=daemon)
    for each in result.operators:
        assert each.ok
        assert each.executions[0].duration_s is not None
    # The daemon notes a start a moment after it, which may be all the time that a short one takes.
    assert (result.operators[2].executions[0].duration_s or 0) > 1


@pytest.mark.parametrize("patient", [True, False])
def test_the_user_may_end_it(daemon: Daemon, work: Path, leftovers: Leftovers, patient: bool) -> None:
    stop = StopSwitch()

    class Asks(Told):
        def began(self, container_id: str) -> None:
            super().began(container_id)
            for delay_s in (0.5,) if patient else (0.5, 1.0):
                timer = threading.Timer(delay_s, stop.ask)
                timer.daemon = True
                timer.start()

    # What ignores the first signal is killed by the second.
    script = "sleep 100" if patient else "trap '' TERM; while true; do sleep 0.1; done"
    operators = (Operator("a", IMAGE, command=("sh", "-c", script), init=patient), shell("b", "true"))
    result = run_pipeline(pipeline(*operators), force="cont", daemon=daemon, events=Asks(), stop=stop)
    assert [each.outcome for each in result.operators] == ["interrupted", "not_run"]
    assert (result.interrupted, result.exit_code) == (True, 130)
    assert leftovers() == []


def test_operators_run_several_times_and_read_the_same(
    daemon: Daemon, payload: Path, work: Path, tmp_path: Path
) -> None:
    reader = shell("a", "cp /in/a.txt /out/; ls /out | wc -l", inputs=(Input("/in"),), outputs=(Output("/out"),))
    after = shell("b", "ls /x", inputs=(Input("/x", "a"),))
    options = RunOptions(repeat=3, keep=tmp_path / "kept")
    result = run_pipeline(pipeline(reader, after), payload, options=options, daemon=daemon)
    assert [each.log_tail.strip() for each in result.operators[0].executions] == ["1", "1", "1"]
    assert [each.log_tail.strip() for each in result.operators[1].executions] == ["a.txt"] * 3


def test_volumes_are_shared(daemon: Daemon, payload: Path, work: Path, tmp_path: Path, leftovers: Leftovers) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(
        f"""\
services:
  second: {{image: "{IMAGE}", command: [cat, /d/x, /etc/f], volumes: [data:/d, ./f:/etc/f:ro], depends_on: [first]}}
  first: {{image: "{IMAGE}", command: [cp, /in/a.txt, /d/x], volumes: [data:/d, input:/in]}}
volumes: {{data: }}
""",
        "utf-8",
    )
    read = read_pipeline(file)
    with pytest.raises(ConfigError, match=r"second mounts .*/f, which is not there"):
        run_pipeline(read, payload, daemon=daemon)
    (tmp_path / "f").write_text("from here\n", "utf-8")
    result = run_pipeline(read, payload, daemon=daemon)
    assert result.operators[1].executions[0].log_tail == "hello\nfrom here"
    assert leftovers() == []


def test_entry_point_and_command_may_be_cleared(daemon: Daemon, work: Path, tmp_path: Path, docker_host: str) -> None:
    changes = ['ENTRYPOINT ["echo", "from", "the image"]', 'CMD ["and", "its words"]']
    image = import_image(daemon.client, f"{IMAGE}-words", changes=changes)
    file = tmp_path / "compose.yaml"
    file.write_text(
        f"""\
services:
  plain: {{image: "{image}"}}
  no_command: {{image: "{image}", command: []}}
  no_entry_point: {{image: "{image}", entrypoint: [], command: [echo, mine]}}
  nothing: {{image: "{image}", entrypoint: ""}}
""",
        "utf-8",
    )
    told = Told()
    try:
        result = run_pipeline(read_pipeline(file), force="cont", daemon=daemon, events=told)
        environment = {**os.environ, "DOCKER_HOST": docker_host}
        lines = [told.commands[name] for name in ("plain", "no_command", "no_entry_point")]
        pasted = [subprocess.check_output(["bash", "-c", line], text=True, env=environment) for line in lines]
    finally:
        daemon.client.remove_image(image, force=True)
    said = [each.executions[0].log_tail for each in result.operators]
    assert said == ["from the image and its words", "from the image", "mine", ""]
    assert [each.strip() for each in pasted] == said[:3]
    assert "o command specified" in (result.operators[3].executions[0].error or "")


def test_input_folders_that_are_none(daemon: Daemon, payload: Path, work: Path) -> None:
    reading = pipeline(shell("a", "true", inputs=(Input("/in"),)))
    with pytest.raises(UsageError, match="a reads the input folder, and there is none"):
        run_pipeline(reading, daemon=daemon)
    with pytest.raises(UsageError, match="this is a file, not a folder"):
        run_pipeline(reading, payload / "a.txt", daemon=daemon)
    with pytest.raises(UsageError, match="there is no such folder"):
        run_pipeline(reading, payload / "none", daemon=daemon)


def test_cleaning_leaves_a_run_alone_that_is_between_two_containers(
    daemon: Daemon, tmp_path: Path, work: Path, leftovers: Leftovers
) -> None:
    """Its network and folder are the user's, and no container of it is there: only its groups show it."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    cleanings: list[Cleaned] = []
    groups: list[str] = []

    class Cleans(Told):
        def ended(self, result: OperatorResult) -> None:
            cleanings.append(clean(daemon))
            groups.extend(name.run for name in (*run_groups(), *run_slices()))

    options = RunOptions(network="bridge", work_dir=elsewhere)
    both = pipeline(shell("a", "true"), shell("b", "cat /proc/self/cgroup"))
    result = run_pipeline(both, options=options, daemon=daemon, events=Cleans())
    assert result.exit_code == 0
    assert [result.run in each.running for each in cleanings] == [True, True]
    assert not any(result.run in text for each in cleanings for text in each.removed)
    assert groups.count(result.run) == 2
    assert leftovers() == []
    assert names(elsewhere) == []


def test_images_that_cannot_be_pulled_are_all_named_before_anything_starts(
    daemon: Daemon, work: Path, leftovers: Leftovers
) -> None:
    told = Told()
    refused = pipeline(
        shell("a", "true"),
        Operator("b", "127.0.0.1:1/no/such:1"),
        Operator("c", "127.0.0.1:1/none@sha256:" + "0" * 64),
    )
    with pytest.raises(
        EnvironmentLacks, match=r"127\.0\.0\.1:1/no/such:1 \(of b\): .*127\.0\.0\.1:1/none@.*Docker login"
    ):
        run_pipeline(refused, daemon=daemon, events=told)
    assert told.began_with == []
    assert leftovers() == []


def same(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    """Where the makings of two containers differ, but for what the daemon makes up and our bookkeeping."""
    bookkeeping = {"Hostname", "Labels", "AttachStdout", "AttachStderr", "AttachStdin", "OnBuild", "StdinOnce"}
    bookkeeping |= {"StopTimeout"}  # of no use: each stop is asked for with a time
    host = {"AutoRemove", "ContainerIDFile", "CgroupParent", "ConsoleSize", "LogConfig"}
    found = []
    for part, left_out in (("Config", bookkeeping), ("HostConfig", host)):
        one, other = first[part], second[part]
        keys = sorted((one.keys() | other.keys()) - left_out)
        one["RestartPolicy"], other["RestartPolicy"] = None, None  # "" and "no" are the same there
        for each in (one, other):
            if each.get("Env"):
                each["Env"] = sorted(each["Env"])  # the daemon gives it in any order
        differ = [key for key in keys if (one.get(key) or None) != (other.get(key) or None)]
        found += [f"{key}: {one.get(key)} / {other.get(key)}" for key in differ]
    return found


def test_the_line_that_is_logged_gives_the_same_container(
    daemon: Daemon, payload: Path, work: Path, tmp_path: Path, docker_host: str
) -> None:
    made: list[dict[str, Any]] = []

    class Looks(Told):
        def began(self, container_id: str) -> None:
            made.append(dict(daemon.client.inspect_container(container_id)))

    told = Looks()
    # Podman refuses a comma or a quote in the name of a folder that is to be mounted.
    odd = tmp_path / ('odd, "name" $HOME' if daemon.cli == "docker" else "odd 'name' $HOME")
    odd.mkdir()
    (odd / "f").write_text("odd\n", "utf-8")
    operator = Operator(
        "a",
        IMAGE,
        entrypoint=("sh", "-c"),
        command=('echo "$A"; cat /in/f; id; ls -d /scratch; exit 5',),
        variables={"A": 'it\'s "x"\n$HOME', "B": ""},
        inputs=(Input("/in"),),
        outputs=(Output("/out"),),
        user="1000:1000",
        workdir="/tmp",
        shm_bytes=32 << 20,
        tmpfs=("/scratch:size=1m", "/more"),
        init=True,
    )
    options = RunOptions(keep=tmp_path / "kept")
    limited = Pipeline("p", (operator,), "own")
    result = run_pipeline(limited, odd, options=options, daemon=daemon, events=told)
    line = told.commands["a"]
    assert line.startswith(f"{daemon.cli} run --rm ")
    environment = {**os.environ, "DOCKER_HOST": docker_host, "CONTAINER_HOST": docker_host}
    pasted = subprocess.run(["bash", "-c", line], check=False, capture_output=True, text=True, env=environment)
    assert (pasted.returncode, pasted.stdout.strip("\n")) == (5, result.operators[0].executions[0].log_tail)
    # The same words make the same container.
    words = shlex.split(line)
    created = subprocess.run(
        [daemon.cli, "create", *words[3:]], check=True, capture_output=True, text=True, env=environment
    ).stdout.strip()
    try:
        differ = same(made[0], daemon.client.inspect_container(created))
    finally:
        daemon.remove_container(created)
    assert [each for each in differ if not each.startswith("NetworkMode")] == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_thousand_containers_leave_nothing(daemon: Daemon, work: Path, leftovers: Leftovers) -> None:
    def held() -> tuple[int, int, int]:
        rss = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
        return len(names(Path("/proc/self/fd"))), threading.active_count(), int(rss.split()[1])

    fifty = pipeline(*(shell(f"o{number}", "true") for number in range(50)))
    run_pipeline(fifty)
    before = held()
    for _ in range(20):
        assert run_pipeline(fifty).exit_code == 0
    after = held()
    print(f"descriptors, threads, KiB resident: {before} before 1,000 containers, {after} after")
    assert after[0] <= before[0]
    assert after[1] <= before[1]
    assert after[2] <= before[2] + 16 * 1024
    assert leftovers() == []


def test_many_containers_leave_neither_descriptors_nor_threads(
    daemon: Daemon, work: Path, leftovers: Leftovers
) -> None:
    # With connections of their own, as the command has: a shared one keeps a pool of them open.
    many = pipeline(*(shell(f"o{number}", "true") for number in range(12)))

    def held() -> tuple[int, int]:
        return len(names(Path("/proc/self/fd"))), threading.active_count()

    run_pipeline(pipeline(shell("first", "true")))
    before = held()
    for _ in range(2):
        assert run_pipeline(many).exit_code == 0
    # A thread that has said its last word ends a moment later; one that stays ends the test by its time limit.
    while any(now > then for now, then in zip(held(), before, strict=True)):
        time.sleep(0.01)
    assert leftovers() == []
