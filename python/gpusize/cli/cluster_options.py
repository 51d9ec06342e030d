"""Options that several commands of ``gpusize cluster`` have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from gpusize.cli.command import option

__all__ = ["CLUSTER", "Context", "Kubeconfig", "Namespace", "Out", "Project", "WorkloadType"]

CLUSTER = "Cluster"

Kubeconfig = Annotated[
    str | None,
    option(
        "Kubeconfig of the cluster.", "FILE", CLUSTER, show_default="the pod's account, $KUBECONFIG, ~/.kube/config"
    ),
]
Context = Annotated[str | None, option("Context of the kubeconfig.", "NAME", CLUSTER, show_default="its current one")]
Namespace = Annotated[
    str | None,
    option(
        "Namespace of the workloads.", "NAME", CLUSTER, show_default="runai-PROJECT for Run:ai's, else the context's"
    ),
]
Project = Annotated[str, option("Project of Run:ai.", "NAME", CLUSTER)]
WorkloadType = Annotated[
    str,
    option(
        "Kind of workload: training, distributed, interactive, or another template's name.",
        "NAME",
        names=("--workload-type", "-t"),
    ),
]
Out = Annotated[Path, option("Folder of the test; what is there is added to.", "DIR", names=("--output-dir", "-o"))]
