"""``gpusize duet`` beside real servers: the answer, gates, a target that dies, Ctrl-C in the middle of a round."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import gpusize as package
from gpusize.base.child_process import Child
from tests.cli.conftest import Gpusize

SOURCE = {**os.environ, "PYTHONPATH": str(Path(package.__file__).parents[1])}
LOAD = ("--prompt", "x", "--model", "simulated", "--concurrencies", "2", "--count", "20", "--no-stream", "--quiet")
MOST_S = 60.0

pytestmark = pytest.mark.alone("it measures: on a busy machine levels do not hold their load, and are left out")


class Server:
    """A simulated cluster of its own process, whose requests take 8 iterations of ``seconds`` each."""

    def __init__(self, seconds: float) -> None:
        times = {"iteration_base_s": seconds, "iteration_per_sequence_s": 0.0, "prefill_per_token_s": 0.0}
        cluster = {"gpus": 1, **times, "output_tokens": {"fixed": {"tokens": 8}}}
        arguments = ["--json-ready", "--port", "0", "--grpc-port", "0", "--cluster", json.dumps(cluster)]
        self.child = Child(["gpusize", "simulate", *arguments])
        ready = self.child.read()
        assert ready is not None, self.child.last_words()
        self.url = f"{ready['url']}/v1"

    def kill(self) -> None:
        os.kill(self.child.pid, signal.SIGKILL)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        os.kill(self.child.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.child.pid, signal.SIGCONT)


@pytest.fixture
def servers() -> Iterator[Callable[[float], Server]]:
    made: list[Server] = []

    def start(seconds: float) -> Server:
        made.append(Server(seconds))
        return made[-1]

    yield start
    for server in made:
        server.child.end()
        server.child.close()


@pytest.fixture
def duet(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts ``gpusize duet`` as a process; what still runs at the test's end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*argv: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "gpusize", "duet", *argv]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, cwd=tmp_path, env=SOURCE, text=True, stdout=pipe, stderr=pipe))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


def wait_for(holds: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + MOST_S
    while not holds():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.02)


def runs(folder: Path) -> int:
    return len(list(folder.glob("*/run.json")))


def test_a_slower_server_is_found_and_fails_the_gate(
    gpusize: Gpusize, tmp_path: Path, servers: Callable[[float], Server]
) -> None:
    """Each request takes 80 ms on one and 160 ms on the other, so half as many are answered."""
    old, new = servers(0.01), servers(0.02)
    asked = ("duet", f"old={old.url}", f"new={new.url}", *LOAD, "--rounds", "3", "--figure", "p50 runtime", "--json")
    done = gpusize(*asked, "--fail-if", "p50 runtime > +30%")
    assert done.code == 1, done.err
    told = json.loads(done.out)
    assert {each["figure"] for each in told["differences"]} == {"p50 runtime"}
    [found] = told["differences"]
    assert (found["design"], found["verdict"], found["runs"]) == ("pairs", "worse", [3, 3]), told["left_out"]
    assert (told["rounds"], told["in_turns"]) == (3, {"new": "balanced"})
    assert found["a"] >= 0.08
    assert found["b"] >= 0.16
    assert [runs(tmp_path / "duet" / name) for name in ("old", "new")] == [3, 3]
    assert [runs(tmp_path / "duet" / "warm-up" / name) for name in ("old", "new")] == [1, 1]
    again = gpusize("compare", "duet/old", "duet/new", "--figure", "p50 runtime", "--json")
    assert json.loads(again.out)["differences"] == told["differences"]


def test_a_faster_server_passes_the_gate(gpusize: Gpusize, servers: Callable[[float], Server]) -> None:
    old, new = servers(0.02), servers(0.01)
    done = gpusize("duet", old.url, new.url, *LOAD, "--rounds", "2", "--fail-if", "p50 runtime > +30%")
    assert done.code == 0, done.err
    assert "passed: p50 runtime > +30%" in done.out


def test_a_server_that_dies_on_the_way_ends_it_with_3(
    duet: Callable[..., subprocess.Popen[str]], tmp_path: Path, servers: Callable[[float], Server]
) -> None:
    old, new = servers(0.01), servers(0.01)
    gate = ("--fail-if", "p50 runtime > +30%", "--junit", "gates.xml")
    process = duet(f"old={old.url}", f"new={new.url}", *LOAD, "--rounds", "500", *gate)
    wait_for(lambda: runs(tmp_path / "duet" / "new") >= 2, process)
    new.kill()
    out, err = process.communicate(timeout=MOST_S)
    assert process.returncode == 3, err
    assert "new failed in round " in err
    assert out == ""
    assert not (tmp_path / "gates.xml").exists()
    kept = runs(tmp_path / "duet" / "old")
    assert kept == runs(tmp_path / "duet" / "new") >= 1, "the sides' folders hold whole rounds"


@pytest.mark.parametrize("rounds", [1, 2])
def test_ctrl_c_in_a_round_compares_the_whole_ones(
    duet: Callable[..., subprocess.Popen[str]], tmp_path: Path, servers: Callable[[float], Server], rounds: int
) -> None:
    a, b = servers(0.01), servers(0.01)
    process = duet(f"a={a.url}", f"b={b.url}", *LOAD, "--rounds", "500", "--drain", "100ms", "--json")
    wait_for(lambda: runs(tmp_path / "duet" / "b") > rounds, process)
    # Nothing is answered any more, so that the round cannot become whole before the signal is there.
    with b.stopped():
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=MOST_S)
    assert process.returncode == 130, err
    # A busy machine may leave nothing to compare, which is told; the code and what is kept are the same.
    found = re.search(r"interrupted; (\d+) of 500 rounds were whole and (are compared|cannot be compared)", err)
    assert found is not None, err
    whole = int(found[1])
    assert whole >= rounds
    assert [runs(tmp_path / "duet" / name) for name in "ab"] == [whole, whole]
    assert bool(out) == (found[2] == "are compared")
    if out:
        told = json.loads(out)
        assert (told["rounds"], told["sides"]) == (whole, [{"name": name, "runs": whole} for name in "ab"])


def test_ctrl_c_before_a_round_is_whole_says_so(
    duet: Callable[..., subprocess.Popen[str]], tmp_path: Path, servers: Callable[[float], Server]
) -> None:
    a, b = servers(0.01), servers(0.01)
    with b.stopped():
        process = duet(f"a={a.url}", f"b={b.url}", *LOAD, "--rounds", "5")
        wait_for((tmp_path / "duet" / "warm-up" / "a").exists, process)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=MOST_S)
    assert (process.returncode, out) == (130, "")


@pytest.mark.parametrize(
    "more, what",
    [
        (("--figure", "p95"), "figure, column"),
        (("--fail-if", "slower"), "--fail-if: 'slower' is no gate"),
        (("--rounds", "1"), "1"),
        (("--fail-if", "p50 runtime at 4 > +5%"), "4 is not among the loads. The loads are 2 users"),
        (("--fail-if", "p50 ttft > +5%"), "an answer that comes whole has no ttft"),
    ],
)
def test_bad_input_is_told_before_a_request_is_sent(gpusize: Gpusize, more: tuple[str, ...], what: str) -> None:
    done = gpusize("duet", "http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1", *LOAD, *more)
    assert done.code == 2
    assert what in done.err
    assert "refused" not in done.err, "nothing listens there: it would have said so"


def test_a_gate_on_what_answers_do_not_have_ends_it_after_the_warm_up(
    gpusize: Gpusize, tmp_path: Path, servers: Callable[[float], Server]
) -> None:
    """A simulated cluster says nothing of cached tokens."""
    server = servers(0.01)
    asked = ("duet", f"old={server.url}", f"new={server.url}", *LOAD, "--rounds", "500")
    done = gpusize(*asked, "--fail-if", "p50 tokens_cached < -5%")
    assert done.code == 2, done.err
    assert "the answers of old in its warm-up have no p50 tokens_cached" in done.err
    assert not (tmp_path / "duet" / "old").exists()
