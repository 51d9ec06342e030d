"""Files of the version before: a run folder, a configuration file and a study file that it wrote or took."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import gpusize
from gpusize.api import run as api
from gpusize.measure.spec import RunSpec, must_agree
from gpusize.options.assemble import read_options, spec_from_options
from gpusize.studies.combination import plan_of
from gpusize.studies.spec import read_study

BEFORE = Path(__file__).parents[1] / "fixtures" / "before"
SLO = "p95 llm_latency <= 2s"


def test_its_run_folder_says_what_it_said() -> None:
    result = gpusize.open_run(BEFORE / "run")
    assert [level.concurrency for level in result.levels] == [1, 2]
    assert ([str(slo) for slo in result.slos], result.users) == ([SLO], 3)
    # It does not say what its API is: the name tells that a request is the call of a language model.
    assert "nature" not in result.meta["targets"][0]
    for level in result.levels:
        assert level.quantile("llm_latency", 0.95) == level.quantile("service", 0.95)
        assert level.attainment(result.slos[0]) == (1.0, 6)
    assert "gpu_utilization" in set(result.server()["metric"])


def test_its_run_folder_can_be_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    shutil.copytree(BEFORE / "run", folder)
    known = gpusize.open_run(folder).meta
    agreed: list[RunSpec] = []

    def look(spec: RunSpec, **_: object) -> gpusize.Result:
        must_agree(known, spec.facts(), folder)
        agreed.append(spec)
        return gpusize.open_run(folder)

    monkeypatch.setattr(api, "execute", look)
    gpusize.run(resume=folder)
    [spec] = agreed
    assert (spec.resume, spec.users, dict(spec.labels)) == (folder, 3, {"gpu": "simulated"})
    assert [rule.text for rule in spec.monitor.rules] == ["p99 runtime > 30s for 10s"]


def test_its_configuration_file_makes_the_same_run() -> None:
    known = gpusize.open_run(BEFORE / "run").meta
    options, _ = read_options(BEFORE / "run.toml", {})
    with spec_from_options(options) as spec:
        facts = spec.facts()
    must_agree(known, facts, BEFORE)
    assert facts["options"] == known["options"]


def test_its_study_file_names_the_same_combinations(tmp_path: Path) -> None:
    study = read_study(BEFORE / "study.yaml", tmp_path)
    plans = [plan_of(study, each) for each in study.combinations]
    assert [plan.run["concurrencies"] for plan in plans] == [1, 2]
    assert {plan.run["metrics_url"] for plan in plans} == {"none"}
