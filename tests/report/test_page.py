"""The page against the summary that it is made of: cards, figures and tables; and its script."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest

from gpusize.report.figures.attainment import attainment_figure
from gpusize.report.figures.levels import throughput_figure
from gpusize.report.figures.plots import figures
from gpusize.report.page.cards import level_cards
from gpusize.report.page.html import render_html, script
from gpusize.report.page.off_by_one import off_by_one
from gpusize.report.summary.sweep import sweep_of
from tests.report.results import ATTAINMENT, LEVELS, P95_S, SLO, Source, crossing, frame, meta, row, slope, sweep


def charts(source: Source) -> Any:
    text = render_html(source, figures=figures(source))
    found = re.search(r'id="charts">(.*?)</script>', text)
    assert found
    return json.loads(found[1])


def test_the_script_is_small_and_loads_nothing() -> None:
    text, _ = script()
    assert len(text.encode()) < 5000
    assert not re.search(r"fetch|XMLHttp|import|src=|http", text)


@pytest.mark.parametrize(
    "figure, column, scale, color, panel",
    [
        ("runtime", "runtime_p95_s", 1.0, "mid", 0),
        ("ttft", "ttft_p99_s", 1.0, "high", 0),
        ("itl", "itl_p50_s", 1e3, "low", 0),
        ("throughput", "achieved_rate", 1.0, "mid", 0),
        ("throughput", "tokens_out_per_s", 1.0, "good", 1),
        ("attainment", "slo_0_attainment", 100.0, "mid", 0),
    ],
)
def test_figures_hold_the_points_of_the_summary(figure: str, column: str, scale: float, color: str, panel: int) -> None:
    source = sweep()
    chart = charts(source)[figure]
    stored = json.loads(source.summary.select("concurrency", column).write_json())
    drawn = [
        point for how, shade, points in chart["p"][panel]["s"] if how == "dot" and shade == color for point in points
    ]
    assert [x for x, _ in drawn] == [each["concurrency"] for each in stored]
    unit = 1e3 if "(ms)" in chart["p"][panel]["l"] else 1.0
    factor = unit if column.endswith("_s") else scale
    assert [y for _, y in drawn] == pytest.approx([each[column] * factor for each in stored], rel=1e-5)


def test_an_axis_of_names_stays_a_picture_with_its_names() -> None:
    text = render_html(sweep(), figures=figures(sweep()))
    assert "percentiles" not in charts(sweep())
    picture = re.search(r'<figure[^>]*id="percentiles".*?</figure>', text, re.DOTALL)
    assert picture
    assert 'role="img"' in picture[0]


def test_one_usable_level_is_drawn_on_the_axis_that_it_has() -> None:
    """Of six levels five were interrupted: the figures have log axes, on which the one left spans nothing."""
    rows = [row(c, y, state="done" if c == 1 else "interrupted") for c, y in zip(LEVELS, P95_S, strict=True)]
    drawn = charts(Source(frame(rows), meta()))
    assert drawn["runtime"]["xs"] == [1]
    for name, chart in drawn.items():
        assert chart["lims"][chart["log"]] is not None, name


@pytest.mark.parametrize(
    "rates", [(22.4, 27.6, 31.0, 32.8), (8.0, 16.0, 23.0, 29.0), (10.0, 19.0, 20.0, 20.5)], ids=["flat", "up", "knee"]
)
def test_the_name_of_the_line_in_proportion_is_in_the_figure(rates: tuple[float, ...]) -> None:
    """Where throughput flattens early the line is steep and far left, with no room beside it."""
    rows = [row(c, 1.0, achieved_rate=rate) for c, rate in zip((8, 16, 24, 32), rates, strict=True)]
    figure = throughput_figure(sweep_of(Source(frame(rows), meta())))
    assert figure is not None
    figure.canvas.draw()
    axes = figure.axes[0]
    (label,) = (each for each in axes.texts if each.get_text() == "in proportion to the first level")
    box, inside = label.get_window_extent(), axes.get_window_extent()
    assert inside.x0 <= box.x0 < box.x1 <= inside.x1
    measured = axes.transData.transform(list(zip((8, 16, 24, 32), rates, strict=True)))
    assert not any(box.x0 <= x <= box.x1 and box.y0 <= y <= box.y1 for x, y in measured), "it lies on no point"


def test_pointing_shows_the_values_and_shares_are_not_rounded_up() -> None:
    chart = charts(sweep())["runtime"]
    told = {name: texts for name, _, texts in chart["r"]}
    assert [float(text.split()[0]) for text in told["p95"]] == pytest.approx(P95_S, rel=5e-3)
    rows = [row(c, 1.0, slo_0_attainment=0.99996) for c in LEVELS]
    (_, _, shares) = charts(Source(frame(rows), meta()))["attainment"]["r"][0]
    assert shares == ["99.9%"] * len(LEVELS)


def test_the_level_shown_first_is_the_highest_that_meets_the_slo() -> None:
    levels, why = level_cards(sweep_of(sweep()))
    assert [each.name for each in levels if each.first] == ["8"]
    assert why == "the highest level that meets the SLO"
    assert [each.mark for each in levels] == ["✓", "✓", "✓", "✓", "✗", "✗"]
    missed = Source(frame([row(c, 20.0, slo_0_met=False, achieved_rate=r) for c, r in ((1, 3.0), (2, 9.0))]), meta())
    levels, why = level_cards(sweep_of(missed))
    assert [each.name for each in levels if each.first] == ["2"]
    assert "no level meets" in why


@pytest.mark.parametrize("met", [True, False])
def test_of_repeats_the_one_with_the_most_requests_is_shown_first(met: bool) -> None:
    """The last level of a proof is cut off where it is sure, and it may have the highest rate."""
    rows = [row(37, 1.0, n=n, achieved_rate=rate, slo_0_met=met) for n, rate in ((256, 41.3), (221, 40.8), (48, 45.0))]
    levels, _ = level_cards(sweep_of(Source(frame(rows), meta())))
    assert [each.name for each in levels if each.first] == ["37 (1)"]


def test_cards_hold_what_the_summary_has_and_nothing_else() -> None:
    levels, _ = level_cards(sweep_of(sweep()))
    for each, stored in zip(levels, sweep().summary.to_dicts(), strict=True):
        cards = {card.title: card for card in each.cards}
        assert float(cards["requests/s"].value) == pytest.approx(stored["achieved_rate"], rel=5e-3)
        assert cards["within the SLO"].value == f"{100 * stored['slo_0_attainment']:.1f}%".replace("100.0", "100")
        assert cards["errors"].more == "of 1,234 requests"
        assert "GPUs busy" not in cards
    plain = Source(frame([row(1, 1.0, tokens=False)]), meta())
    (alone,), _ = level_cards(sweep_of(plain))
    assert not {"TTFT, p50", "ITL, p50", "output tokens/s"} & {card.title for card in alone.cards}


def test_one_gpu_fewer_or_more_is_told_by_the_levels_around_its_load() -> None:
    counts = off_by_one(crossing(), sweep_of(sweep()))
    share = dict(zip(LEVELS, ATTAINMENT, strict=True))
    assert [each.gpus for each in counts] == [93, 94, 95]
    assert [each.answer for each in counts] == [False, True, False]
    for each in counts:
        load = 100 * 8 / each.gpus
        assert float(each.load.split()[0]) == pytest.approx(load, rel=5e-3)
        below, above = max(c for c in LEVELS if c <= load), min(c for c in LEVELS if c > load)
        assert each.measured == f"{100 * share[below]:.1f}% at {below} and {100 * share[above]:.1f}% at {above}"
    beyond = off_by_one(slope(gpus=2, gpus_raw=1.5), sweep_of(sweep()))
    assert beyond[0].measured == "0.0% at 32, the highest level"
    assert off_by_one(crossing(details={"law": {"name": "usl"}}), sweep_of(sweep())) == []
    assert off_by_one(crossing(gpus=None), sweep_of(sweep())) == []
    assert off_by_one(crossing(slo=f"{SLO}0"), sweep_of(sweep())) == []


def test_one_gpu_fewer_or_more_is_told_by_the_slo_that_is_kept_least() -> None:
    """A second SLO that nobody keeps at 16 users and more counts there, though the answer names the first."""
    other = "p95 ttft <= 1s"
    rows = [
        row(c, y, slo_0_attainment=share, slo_1=other, slo_1_attainment=0.0 if c >= 16 else 1.0, slo_1_met=c < 16)
        for c, y, share in zip(LEVELS, P95_S, ATTAINMENT, strict=True)
    ]
    source = Source(frame(rows), meta(), slos=(SLO, other))
    counts = off_by_one(crossing(details={"slos": [SLO, other]}), sweep_of(source))
    assert [each.measured for each in counts] == ["99.0% at 8 and 0.0% at 16"] * 3


def test_one_gpu_fewer_or_more_rests_on_levels_that_estimates_rest_on() -> None:
    """Of 8 users the generator sent less than asked for: what was measured there says nothing of the GPUs."""
    rows = [
        row(c, y, slo_0_attainment=share, flags=["generator-limited"] if c == 8 else [])
        for c, y, share in zip(LEVELS, P95_S, ATTAINMENT, strict=True)
    ]
    counts = off_by_one(crossing(), sweep_of(Source(frame(rows), meta())))
    assert [each.measured for each in counts] == ["100% at 4 and 40.0% at 16"] * 3


def test_a_mean_is_no_share_of_requests() -> None:
    """The mean may be kept where most requests are beyond its bound."""
    text = "mean runtime <= 10s"
    rows = [row(c, y, slo_0=text, slo_0_attainment=0.4, slo_0_met=True) for c, y in zip(LEVELS, P95_S, strict=True)]
    source = Source(frame(rows), meta(), slos=(text,))
    assert off_by_one(slope(slo=text), sweep_of(source)) == []
    (first, *_), _ = level_cards(sweep_of(source))
    cards = {card.title: (card.value, card.more) for card in first.cards}
    assert "within the SLO" not in cards
    assert cards["below the mean's bound"] == ("40.0%", text)


def test_how_sure_an_answer_is_reads_as_a_sentence() -> None:
    for ends, said in (
        ((90, 101), "94 GPUs for 100 users at p95 runtime <= 10s, 90 to 101 GPUs by the method's uncertainty"),
        ((94, 94), "94 GPUs for 100 users at p95 runtime <= 10s, no more and no fewer by the method's uncertainty"),
        ((None, None), "94 GPUs for 100 users at p95 runtime <= 10s; the method gives no interval"),
    ):
        text = render_html(sweep(), [crossing(gpus_low=ends[0], gpus_high=ends[1])])
        found = re.search(r"<h1>(.*?)</h1>", text, re.DOTALL)
        assert found
        assert html.unescape(re.sub("<[^>]+>", "", found[1])) == said


def test_the_number_at_the_crossing_lies_on_no_line() -> None:
    """Left of the mark and below the limit: there the curve is above, and nothing else is drawn."""
    answer = crossing()
    figure = attainment_figure(sweep_of(sweep()), [answer])
    assert figure is not None
    figure.canvas.draw()
    (axes,) = figure.axes
    [label] = [each for each in axes.texts if each.get_text() == f"{answer.capacity_concurrency:.2f}"]
    box = label.get_window_extent()
    mark = axes.transData.transform((answer.capacity_concurrency or 0.0, 95))
    assert box.x1 < mark[0] - 4
    assert box.y1 < mark[1] - 2
    assert axes.bbox.contains(box.x0, box.y0)
