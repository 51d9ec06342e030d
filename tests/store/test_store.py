"""The run folder: written once, committed level by level, one writer, and errors that name the path."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from gpusize.base.errors import StoreError
from gpusize.base.files import store_error, write_json
from gpusize.records.store import (
    RunStore,
    find_runs,
    is_run_folder,
    level_dirs,
    new_run_id,
    open_level_dirs,
    read_level,
    read_run,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

FACTS: dict[str, Any] = {"run": "20261120T210000Z-abcdef", "labels": {}, "levels": []}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with RunStore.create(tmp_path / "runs", FACTS) as made:
        yield made


def test_run_ids_sort_by_time_and_differ_within_a_second() -> None:
    early, late = new_run_id(1_700_000_000 * 10**9), new_run_id(1_700_000_001 * 10**9)
    assert early.startswith("20231114T221320Z-")
    assert early < late
    assert new_run_id(5) != new_run_id(5)


def test_create_writes_run_json_with_its_schema(store: RunStore) -> None:
    assert read_run(store.path) == {"schema": 1, **FACTS}
    assert is_run_folder(store.path)
    assert find_runs(store.path) == [store.path]
    assert find_runs(store.path.parent) == [store.path]


def test_a_run_folder_is_never_written_over(store: RunStore) -> None:
    with pytest.raises(StoreError, match="it already exists"):
        RunStore.create(store.path.parent, FACTS)
    assert read_run(store.path)["run"] == FACTS["run"]


def test_a_run_is_not_made_inside_another(store: RunStore) -> None:
    with pytest.raises(StoreError, match="the folder of one run"):
        RunStore.create(store.path, FACTS)


def test_a_level_is_hidden_until_it_is_committed(store: RunStore) -> None:
    folder = store.open_level(0, {"setting": {"kind": "closed", "concurrency": 1}, "step": 0})
    (folder / "records" / "part-00000.parquet").write_bytes(b"x")
    assert level_dirs(store.path) == []
    assert open_level_dirs(store.path) == [folder]
    assert read_level(folder)["state"] == "open"

    level = {"setting": {"kind": "closed", "concurrency": 1}, "state": "done", "rows": 1}
    final = store.commit_level(0, level, {"runtime": [[1, 2, 3], [2, 4, 1]]})

    assert final.name == "0000"
    assert level_dirs(store.path) == [final]
    assert open_level_dirs(store.path) == []
    kept = read_level(final)
    names = ("histograms.parquet", "records/part-00000.parquet")
    assert kept.pop("checksums") == {name: sha256((final / name).read_bytes()).hexdigest() for name in names}
    assert kept == {"schema": 1, "visit": 0, **level}
    assert (final / "records" / "part-00000.parquet").read_bytes() == b"x"
    histogram = pl.read_parquet(final / "histograms.parquet")
    assert histogram.rows() == [("runtime", 1, 2, 3), ("runtime", 2, 4, 1)]
    assert histogram.columns == ["metric", "low_ns", "high_ns", "count"]


def test_histograms_by_the_second_replace_those_of_the_visit(store: RunStore) -> None:
    folder = store.open_level(0, {})
    (folder / "histograms").mkdir()
    (folder / "histograms" / "part-00000.parquet").write_bytes(b"x")
    assert not store.discard_if_empty(0), "what was counted was measured"
    final = store.commit_level(0, {"state": "done"}, {"runtime": [[1, 2, 3]]})
    assert not (final / "histograms.parquet").exists()
    store.open_level(1, {})
    assert not (store.commit_level(1, {"state": "done"}, {"runtime": []}) / "histograms.parquet").exists()


def test_a_level_that_was_only_queued_leaves_nothing(store: RunStore) -> None:
    store.open_level(0, {})
    assert store.discard_if_empty(0)
    assert list((store.path / "levels").iterdir()) == []


def test_a_level_with_a_part_is_not_discarded(store: RunStore) -> None:
    part = store.open_level(0, {}) / "records" / "part-00000.parquet"
    part.write_bytes(b"x")
    assert not store.discard_if_empty(0)
    assert part.exists()


def test_visits_go_on_after_committed_and_open_levels(store: RunStore) -> None:
    assert store.next_visit() == 0
    store.open_level(0, {})
    store.commit_level(0, {"state": "done"}, {})
    assert store.next_visit() == 1
    store.open_level(7, {})
    assert store.next_visit() == 8


def test_a_second_writer_is_refused_and_named(store: RunStore) -> None:
    code = (
        "import sys; from pathlib import Path; from gpusize.records.store import RunStore\n"
        "try: RunStore.reopen(Path(sys.argv[1]))\n"
        "except Exception as e: print(type(e).__name__, e)"
    )
    other = subprocess.run(
        [sys.executable, "-c", code, str(store.path)], capture_output=True, text=True, check=True, env=_with_source()
    )
    assert f"StoreError {store.path}: another process (pid {os.getpid()}) is writing to this run" in other.stdout


def test_the_lock_goes_with_the_writer(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, FACTS) as store:
        path = store.path
    with RunStore.reopen(path) as again:
        assert again.run["run"] == FACTS["run"]


def test_a_newer_schema_is_refused(store: RunStore) -> None:
    write_json(store.path / "run.json", {"schema": 2})
    with pytest.raises(StoreError, match=r"run\.json: written with schema 2 by a newer gpusize.*Update gpusize"):
        read_run(store.path)


@pytest.mark.parametrize(
    "content, message",
    [("{", "not valid JSON"), ("[]", "no schema version"), ('{"schema": "one"}', "no schema version")],
)
def test_a_broken_run_json_is_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(StoreError, match=message):
        read_run(tmp_path)


def test_folders_that_hold_no_run(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a run folder"):
        find_runs(tmp_path)
    with pytest.raises(StoreError, match="no such folder"):
        find_runs(tmp_path / "absent")
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="not a folder"):
        find_runs(tmp_path / "file")
    with pytest.raises(StoreError, match="not a run folder"):
        read_run(tmp_path)


def test_a_file_in_place_of_the_folder_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError) as caught:
        RunStore.create(tmp_path / "file" / "runs", FACTS)
    assert str(caught.value).startswith(str(tmp_path / "file"))
    assert caught.value.exit_code == 3


def test_no_permission_is_one_clear_error() -> None:
    # Not below tmp_path, which only its owner may enter.
    with tempfile.TemporaryDirectory() as name:
        closed = Path(name)
        closed.chmod(0o555)
        with _unprivileged(), pytest.raises(StoreError, match=r"no permission\. Choose a folder") as caught:
            RunStore.create(closed / "runs", FACTS)
        assert caught.value.where == str(closed / "runs")
        assert list(closed.iterdir()) == []


@pytest.mark.parametrize(
    "number, what",
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read-only"),
        (errno.EPERM, "no permission"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_errors_of_the_system_in_words(number: int, what: str) -> None:
    error = store_error(Path("/runs/x"), OSError(number, os.strerror(number)))
    assert what in error.what
    assert error.where == "/runs/x"


def test_a_json_file_keeps_its_old_content_when_the_new_one_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    write_json(file, {"schema": 1})
    with pytest.raises(ValueError, match="Out of range"):
        write_json(file, {"schema": float("nan")})
    assert json.loads(file.read_text()) == {"schema": 1}


def _with_source() -> dict[str, str]:
    import gpusize

    source = str(Path(gpusize.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": source}


@contextlib.contextmanager
def _unprivileged() -> Iterator[None]:
    """Root may write anywhere, so root becomes nobody inside the block."""
    if os.geteuid() != 0:
        yield
        return
    os.setegid(65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
