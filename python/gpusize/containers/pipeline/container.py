"""One container as it is asked for: for the daemon's API and, the same, as a ``docker run`` or ``podman run`` line."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Container", "ContainerOptions", "Mount"]


@dataclass(frozen=True)
class Mount:
    """A folder or file of this machine inside a container."""

    source: str
    target: str
    read_only: bool = False

    def option(self) -> str:
        """The value of ``--mount``: CSV, so a comma or a quote is quoted as there."""
        parts = ["type=bind", f"source={self.source}", f"target={self.target}"]
        parts += ["readonly"] if self.read_only else []
        return ",".join(f'"{part.replace(chr(34), chr(34) * 2)}"' if set(part) & set(',"') else part for part in parts)


@dataclass(frozen=True, kw_only=True)
class ContainerOptions:
    """What a definition says of a container, and what a container is made from.

    Args:
        command: arguments of the entry point; None for the image's own. Empty for none at all, which takes an entry
            point beside it: for the daemon no arguments are those of the image.
        entrypoint: in place of the image's, and of its arguments; None for the image's own, empty for none.
        user: user and group inside, ``1000:1000``.
        workdir: working directory inside.
        network: a network, or a mode such as ``host``; None for the usual one.
        gpus: a number, ``all``, or ids as ``device=0,2``; None for the usual ones.
        shm_bytes: size of ``/dev/shm``.
        tmpfs: places inside that are kept in memory.
        init: whether a small init process reaps children.
    """

    command: tuple[str, ...] | None = None
    entrypoint: tuple[str, ...] | None = None
    user: str | None = None
    workdir: str | None = None
    network: str | None = None
    gpus: str | None = None
    shm_bytes: int | None = None
    tmpfs: tuple[str, ...] = ()
    init: bool = False


@dataclass(frozen=True)
class Container(ContainerOptions):
    """What a container is made from, beside its options.

    Args:
        image: with tag or digest.
        environment: variables.
        mounts: folders of this machine.
        cpus: limit, in cores.
        mem_bytes: limit; swap is not given on top of it, or memory would be measured short.
        ports: ports that are published on loopback, at free ports of this machine.
        cgroup_parent: the group that its own is made in.
        labels: by which leftovers are found.
    """

    image: str
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    cpus: float | None = None
    mem_bytes: int | None = None
    ports: tuple[int, ...] = ()
    cgroup_parent: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def _words(self) -> tuple[list[str] | None, list[str] | None]:
        """Entry point and arguments; words of the former after its first are put before the latter, as the CLI does."""
        command = None if self.command is None else list(self.command)
        if self.entrypoint is None:
            return None, command
        # An empty word is how both the API and the CLI are told that there is to be none.
        return [*self.entrypoint[:1]] or [""], [*self.entrypoint[1:], *(command or ())]

    def config(self) -> dict[str, Any]:
        """The body of the daemon's call that creates it."""
        entrypoint, command = self._words()
        host: dict[str, Any] = {
            "Mounts": [
                {"Type": "bind", "Source": each.source, "Target": each.target, "ReadOnly": each.read_only}
                for each in self.mounts
            ],
            "NetworkMode": self.network or "default",
        }
        if self.gpus is not None:
            host["DeviceRequests"] = [_device_request(self.gpus)]
        if self.shm_bytes is not None:
            host["ShmSize"] = self.shm_bytes
        if self.tmpfs:
            host["Tmpfs"] = {place.partition(":")[0]: place.partition(":")[2] for place in self.tmpfs}
        if self.init:
            host["Init"] = True
        if self.cpus is not None:
            host["NanoCpus"] = round(self.cpus * 1e9)
        if self.mem_bytes is not None:
            host["Memory"] = host["MemorySwap"] = self.mem_bytes
        if self.ports:
            host["PortBindings"] = {f"{port}/tcp": [{"HostIp": "127.0.0.1", "HostPort": ""}] for port in self.ports}
        if self.cgroup_parent is not None:
            host["CgroupParent"] = self.cgroup_parent
        return {
            "Image": self.image,
            "Cmd": command,
            "Entrypoint": entrypoint,
            "Env": [f"{name}={value}" for name, value in self.environment.items()],
            "User": self.user or "",
            "WorkingDir": self.workdir or "",
            "ExposedPorts": {f"{port}/tcp": {} for port in self.ports},
            "Labels": dict(self.labels),
            "HostConfig": host,
        }

    def command_line(self, cli: str = "docker") -> str:
        """A ``docker run`` line that makes the same container; labels and cgroup parent, our bookkeeping, are left out.

        It runs in the foreground and removes the container at its end.

        Args:
            cli: ``podman`` for a line that speaks to Podman, by the same options.
        """
        words = [cli, "run", "--rm"]
        for option, value in (
            ("--network", self.network),
            ("--user", self.user),
            ("--workdir", self.workdir),
            # The option's value is CSV: ids with commas between them are quoted within it.
            ("--gpus", f'"{self.gpus}"' if self.gpus and "," in self.gpus else self.gpus),
            ("--shm-size", self.shm_bytes),
            ("--cpus", None if self.cpus is None else f"{self.cpus:g}"),
            ("--memory", self.mem_bytes),
            ("--memory-swap", self.mem_bytes),
        ):
            words += [] if value is None else [option, str(value)]
        words += ["--init"] if self.init else []
        words += [word for place in self.tmpfs for word in ("--tmpfs", place)]
        words += [word for port in self.ports for word in ("--publish", f"127.0.0.1::{port}")]
        words += [word for pair in self.environment.items() for word in ("--env", "=".join(pair))]
        words += [word for mount in self.mounts for word in ("--mount", mount.option())]
        entrypoint, command = self._words()
        words += [] if entrypoint is None else ["--entrypoint", entrypoint[0]]
        return shlex.join([*words, self.image, *(command or ())])


def _device_request(gpus: str) -> dict[str, Any]:
    request: dict[str, Any] = {"Driver": "", "Count": 0, "DeviceIDs": None, "Capabilities": [["gpu"]], "Options": {}}
    if gpus == "all":
        request["Count"] = -1
    elif gpus.startswith("device="):
        request["DeviceIDs"] = gpus.removeprefix("device=").split(",")
    else:
        request["Count"] = int(gpus)
    return request
