"""``gpusize simulate`` with replicas over time, and its help."""

from __future__ import annotations

from tests.cli.conftest import Gpusize


def test_bad_replicas_are_pointed_at(gpusize: Gpusize) -> None:
    done = gpusize("simulate", "--replicas", "1@0s,two@30s")
    assert done.code == 2
    assert 'replicas, column 6: "two@30s" is no COUNT@TIME' in done.complaint
    assert "1@0s,2@30s" in done.complaint


def test_more_replicas_than_gpus_are_refused(gpusize: Gpusize) -> None:
    done = gpusize("simulate", "--gpus", "2", "--replicas", "1@0s,3@30s")
    assert done.code == 2
    assert "replicas[1].replicas of the simulated cluster must be between 1 and gpus (2), not 3" in done.complaint


def test_a_bad_start_delay_is_refused(gpusize: Gpusize) -> None:
    done = gpusize("simulate", "--replicas", "1@0s", "--start-delay", "soon")
    assert done.code == 2
    assert '"soon" is not a duration' in done.complaint


def test_the_help_shows_how(gpusize: Gpusize) -> None:
    done = gpusize("simulate", "--help")
    assert done.code == 0
    for said in (
        "--replicas",
        "--start-delay",
        "COUNT@TIME",
        "gpusize simulate --replicas '1@0s,2@30s' --start-delay 5s",
    ):
        assert said in done.out, said
