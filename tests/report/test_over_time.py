"""The figure of a run over time, and the section on delivery, on runs whose truth is known."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from matplotlib.text import Annotation

from gpusize.base.errors import StoreError
from gpusize.cli import invoke
from gpusize.records.samples import sample_schema
from gpusize.report.figures import style
from gpusize.report.figures.over_time import over_time_figure
from gpusize.report.figures.plots import figures
from gpusize.report.figures.style import AMBER, INK, LIMIT, MID, pushed_apart
from gpusize.report.figures.timeline import timeline
from gpusize.report.page.html import render_html
from gpusize.report.summary.sections import sections
from gpusize.report.summary.terminal import print_sections, print_summary
from gpusize.result import Result
from gpusize.studies.table import best_level
from tests.analysis.open_levels import (
    START_NS,
    arrivals,
    columns,
    open_setting,
    sample_down,
    served,
    write_level,
    write_run,
)
from tests.analysis.synthetic import MS, closed
from tests.report.folders import level_columns, run_folder
from tests.report.results import console, sweep
from tests.report.test_plots import points, said, texts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_over_time(run: Path, out: Path | None = None) -> Figure | None:
    figure = over_time_figure(Result([run]))
    if figure is not None and out is not None:
        with style.settings():
            figure.savefig(out)
    return figure


def staged(
    place: Path, *, limited: int | None = None, late: int | None = None, sampled: int = 1, ready_s: float = 90
) -> Path:
    """40/s and then 120/s for a minute each; ten servers of 0.1 s serve 100/s, and from 90 s on 20 of them.

    The readings say that a second replica is ready from ``ready_s`` on.
    """
    write_run(place, options={"slo": ["p95 runtime <= 1s"]})
    parts = [arrivals("poisson", rate, 60, seed=k) + 60 * k for k, rate in enumerate((40, 120))]
    ends = served(np.concatenate(parts), 0.1, [(0.0, 10), (90.0, 20)])
    for k, (due, rate) in enumerate(zip(parts, (40.0, 120.0), strict=True)):
        end, ends = ends[: due.size], ends[due.size :]
        start_ns = START_NS + k * 60 * 10**9
        sent = np.minimum(due + (0.05 if k == late else 0.0), end - 0.001) - 60 * k
        given = columns(due - 60 * k, end - 60 * k, sent_s=sent, start_ns=start_ns)
        cpu = {"cpu_ns": 59 * 10**9} if k == limited else {}
        setting = open_setting(rate, 60, stage=k, at_s=60.0 * k, expected=due.size)
        folder = write_level(place, k, given, setting, 60, start_ns=start_ns, **cpu)
        readings(folder, start_ns, 60 * k, ready_s)
        if sampled > 1:
            sample_down(folder, sampled)
    return place


def readings(folder: Path, start_ns: int, at_s: int, ready_s: float) -> None:
    """Each second two pods' share of the replicas, of which the second comes at some time, and another series."""
    (folder / "samples").mkdir()
    rows = []
    for second in range(60):
        t_ns, ready = start_ns + second * 10**9, 1.0 if at_s + second < ready_s else 2.0
        rows += [(t_ns, "http://router/metrics", "gpusize_sim_replicas", "", ready)]
        rows += [(t_ns, "http://router/metrics", "gpusize_sim_replicas_desired", "", 2.0)]
        rows += [(t_ns, "http://router/metrics", "other", "", 7.0)]
    pl.DataFrame(rows, schema=sample_schema(), orient="row").write_parquet(folder / "samples" / "part-00000.parquet")


def drawn(axes: Axes, color: str, style: str = "-") -> np.ndarray[Any, Any]:
    """The points of the longest line of a colour, shape (n, 2)."""
    found = [each for each in axes.lines if each.get_color() == color and each.get_linestyle() == style]
    return np.array(points(max(found, key=lambda each: len(points(each)))))


