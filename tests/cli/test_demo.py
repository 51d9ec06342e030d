"""Without a target: a simulated cluster, measured and compared with its own truth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpusize.options import demo
from tests.cli.conftest import Gpusize


def test_without_a_target_a_cluster_is_sized_and_its_truth_stands_beside(gpusize: Gpusize) -> None:
    done = gpusize("run", "--concurrencies", "1,2,4", "--count", "12", "--max-tokens", "8", "--json", "--no-plots")
    document = json.loads(done.out)
    assert document["truth"]["gpus"] >= 1
    # The true answer is one about users, and beside no other question.
    others = [
        gpusize("estimate", "runs", *asked, "--json").out for asked in (("--users", "20"), ("--token-rate", "100"))
    ]
    assert [json.loads(each)["truth"] is None for each in others] == [False, True]
    assert {each["method"] for each in document["estimates"]} == {"twin", "slope", "crossing"}
    assert [row["concurrency"] for row in document["summary"]] == [1, 2, 4]
    meta = json.loads((Path(document["path"]) / "run.json").read_text())
    assert meta["targets"][0]["simulated"] == demo.CLUSTER
    assert meta["targets"][0]["gpus"] == 2
    again = gpusize("run", "--config", Path(document["path"]) / "run.json", "--out", "again", "--quiet", "--no-plots")
    [path] = Path("again").iterdir()
    repeated = json.loads((path / "run.json").read_text())
    assert again.code in (0, 1), again.err
    for name in ("dataset", "levels", "options", "seed"):
        assert repeated[name] == meta[name], name
    pooled = gpusize("estimate", "again", Path(document["path"]), "--json")
    assert len(json.loads(pooled.out)["summary"]) == 6


def test_gpus_without_a_target_sizes_the_cluster(gpusize: Gpusize) -> None:
    gpusize("run", "--gpus", "5", "--concurrencies", "1", "--count", "3", "--max-tokens", "2", "--no-plots", "--quiet")
    [path] = Path("runs").iterdir()
    [target] = json.loads((path / "run.json").read_text())["targets"]
    assert (target["gpus"], target["simulated"]["gpus"]) == (5, 5)


def test_rates_without_a_target_ask_for_no_users(gpusize: Gpusize) -> None:
    done = gpusize("run", "--rates", "50", "--count", "5", "--max-tokens", "2", "--json", "--no-plots", "--quiet")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["estimates"] == []
    assert [row["rate"] for row in document["summary"]] == [50.0]


@pytest.mark.slow
def test_the_demo_as_it_is_finds_the_truth(gpusize: Gpusize) -> None:
    done = gpusize("run", "--json", "--quiet")
    document = json.loads(done.out)
    assert done.code == 0
    assert document["truth"]["gpus"] == 3
    crossing = next(each for each in document["estimates"] if each["method"] == "crossing")
    assert abs(crossing["gpus"] - 3) <= 1
