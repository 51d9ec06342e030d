"""``gpusize runs``: list, show, tag and prune, on folders as runs leave them."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpusize.records.catalog import catalog, to_remove
from gpusize.records.store import RunStore
from tests.cli.conftest import Gpusize
from tests.estimate.virtual import level
from tests.whatif.folder import stored

HOLD = """
import sys
from pathlib import Path
from gpusize.records.store import RunStore

with RunStore.reopen(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def made(out: Path, name: str, created: str, **more: Any) -> Path:
    about = {
        "schema": 1,
        "run": name,
        "created": created,
        "targets": [{"url": f"http://{name}:8000/v1", "gpus": 2}],
        "models": ["m"],
        "labels": {"gpu": "H100"},
        **more,
    }
    return stored(out, about, [level(4, requests=40), level(8, requests=40)])


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three runs, a day apart, the names in another order than the times."""
    out = tmp_path / "runs"
    for name, day in (("c", 1), ("a", 2), ("b", 3)):
        made(out, name, f"2026-11-{day:02d}T00:00:00Z")
    return out


def names(runs: Path) -> list[str]:
    return sorted(path.name for path in runs.iterdir())


def test_runs_are_listed_oldest_first_with_what_they_are(gpusize: Gpusize, runs: Path) -> None:
    done = gpusize("runs", "list")
    assert (done.code, done.err) == (0, "")
    rows = [line.split() for line in done.out.splitlines()[2:]]
    assert [row[0] for row in rows] == ["runs/c", "runs/a", "runs/b"]
    assert rows[0][1:8] == ["2026-11-01", "00:00", "http://c:8000/v1,", "m", "2", "2", "gpu=H100"]
    size = sum(path.stat().st_size for path in (runs / "c").rglob("*") if path.is_file())
    listed = json.loads(gpusize("runs", "list", "--json").out)["runs"]
    assert listed[0]["size_bytes"] == size
    assert listed[1]["loads"] == ["4 users", "8 users"]


def test_a_damaged_run_is_listed_and_kept(gpusize: Gpusize, runs: Path) -> None:
    (runs / "a" / "run.json").write_text("{")
    done = gpusize("runs", "list")
    assert done.code == 0
    [row] = [line for line in done.out.splitlines() if "runs/a" in line]
    assert "cannot be read" in row
    assert gpusize("runs", "prune", "runs", "--keep-newest", "0", "--yes").out.splitlines()[-1].startswith("2 runs, ")
    assert names(runs) == ["a"]


def test_a_run_with_a_damaged_level_shows_all_the_others(gpusize: Gpusize, runs: Path) -> None:
    (runs / "a" / "levels" / "0000" / "level.json").unlink()
    done = gpusize("runs", "show", "runs/a")
    told = {line.split()[0]: " ".join(line.split()[1:]) for line in done.out.splitlines()}
    assert told["levels"] == "1 done, 1 damaged"
    assert (told["target"], told["loads"]) == ("http://a:8000/v1, m", "8 users")
    assert told["problem"].startswith("a level cannot be read: runs/a/levels/0000/level.json: ")
    [row] = [line for line in gpusize("runs", "list").out.splitlines() if "runs/a" in line]
    assert "a level cannot be" in row
    # It is not removed with the others.
    gpusize("runs", "prune", "runs", "--keep-newest", "0", "--yes")
    assert names(runs) == ["a"]


def test_a_level_that_did_not_end_is_counted(gpusize: Gpusize, runs: Path) -> None:
    with RunStore.reopen(runs / "c") as store:
        store.open_level(2, {"setting": {"kind": "closed", "concurrency": 16}})
    assert "2 done, 1 open" in gpusize("runs", "list").out


def test_one_run_is_shown(gpusize: Gpusize, runs: Path) -> None:
    done = gpusize("runs", "show", "runs/b")
    told = {line.split()[0]: " ".join(line.split()[1:]) for line in done.out.splitlines()}
    assert told["target"] == "http://b:8000/v1, m"
    assert told["loads"] == "4 users, 8 users"
    assert json.loads(gpusize("runs", "show", "runs/b", "--json").out)["about"]["run"] == "b"


def test_labels_come_and_go(gpusize: Gpusize, runs: Path) -> None:
    assert gpusize("runs", "tag", "runs/a", "runs/b", "--label", "build=7", "--remove", "gpu").code == 0
    assert [each.labels for each in catalog([runs])] == [{"gpu": "H100"}, {"build": "7"}, {"build": "7"}]
    assert "runs/c" not in gpusize("runs", "list", "--label", "build=7").out
    assert gpusize("runs", "list", "--label", "build=8").complaint == "no run carries these labels"
    wrong = gpusize("runs", "tag", "runs/a", "--remove", "gpu")
    assert (wrong.code, wrong.complaint) == (2, "--remove: runs/a has no label gpu. It has build")
    # What was measured is as it was.
    assert gpusize("runs", "verify", "runs").code == 0


def test_nothing_is_removed_without_a_yes(gpusize: Gpusize, runs: Path) -> None:
    done = gpusize("runs", "prune", "runs", "--keep-newest", "1")
    assert [line.split()[:3] for line in done.out.splitlines()[:2]] == [["would", "remove", f"runs/{k}"] for k in "ca"]
    assert "--yes removes them" in done.out
    assert names(runs) == ["a", "b", "c"]
    assert gpusize("runs", "prune", "runs", "--keep-newest", "1", "--yes").code == 0
    assert names(runs) == ["b"]


def test_age_and_number_are_both_kept_to(runs: Path) -> None:
    now = datetime(2026, 11, 3, 12, tzinfo=UTC)
    found = catalog([runs])

    def going(**terms: Any) -> list[str]:
        return [each.path.name for each in to_remove(found, now=now, **terms)]

    day = timedelta(days=1).total_seconds()
    assert going(older_than_s=day) == ["c", "a"]
    assert going(older_than_s=2 * day) == ["c"]
    assert going(older_than_s=day, keep=2) == ["c"]
    assert going(keep=5) == []
    assert going(keep=0) == ["c", "a", "b"]


def test_a_run_that_does_not_say_when_it_began_is_kept(runs: Path) -> None:
    about = json.loads((runs / "a" / "run.json").read_text())
    (runs / "a" / "run.json").write_text(json.dumps({**about, "created": "some day"}))
    assert [each.path.name for each in to_remove(catalog([runs]), keep=0)] == ["c", "b"]


def test_a_run_that_is_being_written_is_kept(gpusize: Gpusize, runs: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(runs / "c")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "held\n"
        done = gpusize("runs", "prune", "runs", "--keep-newest", "0", "--yes")
        assert done.code == 3
        assert f"kept runs/c: another process (pid {writer.pid}) is writing to this run" in done.out
        assert names(runs) == ["c"]
    finally:
        writer.communicate()


def test_links_are_not_followed(gpusize: Gpusize, runs: Path, tmp_path: Path) -> None:
    (runs / "z").symlink_to(runs / "b")
    assert gpusize("runs", "prune", "runs/z", "--keep-newest", "0", "--yes").code == 3
    assert (runs / "b" / "run.json").exists()
    (runs / "z").unlink()
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    (runs / "c" / "link").symlink_to(precious)
    assert gpusize("runs", "prune", "runs", "--keep-newest", "0", "--yes").code == 3
    assert names(runs) == ["c"]
    assert (precious / "file").read_text() == "kept"


@pytest.mark.parametrize(
    "argv, code, what",
    [
        (("list", "nowhere"), 2, "nowhere: no such folder"),
        (("show", "."), 3, "not a run folder"),
        (("tag", "runs/a"), 2, "no label is named"),
        (("tag", "runs/a", "--label", "gpu"), 2, "is not a label"),
        (("prune", "runs"), 2, "nothing says which runs go. Give --older-than TIME, --keep-newest N, or both"),
        (("prune", "runs", "--older-than", "soon"), 2, "--older-than"),
        (("prune", "runs", "--keep-newest", "-1"), 2, "--keep-newest"),
    ],
)
def test_bad_input_is_named(gpusize: Gpusize, runs: Path, argv: tuple[str, ...], code: int, what: str) -> None:
    done = gpusize("runs", *argv)
    assert (done.code, what in done.err) == (code, True), done.err
    assert names(runs) == ["a", "b", "c"]
