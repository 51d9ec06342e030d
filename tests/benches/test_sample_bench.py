"""What the benchmark of the sampler says is true: windows of a counter, and programs whose use is known."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from benches.lib.known_use import Series, compare
from benches.lib.peers import build_tools
from benches.lib.procs import BenchFailed
from benches.sections.sample_truth import used

MIB = 2**20
MS = 1_000_000


def test_a_counters_windows_are_straight_lines_between_readings() -> None:
    counter = Series([0, 100 * MS, 200 * MS], [0, 50 * MS, 250 * MS])
    starts = np.array([0.0, 50.0, 100.0]) * MS
    assert counter.cores(starts, 100 * MS).tolist() == [0.5, 1.25, 2.0]


def test_errors_are_of_the_time_that_both_have() -> None:
    times = list(range(0, 1001 * MS, 10 * MS))
    true = Series(times, [t // 2 if t < 500 * MS else 250 * MS + (t - 500 * MS) for t in times])
    assert compare(true, true)[:2] == (0.0, 0.0)
    # A sampler that begins late, and whose counter is 1 % too fast.
    late = Series(true.t_ns[20:], [int(cpu * 1.01) for cpu in true.cpu_ns[20:]])
    mean_error, peak_error, mean = compare(late, true)
    assert mean_error == pytest.approx(0.01, abs=1e-6)
    assert peak_error == pytest.approx(0.01, abs=1e-6)
    assert mean == pytest.approx((750 - 100) / 800)
    with pytest.raises(ValueError, match="less than two windows"):
        compare(Series([0, MS], [0, MS]), true)


def test_more_use_reads_as_more() -> None:
    tools = build_tools()
    cores, memory = [], []
    try:
        for asked, mib in ((0.5, 64), (1.0, 256)):
            told, frame, facts = used(tools.known_use, asked, 1.0, mib)
            counted = frame.filter(pl.col("cpu_ns").is_not_null())
            sampled = Series(counted["t_ns"].to_list(), counted["cpu_ns"].to_list())
            mean_error, _, mean = compare(sampled, Series(*map(list, zip(*told["marks"], strict=True))))
            assert mean_error < 0.1
            cores.append(mean)
            memory.append(facts["sources"]["it"]["last"]["mem_peak_bytes"])
            assert memory[-1] >= told["bytes"] - facts["mem_error_bytes"]
            assert told["bytes"] >= mib * MIB
    except BenchFailed as error:
        pytest.skip(str(error))
    # Neighbours may take time from it, but nobody gives it any.
    assert cores[0] < 0.6
    assert cores[1] < 1.05
    assert memory[0] < memory[1]
