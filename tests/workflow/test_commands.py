"""Commands: words without a shell, outcomes by exit status, no process left behind."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path

import pytest

from gpusize.base.errors import DatasetError, TargetError, UsageError
from gpusize.targets.workflow.command import CommandTemplate
from gpusize.targets.workflow.target import WorkflowTarget
from gpusize.targets.workflow.trace_ids import key_of_traceparent
from gpusize.workload.dataset import Dataset
from gpusize.workload.load import Load
from tests.workflow.conftest import Measure


def python(code: str, *words: str) -> str:
    """A command line that runs ``code``; braces in it are meant as they stand."""
    doubled = code.replace("{", "{{").replace("}", "}}")
    return shlex.join([sys.executable, "-c", doubled, *words])


def test_fields_become_words_and_no_shell_sees_them(measure: Measure, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    code = "import sys, pathlib, os; pathlib.Path(sys.argv[1], str(os.getpid())).write_text(repr(sys.argv[2:]))"
    command = python(code, str(marks), "{question}", "n={n}", "{{}}")
    rows = [{"question": 'it\'s $HOME; `ls` | "x" *', "n": [1, None]}]
    result = measure(WorkflowTarget(command=command), rows, Load(concurrencies=(1,), passes=2))
    assert result.records["outcome"].to_list() == ["ok", "ok"]
    said = {mark.read_text() for mark in marks.iterdir()}
    assert said == {repr([rows[0]["question"], "n=[1, null]", "{}"])}
    assert result.levels[0].meta["generator"]["runs"] == "a command"
    assert result.meta["targets"][0]["url"] == command
    assert result.meta["options"]["command"] == command


def test_an_exit_status_is_an_error_with_the_tail_of_what_was_said(measure: Measure) -> None:
    code = (
        "import sys; n = int(sys.argv[1]); print('out' * n); sys.exit(f'{n} {chr(120) * 5000} went wrong' if n else 0)"
    )
    load = Load(concurrencies=(1,), count=2, max_error_share=1.0)
    result = measure(WorkflowTarget(command=python(code, "{n}")), [{"n": 0}, {"n": 1}], load, key=".")
    records = result.records.sort("seq")
    assert records["outcome"].to_list() == ["ok", "api_error"]
    assert records["bytes_in"].to_list() == [1, 4]
    [error] = result.levels[0].meta["errors"]
    assert error["message"].startswith("exit status 1: x")
    assert error["message"].endswith("went wrong")
    assert len(error["message"]) <= 500


@pytest.mark.parametrize(
    "said,shown",
    [
        ("a long line of a traceback\\n" * 20 + "ValueError: why", "a traceback ValueError: why"),
        ("x" * 400 + " the end", "x the end"),
    ],
)
def test_of_much_that_was_said_the_last_line_is_shown(measure: Measure, said: str, shown: str) -> None:
    code = f"import sys; print('{said}', file=sys.stderr); sys.exit(2)"
    with pytest.raises(TargetError) as caught:
        measure(WorkflowTarget(command=python(code)), ["a"], Load(concurrencies=(1,), passes=1))
    assert shown in caught.value.what
    assert "…" not in caught.value.what


def test_a_command_that_runs_out_of_time_is_ended_with_its_children(measure: Measure, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    # A shell starts in no time. The bound is for the first row too, which ends, and for what comes before the hanging.
    code = 'if [ "$1" = hang ]; then sleep 600 & echo "$$ $!" > "$0"; wait; fi'
    target = WorkflowTarget(command=shlex.join(["sh", "-c", code, str(pids)]) + " {prompt}", timeout_s=5.0)
    result = measure(target, ["first", "hang"], Load(concurrencies=(1,), count=2, max_error_share=1.0))
    assert result.records.sort("seq")["outcome"].to_list() == ["ok", "timeout"]
    both = [int(pid) for pid in pids.read_text().split()]
    assert len(both) == 2
    until = time.monotonic() + 30
    # What the shell started has its signal by now, and ends when the machine lets it.
    while not all(map(_is_gone, both)) and time.monotonic() < until:
        time.sleep(0.01)
    assert all(map(_is_gone, both))


def _is_gone(pid: int) -> bool:
    """Whether a process has ended; its parent, which may be slow, need not have taken note of it."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"


def test_a_command_knows_its_request(measure: Measure, tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    code = "import os, sys; open(sys.argv[1], 'a').write(os.environ['TRACEPARENT'] + chr(10))"
    measure(WorkflowTarget(command=python(code, str(traces))), ["a"], Load(concurrencies=(1,), passes=2))
    keys = [key_of_traceparent(line) for line in traces.read_text().split()]
    assert [tuple(key or ()) for key in keys] == [(0xFFFF_FFFF, 0, 0), (0, 0, 0), (0, 0, 1)]


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "empty"),
        ("prog 'open", "cannot be split into words"),
        ("prog {question", "not a template"),
        ("prog {question!r}", "no plain field"),
        ("prog {a.b[0]}", "no plain field"),
        ("prog {}", "no plain field"),
        ("{prog} x", "program itself"),
    ],
)
def test_templates_that_cannot_be_meant(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CommandTemplate(text)


def test_a_row_without_the_field_is_named() -> None:
    dataset = Dataset.from_rows([{"prompt": "a", "n": 1}, {"prompt": "b"}])
    with pytest.raises(DatasetError, match=r'row 1 has no field "n"'):
        CommandTemplate("prog {n}").check(dataset)


def test_a_program_that_is_not_there(measure: Measure) -> None:
    with pytest.raises(TargetError, match="No such file"):
        measure(WorkflowTarget(command="/no/such/program {prompt}"), ["a"], Load(concurrencies=(1,), passes=1))


def test_a_signal_is_told(measure: Measure) -> None:
    code = "import os, sys; os.kill(os.getpid(), 9) if sys.argv[1] == 'die' else None"
    load = Load(concurrencies=(1,), count=2, max_error_share=1.0)
    result = measure(WorkflowTarget(command=python(code, "{prompt}")), ["live", "die"], load)
    assert result.levels[0].meta["errors"][0]["message"] == "killed by signal 9"
