"""Files that contradict themselves, in every format that can: the level is flagged, and the reason is said."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import gpusize
from gpusize.base.errors import ConfigError

FIXTURES = Path(__file__).parents[1] / "fixtures"

Change = Callable[[dict], None]


def _k6_falls(content: dict) -> None:
    content["metrics"]["http_req_duration"]["values"]["p(95)"] = 1e-3


def _vllm(**changes: float) -> Change:
    return lambda content: content.update(changes)


def _guidellm_counts(content: dict) -> None:
    content["benchmarks"][0]["metrics"]["request_totals"]["successful"] += 1


def _guidellm_falls(content: dict) -> None:
    content["benchmarks"][0]["metrics"]["request_latency"]["successful"]["percentiles"]["p99"] = 1e-4


def _guidellm_users(content: dict) -> None:
    content["benchmarks"][0]["config"]["strategy"]["streams"] = 8


def _stage_counts(content: dict) -> None:
    content["failures"]["count"] += 1


def _stage_kinds(content: dict) -> None:
    content["failures"] |= {"count": 1, "by_label": {"timeout": {"count": 2}}}
    content["successes"]["count"] -= 1


def _stage_falls(content: dict) -> None:
    content["successes"]["latency"]["time_to_first_token"]["p99"] = 1e-4


def _stage_users(content: dict) -> None:
    content["load_summary"]["concurrency"] = 9


def _aiperf_falls(content: dict) -> None:
    content["request_latency"]["p99"] = 1e-2


def _aiperf_users(content: dict) -> None:
    [phase] = [each for each in content["input_config"]["phases"] if each["kind"] == "profiling"]
    phase["concurrency"] *= 2


CASES = [
    ("k6/closed_handle.json", _k6_falls, "inconsistent", "fall"),
    ("vllm/closed_plain.json", _vllm(p99_e2el_ms=1.0), "inconsistent", "fall"),
    ("vllm/closed_plain.json", _vllm(max_concurrency=8), "little", "Little's law"),
    ("guidellm/sampled.json", _guidellm_counts, "inconsistent", "in total"),
    ("guidellm/sampled.json", _guidellm_falls, "inconsistent", "fall"),
    ("guidellm/sampled.json", _guidellm_users, "little", "Little's law"),
    ("inference_perf/late/stage_0_lifecycle_metrics.json", _stage_counts, "inconsistent", "are not its"),
    ("inference_perf/late/stage_0_lifecycle_metrics.json", _stage_kinds, "inconsistent", "by kind"),
    ("inference_perf/late/stage_0_lifecycle_metrics.json", _stage_falls, "inconsistent", "fall"),
    ("inference_perf/closed/stage_1_lifecycle_metrics.json", _stage_users, "little", "Little's law"),
    ("aiperf/closed/profile_export_aiperf.json", _aiperf_falls, "inconsistent", "fall"),
    ("aiperf/closed/profile_export_aiperf.json", _aiperf_users, "little", "Little's law"),
]


@pytest.mark.parametrize("sample, change, flag, said", CASES)
def test_a_file_that_contradicts_itself_is_flagged(
    tmp_path: Path, sample: str, change: Change, flag: str, said: str
) -> None:
    file = tmp_path / Path(sample).name
    shutil.copy(FIXTURES / sample, file)
    [before] = gpusize.read(file, tmp_path / "runs").summary.rows(named=True)
    assert flag not in before["flags"]
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    [row] = gpusize.read(file, tmp_path / "runs").summary.rows(named=True)
    assert flag in row["flags"]
    assert any(said in each for each in row["alerts"])


@pytest.mark.parametrize(
    "sample, old, new, flag, said",
    [
        ("perf_analyzer/p95.csv", None, None, "inconsistent", "fall"),
        ("benchmark_report/example_v0_2_1.yaml", "p99: ", "p99: 0.000001 # ", "inconsistent", "is below"),
        ("traccc/gpu_mu200.log", " ms/event, ", " ms/event, 1", "little", "are not the same"),
    ],
)
def test_a_text_that_contradicts_itself_is_flagged(
    tmp_path: Path, sample: str, old: str | None, new: str | None, flag: str, said: str
) -> None:
    file = tmp_path / Path(sample).name
    text = (FIXTURES / sample).read_text()
    if old is None or new is None:
        header, *rows = text.splitlines()
        at = header.split(",").index("p99 latency")
        cells = rows[0].split(",")
        cells[at] = "1"
        text = "\n".join([header, ",".join(cells), *rows[1:]]) + "\n"
    else:
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)
    level = gpusize.read(file, tmp_path / "runs").summary.row(0, named=True)
    assert flag in level["flags"]
    assert any(said in each for each in level["alerts"])


@pytest.mark.parametrize(
    "sample, change",
    [
        ("k6/closed_handle.json", lambda content: content["metrics"]["http_req_duration"]["values"].update(med=1e14)),
        ("vllm/closed_plain.json", _vllm(p99_ttft_ms=1e14)),
    ],
)
def test_a_time_that_no_request_takes_is_an_error(tmp_path: Path, sample: str, change: Change) -> None:
    content = json.loads((FIXTURES / sample).read_text())
    change(content)
    (tmp_path / "a.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="are out of range"):
        gpusize.read(tmp_path / "a.json", tmp_path / "runs")
