"""A Grafana dashboard of presets: a row for each, a panel for each quantity, its queries from the definition.

Where a metric has been renamed, a target's new name counts and its old one only where it has not the new one, as in a
pull; of a histogram the new name counts as soon as any target has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gpusize.observe.series.definition import Definition, Said

__all__ = ["FILTER", "VARIABLES", "dashboard_of", "queries_of"]

FILTER: Final = 'namespace=~"$namespace",job=~"$job"'
VARIABLES: Final = ("namespace", "job")
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_TARGET: Final = ("job", "instance")
_RATE: Final = "[$__rate_interval]"
_QUANTILES: Final = (("p50", "0.5"), ("p95", "0.95"), ("p99", "0.99"))
_UNITS: Final = {"s": "s", "share": "percentunit", "bytes": "bytes", "W": "watt", "J": "joule", "°C": "celsius"}
_RATES: Final = {"requests": "reqps", "J": "watt", "s": "percentunit"}
"""Units of what a counter of a unit rises by in a second."""
_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 24


def queries_of(each: Definition) -> list[tuple[str, str]]:
    """Legend and PromQL of a quantity's lines, with Grafana's variables in it."""
    legend = " ".join(f"{{{{{label}}}}}" for label in each.by) or each.name
    if each.kind == "histogram":
        return [(name, " or ".join(_quantiles(each, share))) for name, share in _QUANTILES]
    if each.kind == "counter":
        return [(legend, _gathered(each, "sum", [(said, f"rate({_selected(said)}{_RATE})") for said in each.said()]))]
    lines = [(said, _selected(said)) for said in each.said()]
    if each.across == "mean":
        counted = [(said._replace(scale=1.0), line) for said, line in lines]
        return [(legend, f"{_gathered(each, 'sum', lines)} / {_gathered(each, 'count', counted)}")]
    return [(legend, _gathered(each, "sum" if each.across == "sum" else "max", lines))]


def _selected(said: Said) -> str:
    return f"{said.metric}{{{FILTER}}}"


def _quantiles(each: Definition, share: str) -> Iterator[str]:
    for said in each.said():
        rate = f"rate({_selected(said)}{_RATE})"
        if said.role == "native":
            yield f"histogram_quantile({share}, sum({rate}))"
        elif said.role == "bucket":
            yield f"histogram_quantile({share}, sum by (le) ({rate}))"


def _gathered(each: Definition, how: str, lines: Sequence[tuple[Said, str]]) -> str:
    """One figure of all targets, apart by the definition's labels: of each target the first name that it has."""
    by = f" by ({', '.join(each.by)}) " if each.by else ""
    if len(lines) == 1:
        [(said, line)] = lines
        return f"{_scale(said)}{how}{by}({line})"
    target = f" by ({', '.join((*each.by, *_TARGET))}) "
    first = " or ".join(f"{_scale(said)}{how}{target}({line})" for said, line in lines)
    return f"{'sum' if how == 'count' else how}{by}({first})"


def _scale(said: Said) -> str:
    return "" if said.scale == 1.0 else f"{said.scale!r} * "


def dashboard_of(presets: Mapping[str, Sequence[Definition]], title: str) -> dict[str, Any]:
    """The dashboard as Grafana imports it.

    Args:
        presets: definitions by the name of their preset.
        title: of the dashboard.
    """
    return {
        "title": title,
        "uid": "gpusize-autoscale",
        "tags": ["gpusize", "autoscaling"],
        "description": f"Made by gpusize autoscale dashboard of {', '.join(presets)}.",
        "schemaVersion": 41,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "timepicker": {},
        "timezone": "browser",
        "fiscalYearStartMonth": 0,
        "links": [],
        "preload": False,
        "annotations": {"list": []},
        "templating": {"list": [_data_source(), *map(_variable, VARIABLES)]},
        "panels": list(_panels(presets)),
    }


def _panels(presets: Mapping[str, Sequence[Definition]]) -> Iterator[dict[str, Any]]:
    number, y = 1, 0
    for preset, definitions in presets.items():
        place = {"x": 0, "y": y, "w": _COLUMNS, "h": 1}
        yield {"id": number, "type": "row", "title": preset, "collapsed": False, "gridPos": place, "panels": []}
        number, y = number + 1, y + 1
        for at, each in enumerate(definitions):
            x = at * _WIDTH % _COLUMNS
            yield _panel(number, each, {"x": x, "y": y, "w": _WIDTH, "h": _HEIGHT})
            number += 1
            if x + _WIDTH == _COLUMNS or each is definitions[-1]:
                y += _HEIGHT


def _panel(number: int, each: Definition, place: dict[str, int]) -> dict[str, Any]:
    unit = _RATES.get(each.unit, "short") if each.kind == "counter" else _UNITS.get(each.unit, "short")
    rate = " per second" if each.kind == "counter" else ""
    lines = {"drawStyle": "line", "fillOpacity": 0, "lineWidth": 1, "showPoints": "never", "spanNulls": False}
    steps = each.unit in ("replicas", "")
    return {
        "id": number,
        "type": "timeseries",
        "title": f"{each.name}{rate}",
        "description": f"{each.means[:1].upper()}{each.means[1:]}{f', {each.unit}' if each.unit else ''}{rate}.",
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {
            "defaults": {
                "unit": unit,
                "min": 0,
                "custom": {**lines, "lineInterpolation": "stepAfter" if steps else "linear"},
            },
            "overrides": [],
        },
        "targets": [
            {"datasource": _SOURCE, "expr": query, "legendFormat": legend, "refId": chr(65 + at), "range": True}
            for at, (legend, query) in enumerate(queries_of(each))
        ],
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }


def _data_source() -> dict[str, Any]:
    plain = {"hide": 0, "multi": False, "includeAll": False, "current": {}, "options": [], "regex": ""}
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
    } | plain


def _variable(name: str) -> dict[str, Any]:
    query = f"label_values(up, {name})"
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "sort": 1,
        "hide": 0,
        "current": {"text": ["All"], "value": ["$__all"]},
        "options": [],
    }
