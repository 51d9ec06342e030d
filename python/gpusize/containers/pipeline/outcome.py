"""What a run of a pipeline came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from gpusize.containers.pipeline.execution import Execution, Outcome
from gpusize.containers.pipeline.model import Operator, Pipeline
from gpusize.containers.pipeline.sizing import Sized

__all__ = ["OperatorResult", "PipelineResult", "ServerResult"]

_DONE: Final = 0
_FAILED: Final = 1
_LACKS: Final = 3
_INTERRUPTED: Final = 130
_WORST: Final = ("lost", "interrupted", "timed_out", "failed")
"""What decides of several executions, before ``completed``."""


@dataclass(frozen=True)
class OperatorResult:
    """One operator: its executions, of which the first is the pipeline's own.

    Args:
        operator: the operator.
        executions: in the order in which they ran; none where it was not run.
        sized: what to request; None where that was not asked.
    """

    operator: Operator
    executions: tuple[Execution, ...] = ()
    sized: Sized | None = None

    @property
    def name(self) -> str:
        """The operator's name."""
        return self.operator.name

    @property
    def deciding(self) -> Execution | None:
        """The execution that went worst; the first one where all went well. None where it was not run."""
        for outcome in _WORST:
            for each in self.executions:
                if each.outcome == outcome:
                    return each
        return self.executions[0] if self.executions else None

    @property
    def outcome(self) -> Outcome:
        """How it ended: of several executions the worst."""
        return "not_run" if self.deciding is None else self.deciding.outcome

    @property
    def exit_code(self) -> int | None:
        """Of the execution that decides."""
        return None if self.deciding is None else self.deciding.exit_code

    @property
    def ok(self) -> bool:
        """Whether all its executions ended by themselves with exit code 0."""
        return self.outcome == "completed"

    @property
    def lost(self) -> bool:
        """Whether the daemon was gone in one of its executions, also of those that size it."""
        sized = () if self.sized is None else (*self.sized.executions, *(each.execution for each in self.sized.trials))
        return any(each.outcome == "lost" for each in (*self.executions, *sized))


@dataclass(frozen=True)
class ServerResult:
    """A server that ran beside operators.

    Args:
        name: ``triton``, or the service's name.
        execution: how it ran: ended by us, so that its exit code says little.
    """

    name: str
    execution: Execution


@dataclass(frozen=True)
class PipelineResult:
    """A run of a pipeline.

    Args:
        run: its id.
        pipeline: what ran.
        operators: results in the order of execution, also of those that were not run.
        servers: servers beside them.
        started_ns: since 1970, UTC.
        ended_ns: likewise.
        interrupted: whether the user ended it.
        notes: what the user should know.
    """

    run: str
    pipeline: Pipeline
    operators: tuple[OperatorResult, ...]
    servers: tuple[ServerResult, ...] = ()
    started_ns: int = 0
    ended_ns: int = 0
    interrupted: bool = False
    notes: tuple[str, ...] = field(default=())

    @property
    def failed(self) -> list[OperatorResult]:
        """Operators that ran and did not complete."""
        return [each for each in self.operators if each.outcome not in {"completed", "not_run"}]

    @property
    def exit_code(self) -> int:
        """As of a command: 0, 1 for a failure or an advice that does not hold, 3 for a lost daemon, 130 interrupted."""
        if self.interrupted:
            return _INTERRUPTED
        if any(each.lost for each in self.operators):
            return _LACKS
        unheld = any(each.sized is not None and each.sized.verified is False for each in self.operators)
        return _FAILED if unheld or any(not each.ok for each in self.operators) else _DONE
