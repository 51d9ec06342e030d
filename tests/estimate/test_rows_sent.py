"""Levels that sent the first rows of a file whose rows are not alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from gpusize.analysis.slo import Slo
from gpusize.estimate.methods import Question, estimate
from gpusize.estimate.rows_sent import rows_unlike
from tests.estimate.virtual import level

ROWS = 2_000
RISING = np.linspace(50, 1_000, ROWS).astype(np.int64)


def sending(lengths, rows):
    """A level that sent these rows of a dataset with rows of such lengths, one after the other."""
    found = level(8, requests=len(rows))
    records = found.records.collect().with_columns(row=pl.Series(np.asarray(rows, dtype=np.uint32)))
    return replace(found, rows=pl.DataFrame({"id": map(str, range(len(lengths))), "length": lengths}),
                   records=records.lazy())  # fmt: skip


def test_the_first_rows_of_a_sorted_file_are_said_to_be_shorter():
    told = rows_unlike([sending(RISING, range(1_900)), sending(RISING, range(400))])
    assert told is not None
    # Rows 0 to 399 of a straight line have a mean of 145 characters, all of them 525.
    assert told.startswith("at one level 400 of the dataset's 2,000 rows were sent, and they are 72% shorter")
    assert "--shuffle" in told
    longer = rows_unlike([sending(RISING[::-1], range(400))])
    assert longer is not None
    assert "longer than all" in longer


@pytest.mark.parametrize("seed", range(20))
def test_rows_in_any_order_are_like_all(seed):
    rng = np.random.default_rng(seed)
    lengths = np.exp(rng.normal(6, 1.2, ROWS)).astype(np.int64)
    assert rows_unlike([sending(lengths, range(count)) for count in (100, 400, 1_500)]) is None
    shuffled = rng.permutation(ROWS)
    assert rows_unlike([sending(RISING, shuffled[:count]) for count in (100, 400, 1_500)]) is None


def test_a_whole_file_and_rows_without_lengths_say_nothing():
    assert rows_unlike([sending(RISING, [*range(ROWS), *range(500)])]) is None
    bare = sending(RISING, range(400))
    assert rows_unlike([replace(bare, rows=bare.rows.select("id")), level(8)]) is None


def test_the_estimate_says_what_weakens_it():
    levels = [replace(sending(RISING, range(900)), visit=n) for n in range(2)]
    levels.append(replace(level(30, requests=900), visit=3, run="virtual"))
    [found] = estimate(levels, Question(100, (Slo.parse("p95 runtime <= 8s"),)))
    assert any("900 of the dataset's 2,000 rows were sent" in text for text in found.warnings)
