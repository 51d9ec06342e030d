"""A study as a whole: page, table, figures; and its runs, which are not repeats of each other."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gpusize.base.errors import StoreError, UsageError
from gpusize.cli import invoke
from gpusize.result import open_run
from gpusize.studies.conduct import StudyResult
from gpusize.studies.figures import study_figures
from gpusize.studies.page import study_levels, write_study
from gpusize.studies.table import study_rows
from tests.analysis.synthetic import MS, closed
from tests.report.folders import run_folder
from tests.report.results import HOSTILE
from tests.report.test_html import Page
from tests.report.test_plots import points, said

Make = Callable[..., Path]


def service_ms(settings: Mapping[str, Any], concurrency: int) -> int:
    """Instances work one request each at a time; mode b takes half as long again."""
    waves = max(1, concurrency / int(settings.get("instances", 1)))
    return int(100 * waves * (1.5 if settings.get("mode") == "b" else 1))


@pytest.fixture
def study(tmp_path: Path) -> Make:
    """Makes a study's folder from its combinations, each with a run of three levels."""

    def make(*combinations: Mapping[str, Any], name: str = "tr", failed: Mapping[str, Any] | None = None) -> Path:
        place = tmp_path / name
        place.mkdir()
        entries = {}
        for number, settings in enumerate(combinations):
            run = place / f"run-{number}"
            levels = {}
            for c in (1, 4, 16):
                took = service_ms(settings, c) * MS
                levels[c] = closed(c, lambda _, ns=took: ns, duration_ns=20_000 * MS)  # type: ignore[misc]
            labels = {"study": name, **{key: str(value) for key, value in settings.items()}}
            gpus = {"gpus": settings["gpus"]} if "gpus" in settings else {}
            target = {"url": "http://h/", "api": "json", "simulated": None, **gpus}
            options = {"users": 100, "slo": ["p95 runtime <= 1s"]}
            run_folder(run, levels, labels=labels, targets=0, options=options)
            facts = json.loads((run / "run.json").read_text())
            (run / "run.json").write_text(json.dumps({**facts, "targets": [target]}))
            key = ",".join(f"{key}={value}" for key, value in settings.items())
            entries[key] = {"settings": settings, "state": "done", "run": run.name}
        if failed is not None:
            entries["bad"] = {"settings": failed, "state": "failed", "error": HOSTILE}
        state = {"schema": 1, "name": name, "combinations": entries}
        (place / "study.json").write_text(json.dumps(state))
        return place

    return make


GRID = [{"instances": n, "mode": mode} for n in (1, 2, 4) for mode in ("a", "b")]


def figures_of(place: Path) -> dict[str, Any]:
    entries = json.loads((place / "study.json").read_text())["combinations"]
    result = StudyResult(place, entries)
    rows = study_rows(result)
    return study_figures("tr", rows, study_levels(result, rows))


def test_everything_is_written_and_the_state_is_left_alone(study: Make) -> None:
    place = study(*GRID)
    before = (place / "study.json").read_text()
    files = {file.relative_to(place).as_posix() for file in write_study(place)}
    plots = {f"plots/{name}.{kind}" for name in ("study-rate", "study-p95") for kind in ("png", "svg")}
    assert files == {"report.html", *plots, *(f"combinations.{kind}" for kind in ("parquet", "csv", "json"))}
    assert (place / "study.json").read_text() == before
    assert len(open_run(place).paths) == 6


def test_the_table_has_a_row_for_every_combination(study: Make) -> None:
    place = study(*GRID, failed={"instances": 8, "mode": "a"})
    write_study(place, plots=False)
    frame = pl.read_parquet(place / "combinations.parquet")
    assert frame["setting_instances"].to_list() == ["1", "1", "2", "2", "4", "4", "8"]
    assert frame["state"].to_list() == ["done"] * 6 + ["failed"]
    best = frame.row(4, named=True)
    assert best["peak_rate"] == pytest.approx(40, rel=0.1)
    assert (best["at"], best["runtime_p95_s"]) == (4, pytest.approx(0.1)), "the smallest of those that are as fast"
    assert frame.row(6, named=True)["peak_rate"] is None
    assert not (place / "plots").exists()


def test_levels_that_failed_do_not_win(study: Make) -> None:
    """The fastest combination answered errors: its levels ended early, and none of their rates counts."""
    place = study(*GRID)
    fastest, other = (place / f"run-{number}" for number in (4, 5))
    for run, levels in ((fastest, ("0000", "0001", "0002")), (other, ("0002",))):
        for name in levels:
            file = run / "levels" / name / "level.json"
            file.write_text(json.dumps({**json.loads(file.read_text()), "state": "interrupted"}))
    page = Page(write_study(place)[-1].read_text())
    frame = pl.read_parquet(place / "combinations.parquet")
    assert frame["state"].to_list() == ["done"] * 4 + ["failed", "done"]
    assert frame["peak_rate"][4] is None
    # Of the three loads of the other one the two that were measured count: 4 users in one wave of 150 ms.
    assert (frame["peak_rate"][5], frame["at"][5]) == (pytest.approx(4 / 0.15, rel=0.1), 4)
    assert frame["error"][5] == "1 of 3 levels was not measured to its end: concurrency 16 interrupted"
    assert "5 of 6 combinations of settings were measured to their end" in page.text
    assert "3 of 3 levels were not measured to their end: concurrency 1, 4, 16 interrupted" in page.text


