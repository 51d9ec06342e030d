from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.text import Annotation

from gpusize.base.errors import StoreError, UsageError
from gpusize.report.figures.plots import figures, save_plots, svg_text
from gpusize.report.figures.style import PERCENTILES
from gpusize.report.summary.columns import summary_columns
from gpusize.report.summary.sweep import sweep_of
from tests.report.results import (
    HOSTILE,
    LEVELS,
    P95_S,
    SLO,
    Source,
    crossing,
    frame,
    interrupted,
    meta,
    row,
    slope,
    sweep,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


def texts(figure: Figure) -> list[str]:
    found = [each.get_text() for each in figure.texts]
    for axes in figure.axes:
        found += [axes.get_xlabel(), axes.get_ylabel(), *(each.get_text() for each in axes.texts)]
        legend = axes.get_legend()
        found += [each.get_text() for each in legend.get_texts()] if legend else []
    return found


def said(figure: Figure, part: str) -> bool:
    return any(part in text for text in texts(figure))


def points(drawn: Line2D) -> list[tuple[float, float]]:
    xs, ys = np.asarray(drawn.get_xdata(), float), np.asarray(drawn.get_ydata(), float)
    return list(zip(xs.tolist(), ys.tolist(), strict=True))


def line(axes: Axes, color: str) -> list[tuple[float, float]]:
    """The points of the first drawn line of a colour."""
    return points(next(each for each in axes.lines if each.get_color() == color and each.get_linestyle() == "-"))


def note(axes: Axes, start: str) -> Annotation:
    return next(each for each in axes.texts if isinstance(each, Annotation) and each.get_text().startswith(start))


def test_the_figures_of_a_sweep_come_in_reading_order() -> None:
    assert list(figures(sweep(), [slope(), crossing()])) == [
        *("runtime", "ttft", "itl", "percentiles", "fit", "attainment", "throughput")
    ]
    assert list(figures(sweep())) == ["runtime", "ttft", "itl", "percentiles", "attainment", "throughput"]
    assert figures(Source(frame([row(1, 1.0)]).clear())) == {}


def test_runtime_shows_three_percentiles_the_slo_and_its_finding() -> None:
    figure = figures(sweep())["runtime"]
    (axes,) = figure.axes
    assert line(axes, PERCENTILES["p95"]) == list(zip(map(float, LEVELS), P95_S, strict=True))
    assert [y for _, y in line(axes, PERCENTILES["p99"])] == pytest.approx([1.1 * y for y in P95_S])
    assert texts(figure)[0] == "p95 runtime is within 10 s up to 8 users, over it from 16"
    for label in ("p50", "p95", "p99", f"SLO {SLO}", "runtime (s)", "concurrency (requests in flight)"):
        assert label in texts(figure)
    assert axes.get_xscale() == "log"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "4", "8", "16", "32"]


def test_end_labels_do_not_overlap() -> None:
    flat = Source(frame([row(c, 1.0, runtime_p50_s=0.99, runtime_p99_s=1.01) for c in (1, 2, 4)]), meta())
    (axes,) = figures(flat)["runtime"].axes
    places = sorted(note(axes, name).xy[1] for name in PERCENTILES)
    assert min(np.diff(places)) > 0.04


def test_interrupted_levels_are_named_and_not_joined_to_the_line() -> None:
    figure = figures(sweep(interrupted()))["runtime"]
    (axes,) = figure.axes
    assert max(x for x, _ in line(axes, PERCENTILES["p95"])) == 32
    assert said(figure, "interrupted, not counted ↑ 60.0 s")
    hollow = next(each for each in axes.lines if each.get_markerfacecolor() == "none")
    assert [x for x, _ in points(hollow)] == [64]


def test_repeated_levels_are_points_joined_by_their_mean() -> None:
    twice = Source(frame([row(1, 1.0), row(4, 2.0), row(4, 4.0), row(8, 5.0)]), meta())
    (axes,) = figures(twice)["runtime"].axes
    assert line(axes, PERCENTILES["p95"]) == [(1.0, 1.0), (4.0, 3.0), (8.0, 5.0)]


def test_a_wide_range_of_times_gets_a_log_axis() -> None:
    (axes,) = figures(Source(frame([row(1, 0.01), row(64, 9.0)]), meta()))["runtime"].axes
    assert axes.get_yscale() == "log"


def test_fit_shows_line_capacity_and_r_squared() -> None:
    figure = figures(sweep(), [slope()])["fit"]
    (axes,) = figure.axes
    assert said(figure, "3.03 s + 0.657 s × concurrency, R² 0.995")
    assert texts(figure)[0] == "By the straight line: 10.6 in flight on 8 GPUs"
    mark = note(axes, "C* = 10.6")
    assert mark.xy == pytest.approx((10.616896, 10.0))
    assert axes.get_xscale() == "linear"


