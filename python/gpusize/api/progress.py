"""Whom a run from Python tells how it goes: the caller, else in a notebook who looks at the cell, else nobody."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from gpusize.measure.sweep import ProgressEvent

__all__ = ["Listeners", "telling"]


class Listeners(NamedTuple):
    """Who is told how a run goes; None for nobody.

    Attributes:
        progress: of events of the sweep.
        note: of what the user should know.
    """

    progress: Callable[[ProgressEvent], None] | None = None
    note: Callable[[str], None] | None = None


@contextlib.contextmanager
def telling(
    progress: Callable[[ProgressEvent], None] | None, settings: Sequence[Mapping[str, Any]] = ()
) -> Iterator[Listeners]:
    """Whom to tell of a run.

    Args:
        progress: the caller's own.
        settings: all levels of the run, in order.
    """
    from gpusize.report.live.notebook import Notebook, in_notebook

    if progress is not None or not in_notebook():
        yield Listeners(progress)
        return
    from gpusize.report.live.live import LiveProgress

    with LiveProgress(settings=settings, screen=Notebook()) as live:
        yield Listeners(live.event, lambda text: live.message(f"gpusize: {text}"))
