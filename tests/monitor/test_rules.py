"""The text of stop rules: what it means, and where an error points."""

from __future__ import annotations

from fractions import Fraction

import pytest

from gpusize.base.errors import SloError
from gpusize.measure.monitor import Rule, parse_rule, parse_rules
from gpusize.measure.monitor.stop_rules import Seen
from tests.monitor.seconds import second


@pytest.mark.parametrize(
    "text, expected",
    [
        ("p99 ttft > 2s for 30s", ("percentile", "ttft", Fraction(1, 100), 2_000_000_000, 30)),
        ("p99.9 ttft from sent > 200 ms for 1m30s", ("percentile", "ttft_sent", Fraction(1, 1000), 200_000_000, 90)),
        ("p95 runtime from sent > 10s for 1m", ("percentile", "service", Fraction(1, 20), 10_000_000_000, 60)),
        ("p100 runtime > 1s for 1500ms", ("percentile", "runtime", Fraction(0), 1_000_000_000, 2)),
        ("p50 itl > 30ms for 5 s", ("percentile", "itl", Fraction(1, 2), 30_000_000, 5)),
        ("errors > 5% for 10s", ("share", "errors", Fraction(1, 20), 0, 10)),
        ("error > 0.05 for 10s", ("share", "errors", Fraction(1, 20), 0, 10)),
        ("shed > 0 for 1s", ("share", "shed", Fraction(0), 0, 1)),
        ("saturation", ("saturation", "saturation", Fraction(0), 0, 30)),
        ("saturation for 2m", ("saturation", "saturation", Fraction(0), 0, 120)),
        ("saturation for 10s", ("saturation", "saturation", Fraction(0), 0, 10)),
    ],
)
def test_what_a_rule_says(text: str, expected: tuple) -> None:
    assert parse_rule(text) == Rule(text, *expected)


@pytest.mark.parametrize(
    "text, column, what",
    [
        ("p99 ttft <= 2s for 3s", 10, "says when to stop"),
        ("p99 ttft > 2 for 30s", 14, "'for' is not a unit"),
        ("p99 ttft > 2s", 14, "for how long"),
        ("p99 ttft > 2s for 30", 19, "no unit"),
        ("p99 ttft > 2s for ever", 19, "not a duration"),
        ("p99 ttft > 2s for 200ms", 19, "second by second"),
        ("p99 tokens_out > 3 for 4s", 5, "not known while a level runs"),
        ("p99 ttfx > 3s for 4s", 5, "unknown metric"),
        ("p0 ttft > 1s for 3s", 1, "not a percentile"),
        ("mean ttft > 2s for 3s", 1, "nothing that a stop rule watches"),
        ("latency > 2s for 3s", 1, "nothing that a stop rule watches"),
        ("errors > 200% for 10s", 10, "no share is above"),
        ("errors > 5%", 12, "for how long"),
        ("errors for 3s", 8, "says when to stop"),
        ("", 1, "starts with a word"),
        ("saturation soon", 12, "for how long"),
        ("errors > 5% for 10s ; ls", 17, "not a duration"),
        ("saturation for 9s", 16, "too short to see saturation in"),
        ("saturation for 200ms", 16, "second by second"),
    ],
)
def test_errors_point_at_the_column(text: str, column: int, what: str) -> None:
    with pytest.raises(SloError, match=what) as caught:
        parse_rule(text)
    assert caught.value.where == f"stop rule, column {column}"
    assert str(caught.value).splitlines()[-1] == f"  {' ' * (column - 1)}^"


def test_reasons() -> None:
    rules = parse_rules(["p99 ttft > 2s for 30s", "timeout > 1% for 5s", "saturation"])
    assert [rule.reason for rule in rules] == ["slo", "errors", "saturation"]


def test_what_a_second_says() -> None:
    row = second(3, ok=90, slow=5, slow_ms=2500, timeout=4, cancelled=7)
    assert parse_rule("p99 ttft > 2s for 30s").see(row) == Seen(99, 9), "who failed has missed, who was cancelled not"
    assert parse_rule("p99 ttft > 2500ms for 30s").see(row) == Seen(99, 4), "the bound itself is within"
    assert parse_rule("p99 lateness > 1ms for 3s").see(row) == Seen(106, 0), "all that were sent have a lateness"
    assert parse_rule("errors > 5% for 3s").see(row) == Seen(99, 4)
    assert parse_rule("timeout > 5% for 3s").see(row) == Seen(99, 4)
    assert parse_rule("shed > 5% for 3s").see(row) == Seen(99, 0)
    assert parse_rule("p99 service > 2s for 3s").see(second(3, ok=5, timeout=1)) == Seen(0, 0), "nobody has the metric"
    assert parse_rule("p99 service > 2s for 3s").see({"second": 0}) == Seen(0, 0)


@pytest.mark.parametrize(
    "judged, over, broken",
    [(0, 0, False), (100, 1, False), (100, 2, True), (1000, 10, False), (1000, 11, True), (30, 1, False), (1, 1, True)],
)
def test_one_alone_never_breaks_a_percentile(judged: int, over: int, broken: bool) -> None:
    assert parse_rule("p99 ttft > 2s for 30s").broken(Seen(judged, over)) is broken


def test_exact_shares() -> None:
    rule = parse_rule("p90 ttft > 2s for 30s")
    assert not rule.broken(Seen(20, 2))
    assert rule.broken(Seen(20, 3))
    assert parse_rule("p100 ttft > 2s for 30s").broken(Seen(1000, 1))
    assert parse_rule("shed > 0% for 30s").broken(Seen(1000, 1))
