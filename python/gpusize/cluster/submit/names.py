"""Names of runs and workloads: one for each, also when a run goes on, and short enough for what is made of them.

A workload is ``PREFIX-RUN-INDEX``. Controllers append to the names of what they make (``-worker-1023``,
``-7d9c5b8f6d-x2x4k``), and some of these have to fit into 63 characters.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

from gpusize.base.errors import UsageError
from gpusize.base.text import shown

__all__ = ["MOST_WORKLOADS", "check_prefix", "check_run", "new_run", "workload_name"]

MOST_WORKLOADS: Final = 10_000_000
"""Of one run, so that an index has seven digits at most."""

_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""As Kubernetes' own: no word comes of them, and none is taken for another."""
_RUN_LENGTH: Final = 8
_MOST_PREFIX: Final = 20
_PREFIX: Final = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")
_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


def new_run() -> str:
    """The id of a new run: 8 letters, one of 2.8e11."""
    return "".join(secrets.choice(_LETTERS) for _ in range(_RUN_LENGTH))


def check_run(run: str) -> str:
    """The id of a run as it was given, where it can be one.

    Raises:
        UsageError: it cannot. An empty one would select everything.
    """
    if not _LABEL.fullmatch(run):
        raise UsageError(
            f'"{shown(run)}" is no id of a run', "run", "it stands in cluster.json, and in the label gpusize.dev/run"
        )
    return run


def check_prefix(prefix: str) -> str:
    """The prefix as it was given, where names can begin with it.

    Raises:
        UsageError: they cannot.
    """
    if not _PREFIX.fullmatch(prefix) or len(prefix) > _MOST_PREFIX:
        what = f'names cannot begin with "{shown(prefix)}"'
        todo = f"give up to {_MOST_PREFIX} of a-z, 0-9 and -, the first one a letter, the last one no dash"
        raise UsageError(what, "prefix", todo)
    return prefix


def workload_name(prefix: str, run: str, index: int) -> str:
    """The name of a workload of a run, by its number from 0."""
    return f"{prefix}-{run}-{index}"
