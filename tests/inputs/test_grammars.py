"""Every grammar over texts near to right ones: what is wrong is an error of ours, with its column where it has one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpusize.analysis.slo import Slo
from gpusize.base.errors import SloError, UsageError
from gpusize.base.secrets import parse_header
from gpusize.base.units import parse_concurrencies, parse_duration_s, parse_rate, parse_rates, parse_sample
from gpusize.base.urls import parse_url
from gpusize.engine.workers import parse_cores
from gpusize.estimate.plan.growth import parse_growth
from gpusize.estimate.plan.price import parse_price
from gpusize.estimate.plan.ranges import parse_bounds, parse_users
from gpusize.estimate.plan.ranges import parse_rates as parse_rate_series
from gpusize.estimate.search.terms import Adaptive
from gpusize.measure.monitor.stop_rules import parse_rule
from gpusize.targets.apis.template import BodyTemplate
from gpusize.targets.kserve.mix import parse_models
from gpusize.targets.workflow.command import CommandTemplate
from gpusize.workload.dataset.synthetic import Synthetic
from gpusize.workload.load.grammar import parse_stages, parse_think


class Grammar(NamedTuple):
    """A reader of one text, texts that it reads, and whether its errors have a column."""

    read: Callable[[str], Any]
    right: tuple[str, ...]
    column: bool = False


GRAMMARS = {
    "slo": Grammar(
        Slo.parse,
        (
            "p95 runtime <= 10s",
            "p99.9 ttft from sent < 200 ms",
            "mean itl_mean <= 30ms",
            "share ok >= 99%",
            "p50 tokens_out >= 5 tokens",
            "share timeout <= 0.1%",
        ),
        column=True,
    ),
    "rule": Grammar(
        parse_rule,
        ("p99 ttft > 2s for 30s", "errors > 5% for 10s", "shed > 1% for 1m", "saturation", "saturation for 20s"),
        column=True,
    ),
    "stages": Grammar(
        parse_stages,
        ("1/s@1m, 1/s..50/s gamma(0.5)@5m", "8@1m, 8..64@5m", "10/s burst 100/s for 1s every 10s@5m"),
        column=True,
    ),
    "think": Grammar(parse_think, ("2s", "exp(2s)", "uniform(1s,3s)", "lognormal(2s,0.5)", "recorded"), column=True),
    "concurrencies": Grammar(parse_concurrencies, ("1,2,4,8", "1:20:1", "8"), column=True),
    "rates": Grammar(parse_rates, ("5,10,20/s", "300/m", "0.5"), column=True),
    "users": Grammar(parse_users, ("50,100,200..1000", "7"), column=True),
    "rate series": Grammar(parse_rate_series, ("10,20,40..160/s",), column=True),
    "bounds": Grammar(parse_bounds, ("2s,4s,8s", "0.5x..4x"), column=True),
    "duration": Grammar(parse_duration_s, ("1h30m", "500ms", "1.5m", "90")),
    "rate": Grammar(parse_rate, ("20/s", "300/m", "90/h", "4")),
    "sample": Grammar(parse_sample, ("1/100", "0.01", "1")),
    "growth": Grammar(parse_growth, ("1.5", "50%", "30%/year for 5")),
    "price": Grammar(parse_price, ("2.5 EUR", "3")),
    "cores": Grammar(parse_cores, ("0",)),
    "models": Grammar(parse_models, ("a=3,b=1", "m")),
    "header": Grammar(parse_header, ("X-Team: a", "Accept: text/plain")),
    "url": Grammar(parse_url, ("http://host:8000/v1", "grpc://[::1]:1", "https://h/x?y=z")),
    "synthetic": Grammar(Synthetic.parse, ("input=512 output=normal(128,16) rows=200", "input=uniform(1,9) rows=3")),
    "template": Grammar(BodyTemplate.parse, ('{"a": ${prompt}, "b": ${x:json}}', "${answer:-1}")),
    "command": Grammar(CommandTemplate, ("ask {prompt} --n 'a b'", "x {{ {a}")),
    "precision": Grammar(lambda text: Adaptive(precision=text), ("3%", "0.05")),
    "budget": Grammar(lambda text: Adaptive(budget=text), ("4000", "10m")),
}
ODD = "0123456789.eE+-/%<>=:,;@()[]{}$_ \t\n\"'\\#²٣½∞µ\0\x1b\ud800é"
"""Also digits that are none for ``int``, half a character, and what ends lines."""
LONG = ("9" * 400, "1e999999999", "1e-999999999", "0." + "0" * 400 + "1", "٣٤", "1" * 5000, "/0", "p951/0", "\0")


@st.composite
def near(draw: st.DrawFn, right: tuple[str, ...]) -> str:
    """A right text with up to four changes."""
    text = draw(st.sampled_from(right))
    for _ in range(draw(st.integers(0, 4))):
        low = draw(st.integers(0, len(text)))
        high = draw(st.integers(low, min(len(text), low + 3)))
        put = draw(st.one_of(st.text(ODD, max_size=3), st.sampled_from(LONG), st.sampled_from(right)))
        text = text[:low] + put + text[high:]
    return text


def refusal(grammar: Grammar, text: str) -> UsageError | None:
    """Why a text is not read; None where it is."""
    try:
        grammar.read(text)
    except UsageError as error:
        return error
    return None


def check(grammar: Grammar, text: str) -> None:
    error = refusal(grammar, text)
    if error is None:
        return
    assert error.what
    assert str(error)
    if grammar.column:
        found = re.search(r"column (\d+)", error.where or "")
        assert found is not None, (text, error)
        assert 1 <= int(found[1]) <= len(text) + 1, (text, error)


@pytest.mark.parametrize("name", GRAMMARS)
def test_right_texts_are_read(name: str) -> None:
    for text in GRAMMARS[name].right:
        GRAMMARS[name].read(text)


@pytest.mark.parametrize("name", GRAMMARS)
def test_only_errors_of_ours(name: str) -> None:
    grammar = GRAMMARS[name]

    @settings(max_examples=60, derandomize=True, database=None)
    @given(near(grammar.right))
    @example("")
    @example("1" * 5000)
    def fuzzed(text: str) -> None:
        check(grammar, text)

    fuzzed()


@pytest.mark.parametrize(
    "text, column",
    [("p99ttft > 2s for 30s", 1), ("p951/0 ttft > 2s for 30s", 1), ("p951/0", 1), ("p100 ttft > 2s for 1e99s", 0)],
)
def test_a_rule_that_is_none_points_at_its_column(text: str, column: int) -> None:
    with pytest.raises(SloError) as caught:
        parse_rule(text)
    assert caught.value.where is not None
    assert caught.value.where.startswith(f"stop rule, column {column or ''}")
