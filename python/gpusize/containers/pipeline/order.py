"""In which order operators run: those first whose outputs others read."""

from __future__ import annotations

from gpusize.base.errors import ConfigError
from gpusize.containers.pipeline.model import Operator, Pipeline, same_name

__all__ = ["in_order"]


def in_order(pipeline: Pipeline) -> list[Operator]:
    """All operators, each after those that it needs; where that leaves a choice, as they stand in the file.

    Operators without any edge run, too.

    Raises:
        ConfigError: a circle, named operator by operator.
    """
    waiting = list(pipeline.operators)
    done: set[str] = set()
    ordered: list[Operator] = []
    while waiting:
        ready = next((each for each in waiting if {same_name(name) for name in each.upstream} <= done), None)
        if ready is None:
            circle = _circle(pipeline, waiting[0])
            raise ConfigError(
                f"these operators wait for each other: {' -> '.join(circle)}",
                pipeline.operator(circle[0]).where,
                "take one of the inputs out",
            )
        waiting.remove(ready)
        done.add(same_name(ready.name))
        ordered.append(ready)
    return ordered


def _circle(pipeline: Pipeline, start: Operator) -> list[str]:
    """The names of a circle, in the order in which data flows, the first repeated at the end.

    ``start`` waits for a circle, or is on one; every operator that waits has an upstream that waits, so the walk
    upwards ends where it has been.
    """
    walked: list[str] = []
    operator = start
    while operator.name not in walked:
        walked.append(operator.name)
        names = {same_name(name) for name in operator.upstream}
        candidates = [each for each in pipeline.operators if same_name(each.name) in names]
        operator = next(each for each in candidates if _waits(pipeline, each, set()))
    circle = [*walked[walked.index(operator.name) :], operator.name]
    return circle[::-1]


def _waits(pipeline: Pipeline, operator: Operator, above: set[str]) -> bool:
    """Whether an operator can never be ready: a circle is above it."""
    key = same_name(operator.name)
    if key in above:
        return True
    return any(_waits(pipeline, pipeline.operator(name), above | {key}) for name in operator.upstream)
