"""``gpusize autoscale report`` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.autoscale.judged import run_of, scraped, simulated, stages
from tests.cli.conftest import Gpusize

RATES = [(300.0, 1.0), (300.0, 5.0), (300.0, 2.0)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    truth = simulated(RATES, seed=4)
    found = run_of(tmp_path / "runs", stages(RATES, truth), slo=["p95 runtime <= 3s"])
    scraped(truth).write(found / "series")
    return found


def test_it_prints_and_writes(gpusize: Gpusize, run: Path) -> None:
    done = gpusize("autoscale", "report", run, "--gpus-per-replica", "2", "--gpu-hour-price", "2 EUR")
    assert done.code == 0, done.err
    for part in (
        "SLO kept: 100% of the requests within p95 runtime <= 3s",
        "1 to 5/s",
        "the whole run",
        "not known: no runs say",
    ):
        assert part in done.out
    told = json.loads((run / "autoscale.json").read_text())
    assert told["paid"]["cost"] == pytest.approx(2 * told["paid"]["gpu_hours"])
    assert told["gpus_per_replica"] == 2
    assert {each.name for each in (run / "plots").iterdir()} == {"autoscale.png", "autoscale.svg"}


def test_a_missed_slo_is_a_no(gpusize: Gpusize, run: Path, tmp_path: Path) -> None:
    more = "--json", "--no-plots", "--out", tmp_path / "out", "--window", "30s"
    done = gpusize("autoscale", "report", run, "--slo", "p95 runtime <= 510ms", *more)
    assert done.code == 1
    told = json.loads(done.out)
    assert told == json.loads((tmp_path / "out" / "autoscale.json").read_text())
    assert told["keeps_slos"] is False
    assert told["windows"]["window_s"] == 30
    assert "SLO missed" in done.err
    assert not (run / "plots").exists()


def test_what_is_missing_is_said(gpusize: Gpusize, run: Path, tmp_path: Path) -> None:
    done = gpusize("autoscale", "report", run, "--pulled", tmp_path / "nowhere")
    assert done.code == 2
    assert "not a folder of pulled series" in done.err
    assert gpusize("autoscale", "report", run.parent / "none").code == 2
    assert gpusize("autoscale", "report", run, "--slo", "mean runtime <= 1s").code == 2
