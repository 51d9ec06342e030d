"""``gpusize cluster clean``: what a run has made out of the cluster again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gpusize.cli.cluster_config import Config
from gpusize.cli.cluster_options import Context, Kubeconfig
from gpusize.cli.command import Command, Debug, Json, option

if TYPE_CHECKING:
    import typer

__all__ = ["add"]

EPILOG = """Examples:

  gpusize cluster clean -o out1 --dry-run

  gpusize cluster clean -o out1

  gpusize cluster clean --run k7w2qzxd --namespace team-a"""


def add(app: typer.Typer) -> None:
    """Add the command to those of ``gpusize cluster``."""
    app.command("clean", cls=Command, epilog=EPILOG)(clean)


def clean(
    output_dir: Annotated[
        Path | None, option("Folder of the test whose run is cleaned.", "DIR", names=("--output-dir", "-o"))
    ] = None,
    run: Annotated[str | None, option("Id of the run, where there is no folder.", "ID")] = None,
    dry_run: Annotated[bool, option("Print what would be done, and stop.", names=("--dry-run",))] = False,
    force: Annotated[bool, option("End pods without waiting for their nodes.", names=("--force",))] = False,
    timeout: Annotated[str, option("Give up when nothing has gone for this long.", "TIME")] = "2m",
    namespace: Annotated[
        str | None, option("Namespace to look in.", "NAME", "Cluster", show_default="the run's, else the context's")
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    _config: Config = None,
    json: Json = False,
    _debug: Debug = False,
) -> int:
    """Delete every object that has a run's label, of every kind, and wait until none is left."""
    import sys

    from gpusize.base.errors import UsageError
    from gpusize.base.units import as_duration_s
    from gpusize.cli.exit_code import NO, ExitStatus
    from gpusize.cli.shared import conclude, note, progress_line
    from gpusize.cluster.submit.clean import clean_run
    from gpusize.cluster.submit.text import cleaned_lines
    from gpusize.report.export import dumps

    if (output_dir is None) == (run is None):
        what = "it takes a folder or the id of a run" + ("" if run is None else ", not both")
        raise UsageError(what, "cluster clean", "give -o DIR or --run ID")
    timeout_s = as_duration_s(timeout, "--timeout")
    with progress_line() as say:
        done = clean_run(
            output_dir if output_dir is not None else run or "",
            namespace=namespace,
            kubeconfig=kubeconfig,
            context=context,
            timeout_s=timeout_s,
            force=force,
            dry_run=dry_run,
            progress=say,
        )
    if json:
        counts = {kind: len(names) for kind, names in done.found.items()}
        facts = {"run": done.run, "namespace": done.namespace, "dry_run": done.dry_run, "found": counts}
        sys.stdout.write(dumps({**facts, "held": list(done.held), "notes": list(done.notes)}))
    else:
        for line in cleaned_lines(done):
            sys.stdout.write(f"{line}\n")
    for text in done.notes:
        note(text)
    if done.held:
        named = "".join(f"\n  {each}" for each in done.held[:8])
        left = f"{len(done.held):,} objects are still there, and nothing has gone for {timeout}{named}"
        return conclude(ExitStatus(NO, left))
    return 0
