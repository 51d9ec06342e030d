"""Durations, rates and lists of levels as people write them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusize.base.errors import UsageError
from gpusize.base.units import (
    as_duration_s,
    format_duration,
    parse_concurrencies,
    parse_duration_s,
    parse_rate,
    parse_rates,
    seconds_to_ns,
)


def refusal(call, *args):
    """What ``call`` refuses its arguments with, None when it takes them."""
    try:
        call(*args)
    except UsageError as problem:
        return problem
    return None


@pytest.mark.parametrize(
    "text,seconds",
    [
        ("10s", 10.0),
        ("2m", 120.0),
        ("2min", 120.0),
        ("1h30m", 5400.0),
        ("1h 30m", 5400.0),
        ("500ms", 0.5),
        ("1.5s", 1.5),
        (".5m", 30.0),
        ("100us", 1e-4),
        ("100µs", 1e-4),
        ("7ns", 7e-9),
        ("1d", 86400.0),
        ("0", 0.0),
        ("90", 90.0),
        (" 3 s ", 3.0),
        ("1m0.1s", 60.1),
    ],
)
def test_durations(text, seconds):
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "10x", "-1s", "1s2m", "1s1s", "1,5s", "10 s later", "1e3s", "∞", "nan", "٣s"]
)
def test_no_durations(text):
    with pytest.raises(UsageError, match="is not a duration"):
        parse_duration_s(text)


def test_a_duration_has_a_bound():
    with pytest.raises(UsageError, match="hundred years"):
        parse_duration_s("99999999h")


@given(st.floats(min_value=0, max_value=3e9))
def test_formatting_is_exact(seconds):
    assert parse_duration_s(format_duration(seconds)) == seconds


@pytest.mark.parametrize(
    "seconds,text",
    [
        (0, "0s"),
        (0.5, "500ms"),
        (1.5, "1.5s"),
        (60, "1m"),
        (90, "1m30s"),
        (5400, "1h30m"),
        (2e-6, "2us"),
        (5e-9, "5ns"),
        (300, "5m"),
    ],
)
def test_formatting_is_short(seconds, text):
    assert format_duration(seconds) == text


@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan])
def test_formatting_refuses(seconds):
    with pytest.raises(UsageError):
        format_duration(seconds)


@given(st.text(max_size=12))
def test_any_text_is_a_duration_or_a_usage_error(text):
    problem = refusal(parse_duration_s, text)
    assert problem.what if problem else parse_duration_s(text) >= 0


def test_numbers_are_seconds():
    assert as_duration_s(3) == 3.0
    assert as_duration_s("3s") == 3.0


@pytest.mark.parametrize("value", [True, None, [], -1, math.inf, math.nan])
def test_what_is_no_number_of_seconds(value):
    with pytest.raises(UsageError):
        as_duration_s(value)


def test_nanoseconds_are_rounded_in_decimal():
    assert seconds_to_ns(0.1) == 100_000_000
    assert seconds_to_ns(1.000000001) == 1_000_000_001
    assert seconds_to_ns(0.0000000016) == 2


@pytest.mark.parametrize(
    "text,rate", [("5", 5.0), ("5/s", 5.0), ("2.5 / s", 2.5), ("300/m", 5.0), ("300/min", 5.0), ("36/h", 0.01)]
)
def test_rates(text, rate):
    assert parse_rate(text) == pytest.approx(rate, rel=1e-15)


@pytest.mark.parametrize("text", ["", "0", "0/s", "-1", "5/d", "x", "1e3", "9" * 400])
def test_no_rates(text):
    with pytest.raises(UsageError):
        parse_rate(text)


def test_rate_lists():
    assert parse_rates("5,10/s, 60/m") == [5.0, 10.0, 1.0]
    with pytest.raises(UsageError, match="rates, column 4"):
        parse_rates("5, x")
    with pytest.raises(UsageError, match="no rates are given"):
        parse_rates(" ")


@pytest.mark.parametrize(
    "text,values",
    [
        ("1,2,4,8", [1, 2, 4, 8]),
        ("8", [8]),
        ("1,2,", [1, 2]),
        ("1:5", [1, 2, 3, 4, 5]),
        ("1:20:5", [1, 6, 11, 16]),
        ("4:16:4", [4, 8, 12, 16]),
        ("1, 2:6:2 ,9", [1, 2, 4, 6, 9]),
        ("4,4", [4, 4]),
    ],
)
def test_concurrencies(text, values):
    assert parse_concurrencies(text) == values


@pytest.mark.parametrize(
    "text,column,what",
    [
        ("", 1, "no concurrencies are given"),
        ("1,0", 3, "holds a 0"),
        ("1,,2", 3, "an item is missing"),
        ("1, two", 4, "not a whole number"),
        ("-1", 1, "not a whole number"),
        ("1.5", 1, "not a whole number"),
        ("5:1", 1, "ends before it begins"),
        ("1:5:0", 1, "holds a 0"),
        ("1:2:3:4", 1, "not a whole number or a range"),
        ("1:999999999", 1, "more than 10000 levels"),
    ],
)
def test_no_concurrencies(text, column, what):
    with pytest.raises(UsageError, match=what) as caught:
        parse_concurrencies(text)
    assert caught.value.where == f"concurrencies, column {column}"
    assert caught.value.exit_code == 2


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=50))
def test_written_concurrencies_come_back(values):
    assert parse_concurrencies(",".join(map(str, values))) == values


@given(st.text(alphabet="0123456789,: -x", max_size=20))
def test_any_text_gives_concurrencies_or_a_usage_error(text):
    problem = refusal(parse_concurrencies, text)
    assert problem.where if problem else min(parse_concurrencies(text)) >= 1
