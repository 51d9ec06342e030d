"""A target that fails while it is measured: its failures are no capacity, and become no number of GPUs."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import gpusize
from gpusize.cli.exit_code import judge
from gpusize.estimate.level_quality import UNBELIEVED
from gpusize.measure.sweep import ProgressEvent
from gpusize.result import Result
from tests.servers.child import Child

PROGRAM = Path(__file__).parents[1] / "servers" / "programs" / "mortal_server.py"
ROWS = gpusize.Dataset.from_prompt("x")
SLO = "p95 runtime <= 5s"
LADDER = gpusize.Load(concurrencies=(1, 2, 4, 8, 16), count=24)

Serve = Callable[..., Child]


@pytest.fixture(autouse=True)
def _quiet_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that is busy with other tests the generator is late; that is none of this."""
    # The table itself, whoever has imported it by now, or does so meanwhile.
    for flag in list(UNBELIEVED):
        monkeypatch.delitem(UNBELIEVED, flag)
    monkeypatch.setattr("gpusize.estimate.search.visits.unbelieved", lambda _level: False)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    started: list[Child] = []

    def start(*options: str) -> Child:
        started.append(Child([sys.executable, PROGRAM, *options], tmp_path / f"server{len(started)}.log"))
        return started[-1]

    yield start
    for server in started:
        server.close()


def run(server: Child, out: Path, load: gpusize.Load | None = LADDER, **more: object) -> Result:
    target = gpusize.Target(f"http://127.0.0.1:{server.ready['port']}/generate", api="nat", gpus=1)
    return gpusize.run(target, ROWS, load, slos=SLO, users=60, out=out / "runs", **more)  # type: ignore[arg-type]


def killing(server: Child, at: int) -> Callable[[ProgressEvent], None]:
    """Kills the server when a level of so many users has been answered once."""

    def look(event: ProgressEvent) -> None:
        if int(event.setting.get("concurrency") or 0) >= at and event.progress["done"] > 0:
            os.kill(server.pid, signal.SIGKILL)

    return look


def no_number(result: Result, told: str) -> None:
    """Nothing but the reason, and exit code 1."""
    answers = result.estimates()
    assert answers[0].gpus is None
    assert told in (answers[0].reason or "")
    assert answers[0].details["refusal"] == "failed"
    verdict = judge(result, answers)
    assert verdict.code == 1
    assert told in verdict.why


def test_a_server_that_is_killed_in_a_sweep_becomes_no_number_of_gpus(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    # One user who is refused waits longer before each further try: ten tries take ten seconds, those of two users two.
    load = gpusize.Load(concurrencies=(2, 3, 4, 8, 16), count=24)
    result = run(server, tmp_path, load, progress=killing(server, 4))
    no_number(result, "the target failed: at concurrency ")
    states = [(level.concurrency, level.state) for level in result.levels]
    first = next(number for number, (_, state) in enumerate(states) if state == "interrupted")
    held = max(users or 0 for users, _ in states[:first])
    # What had held before was measured once more, and failed.
    assert (held, "interrupted") in states[first:]
    assert any("the target failed" in text for text in result.notes)


def test_a_server_that_answers_500_after_a_while_becomes_no_number_of_gpus(serve: Serve, tmp_path: Path) -> None:
    no_number(run(serve("--fails-after", "80"), tmp_path), "x http_error 500")


def test_a_search_whose_server_dies_finds_no_capacity(serve: Serve, tmp_path: Path) -> None:
    result = run(serve("--fails-after", "40"), tmp_path, load=None)
    assert result.search is not None
    assert (result.search.reason, result.search.capacity, result.search.wall) == ("failed", None, None)
    no_number(result, "x http_error 500")
    # It ends there: a server that is gone is not asked at ever smaller loads.
    assert [level.state for level in result.levels].count("interrupted") <= 3


@pytest.mark.parametrize("status", ["429", "500"])
def test_a_server_that_refuses_under_load_and_holds_below_it_has_a_capacity(
    status: str, serve: Serve, tmp_path: Path
) -> None:
    result = run(serve("--at-most", "5", "--status", status), tmp_path)
    levels = [(level.concurrency, level.state) for level in result.levels]
    assert levels[:3] == [(1, "done"), (2, "done"), (4, "done")]
    assert levels[-1][1] == "done", "a load that had held was measured once more, to tell load from failure"
    assert len(levels) > len(LADDER.concurrencies)
    answer = result.estimates()[0]
    # Five at a time on one GPU: 12 GPUs for 60; the sweep knows no more than that it is 4 to 16.
    assert answer.gpus is not None, answer.reason
    assert 60 / 16 <= answer.gpus <= 60 / 4
    assert judge(result, result.estimates()).code == 0


def test_what_failed_with_the_target_is_measured_when_the_run_is_resumed(serve: Serve, tmp_path: Path) -> None:
    dying = serve("--fails-after", "80")
    first = run(dying, tmp_path)
    done = {level.concurrency for level in first.levels if level.state == "done"}
    assert done < {1, 2, 4, 8, 16}
    dying.close()
    again = run(serve("--port", str(dying.ready["port"])), tmp_path, resume=first.path)
    new = again.levels[len(first.levels) :]
    assert {level.concurrency for level in new} == {1, 2, 4, 8, 16} - done
    assert {level.state for level in new} == {"done"}
    answer = again.estimates()[0]
    # Now it is the capacity that is missing, and no longer the server.
    assert "the target failed" not in (answer.reason or "")
    assert judge(again, [answer]).why.startswith("no estimate can be given")
