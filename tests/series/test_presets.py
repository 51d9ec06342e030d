from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpusize.base.errors import UsageError
from gpusize.observe.series.definition import Definition, Source, parse_series
from gpusize.observe.series.presets import PRESETS, definitions

ALL = [(preset, each) for preset, found in PRESETS.items() for each in found]


def test_presets_are_those_that_are_promised():
    assert set(PRESETS) == {"vllm", "sglang", "triton", "dcgm", "epp", "keda", "hpa", "deployment", "wva"}
    assert len(ALL) > 90


@pytest.mark.parametrize("preset", PRESETS)
def test_a_series_says_one_thing(preset: str):
    names = [each.name for each in PRESETS[preset]]
    assert len(set(names)) == len(names)
    said = [said.metric for each in PRESETS[preset] for said in each.said()]
    assert len(set(said)) == len(said)
    assert all(re.fullmatch(r"[A-Za-z_:][A-Za-z0-9_:]*", metric) for metric in said)
    for each in PRESETS[preset]:
        ranks = [one.rank for one in each.said()]
        assert ranks == sorted(ranks)
        assert ranks[0] == 0


def test_one_name_is_one_quantity_in_all_presets():
    seen: dict[str, Definition] = {}
    for _, each in ALL:
        other = seen.setdefault(each.name, each)
        assert (each.kind, each.unit, each.across) == (other.kind, other.unit, other.across), each.name


def test_all_of_them_at_once_are_told_apart():
    found = definitions(list(PRESETS))
    assert len(found) == len(ALL)
    assert found["vllm/ttft"].unit == "s"
    rows = {f"{each.name}{part}" for _, each in ALL if each.kind == "histogram" for part in ("_sum", "_count")}
    assert not rows & {each.name for _, each in ALL}


def test_spellings_of_a_counter_and_a_histogram():
    counter = Definition("tokens", "", "counter", "tokens", (Source("v:a_total"), Source("b")))
    assert [(said.metric, said.rank) for said in counter.said()] == [
        ("v:a_total", 0),
        ("v:a", 1),
        ("v_a_total", 2),
        ("v_a", 3),
        ("b", 4),
    ]
    histogram = Definition("time", "", "histogram", "s", (Source("x_seconds"), Source("old_ms", 1e-3)))
    assert [tuple(said) for said in histogram.said()] == [
        ("x_seconds", 0, "native", 1.0),
        ("x_seconds_bucket", 1, "bucket", 1.0),
        ("x_seconds_sum", 1, "sum", 1.0),
        ("x_seconds_count", 1, "count", 1.0),
        ("old_ms", 2, "native", 1e-3),
        ("old_ms_bucket", 3, "bucket", 1e-3),
        ("old_ms_sum", 3, "sum", 1e-3),
        ("old_ms_count", 3, "count", 1e-3),
    ]


@pytest.mark.parametrize(
    "text, kind, metric, match",
    [
        ("mine=queue_length", "gauge", "queue_length", None),
        (' mine = queue_length{app="x", pod=~"a|b"} ', "gauge", "queue_length", 'app="x", pod=~"a|b"'),
        ("mine=done_total{}", "counter", "done_total", None),
        ('mine=t_seconds_bucket{le!="1",}', "histogram", "t_seconds", 'le!="1"'),
    ],
)
def test_a_selector_is_pulled_as_it_is_stored(text: str, kind: str, metric: str, match: str | None):
    found = parse_series(text)
    assert (found.name, found.kind, found.match, found.promql) == ("mine", kind, match, None)
    assert [source.metric for source in found.sources] == [metric]


@pytest.mark.parametrize("query", ["sum(up)", "up > 0", "rate(x_total[1m])", 'a{b="c"} or d', "1", "inf", "up[5m]"])
def test_anything_else_is_evaluated(query: str):
    found = parse_series(f"mine={query}")
    assert (found.promql, found.sources) == (query, ())


@pytest.mark.parametrize("text", ["", "mine", "=up", "mine=", "Mine=up", "a b=up", "mine=up\x00"])
def test_what_is_no_series_is_refused(text: str):
    with pytest.raises(UsageError, match=r"NAME=PROMQL|control character"):
        parse_series(text)


def test_names_may_not_meet():
    with pytest.raises(UsageError, match="ttft is a series of vllm already"):
        definitions(["vllm"], ["ttft=up"])
    with pytest.raises(UsageError, match="ttft_sum is a series of vllm"):
        definitions(["vllm"], ["ttft_sum=up"])
    with pytest.raises(UsageError, match="mine is given twice"):
        definitions([], ["mine=up", "mine=down"])
    with pytest.raises(UsageError, match='Did you mean "vllm"'):
        definitions(["vlm"])
    with pytest.raises(UsageError, match="nothing to pull"):
        definitions([])


def test_the_reference_names_every_quantity_of_every_preset():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "autoscale-series.md").read_text("utf-8")
    rows = {row[0]: row[1] for row in re.findall(r"^\| `(\w+)` \|.*\| ((?:`\w+`(?:, )?)+) \|$", page, re.MULTILINE)}
    for preset, found in PRESETS.items():
        assert rows[preset] == ", ".join(f"`{each.name}`" for each in found)
