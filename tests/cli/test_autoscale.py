"""``gpusize autoscale simulate`` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.autoscale.test_manifest import FILES
from tests.cli.conftest import Gpusize
from tests.whatif.folder import run_folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_folder(tmp_path_factory.mktemp("runs"), first=True)


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("day") / "day.csv"
    place.write_text("time_s,rate_per_s\n0,2\n600,12\n1200,2\n1800,2\n")
    return place


def test_a_row_for_each_policy_beside_static_and_planned(gpusize: Gpusize, run: Path, day: Path) -> None:
    keda = "--signal", "running=sum(running)"
    files = "--policy", FILES / "hpa.yaml", "--policy", FILES / "scaledobject.yaml"
    done = gpusize("autoscale", "simulate", run, "--arrivals", day, *files, *keda, "--out", "day", "--plot", "day.svg")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    rows = lines[next(k for k, line in enumerate(lines) if line.startswith("──")) + 1 :]
    names = [line.split()[0] for line in rows[:4]]
    assert names == ["static", "planned", "llama-queue", "llama-keda"]
    assert "too few" in done.out
    assert "llama-keda: its polling interval has no effect" in done.err
    document = json.loads(Path("day/over_time.json").read_text())
    assert [each["policy"] for each in document["courses"]] == names
    assert Path("day.svg").stat().st_size > 1000


def test_no_policy_that_is_enough_is_exit_code_1(gpusize: Gpusize, run: Path, day: Path) -> None:
    text = (FILES / "hpa.yaml").read_text().replace("maxReplicas: 12", "maxReplicas: 1")
    Path("one.yaml").write_text(text)
    done = gpusize("autoscale", "simulate", run, "--arrivals", day, "--policy", "one.yaml", "--json")
    assert done.code == 1
    assert "no autoscaler meets the SLOs over the whole trace" in done.err
    assert json.loads(done.out)["courses"][2]["keeps_slos"] is False


def test_two_policies_of_one_name_are_told_apart(gpusize: Gpusize, run: Path, day: Path) -> None:
    for name in ("a", "b"):
        Path(f"{name}.yaml").write_text((FILES / "hpa.yaml").read_text())
    files = "--policy", "a.yaml", "--policy", "b.yaml", "--policy", "b.yaml"
    done = gpusize("autoscale", "simulate", run, "--arrivals", day, *files, "--json")
    names = [each["policy"] for each in json.loads(done.out)["courses"][2:]]
    assert names == ["llama-queue (a)", "llama-queue (b)", "llama-queue (b) #2"]


@pytest.mark.parametrize(
    "words, problem",
    [
        (("--policy", "none.yaml"), "none.yaml"),
        (("--policy", FILES / "hpa.yaml", "--signal", "x"), '"x" is no signal'),
        (("--policy", FILES / "scaledobject.yaml"), "triggers[0]: this query cannot be simulated"),
        (("--policy", FILES / "hpa.yaml", "--sync-period", "0"), "sync"),
        (("--policy", FILES / "hpa.yaml", "--at-zero", "drop"), "Take hold or refuse"),
        (("--policy", FILES / "hpa.yaml", "--hold-timeout", "0s"), "--hold-timeout must be positive"),
        (("--policy", FILES / "hpa.yaml", "--metrics-outage", "5m"), '"5m" is no stretch of time'),
        (("--policy", FILES / "hpa.yaml", "--metrics-outage", "5m..4m"), "ends before it begins"),
        (("--policy", FILES / "hpa.yaml", "--slo", "p5 output_rate >= 10 tok/s"), "cannot be judged over time"),
        ((), "--policy"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    gpusize: Gpusize, run: Path, day: Path, words: tuple[object, ...], problem: str
) -> None:
    done = gpusize("autoscale", "simulate", run, "--arrivals", day, *words)
    assert done.code == 2
    assert problem in done.err
    assert "Traceback" not in done.err


def test_tuning_writes_the_manifest(gpusize: Gpusize, run: Path, day: Path) -> None:
    words = "--arrivals", day, "--policy", FILES / "hpa.yaml", "--days", "5"
    done = gpusize("autoscale", "tune", run, *words, "--write", "tuned.yaml")
    assert done.code == 0, done.err
    assert done.out.startswith("llama-queue: targets ")
    assert "targets x 1.25" in done.out
    assert "on 5 days like" in done.out
    assert "kind: Deployment" in Path("tuned.yaml").read_text()


def test_nothing_is_written_where_no_setting_is_enough(gpusize: Gpusize, run: Path, day: Path) -> None:
    Path("one.yaml").write_text((FILES / "hpa.yaml").read_text().replace("maxReplicas: 12", "maxReplicas: 1"))
    done = gpusize("autoscale", "tune", run, "--arrivals", day, "--policy", "one.yaml", "--write", "tuned.yaml")
    assert done.code == 1
    assert "no setting of llama-queue keeps the SLOs" in done.out
    assert not Path("tuned.yaml").exists()
    both = "--policy", FILES / "hpa.yaml", "--policy", FILES / "hpa.yaml"
    assert gpusize("autoscale", "tune", run, "--arrivals", day, *both).code == 2
    few = gpusize("autoscale", "tune", run, "--arrivals", day, "--policy", "one.yaml", "--days", "4")
    assert few.code == 2
    assert "4 days tell no spread between days" in few.err
