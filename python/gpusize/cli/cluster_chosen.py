"""Options that say which workloads of a cluster test count."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpusize.cli.command import option

__all__ = ["Head", "Plot", "SkipErrors", "Slo", "Tail", "Tested"]

WORKLOADS = "Workloads"

Tested = Annotated[
    Path,
    option("Folder of the test, or of the Run:ai scale test tool.", "DIR", names=("--output-dir", "-o")),
]
SkipErrors = Annotated[
    bool,
    typer.Option(
        "--skip-errors/--no-skip-errors",
        help="Leave out workloads whose times cannot be right; they are counted.",
        rich_help_panel=WORKLOADS,
    ),
]
Head = Annotated[int | None, option("Only the first N workloads by submission.", "N", WORKLOADS, min=1)]
Tail = Annotated[int | None, option("Only the last N of these.", "N", WORKLOADS, min=1)]

Slo = Annotated[
    list[str] | None,
    option(
        "Exit with 1 unless it is kept: 'p99 scheduled <= 5s', 'share ready >= 99%'; or kubernetes, kube-burner, "
        "clusterloader2 for theirs.",
        "TEXT",
    ),
]
Plot = Annotated[str, option("What to draw: general (from submission to scheduling), or detailed.", "NAME")]
