"""The dashboard of presets: panels that Grafana can place, and queries about the presets' own series."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from gpusize.observe.series.definition import Definition, Source
from gpusize.observe.series.presets import PRESETS
from gpusize.report.exchange.grafana import FILTER, VARIABLES, dashboard_of, queries_of

ALL = dashboard_of(PRESETS, "All")
PANELS: list[dict[str, Any]] = [panel for panel in ALL["panels"] if panel["type"] != "row"]


def test_each_quantity_has_a_panel_in_its_presets_row():
    assert [panel["title"] for panel in ALL["panels"] if panel["type"] == "row"] == list(PRESETS)
    titles = [panel["title"].removesuffix(" per second") for panel in PANELS]
    assert titles == [each.name for definitions in PRESETS.values() for each in definitions]
    assert all(panel["description"].endswith(".") for panel in PANELS)


def test_panels_have_places_of_their_own():
    taken: set[tuple[int, int]] = set()
    for panel in ALL["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in ALL["panels"]}) == len(ALL["panels"])
    # Nothing lies between them: rows of panels follow each other.
    assert {y for _, y in taken} == set(range(max(y for _, y in taken) + 1))


def test_the_data_source_is_chosen_by_who_imports_it():
    source = {"type": "prometheus", "uid": "${datasource}"}
    assert all(panel["datasource"] == source for panel in PANELS)
    assert all(target["datasource"] == source for panel in PANELS for target in panel["targets"])
    assert [each["name"] for each in ALL["templating"]["list"]] == ["datasource", *VARIABLES]
    json.dumps(ALL, allow_nan=False)


@pytest.mark.parametrize("preset", PRESETS)
def test_queries_are_about_the_presets_series(preset: str):
    for each in PRESETS[preset]:
        known = {said.metric for said in each.said() if said.role not in ("sum", "count")}
        named: set[str] = set()
        for _, query in queries_of(each):
            named |= set(re.findall(r"([A-Za-z_:][A-Za-z0-9_:]*)\{", query))
            assert query.count("(") == query.count(")")
            assert set(re.findall(r"\$(\w+)", query)) <= {*VARIABLES, "__rate_interval"}
            assert query.count("{") == query.count(FILTER)
        assert named == known


def test_queries_in_full():
    ready = Definition("ready", "", "gauge", "replicas", (Source("r"),), by=("deployment",))
    assert queries_of(ready) == [("{{deployment}}", f"sum by (deployment) (r{{{FILTER}}})")]
    late = Definition("late", "", "gauge", "s", (Source("new"), Source("old", 1e-3)), across="max")
    one, other = f"max by (job, instance) (new{{{FILTER}}})", f"0.001 * max by (job, instance) (old{{{FILTER}}})"
    assert queries_of(late) == [("late", f"max({one} or {other})")]
    use = Definition("use", "", "gauge", "share", (Source("u", 0.01),), across="mean")
    assert queries_of(use) == [("use", f"0.01 * sum(u{{{FILTER}}}) / count(u{{{FILTER}}})")]
