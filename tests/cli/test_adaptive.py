"""``gpusize run`` searches for the capacity: in real time, against the simulated cluster and servers that say no."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import gpusize
from gpusize.analysis.slo import Slo
from gpusize.estimate.truth import true_gpus
from gpusize.targets.simulated.cluster import SimulatedCluster
from tests.cli.conftest import Gpusize, chat
from tests.servers.scripted import Request, Script, ScriptedServer, Send, Step, answer

SOURCE = {**os.environ, "PYTHONPATH": str(Path(gpusize.__file__).parents[1])}
BARE = ("--metrics-url", "none", "--no-gpu-sample", "--no-plots")
CLUSTER: dict[str, Any] = {
    "gpus": 1,
    "iteration_base_s": 0.005,
    "iteration_per_sequence_s": 0.0005,
    "prefill_per_token_s": 0.0,
    "max_batch": 16,
    "output_tokens": {"lognormal": {"median_tokens": 12.0, "sigma": 0.3, "max_tokens": 60}},
}
SLO = "p95 runtime <= 400ms"
USERS = 100


def levels(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(folder.glob("levels/[0-9]*/level.json"))]


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    with SimulatedCluster(CLUSTER) as made:
        yield made


def words(cluster: SimulatedCluster, *more: str) -> list[str]:
    about = ["--url", f"{cluster.url}/v1", "--model", "simulated", "--prompt", "x", "--gpus", "1"]
    return ["run", *about, "--users", str(USERS), "--slo", SLO, *BARE, *more]


@pytest.mark.alone("a level at which the generator was late is left out, and here all are needed")
def test_the_edge_is_found_and_the_count_is_that_of_virtual_time(gpusize: Gpusize, cluster: SimulatedCluster) -> None:
    done = gpusize(*words(cluster, "--budget", "1200", "--json"))
    assert done.code == 0, done.err
    document = json.loads(done.out)
    found = document["search"]
    assert found["reason"] in ("precision", "count", "budget")
    assert found["requests"] <= 1200
    assert found["low"] <= found["capacity"] <= found["high"]
    run = Path(document["path"])
    meta = json.loads((run / "run.json").read_text())
    assert meta["levels"] == []
    assert meta["adaptive"] == {"adaptive": True, "precision": 0.03, "budget": 1200, "most_users": 4096}
    why = [level["search"]["why"] for level in levels(run)]
    assert why[0] == "grow"
    assert "edge" in why
    assert [level["step"] for level in levels(run)] == list(range(len(why)))
    assert "level 1  1 user (growing)" in done.err
    assert "capacity between" in done.err
    import gpusize as library

    estimate = library.open_run(run).estimate(method="twin")
    truth = true_gpus(CLUSTER, USERS, [Slo.parse(SLO)], prompt_tokens=1)
    assert truth is not None
    assert estimate.gpus is not None
    assert abs(estimate.gpus - truth) <= 1


def test_a_single_user_who_misses_is_a_measured_no(gpusize: Gpusize, url: str) -> None:
    done = gpusize("run", "--url", url, "--prompt", "x", "--no-stream", "--slo", "p95 runtime <= 1us", "--quiet", *BARE)
    assert done.code == 1
    assert done.complaint == "a single user misses p95 runtime <= 0.001ms already"
    assert "none: a single user is not served" in done.out


def test_a_server_that_only_fails_is_a_measured_no(
    gpusize: Gpusize, scripted_server: Callable[[Script], ScriptedServer]
) -> None:
    def script(request: Request) -> Sequence[Step]:
        # The probe before the first level is answered.
        return chat(request) if len(server.requests) < 2 else [Send(answer(b"{}", status="500 no"))]

    server = scripted_server(script)
    at = f"http://127.0.0.1:{server.port}/v1"
    done = gpusize("run", "--url", at, "--prompt", "x", "--no-stream", "--slo", SLO, "--quiet", *BARE)
    assert done.code == 1
    # Errors that come at once say nothing of a load: it is the server that fails.
    assert "at concurrency 1 10 of 10 requests failed (10 x http_error 500: {})" in done.err
    assert "as of a target that has failed" in done.err
    assert "a single user misses" not in done.err
    [run] = Path("runs").iterdir()
    assert [level["state"] for level in levels(run)] == ["interrupted", "interrupted"]


def test_no_load_misses_up_to_the_limit(gpusize: Gpusize, url: str) -> None:
    asked = ("--slo", "p95 runtime <= 5s", "--most-users", "4", "--quiet", *BARE)
    done = gpusize("run", "--url", url, "--prompt", "x", "--no-stream", *asked)
    assert done.code == 0, done.err
    assert "no SLO was missed up to 4 users" in done.out


def test_a_search_and_levels_are_refused(gpusize: Gpusize) -> None:
    done = gpusize("run", "--adaptive", "--slo", SLO, "--concurrencies", "1,2")
    assert done.code == 2
    assert "a search and concurrencies are both given" in done.complaint
    assert "a search chooses the levels" in done.complaint
    # Not that the rates lack an end, which would be no help.
    done = gpusize("run", "--adaptive", "--slo", SLO, "--rates", "5,10")
    assert done.code == 2
    assert done.complaint.startswith("--rates: a search and rates are both given. Leave out --adaptive")
    assert "raises the requests in flight" in done.complaint
    done = gpusize("run", "--precision", "5%", "--concurrencies", "1,2")
    assert done.code == 2
    assert "--precision" in done.complaint
    assert not Path("runs").exists()


def test_a_search_cannot_be_drawn_beforehand(gpusize: Gpusize, url: str) -> None:
    asked = ("--slo", "p95 runtime <= 5s", "--most-users", "2", "--quiet", *BARE)
    gpusize("run", "--url", url, "--prompt", "x", "--no-stream", *asked)
    [run] = Path("runs").iterdir()
    done = gpusize("load", "show", "--config", run / "run.json")
    assert done.code == 2
    assert "a search has no load before it runs" in done.complaint
    # Levels of the command line take the place of the search.
    assert gpusize("load", "show", "--config", run / "run.json", "--concurrencies", "1,2").code == 0


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def run(*argv: str | Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "gpusize", *map(str, argv)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen(command, cwd=tmp_path, env=SOURCE, text=True, **pipes))  # type: ignore[call-overload]
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def when_committed(folder: Path, count: int) -> Path:
    """The run folder, once so many of its levels are committed and the next one is open."""
    for _ in range(6000):
        runs = list((folder / "runs").glob("*")) if (folder / "runs").is_dir() else []
        if runs and len(levels(runs[0])) >= count and list(runs[0].glob("levels/.*.open")):
            return runs[0]
        time.sleep(0.01)
    raise AssertionError("the levels never came")


def test_a_killed_search_goes_on_where_it_was(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path, cluster: SimulatedCluster
) -> None:
    process = start(*words(cluster, "--budget", "700", "--quiet"))
    run = when_committed(tmp_path, 4)
    process.kill()
    process.communicate(timeout=60)
    before = [level for level in levels(run) if level["state"] == "done"]
    again = start("run", "--resume", run, "--quiet", "--no-plots")
    _, err = again.communicate(timeout=300)
    assert again.returncode in (0, 1), err
    after = levels(run)
    done = [level for level in after if level["state"] == "done"]
    assert done[: len(before)] == before
    users = [level["setting"]["concurrency"] for level in done if level["search"]["why"] == "grow"]
    # It grows on from the last load that was committed, and does not begin again. On a busy machine a line through the
    # first levels may foresee a capacity, to which it then goes.
    assert users[:3] == [1, 2, 5]
    assert all(b > a for a, b in itertools.pairwise(users))
    assert len({level["step"] for level in after}) == len(after)
    found = gpusize.open_run(run).search
    assert found is not None
    assert found.reason in ("precision", "count", "budget")


def test_what_was_searched_until_ctrl_c_is_kept_and_answered_from(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path, cluster: SimulatedCluster
) -> None:
    process = start(*words(cluster))
    run = when_committed(tmp_path, 6)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    kept = run.relative_to(tmp_path)
    assert f"interrupted; what was measured is kept in {kept}, gpusize run --resume {kept} goes on with it" in err
    assert "it was cut short" in out
    assert "estimate" in out
    assert levels(run)[-1]["state"] in ("cancelled", "done")
    assert (run / "estimate.json").is_file()
