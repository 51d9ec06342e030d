from __future__ import annotations

import json
import math

import polars as pl
import pytest

from gpusize.observe.series.answer import Samples, samples_of
from gpusize.observe.series.ask import Refused
from gpusize.observe.series.definition import Definition, Source
from gpusize.records.series import label_of, labels_text, series_schema

READY = Definition("ready", "", "gauge", "replicas", (Source("new_ready"), Source("old_ready", 2.0)))
TIME = Definition("time", "", "histogram", "s", (Source("t_seconds"), Source("t_ms", 1e-3)))


def answer(*series, wanted=(READY, TIME), from_ms: int = 0) -> Samples:
    return samples_of({"resultType": "matrix", "result": list(series)}, wanted, from_ms)


def one(name: str, *values, **labels) -> dict:
    return {"metric": {"__name__": name, "job": "j", "instance": "i", **labels}, "values": [list(v) for v in values]}


def rows(found: Samples, *columns: str) -> list[tuple]:
    return found.frame.select(*columns).rows()


def test_columns_are_those_of_the_contract():
    found = answer(one("new_ready", [1.5, "3"], pod="ü\n"))
    assert dict(found.frame.schema) == {name: kind() for name, kind in series_schema().items()}
    [(t_ns, name, labels, le, value)] = found.frame.rows()
    assert (t_ns, name, le, value) == (1_500_000_000, "ready", None, 3.0)
    assert labels == '{"instance":"i","job":"j","pod":"ü\\n"}'
    assert found.frame.select(label_of("pod"))["labels"].to_list() == ["ü\n"]
    assert found.frame.select(label_of("none"))["labels"].to_list() == [None]
    assert answer().frame.schema == found.frame.schema


def test_what_lies_on_the_border_is_the_chunks_before():
    found = answer(one("new_ready", [1.0, "1"], [1.001, "2"], [2, "3"]), from_ms=1000)
    assert rows(found, "t_ns", "value") == [(1_001_000_000, 2), (2_000_000_000, 3)]


def test_of_two_names_of_one_scrape_the_new_one_counts():
    found = answer(
        one("old_ready", [1, "1"], [2, "2"], [3, "3"]),
        one("new_ready", [2, "20"], [3, "30"], [4, "40"], pool="p"),
    )
    # Before its upgrade the target had the old name alone; that one is in other units.
    assert rows(found.frame.sort("t_ns").pipe(Samples), "t_ns", "value") == [
        (1_000_000_000, 2),
        (2_000_000_000, 20),
        (3_000_000_000, 30),
        (4_000_000_000, 40),
    ]
    assert {(what.series, n) for what, n in found.dropped.items()} == {("old_ready", 2)}
    [why] = {what.why for what in found.dropped}
    assert "another name" in why


def test_another_target_with_the_old_name_alone_counts():
    found = answer(one("new_ready", [1, "1"]), one("old_ready", [1, "4"], instance="other"))
    assert found.frame["value"].sum() == 1 + 8
    assert not found.dropped


def test_of_two_prometheus_one_counts():
    found = answer(
        one("new_ready", [1, "1"], [2, "2"], prometheus_replica="a"),
        one("new_ready", [1.2, "1"], [2.2, "2"], [3.2, "3"], prometheus_replica="b"),
    )
    assert found.frame["t_ns"].to_list() == [1_200_000_000, 2_200_000_000, 3_200_000_000]
    assert found.frame["labels"].unique().to_list() == ['{"instance":"i","job":"j"}']
    assert list(found.dropped.values()) == [2]


@pytest.mark.parametrize("text", ["NaN", "nan", "<unknown>", ""])
def test_what_is_no_number_is_a_gap_and_not_0(text: str):
    found = answer(one("new_ready", [1, "1"], [2, text], [3, "2"]))
    assert rows(found, "t_ns", "value") == [(1_000_000_000, 1), (3_000_000_000, 2)]
    [(what, n)] = found.dropped.items()
    assert (what.name, what.series, what.why, n) == ("ready", "new_ready", "not a number", 1)


def test_infinite_values_stay():
    assert rows(answer(one("new_ready", [1, "+Inf"])), "value") == [(math.inf,)]


def test_a_histogram_keeps_its_buckets_sum_and_count():
    found = answer(
        one("t_seconds_bucket", [1, "4"], le="0.5"),
        one("t_seconds_bucket", [1, "9"], le="+Inf"),
        one("t_seconds_sum", [1, "3.5"]),
        one("t_seconds_count", [1, "9"]),
        one("t_seconds_bucket", [1, "9"], le="often"),
    )
    assert rows(found, "name", "le", "value") == [
        ("time", 0.5, 4),
        ("time", math.inf, 9),
        ("time_count", None, 9),
        ("time_sum", None, 3.5),
    ]
    assert found.frame["labels"].n_unique() == 1


