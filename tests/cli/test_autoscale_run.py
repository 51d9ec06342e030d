"""``gpusize autoscale run`` from the command line."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Gpusize
from tests.study.test_experiment import FILE, write


def test_a_dry_run_says_what_would_be_done(gpusize: Gpusize, tmp_path: Path) -> None:
    done = gpusize("autoscale", "run", write(tmp_path, FILE), "--dry-run")
    assert done.code == 0
    for line in (
        "stage     30/s@10s",
        "stage     120/s@30s",
        "series    hpa/replicas_desired",
        "series    series/spot",
    ):
        assert line in done.out
    assert not (tmp_path / "runs").exists()


def test_a_mistake_is_pointed_at(gpusize: Gpusize, tmp_path: Path) -> None:
    file = write(tmp_path, FILE.replace("profile: stair", "profile: stare"))
    done = gpusize("autoscale", "run", file)
    assert done.code == 2
    assert f'{file}:5:3: there is no profile "stare". Did you mean "stair"?' in done.complaint
