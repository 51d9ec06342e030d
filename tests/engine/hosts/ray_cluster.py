"""A Ray cluster of three nodes on loopback, each with a raylet and an address of its own."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NODES = 3
GONE_WITHIN_S = 30.0
TOKEN = secrets.token_hex(32)
"""One for all clusters of this process: Ray reads it once."""


@dataclass
class RayCluster:
    """What a test needs of the cluster.

    Attributes:
        address: of its head.
        folder: where its processes write, agents among them.
        nodes: the handles of all nodes but the first.
        cluster: Ray's own.
    """

    address: str
    folder: Path
    cluster: Any
    nodes: list[Any] = field(default_factory=list)

    def agents(self) -> list[int]:
        """Processes of agents that run on it."""
        return self._ours(b"ray::GpusizeAgent")

    def work(self) -> list[int]:
        """Processes that do tasks of ours."""
        return self._ours(b"ray::gpusize_task")

    def _ours(self, title: bytes) -> list[int]:
        found = []
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if process.name.isdigit() and title in (process / "cmdline").read_bytes():
                    ours = f"TMPDIR={self.folder}".encode() in (process / "environ").read_bytes()
                    found += [int(process.name)] * ours
        return found

    def files(self) -> list[str]:
        """What agents have left."""
        return [each.name for each in self.folder.glob("gpusize-*")]

    def groups(self) -> list[str]:
        """States of all placement groups that there are."""
        import ray

        with connected(self.address):
            found = ray.util.placement_group_table()
        return [each["state"] for each in found.values() if each["state"] != "REMOVED"]

    def is_empty(self) -> None:
        """See that nothing of any run is left, within moments."""
        until_s = time.monotonic() + GONE_WITHIN_S
        while (self.agents() or self.groups()) and time.monotonic() < until_s:
            time.sleep(0.1)
        assert self.agents() == []
        assert self.groups() == []


@contextlib.contextmanager
def connected(address: str, **more: Any) -> Iterator[None]:
    """This process as a program of the cluster's, unless it is one."""
    import ray

    if ray.is_initialized():
        yield
        return
    ray.init(address=address, log_to_driver=False, configure_logging=False, **more)
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def ray_cluster() -> Iterator[RayCluster]:
    """The cluster, for the time of the block."""
    # Paths of sockets have 107 characters, so that this cannot be below the tests' own folder.
    folder = Path(tempfile.mkdtemp(prefix="gz-ray-", dir="/tmp"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": TOKEN,
            "RAY_TMPDIR": str(folder),
            "TMPDIR": str(folder),
        }.items():
            patch.setenv(name, value)
        patch.delenv("RAY_ADDRESS", raising=False)
        from ray.cluster_utils import Cluster

        usual: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80_000_000}
        first = {**usual, "node_ip_address": "127.0.0.2", "include_dashboard": False}
        try:
            cluster = Cluster(initialize_head=True, head_node_args=first)
            try:
                found = RayCluster(cluster.address, folder, cluster)
                found.nodes += [cluster.add_node(**usual, node_ip_address=f"127.0.0.{3 + k}") for k in range(NODES - 1)]
                yield found
            finally:
                cluster.shutdown()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
