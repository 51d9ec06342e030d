"""Damaged files of every format: an error that names the file, or a run whose figures are numbers. Nothing else.

A format has its samples in ``SAMPLES``: whole files or folders. Whatever is added to ``studies/imports`` needs some.
"""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpusize
from gpusize.base.errors import GpusizeError
from gpusize.studies.imports.guess import formats

FIXTURES = Path(__file__).parents[1] / "fixtures"
SAMPLES = {
    "aiperf": ["aiperf/closed", "aiperf/rate"],
    "benchmark_report": ["benchmark_report/example_v0_2_1.yaml"],
    "guidellm": ["guidellm/concurrent.json", "guidellm/sampled.json"],
    "inference_perf": ["inference_perf/closed", "inference_perf/late"],
    "k6": ["k6/closed_handle.json", "k6/dropped_export.json"],
    "nat": ["nat/present.json", "nat/older.json"],
    "perf_analyzer": [
        "perf_analyzer/inst2_c1-8.csv",
        "perf_analyzer/v260_grpc.csv",
        "perf_analyzer/rr_poisson.csv",
        *(f"perf_analyzer/{text.name}" for text in sorted((FIXTURES / "perf_analyzer").glob("*.txt"))),
    ],
    "perf_analyzer_json": ["perf_analyzer/v260_profile_40.json"],
    "traccc": ["traccc/gpu_mu200.log"],
    "vllm": ["vllm/closed_detailed.json", "vllm/limit_plain.json"],
}
"""Per format, files or folders below tests/fixtures. Each is damaged in every way."""
REPEATS = 2
"""Per sample and damage. The seed is fixed, so that another run finds nothing new; the slow test has thousands."""
MANY = 3000
"""Per format, in the slow test."""

Damage = Callable[[bytes, random.Random], bytes]


def cut(data: bytes, rnd: random.Random) -> bytes:
    """The file breaks off."""
    return data[: rnd.randrange(len(data))]


def flip(data: bytes, rnd: random.Random) -> bytes:
    """Single bits are wrong."""
    wrong = bytearray(data)
    for _ in range(rnd.randint(1, 4)):
        wrong[rnd.randrange(len(wrong))] ^= 1 << rnd.randrange(8)
    return bytes(wrong)


def hole(data: bytes, rnd: random.Random) -> bytes:
    """A piece is missing."""
    at = rnd.randrange(len(data))
    return data[:at] + data[at + rnd.randint(1, 200) :]


def twice(data: bytes, rnd: random.Random) -> bytes:
    """A piece is there twice."""
    at, end = sorted(rnd.sample(range(len(data)), 2))
    return data[:end] + data[at:]


def number(data: bytes, rnd: random.Random) -> bytes:
    """Some number is something else."""
    places = [k for k in range(1, len(data)) if data[k : k + 1].isdigit() and not data[k - 1 : k].isalnum()]
    at = rnd.choice(places)
    end = at
    while end < len(data) and data[end : end + 1] in b"0123456789.eE+-":
        end += 1
    other = [
        b"NaN",
        b"Infinity",
        b"-1",
        b"1e999",
        b"9" * 40,
        b"9" * 5000,
        b"null",
        b'"x"',
        b"true",
        b"[[]]",
        b"{}",
        b"0",
    ]
    return data[:at] + rnd.choice(other) + data[end:]


def deep(data: bytes, rnd: random.Random) -> bytes:
    """Brackets without end."""
    at = rnd.randrange(len(data))
    return data[:at] + b"[" * 100_000 + data[at:]


def latin(data: bytes, rnd: random.Random) -> bytes:
    """Another encoding."""
    at = rnd.randrange(len(data))
    return data[:at] + "é".encode("latin-1") + data[at:]


def wide(data: bytes, _rnd: random.Random) -> bytes:
    """Two bytes to a character."""
    return data.decode("utf-8").encode("utf-16")


def zeros(data: bytes, rnd: random.Random) -> bytes:
    """What a file system leaves behind after a crash."""
    at = rnd.randrange(len(data))
    return data[:at] + b"\0" * (len(data) - at)


def empty(_data: bytes, _rnd: random.Random) -> bytes:
    """Nothing."""
    return b""


DAMAGES: list[Damage] = [cut, flip, hole, twice, number, deep, latin, wide, zeros, empty]


def test_every_format_has_samples():
    assert set(SAMPLES) == set(formats())
    assert all((FIXTURES / sample).exists() for samples in SAMPLES.values() for sample in samples)


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_are_told_and_whole(tmp_path: Path, name: str):
    for sample in SAMPLES[name]:
        result = gpusize.read(FIXTURES / sample, tmp_path / "runs")
        assert result.path is not None
        assert result.path.name.startswith(name.removesuffix("_json"))
        check_figures(result)


def check_figures(result: gpusize.Result) -> None:
    """Every figure is a finite number or unknown; no time is negative; counts add up."""
    for row in result.summary.iter_rows(named=True):
        for column, value in row.items():
            if isinstance(value, float):
                assert math.isfinite(value), (column, value)
                assert value >= 0 or column.startswith("lateness"), (column, value)
        if row["n"] is not None and row["errors"] is not None:
            assert 0 <= row["errors"] <= row["n"]
    json.dumps(result.summary.to_dicts(), allow_nan=False, default=str)


def damaged(place: Path, name: str, sample: str, damage: Damage, seed: str) -> None:
    """Damage a copy of the sample below ``place`` and import it: an error names it, or figures are numbers."""
    read: Callable[..., Any] = getattr(formats()[name], f"import_{name}")
    rnd = random.Random(seed)
    copy, out = place / Path(sample).name, place / "runs"
    if (FIXTURES / sample).is_dir():
        shutil.copytree(FIXTURES / sample, copy)
    else:
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(FIXTURES / sample, copy)
    files = sorted(file for file in [copy, *copy.rglob("*")] if file.is_file() and file.suffix not in (".md", ".yml"))
    victim = rnd.choice(files)
    victim.write_bytes(damage(victim.read_bytes(), rnd))
    found, said = None, ""
    try:
        found = read(copy, out)
    except GpusizeError as error:
        said = str(error)
    assert not list(out.glob(".import-*"))
    if found is None:
        assert copy.name in said
        assert "\n" not in said
    else:
        check_figures(gpusize.open_run(found.folder))
    shutil.rmtree(place)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("name", SAMPLES)
def test_damage_is_an_error_or_numbers(tmp_path: Path, name: str, damage: Damage):
    for sample in SAMPLES[name]:
        for repeat in range(REPEATS if damage is not empty and damage is not wide else 1):
            damaged(tmp_path / str(repeat), name, sample, damage, f"{sample} {damage.__name__} {repeat}")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("name", SAMPLES)
def test_thousands_of_damages_are_errors_or_numbers(tmp_path: Path, name: str, part: int):
    for number_ in range(MANY // 10):
        rnd = random.Random(f"{name} {part} {number_}")
        sample, damage = rnd.choice(SAMPLES[name]), rnd.choice(DAMAGES)
        damaged(tmp_path / str(number_), name, sample, damage, f"{sample} {damage.__name__} many {part} {number_}")
