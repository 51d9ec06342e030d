"""One more plot is what draws it and its entry among the figures."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.additions.conftest import House

FIGURE = '''
"""Requests by level."""

from gpusize.report.figures import style


def requests_figure(of):
    figure, (axes,) = style.new_figure("Requests", of.sweep.about)
    line = of.sweep.line("n")
    axes.plot([x for x, _ in line], [y for _, y in line])
    return figure
'''

ENTRY = """
def _requests(of: Drawn) -> Figure | None:
    from gpusize.report.figures.requests import requests_figure

    return requests_figure(of)


"""


def test_a_plot_is_a_file_and_in_the_page_with_its_caption(house: House):
    house.add("report/figures/requests.py", FIGURE)
    plots = "report/figures/plots.py"
    house.insert(plots, "KINDS: Final = (\n", ENTRY.lstrip())
    house.insert(plots, '    Kind("server", ', '    Kind("requests", "So many requests were judged.", _requests),\n')
    run = house.folder / "run"
    shutil.copytree(Path(__file__).parents[1] / "fixtures" / "before" / "run", run)
    house.run("report", "run")
    assert {"requests.png", "requests.svg"} <= {each.name for each in (run / "plots").iterdir()}
    page = (run / "report.html").read_text()
    assert (
        page.index("Completed work.") < page.index("So many requests were judged.") < page.index("The run from start")
    )
    assert house.is_documented_as("a plot")
