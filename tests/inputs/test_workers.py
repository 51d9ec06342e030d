"""How many threads send where nobody says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpusize.base.errors import UsageError
from gpusize.engine.workers import chosen_workers, parse_cores, usable_cores


@pytest.mark.parametrize(
    "rate, in_flight, local, cores, workers",
    [
        (None, 32, False, 8, 1),
        (None, 257, False, 8, 2),
        (None, 100_000, False, 8, 8),
        (100.0, 1024, False, 8, 1),
        (50_000.0, 256, False, 8, 3),
        (1e6, 256, False, 8, 8),
        (1e6, 256, True, 8, 7),
        (1e6, 256, True, 1, 1),
    ],
)
def test_a_load_gets_the_threads_that_it_needs(
    rate: float | None, in_flight: int, local: bool, cores: int, workers: int
) -> None:
    assert chosen_workers(rate, in_flight, local=local, cores=cores) == workers


@pytest.mark.parametrize(
    "files, most",
    [
        ({"cpu.max": "150000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({}, None),
    ],
)
def test_a_quota_of_the_control_group_counts(tmp_path: Path, files: dict[str, str], most: int | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert usable_cores(tmp_path) == (most or len(os.sched_getaffinity(0)))


def test_cores_are_named_one_by_one_or_as_ranges() -> None:
    mine = sorted(os.sched_getaffinity(0))
    assert parse_cores(f"{mine[-1]},{mine[0]}") == tuple(dict.fromkeys([mine[-1], mine[0]]))
    assert parse_cores(f"{mine[0]}-{mine[0]}") == (mine[0],)


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "0;1", "99999"])
def test_what_names_no_core_of_ours_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_cores(text)
