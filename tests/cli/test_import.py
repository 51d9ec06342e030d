"""Another tool's measurements become runs like any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Gpusize

NAT = Path(__file__).parents[1] / "fixtures" / "nat"


def files() -> list[Path]:
    return [
        file for file in sorted(NAT.rglob("*.json")) if "calc_data" in file.read_text() and "vectors" not in file.name
    ]


def test_there_is_something_to_import() -> None:
    assert files()


@pytest.mark.parametrize("file", files(), ids=lambda file: file.stem)
def test_an_imported_run_can_be_estimated_from(gpusize: Gpusize, file: Path) -> None:
    done = gpusize("import", "nat", file, "--gpus", "8", "--out", "runs")
    assert done.code == 0, done.err
    path = done.out.strip()
    estimated = gpusize(
        "estimate", path, "--users", "100", "--slo", "p95 runtime <= 10s", "--method", "slope", "--json"
    )
    assert estimated.code in (0, 1)
    document = json.loads(estimated.out)
    assert document["summary"]
    assert document["estimates"][0]["tested_gpus"] == 8
    reported = gpusize("report", path, "--users", "100", "--slo", "p95 runtime <= 10s")
    assert reported.code == 0, reported.err


def test_what_is_no_such_file(gpusize: Gpusize) -> None:
    Path("other.json").write_text("{}")
    done = gpusize("import", "nat", "other.json")
    assert done.code == 2
    assert "other.json" in done.complaint
