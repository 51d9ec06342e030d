"""What operators share, copied for further executions; folders that are kept."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import cast

import pytest

from gpusize.base.errors import StoreError, UsageError
from gpusize.base.interrupt import StopSwitch
from gpusize.containers.pipeline import Operator, Output, Pipeline
from gpusize.containers.pipeline.container import Mount
from gpusize.containers.pipeline.daemon import Daemon
from gpusize.containers.pipeline.input_copies import Copies, Most, moved
from gpusize.containers.pipeline.wait import Interrupted
from gpusize.containers.pipeline.workspace import Workspace, check_kept

MOST = Most(1 << 20, 100)
# Root copies by itself; the daemon is asked by nobody else here.
NO_DAEMON = cast("Daemon", None)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace("run", parent=tmp_path)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    (folder / "below").mkdir(parents=True)
    (folder / "f").write_text("before", "utf-8")
    (folder / "f").chmod(0o640)
    (folder / "link").symlink_to("/nowhere")
    os.utime(folder / "f", ns=(10**18, 10**18))
    return folder


def test_each_execution_finds_what_the_first_found(workspace: Workspace, shared: Path) -> None:
    mounts = [Mount(str(shared), "/w"), Mount(str(shared / "below"), "/b", read_only=True), Mount("/etc", "/e", True)]
    copies = Copies(workspace, NO_DAEMON, "a", mounts, MOST)
    assert copies.refused is None
    (shared / "f").write_text("by the first", "utf-8")
    (shared / "new").touch()
    for number in (1, 2):
        whole, part, other = moved(mounts, copies.fresh(number))
        place = Path(whole.source)
        assert not place.is_relative_to(shared)
        assert sorted(each.name for each in place.iterdir()) == ["below", "f", "link"]
        assert (place / "f").read_text() == "before"
        told = (place / "f").stat()
        assert (told.st_mode & 0o777, told.st_mtime_ns) == (0o640, 10**18)
        assert (place / "link").readlink() == Path("/nowhere")
        assert (part.source, part.target, part.read_only) == (str(place / "below"), "/b", True)
        assert other == mounts[2]
        (place / "f").write_text("by another", "utf-8")
    assert (shared / "f").read_text() == "by the first"
    copies.close()
    assert workspace.close(None) == []


def test_what_is_around_a_place_that_is_written_to_is_copied_with_it(workspace: Workspace, shared: Path) -> None:
    mounts = [Mount(str(shared / "below"), "/b"), Mount(str(shared), "/w", read_only=True)]
    made = Copies(workspace, NO_DAEMON, "a", mounts, MOST).fresh(1)
    assert list(made) == [shared]
    below, whole = moved(mounts, made)
    assert below.source == f"{whole.source}/below"


def test_a_file_is_copied_and_a_socket_is_not(workspace: Workspace, shared: Path, tmp_path: Path) -> None:
    place = Path(os.path.relpath(tmp_path / "s"))
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        mounts = [Mount(str(shared / "f"), "/f"), Mount(str(place.resolve()), "/s")]
        file, door = moved(mounts, Copies(workspace, NO_DAEMON, "a", mounts, MOST).fresh(1))
    assert Path(file.source).read_text() == "before"
    assert file.source != str(shared / "f")
    assert door == mounts[1]


def test_what_is_too_much_is_refused_with_what_to_do(workspace: Workspace, shared: Path) -> None:
    mounts = [Mount(str(shared), "/w")]
    (shared / "big").write_bytes(b"x" * (2 << 20))
    for most in (MOST, Most(1 << 30, 3)):
        copies = Copies(workspace, NO_DAEMON, "a", mounts, most)
        assert copies.refused is not None
        assert copies.refused.startswith(f"it writes to /w ({shared}), which holds over ")
        assert copies.refused.endswith("mount it read-only if it is only read")
    assert not workspace.again("a", "before").exists()
    around = Copies(workspace, NO_DAEMON, "a", [Mount(str(workspace.path.parent), "/w")], Most(1 << 30, 10_000))
    assert "in which the data of the run lies" in (around.refused or "")
    # What is only read is not copied, however large.
    assert Copies(workspace, NO_DAEMON, "a", [Mount(str(shared), "/w", read_only=True)], MOST).refused is None


def test_a_copy_that_fails_says_why(workspace: Workspace, shared: Path) -> None:
    copies = Copies(workspace, NO_DAEMON, "a", [Mount(str(shared), "/w")], MOST)
    (workspace.again("a", "before") / "0").rename(workspace.path / "gone")
    with pytest.raises(StoreError, match=r"a copy of it cannot be made: .*No such file"):
        copies.fresh(1)


def test_folders_that_stay_are_closed_to_others_at_the_end(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    mine = kept / "mine"
    mine.mkdir(parents=True, mode=0o700)
    workspace = Workspace("run", parent=tmp_path, kept=kept)
    operators = [Operator("a", "i"), Operator("mine", "i"), Operator("other", "i")]
    places = [workspace.output(each, Output("/o"), 0) for each in operators]
    places += [workspace.output(operators[0], Output("/o", "named"), 0), workspace.volume("v")]
    assert [place.stat().st_mode & 0o777 for place in places] == [0o777] * 5
    # An operator's own wish stays, and no link that it made leads elsewhere.
    places[2].chmod(0o750)
    outside = tmp_path / "outside"
    outside.mkdir()
    outside.chmod(0o777)
    places[3].rmdir()
    places[3].symlink_to(outside)
    umask = os.umask(0)
    os.umask(umask)
    assert workspace.close(None) == []
    modes = [place.stat().st_mode & 0o777 for place in places]
    assert modes == [0o777 & ~umask, 0o700, 0o750, 0o777, 0o777 & ~umask]
    assert outside.stat().st_mode & 0o777 == 0o777


@pytest.mark.parametrize("name", ["a", "@volumes"])
def test_data_of_an_earlier_run_is_refused_also_in_volumes(tmp_path: Path, name: str) -> None:
    pipeline = Pipeline("p", (Operator("a", "i"),), "compose")
    check_kept(pipeline, None)
    check_kept(pipeline, tmp_path)
    (tmp_path / name).mkdir()
    check_kept(pipeline, tmp_path)
    (tmp_path / name / "f").touch()
    with pytest.raises(UsageError, match="there is data of an earlier run"):
        check_kept(pipeline, tmp_path)


def test_copies_lie_beside_what_an_execution_writes(workspace: Workspace, shared: Path) -> None:
    copies = Copies(workspace, NO_DAEMON, "a", [Mount(str(shared), "/w")], MOST)
    [made] = copies.fresh(1).values()
    output = workspace.output(Operator("a", "i"), Output("/o"), 1)
    assert not made.is_relative_to(output)
    assert list(output.iterdir()) == []
    copies.drop(1)
    assert not made.exists()


def test_what_the_kernel_shows_as_files_is_not_copied(workspace: Workspace) -> None:
    for place in ("/proc", "/proc/self", "/sys/kernel"):
        copies = Copies(workspace, NO_DAEMON, "a", [Mount(place, "/host")], MOST)
        assert (copies.refused, copies.fresh(1)) == (None, {})


def test_a_copy_is_given_up_when_an_end_is_asked_for(
    workspace: Workspace, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A cp that would never end.
    slow = tmp_path / "bin" / "cp"
    slow.parent.mkdir()
    slow.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 86400\n", "utf-8")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    stop = StopSwitch()

    def ask() -> None:
        while not (tmp_path / "pid").is_file() or not (tmp_path / "pid").read_text("utf-8").strip():
            pass
        stop.ask()

    asking = threading.Thread(target=ask)
    asking.start()
    with pytest.raises(Interrupted):
        Copies(workspace, NO_DAEMON, "a", [Mount(str(shared), "/w")], MOST, stop)
    asking.join()
    assert not Path("/proc", (tmp_path / "pid").read_text("utf-8").strip()).exists()


def test_a_cp_that_says_nothing_is_told_by_its_code(
    workspace: Workspace, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mute = tmp_path / "bin" / "cp"
    mute.parent.mkdir()
    mute.write_text("#!/bin/sh\nexit 3\n", "utf-8")
    mute.chmod(0o755)
    monkeypatch.setenv("PATH", f"{mute.parent}:{os.environ['PATH']}")
    refused = Copies(workspace, NO_DAEMON, "a", [Mount(str(shared), "/w")], MOST).refused
    assert refused is not None
    assert refused.endswith("cp ended with exit code 3")


def test_folders_that_an_earlier_run_made_for_nothing_are_no_data(tmp_path: Path) -> None:
    pipeline = Pipeline("p", (Operator("a", "i"),), "own")
    (tmp_path / "a" / "out" / "below").mkdir(parents=True)
    check_kept(pipeline, tmp_path)
    (tmp_path / "a" / "out" / "below" / "f").touch()
    with pytest.raises(UsageError, match="data of an earlier run"):
        check_kept(pipeline, tmp_path)
