"""Names of options that hands know from other tools: they work, or are answered with ours."""

from __future__ import annotations

import re
from typing import Any

import pytest
import typer

from gpusize.cli.app import application
from gpusize.cli.other_tools import COMMANDS, OTHERS
from tests.cli.conftest import Gpusize


def params(*words: str) -> dict[str, Any]:
    """What the parser makes of a command line; nothing is run."""
    command: Any = typer.main.get_command(application())
    with command.commands[words[0]].make_context(words[0], list(words[1:])) as ctx:
        return {name: value for name, value in ctx.params.items() if value not in (None, (), False)}


@pytest.mark.parametrize(
    "typed, ours, value",
    [
        ("--concurrency", "concurrencies", "1,2,4"),
        ("--concurrency-range", "concurrencies", "1:16:5"),
        ("--concurrency_range", "concurrencies", "4"),
        ("--request-rate", "rates", "10"),
        ("--num_passes", "passes", 2),
        ("--test-gpu-count", "gpus", 8),
        ("--target_users", "users", 100),
        ("--max_error_rate", "max_error_rate", 0.5),
    ],
)
def test_a_name_that_means_the_same_works(typed: str, ours: str, value: object) -> None:
    assert params("run", typed, str(value)) == {ours: value}
    assert params("run", f"{typed}={value}") == {ours: value}


def test_names_of_the_sizing_calculator_work_for_estimates() -> None:
    assert params("estimate", "runs", "--target_users", "250", "--test_gpu_count", "8").items() >= {
        ("users", 250.0),
        ("gpus", 8),
    }


@pytest.mark.parametrize(
    "typed, answer",
    [
        ("--endpoint", "Use --url URL; for a server of the NeMo Agent Toolkit add --api nat"),
        ("--remote_endpoint", "Use --url URL; for a server of the NeMo Agent Toolkit add --api nat"),
        ("--remote_endpoint_timeout", "Use --timeout TIME"),
        ("--offline", "Use gpusize estimate RUNS"),
        ("--offline_mode", "Use gpusize estimate RUNS"),
        ("--output-dir", "Use --out DIR"),
        ("--output_dir", "Use --out DIR"),
        ("--target-workflow-runtime", "Use --slo 'p95 runtime <= 10s'"),
        ("--target_llm_latency", "Use --slo 'p95 llm_latency <= 3s'"),
    ],
)
def test_a_name_of_another_tool_is_answered_with_ours(gpusize: Gpusize, typed: str, answer: str) -> None:
    for words in ([typed, "3"], [f"{typed}=3"]):
        done = gpusize("run", *words)
        assert done.code == 2
        assert answer in done.complaint


def test_every_answer_names_an_option_that_there_is() -> None:
    command: Any = typer.main.get_command(application())
    known = {name for param in command.commands["run"].params for name in (*param.opts, *param.secondary_opts)}
    for name, other in OTHERS.items():
        assert name not in known, f"{name} works: it needs no answer"
        assert not other.option or other.option in known
        assert other.option in other.todo or name == "--streaming"


@pytest.mark.parametrize("typed", COMMANDS)
def test_a_command_of_another_tool_is_answered_with_ours(gpusize: Gpusize, typed: str) -> None:
    done = gpusize(typed, "calc")
    assert done.code == 2
    assert done.complaint == f"there is no command '{typed}'. {COMMANDS[typed]}"
    command: Any = typer.main.get_command(application())
    for name in re.findall(r"gpusize ((?:cluster )?[a-z]+)", COMMANDS[typed]):
        *group, last = name.split()
        assert last in (command.commands[group[0]] if group else command).commands


def test_a_command_is_not_answered_with_an_option_that_it_lacks(gpusize: Gpusize) -> None:
    assert "--url" not in gpusize("report", "runs", "--endpoint", "x").complaint


@pytest.mark.parametrize(
    "words, said",
    [
        (("run", "--gpsu", "3"), "there is no option --gpsu. Did you mean --gpus"),
        (("run", "--gpus", "x"), '--gpus: "x" is not a whole number from 1 to 1000000'),
        (("run", "--gpus=1.5"), '--gpus: "1.5" is not a whole number from 1 to 1000000'),
        (("run", "--temperature", "hot"), '--temperature: "hot" is not a number from 0 to 1000'),
        (("run", "--users", "x"), '--users: "x" is not a positive number up to 1000000000'),
        (("run", "--users"), "--users: its value is missing"),
        (("run", "--http2=1"), "--http2: it takes no value"),
        (("run", "more"), "nothing is known about more"),
        (("plan",), "RUNS is missing"),
        (("plan", "runs", "--failed", "one"), '--failed: "one" is not a whole number'),
        (("nothing",), "there is no command 'nothing'"),
        (("runs", "nothing"), "there is no command 'nothing'"),
    ],
)
def test_a_mistake_is_told_in_words_of_ours(gpusize: Gpusize, words: tuple[str, ...], said: str) -> None:
    done = gpusize(*words)
    assert done.code == 2
    assert said in done.complaint
    assert "Input should be" not in done.complaint
