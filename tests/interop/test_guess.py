"""The format of a file is told by its content."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import gpusize
from gpusize.base.errors import ConfigError, PathMissing
from gpusize.studies.imports.guess import formats, import_auto

FIXTURES = Path(__file__).parents[1] / "fixtures"
SWEEP = FIXTURES / "perf_analyzer" / "inst1_c1-8.csv"


def test_a_csv_has_the_figures_of_its_own_rows(tmp_path: Path):
    renamed = tmp_path / "anything.dat"
    renamed.write_bytes(SWEEP.read_bytes())
    summary = gpusize.read(renamed, tmp_path / "runs", gpus=2).summary
    rows = {int(row["Concurrency"]): row for row in csv.DictReader(SWEEP.read_text().splitlines())}
    assert set(summary["concurrency"]) == set(rows)
    for row in summary.iter_rows(named=True):
        assert row["gpus"] == 2
        assert row["achieved_rate"] == float(rows[row["concurrency"]]["Inferences/Second"])
        assert row["runtime_p95_s"] == pytest.approx(float(rows[row["concurrency"]]["p95 latency"]) / 1e6)


def test_an_imported_run_is_read_again_where_it_is(tmp_path: Path):
    first = gpusize.read(SWEEP, tmp_path / "runs")
    assert gpusize.read(first.path).summary.equals(first.summary)
    assert gpusize.read(tmp_path / "runs").path == first.path


@pytest.mark.parametrize(
    "content, looks",
    [(b"", "empty"), (b"\0\1", "binary"), (b'{"a": 1}', "JSON"), (b"a,b\n1,2\n", "'a,b'"), (b"  \n", "blanks")],
)
def test_what_nobody_knows_is_described(tmp_path: Path, content: bytes, looks: str):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ConfigError) as error:
        gpusize.read(tmp_path / "x", tmp_path / "runs")
    assert looks in str(error.value)
    assert all(name in str(error.value) for name in formats())
    assert not (tmp_path / "runs").exists()


def test_a_run_folder_needs_no_import(tmp_path: Path):
    run = gpusize.read(SWEEP, tmp_path / "runs").path
    with pytest.raises(ConfigError, match="run folder already"):
        import_auto(run, tmp_path / "others")


def test_what_is_missing(tmp_path: Path):
    with pytest.raises(PathMissing):
        gpusize.read(tmp_path / "none", tmp_path / "runs")


def test_the_calculators_file_is_told(tmp_path: Path):
    (tmp_path / "calc_runner_output.json").write_text(
        '{"calc_data": {"4": {"sizing_metrics": {"workflow_runtime_p95": 1.5}}}}'
    )
    for path in (tmp_path, tmp_path / "calc_runner_output.json"):
        summary = gpusize.read(path, tmp_path / "runs").summary
        assert summary.select("concurrency", "runtime_p95_s").rows() == [(4, 1.5)]


def test_cposts_files_are_shown_by_another_command(tmp_path: Path):
    file = tmp_path / "reader_final_result.csv"
    file.write_text("timestamp,cpu_percent,memory\r\n1627425842.1,10.0,1.5\r\n1627425842.3,30.5,2.5\r\n")
    for path in (file, tmp_path):
        with pytest.raises(ConfigError, match="gpusize pipeline show"):
            import_auto(path, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
