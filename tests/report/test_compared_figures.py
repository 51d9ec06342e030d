"""Figures of comparisons: what is drawn is what the records and the other tools' files say, at the right place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from gpusize.analysis.compare.comparison import Comparison, compare_sides
from gpusize.analysis.compare.matching import Run, Side
from gpusize.api.groups import grouped, prices_of, with_groups
from gpusize.base.errors import UsageError
from gpusize.report.figures import style
from gpusize.report.figures.comparison import COMPARED, comparison_figures
from tests.compare.by_hand import about, geometric, measured, rate, run, said
from tests.compare.test_groups import open_level, saturating

Runs = Sequence[tuple[Run, Mapping[str, Any]]]


def compared(runs: Runs, by: str = "gpus", price: str | None = None) -> Comparison:
    groups = grouped(runs, by)
    return with_groups(compare_sides(groups.sides, shared=False), groups, prices_of(price, groups))


def points(line: Any) -> list[list[float]]:
    return np.column_stack([line.get_xdata(), line.get_ydata()]).tolist()  # type: ignore[no-any-return]


def joined(axes: Any) -> list[list[list[float]]]:
    """Points of the lines that join markers' places, in the order of drawing; bars are upright."""
    drawn = [points(each) for each in axes.lines if each.get_linestyle() == "-"]
    return [line for line in drawn if len({x for x, _ in line}) > 1]


def marks(axes: Any, *markers: str) -> list[list[list[float]]]:
    return [points(each) for each in axes.lines if each.get_linestyle() == "None" and each.get_marker() in markers]


def dotted(axes: Any) -> list[list[list[float]]]:
    return [points(each) for each in axes.lines if each.get_linestyle() not in ("-", "None")]


def upright(axes: Any) -> list[tuple[float, float, float]]:
    """Bars: (x, from, to)."""
    drawn = [points(each) for each in axes.lines]
    return [(line[0][0], line[0][1], line[1][1]) for line in drawn if len(line) == 2 and line[0][0] == line[1][0]]


def test_rates_and_speed_ups_stand_at_their_own_load() -> None:
    """Levels were measured in no order of their loads, and each run in another: perf_analyzer sorts by throughput."""
    order = {("1", 0): (16, 2, 8, 4), ("1", 1): (4, 8, 2, 16), ("2", 0): (2, 4, 16, 8), ("2", 1): (8, 16, 4, 2)}
    levels = {
        key: {u: measured(u, mean_ms=60 / int(key[0]) ** 0.5, seed=31 * u + key[1] + 7 * int(key[0])) for u in users}
        for key, users in order.items()
    }
    runs = [(run(f"{g}{k}", 2 * int(g) + k, list(each.values())), about(int(g))) for (g, k), each in levels.items()]
    upper, lower = comparison_figures(compared(runs))["rate"].axes
    means = {g: {u: geometric([rate(levels[g, k][u]) for k in (0, 1)]) for u in (2, 4, 8, 16)} for g in ("1", "2")}
    one, two = joined(upper)
    assert one == [[u, pytest.approx(y)] for u, y in means["1"].items()]
    assert two == [[u, pytest.approx(y)] for u, y in means["2"].items()]
    [up] = [line for line in joined(lower) if len(line) == 4]
    assert up == [[u, pytest.approx(means["2"][u] / means["1"][u])] for u in (2, 4, 8, 16)]
    ranges = sorted(upright(upper))
    by_hand = sorted((u, *sorted(rate(levels[g, k][u]) for k in (0, 1))) for g in ("1", "2") for u in (2, 4, 8, 16))
    assert ranges == [pytest.approx(each) for each in by_hand]
    assert [line[0][1] for line in dotted(lower)] == [2.0]
    assert "speed-up at the same load" in comparison_figures(compared(runs))["rate"].texts[1].get_text()


def test_a_cpu_against_gpus_has_a_logarithmic_axis() -> None:
    runs = [
        (run(name, k, [said(u, rate_s * u, gpus=k) for u in (1, 2, 4)]), about(k, device=name))
        for k, (name, rate_s) in enumerate({"cpu": 0.5, "gpu": 40.0}.items())
    ]
    upper, lower = comparison_figures(compared(runs, "device"))["rate"].axes
    assert (upper.get_yscale(), lower.get_yscale()) == ("log", "log")
    assert [y for _, y in joined(lower)[-1]] == pytest.approx([80.0] * 3)
    assert lower.get_ylabel() == "over device cpu"


