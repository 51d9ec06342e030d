"""Lists of loads and bounds, growth and prices as people write them."""

from __future__ import annotations

import itertools

import pytest

from gpusize.base.errors import UsageError
from gpusize.estimate.plan import Bound, Price, Step, parse_bounds, parse_growth, parse_price, parse_rates, parse_users
from gpusize.estimate.plan.price import cost
from gpusize.estimate.plan.ranges import evenly


def test_users():
    assert parse_users("50,100,200") == [50.0, 100.0, 200.0]
    assert parse_users("200, 50 ,50,") == [50.0, 200.0], "ascending, each once, one comma at the end"
    assert parse_users("50,100,200..1000") == [50, 100, 200, 280, 380, 530, 720, 1000]


def test_a_range_has_both_ends_and_even_ratios_between():
    found = evenly(21.0, 680.0)
    assert (found[0], found[-1]) == (21.0, 680.0)
    ratios = [b / a for a, b in itertools.pairwise(found)]
    assert all(1.3 < ratio < 1.5 for ratio in ratios)
    assert evenly(10.0, 11.0) == [10.0, 11.0]
    assert parse_users("1..3") == [1, 2, 3], "whole users, each once"


def test_rates_take_the_unit_of_their_end():
    assert parse_rates("5,10..20/s") == [5.0, 10.0, 14.0, 20.0]
    assert parse_rates("60..120/m") == [1.0, 1.4, 2.0]


def test_bounds_are_times_or_multiples():
    assert parse_bounds("500ms,2s,4s") == [Bound(seconds=0.5), Bound(seconds=2.0), Bound(seconds=4.0)]
    assert parse_bounds("2..8s") == [Bound(seconds=value) for value in (2.0, 2.8, 4.0, 5.7, 8.0)]
    assert parse_bounds("0.5x,1x,2x") == [Bound(factor=0.5), Bound(factor=1.0), Bound(factor=2.0)]
    assert parse_bounds("0.5..1x") == [Bound(factor=0.5), Bound(factor=0.71), Bound(factor=1.0)]


@pytest.mark.parametrize(
    "text, column, said",
    [
        ("", 1, "empty"),
        ("5,,6", 3, "missing"),
        ("5, x", 4, "not a number of users"),
        ("5,0", 3, "not a number of users"),
        ("5,1.5", 3, "not a number of users"),
        ("9..3", 1, "is not a rising range"),
        ("5..", 1, "not a number of users"),
    ],
)
def test_a_list_that_is_none_says_where(text: str, column: int, said: str):
    with pytest.raises(UsageError, match=said) as caught:
        parse_users(text)
    assert caught.value.where == f"users, column {column}"
    assert caught.value.todo


@pytest.mark.parametrize("text", ["2s,3x", "2x,3s", "0s", "0x", "fast", "1s..1s"])
def test_bounds_that_cannot_be_meant(text: str):
    with pytest.raises(UsageError) as caught:
        parse_bounds(text)
    assert str(caught.value.where).startswith("slo_bounds, column")


def test_too_many_values():
    with pytest.raises(UsageError, match="the list has more than 200 values"):
        parse_users(",".join(str(k) for k in range(1, 202)))


def test_growth():
    assert parse_growth("1.5") == parse_growth("50%") == parse_growth("1.5x") == (Step("now", 1.0), Step("x 1.5", 1.5))
    assert [step.name for step in parse_growth("30%/year")] == ["now", "after 1 year", "after 2 years", "after 3 years"]
    assert [step.factor for step in parse_growth("30%/year for 2")] == pytest.approx([1.0, 1.3, 1.69])
    assert [step.factor for step in parse_growth("2x / quarter for 3 quarters")] == [1.0, 2.0, 4.0, 8.0]
    assert parse_growth("0.5")[1] == Step("x 0.5", 0.5)


@pytest.mark.parametrize(
    "text", ["", "1", "0%", "0", "-20%", "30%/decade", "30% for 2", "9x/week for 60", "2x/year for 0"]
)
def test_growth_that_cannot_be_meant(text: str):
    with pytest.raises(UsageError) as caught:
        parse_growth(text)
    assert caught.value.where == "growth"


def test_prices():
    assert parse_price("2.5") == Price(2.5)
    assert parse_price(" 2.5 EUR") == parse_price("2.5EUR") == parse_price("EUR 2.5") == Price(2.5, "EUR")
    assert parse_price("$2.5") == Price(2.5, "$")


@pytest.mark.parametrize("text", ["", "free", "0", "$2 USD", "-1", "1e3", "2.5 <b>", "2,5"])
def test_prices_that_cannot_be_meant(text: str):
    with pytest.raises(UsageError) as caught:
        parse_price(text)
    assert caught.value.where == "gpu_hour_price"


def test_costs():
    found = cost(Price(2.5, "EUR"), 4, per_s=50.0, tokens=200.0)
    assert (found.per_hour, found.per_month) == (10.0, 7300.0)
    assert found.per_million_requests == pytest.approx(10.0 / (50 * 3600) * 1e6)
    assert found.per_million_tokens == pytest.approx(10.0 / (50 * 200 * 3600) * 1e6)
    assert cost(Price(2.5), 4, None, 200.0).per_million_requests is None
    assert cost(Price(2.5), 4, 50.0, None).per_million_tokens is None
