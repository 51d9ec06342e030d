"""The benchmark of imports: it passes on right figures, and a figure that is off makes its bar short."""

from __future__ import annotations

from pathlib import Path

import pytest

from benches import imports


def test_right_figures_keep_every_bar(capsys: pytest.CaptureFixture[str]):
    imports.main(["--megabytes", "2"])
    bars = [line for line in capsys.readouterr().out.splitlines() if line.startswith("BAR")]
    assert len(bars) == 6
    # The peak of a child counts from what its parent held when it was made, and the tests hold much.
    judged = [line for line in bars if "peak_rss" not in line]
    assert len(judged) == 4
    assert all(line.endswith("ok") for line in judged)


def test_a_wrong_figure_is_seen(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    known = imports.Level.known
    monkeypatch.setattr(imports, "NUMBERS", (2,))
    monkeypatch.setattr(imports.Level, "known", lambda level: known(level) | {"runtime_p95_s": 1.0})
    assert imports.main(["--megabytes", "2"]) == 1
    assert "short" in capsys.readouterr().out
    assert not list(tmp_path.glob("runs"))
