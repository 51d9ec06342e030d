"""The most that each side was seen to answer, by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusize.analysis.compare.comparison import Comparison, compare_sides
from gpusize.api.groups import grouped, with_groups
from gpusize.report.comparison.words import finding, remarks
from gpusize.report.figures.comparison import comparison_figures
from tests.compare.by_hand import about, geometric, run, said

rates = st.floats(0.5, 500)


def compared(takes: dict[str, list[dict[int, float]]]) -> Comparison:
    runs = [
        (
            run(f"{name}{k}", 3 * k + len(name), [said(users, rate) for users, rate in take.items()]),
            about(1, device=name),
        )
        for name, each in takes.items()
        for k, take in enumerate(each)
    ]
    groups = grouped(runs, "device")
    return with_groups(compare_sides(groups.sides, shared=False), groups)


@settings(max_examples=20)
@given(
    cpu=st.lists(st.dictionaries(st.sampled_from([12, 24, 48]), rates, min_size=1), min_size=2, max_size=3),
    gpu=st.lists(st.dictionaries(st.sampled_from([1, 2, 4]), rates, min_size=1), min_size=2, max_size=3),
)
def test_each_stands_at_its_own_best_load(cpu: list[dict[int, float]], gpu: list[dict[int, float]]) -> None:
    found = compared({"cpu": cpu, "cuda": gpu})
    first, second = found.most
    tops = [[max(take.values()) for take in takes] for takes in (cpu, gpu)]
    assert first.rate == pytest.approx(geometric(tops[0]))
    assert second.rate == pytest.approx(geometric(tops[1]))
    assert second.ratio == pytest.approx(second.rate / first.rate)
    assert (first.ratio, first.runs, second.runs) == (1, len(cpu), len(gpu))
    for one, takes in ((first, cpu), (second, gpu)):
        largest = max(users for take in takes for users in take)
        at = [[users for users, rate in take.items() if rate == max(take.values())] for take in takes]
        assert one.load in {f"{users} user{'s' if users > 1 else ''}" for users in itertools.chain(*at)}
        if all(len(each) == 1 for each in at):
            assert one.largest == (largest in itertools.chain(*at))


def test_a_cpu_and_a_gpu_without_an_equal_load() -> None:
    """The figures of traccc's programs: one level each, with as many users as threads."""
    found = compared({"cpu": [{48: 24.28}], "cuda": [{1: 300.0}]})
    assert found.differences == []
    assert finding(found) == (
        "device cuda against device cpu: no load is common to all; at its own best load it answers 12.4 times as much"
    )
    assert any("the loads may differ" in text for text in remarks(found))
    assert math.isnan(found.most[1].ratio_low)
    [axes] = comparison_figures(found)["most"].axes
    assert axes.get_xscale() == "log"
    assert [float(np.asarray(each.get_xdata())[0]) for each in axes.lines] == pytest.approx([24.28, 300])
    assert [float(np.asarray(each.get_ydata())[0]) for each in axes.lines] == [0, 1]
    assert found.tables["most"]["rate"].to_list() == pytest.approx([24.28, 300])


def test_a_notebook_shows_it_where_no_load_is_common() -> None:
    shown = compared({"cpu": [{48: 24.28}], "cuda": [{1: 300.0}]})._repr_html_()
    assert "12.4 times as much" in shown
    assert "device cuda" in shown
    assert "most requests/s" in shown
