"""``gpusize study`` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpusize.cli import invoke

SMALL = """\
settings: {gpus: [1, 2]}
setup: "{python} -c 'raise SystemExit({gpus} % 2)'"
run: {concurrencies: [1, 2], passes: 1, max_tokens: 4, plots: false}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL, "utf-8")
    return "small.yaml"


def test_a_dry_run_starts_nothing(file, capsys):
    assert invoke(["study", file, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("gpus=1\n  setup     ")
    assert "'raise SystemExit(2 % 2)'" in out
    assert "labels    study=small gpus=2" in out
    assert not Path("studies").exists()


def test_what_failed_is_named_and_the_rest_is_there(file, capsys):
    assert invoke(["study", file, "--quiet", "--json"]) == 1
    done = capsys.readouterr()
    document = json.loads(done.out)
    assert [row["state"] for row in document["combinations"]] == ["failed", "done"]
    assert document["combinations"][1]["peak_rate"] > 0
    assert done.err == "gpusize: 1 of 2 combinations failed: gpus=1\n"
    assert invoke(["study", file]) == 2
    assert "--resume" in capsys.readouterr().err
    assert invoke(["estimate", "studies/small", "--users", "3", "--slo", "p95 runtime <= 9s"]) == 1
    assert "no estimate can be given" in capsys.readouterr().err


def test_the_table_of_a_study(file, capsys):
    Path(file).write_text(SMALL.replace("[1, 2]}\nsetup", "[2]}\nsetup"), "utf-8")
    assert invoke(["study", file, "--out", "elsewhere"]) == 0
    out = capsys.readouterr().out
    assert "peak rate" in out
    assert "done" in out
    assert out.endswith("elsewhere\n")


def test_mistakes_are_one_line(tmp_path, capsys):
    path = tmp_path / "bad.yaml"
    path.write_text("run: {url: 'http://h/v1', conncurrencies: 3}\n")
    assert invoke(["study", str(path)]) == 2
    assert capsys.readouterr().err == (
        f'gpusize: {path}:1:27: gpusize run has no option "conncurrencies". Did you mean "concurrencies"?\n'
    )
