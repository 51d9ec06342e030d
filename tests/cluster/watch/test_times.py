"""Times as API servers write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusize.cluster.watch.times import parse_time

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "text, at_ns, resolution_ns",
    [
        ("2026-11-28T00:29:54Z", 1795825794_000000000, 1_000_000_000),
        ("2026-11-28T00:29:45.265718Z", 1795825785_265718000, 1_000),
        ("2026-11-28T00:29:45.5Z", 1795825785_500000000, 100_000_000),
        ("2026-11-28T00:29:45.123456789Z", 1795825785_123456789, 1),
        ("2026-11-28T01:29:54+01:00", 1795825794_000000000, 1_000_000_000),
        ("2026-11-28T01:29:45.000001+01:00", 1795825785_000001000, 1_000),
    ],
)
def test_a_time_has_the_resolution_of_its_last_digit(text: str, at_ns: int, resolution_ns: int) -> None:
    assert parse_time(text) == (at_ns, resolution_ns)


@pytest.mark.parametrize(
    "text",
    ["", "soon", "2026-11-28", "2026-11-28T00:29:54", "2026-11-28T00:29:54.Z", "2026-11-28T00:29:54.1234567890Z"],
)
def test_what_is_no_time_is_none(text: str) -> None:
    assert parse_time(text) is None


@given(st.datetimes(min_value=datetime(2015, 1, 1), max_value=datetime(2100, 1, 1)))  # noqa: DTZ001 - made UTC below
def test_microseconds_are_exact(naive: datetime) -> None:
    moment = naive.replace(tzinfo=UTC)
    exact = (moment - EPOCH) // timedelta(microseconds=1)
    assert parse_time(moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")) == (exact * 1000, 1000)
