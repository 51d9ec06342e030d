"""A disk that is really full: a file system of 256 KiB."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gpusize

PROGRAM = """
import sys
from pathlib import Path
from gpusize.base.errors import StoreError
from gpusize.records.store import RunStore, read_run, level_dirs
out = Path(sys.argv[1])
store = RunStore.create(out, {"run": "r", "levels": []})
store.open_level(0, {})
store.commit_level(0, {"state": "done"}, {})
folder = store.open_level(1, {})
with open(out / "filler", "wb", buffering=0) as filler:
    try:
        while True:
            filler.write(bytes(4096))
    except OSError:
        pass
try:
    store.commit_level(1, {"state": "done"}, {"runtime": [[n, n + 1, 1] for n in range(9999)]})
except StoreError as error:
    print("exit", error.exit_code, error)
print("kept", [each.name for each in level_dirs(store.path)], folder.is_dir(), read_run(store.path)["run"])
print("scratch", sorted(each.name for each in folder.iterdir()))
"""


def run_on_tiny_disk(folder: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command whose ``{}`` is a fresh 256 KiB file system, in a mount namespace of its own."""
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare (util-linux) to mount a small file system")
    namespace = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    script = 'mount -t tmpfs -o size=256k tmpfs "$0" && exec "$@"'
    arguments = [str(folder) if each == "{}" else each for each in command]
    source = str(Path(gpusize.__file__).parents[1])
    done = subprocess.run(
        [*namespace, "sh", "-c", script, str(folder), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": source},
    )
    if "mount:" in done.stderr or "unshare:" in done.stderr:
        pytest.skip(f"may not mount a small file system here: {done.stderr.strip()}")
    return done


def test_a_full_disk_is_named_and_earlier_levels_stay(tmp_path: Path) -> None:
    done = run_on_tiny_disk(tmp_path, [sys.executable, "-c", PROGRAM, "{}"])
    assert done.stderr == ""
    report, kept, scratch = done.stdout.splitlines()
    assert report.startswith(f"exit 3 {tmp_path}")
    assert "the disk is full. Free some space" in report
    assert kept == "kept ['0000'] True r"
    assert scratch == "scratch ['level.json', 'records']"


def test_a_file_size_limit_is_named(tmp_path: Path) -> None:
    """The other way in which a file stops growing; needs no rights at all."""
    import resource

    from gpusize.base.errors import StoreError
    from gpusize.base.files import write_atomic

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with contextlib.ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_FSIZE, (soft, hard))
        with pytest.raises(StoreError, match="may not grow any more") as caught:
            write_atomic(tmp_path / "big.json", bytes(2000))
    assert caught.value.where == str(tmp_path / "big.json")
    assert list(tmp_path.iterdir()) == []


def test_where_no_file_can_be_made_the_one_that_was_asked_for_is_named(tmp_path: Path) -> None:
    from gpusize.base.errors import StoreError
    from gpusize.base.files import write_atomic

    with pytest.raises(StoreError, match="no file can be made there") as caught:
        write_atomic(tmp_path / "none" / "a.parquet", b"")
    assert caught.value.where == str(tmp_path / "none" / "a.parquet")
