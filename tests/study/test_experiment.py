"""Experiments on an autoscaler: their files, and what becomes of one whose server of series fails."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from gpusize.api import judged_autoscaler
from gpusize.api.experiment import _judged, run_experiment
from gpusize.api.pull import Server
from gpusize.base.errors import ConfigError, TargetError, UsageError
from gpusize.result import Result, open_run
from gpusize.studies.experiment import read_experiment
from gpusize.targets.simulated.cluster import SimulatedCluster
from tests.series.double import Asked, Double, html, matrix, refusal
from tests.virtual_time import VirtualClock

FILE = """\
run:
  url: http://127.0.0.1:8000/v1
  model: m
  prompt: Hello
  profile: stair
  speed: 60
  slo: p95 ttft <= 2s
  prometheus: http://127.0.0.1:9090
presets: [vllm, hpa]
series:
  spot: sum(up)
needed: [here]
gpus-per-replica: 2
gpu-hour-price: 2.5 EUR
window: 30s
"""


def write(folder: Path, text: str) -> Path:
    (folder / "here").mkdir(exist_ok=True)
    file = folder / "experiment.yaml"
    file.write_text(text, "utf-8")
    return file


def test_a_file_is_read(tmp_path: Path) -> None:
    found = read_experiment(write(tmp_path, FILE))
    assert found.run["profile"] == "stair"
    assert found.presets == ("vllm", "hpa")
    assert found.series == ("spot=sum(up)",)
    assert found.needed == (tmp_path / "here",)
    assert (found.gpus_per_replica, found.gpu_hour_price) == (2, "2.5 EUR")
    assert (found.window_s, found.margin_s, found.step_s) == (30.0, 60.0, 15.0)


@pytest.mark.parametrize(
    "old, new, line, what",
    [
        ("presets: [vllm, hpa]", "presets: [vlm]", 9, 'there is no preset "vlm"'),
        ("spot: sum(up)", "running: sum(up)", 10, "running is a series of vllm already"),
        ("series:\n  spot: sum(up)", "series: [up]", 10, "Write NAME: PromQL"),
        ("gpus-per-replica: 2", "gpus-per-replica: 0", 13, "gpus_per_replica"),
        ("2.5 EUR", "cheap", 14, "cheap"),
        ("window: 30s", "window: soon", 15, '"soon" is not a duration'),
        ("window: 30s", "windows: 30s", 15, 'has no "windows"'),
        ("needed: [here]", "needed: [nowhere]", 12, "nowhere"),
        ("  slo: p95 ttft <= 2s\n", "", 1, "there is no SLO"),
        ("  prometheus: http://127.0.0.1:9090\n", "", 1, "no Prometheus server is named"),
        ("profile: stair", "profile: stairs", 5, 'no profile "stairs"'),
        ("slo: p95 ttft <= 2s", "slo: p95 tft <= 2s", 7, "tft"),
        ("model: m", "modle: m", 3, 'no option "modle"'),
        ("model: m", "json: true", 3, 'an experiment decides on "json" itself'),
    ],
)
def test_what_is_wrong_is_pointed_at(tmp_path: Path, old: str, new: str, line: int, what: str) -> None:
    assert old in FILE
    file = write(tmp_path, FILE.replace(old, new))
    with pytest.raises(ConfigError) as error:
        read_experiment(file)
    assert what in str(error.value)
    assert str(error.value).startswith(f"{file}:{line}:"), error.value


def test_nothing_to_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to run"):
        read_experiment(write(tmp_path, "presets: [vllm]\n"))


def test_no_option_is_named_that_an_experiment_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise UsageError("the targets differ: a and b", "runs x and y", "let it differ: --allow targets")

    monkeypatch.setattr(judged_autoscaler, "judge_autoscaler", refuse)
    asked, problems = read_experiment(write(tmp_path, FILE)), list[str]()
    run = cast("Result", SimpleNamespace(path=tmp_path / "run"))
    assert _judged(asked, run, problems, None) is None
    again = f"gpusize autoscale report {tmp_path / 'run'} --needed {tmp_path / 'here'} --allow targets"
    assert problems == [f"it was not judged: runs x and y: the targets differ: a and b. Let it differ: {again}"]


EXPERIMENT = """\
run:
  url: {url}/v1
  model: simulated
  prompt: Hello
  stages: 40/s@500ms, 80/s@500ms
  process: constant
  max-tokens: 4
  slo: p95 runtime <= 1s
  prometheus: {prometheus}
presets: [deployment]
window: 1s
margin: 1s
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SimulatedCluster]:
    with SimulatedCluster({"iteration_base_s": 0.001, "iteration_per_sequence_s": 0.0001}) as cluster:
        yield cluster


def server_of(double: Double) -> Server:
    """On a clock that passes only while it waits; what is asked there is asked at once here."""
    return Server(double.url, retry_s=1.0, clock=VirtualClock(), wall_ns=time.time_ns)


def test_what_the_server_does_after_the_load_costs_nothing_that_was_measured(
    cluster: SimulatedCluster, tmp_path: Path
) -> None:
    before = cluster.stats()["requests"]

    def broken(asked: Asked) -> tuple[int, dict[str, str], bytes] | None:
        """Says what time it is until the load has begun; then there is a login in its place."""
        if cluster.stats()["requests"] > before + 10:
            return html(502)
        # The run itself asks whether there is a server.
        return matrix([]) if asked.form["query"] == "vector(1)" else None

    with Double(now_ms=time.time_ns() // 1_000_000, fault=broken) as double:
        file = write(tmp_path, EXPERIMENT.format(url=cluster.url, prometheus=double.url))
        found = run_experiment(file, out=tmp_path / "runs", plots=False, server=server_of(double))
    assert not found.complete
    assert found.pulled is None
    assert "gpusize autoscale pull --run" in found.problems[0]
    assert str(found.result.path) in found.problems[0]
    again = open_run(found.result.path)
    assert sum(level.meta["outcomes"]["ok"] for level in again.levels) == 60
    assert (found.result.path / "report.html").is_file()
    # What the requests themselves say stands in the run's own summary; the autoscaler is not judged by nothing.
    assert found.judgement is None
    assert "not a folder of pulled series" in found.problems[1]


def test_a_server_that_lets_nobody_in_ends_it_before_any_load(cluster: SimulatedCluster, tmp_path: Path) -> None:
    before = cluster.stats()["requests"]
    with Double(fault=lambda asked: refusal(401, "no token")) as double:
        file = write(tmp_path, EXPERIMENT.format(url=cluster.url, prometheus=double.url))
        with pytest.raises(TargetError, match="401"):
            run_experiment(file, out=tmp_path / "runs", plots=False, server=server_of(double))
    assert cluster.stats()["requests"] == before
    assert not (tmp_path / "runs").exists()


def test_ctrl_c_in_the_pull_keeps_the_run(
    cluster: SimulatedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gpusize.api.pull.pull_series", interrupted)
    answer = matrix([])
    with Double(fault=lambda asked: answer if asked.form["query"] == "vector(1)" else None) as double:
        file = write(tmp_path, EXPERIMENT.format(url=cluster.url, prometheus=double.url))
        found = run_experiment(file, out=tmp_path / "runs", plots=False, server=server_of(double))
    assert found.interrupted
    assert not found.complete
    assert "the pull was interrupted" in found.problems[0]
    assert (found.result.path / "report.html").is_file()
