"""``gpusize pipeline`` as a user runs it: output and files, bad input, Ctrl-C, a kill and what clean then finds."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gpusize.cli.pipeline import _with_force
from gpusize.containers.pipeline.cgroups import run_groups
from gpusize.containers.pipeline.daemon import Daemon
from gpusize.containers.pipeline.labels import RUN
from gpusize.containers.pipeline.session import OPERATOR
from gpusize.observe.usage.readings import Readings
from tests.containers.conftest import SOURCE, Leftovers, Run, ours
from tests.containers.engine import IMAGE
from tests.containers.wire import Wire
from tests.proc import is_sampling
from tests.store.test_full_disk import run_on_tiny_disk

THREE = f"""\
pipeline: three
operators:
  reader: {{image: "{IMAGE}", command: [sh, -c, "cat /in/a.txt > /out/b.txt; sleep 0.3"], input: /in, output: /out}}
  failing: {{image: "{IMAGE}", command: [sh, -c, "echo why; exit 126"], input: {{reader: /in}}, output: /out}}
  last: {{image: "{IMAGE}", command: [cat, /in/b.txt], input: {{reader: /in}}, after: failing}}
"""
LONG = f"""\
pipeline: long
operators:
  quick: {{image: "{IMAGE}", command: ["true"]}}
  slow: {{image: "{IMAGE}", command: [sleep, "300"], init: true, after: quick}}
"""


@pytest.fixture
def three(tmp_path: Path) -> Path:
    file = tmp_path / "three.yaml"
    file.write_text(THREE, "utf-8")
    return file


def test_tables_files_and_exit_code(run: Run, three: Path, payload: Path, tmp_path: Path, leftovers: Leftovers) -> None:
    done = run("pipeline", "run", three, payload, "--metrics_dir", "m", "--force", "cont")
    assert done.returncode == 1, done.stderr
    titles = re.findall(r"^_+([A-Z].*?)_+$", done.stdout, re.MULTILINE)
    assert titles == [
        text
        for name in ("reader", "failing", "last")
        for text in (f"Executing Operator {name}", f"Operator {name} Summary")
    ]
    assert "Operator failing failed with exitcode 126\nIts last output:\n  why\n" in done.stdout
    assert re.search(r"^\| failing +\| CPU +\|.*\| none +\|$", done.stdout, re.MULTILINE)
    assert re.search(r"^\| \(Non-zero exitcode\) +\| Memory +\|.*\| none +\|$", done.stdout, re.MULTILINE)
    assert re.search(r"^\| reader +\| CPU +\| \d+\.\d+ % +\| \d+\.\d+ % +\| cpu: \d+ +\|$", done.stdout, re.MULTILINE)
    assert "failing" in done.stdout
    [folder] = [each for each in (tmp_path / "m").iterdir() if each.is_dir()]
    for name in ("reader", "failing", "last"):
        rows = pl.read_csv(tmp_path / "m" / f"{name}_final_result.csv")
        assert rows.columns == ["timestamp", "cpu_percent", "memory"]
        assert abs(rows["timestamp"][0] - time.time()) < 600
        readings = Readings.read_parquet(folder / "readings" / f"{name}.0.parquet")
        assert readings.facts.totals["cpu_ns"] > 0
    assert sorted(each.name for each in (folder / "plots").iterdir()) >= ["failing.png", "last.png", "reader.png"]
    document = json.loads((folder / "pipeline.json").read_text())
    assert [(each["name"], each["outcome"], each["exit_code"]) for each in document["operators"]] == [
        ("reader", "completed", 0),
        ("failing", "failed", 126),
        ("last", "completed", 0),
    ]
    assert document["operators"][1]["recommendation"]["refused"] == "exit code 126"
    assert "# failing: no recommendation: exit code 126" in (folder / "requests.yaml").read_text()
    again = run("pipeline", "show", "m")
    assert again.returncode == 0, again.stderr
    assert again.stdout in done.stdout
    other = run("pipeline", "show", folder, "--policy", "cpost", "--json")
    assert json.loads(other.stdout)["operators"][0]["recommendation"]["policy"] == "cpost"
    assert leftovers() == []


def test_without_a_folder_all_rows_are_printed(run: Run, three: Path, payload: Path, tmp_path: Path) -> None:
    done = run("pipeline", "run", three, payload, "-v")
    assert done.returncode == 1
    assert re.search(r"_+Operator reader Metrics Data_+\n\+-+\+", done.stdout)
    # Nobody can be asked: it stops.
    assert "Not run: last" in done.stdout
    lines = [line for line in done.stderr.splitlines() if line.startswith("docker run ")]
    assert len(lines) >= 2
    assert sorted(each.name for each in tmp_path.iterdir()) == ["payload", "three.yaml", "work"]


def test_one_document(run: Run, three: Path, payload: Path) -> None:
    done = run("pipeline", "run", three, payload, "--json", "--force", "cont", "--parameter", "TOKEN=secret")
    document = json.loads(done.stdout)
    assert document["exit_code"] == done.returncode == 1
    assert "secret" not in done.stdout
    assert document["operators"][0]["executions"][0]["usage"]["cpu"]["total_s"] > 0


def on_terminal(argv: list[str], answer: bytes, env: dict[str, str], cwd: Path) -> tuple[int, str]:
    """Run a command on a terminal, type an answer at its question, and return its exit code and what it showed."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        argv, stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=cwd, start_new_session=True
    )
    os.close(theirs)
    seen = b""
    answered = False
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:
            break
        if not piece:
            break
        seen += piece
        if b"[y/n]" in seen and not answered:
            os.write(ours, answer)
            answered = True
    os.close(ours)
    return process.wait(60), seen.decode("utf-8", "replace")


