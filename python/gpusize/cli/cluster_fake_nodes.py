"""``gpusize cluster fake-nodes``: nodes with GPUs that nobody owns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from gpusize.cli import cluster_options as cluster
from gpusize.cli import cluster_workloads as workloads
from gpusize.cli.command import Debug, listed, long_command, option

if TYPE_CHECKING:
    import typer

__all__ = ["add"]

EPILOG = """Examples:

  gpusize cluster fake-nodes --nodes 1000 --gpus 8

  gpusize cluster fake-nodes --nodes 50 --start-after 'uniform(50ms,500ms)' --ready-after 1s --run-for 30s

  gpusize cluster fake-nodes --remove-nodes

A delay is written as 2s, exp(2s), uniform(50ms,500ms) or lognormal(2s,0.5)."""

COMMAND = long_command("nodes", "gpus", "start_after", "ready_after", "run_for", "keep_nodes", "remove_nodes")
NODES, PODS = "Nodes", "Pods"


def add(app: typer.Typer) -> None:
    """Add the command to those of ``gpusize cluster``."""
    app.command("fake-nodes", cls=COMMAND, epilog=EPILOG)(command)


def command(
    nodes: Annotated[int, option("How many nodes.", "N", NODES, min=1, max=100_000)] = 10,
    gpus: Annotated[int, option("GPUs of each node, as nvidia.com/gpu.", "N", NODES, min=0, max=1024)] = 8,
    gpu_product: Annotated[str, option("Their name, as a label.", "NAME", NODES)] = "NVIDIA-H100-80GB-HBM3",
    cpus: Annotated[int, option("CPUs of each node.", "N", NODES, min=1, max=4096)] = 128,
    memory: Annotated[str, option("Memory of each node.", "SIZE", NODES)] = "1Ti",
    pods: Annotated[int, option("Most pods of each node.", "N", NODES, min=1, max=10_000)] = 110,
    node_label: Annotated[list[str] | None, option("A further label.", "KEY=VALUE", NODES)] = None,
    taint: Annotated[
        bool, option("Take only pods that tolerate kwok.x-k8s.io/node=fake.", None, NODES, names=("--taint",))
    ] = False,
    group: Annotated[str, option("Begin the nodes' names with this.", "NAME", NODES)] = "gpusize-fake",
    heartbeat: Annotated[str, option("Renew each node's lease this often; 0s for never.", "TIME", NODES)] = "15s",
    start_after: workloads.StartAfter = "0s",
    ready_after: Annotated[str, option("Make a started pod ready after this long.", "DELAY", PODS)] = "0s",
    run_for: workloads.RunFor = None,
    never: Annotated[float, option("Never start this share of the pods.", "SHARE", PODS, min=0, max=1)] = 0.0,
    fail: Annotated[float, option("Let this share of the pods fail.", "SHARE", PODS, min=0, max=1)] = 0.0,
    seed: Annotated[int, listed("seed", PODS, min=0, max=2**63 - 1)] = 1,
    log: Annotated[Path | None, option("Write each step as it was done to this CSV file.", "FILE", PODS)] = None,
    keep_nodes: Annotated[bool, option("Leave the nodes there at the end.", names=("--keep-nodes",))] = False,
    remove_nodes: Annotated[
        bool, option("Remove the nodes of the group, and stop.", names=("--remove-nodes",))
    ] = False,
    allow_other_workloads: workloads.AllowOthers = False,
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
    _debug: Debug = False,
) -> int:
    """Make nodes with GPUs that nobody owns, and move the pods bound to them through their phases, until Ctrl-C.

    The nodes are objects of the cluster alone: no process runs, and no image is pulled. With them a real scheduler can
    be studied at any size.
    """
    import asyncio

    from gpusize.base.errors import UsageError
    from gpusize.base.interrupt import StopSwitch, on_interrupt
    from gpusize.base.units import as_duration_s
    from gpusize.cli.shared import note, progress_line
    from gpusize.cluster.access.api import connect
    from gpusize.cluster.fake.delays import Delays
    from gpusize.cluster.fake.group import FakeGroup, check_alone, remove_group
    from gpusize.cluster.fake.nodes import FakeNodes
    from gpusize.cluster.fake.step_log import StepLog

    labels = []
    for each in node_label or ():
        key, equals, value = each.partition("=")
        if not (key and equals):
            raise UsageError(f'"{each}" is no label', "--node-label", "write it as key=value")
        labels.append((key, value))
    kind = FakeNodes(nodes, gpus, gpu_product, cpus, memory, pods, group, tuple(labels), taint)
    delays = Delays.parse(start_after, ready_after, run_for, never=never, fail=fail, seed=seed)
    heartbeat_s = as_duration_s(heartbeat, "--heartbeat")

    async def serve(switch: StopSwitch, say: Any, tell: Any) -> None:
        async with connect(kubeconfig, context) as api:
            if remove_nodes:
                note(f"removed {await remove_group(api, group)} nodes of {group}")
                return
            if not allow_other_workloads:
                await check_alone(api)
            fakes = FakeGroup(api, kind, delays, heartbeat_s, keep_nodes, tell)
            stop = "Ctrl-C ends this, and they stay" if keep_nodes else "Ctrl-C removes them"

            async def work() -> None:
                async with fakes:
                    note(f"{nodes} nodes with {gpus} GPUs each are in {api.server}; {stop}")
                    await asyncio.Event().wait()

            task = asyncio.create_task(work())
            ended = 0
            while not task.done():
                await asyncio.wait({task}, timeout=0.1)
                # Once for each Ctrl-C: the first ends the work and lets the nodes be removed, the second ends that too.
                if ended < max(switch.asked, fakes.failed()):
                    ended += 1
                    task.cancel()
                trouble = f"; {fakes.kubelet.trouble}" if fakes.kubelet.trouble else ""
                say(f"{len(fakes.made)} nodes made; {fakes.kubelet.told()}{trouble}")
            if not task.cancelled():
                task.result()
            fakes.check()
            note(fakes.kubelet.told())

    switch = StopSwitch()
    with StepLog(log) as kept, on_interrupt(switch), progress_line() as say:
        asyncio.run(serve(switch, say, kept.add))
    return 0
