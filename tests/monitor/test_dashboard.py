"""The Grafana dashboard in docs: every expression is about metrics that a run exports."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from gpusize.measure.monitor.own_metrics import NAMES
from gpusize.measure.monitor.run_counts import HISTOGRAMS

FILE = Path(__file__).parents[2] / "docs" / "dashboards" / "gpusize.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
QUERIES = [each["definition"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
NOTES = [each["expr"] for each in DASHBOARD["annotations"]["list"]]


def known() -> set[str]:
    endings = {f"gpusize_run_{name}_seconds{end}" for name in HISTOGRAMS for end in ("_bucket", "_sum", "_count")}
    return {*NAMES, *endings}


def test_every_metric_is_exported() -> None:
    texts = [*EXPRESSIONS, *QUERIES, *NOTES]
    assert len(texts) > 20
    for text in texts:
        named = re.findall(r"gpusize_\w+", text)
        assert named, text
        assert set(named) <= known(), text


def test_what_is_exported_for_watching_is_shown() -> None:
    shown = set(re.findall(r"gpusize_run_\w+", " ".join(EXPRESSIONS)))
    for name in ("requests_due_total", "requests_in_flight", "requests_waiting", "requests_shed_total", "level"):
        assert f"gpusize_run_{name}" in shown
    assert {f"gpusize_run_{name}_seconds_bucket" for name in HISTOGRAMS} <= shown


def test_the_data_source_is_chosen_by_who_imports_it() -> None:
    source = {"type": "prometheus", "uid": "${datasource}"}
    assert all(panel["datasource"] == source for panel in DASHBOARD["panels"])
    assert all(target["datasource"] == source for panel in DASHBOARD["panels"] for target in panel["targets"])
    [variable] = [each for each in DASHBOARD["templating"]["list"] if each["name"] == "datasource"]
    assert (variable["type"], variable["query"]) == ("datasource", "prometheus")
    used = set(re.findall(r"\$(\w+)", " ".join(EXPRESSIONS))) - {"__rate_interval"}
    assert used <= {each["name"] for each in DASHBOARD["templating"]["list"]}


def test_panels_have_names_of_their_own_places_and_units() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
        assert panel["title"]
        assert panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_brackets_close() -> None:
    for text in (*EXPRESSIONS, *NOTES):
        for opening, closing in ("()", "[]", "{}"):
            assert text.count(opening) == text.count(closing), text