def test_units_of_old_names_are_those_of_the_new_one():
    found = answer(one("t_ms_bucket", [1, "4"], le="500"), one("t_ms_sum", [1, "3500"]), one("t_ms_count", [1, "4"]))
    assert rows(found, "name", "le", "value") == [("time", 0.5, 4), ("time_count", None, 4), ("time_sum", None, 3.5)]


def native(at: float, count: int, total: float, *buckets) -> list:
    return [
        at,
        {"count": str(count), "sum": str(total), "buckets": [[0, str(a), str(b), str(n)] for a, b, n in buckets]},
    ]


def test_a_native_histogram_becomes_cumulative_buckets():
    series = one("t_seconds") | {
        "histograms": [
            native(1, 7, 9.5, (0.25, 0.5, 2), (1, 2, 5)),
            native(2, 8, 10.5, (0.25, 0.5, 2), (0.5, 1, 1), (1, 2, 5)),
        ]
    }
    found = answer(series)
    assert found.frame.filter(pl.col("le").is_null()).select("name", "value").rows() == [
        ("time_count", 7),
        ("time_count", 8),
        ("time_sum", 9.5),
        ("time_sum", 10.5),
    ]
    by_time = found.frame.filter(pl.col("le").is_not_null()).sort("t_ns", "le")
    assert by_time.filter(pl.col("t_ns") == 10**9).select("le", "value").rows() == [
        (0.25, 0),
        (0.5, 2),
        (1, 2),
        (2, 7),
        (math.inf, 7),
    ]
    assert by_time.filter(pl.col("t_ns") == 2 * 10**9).select("le", "value").rows() == [
        (0.25, 0),
        (0.5, 2),
        (1, 3),
        (2, 8),
        (math.inf, 8),
    ]


def test_native_and_classic_buckets_of_one_scrape_count_once():
    found = answer(
        one("t_seconds") | {"histograms": [native(1, 3, 1.0, (0.25, 0.5, 3))]},
        one("t_seconds_bucket", [1, "3"], [2, "4"], le="+Inf"),
        one("t_seconds_count", [1, "3"]),
    )
    assert rows(found, "name", "t_ns", "le", "value") == [
        ("time", 10**9, 0.25, 0),
        ("time", 10**9, 0.5, 3),
        ("time", 10**9, math.inf, 3),
        ("time", 2 * 10**9, math.inf, 4),
        ("time_count", 10**9, None, 3),
        ("time_sum", 10**9, None, 1),
    ]


def test_a_marker_of_the_end_of_a_native_histogram_is_a_gap():
    found = answer(one("t_seconds") | {"histograms": [[1, {"count": "3", "sum": "NaN", "buckets": []}]]})
    assert found.frame.is_empty()


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {"resultType": "vector", "result": []},
        {"resultType": "matrix", "result": {}},
        {"resultType": "matrix", "result": [7]},
        {"resultType": "matrix", "result": [{"metric": []}]},
        {"resultType": "matrix", "result": [{"metric": {}, "values": 3}]},
        {"resultType": "matrix", "result": [{"metric": {"__name__": "new_ready"}, "values": [[1]]}]},
        {"resultType": "matrix", "result": [{"metric": {"__name__": "new_ready"}, "values": [["x", "1"]]}]},
        {"resultType": "matrix", "result": [{"metric": {"__name__": "new_ready"}, "values": [[1, 1]]}]},
        {"resultType": "matrix", "result": [{"metric": {"__name__": "t_seconds"}, "histograms": [[1, {}]]}]},
        {"resultType": "matrix", "result": [{"metric": {"__name__": "t_seconds"}, "histograms": [7]}]},
    ],
)
def test_answers_that_are_no_series_are_refused(data):
    with pytest.raises(Refused, match="answered with"):
        samples_of(data, (READY, TIME), 0)


def test_an_expression_takes_every_series():
    own = Definition("mine", "", "gauge", "", promql="sum by (pod) (x)")
    found = answer({"metric": {"pod": "a"}, "values": [[1, "2"]]}, one("x", [1, "3"]), wanted=(own,))
    assert sorted(rows(found, "name", "value")) == [("mine", 2), ("mine", 3)]


def test_labels_are_canonical():
    assert labels_text({"b": '"', "a": "1"}) == '{"a":"1","b":"\\""}'
    assert json.loads(labels_text({"z": "\u2028"})) == {"z": "\u2028"}
