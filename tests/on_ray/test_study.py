"""A study on a real Ray cluster: the same folders, runs and table as here, and nothing left of what it has started."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gpusize
from gpusize.studies.conduct import Interrupts
from gpusize.studies.one_combination import measured
from gpusize.studies.spec import read_study
from gpusize.studies.task import Task
from tests.engine.hosts.ray_cluster import NODES, RayCluster, ray_cluster

pytestmark = [
    pytest.mark.nodes("a cluster of three Ray nodes, a dozen processes, and one at a time"),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
    # Of Ray's own code.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]

WITHIN_S = 90.0
STAMP = "import sys, time; open(sys.argv[1], 'w').write(str(time.monotonic()))"
SMALL: dict[str, Any] = {
    "settings": {"gpus": [1, 2], "more": ["a", "b"]},
    "setup": f'{{python}} -c "{STAMP}" {{work}}/begun',
    "serve": "sleep 600",
    "run": {"concurrencies": [1, 2], "count": 20, "max_tokens": 4, "plots": False, "drain": "0s"},
    "teardown": [f'{{python}} -c "{STAMP}" {{work}}/ended', "{python} -c \"raise SystemExit('{gpus}{more}' == '2b')\""],
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster() as found:
        yield found


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.chdir(tmp_path)

    def write(**members: Any) -> str:
        (tmp_path / "study.json").write_text(json.dumps({**SMALL, **members}), "utf-8")
        return "study.json"

    return write


def until(what: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WITHIN_S
    while not what():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def started(cluster: RayCluster) -> list[str]:
    """What actors of studies, and the programs and commands that they start, are called; not the waiting of `ps`."""
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and f"TMPDIR={cluster.folder}".encode() in (process / "environ").read_bytes():
                words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                parts = ("ray::GpusizeStudy", "one_combination", "sleep 600", "guardian")
                found += [words] * any(part in words for part in parts)
    return found


def is_empty(cluster: RayCluster) -> None:
    until(lambda: started(cluster) == [] and cluster.files() == [])


def words(file: str, *more: str) -> list[str]:
    return [sys.executable, "-m", "gpusize", "study", file, *more]


def done(file: str, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words(file, *more), capture_output=True, text=True, check=False, timeout=WITHIN_S)


def state(out: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(Path(out, "study.json").read_text("utf-8"))["combinations"]
    return found


def layout(out: str) -> list[str]:
    """Every file of a study's folder; a run's is called by its combination."""
    names = {entry["run"]: name for name, entry in state(out).items() if "run" in entry}
    files = (path.relative_to(out) for path in Path(out).rglob("*") if path.is_file())
    found = []
    for file in files:
        first, *rest = file.parts
        found.append("/".join([names.get(first, first), *rest]))
    return sorted(found)


def test_the_folder_is_that_of_a_study_without_a_cluster(cluster: RayCluster, file: Callable[..., str]) -> None:
    here = done(file(), "--out", "here", "--json")
    there = done(file(), "--out", "there", "--json", "--ray", "auto")
    assert (here.returncode, there.returncode) == (1, 1), there.stderr
    tables = [json.loads(each.stdout)["combinations"] for each in (here, there)]
    for mine, theirs in zip(*tables, strict=True):
        same = ("name", "settings", "state")
        assert [mine[each] for each in same] == [theirs[each] for each in same]
        # Which level was the fastest is measured, and a busy machine has its say in it.
        assert (theirs["peak_rate"] > 0, theirs["at"] in SMALL["run"]["concurrencies"]) == (True, True)
    assert layout("here") == layout("there")
    assert list(state("here")) == list(state("there"))
    for name, mine in state("here").items():
        theirs = state("there")[name]
        assert {each: theirs[each] for each in ("settings", "state")} == {
            each: mine[each] for each in ("settings", "state")
        }
        # It names the log where it lies now.
        assert theirs.get("teardown_error", "").replace("/there/", "/here/") == mine.get("teardown_error", "")
        assert (theirs["node"].startswith("127.0.0."), theirs.keys() - mine.keys()) == (True, {"node"})
        runs = [gpusize.open_run(Path(out, state(out)[name]["run"])) for out in ("here", "there")]
        # What was sent is drawn from the same seed, whichever machine sends it.
        sent = [[each.records.select("seq", "row").collect().sort("seq") for each in run.levels] for run in runs]
        for a, b in zip(*sent, strict=True):
            assert a.equals(b)
        assert runs[0].meta["labels"] == {**runs[1].meta["labels"], "study": "study"}
    # The one that could not be torn down is named, in both.
    assert [each for each in state("there").values() if each.get("teardown_error")]
    assert "2 of 4, on 127.0.0." in there.stderr
    is_empty(cluster)
    # One at a time on each node, and several nodes at a time.
    spans = defaultdict(list)
    for name, entry in state("there").items():
        begun, ended = (float(Path("there/work", name, each).read_text()) for each in ("begun", "ended"))
        spans[entry["node"]].append((begun, ended))
    assert len(spans) == NODES
    for of_one in spans.values():
        ordered = sorted(of_one)
        assert all(before[1] < after[0] for before, after in itertools.pairwise(ordered))
    every = sorted(span for of_one in spans.values() for span in of_one)
    assert any(after[0] < before[1] for before, after in itertools.pairwise(every))


LONG = {
    "settings": {"n": [1, 2]},
    "run": {"rates": [20], "duration": "10m", "max_tokens": 4, "plots": False, "drain": "0s"},
    "teardown": f'{{python}} -c "{STAMP}" {{work}}/ended',
}


def running_levels(cluster: RayCluster) -> int:
    return len(list(cluster.folder.glob("gpusize-agent-*/study/*/levels/.*.open/records/*")))


def test_ctrl_c_tears_down_everywhere_and_it_goes_on_afterwards(cluster: RayCluster, file: Callable[..., str]) -> None:
    asked = words(file(**LONG), "--out", "s", "--ray", "auto")
    with subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            until(lambda: running_levels(cluster) >= 2 or running.poll() is not None)
            running.send_signal(signal.SIGINT)
            said = running.communicate(timeout=WITHIN_S)
        finally:
            running.kill()
    assert running.returncode == 130, said
    is_empty(cluster)
    before = state("s")
    assert [entry["state"] for entry in before.values()] == ["interrupted", "interrupted"]
    assert all(Path("s/work", name, "ended").exists() for name in before)
    runs = [gpusize.open_run(Path("s", entry["run"])) for entry in before.values()]
    for run in runs:
        (level,) = run.levels
        assert level.meta["stop_reason"] in ("stopped", "cancelled")
        assert level.meta["rows"] > 0
    again = subprocess.Popen(words("study.json", "--out", "s", "--ray", "auto", "--resume"), stderr=subprocess.PIPE)
    try:
        until(lambda: running_levels(cluster) >= 2 or again.poll() is not None)
        assert again.poll() is None
        # Killed, it can say nothing to anybody: yet all is torn down and taken away.
        again.kill()
        again.communicate()
    finally:
        again.kill()
    is_empty(cluster)


def test_what_is_missing_is_measured_by_a_resumed_study(cluster: RayCluster, file: Callable[..., str]) -> None:
    marker = Path("ready").absolute()
    needs = f"{{python}} -c \"import os; raise SystemExit({{gpus}} == 2 and not os.path.exists('{marker}'))\""
    name = file(settings={"gpus": [1, 2]}, setup=needs, teardown=[])
    first = done(name, "--out", "s", "--ray", "auto")
    assert first.returncode == 1
    assert state("s")["gpus=2"]["error"].startswith("setup ended with status 1")
    assert str(Path("s/work/gpus=2/setup.log").absolute()) in state("s")["gpus=2"]["error"]
    kept = state("s")["gpus=1"]
    marker.touch()
    again = done(name, "--out", "s", "--ray", "auto", "--resume")
    assert again.returncode == 0, again.stderr
    assert "gpus=1: done before" in again.stderr
    assert state("s")["gpus=1"] == kept
    assert state("s")["gpus=2"]["state"] == "done"
    is_empty(cluster)


def test_a_folder_that_a_node_lacks_is_named(tmp_path: Path) -> None:
    # Another mount namespace would be needed to lack it for real: the node is asked to go where nothing is.
    file = tmp_path / "one.json"
    file.write_text(json.dumps({"run": SMALL["run"]}))
    found = measured(Task(read_study(file), str(tmp_path / "none")), tmp_path / "study", Interrupts())
    assert found["entry"]["state"] == "failed"
    assert "is not on this node" in found["entry"]["error"]


def test_a_node_that_dies_is_named_and_its_combination_measured_elsewhere(
    cluster: RayCluster, file: Callable[..., str], tmp_path: Path
) -> None:
    # The last one: afterwards the cluster has a node less.
    said = tmp_path / "said"
    slow = {"rates": [20], "duration": "8s", "max_tokens": 4, "plots": False}
    asked = words(file(settings={"n": [1, 2, 3]}, run=slow, teardown=[]), "--out", "s", "--ray", "auto")
    with said.open("w") as sink, subprocess.Popen(asked, stdout=sink, stderr=sink) as running:
        try:
            until(lambda: running_levels(cluster) >= NODES or running.poll() is not None)
            assert running.poll() is None, said.read_text()
            cluster.cluster.remove_node(cluster.nodes.pop(), allow_graceful=False)
            running.wait(WITHIN_S)
        finally:
            running.kill()
    text = said.read_text()
    assert running.returncode == 0, text
    assert "127.0.0.4 was lost" in text
    assert "it is measured again" in text
    entries = state("s")
    assert [entry["state"] for entry in entries.values()] == ["done"] * 3
    assert "127.0.0.4" not in {entry["node"] for entry in entries.values()}
    rows = [gpusize.open_run(Path("s", entry["run"])).levels[0].meta["due"] for entry in entries.values()]
    assert rows == [rows[0]] * 3
    is_empty(cluster)
