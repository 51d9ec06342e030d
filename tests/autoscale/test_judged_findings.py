"""What weakens a judgement, each by a run in which it happened, and beside one in which it did not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpusize.api.judged_autoscaler import judge_autoscaler
from gpusize.estimate.plan.autoscale.judge.types import Judgement
from gpusize.report.plans.judged_findings import finding_text
from tests.autoscale.judged import Pulled, Truth, level, records, run_of, scraped

END = 1800.0
AT = np.arange(-15.0, END + 30, 15.0)
RUNNING = 4 + 3 * np.sin(AT / 90)


def judged(
    tmp_path: Path, pulled: Pulled, *, setting: dict | None = None, uncertainty_s: float | None = 0.01
) -> Judgement:
    due = np.arange(0.0, END)
    rows = records(due, due + 0.5)
    run = run_of(tmp_path, [level(setting or {"kind": "open", "rate": 1.0}, rows, 0, END)])
    pulled.write(run / "series", uncertainty_s=uncertainty_s)
    return judge_autoscaler(run, None, "p95 runtime <= 1s")


def steady(steps: list[tuple[float, int]] | None = None) -> Pulled:
    due = np.arange(0.0, END)
    pulled = scraped(Truth(due, due + 0.5, steps or [(0.0, 3)], 0.0, END))
    pulled.add("running", AT, RUNNING, pod="a")
    return pulled


def told(found: Judgement, code: str) -> list[dict]:
    for each in found.findings:
        assert finding_text(each)  # every one has its sentence
    return [dict(each.facts) for each in found.findings if each.code == code]


def test_a_quiet_run_has_none(tmp_path: Path) -> None:
    pulled = steady()
    pulled.add("trigger_errors", AT, np.full(AT.size, 7.0), scaledObject="llama", scaler="s0")
    pulled.add("trigger_value", AT, RUNNING, scaledObject="llama", scaler="s0")
    pulled.add("hpa_condition", AT, np.ones(AT.size), condition="ScalingActive", status="true")
    pulled.add("hpa_condition", AT, np.zeros(AT.size), condition="ScalingActive", status="false")
    assert judged(tmp_path, pulled).findings == ()


def test_errors_of_a_scaler_are_told(tmp_path: Path) -> None:
    pulled = steady([(0.0, 2), (300.0, 4)])
    # Five errors; KEDA restarts at 700 s, and two more come.
    errors = np.where(AT < 500, 3, np.where(AT < 700, np.minimum(3 + (AT - 485) // 30, 8), np.where(AT < 900, 0, 2)))
    pulled.add("trigger_errors", AT, errors, scaledObject="llama", scaler="s0-prometheus")
    # A counter that is not there before its first error.
    late = AT[AT >= 600]
    pulled.add("trigger_errors", late, np.full(late.size, 1.0), scaledObject="other", scaler="s1")
    first, second = told(judged(tmp_path, pulled), "scaler_errors")
    assert (first["scaler"], first["errors"]) == ("llama, s0-prometheus", 7)
    assert (first["from_s"], first["until_s"]) == (pytest.approx(525), pytest.approx(900))
    assert (first["desired_low"], first["desired_high"]) == (4, 4)
    assert (second["scaler"], second["errors"], second["from_s"]) == ("other, s1", 1, pytest.approx(600))


def test_a_trigger_that_stays_at_one_value_is_told(tmp_path: Path) -> None:
    pulled = steady()
    frozen = np.where((AT >= 600) & (AT < 1200), 24.0, RUNNING)
    pulled.add("trigger_value", AT, frozen, scaledObject="llama", scaler="s0")
    pulled.add("trigger_active", AT, np.ones(AT.size), scaledObject="llama", scaler="s0")
    # An empty queue is one, however long.
    pulled.add("trigger_value", AT, np.zeros(AT.size), scaledObject="llama", scaler="s1")
    # Not active: nothing goes by it.
    pulled.add("trigger_value", AT, np.full(AT.size, 5.0), scaledObject="idle", scaler="s0")
    pulled.add("trigger_active", AT, np.zeros(AT.size), scaledObject="idle", scaler="s0")
    [found] = told(judged(tmp_path, pulled), "frozen_metric")
    assert (found["scaler"], found["value"]) == ("llama, s0", 24)
    assert (found["from_s"], found["until_s"]) == (pytest.approx(600), pytest.approx(1185))
    assert (found["desired_low"], found["desired_high"]) == (3, 3)


def test_a_metric_of_a_load_that_stands_still_may_stand_still(tmp_path: Path) -> None:
    pulled = steady()
    pulled.rows = [row for row in pulled.rows if row[1] != "running"]
    pulled.add("running", AT, np.full(AT.size, 6.0), pod="a")
    pulled.add("trigger_value", AT, np.full(AT.size, 6.0), scaledObject="llama", scaler="s0")
    assert told(judged(tmp_path, pulled), "frozen_metric") == []


def test_an_hpa_that_cannot_read_its_metrics_says_so(tmp_path: Path) -> None:
    pulled = steady()
    blind = (AT >= 300) & (AT < 450)
    pulled.add(
        "hpa_condition", AT, blind * 1.0, condition="ScalingActive", status="false", horizontalpodautoscaler="llama"
    )
    pulled.add(
        "hpa_condition", AT, ~blind * 1.0, condition="ScalingActive", status="true", horizontalpodautoscaler="llama"
    )
    [found] = told(judged(tmp_path, pulled), "hpa_blind")
    assert found == {"hpa": "llama", "held_s": 150, "from_s": pytest.approx(300), "until_s": pytest.approx(450)}


def test_a_closed_loop_is_warned_of(tmp_path: Path) -> None:
    pulled = scraped(Truth(np.arange(2.0), np.arange(2.0), [(0.0, 1), (600.0, 8)], 0.0, END))
    pulled.add("running", AT, np.full(AT.size, 30.0), pod="a")
    pulled.add("waiting", AT, np.full(AT.size, 2.0), pod="a")
    found = judged(tmp_path, pulled, setting={"kind": "closed", "concurrency": 32})
    [fact] = told(found, "closed_loop")
    assert (fact["users"], fact["in_flight_low"], fact["in_flight_high"]) == (32, 32, 32)
    assert (fact["ready_low"], fact["ready_high"]) == (1, 8)
    [finding] = [each for each in found.findings if each.code == "closed_loop"]
    assert "32 were there with 1 to 8 replicas" in finding_text(finding)


def test_missing_series_and_clocks_are_told(tmp_path: Path) -> None:
    pulled = Pulled()
    pulled.add("replicas_ready", AT, np.full(AT.size, 2.0))
    found = judged(tmp_path, pulled, uncertainty_s=None)
    assert [each["name"] for each in told(found, "no_series")] == ["replicas_desired", "replicas"]
    assert told(found, "clock_unknown") == [{}]
    assert found.uncertainty_s is None
    # Of what is there, the ready ones are paid for.
    assert found.paid.of == "replicas_ready"
    assert found.paid.gpu_hours == found.paid.ready_gpu_hours
    coarse = judged(tmp_path / "b", steady(), uncertainty_s=30.0)
    assert told(coarse, "clock_coarse") == [{"uncertainty_s": pytest.approx(30), "step_s": pytest.approx(15)}]


def test_names_stand_for_each_other(tmp_path: Path) -> None:
    """A deployment of a fixed size has no HPA: what it is to have stands for what is asked for."""
    pulled = Pulled()
    pulled.add("replicas_wanted", AT, np.full(AT.size, 5.0), deployment="llama")
    pulled.add("replicas_available", AT, np.full(AT.size, 4.0), deployment="llama")
    pulled.add("replicas_current", AT, np.full(AT.size, 9.0), horizontalpodautoscaler="llama")
    pulled.add("replicas", AT, np.full(AT.size, 5.0), deployment="llama")
    found = judged(tmp_path, pulled)
    assert (found.desired.at([9])[0], found.current.at([9])[0], found.ready.at([9])[0]) == (5, 5, 4)
    assert found.paid.of == "replicas"
    assert not found.findings


def test_without_any_replicas_there_are_no_gpu_hours(tmp_path: Path) -> None:
    pulled = Pulled()
    pulled.add("running", AT, RUNNING, pod="a")
    found = judged(tmp_path, pulled)
    assert found.paid is None
    assert found.scaling is None
    assert found.whole.shares[0] == 1
    assert found.whole.gpu_hours is None


def test_idle_readings_energy_and_waits(tmp_path: Path) -> None:
    rnd = np.random.default_rng(3)
    pulled = Pulled()
    pulled.add("replicas_ready", AT, np.where(AT < 660, 1.0, 3.0))
    pulled.add("replicas", AT, np.where(AT < 600, 1.0, 3.0))
    pulled.add("replicas_desired", AT, np.where(AT < 570, 1.0, 3.0))
    inside = (AT >= 0) & (AT < END)
    idle = count = 0
    power = np.zeros(AT.size)
    for pod in "abc":
        values = rnd.integers(0, 3, AT.size)
        pulled.add("running", AT, values, pod=pod)
        idle, count = idle + (values[inside] == 0).sum(), count + inside.sum()
        watts = rnd.uniform(80, 700, AT.size)
        pulled.add("gpu_power", AT, watts, pod=pod, gpu="0")
        power += watts
    found = judged(tmp_path, pulled)
    assert found.paid.idle_share == pytest.approx(idle / count)
    # Until the last record, half a second before the level's end.
    assert found.paid.energy_wh == pytest.approx(power[inside].sum() * 15 / 3600, rel=1e-4)
    assert (found.scaling.waited_s, found.scaling.waits) == (pytest.approx(30), 1)
    assert found.paid.gpu_hours - found.paid.ready_gpu_hours == pytest.approx(2 * 60 / 3600)
