"""GPUs of one container, joined to it by its processes."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from gpusize.base.errors import GpusizeError

if TYPE_CHECKING:
    import polars as pl

    from gpusize.observe.usage.gpu_use import GpuUse
    from gpusize.observe.usage.gpus import GpuWatch

__all__ = ["ContainerGpus"]


class ContainerGpus:
    """Reads the GPUs while a container runs that was given some. A missing driver is a note.

    Args:
        pid: the container's first process.
        nvml: stands in for pynvml, in tests.
    """

    def __init__(self, pid: int, *, nvml: ModuleType | None = None) -> None:
        from gpusize.observe.usage.gpus import GpuWatch, in_cgroup_of

        self._watch: GpuWatch | None = GpuWatch(in_cgroup_of(pid), nvml=nvml)
        self.notes: list[str] = []
        try:
            self._watch.start()
        except GpusizeError as problem:
            self.notes.append(f"GPUs are not watched: {problem}")
            self._watch = None

    def stop(self) -> tuple[tuple[GpuUse, ...], pl.DataFrame | None]:
        """What it used of each GPU, and the samples behind that."""
        if self._watch is None:
            return (), None
        watch, self._watch = self._watch, None
        samples = watch.stop()
        self.notes += watch.notes
        if samples.is_empty():
            return (), None
        times = samples["t_ns"].to_numpy()
        return tuple(watch.uses(samples, int(times.min()), int(times.max()) + 1)), samples
