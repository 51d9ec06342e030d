"""Numbers that are numbers, and yet none that a run can have: an error that names the file, and no folder is left."""

from __future__ import annotations

from pathlib import Path

import pytest

import gpusize
from gpusize.base.errors import ConfigError
from gpusize.studies.imports import benchmark_report, whole_file
from gpusize.studies.imports.guess import formats

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


WHOLE = {
    "aiperf": "aiperf/closed/profile_export_aiperf.json",
    "benchmark_report": "benchmark_report/example_v0_2_1.yaml",
    "guidellm": "guidellm/sampled.json",
    "inference_perf": "inference_perf/late/stage_0_lifecycle_metrics.json",
    "k6": "k6/closed_handle.json",
    "nat": "nat/present.json",
    "perf_analyzer": "perf_analyzer/grpc_c1-16.csv",
    "traccc": "traccc/gpu_mu200.log",
    "vllm": "vllm/closed_plain.json",
}
"""Files that are read whole. Those of perf_analyzer_json are read value by value."""


def copied(tmp_path: Path, name: str) -> Path:
    file = tmp_path / Path(WHOLE[name]).name
    file.write_bytes((FIXTURES / WHOLE[name]).read_bytes())
    return file


def test_every_format_is_read_within_a_bound():
    assert set(formats()) - set(WHOLE) == {"perf_analyzer_json"}


@pytest.mark.parametrize("name", WHOLE)
def test_a_file_that_is_too_large_is_not_read_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.setattr(whole_file, "MOST_BYTES", 400)
    monkeypatch.setattr(benchmark_report, "_MOST_BYTES", 400)
    file = copied(tmp_path, name)
    with pytest.raises(ConfigError, match=r"it has more than 0\.000381 MiB") as error:
        getattr(formats()[name], f"import_{name}")(file, tmp_path / "runs")
    assert file.name in str(error.value)


@pytest.mark.parametrize("name", [name for name, file in WHOLE.items() if file.endswith(".json")])
def test_a_key_that_is_there_twice_is_refused(tmp_path: Path, name: str):
    file = copied(tmp_path, name)
    file.write_text('{"twice": 1, "twice": 2,' + file.read_text().lstrip().removeprefix("{"))
    with pytest.raises(ConfigError, match="twice is there twice in one object") as error:
        getattr(formats()[name], f"import_{name}")(file, tmp_path / "runs")
    assert file.name in str(error.value)


@pytest.mark.parametrize("name", sorted(set(WHOLE) - {"traccc"}))
def test_bytes_that_are_no_text_are_said_with_their_line(tmp_path: Path, name: str):
    file = copied(tmp_path, name)
    lines = file.read_bytes().splitlines(keepends=True)
    lines[-1] = b"\xe9" + lines[-1]
    file.write_bytes(b"".join(lines))
    with pytest.raises(ConfigError, match="not UTF-8") as error:
        getattr(formats()[name], f"import_{name}")(file, tmp_path / "runs")
    assert f"{file}:{len(lines)}:1" in str(error.value)