@pytest.mark.parametrize("answer, ran", [(b"what\nyes\n", True), (b"n\n", False)])
def test_on_a_terminal_it_asks(
    three: Path, payload: Path, work: Path, tmp_path: Path, docker_host: str, answer: bytes, ran: bool
) -> None:
    argv = [sys.executable, "-m", "gpusize", "pipeline", "run", str(three), str(payload)]
    env = {**SOURCE, "TMPDIR": str(work), "DOCKER_HOST": docker_host}
    code, seen = on_terminal(argv, answer, env, tmp_path)
    assert code == 1, seen
    assert "Operator failing failed. Go on with the other operators? [y/n]" in seen
    assert ("Executing Operator last" in seen) is ran


def runs(daemon: Daemon, work: Path, operator: str) -> list[dict[str, Any]]:
    """Containers of an operator that run."""
    mine = ours(daemon, work)[0]
    return [each for each in mine if each["Labels"][OPERATOR] == operator and each["State"] == "running"]


@pytest.fixture
def slow(tmp_path: Path, work: Path, docker_host: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a long pipeline and returns once its second container runs and is read."""
    started: list[subprocess.Popen[str]] = []

    def start(*more: str) -> subprocess.Popen[str]:
        file = tmp_path / "long.yaml"
        file.write_text(LONG, "utf-8")
        process = subprocess.Popen(
            [sys.executable, "-m", "gpusize", "pipeline", "run", str(file), "--metrics-dir", "m", *more],
            cwd=tmp_path,
            env={**SOURCE, "TMPDIR": str(work), "DOCKER_HOST": docker_host},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        client = Daemon.connect()
        try:
            until = time.monotonic() + 60
            while not (runs(client, work, "slow") and is_sampling(process.pid)):
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < until
                time.sleep(0.05)
        finally:
            client.close()
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order(
    slow: Callable[..., subprocess.Popen[str]], tmp_path: Path, leftovers: Leftovers, number: signal.Signals
) -> None:
    process = slow()
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "gpusize: interrupted" in err
    [document] = [json.loads(file.read_text()) for file in (tmp_path / "m").glob("*/pipeline.json")]
    assert [each["outcome"] for each in document["operators"]] == ["completed", "interrupted"]
    assert document["operators"][1]["executions"][0]["usage"]["readings"] > 0
    assert "Executing Operator slow" in out
    assert leftovers() == []


def test_what_a_kill_leaves_is_found_and_removed(
    slow: Callable[..., subprocess.Popen[str]], run: Run, daemon: Daemon, work: Path, leftovers: Leftovers
) -> None:
    process = slow()
    [container] = runs(daemon, work, "slow")
    run_id = container["Labels"][RUN]
    # While it runs it is left alone.
    before = run("pipeline", "clean", "--json")
    assert run_id in json.loads(before.stdout)["running"]
    process.kill()
    process.communicate()
    left = leftovers()
    assert len(left) >= 3
    done = run("pipeline", "clean")
    assert done.returncode == 0, done.stderr
    assert f"removed container {container['Id'][:12]}" in done.stdout
    assert f"removed network gpusize-{run_id}" in done.stdout
    assert leftovers() == []
    assert run_id not in [name.run for name in run_groups()]
    assert run_id not in run("pipeline", "clean").stdout


def refused(done: subprocess.CompletedProcess[str]) -> tuple[int, str]:
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    return done.returncode, line


def test_bad_input_is_one_line_each(run: Run, three: Path, payload: Path, tmp_path: Path) -> None:
    code, line = refused(run("pipeline", "run", three, payload / "a.txt"))
    assert (code, line) == (
        2,
        f"gpusize: {payload / 'a.txt'}: this is a file, not a folder. Name the folder with the pipeline's input",
    )
    code, line = refused(run("pipeline", "run", three))
    assert (code, "input_dir: reader reads the input folder" in line) == (2, True)
    broken = tmp_path / "broken.yaml"
    broken.write_text("operators:\n  - name: [\n", "utf-8")
    code, line = refused(run("pipeline", "run", broken, payload))
    assert (code, "broken.yaml:3:1: broken YAML" in line) == (2, True)
    code, line = refused(run("pipeline", "run", tmp_path / "none.yaml", payload))
    assert (code, "there is no such file" in line) == (2, True)
    code, line = refused(run("pipeline", "run", payload / "a.txt", payload))
    assert (code, "not a table of options" in line) == (2, True)
    for option, value in (
        ("--force", "maybe"),
        ("--policy", "none"),
        ("--gpus", "some"),
        ("--shm-size", "big"),
        ("--timeout", "soon"),
        ("--timeout", "0s"),
        ("--start-timeout", "0s"),
        ("--interval", "1us"),
        ("--cpu-curve", "few"),
        ("--parameter", "x"),
    ):
        code, line = refused(run("pipeline", "run", three, payload, option, value))
        assert code == 2, line
        assert option.removeprefix("--").replace("-", "_") in line.replace("-", "_"), line
    assert not (tmp_path / "m").exists()


def test_a_full_disk_is_named_and_the_tables_are_shown_all_the_same(
    three: Path, payload: Path, work: Path, tmp_path: Path, docker_host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    small = tmp_path / "small"
    small.mkdir()
    # Some KiB are left: room for the folders, not for what is measured.
    script = (
        f'head -c 245000 /dev/zero > "$0/filler"; "$1" -m gpusize pipeline run {three} {payload} '
        '--force cont --no-plots --metrics-dir "$0/m"; echo "exit $?"'
    )
    done = run_on_tiny_disk(small, ["sh", "-c", script, "{}", sys.executable])
    assert done.stdout.splitlines()[-1] == "exit 3", done.stderr
    assert "the disk is full. Free some space" in done.stderr
    assert "Operator last Summary" in done.stdout
    assert re.search(r"^\| last +\| CPU ", done.stdout, re.MULTILINE)


def test_force_without_a_word_asks_and_says_why_it_stops_where_nobody_can_be_asked(
    run: Run, three: Path, payload: Path
) -> None:
    done = run("pipeline", "run", "--force", three, payload, "--quiet", "--no-plots")
    assert done.returncode == 1, done.stderr
    first, last = done.stderr.splitlines()
    assert first == (
        "gpusize: operator failing failed: there is no terminal to ask on, so the run stops; --force cont goes on"
    )
    assert last.startswith("gpusize: 1 of ")


@pytest.mark.parametrize(
    "given,meant",
    [
        (["--force"], ["--force", "none"]),
        (["--force", "cont", "a.yaml"], ["--force", "cont", "a.yaml"]),
        (["--force", "--quiet"], ["--force", "none", "--quiet"]),
        # A word that is neither is refused by its own name; a file behind it is the pipeline.
        (["--force", "maybe"], ["--force", "maybe"]),
        (["--force", "."], ["--force", "none", "."]),
        (["--", "--force"], ["--", "--force"]),
    ],
)
def test_what_force_takes(given: list[str], meant: list[str]) -> None:
    assert _with_force(given) == meant


def test_data_of_an_earlier_run_is_not_mixed_with_new(run: Run, three: Path, payload: Path, tmp_path: Path) -> None:
    assert run("pipeline", "run", three, payload, "--keep", "kept", "--quiet").returncode == 1
    assert (tmp_path / "kept" / "reader" / "b.txt").read_text() == "hello\n"
    code, line = refused(run("pipeline", "run", three, payload, "--keep", "kept"))
    assert (code, "kept/reader: there is data of an earlier run" in line) == (2, True)


def test_an_image_that_is_nowhere(run: Run, payload: Path, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("pipeline: p\noperators: {a: {image: '127.0.0.1:1/x:1'}}\n", "utf-8")
    done = run("pipeline", "run", file, "--metrics-dir", "m", "--quiet")
    assert done.returncode == 3
    assert "127.0.0.1:1/x:1 (of a): " in done.stderr
    assert "Docker login to the right registry" in done.stderr
    assert list((tmp_path / "m").iterdir()) == []


def test_no_daemon(run: Run, three: Path, payload: Path, tmp_path: Path) -> None:
    address = f"unix://{tmp_path}/none.sock"
    for words in (("run", three, payload), ("clean",)):
        code, line = refused(run("pipeline", *words, env={"DOCKER_HOST": address}))
        assert (code, "DOCKER_HOST" in line) == (3, True)
        assert line.startswith(f"gpusize: {address}: there is no Docker daemon. ")
    code, line = refused(run("pipeline", "clean", env={"DOCKER_HOST": "tcp://127.0.0.1:1"}))
    assert (code, "tcp://127.0.0.1:1: the Docker daemon does not answer" in line) == (3, True)


# The interpreter may lie where nobody else can read it, so that all is imported first.
# The first time as root, for what it imports: nobody may not be able to read the interpreter's own library.
AS_NOBODY = """
import contextlib, io, os, sys
import gpusize.cli
with contextlib.redirect_stderr(io.StringIO()):
    gpusize.cli.invoke(["pipeline", "clean"])
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
sys.exit(gpusize.cli.invoke(["pipeline", "clean"]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_no_permission_on_the_socket(docker_host: str, tmp_path: Path, three: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        place = Path("/tmp") / f"gpusize-test-{os.getpid()}.sock"
        listening.bind(str(place))
        place.chmod(0o600)
        try:
            done = subprocess.run(
                [sys.executable, "-c", AS_NOBODY],
                check=False,
                capture_output=True,
                text=True,
                env={**SOURCE, "DOCKER_HOST": f"unix://{place}"},
            )
        finally:
            place.unlink()
    code, line = refused(done)
    assert (code, "no permission on the socket of the Docker daemon" in line) == (3, True), line


def test_a_daemon_that_dies_ends_the_run_with_what_was_measured(
    daemon: Daemon, tmp_path: Path, work: Path, docker_host: str, leftovers: Leftovers
) -> None:
    """Between us and the daemon stands a wire that is cut while the second operator runs."""
    wire = Wire(docker_host, tmp_path)
    file = tmp_path / "long.yaml"
    file.write_text(LONG, "utf-8")
    process = subprocess.Popen(
        [sys.executable, "-m", "gpusize", "pipeline", "run", str(file), "--metrics-dir", "m"],
        cwd=tmp_path,
        env={**SOURCE, "TMPDIR": str(work), "DOCKER_HOST": wire.address},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until = time.monotonic() + 60
        while not (runs(daemon, work, "slow") and is_sampling(process.pid)):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.05)
        wire.cut()
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
        wire.cut()
    assert process.returncode == 3, (out, err)
    assert "Executing Operator slow" in out, (out, err)
    [document] = [json.loads(each.read_text()) for each in (tmp_path / "m").glob("*/pipeline.json")]
    assert [each["outcome"] for each in document["operators"]] == ["completed", "lost"]
    assert document["operators"][1]["executions"][0]["usage"]["readings"] > 0
    assert "gpusize pipeline clean removes it" in err
    from gpusize.containers.pipeline import clean

    assert clean(daemon).left == []
    assert leftovers() == []
