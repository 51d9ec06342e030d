"""Each damage to a run folder, and what must come out: exit 3 with the file named, or the same numbers as before."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gpusize.base.errors import StoreError
from gpusize.records.store import RunStore
from gpusize.report.export import strict
from gpusize.result import open_run
from tests.cli.conftest import Gpusize
from tests.faults.folder_of_a_run import Folder

Damage = Callable[[Folder], object]


def flip(file: Path) -> None:
    """Change one bit in the middle of a file."""
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(data)


def gone(*files: Path) -> None:
    """Lose files."""
    for file in files:
        file.unlink()


def cut(file: Path) -> None:
    """Lose the second half of a file."""
    os.truncate(file, file.stat().st_size // 2)


def pipe(file: Path) -> None:
    """A named pipe under a file's name."""
    file.unlink()
    os.mkfifo(file)


def twice(part: Path) -> None:
    """A part that was copied under a further number."""
    part.with_name("part-00007.parquet").write_bytes(part.read_bytes())


def of_older_version(folder: Folder) -> None:
    """Levels as they were written before there were checksums."""
    for file in folder.path.glob("levels/*/level.json"):
        level = json.loads(file.read_text())
        del level["checksums"]
        file.write_text(json.dumps(level))


def rewritten(part: Path) -> None:
    """The same part with one row less."""
    pl.read_parquet(part).head(-1).write_parquet(part)


def with_gpus(folder: Folder, gpus: int) -> None:
    run = folder.json("run.json")
    run["targets"][0]["gpus"] = gpus
    folder.put("run.json", run)


