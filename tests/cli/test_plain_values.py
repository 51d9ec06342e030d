"""Words of the command line that are read without pydantic are read as with it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperCommand

from gpusize.cli.app import application
from gpusize.cli.plain_values import read_plainly

RUN = Path(__file__).parents[1] / "fixtures" / "before" / "run"
WORDS = (
    *("", "7", "07", "-3", "0", "1.5", "1.50", "1e3", "nan", " 7", "7 ", "٣", "1_000", "true", "a b", "-", "x" * 300),
    *("99999999999999999999", "/", "/dev/null", "/no/such", "a\0b", "0.1", "123456789012345.123456789012345"),
)
UNMEASURED = (
    "('pydantic', 'gpusize.measure', 'gpusize.targets.apis', 'gpusize.targets.workflow', 'gpusize.studies.conduct')"
)


def commands(group: Any) -> Iterator[Any]:
    for command in group.commands.values():
        yield from commands(command) if hasattr(command, "commands") else (command,)


def read(param: Any, value: Any, ctx: Any) -> str:
    try:
        found = param.process_value(ctx, value)
    except typer.TyperException as error:
        return f"{type(error).__name__}: {error.format_message()}"
    # Of numbers their last digit counts, too.
    return f"{type(found).__name__} {found!r}"


def test_every_option_reads_words_as_typer_does() -> None:
    seen = 0
    for command in commands(typer.main.get_command(application())):
        ctx = typer.Context(TyperCommand("any", callback=None))
        for param in (each for each in command.params if each.callback is None):
            several = param.multiple or param.nargs == -1
            values = [None, param.default, *([[each] for each in WORDS] if several else WORDS)]
            usual = [read(param, each, ctx) for each in values]
            read_plainly([param])
            assert [read(param, each, ctx) for each in values] == usual, (command.name, param.name)
            seen += 1
    assert seen > 300


@pytest.mark.parametrize("command", ["estimate", "report"])
def test_what_reads_a_run_waits_for_nothing_that_sends_one(command: str, tmp_path: Path) -> None:
    words = [command, str(RUN), *(["--out", str(tmp_path), "--no-plots"] if command == "report" else [])]
    code = f"""
import sys
from gpusize.cli import invoke
code = invoke({[*words, "--users", "12", "--slo", "p95 runtime <= 9s"]!r})
print(*[name for name in sys.modules if name.startswith({UNMEASURED})], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stderr.split("\n")[-2] == ""
