"""The benchmark on scaling: its figures on data that are known, and what it finds missing in an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from benches.lib.context import Context
from benches.lib.procs import BenchFailed
from benches.lib.results import Report
from benches.sections.scaling_known import known
from benches.sections.scaling_triton import Answer, Round, mean_compute_s, two_count_faults


class _Quick:
    """A context without tools."""

    def __init__(self, scratch: Path) -> None:
        self.report = Report()
        self.scratch = scratch

    def size(self, _full: int, quick: int) -> int:
        return quick


def told(capacities: dict[int, float], law: tuple[str, float, float], **more: Any) -> dict[str, Any]:
    name, one, sigma = law
    counts = [{"gpus": gpus, "capacity": capacity} for gpus, capacity in capacities.items()]
    details = {"counts": counts, "law": {"name": name, "one": one, "sigma": sigma, "kappa": 0.0}}
    usual = {"gpus": 6, "gpus_low": 5, "gpus_high": None, "next_counts": [4, 8], "assumptions": ["a lower bound"]}
    return {"details": details, **usual, **more}


def test_what_is_known_is_found(tmp_path: Path) -> None:
    quick = _Quick(tmp_path)
    known(cast(Context, quick))
    seeded = [bar for bar in quick.report.bars if "seeded" in bar.name]
    others = [bar for bar in quick.report.bars if bar not in seeded]
    assert (len(seeded), len(others)) == (2, 3)
    assert [bar.line() for bar in others if not bar.ok] == []
    # Twenty seeds tell a coverage of 95 % to five in a hundred.
    assert all(bar.measured.value >= 0.8 for bar in seeded)


def test_errors_are_those_of_the_worst_count() -> None:
    every = Answer(told({1: 40.0, 2: 78.0, 4: 150.0}, ("amdahl", 40.0, 0.02)))
    two = Answer(told({1: 40.0, 2: 78.0}, ("amdahl", 40.0, 0.0)))
    round_ = Round(every, two, {1: 1 / 40, 2: 2 / 78, 4: 4 / 160})
    # Measured 150 where the server could do 160; two counts say 4 x 40.
    assert round_.error == pytest.approx(10 / 160)
    assert round_.forecast_error == pytest.approx(160 / 150 - 1)


@pytest.mark.parametrize(
    "change, missing",
    [
        ({}, []),
        ({"gpus_high": 9}, ["no upper end"]),
        ({"next_counts": []}, ["counts to measure next"]),
        ({"assumptions": []}, ["a lower bound"]),
        ({"gpus_low": None}, ["a lower end"]),
        ({"gpus": None, "gpus_low": None}, []),
    ],
)
def test_what_two_counts_must_say(change: dict[str, Any], missing: list[str]) -> None:
    assert two_count_faults(told({1: 10.0, 2: 18.0}, ("amdahl", 10.0, 0.1), **change)) == missing
    assert "Amdahl's law" in two_count_faults(told({1: 10.0, 2: 18.0}, ("usl", 10.0, 0.1), **change))


def test_compute_times_are_weighed_by_requests() -> None:
    def level(requests: int, infer_s: float | None) -> dict[str, Any]:
        parts = {"compute_input_s": 0.001, "compute_infer_s": infer_s, "compute_output_s": 0.002}
        return {"models": [{"requests": requests, **parts}]}

    assert mean_compute_s([level(30, 0.017), level(10, 0.037)]) == pytest.approx(0.025)
    with pytest.raises(BenchFailed, match="none of the server's statistics"):
        mean_compute_s([{"models": []}, {}])
