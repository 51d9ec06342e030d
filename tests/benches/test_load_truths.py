"""What the benchmarks of the load generator compare: the model of an overload, the slope of memory, the stages."""

from __future__ import annotations

import pytest

from benches import load
from benches.sections.load_boundaries import Round
from benches.sections.load_overload import OverloadFound, _arrivals, compare


def test_every_section_of_the_record_is_there() -> None:
    made = {"processes", "boundaries", "overload", "omission", "workers", "overpromise", "timing", "throughput"}
    assert set(load.SECTIONS) == made | {"streamed", "endurance"}


def test_differences_are_relative_to_the_model() -> None:
    found, truth = OverloadFound(103.0, 0.49, 580), OverloadFound(100.0, 0.5, 600)
    assert compare(found, truth) == pytest.approx({"achieved": 0.03, "waiting": 0.02, "shed": 1 / 30})


def test_waiting_is_compared_where_the_model_has_some() -> None:
    assert set(compare(OverloadFound(100.0, 1e-5, 600), OverloadFound(100.0, 0.0, 600))) == {"achieved", "shed"}


def test_an_overload_has_a_seed() -> None:
    due, tokens = _arrivals(200.0, 10, 1)
    assert (due, tokens) == _arrivals(200.0, 10, 1)
    assert due != _arrivals(200.0, 10, 2)[0]
    assert due == sorted(due)
    assert all(each % 1000 == 0 for each in due)
    assert len(due) == len(tokens) == pytest.approx(2000, rel=0.1)
    assert set(tokens) == set(range(4, 13))


def test_a_round_of_stages_has_a_median_boundary() -> None:
    assert Round(100, 0, 0, (0.3, 0.1, 9.0)).median_ms == 0.3
    assert Round(100, 0, 0, (0.3, 0.1, 9.0, 0.5)).median_ms == pytest.approx(0.4)
