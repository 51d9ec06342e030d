"""``gpusize simulate`` with replicas over time, and its help."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Gpusize


def test_bad_replicas_are_pointed_at(gpusize: Gpusize) -> None:
    done = gpusize("simulate", "--replicas", "1@0s,two@30s")
    assert done.code == 2
    assert 'replicas, column 6: "two@30s" is no COUNT@TIME' in done.complaint
    assert "1@0s,2@30s" in done.complaint


def test_more_replicas_than_gpus_are_refused(gpusize: Gpusize) -> None:
    done = gpusize("simulate", "--gpus", "2", "--replicas", "1@0s,3@30s")
    assert done.code == 2
    assert "--replicas: 3 replicas are wanted, and the simulated cluster has 2 GPUs" in done.complaint


def test_a_bad_start_delay_is_refused(gpusize: Gpusize) -> None:
    done = gpusize("simulate", "--replicas", "1@0s", "--start-delay", "soon")
    assert done.code == 2
    assert '--start-delay: "soon" is not a duration' in done.complaint


@pytest.mark.parametrize(
    "option, value, expected",
    [
        ("--stall", "often", '--stall: "often" is not a duration'),
        ("--stall", "2d", "--stall: a stall of 2d is longer than a day"),
        ("--fail-rate", "1.5", "--fail-rate: 1.5 is not a share of requests"),
        ("--malformed", "nan", "--malformed: nan is not a share of requests"),
        ("--gpus", "0", '--gpus: "0" is not a whole number from 1 to 100000'),
        ("--max-batch", "-1", '--max-batch: "-1" is not a whole number from 1 to 1000000'),
        ("--output-tokens", "0", '--output-tokens: "0" is not a whole number from 1 to 2147483647'),
        ("--seed", "-1", '--seed: "-1" is not a whole number from 0 to 9223372036854775807'),
        ("--cluster", "{", "--cluster: broken JSON"),
    ],
)
def test_what_cannot_be_meant(gpusize: Gpusize, option: str, value: str, expected: str) -> None:
    done = gpusize("simulate", f"{option}={value}")
    assert done.code == 2
    assert expected in done.complaint


def test_the_help_shows_how(gpusize: Gpusize) -> None:
    done = gpusize("simulate", "--help")
    assert done.code == 0
    for said in (
        "--replicas",
        "--start-delay",
        "N@TIME",
        "gpusize simulate --replicas '1@0s,2@30s' --start-delay 5s",
    ):
        assert said in done.out, said