def test_fit_crosses_outliers_out_and_shades_what_was_not_measured() -> None:
    levels, times = (1, 2, 4, 8, 16, 32), (2.1, 2.3, 2.2, 3.0, 5.1, 9.5)
    estimate = slope(levels, times)
    assert estimate.details["fit"]["outliers_removed"] == [32]
    source = Source(frame([row(c, y) for c, y in zip(levels, times, strict=True)]), meta())
    figure = figures(source, [estimate])["fit"]
    (axes,) = figure.axes
    crossed = next(each for each in axes.lines if each.get_marker() == "x")
    assert points(crossed) == [(32.0, 9.5)]
    assert "removed as an outlier" in texts(figure)
    assert "outside the tested range" in texts(figure)[0]
    assert "not measured" in texts(figure)
    right = max(axes.patches, key=lambda patch: float(patch.get_extents().x1))
    assert axes.transData.inverted().transform(right.get_extents().p0)[0] == pytest.approx(32)


def test_fit_without_a_line_shows_the_rejected_one() -> None:
    figure = figures(sweep(), [slope(p95_s=(3.0, 3.1, 3.0, 3.2, 2.9, 3.1))])["fit"]
    assert texts(figure)[0] == "No straight line fits these levels"
    assert said(figure, "rejected: ")


def test_attainment_runs_through_its_crossing() -> None:
    figure = figures(sweep(), [crossing()])["attainment"]
    (axes,) = figure.axes
    mark = note(axes, "8.54")
    x, y = mark.xy
    curve = np.array(line(axes, PERCENTILES["p95"]))
    assert np.interp(x, curve[:, 0], curve[:, 1]) == pytest.approx(y)
    assert y == 95
    assert f"{SLO} (95% needed)" in texts(figure)


def test_attainment_shows_the_capacity_that_the_answer_rests_on() -> None:
    twin = crossing(method="twin", capacity_concurrency=8.8, details={})
    figure = figures(sweep(), [twin, slope(), crossing()])["attainment"]
    assert note(figure.axes[0], "8.8").xy == (8.8, 95)
    assert texts(figure)[0] == "Attainment crosses what is needed at 8.8 users"
    # The curve that is drawn crosses there, too.
    drawn = [(np.asarray(each.get_xdata()), np.asarray(each.get_ydata())) for each in figure.axes[0].get_lines()]
    curves = [(xs, ys) for xs, ys in drawn if xs.size > 20]
    assert any(np.interp(8.8, xs, ys) == pytest.approx(95) for xs, ys in curves)
    beside = figures(sweep(), [slope(), crossing(), twin])["attainment"]
    assert note(beside.axes[0], "8.54").xy[1] == 95


def test_several_slos_have_curves_and_crossings_of_their_own() -> None:
    other = "p50 runtime <= 4s"
    first, second = (1.0, 1.0, 1.0, 0.99, 0.4, 0.0), (1.0, 0.9, 0.6, 0.2, 0.0, 0.0)
    rows = [
        row(c, y, slo_0_attainment=a, slo_1=other, slo_1_attainment=b)
        for c, y, a, b in zip(LEVELS, P95_S, first, second, strict=True)
    ]
    lower = crossing(slo=other, capacity_concurrency=5.0, details={})
    estimates = [
        slope(slo="share ok >= 99%", details={}, per_slo=(slope(details={}), slope())),
        crossing(per_slo=(crossing(), lower)),
    ]
    made = figures(Source(frame(rows), meta()), estimates)
    axes = made["attainment"].axes[0]
    assert note(axes, "8.54").xy[1] == 95
    assert note(axes, "5").xy == (5.0, 50.0)
    assert {f"{SLO} (95% needed)", f"{other} (50% needed)"} <= set(texts(made["attainment"]))
    assert texts(made["attainment"])[0] == "Attainment of 2 SLOs; one is missed beyond 5 users"
    assert said(made["fit"], "R² 0.995")


def test_attainment_without_a_crossing_says_what_was_found() -> None:
    assert texts(figures(sweep())["attainment"])[0] == "The SLO is met up to 8 users, missed at 16"
    all_met = Source(frame([row(c, 1.0) for c in (1, 2, 4)]), meta())
    assert texts(figures(all_met)["attainment"])[0] == "Every tested level meets the SLO (100% at worst)"
    none = Source(frame([row(c, 1.0, slo_0_attainment=0.5) for c in (1, 2, 4)]), meta())
    assert texts(figures(none)["attainment"])[0] == "No tested level meets the SLO (50.0% at best)"


def test_throughput_has_a_panel_for_tokens_only_where_there_are_tokens() -> None:
    figure = figures(sweep())["throughput"]
    assert [axes.get_ylabel() for axes in figure.axes] == ["requests/s", "output tokens/s"]
    plain = Source(frame([row(c, 1.0, tokens=False) for c in (1, 2, 4)]), meta())
    assert len(figures(plain)["throughput"].axes) == 1


