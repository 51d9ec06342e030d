"""Study files, and a measurement without any load."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpusize.analysis.level import LevelData
from gpusize.records.store import RunStore, new_run_id
from gpusize.studies.spec import Study, read_study
from tests.servers.fixtures import scripted_server

__all__ = ["scripted_server"]


class FakeResult:
    """As much of a result as a study looks at."""

    def __init__(self, path: Path, levels: Sequence[LevelData], *, cancelled: bool) -> None:
        self.path = path
        self.levels = levels
        self.cancelled = cancelled

    def report(self, *, plots: bool) -> Path:
        return self.path / f"report-{plots}.html"


class FakeMeasure:
    """Makes an empty run folder, and notes what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.resumed: list[Path | None] = []
        self.during: Callable[[Mapping[str, Any], Any], None] | None = None
        self.levels: Sequence[LevelData] = ()

    def __call__(self, options, *, command, resume, stop):
        self.asked.append(dict(options))
        self.resumed.append(resume)
        path = resume or self._made(options)
        if self.during is not None:
            self.during(options, stop)
        return FakeResult(path, self.levels, cancelled=stop.asked > 0)

    @staticmethod
    def _made(options) -> Path:
        out = Path(options["out"])
        facts = {"run": new_run_id(), "labels": dict(options["label"]), "options": {}, "targets": [], "models": []}
        with RunStore.create(out, facts) as store:
            return store.path


@pytest.fixture
def measure() -> FakeMeasure:
    return FakeMeasure()


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Study]:
    """Makes a study from the members of its file, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def make(**members: Any) -> Study:
        values = {"run": {"url": "http://127.0.0.1:9/v1", "concurrencies": [1], "passes": 1}, "out": "s", **members}
        file = tmp_path / "study.json"
        file.write_text(json.dumps(values), "utf-8")
        return read_study(file)

    return make
