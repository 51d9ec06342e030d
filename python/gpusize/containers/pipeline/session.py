"""What a run has made outside itself, all of it labelled, and how it goes away again."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from gpusize.base.errors import EnvironmentLacks
from gpusize.containers.pipeline.cgroups import Groups
from gpusize.containers.pipeline.daemon import Daemon, talking
from gpusize.containers.pipeline.labels import FOLDER, RUN, labels_of
from gpusize.containers.pipeline.workspace import Workspace

__all__ = ["Session"]

OPERATOR: Final = "gpusize.operator"
"""Label: the operator, or the server."""


class Session:
    """The network, groups, folders and containers of one run.

    Args:
        daemon: the daemon.
        images: of its containers; one of them removes files of other users at the end.
        own_network: whether the run gets a network of its own.
        work_dir: folder for its data while it runs.
        keep: where its data goes to stay.

    Raises:
        EnvironmentLacks: the daemon makes no network.
        StoreError: the folders cannot be made.
    """

    def __init__(
        self,
        daemon: Daemon,
        images: Sequence[str],
        *,
        own_network: bool = True,
        work_dir: Path | None = None,
        keep: Path | None = None,
    ) -> None:
        self.daemon = daemon
        self.run = secrets.token_hex(6)
        self._images = list(images)
        self._count = 0
        self._groups = Groups(self.run, systemd=daemon.systemd)
        self.workspace = Workspace(self.run, self._images, work_dir, keep)
        self.network: str | None = None
        if own_network:
            try:
                self.network = self._make_network()
            except BaseException:
                self.workspace.close(None)
                raise

    def _make_network(self) -> str:
        name = f"gpusize-{self.run}"
        with talking("the network of the run cannot be made"):
            self.daemon.client.create_network(name, driver="bridge", labels=self.labels())
        return name

    @property
    def has_groups(self) -> bool:
        """Whether containers have a parent cgroup of ours."""
        return self._groups.possible

    def labels(self, operator: str | None = None) -> dict[str, str]:
        """Labels of what belongs to the run."""
        of_operator = {} if operator is None else {OPERATOR: operator}
        return {**labels_of(self.run), FOLDER: str(self.workspace.path), **of_operator}

    def group(self) -> tuple[str | None, str | None]:
        """A parent cgroup for one more container: as the daemon takes it, and its path."""
        self._count += 1
        return self._groups.make(self._count) or (None, None)

    def close(self) -> list[str]:
        """Remove everything; what cannot be removed does not keep the rest.

        Returns:
            What is left, in words.
        """
        left: list[str] = []
        with _collecting(left, "containers and the network"):
            containers, networks = self.daemon.labelled(f"{RUN}={self.run}")
            for container in containers:
                with _collecting(left, f"container {container['Id'][:12]}"):
                    self.daemon.remove_container(container["Id"])
            for network in networks:
                with _collecting(left, f"network {network['Name']}"):
                    self.daemon.remove_network(network["Id"])
        left += [f"{group}: processes run in it" for group in self._groups.remove()]
        reachable = None if left else self.daemon
        left += [f"{folder}: files of other users are in it" for folder in self.workspace.close(reachable)]
        return left


@contextlib.contextmanager
def _collecting(left: list[str], what: str) -> Iterator[None]:
    try:
        yield
    except EnvironmentLacks as problem:
        left.append(f"{what}: {problem.what}")
