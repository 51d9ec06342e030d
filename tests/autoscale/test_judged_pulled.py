"""A run judged by what `gpusize autoscale pull` left of a server with another clock: against the simulator's log."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpusize.api import pull
from gpusize.api.judged_autoscaler import judge_autoscaler
from tests.autoscale.judged import START_WALL_NS, Truth, run_of, simulated, stages

RATES = [(300.0, 1.0), (300.0, 5.0), (300.0, 2.0)]
STEP, AHEAD_S = 15.0, 7.5


def exported(truth: Truth) -> list[tuple[dict[str, str], list[tuple[int, str]]]]:
    """What kube-state-metrics and vLLM tell, each target at its own times, by the server's clock."""
    rnd = np.random.default_rng(3)

    def samples(at_s: np.ndarray, values: np.ndarray) -> list[tuple[int, str]]:
        ms = START_WALL_NS // 1_000_000 + np.rint(1e3 * (at_s + AHEAD_S)).astype(np.int64)
        return [(int(t), f"{value:g}") for t, value in zip(ms, values, strict=True)]

    at = np.arange(-60 + 4.2, truth.end + 75, STEP)
    now = np.maximum(at, 0)
    hpa = {"namespace": "llm", "horizontalpodautoscaler": "llama", "instance": "10.0.0.7:8080", "job": "ksm"}
    deployment = {"namespace": "llm", "deployment": "llama", "instance": "10.0.0.7:8080", "job": "ksm"}
    found = [
        ({"__name__": "kube_horizontalpodautoscaler_status_desired_replicas", **hpa}, samples(at, truth.asked(now))),
        ({"__name__": "kube_deployment_status_replicas", **deployment}, samples(at, truth.asked(now))),
        ({"__name__": "kube_deployment_status_replicas_ready", **deployment}, samples(at, truth.ready(now))),
    ]
    for k in range(int(truth.ready(now).max())):
        mine = np.arange(-60 + rnd.uniform(0, STEP), truth.end + 75, STEP)
        mine = mine[truth.ready(np.maximum(mine, 0)) > k]
        name = {"__name__": "vllm:num_requests_running", "pod": f"llama-{k}", "instance": f"10.0.1.{k}:8000"}
        found.append(
            ({**name, "engine": "0", "model_name": "m", "job": "vllm"}, samples(mine, np.full(mine.size, 2.0)))
        )
    return found


def test_a_pulled_run_is_judged(tmp_path: Path) -> None:
    from gpusize.observe.series.time_range import of_run
    from tests.series.double import Double

    truth = simulated(RATES, seed=4, start_delay_s=45.0)
    run = run_of(tmp_path, stages(RATES, truth), slo=["p95 runtime <= 3s"])
    ours_ms = START_WALL_NS // 1_000_000 + round(1e3 * (truth.end + 600))
    with Double(exported(truth), now_ms=ours_ms + round(1e3 * AHEAD_S)) as server:
        asked = pull.Server(server.url, wall_ns=lambda: ours_ms * 1_000_000)
        done = pull.pull_series(asked, run / "series", of_run(run), presets=["vllm", "hpa", "deployment"])
    assert done.facts["clock"]["offset_ns"] == pytest.approx(AHEAD_S * 1e9, abs=2e6)
    found = judge_autoscaler(run, gpus_per_replica=2)
    # The readings that the exporter gave, second by second.
    at = np.arange(-60 + 4.2, truth.end + 75, STEP)
    seconds = np.arange(0.05, truth.end, 0.1)
    place = np.searchsorted(at, seconds, "right") - 1
    for hours, course in ((found.paid.ready_gpu_hours, truth.ready), (found.paid.gpu_hours, truth.asked)):
        assert hours == pytest.approx(course(np.maximum(at, 0))[place].sum() * 0.1 * 2 / 3600, abs=1e-3)
    assert found.paid.of == "replicas"
    assert found.paid.idle_share == 0
    up = next(t for (t, n), (_, before) in zip(truth.steps[1:], truth.steps, strict=False) if n > before and t > 300)
    step = found.responses[1]
    assert step.desired.earliest_s <= up - 300 <= step.desired.latest_s
    assert step.ready.earliest_s <= up + 45 - 300 <= step.ready.latest_s
    # Its first reading, and its first request with it, is at most an interval after it was ready.
    assert 0 <= step.serving.latest_s - (up + 45 - 300) <= STEP
    assert not [each for each in found.findings if each.code in ("gap", "no_series", "clock_unknown")]
    running = found.gauges["running"]
    steady = next(t for t in np.arange(60, 290.0) if np.ptp(truth.ready(np.arange(t - 40, t + 40))) == 0)
    assert running.at([steady])[0] == 2 * truth.ready(np.array([steady]))[0]


def test_the_names_are_those_of_the_presets() -> None:
    from gpusize.estimate.plan.autoscale.judge import series as names
    from gpusize.observe.series.presets import PRESETS

    known = {each.name for preset in PRESETS.values() for each in preset}
    groups = (names.DESIRED, names.CURRENT, names.READY, names.RUNNING, names.WAITING, names.REQUESTS, names.CACHE)
    read = {name for group in (*groups, names.GPU_USE, names.GPU_POWER) for name in group}
    read |= {names.CONDITIONS, names.TRIGGER_ERRORS, names.TRIGGER_ACTIVE, names.TRIGGER_VALUE}
    assert read <= known
