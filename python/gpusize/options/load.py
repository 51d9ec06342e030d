"""Options of the load, from the command line, a configuration file or a load file, as a `Load`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from gpusize.base.errors import UsageError
from gpusize.base.units import as_duration_s, parse_concurrencies, parse_rate, parse_rates, parse_sample
from gpusize.options.load_file import read_load
from gpusize.options.load_values import LOAD_OPTIONS, TRACE_OPTIONS, placed, stages_of, trace_of
from gpusize.workload.load import Load
from gpusize.workload.load.load import recorded_process
from gpusize.workload.load.profiles import profile_options

__all__ = [
    "LOAD_STOPS",
    "LOAD_WAYS",
    "load_from_options",
    "over",
]

LOAD_WAYS: Final = ("concurrencies", "rates", "stages", "profile", "load", "arrivals", "plan")
"""Options of which one says what is sent: one on the command line takes the place of any in a file."""

LOAD_STOPS: Final = ("passes", "count", "duration")
_FILES: Final = ("load", "arrivals", "plan")
_SECONDS: Final = ("duration", "warmup", "wait_between", "drain", "arrivals_from", "arrivals_until")
_RENAMED: Final = {
    "duration": "duration_s",
    "warmup": "warmup_s",
    "wait_between": "wait_between_s",
    "drain": "drain_s",
    "max_error_rate": "max_error_share",
    "source_address": "source_addresses",
}
"""Options that give an argument of ``Load`` of another name."""


def over(options: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a file with those of the command line over them.

    What says what is sent replaces whatever says it in the file, and so does what says when a level ends.

    Args:
        options: of the file.
        given: of the command line; None stands for not given.
    """
    mine = {name: value for name, value in given.items() if value is not None}
    dropped: set[str] = set()
    if any(name in mine for name in LOAD_WAYS):
        dropped |= {*LOAD_WAYS, *TRACE_OPTIONS}
        # The streams of the run that a plan is of stay: they say what it sends.
        kept = isinstance(options.get("load"), Mapping) and [name for name in LOAD_WAYS if name in mine] == ["plan"]
        dropped -= {"load"} if kept else set()
        # Recorded arrivals have no process: that of the file was for its own rates.
        dropped |= {"process", "burstiness"} if ("arrivals" in mine or "plan" in mine) and not kept else set()
    if any(name in mine for name in (*LOAD_STOPS, "stages", "profile", "plan")):
        dropped |= set(LOAD_STOPS)
    return {**{name: value for name, value in options.items() if name not in dropped}, **mine}


def load_from_options(options: Mapping[str, Any]) -> Load:
    """The load that options describe; a closed loop over the default concurrencies when they say nothing.

    Raises:
        UsageError: invalid options.
        ConfigError: an invalid load file, with line and column.
        DatasetError: a trace that cannot be read.
    """
    given = {name: options[name] for name in LOAD_OPTIONS if options.get(name) is not None}
    unnamed = next((name for name in _FILES if given.get(name) == ""), None)
    if unnamed is not None:
        raise UsageError("no file is named", unnamed, "give its path, or leave the option out")
    given, where = _with_file(given)
    if "profile" in given:
        with placed(where("profile")):
            given = _with_profile(given)
    for name in _SECONDS:
        if name in given:
            with placed(where(name) or name):
                given[name] = as_duration_s(given[name])
    _lists(given)
    if "stages" in given:
        with placed(where("stages")):
            given["stages"] = stages_of(given["stages"])
    named = next((name for name in ("arrivals", *TRACE_OPTIONS) if name in given), None)
    with placed(where(named)):
        trace = trace_of(given)
    if trace is not None:
        given["arrivals"] = trace
    if "process" in given and ("arrivals" in given or ("plan" in given and "streams" not in given)):
        with placed(where("process")):
            raise recorded_process("process")
    if "sample_records" in given:
        with placed(where("sample_records") or "sample_records"):
            given["sample_records"] = parse_sample(given["sample_records"])
    think = given.pop("think", None)
    if think is not None:
        given |= {"think": think} if isinstance(think, str) else {"think_s": as_duration_s(think)}
    if isinstance(given.get("source_address"), str):
        given["source_address"] = [given["source_address"]]
    with placed(where(None), where), _as_options():
        return Load(**{_RENAMED.get(name, name): value for name, value in given.items()})


@contextlib.contextmanager
def _as_options() -> Iterator[None]:
    """Errors of the block name an option as users of the command line and of files write it, not the argument."""
    try:
        yield
    except UsageError as problem:
        option = next((name for name, argument in _RENAMED.items() if argument == problem.where), None)
        if option is None or type(problem) is not UsageError:
            raise
        raise UsageError(problem.what, option, problem.todo) from None


def _with_file(given: dict[str, Any]) -> tuple[dict[str, Any], Callable[[str | None], str | None]]:
    """The options with those of the load file under them, and where each stands in it."""
    found = given.pop("load", None)
    if found is None:
        return given, lambda _: None
    file = read_load(found)
    left = {name: value for name, value in file.options.items() if name not in given}
    return {**left, **given}, lambda name: None if name in given else file.where(name)


def _with_profile(given: dict[str, Any]) -> dict[str, Any]:
    """The options with the stages of the profile that they name; how its requests arrive is theirs to say."""
    twice = next((name for name in LOAD_WAYS if name != "profile" and name in given), None)
    if twice is not None:
        raise UsageError(f"a profile and {twice} are both given", "profile", "give one of them")
    own = {name: given.pop(name) for name in ("speed", "rate_scale") if name in given}
    shape = profile_options(given.pop("profile"), **own)
    shape.pop("synthetic", None)
    return {**shape, **given}


def _lists(given: dict[str, Any]) -> None:
    if "concurrencies" in given:
        value = given["concurrencies"]
        given["concurrencies"] = parse_concurrencies(value) if isinstance(value, str) else _listed(value)
    if "rates" in given:
        value = given["rates"]
        items = parse_rates(value) if isinstance(value, str) else _listed(value)
        given["rates"] = [parse_rate(item) if isinstance(item, str) else item for item in items]
    for name in ("concurrencies", "rates"):
        if name in given and not given[name]:
            raise UsageError(f"no {name} are given", name, "give at least one")


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Sequence) else [value]