def test_closed_and_open_loops_have_axes_of_their_own() -> None:
    runs = [
        (
            run(str(g), g, [*(said(u, 10.0 * g) for u in (1, 2, 4)), *(open_level(*each, g) for each in loads)]),
            about(g),
        )
        for g, loads in ((1, ((4, 4), (20, 6))), (2, ((4, 4), (20, 12))))
    ]
    made = comparison_figures(compared(runs))
    assert [x for x, _ in joined(made["rate"].axes[0])[0]] == [1, 2, 4]
    assert made["rate"].axes[1].get_xlabel() == "concurrency (requests in flight)"
    upper, lower = made["rate-open"].axes
    assert [x for x, _ in joined(upper)[0]] == [4, 20]
    assert lower.get_xlabel() == "offered rate (requests/s)"
    # At 4/s both kept up: only 20/s has a speed-up.
    assert [[x for x, _ in each] for each in marks(lower, "s")] == [[20.0]]


def test_what_a_request_takes_is_drawn_with_its_units() -> None:
    takes = {g: [measured(4, mean_ms=50, seed=9 * g + k, gpus=g, watts=[200.0] * g) for k in range(2)] for g in (1, 2)}
    runs = [(run(f"{g}{k}", 2 * g + k, [lv]), about(g)) for g, each in takes.items() for k, lv in enumerate(each)]
    figure = comparison_figures(compared(runs, price="3 EUR"))["spent"]
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert labels == ["energy per\nrequest (J)", "GPU time per\nrequest (GPU-ms)", "cost per million\nrequests (EUR)"]
    for axes, of in zip(
        figure.axes,
        (lambda g, r: 200 * g / r, lambda g, r: 1e3 * g / r, lambda g, r: 3e6 * g / (3600 * r)),
        strict=True,
    ):
        shown = {each[0][1] for each in marks(axes, "o", "s") if len(each) == 1}
        wanted = [geometric([of(g, rate(lv)) for lv in takes[g]]) for g in (1, 2)]
        assert sorted(shown) == pytest.approx(sorted(wanted))
    assert "n 1 load, 2 runs a side" in figure.texts[1].get_text()


def test_growth_is_the_law_with_its_band_and_no_measurement_beyond() -> None:
    found = compared([each for n, most in ((1, 10.0), (2, 18.0), (4, 30.0)) for each in saturating(n, most)])
    law = found.law
    assert law is not None
    upper, lower = comparison_figures(found)["growth"].axes
    assert joined(upper) == [[[each.count, each.rate.value] for each in law.curve]]
    # In proportion to the smallest.
    assert [y for _, y in dotted(upper)[0]] == pytest.approx([10.0 * each.count for each in law.curve])
    assert [y for _, y in marks(upper, "o")[0]] == pytest.approx([10, 18, 30])
    bars = {x: (low, high) for x, low, high in upright(lower)}
    assert bars[4] == pytest.approx((law.measured[2].efficiency.low, law.measured[2].efficiency.high))
    assert lower.get_xlabel() == "GPUs"


def test_counts_have_a_line_per_load() -> None:
    found = compared([each for n in (1, 2, 4) for each in saturating(n, 10.0 * n, per=(4, 8, 16))], "gpus")
    assert set(found.loads) == {"16 users"}
    more = [(run(str(n), n, [said(u, 5.0 * n + u, gpus=n) for u in (8, 4)]), about(n)) for n in (4, 1, 2)]
    [axes] = comparison_figures(compared(more))["counts"].axes
    assert joined(axes) == [[[n, pytest.approx(5.0 * n + u)] for n in (1, 2, 4)] for u in (4, 8)]
    assert axes.get_xlabel() == "GPUs"


def test_requests_that_failed_end_below_one() -> None:
    sides = [
        Side("old", [run("a", 1, [measured(4, mean_ms=40, seed=1)])]),
        Side("new", [run("b", 2, [measured(4, mean_ms=40, seed=2, failed=0.3)])]),
    ]
    made = comparison_figures(compare_sides(sides))
    figure = made["ecdf-4-users"]
    [axes] = figure.axes
    ends = [line[-1][1] for line in joined(axes) if len(line) > 10]
    assert ends[0] == 1
    assert 0.6 < ends[1] < 0.8
    assert "failed, so never done: " in figure.texts[1].get_text()
    assert {"rate", "runtime", "ecdf-4-users"} == set(made)


def test_plot_has_a_dark_variant_and_names_what_there_is() -> None:
    found = compared([each for n in (1, 2) for each in saturating(n, 10.0 * n, per=(4, 8, 16))])
    assert found.plot().get_facecolor() == (1, 1, 1, 1)
    from matplotlib.colors import to_rgba

    assert found.plot("counts", dark=True).get_facecolor() == pytest.approx(to_rgba(style.DARK[style.PAPER]))
    with pytest.raises(UsageError, match="no figure 'ecdf'") as error:
        found.plot("ecdf")
    assert "there are rate" in str(error.value).lower()
    assert set(COMPARED) >= {name.partition("-")[0] for name in comparison_figures(found)}
