"""What ``--help`` shows: what most people need first, everything else by group, nothing of Python in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from typing import Any

import pytest
import typer

from gpusize.cli.app import application
from gpusize.measure.monitor.options import MonitorOptions
from gpusize.options.assemble import RUN_OPTIONS
from gpusize.options.table import GROUPS, OPTIONS
from gpusize.targets.server import Target
from gpusize.workload.load import Load
from tests.cli.conftest import Gpusize

SHOWN = [option for option in OPTIONS.values() if option.places != "file"]
NAMES = [group.title.split()[0].rstrip(":").lower() for group in GROUPS]


ROOT: Any = typer.main.get_command(application())


def commands(group: Any = ROOT, *before: str) -> list[tuple[str, ...]]:
    """The words of every command and group of commands."""
    below = getattr(group, "commands", {})
    return [before, *(words for name, each in below.items() for words in commands(each, *before, name))]


def command_of(words: Sequence[str]) -> Any:
    """A command by its words."""
    return reduce(lambda group, word: group.commands[word], words, ROOT)


def page(words: Sequence[str], how: str) -> str:
    """Its help, as it is printed."""
    command = command_of(words)
    names = ["-h", "--help"]
    context = command.context_class(command, info_name=" ".join(["gpusize", *words]), help_option_names=names)
    context.meta["gpusize.words"] = (how,)
    return str(command.get_help(context))


def listed(text: str) -> list[str]:
    """Names of the options that have a line of their own."""
    return re.findall(r"^  (?:-\w, )?--([a-z0-9-]+)", text.partition("All options, by group:")[0], re.MULTILINE)


def test_the_help_of_run_shows_twenty_options_and_says_where_the_others_are(gpusize: Gpusize) -> None:
    text = gpusize("run", "--help").out
    assert len(listed(text)) == 20
    for name in ("url", "model", "dataset", "concurrencies", "rates", "duration", "users", "slo", "gpus", "config"):
        assert name in listed(text), name
    for name in NAMES:
        assert f"  --help {name} " in text, name
    assert "--help-all" in text


def test_help_all_of_run_has_every_option(gpusize: Gpusize) -> None:
    found = listed(gpusize("run", "--help-all").out)
    assert sorted(found) == sorted(option.name.replace("_", "-") for option in SHOWN)


def test_the_groups_together_have_every_option_once(gpusize: Gpusize) -> None:
    found = [name for group in NAMES for name in listed(gpusize("run", "--help", group).out)]
    assert sorted(found) == sorted(option.name.replace("_", "-") for option in SHOWN)


def test_the_help_of_one_option_shows_it_alone(gpusize: Gpusize) -> None:
    for word in ("max-error-rate", "max_error_rate"):
        done = gpusize("run", "--help", word)
        assert listed(done.out) == ["max-error-rate"]
        assert "Abort a level above this error rate." in done.out


def test_a_group_that_is_not_there_is_answered_with_those_that_are(gpusize: Gpusize) -> None:
    done = gpusize("run", "--help", "nothing")
    assert done.code == 2
    assert 'no group or option "nothing"' in done.complaint
    assert all(name in done.complaint for name in NAMES)


@pytest.mark.parametrize("columns", [80, 120])
def test_no_help_is_wider_than_the_terminal_or_speaks_python(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    pages = [page(words, how) for words in commands() for how in ("--help", "--help-all")]
    assert len(pages) > 40
    for text in pages:
        assert max(map(len, text.splitlines())) <= columns
        assert not re.search(r"<(str|int|float|bool|path|list.*)>|\bNone\b|\[default: (True|False)", text)


def test_every_option_says_what_it_does_and_so_does_no_default() -> None:
    for words in commands():
        for param in command_of(words).params:
            assert param.help, (words, param.name)
            assert "repeatable" not in param.help, (words, param.name)
            assert "default" not in param.help or param.name == "policy", (words, param.name)


def test_every_option_of_run_has_a_group_a_help_and_a_value_unless_it_is_a_flag() -> None:
    names = [option.name for group in GROUPS for option in group.options]
    assert len(names) == len(set(names)) == len(OPTIONS)
    assert len(set(NAMES)) == len(GROUPS)
    for option in OPTIONS.values():
        assert option.help.endswith("."), option.name
        assert bool(option.value) == (option.kind != "flag"), option.name
        assert option.default or not option.off, option.name


def test_files_know_the_options_of_the_command_line() -> None:
    command: Any = typer.main.get_command(application())
    line = {param.name for param in command.commands["run"].params}
    assert line - RUN_OPTIONS.keys() == {"config", "resume", "debug", "shuffle"}
    assert RUN_OPTIONS.keys() - line == {"headers", "order"}


def test_defaults_in_the_help_are_those_that_hold() -> None:
    target, load = Target("http://127.0.0.1/v1", model="m"), Load(rates=[1.0], count=1)
    monitor = MonitorOptions.of({})
    held = {
        "timeout": f"{target.timeout_s / 60:g}m",
        "connect_timeout": f"{target.connect_timeout_s:g}s",
        "resolve_every": f"{target.resolve_every_s:g}s",
        "balance": target.balance,
        "method": target.method,
        "streams": str(target.streams),
        "wait_between": f"{load.wait_between_s:g}s",
        "drain": f"{load.drain_s:g}s",
        "seed": str(load.seed),
        "process": load.process,
        "connections": str(load.connections),
        "queue": str(load.queue),
        "overload": load.overload,
        "metrics_address": monitor.address,
        "push_every": f"{monitor.push_every_s:g}s",
    }
    assert {name: OPTIONS[name].default for name in held} == held
