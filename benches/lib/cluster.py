"""The simulated cluster as a server of its own core."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benches.lib.procs import on_core
from gpusize.targets.simulated.cluster import SimulatedCluster

__all__ = ["pinned_cluster"]


@contextmanager
def pinned_cluster(core: int, **config: Any) -> Iterator[SimulatedCluster]:
    """A simulated cluster whose process is held on one core with all its threads."""
    cluster = SimulatedCluster(config)
    with on_core(core):
        cluster.__enter__()
    try:
        yield cluster
    finally:
        cluster.__exit__(None, None, None)
