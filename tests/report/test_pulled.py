"""The table of a pull: gaps of the time that was asked for."""

from __future__ import annotations

import io

import pytest

from gpusize.report.pulled import print_pulled
from gpusize.report.summary.terminal import make_console

S = 10**9


@pytest.mark.parametrize(
    "gaps, told",
    [
        ([], "-"),
        # All of them in the margins, but for what lies before the first scrape.
        ([[0, 66 * S], [174 * S, 240 * S]], "-"),
        ([[0, 66 * S], [100 * S, 150 * S], [174 * S, 240 * S]], "50.0"),
        ([[0, 90 * S]], "30.0"),
        ([[0, 240 * S]], "120"),
    ],
)
def test_margins_are_no_gaps(gaps: list[list[int]], told: str) -> None:
    """Two minutes with a margin of one on either side, by a clock that is 1000 s ahead of ours."""
    of = {"kind": "gauge", "unit": "requests", "series": 1, "samples": 9, "interval_s": 15.0, "dropped": []}
    facts = {
        "range": {"from_ns": 0, "to_ns": 240 * S, "start_ns": -940 * S, "end_ns": -820 * S},
        "names": {"running": {**of, "gaps": gaps}},
        "clock": {"method": "time()", "offset_ns": 1000 * S, "uncertainty_ns": 0},
    }
    out = io.StringIO()
    print_pulled(facts, make_console(out))
    [row] = [line for line in out.getvalue().splitlines() if line.startswith("running")]
    assert row.split()[-1] == told
