"""Numbers that are numbers, and yet none that a run can have: an error that names the file, and no folder is left."""

from __future__ import annotations

from pathlib import Path

import pytest

import gpusize
from gpusize.base.errors import ConfigError

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.mark.parametrize(
    "sample, old, new",
    [
        ("nat/present.json", None, "9" * 40),
        ("perf_analyzer/grpc_c1-16.txt", "Avg latency: ", "Avg latency: " + "9" * 36),
        ("perf_analyzer/grpc_c1-16.txt", "Batch size: ", "Batch size: " + "9" * 5000),
        ("traccc/gpu_mu200.log", None, "9" * 5000),
    ],
)
def test_a_number_out_of_all_bounds(tmp_path: Path, sample: str, old: str | None, new: str):
    text = (FIXTURES / sample).read_text()
    file = tmp_path / Path(sample).name
    if old is None:
        old = '"1"' if file.suffix == ".json" else "threads"
        new = f'"{new}"' if file.suffix == ".json" else f"threads: {new}\nthreads"
    assert old in text
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError, match=file.name.replace(".", r"\.")):
        gpusize.read(file, tmp_path / "runs")
    assert not list((tmp_path / "runs").glob("*"))
