"""The stair on a simulated cluster that a policy scales, scraped every second by a real Prometheus, from one file.

The truth is the cluster's own log of its replicas, and the records of the requests.
"""

from __future__ import annotations

import bisect
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gpusize.analysis.series import bucket_rises
from gpusize.api.experiment import ExperimentResult, run_experiment
from gpusize.base.errors import TargetError
from gpusize.cli.policies import autoscalers
from gpusize.targets.simulated.cluster import SimulatedCluster
from tests.peers.test_prometheus import free_port, wait_for

pytestmark = pytest.mark.optional_in_ci("a Debian package, and installing one takes root")
CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs: [{{job_name: sim, static_configs: [{{targets: ["{target}"]}}]}}]
"""
HPA = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: sim}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: sim}
  minReplicas: 1
  maxReplicas: 4
  metrics:
    - {type: External, external: {metric: {name: in_flight}, target: {type: AverageValue, averageValue: "12"}}}
  behavior:
    scaleUp: {stabilizationWindowSeconds: 0, policies: [{type: Pods, value: 1, periodSeconds: 4}]}
"""
# The seed's experiment 150 times faster, with 90 times the rates: 45, 90, 135 and 180/s.
EXPERIMENT = """
run:
  url: {url}/v1
  model: simulated
  prompt: Hello
  profile: stair
  speed: 150
  rate-scale: 0.6
  max-tokens: 40
  connections: 1024
  slo: p95 runtime <= 300ms
  prometheus: {prometheus}
  plots: {plots}
presets: [vllm, hpa, deployment]
series:
  offered: sum(rate(vllm:request_success_total[5s]))
window: 2s
margin: 3s
step: 1s
gpu-hour-price: 2 EUR
"""
ABOUT_US = 30_000_000
"""A scrape so near to a change may be of before or of after it: ns."""


@pytest.fixture(scope="module")
def around(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SimulatedCluster, str, Path]]:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("there is no prometheus on the path (apt-get install prometheus)")
    folder = tmp_path_factory.mktemp("experiment")
    (folder / "hpa.yaml").write_text(HPA)
    [policy] = autoscalers([folder / "hpa.yaml"], (), ("1s", "1s"))
    config = {"autoscaler": json.loads(policy.to_json(1)), "start_delay_s": 2.0}
    with SimulatedCluster(config) as cluster:
        (folder / "config.yml").write_text(CONFIG.format(target=cluster.url.removeprefix("http://")))
        listen = f"127.0.0.1:{free_port()}"
        command = [program, f"--config.file={folder}/config.yml", f"--storage.tsdb.path={folder}/data"]
        with (folder / "log").open("w") as log:
            child = subprocess.Popen([*command, f"--web.listen-address={listen}"], stdout=log, stderr=log)
            try:
                seen = f"http://{listen}/api/v1/query?query=kube_deployment_status_replicas"
                wait_for(seen, child, lambda answer: answer.status_code == 200 and answer.json()["data"]["result"])
                yield cluster, f"http://{listen}", folder
            finally:
                child.terminate()
                child.wait()


@pytest.fixture(scope="module")
def done(around: tuple[SimulatedCluster, str, Path]) -> tuple[ExperimentResult, list[dict[str, Any]]]:
    cluster, prometheus, folder = around
    file = folder / "experiment.yaml"
    file.write_text(EXPERIMENT.format(url=cluster.url, prometheus=prometheus, plots="false"))
    found = run_experiment(file, out=folder / "runs", plots=False)
    return found, cluster.stats()["replica_changes"]


def test_it_is_complete(done: tuple[ExperimentResult, list[dict[str, Any]]]) -> None:
    found, _ = done
    assert found.problems == ()
    assert found.complete
    assert found.judgement is not None
    assert found.judgement.requests.due_s.size == 45 * 4 + 90 * 4 + 135 * 4 + 180 * 12
    names = set(found.pulled.scan().select("name").unique().collect()["name"])
    assert {"replicas_desired", "replicas_ready", "running", "waiting", "ttft", "offered"} <= names