@pytest.mark.parametrize(
    "requests, repeats, said",
    [
        (58, 1, "Throughput: 26.2 requests/s at 30 users"),
        (900, 1, "Throughput still rises at 30 users: 26.2 requests/s"),
        (900, 0, "Throughput: 26.2 requests/s at 30 users"),
        (200, 1, "Throughput: 26.2 requests/s at 30 users"),
        (200, 4, "Throughput still rises at 30 users: 26.2 requests/s"),
    ],
)
def test_throughput_is_said_to_rise_where_it_does_beyond_chance(requests: int, repeats: int, said: str) -> None:
    """3 requests/s more, of 23; of 58 requests in 2.3 s the standard error alone is 3.4. Repeats have more of them."""
    last = [row(30, 1.0, achieved_rate=26.2, n=requests)] * max(1, repeats)
    known = 385 if repeats else 40
    before = [row(c, 1.0, achieved_rate=r, n=known) for c, r in ((5, 12.0), (12, 21.0), (19, 23.0))]
    assert texts(figures(Source(frame([*before, *last]), meta()))["throughput"])[0] == said


def test_open_loop_is_drawn_against_the_rate() -> None:
    rates = (10.0, 20.0, 30.0, 40.0)
    source = Source(frame([row(r, 0.2, kind="open", achieved_rate=min(r, 20.0), tokens=False) for r in rates]), meta())
    made = figures(source, [slope()])
    assert "fit" not in made
    assert made["runtime"].axes[0].get_xlabel() == "offered rate (requests/s)"
    assert texts(made["throughput"])[0] == "Throughput tops out at 20 requests/s, from 20 requests/s offered"
    assert "all that is offered" in texts(made["throughput"])


def test_files_are_written_as_png_and_svg_and_again_the_same(tmp_path: Path) -> None:
    files = save_plots(sweep(), [slope(), crossing()], tmp_path / "plots")
    names = {f"{name}.{kind}" for name in figures(sweep(), [slope(), crossing()]) for kind in ("png", "svg")}
    assert {file.name for file in files} == names == {file.name for file in (tmp_path / "plots").iterdir()}
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files if file.suffix == ".png")
    before = {file: file.read_bytes() for file in files if file.suffix == ".svg"}
    for file in before:
        assert ET.fromstring(file.read_bytes()).tag.endswith("svg")
    save_plots(sweep(), [slope(), crossing()], tmp_path / "plots")
    assert before == {file: file.read_bytes() for file in before}


def test_a_folder_that_cannot_be_made_and_an_unknown_format(tmp_path: Path) -> None:
    (tmp_path / "plots").write_text("a file")
    with pytest.raises(StoreError, match="plots"):
        save_plots(sweep(), [], tmp_path / "plots")
    with pytest.raises(UsageError, match="gif"):
        save_plots(sweep(), [], tmp_path, ("gif",))


def test_the_settings_of_the_caller_stay_as_they_were() -> None:
    with mpl.rc_context({"font.size": 31.0, "axes.grid": False}):
        before = dict(mpl.rcParams)
        figure = figures(sweep())["runtime"]
        svg_text(figure)
        assert dict(mpl.rcParams) == before
        assert figure.axes[0].xaxis.label.get_fontsize() == 10


def test_hostile_names_are_drawn_as_plain_text() -> None:
    target = {"url": HOSTILE, "model": HOSTILE, "gpus": 8}
    figure = figures(sweep(targets=[target]))["runtime"]
    assert not any(ord(c) < 32 for text in texts(figure) for c in text)
    root = ET.fromstring(svg_text(figure))
    assert not [each for each in root.iter() if each.tag.endswith("script")]


def test_levels_at_which_the_generator_was_the_limit_are_ringed() -> None:
    rows = [row(c, y, flags=["generator-limited"] if c == 32 else []) for c, y in zip(LEVELS, P95_S, strict=True)]
    made = figures(Source(frame(rows), meta()))
    for name in ("runtime", "throughput"):
        axes = made[name].axes[0]
        (ring,) = [each for each in axes.lines if each.get_markersize() == 13]
        assert [x for x, _ in points(ring)] == [32]
        assert said(made[name], "generator-limited")
    assert not said(figures(sweep())["runtime"], "generator-limited")


def test_ramps_are_in_the_table_and_at_no_place_of_the_axis() -> None:
    rows = [row(r, 0.1, kind="open", tokens=False, ramp=None) for r in (10.0, 20.0)]
    rows.append(row(50.0, 0.1, kind="open", tokens=False, ramp="20 to 80/s"))
    (axes,) = figures(Source(frame(rows), meta()))["runtime"].axes
    assert [x for x, _ in line(axes, PERCENTILES["p95"])] == [10, 20]
    cells = [cell.text for cell in summary_columns(sweep_of(Source(frame(rows), meta())))[0].cells]
    assert cells == ["10", "20", "20 to 80"]
    assert figures(Source(frame(rows[-1:]), meta())) == {}
