"""Record frames: reading, versions, outcomes, exact quantiles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusize.analysis.metrics import metric
from gpusize.base.errors import StoreError
from gpusize.records.schema import (
    EVENTS,
    OUTCOMES,
    SCHEMA_KEY,
    column,
    empty,
    from_arrow,
    quantiles,
    record_dtypes,
    scan,
)
from tests.analysis.synthetic import frame

VERSION_1 = Path(__file__).parents[1] / "fixtures" / "records_v1" / "part-00000.parquet"
ALL = frame({"due_ns": [0] * len(OUTCOMES), "end_ns": range(len(OUTCOMES)), "outcome": range(len(OUTCOMES))})


def write(path, data=ALL, version="1"):
    data.write_parquet(path, metadata={SCHEMA_KEY: version})
    return path


def test_outcome_codes_become_names_in_order(tmp_path):
    records = scan([write(tmp_path / "part-00000.parquet")]).collect()
    assert records["outcome"].dtype == pl.Enum(OUTCOMES)
    assert records["outcome"].to_list() == list(OUTCOMES)
    assert records.columns == list(record_dtypes())


def test_parts_are_joined_in_order(tmp_path):
    first, second = write(tmp_path / "a.parquet", ALL[:3]), write(tmp_path / "b.parquet", ALL[3:])
    assert scan([first, second]).collect()["end_ns"].to_list() == list(range(len(OUTCOMES)))


def test_a_path_with_wildcards_is_taken_as_it_is(tmp_path):
    folder = tmp_path / "run [1]*"
    folder.mkdir()
    assert scan([write(folder / "part.parquet")]).collect().height == len(OUTCOMES)


def test_memory_and_disk_give_the_same_frame(tmp_path):
    assert from_arrow(ALL).collect().equals(scan([write(tmp_path / "a.parquet")]).collect())


def test_no_parts_are_an_empty_frame():
    assert scan([]).collect().height == 0
    assert scan([]).collect_schema() == empty().collect_schema() == from_arrow(ALL).collect_schema()


def test_a_newer_version_is_refused(tmp_path):
    with pytest.raises(StoreError, match=r"schema version 4.*up to 3"):
        scan([write(tmp_path / "a.parquet", version="4")])


def test_version_1_is_read_with_nulls_for_what_it_lacks():
    """The fixture was written by the engine when records had version 1."""
    records = scan([VERSION_1]).collect()
    assert records.columns == list(record_dtypes())
    assert records.height == 6
    assert records["outcome"].unique().to_list() == ["ok"]
    assert records["reasoning_events"].to_list() == [0] * 6
    assert records[["first_output_ns", "itl_p50_ns", EVENTS]].null_count().row(0) == (6, 6, 6)
    assert records["events"].sum() > 0
    in_memory = from_arrow(pl.read_parquet(VERSION_1)).collect()
    assert in_memory.equals(records)
    assert in_memory.schema == records.schema


def test_parts_of_one_level_may_leave_columns_out(tmp_path):
    streamed = ALL.with_columns(
        pl.lit(7, pl.Int64).alias("itl_p50_ns"), pl.Series(EVENTS, [[1, 2]] * ALL.height, dtype=pl.List(pl.Int64))
    )
    plain = ALL.select(pl.read_parquet(VERSION_1).columns)
    parts = [
        write(tmp_path / f"{k}.parquet", part, version="2")
        for k, part in enumerate([plain, streamed, streamed.drop(EVENTS), plain])
    ]
    found = scan([*parts, VERSION_1])
    n = ALL.height
    assert found.select(pl.col("itl_p50_ns").is_not_null().sum()).collect().item() == 2 * n
    assert found.select(pl.col(EVENTS).list.len().sum()).collect().item() == 2 * n
    assert found.collect()["reasoning_events"].null_count() == 0
    assert pl.concat([found, from_arrow(plain), empty()]).select(pl.len()).collect().item() == 5 * n + 6


def test_a_broken_version_is_refused(tmp_path):
    with pytest.raises(StoreError, match="unreadable schema version"):
        scan([write(tmp_path / "a.parquet", version="one")])


def test_other_parquet_files_are_refused(tmp_path):
    path = tmp_path / "other.parquet"
    pl.DataFrame({"a": [1]}).write_parquet(path)
    with pytest.raises(StoreError, match="column visit is missing"):
        scan([path])


def test_a_damaged_part_is_named(tmp_path):
    path = tmp_path / "part.parquet"
    path.write_bytes(b"PAR1 no more")
    with pytest.raises(StoreError, match="unreadable part") as raised:
        scan([path])
    assert raised.value.where == str(path)


def test_a_missing_part_is_named(tmp_path):
    with pytest.raises(StoreError, match=r"gone\.parquet"):
        scan([tmp_path / "gone.parquet"])


def test_an_unknown_outcome_code_does_not_pass_as_another():
    with pytest.raises(pl.exceptions.ComputeError):
        from_arrow(frame({"due_ns": [0], "outcome": [len(OUTCOMES)]})).collect()


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 10**12), min_size=1, max_size=200),
    st.lists(st.floats(0, 1), min_size=1, max_size=5),
)
def test_quantiles_are_numpys(runtimes_ns, probs):
    records = from_arrow(frame({"due_ns": [0] * len(runtimes_ns), "end_ns": runtimes_ns}))
    found = quantiles(records, metric("runtime").raw(), probs)
    assert found == list(np.quantile(np.array(runtimes_ns, dtype=float), probs))


def test_quantiles_of_nothing_are_none():
    records = from_arrow(frame({"due_ns": [0, 1]}))
    assert quantiles(records, metric("runtime").expr(), [0.5, 1.0]) == [None, None]


def test_a_column_keeps_rows_of_all_chunks_and_drops_nulls():
    parts = [from_arrow(frame({"due_ns": [0, 0], "end_ns": [10**9 * k, None]})) for k in range(1, 5)]
    found = column(pl.concat(parts), metric("runtime").expr())
    assert sorted(found) == [1.0, 2.0, 3.0, 4.0]
    found[0] = 7.0
