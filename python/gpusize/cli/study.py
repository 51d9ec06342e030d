"""``gpusize study``: one sweep for each combination of settings."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpusize.cli.command import Debug, Json, OnRay, listed, option

if TYPE_CHECKING:
    from gpusize.result import Result

EPILOG = """Examples:

  gpusize study traccc.yaml --dry-run

  gpusize study traccc.yaml

  gpusize study traccc.yaml --resume     # measures what is missing

  gpusize study vllm.yaml --ray auto     # on the nodes of a Ray cluster, a combination on each at a time"""


def command(
    file: Annotated[Path, typer.Argument(help="The study, as YAML, TOML or JSON.")],
    out: Annotated[
        Path | None,
        option("Put the study into this folder.", "DIR", show_default="as the file says, else studies/NAME"),
    ] = None,
    resume: Annotated[bool, option("Measure what is missing in the study's folder.", names=("--resume",))] = False,
    dry_run: Annotated[bool, option("Print what would be done, and stop.", names=("--dry-run",))] = False,
    ray: OnRay = None,
    quiet: Annotated[bool, listed("quiet")] = False,
    json: Json = False,
    _debug: Debug = False,
) -> int:
    """Run every combination of settings: set up, wait until ready, warm up, sweep, and always tear down."""
    from gpusize.cli.shared import note
    from gpusize.report.live.live import LiveProgress
    from gpusize.report.summary.terminal import make_console
    from gpusize.studies.combination import plan_of
    from gpusize.studies.conduct import measure, run_study
    from gpusize.studies.on_ray import run_study_on_ray
    from gpusize.studies.spec import read_study
    from gpusize.studies.table import print_study, study_rows

    def shown(options: Mapping[str, Any], **how: Any) -> Result:
        with LiveProgress(quiet=quiet) as live:
            return measure(options, **how, progress=live.event)

    study = read_study(file, out)
    if dry_run:
        for combination in study.combinations:
            typer.echo("\n".join(plan_of(study, combination).lines()))
        return 0
    how: dict[str, Any] = {
        "resume": resume,
        "command": ["gpusize", *sys.argv[1:]],
        "say": (lambda _: None) if quiet else note,
    }
    result = run_study(study, **how, measure=shown) if ray is None else run_study_on_ray(study, ray, **how)
    if json:
        from gpusize.report.export import dumps

        rows = study_rows(result)
        sys.stdout.write(dumps({"study": study.name, "path": str(result.path), "combinations": rows}))
    else:
        console = make_console()
        print_study(result, console)
        console.print(str(result.path), soft_wrap=True)
    if result.failed:
        note(f"{len(result.failed)} of {len(study.combinations)} combinations failed: {', '.join(result.failed)}")
    return result.exit_code
