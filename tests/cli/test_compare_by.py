"""``gpusize compare --by``: runs grouped by GPUs or by a label, against the records themselves."""

from __future__ import annotations

import json
import math
from pathlib import Path

import polars as pl
import pytest

import gpusize as package
from tests.cli.conftest import Gpusize
from tests.estimate.virtual import level
from tests.whatif.folder import stored

USERS = 24
FACTORS = {1: 1.0, 2: 0.55, 4: 0.4}
"""By GPUs, how long a request of the simulated cluster takes against one."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    day = 0
    for gpus, slowness in FACTORS.items():
        for k in range(3):
            day += 1
            known = [level(USERS, requests=200, slowness=slowness, seed=100 * gpus + k)]
            about = {"schema": 1, "run": f"run-{gpus}-{k}", "created": f"2026-11-{day:02d}T00:00:00Z"}
            about |= {"targets": [{"gpus": gpus}], "labels": {"device": "gpu" if gpus > 1 else "cpu"}}
            stored(out, about, known)
    return out


def rate(run: Path) -> float:
    """Answers a second in the steady window, by the records as they lie there."""
    meta = json.loads((run / "levels" / "0000" / "level.json").read_text())
    [window] = [each for each in meta["intervals"] if each["name"] == "steady"]
    rows = pl.read_parquet(run / "levels" / "0000" / "records" / "*.parquet")
    ended = rows.filter((pl.col("outcome") == 0) & pl.col("end_ns").is_between(window["start_ns"], window["end_ns"]))
    return float(ended.height / ((window["end_ns"] - window["start_ns"]) / 1e9))


def test_speed_ups_are_those_of_the_records(gpusize: Gpusize, runs: Path) -> None:
    done = gpusize("compare", runs, "--by", "gpus", "--figure", "achieved rate", "--json")
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    assert [each["name"] for each in document["sides"]] == ["1 GPU", "2 GPUs", "4 GPUs"]
    logs = {gpus: [math.log(rate(runs / f"run-{gpus}-{k}")) for k in range(3)] for gpus in FACTORS}
    means = {gpus: sum(each) / len(each) for gpus, each in logs.items()}
    assert [each["count"] for each in document["scaled"]] == [2, 4]
    for each in document["scaled"]:
        by_hand = math.exp(means[each["count"]] - means[1])
        assert each["speed_up"] == pytest.approx(by_hand, rel=0.03)
        assert each["low"] < each["speed_up"] < each["high"]
        assert each["ideal"] == each["count"]
        assert each["efficiency"] == pytest.approx(each["speed_up"] / each["count"])
        assert each["speed_up"] == pytest.approx(1 / FACTORS[each["count"]], rel=0.1)


def test_the_table_says_it_and_so_does_python(gpusize: Gpusize, runs: Path) -> None:
    done = gpusize("compare", runs, "--by", "gpus")
    assert done.code == 0
    assert "speed-up" in done.out
    assert "efficiency" in done.out
    markdown = gpusize("compare", runs, "--by", "gpus", "--format", "md").out
    assert "| side | load | figure | speed-up |" in markdown.replace("  ", " ")
    found = package.compare({"all": runs}, by="gpus")
    assert {each.side for each in found.scaled} == {"2 GPUs", "4 GPUs"}


def test_a_label_groups_and_words_have_no_speed_up(gpusize: Gpusize, runs: Path) -> None:
    some = [runs / f"run-{gpus}-{k}" for gpus in (1, 2) for k in range(3)]
    done = gpusize("compare", *some, "--by", "device", "--json")
    assert done.code == 0
    document = json.loads(done.out)
    assert [(each["name"], each["runs"]) for each in document["sides"]] == [("device cpu", 3), ("device gpu", 3)]
    assert document["scaled"] == []
    assert document["law"] is None


def test_runs_of_two_and_of_four_gpus_are_no_repeats(gpusize: Gpusize, runs: Path) -> None:
    done = gpusize("compare", runs, "--by", "device")
    assert done.code == 2
    assert "the runs of device gpu are not repeats of each other: gpus is 2, 4" in done.complaint


def test_costs_are_those_of_the_records(gpusize: Gpusize, runs: Path) -> None:
    done = gpusize("compare", runs, "--by", "gpus", "--gpu-hour-price", "2.5 EUR", "--json")
    costs = [each for each in json.loads(done.out)["spent"] if each["figure"] == "cost per million requests"]
    assert [each["side"] for each in costs] == ["1 GPU", "2 GPUs", "4 GPUs"]
    for each, gpus in zip(costs, FACTORS, strict=True):
        logs = [math.log(rate(runs / f"run-{gpus}-{k}")) for k in range(3)]
        assert each["value"] == pytest.approx(1e6 * 2.5 * gpus / (3600 * math.exp(sum(logs) / 3)), rel=0.03)
        assert each["unit"] == "EUR"
        assert each["low"] < each["value"] < each["high"]
    alone = gpusize("compare", runs / "run-1-0", runs / "run-1-1", "--gpu-hour-price", "2")
    assert alone.code == 2
    assert "costs are of grouped runs" in alone.complaint


def test_files_hold_what_is_said(gpusize: Gpusize, runs: Path, tmp_path: Path) -> None:
    done = gpusize("compare", runs, "--by", "gpus", "--out", tmp_path / "out", "--json")
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    assert json.loads((tmp_path / "out" / "comparison.json").read_text()) == document
    for name in ("differences", "scaled", "spent"):
        frame = pl.read_parquet(tmp_path / "out" / f"{name}.parquet")
        assert frame.height == len(document[name])
        assert pl.read_csv(tmp_path / "out" / f"{name}.csv").height == frame.height
    drawn = {each.name for each in (tmp_path / "out" / "plots").iterdir()}
    kinds = ("rate", "output_rate", "runtime", "spent", "counts", "ecdf-24-users")
    assert drawn == {f"{kind}.{suffix}" for kind in kinds for suffix in ("png", "svg")}
    shown = gpusize("compare", runs, "--by", "gpus", "--out", tmp_path / "again")
    assert str(tmp_path / "again" / "plots" / "rate.png") in shown.out


def test_runs_that_do_not_say_it_or_all_say_the_same(gpusize: Gpusize, runs: Path) -> None:
    done = gpusize("compare", runs, "--by", "instances")
    assert done.code == 2
    assert "it has no label instances" in done.complaint
    one = gpusize("compare", runs / "run-1-0", runs / "run-1-1", "--by", "gpus")
    assert one.code == 2
    assert "all runs have gpus 1" in one.complaint


def test_the_gpus_of_tracccs_study(gpusize: Gpusize, tmp_path: Path) -> None:
    """Its own figures: one A100 carried 11.70 events/s and four 26.87, at concurrencies that perf_analyzer sorted."""
    rows = json.loads((Path(__file__).parents[1] / "fixtures" / "traccc" / "scaling.json").read_text())["rows"]
    for gpus in (1, 4):
        table = sorted((row[1:6] for row in rows if row[0] == gpus), key=lambda row: -row[1])
        lines = ["Concurrency,Inferences/Second,Server Queue,Server Compute Infer,p50 latency"]
        file = tmp_path / f"{gpus}.csv"
        file.write_text("\n".join([*lines, *(",".join(map(str, row)) for row in table)]) + "\n")
        done = gpusize("import", "perf_analyzer", file, "--gpus", str(gpus), "--out", tmp_path / "runs")
        assert done.code == 0
    found = gpusize("compare", tmp_path / "runs", "--by", "gpus", "--gpu-hour-price", "1", "--json")
    document = json.loads(found.out)
    rates = {(row[0], row[1]): row[2] for row in rows}
    at_load = {each["load"]: each for each in document["scaled"] if each["per"] == "load"}
    for name, each in at_load.items():
        users = int(name.split()[0])
        assert each["speed_up"] == pytest.approx(rates[4, users] / rates[1, users])
    assert at_load["8 users"]["speed_up"] == pytest.approx(2.30, abs=0.005)
    # Two users on one GPU against eight on four.
    [each] = [each for each in document["scaled"] if each["load"] == "2 users per GPU"]
    assert each["speed_up"] == pytest.approx(rates[4, 8] / rates[1, 2])
    costs = {(each["side"], each["load"]): each["value"] for each in document["spent"] if "cost" in each["figure"]}
    assert costs["4 GPUs", "8 users"] == pytest.approx(1e6 * 4 / (3600 * rates[4, 8]))
    assert document["law"]["why_not"] == "it takes 3 counts or more, and 2 show their most"
    assert document["law"]["measured"][1]["speed_up"]["value"] == pytest.approx(26.87 / 11.70, abs=0.01)