DAMAGES: dict[str, tuple[Damage, str]] = {
    "a part of the records is gone": (
        lambda f: gone(f.part(1)),
        "0001/records/part-00000.parquet: this part",
    ),
    "all parts of a level are gone": (
        lambda f: gone(*f.path.glob("levels/0001/*/*.parquet")),
        "this part is missing",
    ),
    "the seconds are gone": (lambda f: gone(f.part(1, "seconds")), "this part is missing"),
    "one bit of the records is flipped": (lambda f: flip(f.part(1)), "its checksum differs"),
    "one bit of the samples is flipped": (lambda f: flip(f.part(1, "samples")), "its checksum differs"),
    "a part is cut off": (lambda f: cut(f.part(1)), "its checksum differs"),
    "a part is there twice": (lambda f: twice(f.part(1)), "the run did not write this part"),
    "a part is a pipe": (lambda f: pipe(f.part(1)), "this is not a regular file"),
    "level.json is a pipe": (lambda f: pipe(f.path / "levels/0001/level.json"), "this is not a regular file"),
    "level.json is gone": (lambda f: gone(f.path / "levels/0001/level.json"), "0001/level.json: "),
    "level.json is cut off": (lambda f: cut(f.path / "levels/0001/level.json"), "not valid JSON"),
}
OF_THE_RUN: dict[str, tuple[Damage, str]] = {
    "run.json is a pipe": (lambda f: pipe(f.path / "run.json"), "not a run folder"),
    "run.json is cut off": (lambda f: cut(f.path / "run.json"), "run.json: not valid JSON"),
    "fewer than no GPUs": (lambda f: with_gpus(f, -3), "targets[0].gpus: -3 is not a whole number from 0 to 1000000"),
    "GPUs beyond 64 bits": (lambda f: with_gpus(f, 2**70), "targets[0].gpus: "),
    "the rows' names are a pipe": (lambda f: pipe(f.path / "dataset.parquet"), "this is not a regular file"),
    "the rows' names are cut off": (lambda f: cut(f.path / "dataset.parquet"), "unreadable rows of the dataset"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_level_is_named_and_the_others_stay_usable(gpusize: Gpusize, measured: Folder, name: str) -> None:
    before = {row["visit"]: row for row in summary(measured.path)}
    damage, said = DAMAGES[name]
    damage(measured)
    done = gpusize("estimate", measured.path, "--json")
    assert done.code == 3, done.out
    assert said in done.complaint
    assert done.out == ""
    others = gpusize("estimate", measured.path, "--json", "--skip-damaged")
    assert others.code in {0, 1}, others.err
    # Whether a level of a closed loop is saturated shows beside the levels that are there: it may change with them.
    apart = {"saturated": None}
    found = {row["visit"]: row | apart for row in json.loads(others.out)["summary"]}
    assert found == {k: before[k] | apart for k in (0, 2)}
    assert "left out: " in others.err
    assert said in others.err
    verified = gpusize("runs", "verify", measured.path)
    assert verified.code == 3
    whole, damaged, last = verified.out.splitlines()
    assert (whole.endswith("0000  whole"), last.endswith("0002  whole")) == (True, True)
    assert "0001  damaged: " in damaged


@pytest.mark.parametrize("name", OF_THE_RUN)
def test_a_damaged_run_is_named(gpusize: Gpusize, measured: Folder, name: str) -> None:
    damage, said = OF_THE_RUN[name]
    damage(measured)
    for command in (("estimate",), ("report", "--no-plots"), ("plan",), ("runs", "verify")):
        done = gpusize(*command, measured.path)
        assert done.code == 3, (command, done.err)
        assert said in done.out + done.err


@pytest.mark.parametrize("damage", [rewritten, cut, Path.unlink], ids=["a row less", "cut off", "gone"])
def test_a_level_of_an_older_version_is_counted(measured: Folder, damage: Callable[[Path], object]) -> None:
    before = summary(measured.path)
    of_older_version(measured)
    assert summary(measured.path) == before
    damage(measured.part(2))
    with pytest.raises(StoreError, match="0002/records"):
        summary(measured.path)


def test_what_is_whole_is_called_whole(gpusize: Gpusize, measured: Folder) -> None:
    done = gpusize("runs", "verify", measured.path)
    assert done.code == 0
    assert [line[-11:] for line in done.out.splitlines()] == ["0000  whole", "0001  whole", "0002  whole"]
    of_older_version(measured)
    done = gpusize("runs", "verify", measured.path)
    assert done.code == 0
    assert done.out.count("written without checksums") == 3


def test_checksums_are_those_of_sha256sum(measured: Folder) -> None:
    folder = measured.path / "levels" / "0001"
    listed = json.loads((folder / "level.json").read_text())["checksums"]
    files = {str(each.relative_to(folder)) for each in folder.rglob("*.parquet")}
    assert set(listed) == files
    lines = "".join(f"{digest}  {name}\n" for name, digest in listed.items())
    command = ["sha256sum", "--check", "--strict"]
    done = subprocess.run(command, input=lines, text=True, cwd=folder, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout
    assert listed["records/part-00000.parquet"] == hashlib.sha256(measured.part(1).read_bytes()).hexdigest()


@pytest.mark.parametrize("name", [".lock", "levels/.0003.open", "tables", "levels/0002/records/part-00000.parquet"])
def test_a_foreign_folder_is_not_resumed_through_its_links(measured: Folder, tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "level.json").write_text("{}")
    (elsewhere / "precious").write_text("kept")
    place = measured.path / name
    if place.is_dir():
        place.rename(tmp_path / "away")
    place.unlink(missing_ok=True)
    place.symlink_to(elsewhere if name != ".lock" else elsewhere / "precious")
    with pytest.raises(StoreError, match="symbolic link"), RunStore.reopen(measured.path):
        pass
    assert (elsewhere / "precious").read_text() == "kept"
    assert {each.name for each in elsewhere.iterdir()} == {"level.json", "precious"}


def test_derived_files_are_not_written_through_a_link(gpusize: Gpusize, measured: Folder, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (measured.path / "tables").rename(tmp_path / "away")
    (measured.path / "tables").symlink_to(elsewhere)
    done = gpusize("report", measured.path, "--no-plots")
    assert done.code == 3
    assert "symbolic link" in done.complaint
    assert list(elsewhere.iterdir()) == []


def summary(path: Path) -> list[dict[str, Any]]:
    """The summary as ``--json`` has it."""
    rows: list[dict[str, Any]] = strict(open_run(path).summary.to_dicts())
    return rows
