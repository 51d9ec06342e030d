"""Whose a run is: its process, in a form that labels and names carry, so that what is left of dead ones is told."""

from __future__ import annotations

import os
import socket
from typing import Final

from gpusize.base.procfs import start_ticks

__all__ = ["FOLDER", "OWNER", "RUN", "labels_of", "own_process", "owner_label", "owner_lives", "process_lives"]

RUN: Final = "gpusize.run"
"""Label: the run's id."""

OWNER: Final = "gpusize.owner"
"""Label: host, process id and start of the process that runs it."""

FOLDER: Final = "gpusize.folder"
"""Label: where the run's data lies."""


def labels_of(run: str) -> dict[str, str]:
    """Labels of what belongs to a run of this process: by them it is found when the process is gone."""
    return {RUN: run, OWNER: owner_label()}


def own_process() -> tuple[int, int]:
    """This process: its number and, as numbers are used again, its start in ticks since boot."""
    return os.getpid(), start_ticks(os.getpid())


def process_lives(pid: int, ticks: int) -> bool:
    """Whether the process of this number that was started then still runs."""
    return start_ticks(pid) == ticks != 0


def owner_label() -> str:
    """This process on this host, as a label."""
    return "/".join([socket.gethostname(), *map(str, own_process())])


def owner_lives(label: str) -> bool | None:
    """Whether the process that the label names still runs; None for one of another host, which cannot be told."""
    host, _, process = label.rpartition("/")[0].rpartition("/")
    ticks = label.rpartition("/")[2]
    if host != socket.gethostname() or not (process.isdigit() and ticks.isdigit()):
        return None
    return process_lives(int(process), int(ticks))