@pytest.mark.parametrize("sampled", [1, 10])
def test_rates_runtimes_and_what_is_in_flight_follow_the_truth(tmp_path: Path, sampled: int) -> None:
    figure = plot_over_time(staged(tmp_path / "r", sampled=sampled))
    assert figure is not None
    rates, times, flight, _ = figure.axes

    def mean(line: np.ndarray[Any, Any], low: float, high: float) -> float:
        inside = (line[:, 0] >= low) & (line[:, 0] < high)
        return float(np.nanmean(line[inside, 1]))

    offered, achieved = drawn(rates, AMBER), drawn(rates, MID)
    assert mean(offered, 5, 55) == pytest.approx(40, rel=0.1)
    assert mean(achieved, 5, 55) == pytest.approx(40, rel=0.1)
    assert mean(offered, 65, 88) == pytest.approx(120, rel=0.1)
    assert mean(achieved, 65, 88) == pytest.approx(100, rel=0.03)  # what ten servers can do
    assert mean(achieved, 92, 100) > 125  # the backlog is worked off
    held = drawn(flight, MID)
    assert held[:, 1].max() == pytest.approx(20 * 30, rel=0.25)
    assert held[-1, 1] <= 20
    medians = drawn(times, "#7fb5d8")
    assert mean(medians, 5, 55) == pytest.approx(0.1 if times.get_ylabel() == "runtime (s)" else 100, rel=0.1)


def test_levels_replicas_and_units_are_marked(tmp_path: Path) -> None:
    figure = plot_over_time(staged(tmp_path / "r"))
    assert figure is not None
    *_, flight, replicas = figure.axes
    assert {"40/s", "120/s", "ready", "wanted", "offered", "achieved", "asked for", "in flight"} <= set(texts(figure))
    assert said(figure, "time since the start of the run (s)")
    assert figure.axes[0].get_ylabel() == "requests/s"
    assert flight.get_ylabel() == "requests in flight"
    ready = drawn(replicas, "#009e73")
    assert ready[0, 1] == 1
    assert ready[ready[:, 0] >= 90.5][0, 1] == 2
    assert not figure.axes[0].patches
    message = r"1 replica answered (\S+) of (\S+) offered requests/s; 2 caught up in (\S+) s"
    finding = re.fullmatch(message, texts(figure)[0])
    assert finding is not None
    # Twenty servers answer 200/s: of 30 s times 20/s all but 15 % are gone when 80/s more than offered came for 6.4 s.
    assert [float(each) for each in finding.groups()] == pytest.approx([100, 120, 6.4], rel=0.1, abs=1.5)


def test_without_a_replica_more_the_title_says_when(tmp_path: Path) -> None:
    figure = plot_over_time(staged(tmp_path / "r", ready_s=1000))
    assert figure is not None
    finding = re.fullmatch(r"From (\S+) to (\S+) s, (\S+) of (\S+) offered requests/s were answered", texts(figure)[0])
    assert finding is not None
    assert [float(each) for each in finding.groups()] == pytest.approx([66, 90, 100, 120], rel=0.1)


def test_requests_that_are_only_in_flight_are_not_called_unanswered(tmp_path: Path) -> None:
    """A stair of rates on a server that takes 3 s for each request, however many there are."""
    place = write_run(tmp_path / "r")
    for k, rate in enumerate((30, 60, 90)):
        due = arrivals("constant", rate, 10)
        setting = open_setting(float(rate), 10, "constant", stage=k, at_s=10.0 * k)
        start_ns = START_NS + k * 10 * 10**9
        write_level(place, k, columns(due, due + 3.0, start_ns=start_ns), setting, 10, start_ns=start_ns)
    figure = plot_over_time(place)
    assert figure is not None
    assert texts(figure)[0] == "All that was offered was answered, up to 90.0 requests/s"


