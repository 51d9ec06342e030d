"""What the words and bounds of a load may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from gpusize.base.errors import UsageError
from gpusize.base.numeric import within
from gpusize.base.secrets import check_name
from gpusize.workload.load.numbers import as_number, as_whole
from gpusize.workload.load.stages import PROCESSES

if TYPE_CHECKING:
    from gpusize.workload.load.load import Load

__all__ = ["Order", "Overload", "check_connections", "check_words", "recorded_process"]

Order = Literal["file", "shuffled"]
"""Order of the dataset's rows; shuffled is a new permutation for each round through them."""

Overload = Literal["queue", "shed", "grow"]
"""What happens to a request of an open loop that finds no free connection when it is due."""


def check_words(load: Load) -> None:
    """Refuse words that are not among those that there are, and invalid shares and shapes.

    Raises:
        UsageError: such a value.
    """
    for name, known, what in (
        ("process", PROCESSES, "an arrival process"),
        ("order", get_args(Order), "an order"),
        ("overload", get_args(Overload), "a way with overload"),
    ):
        if getattr(load, name) not in known:
            raise UsageError(f'"{getattr(load, name)}" is not {what}', name, f"use {' or '.join(known)}")
    _check_processes(load)
    share = load.max_error_share
    if share is not None and not 0 <= as_number(share, "max_error_share") <= 1:
        raise UsageError(f"{share} is not a share of requests", "max_error_share", "give 0 to 1; 0.01 is 1 %")
    for each in load.streams:
        ways = [each.process or load.process, *(stage.process for stage in each.steps)]
        if each.burstiness is not None and "gamma" not in ways:
            raise UsageError("a burstiness belongs to gamma arrivals", each.label, "give it the process gamma")
    if load.priority_header is not None:
        try:
            check_name(load.priority_header)
        except UsageError as problem:
            raise UsageError(problem.what, "priority_header", "name another one, such as X-Priority") from None
    if load.burstiness is None:
        return
    object.__setattr__(load, "burstiness", as_number(load.burstiness, "burstiness"))
    within("burstiness", load.burstiness)
    named = [load.process, *(stage.process for stage in load.steps), *(each.process for each in load.streams)]
    named += [stage.process for each in load.streams for stage in each.steps]
    if "gamma" not in named:
        raise UsageError("a burstiness belongs to gamma arrivals", "burstiness", "add --process gamma")


def _check_processes(load: Load) -> None:
    """Refuse a process beside arrivals that are recorded."""
    if load.process != "poisson" and not load.streams and (load.trace is not None or load.stored is not None):
        raise recorded_process("process")
    for each in load.streams:
        if each.process is not None and each.trace is not None:
            raise recorded_process(each.label)


def recorded_process(where: str) -> UsageError:
    """A process beside recorded arrivals, which come when they came."""
    return UsageError("a process belongs to rates, and the arrivals are recorded", where, "leave the process out")


def check_connections(load: Load) -> None:
    """Refuse an invalid bound on connections.

    Raises:
        UsageError: such a bound.
    """
    if load.max_connections is None:
        return
    object.__setattr__(load, "max_connections", as_whole(load.max_connections, "max_connections", 1, 2**31))
    if load.overload != "grow":
        raise UsageError("max_connections belongs to --overload grow", "max_connections", "add it, or leave it out")
    if load.max_connections < load.connections:
        todo = f"give {load.connections} or more, or fewer connections"
        raise UsageError("max_connections is below connections", "max_connections", todo)
