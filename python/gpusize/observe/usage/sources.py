"""What is to be sampled: a process, a container or a cgroup, by its name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpusize.base.errors import UsageError
from gpusize.observe.usage.find_containers import check_pid, running_container
from gpusize.observe.usage.processes import in_cgroup_of, in_group_at, in_tree_of
from gpusize.observe.usage.sampler import Source

if TYPE_CHECKING:
    from gpusize.observe.usage.processes import Member

__all__ = ["source_of"]


def source_of(
    *, pid: int | None = None, container: str | None = None, cgroup: str | None = None, pss: bool = False
) -> tuple[Source, Member]:
    """What is to be sampled, by exactly one of a process, a container and a cgroup; and which processes are of it.

    Raises:
        UsageError: none or several are given, or there is no such thing.
        EnvironmentLacks: the Docker daemon cannot be asked.
    """
    if sum(each is not None for each in (pid, container, cgroup)) != 1:
        raise UsageError(
            "no source is named, or several are", "sample", "give one: a command, a pid, a container or a cgroup"
        )
    if container is not None:
        running = running_container(container)
        return Source(name=running.name, pid=running.pid), in_cgroup_of(running.pid)
    if pid is not None:
        name = _command_name(check_pid(pid)) or f"pid {pid}"
        return Source(name=name, kind="process", pid=pid, pss=pss), in_tree_of(pid)
    path = (cgroup or "").rstrip("/") or "/"
    return Source(name=Path(path).name or path, path=path), in_group_at(path)


def _command_name(pid: int) -> str:
    try:
        return (Path("/proc") / str(pid) / "comm").read_text("utf-8", "replace").strip()
    except OSError:
        return ""
