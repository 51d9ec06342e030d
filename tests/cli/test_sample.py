"""``gpusize sample``: a wrapper as `time` is one, and a look at what runs already."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import gpusize as package
from gpusize.containers.cpost_csv import read_cpost_csv
from gpusize.observe.usage.readings import Readings
from tests.cli.conftest import Gpusize
from tests.proc import is_sampling
from tests.resources.live_groups import Group, made
from tests.store.test_full_disk import run_on_tiny_disk

pytestmark = pytest.mark.alone("CPU time of real processes is measured")

SOURCE = {**os.environ, "PYTHONPATH": str(Path(package.__file__).parents[1])}
HOLD = "held = b'1' * (64 << 20)\nimport time\nwhile time.process_time() < 0.2: pass\n"


def only(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


def test_a_command_keeps_its_streams_and_its_status(gpusize: Gpusize, tmp_path: Path):
    # It stays long enough for readings in between, also where the sampler's thread has to stand still for a while.
    stay = f"{HOLD}time.sleep(2)\nprint('mine')\nraise SystemExit(3)"
    done = gpusize("sample", "--no-plots", "--", sys.executable, "-c", stay)
    assert (done.code, done.out) == (3, "mine\n")
    assert "No recommendation: it failed: exit code 3" in done.err
    folder = only(tmp_path / "samples")
    assert str(folder.relative_to(tmp_path)) in done.err
    readings = Readings.read_parquet(folder / "readings.parquet")
    assert len(readings) > 2
    told = json.loads((folder / "sample.json").read_text())
    assert told["exit_code"] == 3
    assert told["usage"]["memory"]["peak_bytes"] >= 64 << 20
    assert read_cpost_csv(folder / "sample_final_result.csv").name == "sample"
    assert not (folder / "usage.png").exists()


def test_everything_in_a_folder_of_choice_with_a_picture(gpusize: Gpusize, tmp_path: Path):
    done = gpusize(
        "sample", "--out", "here", "--interval", "5ms", "--windows", "50ms,2s", "--", sys.executable, "-c", HOLD
    )
    assert done.code == 0
    assert "Request " in done.err
    assert sorted(each.name for each in (tmp_path / "here").iterdir()) == [
        "readings.parquet",
        "sample.json",
        "sample_final_result.csv",
        "usage.png",
    ]
    told = json.loads((tmp_path / "here" / "sample.json").read_text())
    assert told["usage"]["cpu"]["windows"][0]["window_s"] == 0.05
    assert Readings.read_parquet(tmp_path / "here" / "readings.parquet").facts.interval_ns == 5_000_000


def test_a_sample_is_not_written_over(gpusize: Gpusize, tmp_path: Path):
    assert gpusize("sample", "--no-plots", "--out", "here", "--", "true").code == 0
    before = (tmp_path / "here" / "sample.json").read_bytes()
    again = gpusize("sample", "--no-plots", "--out", "here", "--", "touch", "ran")
    assert (again.code, again.complaint) == (
        3,
        "here: this folder holds a sample already. Choose another --out, or remove it",
    )
    assert (tmp_path / "here" / "sample.json").read_bytes() == before
    assert not (tmp_path / "ran").exists()


def test_a_folder_that_cannot_be_made_is_said_before_anything_runs(gpusize: Gpusize, tmp_path: Path):
    (tmp_path / "file").write_text("")
    done = gpusize("sample", "--no-plots", "--out", "file/here", "--", "touch", "ran")
    assert done.code == 3
    assert "a part of this path is not a folder" in done.complaint
    assert not (tmp_path / "ran").exists()


def test_one_document_on_standard_output(gpusize: Gpusize):
    done = gpusize("sample", "--json", "--no-plots", "--policy", "cpost", "--", "echo", "-n", "mine")
    told = json.loads(done.out)
    assert (done.code, done.err) == (0, "mine")
    assert told["recommendation"]["policy"] == "cpost"
    assert told["files"]


def test_several_executions_make_one_recommendation(gpusize: Gpusize, tmp_path: Path):
    done = gpusize("sample", "--repeat", "3", "--no-plots", "--json", "--out", "here", "--", sys.executable, "-c", HOLD)
    told = json.loads(done.out)
    assert done.code == 0
    assert len(told["executions"]) == 3
    assert told["recommendation"]["mem_interval"]["runs"] == 3
    assert sorted(each.name for each in (tmp_path / "here").iterdir()) == ["1", "2", "3", "sample.json"]
    assert json.loads((tmp_path / "here" / "sample.json").read_text())["recommendation"] == told["recommendation"]
    text = gpusize("sample", "--repeat", "2", "--no-plots", "--", "true").err
    assert text.count("true: ") == 2
    assert "each of 2 executions alone" in text


def test_the_first_that_fails_is_the_last(gpusize: Gpusize, tmp_path: Path):
    (tmp_path / "count").write_text("")
    third = "echo x >> count; [ $(wc -l < count) -lt 3 ]"
    done = gpusize("sample", "--repeat", "5", "--no-plots", "--", "sh", "-c", third)
    assert done.code == 1
    assert "No recommendation: 1 of 3 executions failed, the last with: exit code 1" in done.err


def test_options_behind_the_command_are_the_commands(gpusize: Gpusize):
    assert gpusize("sample", "--quiet", "--no-plots", "echo", "--json", "-n").out == "--json -n\n"


def test_a_command_that_cannot_be_started(gpusize: Gpusize, tmp_path: Path):
    done = gpusize("sample", "--", tmp_path / "none")
    assert (done.code, done.complaint) == (
        127,
        f"the command cannot be started: {tmp_path}/none: No such file or directory",
    )
    assert gpusize("sample", "--", tmp_path).code == 126
    assert not (tmp_path / "samples").exists()
    (tmp_path / "mine").mkdir()
    for out in ("mine", "mine/new/one"):
        assert gpusize("sample", "--out", out, "--", tmp_path / "none").code == 127
        assert list((tmp_path / "mine").iterdir()) == [], "the folder that was there stays, and no other"


@pytest.mark.parametrize(
    "argv, complaint",
    [
        (["sample"], "no source is named, or several are"),
        (["sample", "--pid", "1", "--cgroup", "/"], "no source is named, or several are"),
        (["sample", "--pid", "1", "--", "true"], "a command is sampled alone, from its start to its end"),
        (["sample", "--duration", "1s", "--", "true"], "a command is sampled alone, from its start to its end"),
        (["sample", "--pid", str(2**22 + 1)], "--pid: there is no process"),
        (["sample", "--repeat", "0", "--", "true"], '--repeat: "0" is not a whole number from 1 to 1000000'),
        (["sample", "--repeat", "2", "--pid", "1"], "--repeat: only a command can be run several times"),
        (["sample", "--interval", "0", "--", "true"], "--interval: an interval must be 1 ms to 1 h, not 0 s"),
        (["sample", "--interval", "soon", "--", "true"], '--interval: "soon" is not a duration'),
        (["sample", "--windows", "1s,", "--", "true"], "--windows"),
        (["sample", "--policy", "best", "--", "true"], '--policy: there is no policy "best"'),
    ],
)
def test_what_cannot_be_meant(gpusize: Gpusize, argv, complaint):
    done = gpusize(*argv)
    assert done.code == 2
    assert complaint in done.complaint


def test_what_is_not_there(gpusize: Gpusize, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    done = gpusize("sample", "--container", "box")
    assert done.code == 3
    assert "there is no Docker daemon" in done.complaint
    done = gpusize("sample", "--cgroup", "/no/such/group")
    assert done.code == 3
    assert "/no/such/group" in done.complaint


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen]:
    child = subprocess.Popen(["sleep", "60"])
    while Path(f"/proc/{child.pid}/comm").read_text() != "sleep\n":
        assert child.poll() is None
    yield child
    child.kill()
    child.wait()


def test_a_running_process_for_a_time(gpusize: Gpusize, sleeper):
    done = gpusize("sample", "--no-plots", "--pid", str(sleeper.pid), "--duration", "300ms")
    assert done.code == 0
    assert done.out.startswith("sleep: ")
    assert "it ran before the first reading" in done.out


@pytest.fixture
def group() -> Iterator[Group]:
    group = made()
    if group is None:
        pytest.skip("making cgroups is not permitted here (root is needed)")
    try:
        yield group
    finally:
        group.remove()


def test_a_cgroup_by_its_path(gpusize: Gpusize, group: Group, sleeper):
    group.take(sleeper.pid)
    done = gpusize("sample", "--json", "--no-plots", "--cgroup", group.path, "--duration", "200ms")
    assert done.code == 0
    told = json.loads(done.out)
    assert told["kind"] == "cgroup"
    # Its pages are of the group that it was started in.
    assert told["usage"]["memory"]["peak_bytes"] is not None
    assert told["usage"]["pids_peak"] == 1


Begin = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Starts ``gpusize sample`` as a process of its own, in a session without a terminal."""
    children: list[subprocess.Popen[str]] = []

    def start(*argv: str) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "gpusize", "sample", "--no-plots", *argv]
        child = subprocess.Popen(
            words,
            cwd=tmp_path,
            env=SOURCE,
            text=True,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        children.append(child)
        return child

    yield start
    for child in children:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


SAY = "import sys, time\nprint('up', flush=True)\ntime.sleep(60)"


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_the_commands_and_what_was_measured_is_kept(begin: Begin, tmp_path: Path, number, status):
    child = begin("--", sys.executable, "-c", SAY)
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    child.send_signal(number)
    _, err = child.communicate(timeout=60)
    assert child.returncode == status, err
    told = json.loads((only(tmp_path / "samples") / "sample.json").read_text())
    assert (told["interrupted"], told["exit_code"]) == (True, status)
    assert told["usage"]["cpu"]["total_s"] > 0


def test_a_signal_that_comes_while_the_command_starts_is_the_commands_too(
    gpusize: Gpusize, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    def begun(*words, **how) -> subprocess.Popen:
        child = subprocess.Popen(*words, **how)
        os.kill(os.getpid(), signal.SIGTERM)
        return child

    monkeypatch.setattr("gpusize.containers.command.subprocess", SimpleNamespace(Popen=begun))
    assert gpusize("sample", "--no-plots", "--out", "s", "--", "sleep", "60").code == 143
    assert json.loads((tmp_path / "s" / "sample.json").read_text())["interrupted"]


STAY = f"import signal, sys\nsignal.signal(signal.SIGINT, lambda *_: sys.exit(0))\n{SAY}"
DOUBT = "it was stopped before it ended by itself: its later use is unknown"


def test_what_was_ended_early_and_calls_that_well_is_doubted(begin: Begin, tmp_path: Path):
    child = begin("--out", "s", "--", sys.executable, "-c", STAY)
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    assert f"! {DOUBT}" in err
    advice = json.loads((tmp_path / "s" / "sample.json").read_text())["recommendation"]
    assert (advice["cut_short"], advice["confidence"], DOUBT in advice["doubts"]) == (True, "low", True)
    assert advice["mem_bytes"] > 0


def test_ctrl_c_is_the_end_of_looking_at_what_runs(begin: Begin, tmp_path: Path, sleeper):
    child = begin("--pid", str(sleeper.pid), "--json")
    # It is at work once its thread is there.
    while not is_sampling(child.pid):
        assert child.poll() is None
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    told = json.loads(out)
    assert told["interrupted"]
    # It was to be looked at until somebody had seen enough.
    assert not told["recommendation"]["cut_short"]
    assert DOUBT not in told["recommendation"]["doubts"]
    assert (only(tmp_path / "samples") / "readings.parquet").is_file()
    assert sleeper.poll() is None


def test_a_full_disk_is_said(tmp_path: Path):
    fill = f"dd if=/dev/zero of={tmp_path}/all bs=1k count=1000 2> /dev/null || true"
    words = [sys.executable, "-m", "gpusize", "sample", "--no-plots", "--out", "{}", "--", "sh", "-c", fill]
    done = run_on_tiny_disk(tmp_path, words)
    assert done.returncode == 3
    assert "the disk is full. Free some space" in done.stderr
    # The figures are there all the same.
    assert "Request " in done.stderr
