"""The sizing calculator's files: both spellings, folders of jobs, broken files, and the way into a run folder."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import gpusize
from gpusize.analysis.pooling import pool
from gpusize.analysis.read_levels import read_levels
from gpusize.analysis.slo import Slo
from gpusize.analysis.summary import summarize
from gpusize.base.errors import ConfigError, StoreError
from gpusize.estimate.methods import Question, estimate, to_calc_output
from gpusize.studies.imports.nat import FILE_NAME, import_nat, read_nat
from tests.analysis.synthetic import percentile_level

FIXTURES = Path(__file__).parents[1] / "fixtures" / "nat"
PRESENT = FIXTURES / "present.json"
OLDER = FIXTURES / "older.json"
TEN_S = Slo.parse("p95 runtime <= 10s")


def ask(levels, *slos, users=100, method="slope"):
    return estimate(levels, Question(users, slos or [TEN_S]), method)[0]


def put(folder, content, mtime_s=None):
    folder.mkdir(parents=True)
    (folder / FILE_NAME).write_text(content if isinstance(content, str) else json.dumps(content))
    if mtime_s is not None:
        os.utime(folder, (mtime_s, mtime_s))
    return folder


def data(**p95):
    entries = {c[1:]: {"sizing_metrics": {"llm_latency_p95": 1.0, "workflow_runtime_p95": y}} for c, y in p95.items()}
    return {"calc_data": entries}


def test_the_present_spelling():
    found = read_nat(PRESENT, gpus=8)
    assert [lv.concurrency for lv in found.levels] == [1, 2, 4, 8, 16, 32]
    assert found.warnings == []
    first = found.levels[0]
    assert (first.imported, first.state, first.gpus) == (True, "done", 8)
    assert first.quantile("runtime", 0.95) == 4.03488
    assert first.quantile("llm_latency", 0.95) == 1.14981
    assert first.quantile("runtime", 0.5) == pytest.approx(4.03)
    assert first.items["2"] == {"llm_latency": 1.2, "workflow_runtime": 4.04}
    assert ask(found.levels).gpus_raw == pytest.approx(75.35159084873075, rel=1e-9)
    assert ask(found.levels, Slo.parse("p95 llm_latency <= 3s"), users=5).gpus_raw == pytest.approx(
        2.847826818486696, rel=1e-9
    )


def test_a_p95_that_is_not_that_of_its_items_is_flagged(tmp_path):
    """Else a table shows a p95 below the p90, which is of the items."""
    items = {str(k): {"llm_latency": 1.0, "workflow_runtime": 1.0 + 0.1 * k} for k in range(11)}
    for name, p95_s, flags in (("right", 1.95, []), ("wrong", 1.2, ["inconsistent"])):
        metrics = {"llm_latency_p95": 1.0, "workflow_runtime_p95": p95_s, "per_item_metrics": items}
        put(tmp_path / name, {"calc_data": {"4": {"sizing_metrics": metrics}}})
        [row] = gpusize.read(tmp_path / name / FILE_NAME, tmp_path / "runs").summary.to_dicts()
        assert row["flags"] == flags
        assert row["runtime_p90_s"] == pytest.approx(1.9)
        assert any("that of its 11 items is 1.95 s" in alert for alert in row["alerts"]) == bool(flags)


def test_the_older_spelling():
    found = read_nat(OLDER, gpus=8)
    assert {lv.concurrency: lv.state for lv in found.levels}[64] == "interrupted"
    answer = ask(found.levels)
    assert answer.gpus_raw == pytest.approx(76.61472986071033, rel=1e-9)
    assert answer.details["fit"]["outliers_removed"] == [4]
    assert "concurrency 64 is left out: it was interrupted" in answer.warnings


def test_both_targets_at_once_as_the_calculator_writes_them():
    question = Question(5, [TEN_S, Slo.parse("p95 llm_latency <= 3s")])
    document = to_calc_output(read_nat(PRESENT, gpus=8).levels, question)
    assert document["gpu_estimates"]["gpu_estimate_by_wf_runtime"] == pytest.approx(75.35159084873075 / 20)
    assert document["gpu_estimates"]["gpu_estimate_by_llm_latency"] == pytest.approx(2.847826818486696)
    assert document["fit_results"]["llm_latency_fit"]["outliers_removed"] == [32]
    alerts = {c: level["alerts"] for c, level in document["calc_data"].items()}
    assert [c for c, a in alerts.items() if a["outlier_llm_latency"]] == ["32"]
    assert not any(a["outlier_workflow_runtime"] for a in alerts.values())


def test_the_document_has_the_structure_of_the_file():
    written = to_calc_output(read_nat(PRESENT, gpus=8).levels, Question(100, [TEN_S]))
    original = json.loads(PRESENT.read_text())
    assert list(written) == list(original)
    for c, level in original["calc_data"].items():
        assert list(written["calc_data"][c]) == list(level)
        assert list(written["calc_data"][c]["alerts"]) == list(level["alerts"])
        assert written["calc_data"][c]["sizing_metrics"] == level["sizing_metrics"]


def test_items_above_a_target_are_counted():
    question = Question(100, [Slo.parse("p95 runtime <= 4.03s"), Slo.parse("p95 llm_latency <= 1s")])
    alerts = to_calc_output(read_nat(PRESENT, gpus=8).levels, question)["calc_data"]["1"]["alerts"]
    assert alerts["num_items_greater_than_target_runtime"] == 1
    assert alerts["num_items_greater_than_target_latency"] == 2


def test_what_is_written_can_be_read_again(tmp_path):
    levels = read_nat(PRESENT, gpus=8).levels
    folder = put(tmp_path / "job_1", to_calc_output(levels, Question(100, [TEN_S])))
    again = read_nat(folder, gpus=8).levels
    assert ask(again).to_json() == ask(levels).to_json()
    assert [lv.items for lv in again] == [lv.items for lv in levels]


def test_a_level_without_llm_latency_is_dropped_in_imports(tmp_path):
    content = data(c1=1.0, c2=2.0, c4=4.0, c8=100.0)
    content["calc_data"]["8"]["sizing_metrics"]["llm_latency_p95"] = 0.0
    answer = ask(read_nat(put(tmp_path / "job_1", content), gpus=8).levels)
    assert answer.gpus_raw == pytest.approx(80)
    assert "concurrency 8 is left out: the import lacks its LLM latency or its runtime" in answer.warnings


def test_crossing_works_on_items():
    levels = read_nat(PRESENT, gpus=8).levels
    answer = ask(levels, Slo.parse("p50 runtime <= 4.03s"), method="crossing")
    assert "beyond what was measured" in answer.reason
    assert "concurrency 2 is left out: it has no data for p50 runtime <= 4.03s" in answer.warnings


def test_of_several_jobs_the_newest_wins_per_concurrency(tmp_path):
    put(tmp_path / "online" / "job_1", data(c1=9.0, c2=2.0), 1_000)
    put(tmp_path / "online" / "job_2", data(c1=1.0, c4=4.0), 2_000)
    found = read_nat(tmp_path)
    assert {lv.concurrency: lv.quantile("runtime", 0.95) for lv in found.levels} == {1: 1.0, 2: 2.0, 4: 4.0}
    assert [file.parent.name for file in found.files] == ["job_2", "job_1"]
    assert read_nat(tmp_path / "online").files == found.files
    assert read_nat(tmp_path / "online" / "job_1").files == [tmp_path / "online" / "job_1" / FILE_NAME]


def test_a_broken_job_among_several_is_skipped_and_named(tmp_path):
    put(tmp_path / "job_1", data(c1=1.0), 1_000)
    put(tmp_path / "job_2", "{", 2_000)
    found = read_nat(tmp_path)
    assert [lv.concurrency for lv in found.levels] == [1]
    assert "job_2" in found.warnings[0]


@pytest.mark.parametrize(
    "text,message",
    [
        ('{\n  "calc_data": {,', r"line 2, column 17: broken JSON"),
        ("[1]", "not a JSON object"),
        ("{}", "neither calc_data nor per_concurrency_data"),
        ('{"calc_data": {"one": {}}}', "'one' is not a concurrency"),
        ('{"calc_data": {"0": {}}}', "'0' is not a concurrency"),
        ('{"calc_data": {"1": 5}}', "not a concurrency with an object"),
        ('{"calc_data": {"1": {"sizing_metrics": 5}}}', "sizing_metrics: 5 is not an object"),
        ('{"calc_data": {"1": {"workflow_runtime_p95": "fast"}}}', "fast is not a number"),
        ('{"calc_data": {"1": {"workflow_runtime_p95": NaN}}}', "NaN is not a number"),
        ('{"calc_data": {"1": {"workflow_runtime_p95": -1}}}', "-1 is not a number"),
        ('{"calc_data": {"1": {}}}', "no level with a p95"),
        (f'{{"calc_data": {{"{"1" * 5000}": {{}}}}}}', "is not a concurrency"),
        ('{"calc_data": {"1": {"workflow_runtime_p95": 1e12}}}', "runtime_p95_s: 1e.12 s are out of range"),
        ("[" * 100_000, "nested too deep"),
    ],
)
def test_broken_files_are_named_with_their_place(tmp_path, text, message):
    path = put(tmp_path / "job_1", text) / FILE_NAME
    with pytest.raises(ConfigError, match=message) as raised:
        read_nat(path)
    assert str(path) in str(raised.value.where)


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / FILE_NAME
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_nat(path)


def test_nothing_there(tmp_path):
    with pytest.raises(StoreError, match="not found"):
        read_nat(tmp_path / "gone")
    with pytest.raises(StoreError, match=f"no {FILE_NAME}"):
        read_nat(tmp_path)


@pytest.mark.parametrize("file", [PRESENT, OLDER])
def test_an_import_is_a_run_folder_with_the_same_answers(tmp_path, file):
    folder, _ = import_nat(file, tmp_path / "runs", 8)
    levels = read_levels(folder)
    direct = read_nat(file, gpus=8).levels
    assert [lv.concurrency for lv in levels] == [lv.concurrency for lv in direct]
    assert {lv.gpus for lv in levels} == {8}
    assert ask(levels).to_json() == ask(direct).to_json()
    run = json.loads((folder / "run.json").read_text())
    assert run["source"]["tool"] == "NeMo Agent Toolkit sizing calculator"
    assert run["run"] == folder.name
    assert [entry.name for entry in (tmp_path / "runs").iterdir()] == [folder.name]


def test_importing_again_changes_nothing(tmp_path):
    folder, _ = import_nat(PRESENT, tmp_path, 8)
    before = (folder / "run.json").stat().st_mtime_ns
    assert import_nat(PRESENT, tmp_path, 8).folder == folder
    assert (folder / "run.json").stat().st_mtime_ns == before
    assert import_nat(PRESENT, tmp_path, 4).folder != folder


def test_an_import_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="another folder"):
        import_nat(PRESENT, tmp_path / "file", 8)


def test_the_summary_of_an_import(tmp_path):
    shutil.copy(PRESENT, tmp_path / FILE_NAME)
    rows = summarize(read_levels(import_nat(tmp_path, tmp_path / "runs", 8).folder), [TEN_S]).to_dicts()
    assert rows[0]["runtime_p95_s"] == 4.03488
    assert rows[0]["n"] == 2
    assert rows[0]["total_runtime_s"] == 8.06977
    assert (rows[0]["slo_0_attainment"], rows[0]["slo_0_met"]) == (1.0, True)
    assert rows[0]["little"] == "not checkable"
    assert rows[1]["slo_0_met"] is None
    assert rows[1]["n"] is None


def test_the_first_of_equal_imports_counts_and_a_measured_level_wins_over_both():
    first, second = read_nat(PRESENT, gpus=8).levels[:1], read_nat(OLDER, gpus=8).levels[:1]
    (kept,) = pool([*first, *second])
    assert kept.quantile("runtime", 0.95) == 4.03488
    measured = percentile_level(1, 1.5, source={})
    setting_alone = replace(measured, setting={"kind": "closed", "concurrency": 1}, source=first[0].source)
    (kept,) = pool([*first, setting_alone, *second])
    assert kept.quantile("runtime", 0.95) == 1.5


@pytest.mark.parametrize("bound,met", [("4.03s", True), ("4.02s", False)])
def test_a_mean_over_items(bound, met):
    first = read_nat(PRESENT).levels[0]
    assert first.met(Slo.parse(f"mean runtime <= {bound}")) is met
    assert first.met(Slo.parse("share ok >= 1%")) is None


def test_advice_about_a_snipped_file_keeps_the_name_of_its_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = put(Path("jobs/job_1"), '{"calc_data": {"1": {"sizing_metrics": {}}}}')
    with pytest.raises(ConfigError) as raised:
        read_nat(folder)
    assert "Jobs/" not in str(raised.value)
    assert str(raised.value).count("jobs/job_1") >= 2
    assert str(raised.value).endswith(". It needs workflow_runtime_p95 per concurrency")


def test_a_number_without_end_is_no_traceback(tmp_path):
    (tmp_path / FILE_NAME).write_text('{"calc_data": {"4": {"workflow_runtime_p95": %s}}}' % ("9" * 5000))
    with pytest.raises(ConfigError, match=FILE_NAME):
        read_nat(tmp_path)


def test_a_total_since_1970_is_null_and_told(tmp_path):
    content = json.loads(PRESENT.read_text())
    content["calc_data"]["2"]["sizing_metrics"]["total_runtime"] = 1795792974.4
    (tmp_path / FILE_NAME).write_text(json.dumps(content))
    rows = {row["concurrency"]: row for row in gpusize.read(tmp_path / FILE_NAME, tmp_path / "runs").summary.to_dicts()}
    assert rows[2]["total_runtime_s"] is None
    assert any("counts its time from 1970" in each for each in rows[2]["alerts"])
    assert rows[1]["total_runtime_s"] == content["calc_data"]["1"]["sizing_metrics"]["total_runtime"]


def fields(value, path=()):
    """The paths to all values, a concurrency or an item as one name."""
    if not isinstance(value, dict):
        return {path}
    return {each for key, item in value.items() for each in fields(item, (*path, "<c>" if key.isdigit() else key))}


def test_every_field_of_its_files_is_named_on_the_page_for_its_users():
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "leave-the-sizing-calculator.md").read_text()
    found = {path for file in (PRESENT, OLDER) for path in fields(json.loads(file.read_text()))}
    assert len(found) > 20
    for path in found:
        last = path[-1] if path[-1] != "<c>" else path[-2]
        held = path[-2] if len(path) > 1 else ""
        short = last.removeprefix("num_items_greater_than_target")
        assert last in page or f"{held}.*" in page or f"…{short}" in page, path