def test_lines_end_with_the_load_and_names_stand_beside_their_ends(tmp_path: Path) -> None:
    figure = plot_over_time(staged(tmp_path / "r"), tmp_path / "over.png")
    assert figure is not None
    rates, times, _, replicas = figure.axes
    assert rates.get_xlim() == replicas.get_xlim() == (0, 120)
    assert max(x for each in rates.lines for x, _ in points(each)) <= 120
    for axes in figure.axes:
        low, high = axes.get_ylim()
        line = 13.7 / 72 * figure.dpi / axes.get_window_extent().height
        names = {
            each.get_text(): each.xy[1] for each in axes.texts if isinstance(each, Annotation) and each.xy[0] == 1.0
        }
        ends = {each.get_color(): points(each)[-1][1] for each in axes.lines if len(points(each)) > 2}
        beside = [
            (names[each.get_text()], (ends[each.get_color()] - low) / (high - low))
            for each in axes.texts
            if each.get_text() in names and each.get_color() in ends and axes.get_yscale() == "linear"
        ]
        assert all(abs(place - end) <= line * len(names) for place, end in beside)
    assert [each.get_text() for each in times.texts if "≤" in each.get_text()] == ["p95 ≤ 1s"]


@pytest.mark.parametrize(
    "wanted, found",
    [
        ([0.2, 0.5, 0.9], [0.2, 0.5, 0.9]),
        ([0.5, 0.5, 0.5], [0.4, 0.5, 0.6]),
        ([0.3, 0.31, 0.8], [0.255, 0.355, 0.8]),
        ([0.0, 0.0], [0.0, 0.1]),
        ([0.97, 1.0], [0.9, 1.0]),
    ],
)
def test_names_that_collide_are_pushed_apart_by_as_little_as_can_be(wanted: list[float], found: list[float]) -> None:
    assert pushed_apart(wanted, 0.1) == pytest.approx(found)


def test_levels_in_doubt_are_hatched_and_named(tmp_path: Path) -> None:
    figure = plot_over_time(staged(tmp_path / "r", limited=0, late=1), tmp_path / "over.png")
    assert figure is not None
    for axes in figure.axes:
        (hatched,) = [patch for patch in axes.patches if patch.get_hatch()]
        low, high = (x for x, _ in hatched.get_extents().transformed(axes.transData.inverted()).get_points())
        assert (low, high) == (pytest.approx(0, abs=0.1), pytest.approx(60, abs=0.1))
    marks = {each.get_text(): each.get_color() for each in figure.axes[0].texts}
    assert marks["generator-limited"] == marks["not delivered"] == LIMIT
    assert (tmp_path / "over.png").read_bytes().startswith(b"\x89PNG")


def test_closed_loops_show_the_users_that_were_asked_for(tmp_path: Path) -> None:
    place = run_folder(
        tmp_path / "r", {4: level_columns(4, start_ns=START_NS), 8: level_columns(8, start_ns=6 * 10**9)}
    )
    figure = plot_over_time(place)
    assert figure is not None
    rates, _, flight = figure.axes
    assert "offered" not in texts(figure)
    achieved = drawn(rates, MID)
    assert np.median(achieved[(achieved[:, 0] > 0.5) & (achieved[:, 0] < 4.5), 1]) == pytest.approx(40, rel=0.1)
    assert flight.get_ylim()[1] >= 8
    assert texts(figure)[0] == "Most was answered with 8 in flight: 80 requests/s"


def test_the_most_that_was_answered_is_one_number_wherever_it_is_said(tmp_path: Path) -> None:
    """Two passes over two levels; of each the rates differ a little."""
    runs = []
    for k, service_ms in enumerate((100, 104)):
        levels = {}
        for users in (2, 8):
            columns_ = closed(users, lambda _: service_ms * MS, duration_ns=5000 * MS)  # noqa: B023 -- called at once
            levels[users] = columns_
        runs.append(run_folder(tmp_path / f"r{k}", levels))
    result = Result(runs)
    most = result.summary.filter(pl.col("concurrency") == 8)["achieved_rate"].to_list()
    assert len(set(most)) == 2
    said = f"{sum(most) / 2:.3g} requests/s"
    made = figures(result)
    assert said in texts(made["throughput"])[0]
    assert said in texts(made["over_time"])[0]
    assert f"{best_level(result.summary.to_dicts())['peak_rate']:.3g} requests/s" == said


