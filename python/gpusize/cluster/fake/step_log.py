"""The steps of pods as they were done, as CSV: the truth that a measurement can be held against."""

from __future__ import annotations

import csv
import dataclasses
from typing import TYPE_CHECKING, Self

from gpusize.base.files import storing
from gpusize.cluster.fake.kubelet import Step

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import IO, Any

__all__ = ["StepLog"]


class StepLog:
    """Writes a row for each step, for the time of a ``with`` block.

    Args:
        file: where; None for nowhere.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._handle: IO[str] | None = None
        self._rows: Any = None

    def __enter__(self) -> Self:
        if self._file is not None:
            with storing(self._file):
                self._handle = self._file.open("w", newline="", encoding="utf-8", buffering=1)
            self._rows = csv.writer(self._handle)
            self._rows.writerow([each.name for each in dataclasses.fields(Step)])
        return self

    def add(self, step: Step) -> None:
        """Write one step."""
        if self._rows is not None and self._file is not None:
            with storing(self._file):
                self._rows.writerow([getattr(step, each.name) for each in dataclasses.fields(Step)])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None and self._file is not None:
            with storing(self._file):
                self._handle.close()