def test_the_page_shows_levels_and_escapes_what_it_is_told(study: Make) -> None:
    place = study(*GRID, failed={"instances": 8, "mode": HOSTILE})
    page = Page(write_study(place)[-1].read_text())
    assert page.tags["script"] == 2
    assert page.tags["svg"] == 2
    assert all(n == 1 for n in page.ids.values())
    assert "6 of 7 combinations of settings were measured to their end" in page.text
    assert "p95 at 16" in page.text
    assert "\x1b" not in page.text
    assert "1,600" in page.text


def test_a_number_is_the_axis_and_the_other_settings_are_lines(study: Make) -> None:
    made = figures_of(study(*GRID))
    rate, p95 = made["study-rate"], made["study-p95"]
    assert rate.axes[0].get_xlabel() == "instances"
    lines = [points(line) for line in rate.axes[0].lines if len(points(line)) == 3 and line.get_linestyle() == "-"]
    assert [[x for x, _ in line] for line in lines] == [[1, 2, 4], [1, 2, 4]]
    assert said(rate, "mode a")
    assert said(rate, "Most at instances 4: 40 requests/s")
    assert len(p95.axes) == 2
    ends = [points(line)[-1][1] for line in p95.axes[1].lines if line.get_linestyle() == "-"]
    assert ends == pytest.approx([0.15, 0.15, 0.6])


def test_settings_that_are_texts_are_points_without_a_line(study: Make) -> None:
    rate = figures_of(study({"mode": "a"}, {"mode": "b"}))["study-rate"]
    assert [line.get_linestyle() for line in rate.axes[0].lines if len(points(line)) == 2] == ["None"]
    assert [each.get_text() for each in rate.axes[0].get_xticklabels()] == ["a", "b"]


def test_a_study_without_any_run_still_has_its_page(study: Make) -> None:
    place = study(failed={"instances": 1})
    assert figures_of(place) == {}
    assert "1 combination of settings" in write_study(place)[-1].read_text()


def test_a_folder_without_a_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        write_study(tmp_path)


def test_runs_with_different_settings_are_not_pooled(study: Make) -> None:
    place = study(*GRID)
    with pytest.raises(UsageError) as error:
        open_run(place).estimates()
    assert "instances is 1, 2, 4; mode is a, b" in str(error.value)
    assert "--label instances=4 --label mode=b" in str(error.value)
    assert open_run(place, labels={"instances": "2", "mode": "a"}).estimates()
    with pytest.raises(UsageError, match="instances is 1, 2, 4"):
        open_run(place, labels={"mode": "a"}).estimates()


def test_a_study_over_gpus_is_estimated_from_all_of_them_by_scaling_and_from_one_by_others(study: Make) -> None:
    place = study({"gpus": 2}, {"gpus": 4})
    answers = {each.method: each for each in open_run(place).estimates()}
    assert set(answers) == {"twin", "scaling", "slope", "crossing"}
    slope = answers["slope"]
    assert slope.tested_gpus == 4
    assert any("2 GPUs are left out" in text for text in slope.warnings)


def test_instances_that_are_counted_as_gpus_may_differ(study: Make) -> None:
    place = study({"instances": 2}, {"instances": 4})
    for run in place.glob("run-*"):
        facts = json.loads((run / "run.json").read_text())
        facts["targets"][0]["gpus"] = int(facts["labels"]["instances"])
        (run / "run.json").write_text(json.dumps(facts))
    assert [each.method for each in open_run(place).estimates()] == ["twin", "scaling", "slope", "crossing"]


def test_gpus_that_the_runs_do_not_know_are_a_setting_like_others(study: Make) -> None:
    place = study({"gpus": 2}, {"gpus": 4})
    for run in place.glob("run-*"):
        facts = json.loads((run / "run.json").read_text())
        facts["targets"][0]["gpus"] = 8
        (run / "run.json").write_text(json.dumps(facts))
    with pytest.raises(UsageError, match="gpus is 2, 4"):
        open_run(place).estimates()


def test_repeats_of_one_combination_are_pooled(study: Make) -> None:
    place = study({"instances": 2}, {"instances": 2.0})
    for run in place.glob("run-*"):
        facts = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps({**facts, "labels": {"study": "tr", "instances": "2"}}))
    assert open_run(place).estimates(gpus=1)


def test_the_command_makes_the_page_of_a_study_or_of_its_labelled_runs(
    study: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = study(*GRID)
    assert invoke(["report", str(place), "--no-plots"]) == 0
    assert capsys.readouterr().out == f"{place / 'report.html'}\n"
    out = tmp_path / "out"
    labels = ["--label", "instances=2", "--label", "mode=a"]
    assert invoke(["report", str(place), *labels, "--no-plots", "--out", str(out)]) == 0
    assert (out / "summary.csv").exists()
    assert pl.read_csv(out / "summary.csv")["run"].unique().to_list() == ["run-2"]
    assert invoke(["report", str(place), "--label", "mode=a", "--no-plots"]) == 2
    assert "pick one" in capsys.readouterr().err.lower()
    assert invoke(["report", str(place), "--label", "mode=c"]) == 2
