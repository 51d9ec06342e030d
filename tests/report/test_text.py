from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusize.report.text import clean, count, duration, number, percent, plain_number, ratio, short_count, time_unit
from tests.report.results import HOSTILE


def test_clean_removes_escapes_controls_and_reordering_marks_but_no_markup() -> None:
    assert clean(HOSTILE) == 'red <script>alert(1)</script> [bold]big[/bold] & "quoted" $x^2$'


@pytest.mark.parametrize(
    "text, shown",
    [
        ("\x1b[2Jgone", "gone"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\r\nb\tc", "a b c"),
        ("\x1b", ""),
        ("\x9b31mred", "red"),
        ("\ud800", "?"),
        ("x" * 500, "x" * 399 + "…"),
    ],
)
def test_clean_by_example(text: str, shown: str) -> None:
    assert clean(text) == shown


@given(st.text())
def test_clean_leaves_only_one_printable_line(text: str) -> None:
    shown = clean(text, 50)
    assert len(shown) <= 50
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or c in "\u202e\u2028" for c in shown)


@pytest.mark.parametrize(
    "value, shown",
    [
        (0, "0"),
        (0.001234, "0.00123"),
        (9.996, "10.0"),
        (99.96, "100"),
        (0.9999, "1.00"),
        (12345.6, "12,346"),
        (-2.5, "-2.50"),
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
        ("text", "–"),
    ],
)
def test_number_has_three_significant_digits(value: object, shown: str) -> None:
    assert number(value) == shown


def test_plain_number_drops_idle_zeros_only() -> None:
    assert [plain_number(x) for x in (10.0, 0.5, 100, 10.61, 1000)] == ["10", "0.5", "100", "10.6", "1,000"]


def test_counts() -> None:
    assert [short_count(x) for x in (0, 9999, 12_345, 999_960, 4_560_000, None)] == [
        "0", "9,999", "12.3k", "1.00M", "4.56M", "–",
    ]  # fmt: skip
    assert count(1234567) == "1,234,567"


def test_percent_never_rounds_a_miss_away() -> None:
    assert [percent(x) for x in (1.0, 0.99996, 0.95, 0.0004, 0.0, None)] == [
        "100%",
        "99.9%",
        "95.0%",
        "0.0%",
        "0.0%",
        "–",
    ]


def test_a_ratio_is_told_above_all_of_it_too() -> None:
    values = (2.792, 12.5, 1.0, 0.9996, 0.352, 0.0, -1.4, -0.25, None, math.inf)
    assert [ratio(x) for x in values] == [
        "279%", "1,250%", "100%", "100%", "35.2%", "0.0%", "-140%", "-25.0%", "–", "–",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "values, unit", [([4.0, 5.0], "s"), ([0.004, 0.2], "ms"), ([2e-5], "µs"), ([], "s"), ([None, 0.0], "s")]
)
def test_time_unit_follows_the_median(values: list[float | None], unit: str) -> None:
    assert time_unit(values).name == unit


def test_duration() -> None:
    assert [duration(s) for s in (0.85, 12.34, 245, 7380, None)] == [
        "0.85 s",
        "12.3 s",
        "4 min 05 s",
        "2 h 03 min",
        "–",
    ]
