"""Further executions of an operator on a real daemon: what they find, what they leave, and where there can be none."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusize.errors import StoreError
from gpusize.pipeline import Bind, Input, Operator, Output, SizingOptions, read_pipeline
from gpusize.pipeline.copies import Most
from gpusize.pipeline.daemon import Daemon
from gpusize.pipeline.plan import RunOptions
from gpusize.pipeline.runner import run_pipeline
from tests.containers.conftest import Leftovers
from tests.containers.engine import IMAGE
from tests.containers.test_run import Told, pipeline, shell

SHARING = f"""\
services:
  writes:
    image: "{IMAGE}"
    command: [sh, -c, "echo x >> /d/log; echo x >> /h/log; echo x >> /f; sleep 0.1; cat /d/log /h/log /f | wc -l"]
    volumes: [data:/d, ./host:/h, ./host/below:/below:ro, ./file:/f]
  reads: {{image: "{IMAGE}", command: [sh, -c, "wc -l < /d/log"], volumes: [data:/d], depends_on: [writes]}}
volumes: {{data: }}
"""


def test_further_executions_find_what_the_first_found_and_write_to_copies(
    daemon: Daemon, payload: Path, work: Path, tmp_path: Path, leftovers: Leftovers
) -> None:
    (tmp_path / "host" / "below").mkdir(parents=True)
    (tmp_path / "file").touch()
    (tmp_path / "compose.yaml").write_text(SHARING, "utf-8")
    there: list[list[str]] = []

    class Looks(Told):
        def began(self, container_id: str) -> None:
            there.append([each.name for each in work.glob("*/again/writes/*")])

    options = RunOptions(repeat=2, keep=tmp_path / "kept")
    sizing = SizingOptions(verify=True, cpu_curve=(0.5,))
    result = run_pipeline(
        read_pipeline(tmp_path / "compose.yaml"), options=options, sizing=sizing, daemon=daemon, events=Looks()
    )
    writes, reads = result.operators
    assert writes.sized is not None
    every = [*writes.executions, *writes.sized.executions, *(each.execution for each in writes.sized.trials)]
    assert {trial.kind for trial in writes.sized.trials} == {"cpu_curve", "verify"}
    assert [each.log_tail for each in every] == ["3"] * len(every)
    assert reads.executions[0].log_tail == "1"
    for file in (tmp_path / "host" / "log", tmp_path / "file", tmp_path / "kept" / "@volumes" / "data" / "log"):
        assert file.read_text() == "x\n"
    # What an execution wrote is gone before the next one begins.
    assert [sorted(each) for each in there[: len(every)]] == [
        ["before"],
        *([str(number), "before"] for number in range(1, len(every))),
    ]
    assert leftovers() == []


def test_what_cannot_be_copied_is_run_once_and_told(
    daemon: Daemon, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leftovers: Leftovers
) -> None:
    monkeypatch.setattr("gpusize.pipeline.runner.MOST", Most(1 << 20, 10))
    folder = tmp_path / "host"
    folder.mkdir()
    (folder / "big").write_bytes(b"x" * (2 << 20))
    operator = shell("a", "echo x >> /h/log", binds=(Bind(str(folder), "/h"),))
    options = RunOptions(repeat=3)
    result = run_pipeline(pipeline(operator), options=options, sizing=SizingOptions(verify=True), daemon=daemon)
    [first] = result.operators
    assert (first.outcome, len(first.executions)) == ("completed", 1)
    assert (folder / "log").read_text() == "x\n"
    assert first.sized is not None
    why = f"it writes to /h ({folder}), which holds over "
    assert any(each.startswith(f"1 of 3 executions: {why}") for each in first.sized.recommendation.doubts)
    assert first.sized.verified is False
    assert result.exit_code == 1
    # Without sizing there is no recommendation to doubt: it is a note.
    result = run_pipeline(pipeline(operator), options=options, daemon=daemon)
    assert any(each.startswith(f"a: 1 of 3 executions: {why}") for each in result.notes)
    assert leftovers() == []


def test_inputs_that_may_be_written_to_are_copied_too(daemon: Daemon, payload: Path, work: Path) -> None:
    operator = shell("a", "echo x > /in/new; ls /in | wc -l; rm /in/new", inputs=(Input("/in"),))
    leaves = shell("b", "echo x >> /in/a.txt; wc -l < /in/a.txt", inputs=(Input("/in"),))
    options = RunOptions(repeat=2, writable_inputs=True)
    result = run_pipeline(pipeline(operator, leaves), payload, options=options, daemon=daemon)
    assert [[each.log_tail for each in some.executions] for some in result.operators] == [["2", "2"], ["2", "2"]]
    assert (payload / "a.txt").read_text() == "hello\nx\n"


def test_a_full_disk_in_a_further_execution_takes_nothing_away(
    daemon: Daemon, payload: Path, work: Path, monkeypatch: pytest.MonkeyPatch, leftovers: Leftovers
) -> None:
    from gpusize.pipeline.workspace import Workspace

    honest = Workspace.output

    def full(self: Workspace, operator: Operator, output: Output, execution: int) -> Path:
        if execution:
            raise StoreError("the disk is full", "/somewhere", "free some space")
        return honest(self, operator, output, execution)

    monkeypatch.setattr(Workspace, "output", full)
    both = pipeline(shell("a", "sleep 0.3", outputs=(Output("/out"),)), shell("b", "true", inputs=(Input("/x", "a"),)))
    result = run_pipeline(both, payload, sizing=SizingOptions(verify=True), daemon=daemon)
    first, second = result.operators
    assert (first.outcome, second.outcome) == ("completed", "completed")
    assert first.sized is not None
    assert first.sized.recommendation.refused is None
    assert any("the disk is full" in each for each in first.sized.recommendation.doubts)
    assert (first.sized.verified, result.exit_code) == (False, 1)
    assert leftovers() == []
