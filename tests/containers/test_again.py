"""Further executions of an operator on a real daemon: what they find, what they leave, and where there can be none."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusize.base.errors import StoreError
from gpusize.containers.pipeline import Bind, Input, Operator, Output, SizingOptions, read_pipeline
from gpusize.containers.pipeline.container import Mount
from gpusize.containers.pipeline.container_spec import RunOptions
from gpusize.containers.pipeline.daemon import Daemon
from gpusize.containers.pipeline.input_copies import MOST, Copies, Most, moved
from gpusize.containers.pipeline.runner import run_pipeline
from gpusize.containers.pipeline.workspace import Workspace
from tests.containers.conftest import Leftovers
from tests.containers.engine import IMAGE
from tests.containers.test_run import Told, pipeline, shell

SHARING = f"""\
services:
  writes:
    image: "{IMAGE}"
    command: [sh, -c, "echo x >> /d/log; echo x >> /h/log; echo x >> /f; sleep 0.1; cat /d/log /h/log /f | wc -l"]
    volumes: [data:/d, ./host:/h, ./host/below:/below:ro, ./file:/f]
  reads: {{image: "{IMAGE}", command: [sh, -c, "wc -l < /d/log"], volumes: [data:/d], depends_on: [writes]}}
volumes: {{data: }}
"""


def test_further_executions_find_what_the_first_found_and_write_to_copies(
    daemon: Daemon, payload: Path, work: Path, tmp_path: Path, leftovers: Leftovers
) -> None:
    (tmp_path / "host" / "below").mkdir(parents=True)
    (tmp_path / "file").touch()
    (tmp_path / "compose.yaml").write_text(SHARING, "utf-8")
    there: list[list[str]] = []

    class Looks(Told):
        def began(self, container_id: str) -> None:
            there.append([each.name for each in work.glob("*/again/writes/*")])

    options = RunOptions(repeat=2, keep=tmp_path / "kept")
    sizing = SizingOptions(verify=True, cpu_curve=(0.5,))
    result = run_pipeline(
        read_pipeline(tmp_path / "compose.yaml"), options=options, sizing=sizing, daemon=daemon, events=Looks()
    )
    writes, reads = result.operators
    assert writes.sized is not None
    every = [*writes.executions, *writes.sized.executions, *(each.execution for each in writes.sized.trials)]
    assert {trial.kind for trial in writes.sized.trials} == {"cpu_curve", "verify"}
    assert [each.log_tail for each in every] == ["3"] * len(every)
    assert reads.executions[0].log_tail == "1"
    for file in (tmp_path / "host" / "log", tmp_path / "file", tmp_path / "kept" / "@volumes" / "data" / "log"):
        assert file.read_text() == "x\n"
    # What an execution wrote is gone before the next one begins.
    assert [sorted(each) for each in there[: len(every)]] == [
        ["before"],
        *([f"{number}-shared", "before"] for number in range(1, len(every))),
    ]
    assert leftovers() == []


def test_what_cannot_be_copied_is_run_once_and_told(
    daemon: Daemon, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leftovers: Leftovers
) -> None:
    monkeypatch.setattr("gpusize.containers.pipeline.runner.MOST", Most(1 << 20, 10))
    folder = tmp_path / "host"
    folder.mkdir()
    (folder / "big").write_bytes(b"x" * (2 << 20))
    operator = shell("a", "echo x >> /h/log", binds=(Bind(str(folder), "/h"),))
    options = RunOptions(repeat=3)
    result = run_pipeline(pipeline(operator), options=options, sizing=SizingOptions(verify=True), daemon=daemon)
    [first] = result.operators
    assert (first.outcome, len(first.executions)) == ("completed", 1)
    assert (folder / "log").read_text() == "x\n"
    assert first.sized is not None
    why = f"it writes to /h ({folder}), which holds over "
    assert any(each.startswith(f"1 of 3 executions: {why}") for each in first.sized.recommendation.doubts)
    assert first.sized.verified is False
    [untried] = (trial.execution for trial in first.sized.trials)
    assert (untried.outcome, untried.limits[1]) == ("not_run", first.sized.recommendation.mem_bytes)
    assert result.exit_code == 1
    # Without sizing there is no recommendation to doubt: it is a note.
    result = run_pipeline(pipeline(operator), options=options, daemon=daemon)
    assert any(each.startswith(f"a: 1 of 3 executions: {why}") for each in result.notes)
    assert leftovers() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("image, copied", [(IMAGE, True), ("nothing", False)], ids=["with", "without"])
def test_files_of_other_users_are_copied_through_a_container(
    daemon: Daemon, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image: str, copied: bool
) -> None:
    """As somebody else than root: what belongs to others, only root in a container can make again."""
    folder, file = tmp_path / "host", tmp_path / "file"
    folder.mkdir()
    for place in (folder / "theirs", file):
        place.write_text("theirs\n", "utf-8")
        place.chmod(0o600)
        os.chown(place, 4711, 4712)
    monkeypatch.setattr("gpusize.containers.pipeline.input_copies.os.geteuid", lambda: 1000)
    workspace = Workspace("run", [image], parent=work)
    mounts = [Mount(str(folder), "/h"), Mount(str(file), "/f")]
    copies = Copies(workspace, daemon, "a", mounts, MOST)
    if not copied:
        assert (copies.refused or "").endswith("only root can copy: no image of the pipeline has cp")
    else:
        first, second = (Path(each.source) for each in moved(mounts, copies.fresh(1)))
        assert first.stat().st_uid == folder.stat().st_uid
        for place in (first / "theirs", second):
            told = place.stat()
            assert (told.st_uid, told.st_gid, told.st_mode & 0o777) == (4711, 4712, 0o600)
            assert place.read_text() == "theirs\n"
    assert workspace.close(daemon) == []


def test_inputs_that_may_be_written_to_are_copied_too(daemon: Daemon, payload: Path, work: Path) -> None:
    operator = shell("a", "echo x > /in/new; ls /in | wc -l; rm /in/new", inputs=(Input("/in"),))
    leaves = shell("b", "echo x >> /in/a.txt; wc -l < /in/a.txt", inputs=(Input("/in"),))
    options = RunOptions(repeat=2, writable_inputs=True)
    result = run_pipeline(pipeline(operator, leaves), payload, options=options, daemon=daemon)
    assert [[each.log_tail for each in some.executions] for some in result.operators] == [["2", "2"], ["2", "2"]]
    assert (payload / "a.txt").read_text() == "hello\nx\n"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_fills_up_fails_what_fills_it_and_nothing_before(
    daemon: Daemon, work: Path, small_disk: Path, leftovers: Leftovers
) -> None:
    writes = "dd if=/dev/zero of=/out/x bs=1500k count=1"
    first = shell("a", writes, outputs=(Output("/out"),))
    second = shell("b", f"sleep 0.3; {writes}", inputs=(Input("/in", "a"),), outputs=(Output("/out"),))
    options = RunOptions(repeat=4, work_dir=small_disk)
    result = run_pipeline(pipeline(first, second), options=options, sizing=SizingOptions(), daemon=daemon)
    # One more file of each size fits beside what is kept of the first execution, if none stays of the others.
    assert [each.outcome for each in result.operators[0].executions] == ["completed"] * 4
    # The second one's own takes that place: its next execution has none.
    done, failed = result.operators[1].executions
    assert (done.outcome, failed.outcome) == ("completed", "failed")
    assert "No space left on device" in failed.log_tail
    assert done.readings is not None
    assert result.operators[0].sized is not None
    assert result.operators[0].sized.recommendation.mem_bytes is not None
    assert leftovers() == []
    assert list(small_disk.iterdir()) == []


def test_a_full_disk_in_a_further_execution_takes_nothing_away(
    daemon: Daemon, payload: Path, work: Path, monkeypatch: pytest.MonkeyPatch, leftovers: Leftovers
) -> None:
    honest = Workspace.output

    def full(self: Workspace, operator: Operator, output: Output, execution: int) -> Path:
        if execution:
            raise StoreError("the disk is full", "/somewhere", "free some space")
        return honest(self, operator, output, execution)

    monkeypatch.setattr(Workspace, "output", full)
    both = pipeline(shell("a", "sleep 0.3", outputs=(Output("/out"),)), shell("b", "true", inputs=(Input("/x", "a"),)))
    result = run_pipeline(both, payload, sizing=SizingOptions(verify=True), daemon=daemon)
    first, second = result.operators
    assert (first.outcome, second.outcome) == ("completed", "completed")
    assert first.sized is not None
    assert first.sized.recommendation.refused is None
    assert any("the disk is full" in each for each in first.sized.recommendation.doubts)
    assert (first.sized.verified, result.exit_code) == (False, 1)
    assert leftovers() == []
