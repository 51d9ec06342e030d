"""Runs by the values of a label: which of these are counts."""

from __future__ import annotations

from gpusize.analysis.compare.matching import Run
from gpusize.api.groups import grouped


def test_counts_are_numbers_that_can_be_and_all_else_are_words() -> None:
    for value, count in (("2", 2), ("04", 4), ("9" * 5000, None), ("0", None), ("\u0663", None), ("2.0", None)):
        sides, counts = grouped([(Run(each, "", []), {"labels": {"n": each}}) for each in ("1", value)], "n")
        assert len(sides) == 2
        assert list(counts.values()) == ([] if count is None else [1, count])
