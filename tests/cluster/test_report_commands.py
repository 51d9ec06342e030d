"""``gpusize cluster report``, ``plot``, ``compare`` and ``import``, as they are called."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from matplotlib.image import imread
from matplotlib.patches import Rectangle, StepPatch
from matplotlib.text import Text

from gpusize.cli import invoke
from gpusize.cluster.figures.layouts import detailed_figure, general_figure
from gpusize.cluster.figures.overview import overview_figure
from gpusize.cluster.folder import read_facts, update_facts
from gpusize.cluster.opened import open_test
from gpusize.cluster.phases.statistics import PERCENTILES
from gpusize.cluster.report.show import phase_columns
from gpusize.report.figures import style
from tests.cluster.folders import EVENTS, save, seed_folder, seed_rows
from tests.cluster.synthetic import BEGIN, S, World
from tests.cluster.test_imports import pods

PLAIN = World(n=30, gang=2, never=0.1, offset_s=0.5, seed=4)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = invoke(["cluster", *words])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = save(PLAIN, tmp_path)
    code, out, _ = run(capsys, "report", "-o", str(tmp_path))
    assert code == 0
    never = sum("unschedulable" in times for times in made.truth.values())
    assert f"30 workloads: {30 - never} running, {never} unschedulable" in out
    assert "straggler_spread" in out
    assert "ahead of ours, ±" in out
    code, out, err = run(capsys, "report", "-o", str(tmp_path), "--slo", "p99 scheduled <= 1s", "--json")
    assert code == 1
    assert "1 of 1 thresholds are not met" in err
    found = json.loads(out)
    rows = {row["phase"]: row for row in found["phases"]}
    timed = open_test(tmp_path)
    assert rows["scheduled"]["censored"] == never
    assert rows["scheduled"]["p50_s"] == timed.summary().filter(pl.col("phase") == "scheduled")["p50_s"].item()
    junit = tmp_path / "slo.xml"
    code, _, _ = run(capsys, "report", "-o", str(tmp_path), "--slo", "p50 scheduled <= 1min", "--junit", str(junit))
    assert code == 0
    assert 'failures="0"' in junit.read_text()


def test_what_report_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(replace(PLAIN, n=3), tmp_path)
    code, _, err = run(capsys, "report", "-o", str(tmp_path), "--slo", "p99 shceduled <= 1s")
    assert (code, "there is no phase shceduled" in err, "^" in err) == (2, True, True)
    code, _, err = run(capsys, "report", "-o", str(tmp_path), "--junit", "x.xml")
    assert (code, "there are no thresholds to write" in err) == (2, True)
    code, _, err = run(capsys, "report", "-o", str(tmp_path / "none"))
    assert (code, "there is no such folder" in err) == (2, True)


@pytest.mark.parametrize("layout", ["general", "detailed"])
def test_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str], layout: str) -> None:
    save(PLAIN, tmp_path)
    code, out, _ = run(capsys, "plot", "-o", str(tmp_path), "--plot", layout)
    assert code == 0
    for name in (f"{layout}.png", "overview.png"):
        assert imread(tmp_path / name).shape[0] > 300
        assert str(tmp_path / name) in out
    workloads, phases = (pl.read_parquet(tmp_path / f"{name}.parquet") for name in ("workloads", "phases"))
    assert workloads.height == 30
    assert phases.filter(pl.col("phase") == "scheduled").height == 30
    assert phases.group_by("workload", "phase").len()["len"].max() == 1
    both = phases.filter(pl.col("phase") == "scheduled", pl.col("state") == "done").join(workloads, on="workload")
    # One row of each table tells the same, but for the timeline that each took.
    apart = (both["last_scheduled_ns"] - both["submitted_ns_right"] - both["value_ns"]).abs()
    assert (apart < 0.02 * S).all()
    code, _, err = run(capsys, "plot", "-o", str(tmp_path), "--plot", "pie")
    assert (code, "there is no plot pie" in err) == (2, True)


def test_times_that_are_all_equal_have_no_interval_without_end() -> None:
    equal = {"p50_s": 0.0, "p95_s": 0.0, "p95_low_s": 0.0, "p95_high_s": None, "longest_s": 0.0, "censored": 0}
    rest = {
        "phase": "ready",
        "n": 8,
        "impossible": 0,
        "p95_ended_s": 0.0,
        "mean_s": 0.0,
        "error_s": 0.0,
        "method": None,
    }
    rows = [
        {**dict.fromkeys((f"{name}_s" for name in PERCENTILES), 0.0), **rest, **equal, **more}
        for more in ({}, {"censored": 1}, {"longest_s": 2.0}, {"p50_s": 2.0, "mean_s": 1.9, "longest_s": 2.0})
    ]
    [shown] = [each for each in phase_columns(rows) if each.title == "95% of it"]
    assert [cell.text for cell in shown.cells] == ["–", *["0 and more"] * 3]


def test_head_and_tail_are_of_the_pictures_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(PLAIN, tmp_path)
    code, out, _ = run(capsys, "plot", "-o", str(tmp_path), "--head", "20", "--tail", "5")
    assert (code, "5 workloads: " in out) == (0, True)
    assert pl.read_parquet(tmp_path / "workloads.parquet").height == 30
    assert len((tmp_path / "times.csv").read_text().splitlines()) == 31


def test_an_old_folder_opens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = seed_folder(tmp_path / "old", *seed_rows(20, 1))
    before = (folder / "sampled.json").read_bytes()
    code, out, _ = run(capsys, "plot", "-o", str(folder), "--plot", "detailed")
    assert code == 0
    assert "in whole seconds" in out
    assert "are taken for one" in out
    assert (folder / "detailed.png").exists()
    assert (folder / "sampled.json").read_bytes() == before, "what another tool wrote stays as it is"


def test_titles_are_those_of_that_tool(tmp_path: Path) -> None:
    folder = seed_folder(tmp_path, *seed_rows(20, 2))
    timed = open_test(folder)
    rows = timed.rows("job_creation")
    with style.settings():
        general, detailed = general_figure(timed), detailed_figure(timed)
    titles = [axes.get_title(loc="left") for axes in detailed.axes]
    mean = rows["value_ns"].mean() / S
    assert f"Time between Workload Creation and Job Creation (average: {mean:.2f} seconds)" in titles
    assert "Time between Pod Group Creation and Pod Scheduling Decision" in " ".join(titles)
    assert (
        general.axes[0]
        .get_title(loc="left")
        .startswith("Total Pod Scheduling Decision Time from Workload Submission (average: ")
    )
    assert [text.get_text() for text in detailed.texts] == ["Total number of jobs run: 20"]


def test_pods_a_second_are_drawn_as_high_as_the_text_has_them(tmp_path: Path) -> None:
    """The last second is cut off: scaled up to a whole one it would be drawn higher than anything that was."""
    submitted, sampled = seed_rows(6, 3)
    late = max(row["submitTimestamp"] for row in submitted)
    timed = open_test(seed_folder(tmp_path, submitted, [{**row, **dict.fromkeys(EVENTS, late)} for row in sampled]))
    rate = timed.pods_per_s()
    assert rate is not None
    with style.settings():
        axes = next(each for each in overview_figure(timed).axes if each.get_ylabel() == "pods/s")
    [(drawn, _, _), _] = [each.get_data() for each in axes.patches if isinstance(each, StepPatch)]
    assert max(drawn) == rate.most == sum(drawn) == 6


def test_lives_end_where_pods_fail(tmp_path: Path) -> None:
    """Two of ten fail after 7 s: they are at work until then, and not to the last look."""
    save(World(n=10, seed=33, lag_s=0.0, offset_known_s=0.0), tmp_path)
    stamps = pl.read_parquet(tmp_path / "stamps" / "*.parquet")
    lost = stamps.filter(pl.col("moment") == "bound").sort("workload").head(2)
    failed = lost.with_columns(moment=pl.lit("failed"), at_ns=pl.lit(BEGIN + 7 * S))
    pl.concat([stamps, failed]).write_parquet(tmp_path / "stamps" / "part-000001.parquet")
    timed = open_test(tmp_path)
    assert timed.workloads.filter(pl.col("outcome") == "failed").height == 2
    with style.settings():
        axes = next(each for each in overview_figure(timed).axes if each.get_ylabel() == "workloads by submission")
    # In seconds after the first submission.
    since = (BEGIN - timed.begin_ns) / S
    names = timed.workloads.drop_nulls("submitted_ns")["workload"].to_list()
    rows = [names.index(each) for each in lost["workload"]]
    [marks] = [line for line in axes.lines if line.get_marker() == "x"]
    assert sorted(np.asarray(marks.get_ydata()).tolist()) == sorted(rows)
    assert marks.get_xdata() == pytest.approx([7 + since] * 2, abs=0.02)
    for row in range(10):
        own = [p for p in axes.patches if isinstance(p, Rectangle) and p.get_y() < row < p.get_y() + p.get_height()]
        last = max(p.get_x() + p.get_width() for p in own)
        assert bool(abs(last - 7 - since) < 0.02) == (row in rows)


@pytest.mark.parametrize("n", [10, 60])
def test_no_legend_covers_a_title(tmp_path: Path, n: int) -> None:
    save(World(n=n, never=0.4, seed=5), tmp_path)
    with style.settings():
        figure = overview_figure(open_test(tmp_path))
        figure.canvas.draw()
        titles = {axes: text for axes in figure.axes for text in axes.findobj(Text) if text.get_text()
                  and text.get_text() == axes.get_title(loc="left")}  # fmt: skip
        covered = [
            axes
            for axes, title in titles.items()
            if (legend := axes.get_legend()) is not None
            and title.get_window_extent().overlaps(legend.get_window_extent())
        ]
        assert len(titles) == 5
        assert any(each.get_legend() is not None for each in figure.axes[1:2])
    assert [each.get_title(loc="left") for each in covered] == []


@pytest.mark.parametrize(
    "world",
    [
        World(n=1, seed=1),
        World(n=12, never=1.0),
        World(n=6, refused=1.0),
        World(n=40, watch=False, events=0.0, scheduling_s=(0.0, 0.1), offset_s=0.3),
        World(n=60, gang=3, kind="Job", queue=True, pod_groups=False, look_s=8.0, starting_s=9.0),
    ],
    ids=["one", "none scheduled", "all refused", "negative", "cut off"],
)
def test_every_picture_can_be_drawn(tmp_path: Path, world: World) -> None:
    save(world, tmp_path)
    timed = open_test(tmp_path)
    with style.settings():
        for draw in (general_figure, detailed_figure, overview_figure):
            draw(timed).canvas.draw()


def test_a_pause_before_a_submission_was_resumed_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(PLAIN, tmp_path)
    begin = read_facts(tmp_path)["submit"]["started_ns"]
    ends = [(0, 1), (101, 103)]
    sessions = [{"started_ns": begin + a * 10**9, "ended_ns": begin + b * 10**9} for a, b in ends]
    update_facts(tmp_path, submit={**read_facts(tmp_path)["submit"], "sessions": sessions})
    _, out, _ = run(capsys, "report", "-o", str(tmp_path))
    assert "1 min 40 s until it was resumed included" in " ".join(out.split())


def test_compare_and_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, world in (("a", PLAIN), ("b", replace(PLAIN, scheduling_s=(1.0, 4.0)))):
        save(world, tmp_path / name)
    code, out, _ = run(capsys, "compare", str(tmp_path / "a"), f"slow={tmp_path / 'b'}", "--phase", "scheduled")
    assert code == 0
    assert out.startswith("slow against a: one test a side")
    code, out, _ = run(capsys, "compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json")
    assert json.loads(out)["sides"] == {"a": 1, "b": 1}
    file = tmp_path / "pods.json"
    file.write_text(json.dumps(pods(5, version=2)))
    code, out, err = run(capsys, "import", str(file), "-o", str(tmp_path / "kb"))
    assert (code, "5 pods with" in out, "never became ready" in err) == (0, True, True)
    code, out, _ = run(capsys, "report", "-o", str(tmp_path / "kb"), "--slo", "kube-burner")
    assert (code, "met: p99 pod_ready <= 15s (kube-burner)" in out) == (0, True)
    file.write_text(json.dumps({"version": "1.0", "dataItems": [{"data": {"Perc50": 5}, "unit": "ms"}]}))
    run(capsys, "import", str(file), "-o", str(tmp_path / "pd"))
    code, out, _ = run(capsys, "report", "-o", str(tmp_path / "pd"))
    assert (code, "figures of other tools" in out) == (0, True)
    code, _, err = run(capsys, "report", "-o", str(tmp_path / "pd"), "--slo", "kubernetes")
    assert (code, "cannot be judged" in err) == (2, True)
