"""The simulated cluster: as a child process, as a target, and as the truth in virtual time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import gpusize
from gpusize.analysis.slo import Slo
from gpusize.base.errors import UsageError
from gpusize.estimate import truth
from gpusize.estimate.truth import simulate_closed, true_gpus
from gpusize.targets.simulated.cluster import ClusterLateness, SimulatedCluster
from gpusize.targets.simulated.serve import cluster_config

BEFORE = Path(__file__).parents[1] / "fixtures" / "before" / "run"
FAST = {
    "gpus": 1,
    "iteration_base_s": 0.001,
    "iteration_per_sequence_s": 0.0001,
    "prefill_per_token_s": 0.0,
    "max_batch": 4,
    "output_tokens": {"fixed": {"tokens": 8}},
}
SOURCE = {**os.environ, "PYTHONPATH": str(Path(gpusize.__file__).parents[1])}


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as response:
        return bytes(response.read())


def test_it_serves_while_the_block_runs_and_not_after() -> None:
    with SimulatedCluster(FAST) as cluster:
        get(f"{cluster.url}/health")
        assert cluster.stats()["requests"] >= 0
        assert cluster.target().gpus == 1
        url = cluster.url
    with pytest.raises(OSError, match="refused"):
        get(f"{url}/health")
    assert cluster.stats() == {}


def test_a_configuration_that_cannot_be_meant_is_told() -> None:
    with pytest.raises(UsageError, match="max_batch"), SimulatedCluster({"max_batch": 0}):
        pass


def test_a_run_against_it_and_its_truth(tmp_path: Path) -> None:
    with SimulatedCluster(FAST) as cluster:
        result = gpusize.run(
            cluster,
            gpusize.Dataset.from_prompt("x"),
            gpusize.Load(concurrencies=(1, 2, 4, 8), count=80),
            users=12,
            slos="p95 runtime <= 100ms",
            out=tmp_path,
        )
    assert result.meta["targets"][0]["simulated"] == {"model": "simulated", **FAST}
    assert "url" not in result.meta["options"]
    assert result.summary["state"].to_list() == ["done"] * 4
    assert set(result.records["tokens_out"]) == {8}
    assert result.records["first_token_ns"].null_count() == 0
    assert all("cluster_lateness_p99_s" in level.meta for level in result.levels)
    assert result.truth is not None
    assert result.truth.gpus == 1
    estimates = result.estimates()
    assert [each.method for each in estimates] == ["twin", "slope", "crossing"]
    assert result.estimate(method="crossing").tested_gpus == 1


def test_a_run_from_python_reads_the_servers_metrics_and_keeps_its_stop_rules(tmp_path: Path) -> None:
    with SimulatedCluster(FAST) as cluster:
        result = gpusize.run(
            cluster,
            gpusize.Dataset.from_prompt("x"),
            gpusize.Load(concurrencies=(2,), duration_s=100),
            out=tmp_path,
            stop_when="p50 runtime > 1ms for 1s",
        )
    assert any("ended by a rule" in note for note in result.notes)
    assert result.meta["options"]["stop_when"] == "p50 runtime > 1ms for 1s"
    # Nobody named the page: it is the target's usual one.
    [source] = result.sources
    assert source["source"].endswith("/metrics")
    assert "gpu_utilization" in set(result.server()["metric"])


def test_virtual_time_keeps_the_closed_form() -> None:
    """One GPU, c <= max_batch, staggered users: each of 8 iterations costs base + c * per_sequence."""
    for users in (1, 4):
        records = simulate_closed(FAST, users, requests=200, prompt_tokens=1)
        runtime_s = ((records["end_ns"] - records["due_ns"]) / 1e9).median()
        assert isinstance(runtime_s, float)
        assert 8 * (0.001 + users * 0.0001) == pytest.approx(runtime_s, rel=0.15)


@pytest.mark.parametrize("bound", ["12ms", "20ms", "40ms"])
def test_the_truth_is_the_smallest_number_that_keeps_the_slo(bound: str) -> None:
    slo = Slo.parse(f"p95 runtime <= {bound}")
    found = true_gpus(FAST, 24, [slo])
    assert found is not None

    def met(gpus: int) -> bool:
        return slo.met(simulate_closed({**FAST, "gpus": gpus}, 24, requests=4000))

    assert met(found)
    assert found == 1 or not met(found - 1)


def test_the_truth_of_an_slo_that_no_number_keeps() -> None:
    assert true_gpus(FAST, 4, [Slo.parse("p95 runtime <= 1ms")]) is None


@pytest.mark.parametrize("slo", ["p90 first_byte <= 1s", "mean bytes_in <= 1 MiB", "p99 itl_p99 <= 1s"])
def test_a_run_has_no_truth_for_what_virtual_time_does_not_have(slo: str) -> None:
    result = gpusize.open_run(BEFORE).asking(users=100, slos=slo)
    assert result.truth is None
    assert result.summary["slo_0_met"].to_list() == [True, True]


def test_part_of_a_user_is_one_and_too_many_have_no_truth() -> None:
    parts = [gpusize.open_run(BEFORE).asking(users, "p95 runtime <= 40ms").truth for users in (0.5, 1)]
    assert parts[0] == parts[1]
    assert parts[0] is not None
    assert gpusize.open_run(BEFORE).asking(20_001, "p95 runtime <= 40ms").truth is None


def test_the_truth_of_llm_latency_is_that_of_service_where_a_request_is_the_call() -> None:
    found = [gpusize.open_run(BEFORE).asking(100, f"p95 {name} <= 40ms").truth for name in ("llm_latency", "service")]
    assert found[0] == found[1]
    assert found[0] is not None
    assert found[0].gpus not in (None, 1)


@pytest.mark.parametrize(
    "length, cut",
    [
        ({"fixed": {"tokens": 9}}, {"fixed": {"tokens": 5}}),
        ({"uniform": {"min_tokens": 7, "max_tokens": 9}}, {"uniform": {"min_tokens": 5, "max_tokens": 5}}),
        (
            {"lognormal": {"median_tokens": 9.0, "sigma": 1.0, "max_tokens": 99}},
            {"lognormal": {"median_tokens": 9.0, "sigma": 1.0, "max_tokens": 5}},
        ),
    ],
)
def test_the_truth_knows_of_max_tokens(length: dict[str, Any], cut: dict[str, Any]) -> None:
    assert truth._limited({"output_tokens": length}, 5) == {"output_tokens": cut}
    assert truth._limited({"output_tokens": length}, None) == {"output_tokens": length}


def test_options_make_a_configuration() -> None:
    made = cluster_config(
        '{"gpus": 3, "faults": {"reset_rate": 0.1}}', gpus=4, output_tokens=7, fail_rate=0.5, stall="2s"
    )
    assert made == {
        "gpus": 4,
        "output_tokens": {"fixed": {"tokens": 7}},
        "faults": {"reset_rate": 0.1, "fail_rate": 0.5, "stall_s": 2.0},
    }
    for text in ("{", "[1]"):
        with pytest.raises(UsageError, match="cluster"):
            cluster_config(text)


def test_lateness_is_what_came_since_the_last_look() -> None:
    class Cluster:
        def __init__(self) -> None:
            self.buckets: list[list[Any]] = [[0.001, 100], [0.01, 100], [None, 100]]

        def stats(self) -> dict[str, Any]:
            return {"lateness_buckets": self.buckets}

    cluster: Any = Cluster()
    watch = ClusterLateness(cluster)
    assert watch.p99_s() == 0.0
    cluster.buckets = [[0.001, 100], [0.01, 200], [None, 200]]
    assert watch.p99_s() == pytest.approx(0.001 + 0.009 * 0.99)
    cluster.buckets = [[0.001, 101], [0.01, 201], [None, 300]]
    assert watch.p99_s() == float("inf")


def ready(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    return dict(json.loads(process.stdout.readline()))


def test_the_command_ends_with_its_standard_input() -> None:
    command = [sys.executable, "-m", "gpusize", "simulate", "--json-ready", "--gpus", "3"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=SOURCE) as process:
        line = ready(process)
        assert line["config"] == {"gpus": 3}
        get(f"{line['url']}/health")
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 0


def test_the_command_ends_with_ctrl_c() -> None:
    command = [sys.executable, "-m", "gpusize", "simulate", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=SOURCE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("simulated cluster at http://127.0.0.1:")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_the_child_ends_when_its_parent_is_killed() -> None:
    code = (
        "from gpusize import SimulatedCluster\n"
        "with SimulatedCluster() as cluster:\n"
        "    print(cluster._child.pid, cluster.url, flush=True)\n"
        "    input()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=SOURCE
    )
    assert parent.stdout is not None
    pid, url = parent.stdout.readline().split()
    handle = os.pidfd_open(int(pid))
    parent.kill()
    parent.communicate()
    import select

    # A pidfd is readable when its process has ended.
    assert select.select([handle], [], [], 30)[0], "the child lives on"
    os.close(handle)
    with pytest.raises(OSError, match="refused"):
        get(f"{url}/health")


@pytest.mark.parametrize(
    "argv, code, expected",
    [
        (("--gpus", "0"), 2, "gpus"),
        (("--cluster", '{"gpu": 1}'), 2, "gpu"),
        (("--stall", "soon"), 2, "soon"),
        (("--host", "nowhere"), 2, "nowhere"),
        (("--host", "192.0.2.1"), 3, "192.0.2.1"),
    ],
)
def test_what_the_command_cannot_do(argv: tuple[str, ...], code: int, expected: str) -> None:
    command = [sys.executable, "-m", "gpusize", "simulate", *argv]
    done = subprocess.run(command, capture_output=True, text=True, env=SOURCE, check=False, timeout=60)
    assert done.returncode == code
    [line] = done.stderr.splitlines()
    assert line.startswith("gpusize: ")
    assert expected in line
