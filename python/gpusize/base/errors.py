"""Every exception that gpusize raises on purpose.

    GpusizeError                what was wrong, where, and what to do
    ├── UsageError      (2)     invalid options or arguments (ValueError)
    │   ├── ConfigError (2)     a configuration file, with line and column
    │   ├── SloError    (2)     an SLO that does not parse, with the column
    │   └── DatasetError(2)     a dataset that is empty or broken, with line and column
    ├── TargetError     (3)     the target cannot be reached or refuses the first request (ConnectionError)
    ├── StoreError      (3)     the run folder cannot be read or written (OSError)
    │   └── PathMissing (2)     a path that was named is not there
    ├── EnvironmentLacks(3)     this machine lacks something that the command needs
    └── MeasuredNo      (1)     a measured "no": no level usable, no estimate possible

The number is the exit code of the command line. The extension raises the same classes.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "ConfigError",
    "DatasetError",
    "EnvironmentLacks",
    "GpusizeError",
    "MeasuredNo",
    "PathMissing",
    "SloError",
    "StoreError",
    "TargetError",
    "UsageError",
]


class GpusizeError(Exception):
    """Base of all errors of gpusize.

    Args:
        what: what was wrong, one clause.
        where: the file, line, option or address concerned, or None.
        todo: what the user can do about it, or None.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, where: str | None = None, todo: str | None = None) -> None:
        super().__init__(what, where, todo)
        self.what = what
        self.where = where
        self.todo = todo

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        end = "" if self.what.endswith(("?", ".")) else "."
        advice = f"{end} {self.todo[:1].upper()}{self.todo[1:]}" if self.todo else ""
        return f"{place}{self.what}{advice}"


class UsageError(GpusizeError, ValueError):
    """Invalid options or arguments."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration file that cannot be read; ``where`` holds file, line and column."""


class SloError(UsageError):
    """An SLO that does not parse; ``where`` holds the column."""


class DatasetError(UsageError):
    """A dataset that is missing, empty or broken; ``where`` holds file, line and column."""


class TargetError(GpusizeError, ConnectionError):
    """The target cannot be reached, or refuses the first request."""

    exit_code = 3


class StoreError(GpusizeError, OSError):
    """The run folder cannot be read or written."""

    exit_code = 3


class PathMissing(StoreError):
    """A path that was named and is not there: a mistake in the command, as any other."""

    exit_code = 2


class EnvironmentLacks(GpusizeError):
    """This machine lacks something that the command needs."""

    exit_code = 3


class MeasuredNo(GpusizeError):
    """The measurement is there and its answer is no."""

    exit_code = 1
