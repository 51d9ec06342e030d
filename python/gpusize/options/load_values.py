"""The options of a load, and those of their values that a file of a load may have for each stream as well."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from gpusize.base.errors import ConfigError, UsageError
from gpusize.options.table import kinds_of
from gpusize.workload.load import ArrivalTrace, parse_stages
from gpusize.workload.load.stages import Stage

__all__ = ["LOAD_OPTIONS", "TRACE_OPTIONS", "placed", "stages_of", "trace_of"]

LOAD_OPTIONS: Final = kinds_of("load")
"""All options of the load, with the kind of value of each."""

TRACE_OPTIONS: Final = ("arrivals_format", "arrivals_from", "arrivals_until", "speed", "rate_scale")


def stages_of(value: str | Sequence[str]) -> list[Stage]:
    """Stages from one text, or from a list of texts.

    Raises:
        UsageError: a text that does not follow the grammar.
    """
    return [stage for text in ([value] if isinstance(value, str) else value) for stage in parse_stages(text)]


def trace_of(given: dict[str, Any]) -> ArrivalTrace | None:
    """The recorded arrivals that options name, None when they name none; takes these options out.

    Raises:
        UsageError: options of a trace without one.
        DatasetError: the trace cannot be read.
    """
    own = {name: given.pop(name) for name in TRACE_OPTIONS if name in given}
    source = given.pop("arrivals", None)
    if source is None:
        if own:
            name = next(iter(own))
            todo = "name their file with --arrivals"
            todo += ", or a shape with --profile" if name in ("speed", "rate_scale") else ""
            raise UsageError(f"{name} belongs to recorded arrivals", name, todo)
        return None
    renamed = {"arrivals_format": "fmt", "arrivals_from": "from_s", "arrivals_until": "until_s"}
    return ArrivalTrace(source, **{renamed.get(name, name): value for name, value in own.items()})


@contextlib.contextmanager
def placed(where: str | None, find: Callable[[str], str | None] = lambda _: None) -> Iterator[None]:
    """Errors of the block are those of an option that stands there; a file's own errors keep their place.

    Args:
        where: file, line and column; None when it is not in a file.
        find: the place of the option that an error names, where that has one of its own.
    """
    try:
        yield
    except UsageError as problem:
        if where is None or (type(problem) is not UsageError):
            raise
        own = find(problem.where or "")
        if own is not None and own.count(":") > 1:
            raise ConfigError(problem.what, own, problem.todo) from None
        if ":" not in where:
            raise UsageError(problem.what, where, problem.todo) from None
        inner = f", {problem.where}" if problem.where and problem.where != "load" else ""
        raise ConfigError(problem.what, f"{where}{inner}", problem.todo) from None
