"""Pieces of work as tasks of a real Ray cluster: what comes of them is what comes of them here, whatever is lost."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benches.estimates.judge import ORACLE, Task, run_all
from gpusize.base.errors import EnvironmentLacks, MeasuredNo
from gpusize.base.on_ray.tasks import TRIES, ray_nodes, tasks_on_ray
from gpusize.base.tasks import Threads
from gpusize.estimate.plan.autoscale.tune import tune
from gpusize.estimate.plan.over_time.demand import demand
from gpusize.estimate.plan.over_time.over_time import Planner, planner
from gpusize.estimate.plan.over_time.policies import ScalingRules
from gpusize.report.plans.tuned import tuned_json
from gpusize.result import open_run
from tests.autoscale.test_manifest import FILES
from tests.autoscale.test_simulated import policy
from tests.engine.hosts.ray_cluster import NODES, RayCluster, ray_cluster
from tests.whatif.folder import run_folder

pytestmark = [
    pytest.mark.nodes("a cluster of three Ray nodes, a dozen processes, and one at a time"),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
    # Of Ray's own code.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]

NEEDS = "gpusize.estimate.plan.autoscale.trials"
WITHIN_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    with pytest.MonkeyPatch.context() as patch:
        # Truths of the suite are kept there, by us and by the nodes.
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        with ray_cluster() as found:
            yield found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_folder(tmp_path_factory.mktemp("runs"), first=True)


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("day") / "day.csv"
    place.write_text("time_s,rate_per_s\n0,2\n200,4\n400,11\n600,4\n800,4\n")
    return place


def until(what: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WITHIN_S
    while not what():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def add(numbers: list[int], more: int) -> tuple[int, int]:
    return sum(numbers) + more, os.getpid()


def refuse(number: int) -> int:
    raise MeasuredNo(f"no {number}", "here", "ask for another")


def die_once(marker: str) -> str:
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def die(marker: str) -> None:
    with Path(marker).open("a") as file:
        file.write("x")
    os.kill(os.getpid(), signal.SIGKILL)


def linger(marker: str) -> None:
    Path(marker).touch()
    time.sleep(600)


def test_each_is_a_task_of_its_own_and_answers_come_in_order(cluster: RayCluster) -> None:
    with tasks_on_ray(cluster.address, NEEDS, pytest.fail) as tasks:
        assert tasks.at_once == NODES
        shared = tasks.share(list(range(10)))
        asked = [tasks.submit(add, shared, k) for k in range(40)]
        found = [each.result(WITHIN_S) for each in asked]
        assert [total for total, _ in found] == [45 + k for k in range(40)]
        assert os.getpid() not in {pid for _, pid in found}
        with pytest.raises(MeasuredNo) as caught:
            tasks.submit(refuse, 3).result(WITHIN_S)
    assert (caught.value.what, caught.value.where, caught.value.todo) == ("no 3", "here", "ask for another")


def test_what_is_not_on_a_node_is_named_and_not_tried_again(cluster: RayCluster) -> None:
    module = ModuleType("only_here")
    exec("def given():\n    return 1", module.__dict__)
    with pytest.MonkeyPatch.context() as patch, tasks_on_ray(cluster.address, NEEDS, pytest.fail) as tasks:
        patch.setitem(sys.modules, "only_here", module)
        asked = tasks.submit(module.given)
        with pytest.raises(ModuleNotFoundError, match="only_here"):
            asked.result(WITHIN_S)


def test_a_cluster_without_a_cpu_is_refused() -> None:
    ray: Any = ModuleType("ray")
    ray.nodes = lambda: [{"Alive": True, "Resources": {"memory": 1.0}}, {"Alive": False, "Resources": {"CPU": 8.0}}]
    with pytest.raises(EnvironmentLacks, match="no node of the Ray cluster has a CPU"):
        ray_nodes(ray, NEEDS)


def test_a_task_that_is_lost_is_said_and_done_again(cluster: RayCluster, tmp_path: Path) -> None:
    notes: list[str] = []
    with tasks_on_ray(cluster.address, NEEDS, notes.append) as tasks:
        assert tasks.submit(die_once, str(tmp_path / "once")).result(WITHIN_S) == "done"
        assert len(notes) == 1
        assert "was lost, and is done again" in notes[0]
        with pytest.raises(EnvironmentLacks, match="a task of the Ray cluster was lost"):
            tasks.submit(die, str(tmp_path / "ever")).result(WITHIN_S)
    assert (tmp_path / "ever").read_text() == "x" * TRIES


def test_what_still_runs_ends_with_the_block(cluster: RayCluster, tmp_path: Path) -> None:
    with tasks_on_ray(cluster.address, NEEDS, pytest.fail) as tasks:
        asked = [tasks.submit(linger, str(tmp_path / str(k))) for k in range(3 * NODES)]
        until(lambda: len(list(tmp_path.iterdir())) == NODES)
    assert all(each.done() for each in asked)
    until(lambda: cluster.work() == [])
    assert len(list(tmp_path.iterdir())) == NODES


def test_a_tuning_is_the_same_on_a_cluster(cluster: RayCluster, runs: Path, day: Path) -> None:
    result = open_run(runs)
    made = planner(result.levels, result.question(rate=1.0), demand(day), ScalingRules(start_delay_s=60.0))
    assert isinstance(made, Planner)
    loose = policy(metrics=[{"source": "external", "target": {"average_value": 3000}}])
    here = tune(made, loose, days=5)
    with Threads(1) as one:
        alone = tune(made, loose, days=5, tasks=one)
    with tasks_on_ray(cluster.address, NEEDS, pytest.fail) as tasks:
        there = tune(made, loose, days=5, tasks=tasks)
    assert here.setting is not None
    assert tuned_json(here, loose) == tuned_json(there, loose) == tuned_json(alone, loose)
    assert here.simulations == there.simulations == alone.simulations > 100


def words(runs: Path, day: Path, *more: str) -> list[str]:
    signals = ["--policy", str(FILES / "hpa.yaml"), "--signal", "running=sum(running)"]
    tuned = [sys.executable, "-m", "gpusize", "autoscale", "tune", str(runs), "--arrivals", str(day), "--json"]
    return [*tuned, *signals, *more]


def test_the_command_prints_the_same_bytes(cluster: RayCluster, runs: Path, day: Path, tmp_path: Path) -> None:
    said = []
    for name, more in (("here", []), ("there", ["--ray", cluster.address])):
        asked = words(runs, day, "--days", "5", "--write", str(tmp_path / name), *more)
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        said.append((done.returncode, done.stdout, done.stderr))
    assert said[0] == said[1]
    assert json.loads(said[0][1])["simulations"] > 10
    written = [place.read_bytes() if place.exists() else None for place in (tmp_path / "here", tmp_path / "there")]
    assert written[0] == written[1]
    until(lambda: cluster.work() == [])


def test_ctrl_c_leaves_no_task(cluster: RayCluster, runs: Path, day: Path) -> None:
    asked = words(runs, day, "--days", "200", "--ray", "auto")
    with subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            until(lambda: bool(cluster.work()) or running.poll() is not None)
            running.send_signal(signal.SIGINT)
            said = running.communicate(timeout=WITHIN_S)
        finally:
            running.kill()
    assert running.returncode == 130, said
    until(lambda: cluster.work() == [])


def test_questions_of_the_suite_are_judged_the_same(cluster: RayCluster) -> None:
    tasks = [Task(7, number, ("crossing", ORACLE)) for number in range(3)]
    here = list(run_all(tasks, 1))
    there = list(run_all(tasks, 1, cluster.address))

    def plain(found: list[Any]) -> list[list[dict[str, Any]]]:
        return [[{**asdict(each), "cpu_s": None} for each in outcomes] for outcomes in found]

    assert plain(here) == plain(there)
    assert sum(map(len, here)) >= 4
