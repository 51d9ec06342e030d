"""An option that several commands have reads the same in each; where it means something else, this page says why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

import pytest
from typer.main import get_command

from gpusize.cli.app import application

ELSEWHERE: Final = {
    "--arrivals": "plan answers for them, and takes a profile as well; the others replay them",
    "--batch": "an import says how perf_analyzer spells it",
    "--budget": "a proof spends it on each number of GPUs, and has another default",
    "--concurrencies": "a duet names its levels: it has none by itself, and searches nothing",
    "--config": "of a run, or of all commands of a cluster test; their folders differ",
    "--duration": "sample has no levels, and no duration beside a command; a proof looks after each level",
    "--force": "pipeline says what follows a failure, a cleaning that nodes are not waited for",
    "--format": "a comparison is a table, a report a page, an export a file of another tool",
    "--gpu-sample": "sample is always on this machine, so it is on by itself",
    "--gpus": "behind a target, simulated, in an earlier run, to be proved, for a container: each time other GPUs",
    "--head": "workloads of a cluster test, rows of a dataset",
    "--junit": "of gates on a comparison, and of thresholds on a cluster test",
    "--keep": "an agent keeps rows of its own, a pipeline all its data",
    "--label": "run gives labels, the others choose runs by them",
    "--margin": "of differences that do not matter, of what is left undecided, and of a range of time",
    "--method": "of HTTP, and of an estimate",
    "--model": "run asks for a model, simulate names its own",
    "--namespace": "a cleaning knows that of its folder",
    "--nodes": "fake nodes of one test, and of each of a sweep",
    "--out": "each command writes something else",
    "--output-dir": "the folder of a cluster test is written, read, or made",
    "--plot": "one of two layouts of a cluster test, elsewhere a file",
    "-o": "each command writes another kind of file",
    "--policy": "rules of recommendations, and of autoscaling in plan; pipeline show knows the run's",
    "--process": "the twin has no gamma arrivals",
    "--prometheus": "run asks it for the time of its levels, pull for a range of its own",
    "--queue": "of requests that wait, and the name of one of Kueue or KAI",
    "--quiet": "sample prints a summary as it goes, and has no notes",
    "--rate": "plan takes several, one row each",
    "--rate-scale": "plan sends nothing",
    "--rates": "a sweep submits workloads, the others send requests",
    "--repeat": "of the command that is sampled, and of each operator",
    "--ray": "run has it start hosts, the others have it do their work",
    "--replicas": "simulate says how they go with its --gpus",
    "--resume": "a study knows its own folder, a proof its question",
    "--run": "a range of time, and what is cleaned",
    "--slo": "estimates and reports take the run's own, an import only keeps it; of a cluster test, it bounds phases",
    "--stages": "a submission knows rates only, no concurrencies",
    "--start-delay": "plan knows no simulated cluster, and machines start slower than that",
    "--think": "the twin draws fewer kinds of pauses; 0s in either",
    "--timeout": "of a request, and of an operator, which has none by itself",
    "--token-rate": "plan takes several, one row each",
    "--tokenizer": "dataset show can estimate besides, and counts nothing by itself",
    "--until": "a whole cluster test waits for something, sampling only where it is told to",
    "--workload-type": "a sweep is on fake nodes, where nothing is installed: pods by default",
    "--url": "a proof sends to the target of the run that it reads",
    "--users": "estimates and reports take the run's own, plan takes several, one row each",
}


def options(command: Any, path: str = "") -> Iterator[tuple[str, str, tuple[object, ...]]]:
    """Every option of every command: its name, the command, and what a reader is told."""
    for name, inner in getattr(command, "commands", {}).items():
        yield from options(inner, f"{path} {name}".strip())
    for each in command.params:
        if each.param_type_name == "option":
            default = each.default if each.show_default is True else each.show_default
            yield each.opts[0], path, (each.metavar, each.help, default or None)


def declared() -> dict[str, dict[tuple[object, ...], list[str]]]:
    found: dict[str, dict[tuple[object, ...], list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, command, told in options(get_command(application())):
        found[name][told].append(command)
    return found


DECLARED: Final = declared()


@pytest.mark.parametrize("name", [name for name in DECLARED if name not in ELSEWHERE])
def test_an_option_reads_the_same_in_every_command(name: str) -> None:
    told = DECLARED[name]
    assert len(told) == 1, dict(told)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_an_option_that_is_excused_does_differ(name: str) -> None:
    assert len(DECLARED[name]) > 1


def test_options_of_all_commands_are_looked_at() -> None:
    assert {"run", "load show", "dataset show", "runs verify", "import nat"} <= {
        command for told in DECLARED.values() for commands in told.values() for command in commands
    }
