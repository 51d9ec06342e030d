"""What a run says while it goes on: notes when they are known, one last word per level."""

from __future__ import annotations

from tests.cli.conftest import Gpusize

SWEEP = ("--prompt", "x", "--no-stream", "--metrics-url", "none", "--metrics-port", "0", "--no-plots")


def test_where_the_metrics_are_is_told_before_the_first_level(gpusize: Gpusize, url: str) -> None:
    done = gpusize("run", "--url", url, *SWEEP, "--concurrencies", "1,2", "--passes", "2")
    lines = done.err.splitlines()
    [told] = [
        k for k, line in enumerate(lines) if line.startswith("gpusize: the run's metrics are at http://127.0.0.1:")
    ]
    levels = [k for k, line in enumerate(lines) if line.startswith("level ")]
    assert len(levels) == 2
    assert told < levels[0]


def test_quiet_says_none_of_it(gpusize: Gpusize, url: str) -> None:
    done = gpusize("run", "--url", url, *SWEEP, "--concurrencies", "1", "--passes", "2", "--quiet")
    assert done.err == ""


def test_saturation_is_no_rule_for_a_closed_loop(gpusize: Gpusize, url: str) -> None:
    done = gpusize("run", "--url", url, *SWEEP, "--concurrencies", "1", "--passes", "2", "--stop-when", "saturation")
    assert done.code == 2
    assert "saturation is seen at rates" in done.err
