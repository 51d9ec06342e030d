"""From an operator to the container that it runs in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from gpusize.base.errors import ConfigError, UsageError
from gpusize.base.text import shown
from gpusize.containers.pipeline.container import Container, ContainerOptions, Mount
from gpusize.containers.pipeline.input_copies import moved
from gpusize.containers.pipeline.model import INPUT_VOLUME, Operator, Pipeline
from gpusize.containers.pipeline.workspace import Workspace

__all__ = ["RunOptions", "check_binds", "container_of", "input_folder", "shared_mounts"]

_GPUS: Final = re.compile(r"[0-9]{1,4}|all|none|device=[^,\s]+(,[^,\s]+)*")

_CLARA: Final = {"NVIDIA_CLARA_NOSYNCLOCK": "1"}
"""Without it Clara's operators wait for the platform; its sizing tool sets the same."""


@dataclass(frozen=True)
class RunOptions:
    """What is the same for all operators of a run.

    Args:
        user: in place of what the definition says.
        gpus: likewise; ``none`` for none at all.
        shm_bytes: likewise.
        network: a network that exists, in place of one of our own.
        writable_inputs: whether operators may write into what they read.
        start_timeout_s: longest time until a container runs.
        timeout_s: longest time that an operator may run; None for no limit.
        environment: variables of all operators; those of the definition win.
        repeat: executions of each operator; the later ones read the same data, and write to folders of their own and to
            copies of what they share.
        work_dir: where data lies while it runs; the system's folder for temporary files by default.
        keep: a folder in which the operators' data stays.
    """

    user: str | None = None
    gpus: str | None = None
    shm_bytes: int | None = None
    network: str | None = None
    writable_inputs: bool = False
    start_timeout_s: float = 60.0
    timeout_s: float | None = None
    environment: Mapping[str, str] | None = None
    repeat: int = 1
    work_dir: Path | None = None
    keep: Path | None = None

    def __post_init__(self) -> None:
        if self.repeat < 1:
            raise UsageError(f"repeat must be 1 or more, not {self.repeat}", "repeat")
        if self.gpus is not None and not _GPUS.fullmatch(self.gpus):
            raise UsageError(
                f'"{shown(self.gpus)}" does not name GPUs', "gpus", "give a number, all, none, or device=0,2"
            )


def check_binds(pipeline: Pipeline) -> None:
    """Refuse mounts of what is not there: the daemon would say so only when the operator's turn has come.

    Raises:
        ConfigError: there is no such file or folder.
    """
    for operator in pipeline.operators:
        for bind in operator.binds:
            if not bind.volume and not Path(bind.source).exists():
                raise ConfigError(
                    f"{operator.name} mounts {shown(bind.source, 200)}, which is not there", bind.where, "make it first"
                )


def input_folder(pipeline: Pipeline, given: Path | str | None) -> Path | None:
    """The folder that operators read which have no upstream.

    Raises:
        UsageError: there is no such folder, or none was named and one is needed.
    """
    if given is None:
        if pipeline.reads_input:
            who = next(operator.name for operator in pipeline.operators if operator.reads_input)
            raise UsageError(f"{who} reads the input folder, and there is none", "input_dir", "name one")
        return None
    folder = Path(given)
    if not folder.is_dir():
        what = "this is a file, not a folder" if folder.exists() else "there is no such folder"
        raise UsageError(what, str(folder), "name the folder with the pipeline's input")
    return folder


def container_of(
    pipeline: Pipeline,
    operator: Operator,
    workspace: Workspace,
    *,
    input_dir: Path | None,
    options: RunOptions,
    network: str | None,
    addresses: Mapping[str, str],
    execution: int = 0,
    limits: tuple[float | None, int | None] = (None, None),
    copies: Mapping[Path, Path] | None = None,
    cgroup_parent: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> Container:
    """The container of one execution of an operator; its output folders are made.

    Args:
        pipeline: the pipeline.
        operator: one of its operators.
        workspace: where the data lies.
        input_dir: the pipeline's input folder.
        options: of the run.
        network: the network of the run, for operators that name none.
        addresses: variables that tell the addresses of servers.
        execution: which one of this operator, from 0.
        limits: cores and bytes, each in place of the definition's; None for that.
        copies: what stands for places that the operator shares with others.
        cgroup_parent: as the daemon takes it.
        labels: by which leftovers are found.
    """
    variables = {
        **(_CLARA if pipeline.form == "clara" else {}),
        **(options.environment or {}),
        **addresses,
        **operator.variables,
    }
    shared = moved(shared_mounts(pipeline, operator, workspace, input_dir, options), copies or {})
    written = (Mount(str(workspace.output(operator, each, execution)), each.path) for each in operator.outputs)
    cpus, mem_bytes = limits
    own = {each.name: getattr(operator, each.name) for each in fields(ContainerOptions)} | {
        "user": options.user or operator.user,
        "network": operator.network or options.network or network,
        "gpus": _gpus(operator, options),
        "shm_bytes": options.shm_bytes or operator.shm_bytes,
    }
    return Container(
        operator.image,
        variables,
        (*shared, *written),
        **own,
        cpus=operator.limits.cpus if cpus is None else cpus,
        mem_bytes=operator.limits.mem_bytes if mem_bytes is None else mem_bytes,
        cgroup_parent=cgroup_parent,
        labels=labels or {},
    )


def shared_mounts(
    pipeline: Pipeline, operator: Operator, workspace: Workspace, input_dir: Path | None, options: RunOptions
) -> list[Mount]:
    """What an operator does not have for itself: its inputs, volumes, and folders of this machine."""
    payload = "" if input_dir is None else str(input_dir.resolve())
    mounts = [
        Mount(
            payload if each.upstream is None else str(workspace.source(pipeline, each.upstream, each.name)),
            each.path,
            not options.writable_inputs,
        )
        for each in operator.inputs
    ]
    for bind in operator.binds:
        if not bind.volume:
            source = bind.source
        elif bind.source == INPUT_VOLUME:
            source = payload
        else:
            source = str(workspace.volume(bind.source))
        mounts.append(Mount(source, bind.path, bind.read_only))
    return mounts


def _gpus(operator: Operator, options: RunOptions) -> str | None:
    if options.gpus is not None:
        return None if options.gpus in {"none", "0"} else options.gpus
    if operator.gpus is not None:
        return operator.gpus
    return str(operator.requests.gpus) if operator.requests.gpus else None