def test_replicas_are_those_of_the_clusters_log(done: tuple[ExperimentResult, list[dict[str, Any]]]) -> None:
    found, changes = done
    assert max(change["ready"] for change in changes) >= 3, "it has to scale for this to mean something"
    at_ns = [round(change["wall_s"] * 1e9) for change in changes]
    offset_ns = found.pulled.facts["clock"]["offset_ns"]
    for name, key in (("replicas_desired", "desired"), ("replicas_ready", "ready"), ("replicas_wanted", "desired")):
        rows = found.pulled.scan().filter(pl.col("name") == name).sort("t_ns").collect()
        assert rows.height >= 24
        checked = 0
        for t_ns, value in rows.select("t_ns", "value").iter_rows():
            # The stamp is of when the scrape began; the answer follows within moments.
            ours = t_ns - offset_ns
            if any(-2_000_000 <= each - ours <= ABOUT_US for each in at_ns):
                continue
            assert value == changes[bisect.bisect_right(at_ns, ours) - 1][key], (name, ours)
            checked += 1
        assert checked >= 20


def test_the_judgement_has_its_scale_events(done: tuple[ExperimentResult, list[dict[str, Any]]]) -> None:
    found, changes = done
    judgement = found.judgement
    start_s = _start_s(found)
    ready = [(change["wall_s"] - start_s, change["ready"]) for change in changes]
    inside = [(at, n) for at, n in ready if 0 < at < judgement.duration_s]
    rises = sum(b > a for a, b in zip([1, *(n for _, n in inside)], [n for _, n in inside], strict=False))
    assert judgement.scaling.ups == rises
    # GPU-hours, second by second from the log; a change is seen at the next scrape.
    steps = [(max(0.0, at), n) for at, n in ready if at < judgement.duration_s]
    ends = [at for at, _ in steps[1:]] + [judgement.duration_s]
    hours = sum(n * (end - at) for (at, n), end in zip(steps, ends, strict=True) if end > at) / 3600
    slack = (len(inside) + 2) * 1.1 / 3600
    assert judgement.paid.gpu_hours == pytest.approx(hours, abs=slack)
    assert judgement.paid.cost == pytest.approx(2 * judgement.paid.gpu_hours)


def test_attainment_is_that_of_the_records(done: tuple[ExperimentResult, list[dict[str, Any]]]) -> None:
    found, _ = done
    frames = [pl.read_parquet(part) for part in sorted(found.result.path.glob("levels/*/records/*.parquet"))]
    rows = pl.concat(frames)
    within = ((rows["end_ns"] - rows["due_ns"]) <= 300_000_000).fill_null(value=False).sum()
    assert found.judgement.whole.shares[0] == pytest.approx(within / rows.height)
    # One replica takes some 90/s: the others come after the load, so not all of it is served in time.
    assert found.judgement.whole.shares[0] < 1


def test_percentiles_of_buckets_are_within_one_bucket_of_the_clients(
    done: tuple[ExperimentResult, list[dict[str, Any]]],
) -> None:
    found, _ = done
    frames = [pl.read_parquet(part) for part in sorted(found.result.path.glob("levels/*/records/*.parquet"))]
    rows = pl.concat(frames)
    ttft_s = (rows["first_token_ns"] - rows["sent_ns"]).drop_nulls().to_numpy() / 1e9
    series = found.pulled.scan().filter(pl.col("name") == "ttft").collect()
    stamps = series["t_ns"].to_numpy()
    begin, end = int(stamps.min()), int(stamps.max())
    [rise] = bucket_rises(series, [(begin, end)])
    # The request that is sent before the load is one more; a replica that came had some before its first scrape.
    assert rise.count + rise.born == ttft_s.size + 1
    for share in (0.5, 0.9, 0.95, 0.99):
        mine = rise.percentile(share)
        place = int(np.searchsorted(rise.bounds, np.quantile(ttft_s, share)))
        theirs = int(np.searchsorted(rise.bounds, mine.high))
        assert abs(place - theirs) <= 1, share


def test_a_server_that_is_not_there_ends_it_before_any_load(
    around: tuple[SimulatedCluster, str, Path], tmp_path: Path
) -> None:
    cluster, _, _ = around
    before = cluster.stats()["requests"]
    file = tmp_path / "experiment.yaml"
    file.write_text(EXPERIMENT.format(url=cluster.url, prometheus=f"http://127.0.0.1:{free_port()}", plots="false"))
    with pytest.raises(TargetError):
        run_experiment(file, out=tmp_path / "runs", plots=False)
    assert cluster.stats()["requests"] == before
    assert not (tmp_path / "runs").exists()


def _start_s(found: ExperimentResult) -> float:
    """When the first level began, by the wall clock."""
    clocks = pl.read_parquet(found.result.path / "clocks.parquet").row(0, named=True)
    level = json.loads((found.result.path / "levels" / "0000" / "level.json").read_text())
    return float(level["start_ns"] - clocks["mono_ns"] + clocks["wall_ns"]) / 1e9