def test_it_is_among_the_figures_and_in_the_folder(tmp_path: Path) -> None:
    result = Result([staged(tmp_path / "r")])
    assert list(figures(result))[-1] == "over_time"
    result.report()
    assert (result.path / "plots" / "over_time.png").is_file()
    assert "over_time" not in figures(sweep())
    assert over_time_figure(sweep()) is None


def test_a_run_without_levels_has_none_and_a_missing_one_is_told(tmp_path: Path) -> None:
    assert plot_over_time(write_run(tmp_path / "r")) is None
    assert timeline([], {}) is None
    with pytest.raises(StoreError):
        plot_over_time(tmp_path / "nothing")


def test_the_section_says_what_was_judged_and_why_not(tmp_path: Path) -> None:
    result = Result([staged(tmp_path / "r", late=1)])
    section = next(each for each in sections(result) if each.key == "delivery")
    cells = {column.key: [cell.text for cell in column.cells] for column in section.columns}
    assert cells["delivered"] == ["yes", "no"]
    assert cells["count"] == ["100%", "100%"]
    assert cells["lateness"] == ["0 s", "50 ms"]
    assert section.note.startswith(
        "120 requests/s was not delivered, because requests waited for a free connection: p99 0.05 s"
    )
    page = render_html(result)
    assert "Was this load delivered?" in page
    assert "was not delivered, because requests waited" in page


def test_the_terminal_shows_the_section_where_a_load_was_not_delivered(tmp_path: Path) -> None:
    def shown(result: Result) -> str:
        out, raw = console(120)
        print_summary(result, out)
        print_sections(result, out)
        assert isinstance(raw, io.BytesIO)
        return raw.getvalue().decode()

    good = shown(Result([staged(tmp_path / "good")]))
    assert "Was this load delivered?" not in good
    assert good.split("\n")[1].split()[:5] == ["rate", "n", "offered", "achieved", "load"]
    assert "yes" in good
    bad = shown(Result([staged(tmp_path / "bad", late=1)]))
    assert "Was this load delivered?" in bad
    assert "! 120 requests/s: not delivered: requests waited for a free connection" in bad


def test_strict_ends_with_1_where_a_load_was_not_delivered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from gpusize.cli.exit_code import judge

    assert judge(Result([staged(tmp_path / "good")]), [], strict=True) == (0, "")
    verdict = judge(Result([staged(tmp_path / "bad", late=1)]), [], strict=True)
    assert verdict.code == 1
    assert "120/s was not delivered, because requests waited for a free connection" in verdict.why
    assert invoke(["report", str(tmp_path / "bad"), "--no-plots"]) == 0
    assert capsys.readouterr().out.strip().endswith("report.html")


def test_what_was_asked_for_is_drawn_burst_by_burst(tmp_path: Path) -> None:
    write_run(tmp_path / "r")
    bursts = {"rate": 200.0, "length_s": 10.0, "every_s": 30.0}
    due = np.concatenate([np.arange(400) / 20, 20 + np.arange(2000) / 200])
    due = np.concatenate([due, 30 + due])
    setting = open_setting(80.0, 60, "constant", bursts=bursts, expected=due.size)
    write_level(tmp_path / "r", 0, columns(due, due + 0.01), setting, 60)
    figure = plot_over_time(tmp_path / "r", tmp_path / "bursts.png")
    assert figure is not None
    asked = [points(each) for each in figure.axes[0].lines if each.get_linestyle() == "--" and each.get_color() == INK]
    corners = [(0, 20), (20, 20), (20, 200), (30, 200), (30, 20), (50, 20), (50, 200), (60, 200)]
    assert np.array(asked[0]) == pytest.approx(np.array(corners, float))
    assert "20, bursts 200/s" in texts(figure)
