"""``gpusize cluster sample``: when each moment in the life of workloads was."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from gpusize.cli.cluster_config import Config
from gpusize.cli.cluster_options import CLUSTER, Context, Kubeconfig, Namespace, Out, WorkloadType
from gpusize.cli.command import Command, Debug, Json, option

if TYPE_CHECKING:
    import typer

    from gpusize.cluster.watch.sample import Sampled

__all__ = ["add"]

EPILOG = """Examples:

  gpusize cluster sample -t training -o out1

  gpusize cluster sample --follow --until ready -o out1     # in another terminal, before gpusize cluster submit

  gpusize cluster sample --follow --for 10m -t job --namespace team-a -o out2"""

HOW = "How long"
MS = 1e6


def add(app: typer.Typer) -> None:
    """Add the command to those of ``gpusize cluster``."""
    app.command("sample", cls=Command, epilog=EPILOG)(sample)


def sample(
    workload_type: WorkloadType = "training",
    output_dir: Out = Path("logs"),
    follow: Annotated[
        bool,
        option("Watch until Ctrl-C; else ask once for what the cluster still knows.", None, HOW, names=("--follow",)),
    ] = False,
    for_: Annotated[str | None, option("Watch for this time.", "TIME", HOW, names=("--for",))] = None,
    until: Annotated[
        str | None, option("Watch until all workloads are that far: ready or completed.", "WHAT", HOW)
    ] = None,
    canary: Annotated[
        bool, option("While watching, write a Lease of our own: it tells the server's clock and the lag.", None, HOW)
    ] = True,
    project: Annotated[str, option("Project of Run:ai.", "NAME", CLUSTER, names=("--project", "-p"))] = "project-0",
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    _config: Config = None,
    json: Json = False,
    _debug: Debug = False,
) -> int:
    """Stamp the moments in the life of workloads, each with its source, resolution and clock.

    It may be given again, also while workloads are submitted: the folder is added to.
    """
    import sys

    from gpusize.base.errors import UsageError
    from gpusize.base.units import as_duration_s
    from gpusize.cli.shared import note, progress_line
    from gpusize.cluster.watch.sample import SampleOptions, sample_cluster
    from gpusize.report.export import dumps

    if until not in (None, "ready", "completed"):
        raise UsageError(f"there is no {until}", "--until", "use ready or completed")
    options = SampleOptions(
        workload_type=workload_type,
        project=project,
        namespace=namespace,
        follow=follow or for_ is not None or until is not None,
        for_s=None if for_ is None else as_duration_s(for_, "--for"),
        until=until,  # type: ignore[arg-type]
        canary=canary,
    )
    with progress_line() as say:
        found = sample_cluster(options, output_dir, kubeconfig=kubeconfig, context=context, progress=say)
    if json:
        counts = {"workloads": found.workloads, "complete": found.complete, "pods": found.pods}
        sys.stdout.write(dumps({**counts, **found.facts}))
    else:
        for line in _lines(found):
            sys.stdout.write(f"{line}\n")
        sys.stdout.write(f"{output_dir}\n")
    for text in _notes(found.facts):
        note(text)
    return 130 if found.interrupted else 0


def _lines(found: Sampled) -> list[str]:
    lines = [f"{found.workloads:,} workloads, {found.complete:,} of them complete; {found.pods:,} pods"]
    clock, lag = found.facts.get("clock"), found.facts.get("watch_lag_ns")
    if clock is not None:
        ahead, spread = clock["offset_ns"] / MS, (clock["hi"] - clock["lo"]) / 2 / MS
        lines.append(
            f"the server's clock is {ahead:+.1f} ms from ours, give or take {spread:.1f} ms ({clock['n']} answers)"
        )
    if lag is not None:
        lines.append(f"watches lag by {lag['p50'] / MS:.1f} ms, p99 {lag['p99'] / MS:.1f} ms ({lag['n']} writes)")
    return lines


def _notes(facts: dict[str, Any]) -> list[str]:
    notes = [f"{kind} is left out: {why}" for kind, why in facts["left_out"].items()]
    for gap in facts["gaps"]:
        lasted = (gap["to"] - gap["from"]) / 1e9
        notes.append(
            f"{gap['kind']}: {lasted:.1f} s may be missing, after {gap['why']}; since then {gap['appeared']} appeared, "
            f"{gap['changed']} changed and {gap['vanished']} vanished"
        )
    for kind, last in facts["reconciled"].items():
        if "problem" in last:
            notes.append(f"{kind}: the last list failed: {last['problem']}")
    return notes
