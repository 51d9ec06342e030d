"""What the machine does to a run: kills, disks that fail, folders that go. What was measured stays, and stays once.

Stalls and quotas of the generator are in tests/engine, closed outputs and full disks in tests/cli, damaged folders in
test_damaged_folders.py.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

import gpusize
from tests.cli.conftest import chat
from tests.servers.scripted import ScriptedServer

SOURCE = {**os.environ, "PYTHONPATH": str(Path(gpusize.__file__).parents[1])}
SWEEP = ("--metrics-url", "none", "--prompt", "x", "--no-stream", "--model", "m", "--no-plots", "--out", "runs")
LEVELS = ("--concurrencies", "1,2,4", "--count", "300", "--no-adaptive")

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(chat) as made:
        yield made


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def run(*argv: str | Path, **env: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "gpusize", *map(str, argv)]
        errors = (tmp_path / "stderr").open("w", encoding="utf-8")
        with errors:
            started.append(
                subprocess.Popen(
                    command, cwd=tmp_path, env={**SOURCE, **env}, text=True, stdout=subprocess.DEVNULL, stderr=errors
                )
            )
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()


def when(process: subprocess.Popen[str], seen: Callable[[], bool]) -> None:
    """Wait until the run has come so far."""
    while not seen():
        assert process.poll() is None, "the run was over before it came so far"
        time.sleep(0.001)


def run_of(folder: Path) -> Path | None:
    found = [each for each in (folder / "runs").glob("*") if (each / "run.json").exists()]
    return found[0] if found else None


def _has(folder: Path, *names: str) -> Callable[[], bool]:
    def seen() -> bool:
        run = run_of(folder)
        return run is not None and any((run / name).exists() for name in names)

    return seen


MOMENTS = {
    "in the first level": ("levels/.0000.open/records"),
    "in the second level": ("levels/.0001.open/records",),
    "as a level becomes whole": ("levels/0001",),
    "after the last level": ("levels/0002",),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_that_is_killed_keeps_whole_levels_and_can_be_resumed(
    moment: str, start: Start, tmp_path: Path, server: ScriptedServer
) -> None:
    process = start("run", "--url", f"http://127.0.0.1:{server.port}/v1", *SWEEP, *LEVELS)
    when(process, _has(tmp_path, *MOMENTS[moment]))
    process.kill()
    process.wait()
    run = run_of(tmp_path)
    assert run is not None
    whole = {level: _rows(level) for level in _whole(run)}
    assert set(whole.values()) <= {300}
    again = start("run", "--resume", run, "--quiet", "--no-plots")
    assert again.wait(60) == 0, (tmp_path / "stderr").read_text()
    assert {level: _rows(level) for level in whole} == whole, "resuming touched a level that was whole"
    done = [json.loads((level / "level.json").read_text()) for level in _whole(run)]
    assert sorted(each["setting"]["concurrency"] for each in done if each["state"] == "done") == [1, 2, 4]
    # Two probes; whatever else the server counted is a row, or was under way when the run was killed.
    rows = sum(_rows(level) for level in _whole(run))
    assert rows + 2 <= len(server.requests) + 1
    assert len(server.requests) <= rows + 2 + 300


def _whole(run: Path) -> list[Path]:
    return sorted((run / "levels").glob("[0-9]*"))


def _rows(level: Path) -> int:
    parts = sorted((level / "records").glob("*.parquet"))
    rows = sum(pl.read_parquet(part, glob=False, missing_columns="insert").height for part in parts)
    assert rows == json.loads((level / "level.json").read_text())["rows"]
    return rows


def test_a_run_whose_folder_is_deleted_ends_with_its_name(start: Start, tmp_path: Path, server: ScriptedServer) -> None:
    process = start(
        "run", "--url", f"http://127.0.0.1:{server.port}/v1", *SWEEP, "--concurrencies", "2,4", "--count", "3000"
    )
    when(process, _has(tmp_path, "levels/.0000.open/records"))
    run = run_of(tmp_path)
    assert run is not None
    # In one step: files that the run makes meanwhile would be in the way of removing one by one.
    run.rename(tmp_path / "gone")
    assert process.wait(60) == 3
    [line] = [line for line in (tmp_path / "stderr").read_text().splitlines() if line.startswith("gpusize: ")]
    assert run.name in line


def test_a_file_system_that_cannot_be_written_is_told_before_the_load(tmp_path: Path, server: ScriptedServer) -> None:
    url = f"http://127.0.0.1:{server.port}/v1"
    script = 'mount -t tmpfs -o ro tmpfs "$0" && cd "$0" && exec "$@"'
    (tmp_path / "disk").mkdir()
    command = [sys.executable, "-m", "gpusize", "run", "--url", url, *SWEEP, *LEVELS]
    done = subprocess.run(
        [*_namespace(), "sh", "-c", script, str(tmp_path / "disk"), *command],
        capture_output=True,
        text=True,
        check=False,
        env=SOURCE,
    )
    if "mount:" in done.stderr or "unshare:" in done.stderr:
        pytest.skip(f"may not mount a file system here: {done.stderr.strip()}")
    assert done.returncode == 3, done.stderr
    assert "read-only" in done.stderr.lower() or "Read-only" in done.stderr
    assert len(server.requests) <= 1, "load was sent although nothing could be kept"


def _namespace() -> list[str]:
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare (util-linux) to mount a file system")
    return ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]


SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
/* Writes to parts of the second level fail as a broken disk does. */
static int broken(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return strstr(path, "/.0001.open/records/part-") != NULL;
}
ssize_t write(int fd, const void *data, size_t n) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = dlsym(RTLD_NEXT, "write");
    if (broken(fd)) { errno = EIO; return -1; }
    return real(fd, data, n);
}
ssize_t writev(int fd, const struct iovec *pieces, int n) {
    static ssize_t (*real)(int, const struct iovec *, int);
    if (!real) real = dlsym(RTLD_NEXT, "writev");
    if (broken(fd)) { errno = EIO; return -1; }
    return real(fd, pieces, n);
}
"""


def test_a_disk_with_an_error_ends_the_run_and_keeps_the_level_before(
    start: Start, tmp_path: Path, server: ScriptedServer
) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler for a disk that fails")
    (tmp_path / "shim.c").write_text(SHIM)
    shim = str(tmp_path / "shim.so")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", shim, str(tmp_path / "shim.c"), "-ldl"], check=True)
    process = start("run", "--url", f"http://127.0.0.1:{server.port}/v1", *SWEEP, *LEVELS, LD_PRELOAD=shim)
    assert process.wait(60) == 3
    [line] = [line for line in (tmp_path / "stderr").read_text().splitlines() if line.startswith("gpusize: ")]
    assert "Input/output error" in line
    run = run_of(tmp_path)
    assert run is not None
    assert _rows(run / "levels" / "0000") == 300
    assert gpusize.open_run(run).summary.height >= 1
    again = start("run", "--resume", run, "--quiet", "--no-plots")
    assert again.wait(60) == 0, (tmp_path / "stderr").read_text()
    assert _rows(run / "levels" / "0000") == 300
